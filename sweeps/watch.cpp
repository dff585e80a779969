// The watching loop; see watch.h.
#include "sweeps/watch.h"

#include <sys/stat.h>

#include <fstream>

#include "sweeps/interrupt.h"

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
  while (true) {
    const std::optional<ProcessEnd> ended = process.wait(std::min(kTick, options.step_limit));
    const FileState now = state_of(options.progress_path);
    if (now != seen) {
      seen = now;
      last_change = steady_clock::now();
      read_progress();
    }
    if (ended) {
      result.process = *ended;
      read_progress();
      return result;
    }
    if (num_interrupts() > 0) {
      result.is_interrupted = true;
      // Whoever asks twice does not want to wait.
      result.process = process.end(num_interrupts() > 1 ? milliseconds(0) : options.grace);
      read_progress();
      return result;
    }
    if (steady_clock::now() - last_change >= options.step_limit) {
      result.is_hung = true;
      result.process = process.end(options.grace);
      read_progress();
      return result;
    }
    if (options.deadline && steady_clock::now() >= *options.deadline) {
      result.is_out_of_time = true;
      result.process = process.end(options.grace);
      read_progress();
      return result;
    }
    if (options.on_tick) options.on_tick(result.last_progress);
  }
}

}  // namespace moetune::sweeps
