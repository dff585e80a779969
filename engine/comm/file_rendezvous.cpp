// The rendezvous through a shared folder. Files appear whole, by renaming, and never change except
// for the greetings. See rendezvous.h.
//
// A run that was killed leaves files behind, perhaps under the same run id, so nobody believes a
// file by its name: every rank greets with a word of its own (hello.<rank>), and rank 0 answers
// with all of these words (welcome) and the name of a folder made for this run alone. Whoever finds
// its own word there has met a living rank 0, and everything else happens in that folder.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "engine/comm/rendezvous.h"
#include "engine/comm/wire.h"
#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using wire::Deadline;
using wire::seconds;
using wire::with_grace;

constexpr std::string_view kFirstLine = "moetune rendezvous 1\n";
constexpr milliseconds kFileFarewell{5'000};

/// Waits in growing steps, so that a meeting of quick ranks is quick and a long wait is cheap.
class Pause {
 public:
  void sleep() {
    std::this_thread::sleep_for(time_);
    time_ = std::min(time_ * 3 / 2, std::chrono::microseconds(20'000));
  }

 private:
  std::chrono::microseconds time_{200};
};

class FileRendezvous final : public Rendezvous {
 public:
  FileRendezvous(const std::string& folder, int rank, int size, const RendezvousOptions& options)
      : Rendezvous(rank, size, kFileFarewell),
        options_(options),
        folder_(folder),
        deadline_(options.join_timeout),
        max_bytes_(static_cast<size_t>(size) * (kMaxBlobBytes + 4) + 1024) {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (!fs::is_directory(folder_)) {
      throw base::UsageError(
          fmt::format("'{}' must be a folder that all ranks can write to", folder));
    }
    if (rank == 0) {
      gather_everybody();
    } else {
      find_root();
    }
  }

  ~FileRendezvous() override {
    try {
      if (has_failed()) return;  // others still have to read why
      write(session_ / fmt::format("bye.{}", rank()), "");
      if (rank() == 0) clean_up();
    } catch (...) {
      // What is left lying there is small and believed by nobody.
    }
  }

 protected:
  std::string meet(const std::string& blob, const Answer& answer) override {
    std::string result = rank() == 0 ? lead(blob, answer) : follow(blob);
    ++sequence_;
    return result;
  }

  void look() override {
    if (const std::optional<std::string> reason = read(session_ / "failed")) {
      throw base::PeerFailed(*reason);
    }
  }

  void tell_failure(const std::string& reason) override {
    // The first cause counts: what others run into after it is of its making.
    if (!read(session_ / "failed")) write(session_ / "failed", reason);
  }

 private:
  [[nodiscard]] fs::path blob_path(int64_t sequence, int from) const {
    return session_ / fmt::format("{}.{}", sequence, from);
  }
  [[nodiscard]] fs::path answer_path(int64_t sequence) const {
    return session_ / fmt::format("{}.answer", sequence);
  }

  std::string lead(const std::string& blob, const Answer& answer) {
    const Deadline deadline(options_.meet_timeout);
    std::vector<std::string> blobs = {blob};
    Pause pause;
    look();
    while (blobs.size() < static_cast<size_t>(size())) {
      const auto next = static_cast<int>(blobs.size());
      if (std::optional<std::string> arrived = read(blob_path(sequence_, next))) {
        blobs.push_back(std::move(*arrived));
        continue;
      }
      look();
      if (deadline.is_past()) {
        std::vector<int> late;
        for (int other = next; other < size(); ++other) {
          if (!read(blob_path(sequence_, other))) late.push_back(other);
        }
        throw base::Error(fmt::format("rank {} of {} did not come to a meeting within {} s",
                                      wire::list_of(late), size(), seconds(options_.meet_timeout)));
      }
      if (fs::exists(session_ / fmt::format("bye.{}", next))) {
        throw base::PeerFailed(fmt::format("rank {} has ended", next));
      }
      pause.sleep();
    }
    std::string result = answer(blobs);
    // Everybody is here, so everybody has read the answer before.
    remove(answer_path(sequence_ - 1));
    write(answer_path(sequence_), result);
    return result;
  }

  std::string follow(const std::string& blob) {
    const Deadline deadline(with_grace(options_.meet_timeout));
    write(blob_path(sequence_, rank()), blob);
    Pause pause;
    while (true) {
      // Looked at before the answer: who failed or left once it was there has not spoilt this one.
      const std::optional<std::string> failure = read(session_ / "failed");
      const bool has_root_left = fs::exists(session_ / "bye.0");
      if (std::optional<std::string> result = read(answer_path(sequence_))) {
        remove(blob_path(sequence_, rank()));
        return *result;
      }
      if (failure) throw base::PeerFailed(*failure);
      if (has_root_left) throw base::PeerFailed("rank 0 has ended");
      if (deadline.is_past()) {
        throw base::Error(fmt::format("rank 0 did not answer in '{}' within {} s",
                                      session_.string(),
                                      seconds(with_grace(options_.meet_timeout))));
      }
      pause.sleep();
    }
  }

  // Rank 0: welcomes whoever greets until all have come into the folder of this run.
  void gather_everybody() {
    const std::string session_name = "s-" + wire::random_name();
    session_ = folder_ / session_name;
    fs::create_directory(session_);
    std::vector<std::string> words(static_cast<size_t>(size()));
    Pause pause;
    while (true) {
      bool is_changed = false;
      std::vector<int> missing;
      for (int other = 1; other < size(); ++other) {
        if (fs::exists(session_ / fmt::format("here.{}", other))) continue;
        missing.push_back(other);
        // The greeting of an earlier run is believed until the right one replaces it; nobody
        // answers to it.
        const std::optional<std::string> word = read(hello_path(other));
        if (!word || *word == words[static_cast<size_t>(other)]) continue;
        words[static_cast<size_t>(other)] = *word;
        is_changed = true;
      }
      if (missing.empty()) break;
      if (is_changed) {
        std::string welcome = session_name + "\n";
        for (const std::string& word : words) welcome += word + "\n";
        write(folder_ / "welcome", welcome);
      }
      if (deadline_.is_past()) {
        const std::string reason = fmt::format(
            "rank {} of {} did not come to the folder '{}' within {} s{}", wire::list_of(missing),
            size(), folder_.string(), seconds(options_.join_timeout), foreign_note());
        tell_failure(reason);
        throw base::Error(reason);
      }
      pause.sleep();
    }
    remove(folder_ / "welcome");
    write(session_ / "ready", "");
  }

  void find_root() {
    const std::string word = wire::random_name();
    write(hello_path(rank()), word);
    Pause pause;
    while (true) {
      const std::optional<std::string> welcome = read(folder_ / "welcome");
      if (welcome && welcome->find("\n" + word + "\n") != std::string::npos) {
        const std::string name = welcome->substr(0, welcome->find('\n'));
        if (name.find('/') != std::string::npos || !name.starts_with("s-")) {
          throw base::Error(
              fmt::format("'{}' names no folder of a run", (folder_ / "welcome").string()));
        }
        session_ = folder_ / name;
        break;
      }
      if (deadline_.is_past()) {
        remove(hello_path(rank()));
        throw base::Error(
            fmt::format("rank {} did not find rank 0 in the folder '{}' within {} s{}", rank(),
                        folder_.string(), seconds(options_.join_timeout), foreign_note()));
      }
      pause.sleep();
    }
    write(session_ / fmt::format("here.{}", rank()), "");
    remove(hello_path(rank()));
    const Deadline deadline(with_grace(options_.join_timeout));
    while (!fs::exists(session_ / "ready")) {
      look();
      if (deadline.is_past()) {
        throw base::Error(fmt::format("rank 0 in the folder '{}' did not go on within {} s",
                                      folder_.string(),
                                      seconds(with_grace(options_.join_timeout))));
      }
      pause.sleep();
    }
  }

  [[nodiscard]] fs::path hello_path(int rank) const {
    return folder_ / fmt::format("hello.{}", rank);
  }

  [[nodiscard]] std::string foreign_note() const {
    if (foreign_.empty()) return "";
    return fmt::format("; {}, which were left alone", foreign_);
  }

  // Removes all files of this run when all have ended as planned, and so have read everything.
  void clean_up() {
    const Deadline deadline(kFileFarewell);
    Pause pause;
    for (int other = 1; other < size(); ++other) {
      while (!fs::exists(session_ / fmt::format("bye.{}", other))) {
        if (deadline.is_past() || fs::exists(session_ / "failed")) return;  // may still be read
        pause.sleep();
      }
    }
    std::error_code error;
    fs::remove_all(session_, error);
  }

  static void remove(const fs::path& path) {
    std::error_code error;
    fs::remove(path, error);
  }

  void write(const fs::path& path, const std::string& payload) const {
    const fs::path temporary = path.string() + "." + wire::random_name();
    {
      std::ofstream out(temporary, std::ios::binary);
      out << kFirstLine << options_.run_id.size() << "\n" << options_.run_id << payload;
      out.flush();
      if (!out) throw base::Error(fmt::format("'{}' cannot be written", temporary.string()));
    }
    std::error_code error;
    fs::rename(temporary, path, error);
    if (error) {
      throw base::Error(fmt::format("'{}' cannot be written: {}", path.string(), error.message()));
    }
  }

  // Empty when the file is not there or of another run.
  std::optional<std::string> read(const fs::path& path) {
    std::error_code error;
    // Opening a pipe that somebody put there would wait for its writer.
    if (!fs::is_regular_file(path, error)) return std::nullopt;
    const uintmax_t bytes = fs::file_size(path, error);
    std::ifstream in(path, std::ios::binary);
    if (!in || error) return std::nullopt;
    std::string text(bytes <= max_bytes_ ? bytes : 0, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(in.gcount()));
    std::string_view rest = text;
    if (!rest.starts_with(kFirstLine)) {
      foreign_ = fmt::format("the folder has files of something else ('{}')", path.string());
      return std::nullopt;
    }
    rest.remove_prefix(kFirstLine.size());
    const std::string expected = fmt::format("{}\n{}", options_.run_id.size(), options_.run_id);
    if (!rest.starts_with(expected)) {
      foreign_ = fmt::format("the folder has files of another run ('{}')", path.string());
      return std::nullopt;
    }
    return std::string(rest.substr(expected.size()));
  }

  RendezvousOptions options_;
  fs::path folder_;
  fs::path session_;  ///< the folder of this run alone
  Deadline deadline_;
  size_t max_bytes_;
  int64_t sequence_ = 0;
  std::string foreign_;
};

}  // namespace

std::unique_ptr<Rendezvous> join_by_file(const std::string& folder, int rank, int size,
                                         const RendezvousOptions& options) {
  if (size == 1) return join_alone();
  return std::make_unique<FileRendezvous>(folder, rank, size, options);
}

}  // namespace moetune::engine
