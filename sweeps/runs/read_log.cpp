#include "sweeps/runs/read_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <streambuf>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/fnv.h"
#include "profiler/import/byte_source.h"
#include "sweeps/runs/anchors.h"
#include "sweeps/runs/failure_forms.h"
#include "sweeps/runs/line_forms.h"
#include "sweeps/runs/line_origin.h"
#include "sweeps/runs/log_collector.h"
#include "sweeps/runs/log_lines.h"
#include "sweeps/runs/text_scan.h"

namespace moetune::sweeps {
namespace {

/// All rows that have an anchor: first those of line_forms, then those of failure_forms.
struct FormIndex {
  FormIndex() : anchors(anchors_of()) {}

  std::vector<std::string_view> anchors_of() {
    std::vector<std::string_view> texts;
    for (const LineForm& form : line_forms()) texts.push_back(form.anchor);
    for (const FailureForm& form : failure_forms()) {
      if (form.anchor.empty()) continue;
      texts.push_back(form.anchor);
      failures.push_back(&form);
    }
    return texts;
  }

  std::vector<const FailureForm*> failures;
  Anchors anchors;
};

const FormIndex& form_index() {
  static const FormIndex index;
  return index;
}

/// A line against the rows whose anchors it has. Lines of two writers may be glued: of one anchor
/// that occurs more than once each gets the part up to the next, and what an anchor says is of the
/// last prefix before it.
class LineReader {
 public:
  explicit LineReader(LogCollector& log) : log_(log) {}

  /// How many rows could read it.
  int64_t read(std::string_view text) {
    const FormIndex& index = form_index();
    const auto forms = line_forms();
    hits_.clear();
    index.anchors.find(text, hits_);
    if (hits_.empty()) return 0;
    // A line of a megabyte that repeats a word is no line of ours.
    constexpr size_t kMostHits = 256;
    if (hits_.size() > kMostHits) hits_.resize(kMostHits);
    int64_t num_read = 0;
    GluedPrefix next = next_glued_prefix(text, 0);
    size_t begin_of_writer = 0;
    for (size_t i = 0; i < hits_.size(); ++i) {
      for (; next.at < hits_[i].at; next = next_glued_prefix(text, next.end)) {
        log_.set_writer(next.origin);
        begin_of_writer = next.end;
      }
      const size_t begin = end_of_previous(i);
      const std::string_view part = text.substr(begin, begin_of_next(i, text.size()) - begin);
      const size_t at = hits_[i].at - begin;
      const size_t anchor = hits_[i].anchor;
      if (anchor >= forms.size()) {
        const FailureForm& form = *index.failures[anchor - forms.size()];
        if (form.is_in_traceback() && !log_.is_exception()) continue;
        // What another writer said before is no part of it.
        const size_t own =
            begin_of_writer <= hits_[i].at ? std::max(begin, begin_of_writer) : begin;
        const std::string_view said = part.substr(own - begin);
        if (form.read == nullptr) {
          log_.add_failure(form, said);
        } else {
          form.read(form, said, hits_[i].at - own, log_);
        }
        continue;
      }
      const LineForm& form = forms[anchor];
      if (form.read != nullptr && !form.read(part, at, log_)) continue;
      ++num_read;
      log_.prove(form.framework, form.weight, form.anchor);
    }
    return num_read;
  }

 private:
  [[nodiscard]] size_t end_of_previous(size_t i) const {
    const size_t anchor = hits_[i].anchor;
    for (size_t k = i; k-- > 0;) {
      if (hits_[k].anchor == anchor) return hits_[k].at + 1;
    }
    return 0;
  }
  [[nodiscard]] size_t begin_of_next(size_t i, size_t size) const {
    for (size_t k = i + 1; k < hits_.size(); ++k) {
      if (hits_[k].anchor == hits_[i].anchor) return hits_[k].at;
    }
    return size;
  }

  LogCollector& log_;
  std::vector<Anchors::Hit> hits_;
};

/// "rank-7", "rank_7" and "rank7" as the name of a file or of its folder.
int rank_in_path(const std::string& path) {
  const std::filesystem::path file(path);
  for (const std::string& name :
       {file.filename().string(), file.parent_path().filename().string()}) {
    for (size_t at = name.find("rank"); at != std::string::npos; at = name.find("rank", at + 1)) {
      std::string_view rest = std::string_view(name).substr(at + 4);
      if (rest.starts_with('-') || rest.starts_with('_')) rest.remove_prefix(1);
      const int rank = log_text::rank_of(log_text::leading_integer(rest));
      if (rank >= 0 && !rest.starts_with(' ')) return rank;
    }
  }
  return -1;
}

/// The last time that any line says: a run that is silent about steps may still print.
std::optional<double> last_time_in(std::string_view tail) {
  while (!tail.empty()) {
    const size_t end = tail.rfind('\n');
    const size_t begin = end == std::string_view::npos ? 0 : end + 1;
    if (const auto time = log_text::first_time(tail.substr(begin, 400))) return time;
    if (end == std::string_view::npos) break;
    tail = tail.substr(0, end);
  }
  return std::nullopt;
}

/// A packed file as a stream.
class UnpackedBytes : public std::streambuf {
 public:
  explicit UnpackedBytes(std::unique_ptr<profiler::ByteSource> source)
      : source_(std::move(source)), bytes_(size_t{256} << 10, '\0') {}

 protected:
  int_type underflow() override {
    const size_t count = source_->read(bytes_.data(), bytes_.size());
    setg(bytes_.data(), bytes_.data(), bytes_.data() + count);
    return count == 0 ? traits_type::eof() : traits_type::to_int_type(bytes_.front());
  }

 private:
  std::unique_ptr<profiler::ByteSource> source_;
  std::string bytes_;
};

bool is_code_or_data(std::string_view head) {
  constexpr std::string_view kStarts[] = {"#!",      "# ",    "//",     "/*",
                                          "{",       "[{",    "<",      "\x1f\x8b",
                                          "import ", "from ", "\"\"\"", "SQLite format"};
  const size_t first = head.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return true;
  const std::string_view text = head.substr(first);
  if (std::ranges::any_of(kStarts, [&](std::string_view start) { return text.starts_with(start); }))
    return true;
  // "[" of a JSON list, with its first object on the next line.
  return text[0] == '[' && text.substr(1).find_first_not_of(" \t\r\n") != std::string_view::npos &&
         text[1 + text.substr(1).find_first_not_of(" \t\r\n")] == '{';
}

}  // namespace

ForeignLog read_log(std::istream& in, const std::string& name) {
  LogLines lines(in);
  LogCollector log(name, rank_in_path(name));
  LineReader reader(log);
  LogLine line;
  while (lines.next(line)) {
    LineOrigin origin;
    std::string_view text = without_prefixes(line.text, origin);
    for (;;) {
      const size_t length = log.has_open_block() ? next_glued_prefix(text, 0).at : text.npos;
      log.begin_line(line, origin, text);
      if (!log.take_by_block(length)) {
        log.count_facts(reader.read(text));
        log.end_line();
        break;
      }
      // What another rank wrote behind a part of a block.
      if (length == text.npos) break;
      origin = {};
      text = without_prefixes(text.substr(length), origin);
    }
  }
  const auto last_time = last_time_in(lines.tail());
  auto& known = log.now().last_time_s;
  if (last_time && (!known || *known < *last_time)) known = last_time;
  ForeignLog read = log.finish(lines.num_bytes(), lines.num_cut_lines());
  read.path_rank = rank_in_path(name);
  read.tail_hash = base::fnv_of(lines.tail());
  return read;
}

ForeignLog read_log_file(const std::string& path) {
  std::error_code error;
  const bool is_file =
      std::filesystem::is_regular_file(path, error) || std::filesystem::is_fifo(path, error);
  std::ifstream in(path, std::ios::binary);
  if (!is_file || !in) {
    throw base::UsageError(fmt::format("{}: is no file that can be read, expected a log", path));
  }
  // Two bytes of a pipe cannot be put back.
  const bool may_be_packed = std::filesystem::is_regular_file(path, error) && in.peek() == 0x1f;
  if (may_be_packed) {
    UnpackedBytes unpacked(profiler::open_bytes(path));
    std::istream text(&unpacked);
    text.exceptions(std::ios::badbit);  // what the source throws comes through
    return read_log(text, path);
  }
  return read_log(in, path);
}

bool looks_like_log(std::string_view head) {
  constexpr size_t kMostNuls = 10;  // one of so many characters: holes, not a binary file
  const auto nuls = static_cast<size_t>(std::ranges::count(head, '\0'));
  if (nuls * kMostNuls > head.size()) return false;
  // Somebody wrote the command above the log. In front of a script's lines it proves nothing.
  const std::string_view first = log_text::up_to(head, "\n");
  if (log_text::is_commented_command(first)) {
    head.remove_prefix(std::min(first.size() + 1, head.size()));
  }
  if (is_code_or_data(head)) return false;
  std::istringstream in{std::string(head)};
  return read_log(in, "").num_facts > 0;
}

}  // namespace moetune::sweeps
