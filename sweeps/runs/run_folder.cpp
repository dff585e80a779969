#include "sweeps/runs/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <set>
#include <system_error>

#include "engine/spec/dialects/run_config.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"
#include "profiler/import/byte_source.h"
#include "profiler/import/trace_files.h"
#include "sweeps/load.h"
#include "sweeps/runs/read_log.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;

constexpr int kMostDepth = 8;
constexpr size_t kMostFiles = 20'000;
constexpr size_t kHeadBytes = size_t{256} << 10;
constexpr size_t kTailBytes = size_t{64} << 10;
constexpr int64_t kMostBytesLookedAt = int64_t{1} << 30;

bool has_any_of(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(
      parts, [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

/// Whether it has a block of code as Markdown marks it: commands there are examples. A script may
/// write such a text.
bool has_fences(std::string_view text) {
  if (text.starts_with("#!")) return false;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (base::trimmed(line).starts_with("```")) return true;
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return false;
}

RunFileKind kind_of_config(std::string_view text) {
  if (text.size() >= kHeadBytes || text.find('\0') != std::string_view::npos) {
    return RunFileKind::other;
  }
  const auto dialect = spec::dialects::detect_dialect(text);
  if (!dialect) return RunFileKind::other;
  try {
    spec::dialects::import_run(text, *dialect);
    return RunFileKind::config;
  } catch (const spec::dialects::NoSettings&) {
    return RunFileKind::other;
  } catch (const base::Error&) {
    return RunFileKind::unread_config;
  }
}

/// A regular file with bytes in it, open for reading. What the kernel makes up, such as
/// /proc/kmsg, calls itself regular, has no size, and a read of it may never return.
class SampledFile {
 public:
  explicit SampledFile(const fs::path& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {
    struct stat status {};
    if (descriptor_ >= 0 && ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode)) {
      size_ = status.st_size;
    }
  }
  ~SampledFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  SampledFile(const SampledFile&) = delete;
  SampledFile& operator=(const SampledFile&) = delete;

  [[nodiscard]] int64_t size() const { return size_; }
  /// Fewer bytes at the end of the file, and where it cannot be read.
  [[nodiscard]] std::string bytes(int64_t offset, size_t count) const {
    std::string bytes;
    if (size_ == 0) return bytes;
    bytes.resize(count);
    size_t num_read = 0;
    while (num_read < count) {
      const ssize_t more = ::pread(descriptor_, bytes.data() + num_read, count - num_read,
                                   offset + static_cast<int64_t>(num_read));
      if (more <= 0) break;
      num_read += static_cast<size_t>(more);
    }
    bytes.resize(num_read);
    return bytes;
  }

 private:
  int descriptor_;
  int64_t size_ = 0;
};

/// /proc and /sys: made up by the kernel, no run has left them.
bool is_made_up(const fs::path& folder) {
  struct statfs status {};
  return ::statfs(folder.c_str(), &status) == 0 &&
         (status.f_type == PROC_SUPER_MAGIC || status.f_type == SYSFS_MAGIC);
}

/// The first and the last bytes; of what is no text only the very first: checkpoints are many.
struct Sample {
  std::string head;
  std::string tail;
};
Sample sample_of(const fs::path& path) {
  constexpr size_t kFirstBytes = 4096;
  Sample sample;
  const SampledFile file(path);
  sample.head = file.bytes(0, kFirstBytes);
  const auto nuls = static_cast<size_t>(std::ranges::count(sample.head, '\0'));
  // A log that went on for too long may have lost its beginning: nothing but zeros is left of that.
  const bool has_lost_head = nuls == kFirstBytes;
  if (sample.head.size() < kFirstBytes || (nuls * 10 > kFirstBytes && !has_lost_head)) {
    return sample;
  }
  sample.head += file.bytes(kFirstBytes, kHeadBytes - kFirstBytes);
  if (sample.head.size() < kHeadBytes) return sample;
  sample.tail = file.bytes(std::max<int64_t>(file.size() - int64_t{kTailBytes}, 0), kTailBytes);
  return sample;
}

/// What is packed is a trace, unless it holds a log.
RunFileKind kind_of_packed(const fs::path& path) {
  try {
    const std::string head = profiler::first_bytes(path.string(), kHeadBytes);
    return kind_of_file(head) == RunFileKind::log ? RunFileKind::log : RunFileKind::gzip;
  } catch (const base::UsageError&) {
    return RunFileKind::gzip;  // whoever reads it says what is wrong with it
  }
}

/// What people write about runs, whatever commands stand in it.
bool is_prose(const fs::path& path, std::string_view text) {
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::array<std::string_view, 3> kEndings = {".md", ".markdown", ".rst"};
  return std::ranges::find(kEndings, ending) != kEndings.end() || has_fences(text);
}

/// `is_named`: by the user, who knows what it is.
void add_file(const fs::path& path, bool is_named, RunFolder& folder, int64_t& num_bytes) {
  const Sample sample = sample_of(path);
  num_bytes += static_cast<int64_t>(sample.head.size() + sample.tail.size());
  RunFileKind kind = kind_of_file(sample.head, sample.tail);
  if (kind == RunFileKind::gzip) kind = kind_of_packed(path);
  const bool is_config = kind == RunFileKind::config || kind == RunFileKind::unread_config;
  if (is_config && !is_named && is_prose(path, sample.head)) {
    if (kind == RunFileKind::config) {
      folder.notes.push_back(
          fmt::format("{}: is read as prose (.md, .rst, or blocks of code as in Markdown), whose "
                      "commands are examples; name the file where one is the run's",
                      path.string()));
    }
    kind = RunFileKind::other;
  }
  switch (kind) {
    case RunFileKind::other:
      return;
    case RunFileKind::log:
      folder.logs.push_back(path.string());
      return;
    case RunFileKind::config:
      folder.configs.push_back(path.string());
      return;
    case RunFileKind::unread_config:
      folder.unread_configs.push_back(path.string());
      return;
    case RunFileKind::chrome_trace:
    case RunFileKind::rocprof_trace:
    case RunFileKind::sqlite:
    case RunFileKind::gzip:
      folder.traces.push_back(path.string());
      return;
  }
}

/// Regular files in the order of their paths, so that a limit leaves out the same each time.
std::vector<fs::path> files_below(const fs::path& root, RunFolder& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  auto entry =
      fs::recursive_directory_iterator(root, fs::directory_options::skip_permission_denied, error);
  const auto end = fs::recursive_directory_iterator();
  for (; !error && entry != end; entry.increment(error)) {
    const bool is_hidden = entry->path().filename().string().starts_with('.');
    std::error_code ignored;
    if (entry->is_directory(ignored) &&
        (is_hidden || entry.depth() >= kMostDepth || is_made_up(entry->path()))) {
      entry.disable_recursion_pending();
    } else if (!is_hidden && entry->is_regular_file(ignored)) {
      files.push_back(entry->path());
    }
    if (files.size() == kMostFiles) {
      folder.notes.push_back(
          fmt::format("{}: only {} files were looked at", root.string(), kMostFiles));
      break;
    }
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

RunFileKind kind_of_file(std::string_view head, std::string_view tail) {
  using namespace std::string_view_literals;
  if (head.starts_with("SQLite format 3\0"sv)) return RunFileKind::sqlite;
  if (head.starts_with("\x1f\x8b"sv)) return RunFileKind::gzip;
  // What some editors put in front of UTF-8.
  if (head.starts_with("\xef\xbb\xbf"sv)) head.remove_prefix(3);
  const size_t first = std::min(head.find_first_not_of(" \t\r\n"), head.size());
  const std::string_view text = head.substr(first);
  if (text.starts_with('{') || text.starts_with("[")) {
    if (has_any_of(text, {"\"rocprofiler-sdk-tool\""})) return RunFileKind::rocprof_trace;
    const bool is_trace =
        has_any_of(text, {"\"traceEvents\"", "\"deviceProperties\""}) ||
        (has_any_of(text, {"\"ph\":", "\"ph\" :"}) && has_any_of(text, {"\"ts\":", "\"ts\" :"}));
    if (is_trace) return RunFileKind::chrome_trace;
    if (text.starts_with('{')) return RunFileKind::other;
  }
  if (looks_like_log(head) || (!tail.empty() && looks_like_log(tail))) return RunFileKind::log;
  return kind_of_config(head);
}

RunFolder find_run_files(const std::string& path) {
  RunFolder folder;
  std::error_code error;
  int64_t num_bytes = 0;
  if (fs::is_regular_file(path, error)) {
    add_file(path, true, folder, num_bytes);
    return folder;
  }
  if (!fs::is_directory(path, error)) {
    throw base::UsageError(fmt::format("{}: is neither a file nor a folder", shown_path(path)));
  }
  folder.folders.push_back(path);
  // Two links to one file are one file.
  std::set<fs::path> known;
  for (const fs::path& file : files_below(path, folder)) {
    const fs::path real = fs::canonical(file, error);
    if (error || !known.insert(real).second) continue;
    if (num_bytes > kMostBytesLookedAt) {
      folder.notes.push_back(
          fmt::format("{}: from {} on nothing was looked at", path, file.string()));
      break;
    }
    add_file(file, false, folder, num_bytes);
  }
  return folder;
}

RunFolder files_of_run(const std::vector<std::string>& paths) {
  RunFolder all;
  for (const std::string& path : paths) {
    RunFolder found = find_run_files(path);
    const bool has_config = !found.configs.empty() || !found.unread_configs.empty();
    if (found.logs.empty() && found.traces.empty() && !has_config) {
      constexpr size_t kFewBytes = 4096;
      if (fs::is_regular_file(path)) {
        profiler::refuse_perfetto(path, profiler::first_bytes(path, kFewBytes));
      }
      throw base::UsageError(
          fmt::format("{}: {} no log, trace or configuration of a run that moetune knows", path,
                      fs::is_directory(path) ? "holds" : "is"));
    }
    const auto take = [](std::vector<std::string>& to, const std::vector<std::string>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    take(all.logs, found.logs);
    take(all.traces, found.traces);
    take(all.configs, found.configs);
    take(all.unread_configs, found.unread_configs);
    take(all.folders, found.folders);
    take(all.notes, found.notes);
  }
  return all;
}

std::vector<std::string> logs_among(const std::vector<std::string>& paths) {
  std::vector<std::string> logs;
  for (const std::string& path : paths) {
    try {
      const RunFolder found = find_run_files(path);
      logs.insert(logs.end(), found.logs.begin(), found.logs.end());
    } catch (const base::UsageError&) {
      continue;
    }
  }
  return logs;
}

}  // namespace moetune::sweeps
