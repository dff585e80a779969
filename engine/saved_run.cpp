#include "engine/saved_run.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "embedded/version.h"
#include "engine/checkpoint/file_reader.h"
#include "engine/plan/layout.h"
#include "kernels/base/error.h"
#include "kernels/base/fnv.h"

namespace moetune::engine {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr uint64_t kMaxHeaderBytes = 1 << 16;

/// What two builds of one version differ in.
std::string build_text() {
  struct stat info {};
  if (stat("/proc/self/exe", &info) != 0) return base::kVersion;
  return fmt::format("{} {} {}", base::kVersion, info.st_size, info.st_mtim.tv_sec);
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// A piece of memory on the device.
struct Piece {
  void* data = nullptr;
  int64_t bytes = 0;
};

/// All that an update reads or writes but the gradients, which every step clears.
std::vector<Piece> pieces_of(const Parameters& params) {
  std::vector<Piece> pieces;
  for (const Bucket& bucket : params.buckets()) {
    for (const Tensor* part : {&bucket.weight, &bucket.master, &bucket.m, &bucket.v}) {
      if (part->data != nullptr) pieces.push_back({part->data, part->bytes()});
    }
  }
  return pieces;
}

constexpr int64_t kBlockBytes = 16 << 20;

/// body(offset, bytes) for blocks of a piece: a whole one need not fit into host memory once more.
template <typename Body>
void for_blocks(int64_t bytes, const Body& body) {
  for (int64_t at = 0; at < bytes; at += kBlockBytes) body(at, std::min(kBlockBytes, bytes - at));
}

int64_t bytes_of(const std::vector<int32_t>& counts) {
  return static_cast<int64_t>(counts.size() * sizeof(int32_t));
}

char* at(const Piece& piece, int64_t offset) { return static_cast<char*>(piece.data) + offset; }

}  // namespace

SavedRun::SavedRun(const spec::TrialSpec& trial, std::string folder)
    : trial_(trial), folder_(std::move(folder)), last_save_(steady_clock::now()) {
  if (plan::layout_of(trial.knobs).world_size() != 1 || !trial.reference_loss.empty()) {
    throw base::UsageError("only a run of one rank without reference_loss is saved");
  }
  key_ = base::fnv_digits(spec::to_json(trial).dump() + build_text() + host_name());
  try {
    const FileReader file(state_path());
    std::string text(std::min(file.size(), kMaxHeaderBytes), ' ');
    file.read(0, text.data(), text.size());
    const size_t end = text.find('\n');
    if (end == std::string::npos) return;
    const auto header = nlohmann::json::parse(text.substr(0, end));
    const auto body_bytes = header.at("body_bytes").get<uint64_t>();
    if (header.at("key") != key_ || body_bytes != file.size() - end - 1) return;
    RunState state;
    state.next_step = header.at("next_step").get<int64_t>();
    state.num_updates = header.at("num_updates").get<int64_t>();
    state.num_skipped = header.at("num_skipped").get<int64_t>();
    if (state.next_step < 1 || state.next_step >= spec::total_steps(trial) ||
        state.num_updates < 0 || state.num_skipped < 0 ||
        state.num_updates + state.num_skipped != state.next_step) {
      return;
    }
    if (!fs::is_regular_file(shard_path(state.next_step))) return;
    saved_ = state;
    header_bytes_ = end + 1;
  } catch (const base::Error&) {
  } catch (const nlohmann::json::exception&) {
  }
}

std::string SavedRun::shard_path(int64_t next_step) const {
  return fmt::format("{}/shard-{}.db", folder_, next_step);
}

void SavedRun::restore_shard(const std::string& path) const {
  std::error_code error;
  fs::copy_file(shard_path(saved_.next_step), path, error);
  if (error) throw base::Error(fmt::format("{}: cannot be written: {}", path, error.message()));
}

RunState SavedRun::restore(RankTrainer& trainer, RoutingRecorder& routing) const {
  if (!is_there()) return {};
  const FileReader file(state_path());
  uint64_t offset = header_bytes_;
  const auto read = [&](void* to, int64_t bytes) {
    file.read(offset, to, static_cast<uint64_t>(bytes));
    offset += static_cast<uint64_t>(bytes);
  };
  routing.go_on_at(saved_.next_step,
                   [&](std::vector<int32_t>& counts) { read(counts.data(), bytes_of(counts)); });
  std::vector<char> block(static_cast<size_t>(kBlockBytes));
  for (const Piece& piece : pieces_of(trainer.params())) {
    for_blocks(piece.bytes, [&](int64_t begin, int64_t bytes) {
      read(block.data(), bytes);
      trainer.backend().copy_to_device(at(piece, begin), block.data(), bytes);
    });
  }
  trainer.set_num_updates(saved_.num_updates);
  return saved_;
}

void SavedRun::save_when_due(const RunState& state, RankTrainer& trainer, RoutingRecorder& routing,
                             TrialRecorder& recorder) {
  constexpr std::chrono::seconds kSoonest{5};
  constexpr int kCostShare = 20;
  const auto wait = std::max<steady_clock::duration>(kSoonest, kCostShare * cost_);
  if (steady_clock::now() - last_save_ >= wait) save(state, trainer, routing, recorder);
}

void SavedRun::save(const RunState& state, RankTrainer& trainer, RoutingRecorder& routing,
                    TrialRecorder& recorder) {
  if (is_given_up_ || state.next_step == saved_.next_step || state.next_step == 0) return;
  const auto begin = steady_clock::now();
  const std::vector<Piece> pieces = pieces_of(trainer.params());
  const std::vector<int32_t>& counts = routing.profile().counts;
  int64_t body_bytes = bytes_of(counts);
  for (const Piece& piece : pieces) body_bytes += piece.bytes;
  const nlohmann::json header = {{"key", key_},
                                 {"next_step", state.next_step},
                                 {"num_updates", state.num_updates},
                                 {"num_skipped", state.num_skipped},
                                 {"body_bytes", body_bytes}};

  std::error_code error;
  const std::string shard = shard_path(state.next_step);
  fs::create_directories(folder_, error);
  fs::remove(shard, error);
  try {
    recorder.copy_shard_to(shard);
  } catch (const base::Error& problem) {
    return give_up(shard, problem.what());
  }
  const std::string temporary = state_path() + ".part";
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out << header.dump() << '\n';
  out.write(reinterpret_cast<const char*>(counts.data()), bytes_of(counts));
  std::vector<char> block(static_cast<size_t>(kBlockBytes));
  for (const Piece& piece : pieces) {
    for_blocks(piece.bytes, [&](int64_t first, int64_t bytes) {
      trainer.backend().copy_to_host(block.data(), at(piece, first), bytes);
      out.write(block.data(), bytes);
    });
  }
  out.close();
  if (out) fs::rename(temporary, state_path(), error);
  if (!out || error) {
    fs::remove(shard, error);
    return give_up(temporary, state_path() + ": cannot be written; is the disk full?");
  }
  if (is_there()) fs::remove(shard_path(saved_.next_step), error);
  saved_ = state;
  last_save_ = steady_clock::now();
  cost_ = last_save_ - begin;
}

void SavedRun::give_up(const std::string& unfinished, const std::string& why) {
  std::error_code ignored;
  fs::remove(unfinished, ignored);
  std::cerr << "this run cannot be saved on its way: " << why << std::endl;
  is_given_up_ = true;
}

}  // namespace moetune::engine
