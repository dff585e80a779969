// The loop: looks at the progress file now and then, and ends ranks when it stands still.
#include "sweeps/processes/watch.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "sweeps/processes/attend.h"

namespace moetune::sweeps {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kTick{100};

/// What tells one state of the progress file from another: rewriting it with the same text counts
/// as progress.
struct FileState {
  int64_t modified_ns = 0;
  int64_t size = -1;
  bool operator==(const FileState&) const = default;
};

FileState state_of(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return {};
  return {int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec, info.st_size};
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line.substr(0, 80);
}

}  // namespace

std::optional<int64_t> steps_where_all_are_done(std::string_view progress) {
  constexpr std::string_view kStep = "step ";
  constexpr std::string_view kOf = " of ";
  if (!progress.starts_with(kStep)) return std::nullopt;
  progress.remove_prefix(kStep.size());
  const size_t of = progress.find(kOf);
  if (of == std::string_view::npos) return std::nullopt;
  const std::string_view all = progress.substr(of + kOf.size());
  int64_t num_steps = 0;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), num_steps);
  const bool is_number = error == std::errc() && end == all.data() + all.size();
  return is_number && progress.substr(0, of) == all ? std::optional(num_steps) : std::nullopt;
}

WatchEnd watch(Process& process, const WatchOptions& options) {
  WatchEnd result;
  FileState seen = state_of(options.progress_path);
  auto last_change = steady_clock::now();
  // The writer may be between emptying and filling the file.
  const auto read_progress = [&] {
    if (std::string line = first_line(options.progress_path); !line.empty()) {
      result.last_progress = std::move(line);
    }
  };
  const auto look = [&] {
    const FileState now = state_of(options.progress_path);
    if (now == seen) return;
    seen = now;
    last_change = steady_clock::now();
    read_progress();
  };
  Attention attention;
  attention.look = std::min(kTick, options.step_limit);
  attention.grace = options.grace;
  attention.deadline = options.deadline;
  attention.num_interrupts_before = 0;  // asked for before it began, it ends at once
  attention.on_look = [&] {
    look();
    if (steady_clock::now() - last_change >= options.step_limit) return false;
    if (options.on_tick) options.on_tick(result.last_progress);
    return true;
  };
  const AttendedEnd end = attend(process, attention);
  read_progress();
  result.process = end.process;
  result.is_interrupted = end.why == WhyEnded::interrupted;
  result.is_hung = end.why == WhyEnded::given_up;
  result.is_out_of_time = end.why == WhyEnded::out_of_time;
  return result;
}

}  // namespace moetune::sweeps
