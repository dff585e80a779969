// Runs a command with its scratch folder in the environment, by which everything that it started is
// found and ended.
#include "sweeps/bisect/shell_stage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "kernels/base/error.h"
#include "sweeps/bisect/git_program.h"
#include "sweeps/processes/attend.h"
#include "sweeps/processes/poll.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kKillPause{5};
constexpr milliseconds kLongestKill{10'000};
constexpr int64_t kMaxLogBytes = 16 << 20;
constexpr int64_t kSearchedBytes = 2 * kMaxLogBytes;

std::string environment_of(const fs::path& process) {
  std::ifstream file(process / "environ", std::ios::binary);
  std::stringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

/// `entry` is "NAME=value"; the text's entries end with a NUL each.
bool has_entry(const std::string& environment, const std::string& entry) {
  for (size_t at = environment.find(entry); at != std::string::npos;
       at = environment.find(entry, at + 1)) {
    const size_t end = at + entry.size();
    if ((at == 0 || environment[at - 1] == '\0') &&
        (end == environment.size() || environment[end] == '\0')) {
      return true;
    }
  }
  return false;
}

/// A command that never stops printing must not fill the disk: the blocks of all but a log's end
/// are given back. Its length stays, so what is appended goes where it would have gone. Where the
/// file system cannot do that, the log just grows.
void drop_head(const std::string& path) {
  struct stat file {};
  constexpr int64_t kBlockBytes = 512;
  if (stat(path.c_str(), &file) != 0 || file.st_blocks * kBlockBytes <= kMaxLogBytes) return;
  const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  [[maybe_unused]] const int result =
      fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                std::max<int64_t>(1, file.st_size - kMaxLogBytes / 2));
  close(descriptor);
}

Command command_of(const ShellStage& stage) {
  Command command;
  command.arguments = without_git_variables();
  for (const std::string& name : stage.unset) {
    command.arguments.insert(command.arguments.end(), {"-u", name});
  }
  command.arguments.insert(command.arguments.end(), {"/bin/sh", "-c", stage.command});
  command.environment = stage.environment;
  command.environment.push_back(fmt::format("{}={}", kScratchVariable, stage.scratch));
  command.stdout_path = stage.out_path();
  command.stderr_path = stage.err_path();
  command.working_directory = stage.folder;
  return command;
}

/// `attention` counts interrupts from before the process began.
ShellEnd watch(Process& process, const ShellStage& stage, Attention attention) {
  const auto start = steady_clock::now();
  if (stage.on_tick) stage.on_tick();
  if (stage.limit.count() > 0) attention.deadline = start + stage.limit;
  attention.on_look = [&] {
    for (const std::string& path : {stage.out_path(), stage.err_path()}) drop_head(path);
    if (stage.on_tick) stage.on_tick();
    return true;
  };
  const AttendedEnd end = attend(process, attention);
  ShellEnd result;
  result.process = end.process;
  result.is_interrupted = end.why == WhyEnded::interrupted;
  result.is_over_limit = end.why == WhyEnded::out_of_time;
  result.seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
  return result;
}

}  // namespace

int end_processes_of_scratch(const std::string& scratch) {
  const std::string wanted = fmt::format("{}={}", kScratchVariable, scratch);
  std::set<pid_t> found;
  // Repeated until none is left: a process may fork between the search and the signal. A process
  // that is just starting another program has no environment for a moment: one look is not enough.
  constexpr int kCleanLooks = 3;
  int num_clean = 0;
  poll_until(steady_clock::now() + kLongestKill, kKillPause, [&] {
    bool is_clean = true;
    std::error_code error;
    for (fs::directory_iterator entry("/proc", error), last; !error && entry != last;
         entry.increment(error)) {
      const std::string name = entry->path().filename();
      pid_t pid = 0;
      const auto [end, parse_error] = std::from_chars(name.data(), name.data() + name.size(), pid);
      if (parse_error != std::errc() || end != name.data() + name.size()) continue;
      if (pid == getpid() || !has_entry(environment_of(entry->path()), wanted)) continue;
      kill(pid, SIGKILL);
      is_clean = false;
      found.insert(pid);
    }
    num_clean = is_clean ? num_clean + 1 : 0;
    return num_clean == kCleanLooks;
  });
  return static_cast<int>(found.size());
}

ShellEnd run_stage(const ShellStage& stage) {
  std::error_code ignored;
  for (const std::string& path : {stage.out_path(), stage.err_path()}) fs::remove(path, ignored);
  SystemProcessRunner runner;
  const Attention attention;
  const std::unique_ptr<Process> process = runner.start(command_of(stage));
  const ShellEnd end = watch(*process, stage, attention);
  for (const std::string& path : {stage.out_path(), stage.err_path()}) drop_head(path);
  // What made itself a session of its own, as launchers of many ranks do with their workers.
  end_processes_of_scratch(stage.scratch);
  return end;
}

std::string last_lines(const std::string& path, int64_t max_bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const int64_t size = file.tellg();
  const int64_t start = std::max<int64_t>(0, size - max_bytes);
  file.seekg(start);
  std::stringstream stream;
  stream << file.rdbuf();
  std::string text = stream.str();
  if (start == 0) return text;
  const size_t end_of_part = text.find_first_of("\n\r");
  return end_of_part == std::string::npos ? std::string() : text.substr(end_of_part + 1);
}

bool file_has_any(const std::string& path, const std::vector<std::string_view>& texts) {
  const auto lower = [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  };
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return false;
  file.seekg(std::max<int64_t>(0, static_cast<int64_t>(file.tellg()) - kSearchedBytes));
  for (std::string line; std::getline(file, line);) {
    std::ranges::transform(line, line.begin(), lower);
    for (const std::string_view text : texts) {
      std::string wanted(text);
      std::ranges::transform(wanted, wanted.begin(), lower);
      if (line.find(wanted) != std::string::npos) return true;
    }
  }
  return false;
}

}  // namespace moetune::sweeps
