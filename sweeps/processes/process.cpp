// Child processes on Linux, by fork, exec and waitpid. The child leads a session of its own, so
// that everything it starts can be found by session id in /proc, whatever became of parents and
// process groups.
#include "sweeps/processes/process.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "kernels/base/environment_failure.h"
#include "kernels/base/error.h"
#include "kernels/base/shell_quotes.h"
#include "sweeps/processes/interrupt.h"
#include "sweeps/processes/poll.h"

extern char** environ;

namespace moetune::sweeps {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLookAtProcess{4};
constexpr milliseconds kLongestKill{10'000};

/// State and session of a process; empty when it is gone.
struct ProcStat {
  char state = '?';
  int64_t session = 0;
};

std::optional<ProcStat> read_stat(int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // The name in brackets may hold anything: the fields follow its last ')'.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  ProcStat stat;
  int64_t parent = 0;
  int64_t group = 0;
  if (!(fields >> stat.state >> parent >> group >> stat.session)) return std::nullopt;
  return stat;
}

/// Everything execve needs, made before fork: after it only async-signal-safe calls are allowed.
class ExecArguments {
 public:
  explicit ExecArguments(const Command& command)
      : arguments_(command.arguments), environment_(command.environment) {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      if (!is_replaced(*entry)) environment_.emplace_back(*entry);
    }
    argument_pointers_ = pointers_to(arguments_);
    environment_pointers_ = pointers_to(environment_);
  }
  [[nodiscard]] char* const* argv() const { return argument_pointers_.data(); }
  [[nodiscard]] char* const* envp() const { return environment_pointers_.data(); }

 private:
  [[nodiscard]] bool is_replaced(std::string_view entry) const {
    const std::string_view name = entry.substr(0, entry.find('='));
    return std::ranges::any_of(environment_, [&](const std::string& own) {
      return std::string_view(own).substr(0, own.find('=')) == name;
    });
  }
  static std::vector<char*> pointers_to(std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    pointers.reserve(texts.size() + 1);
    for (std::string& text : texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
  }

  std::vector<std::string> arguments_;
  std::vector<std::string> environment_;
  std::vector<char*> argument_pointers_;
  std::vector<char*> environment_pointers_;
};

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close_now(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  void close_now() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

int open_or_throw(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (fd < 0)
    throw base::Error(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  return fd;
}

/// The child's side between fork and exec. Only returns (an errno) when something failed.
int become(const ExecArguments& exec, const char* folder, int in, int out, int err, pid_t parent,
           int death_signal) {
  if (setsid() < 0) return errno;
  if (*folder != '\0' && chdir(folder) != 0) return errno;
  // Dies with the tuner even when that is killed; the second look closes the gap before the call.
  // The rank sets this again for itself, because a launcher in between would be its parent.
  if (prctl(PR_SET_PDEATHSIG, death_signal) != 0) return errno;
  if (getppid() != parent) _exit(127);
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ}) {
    signal(signal_number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) return errno;
  execve(exec.argv()[0], exec.argv(), exec.envp());
  return errno;
}

class SystemProcess : public Process {
 public:
  explicit SystemProcess(pid_t pid) : pid_(pid) {}
  ~SystemProcess() override {
    if (!end_) end(milliseconds(0));
  }
  SystemProcess(const SystemProcess&) = delete;
  SystemProcess& operator=(const SystemProcess&) = delete;

  std::optional<ProcessEnd> wait(milliseconds limit) override {
    if (end_) return end_;
    const auto ended = [this] { return has_ended(); };
    if (!poll_until(steady_clock::now() + limit, kLookAtProcess, ended)) return std::nullopt;
    reap();
    return end_;
  }

  ProcessEnd end(milliseconds grace) override {
    if (end_) return *end_;
    was_ended_by_us_ = !has_ended();
    if (was_ended_by_us_ && grace.count() > 0) {
      kill(pid_, SIGTERM);
      kill(pid_, SIGCONT);  // a stopped process only sees the signal once it runs again
      // Whoever asks again to stop does not want to wait.
      const int num_before = num_interrupts();
      poll_until(steady_clock::now() + grace, kLookAtProcess,
                 [&] { return has_ended() || num_interrupts() != num_before; });
    }
    if (!has_ended()) {
      kill(pid_, SIGKILL);
      kill_session();
      poll_until(steady_clock::time_point::max(), kLookAtProcess, [this] { return has_ended(); });
    }
    reap();
    return *end_;
  }

  [[nodiscard]] int64_t pid() const override { return pid_; }

 private:
  /// Looks without reaping: as long as the zombie is there, its id names no other process or
  /// session.
  bool has_ended() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == pid_;
  }

  void kill_session() const {
    // Again until none is left: one of them may have forked between the look and the signal.
    poll_until(steady_clock::now() + kLongestKill, kLookAtProcess, [this] {
      const std::vector<int64_t> members = processes_of_session(pid_);
      for (const int64_t member : members) kill(static_cast<pid_t>(member), SIGKILL);
      return members.empty();
    });
  }

  void reap() {
    kill_session();
    int status = 0;
    rusage usage{};
    while (wait4(pid_, &status, 0, &usage) < 0 && errno == EINTR) {
    }
    ProcessEnd ended;
    ended.is_signal = WIFSIGNALED(status);
    ended.code = ended.is_signal ? WTERMSIG(status) : WEXITSTATUS(status);
    ended.was_ended_by_us = was_ended_by_us_;
    ended.max_rss_bytes = int64_t{usage.ru_maxrss} * 1024;
    end_ = ended;
  }

  pid_t pid_;
  bool was_ended_by_us_ = false;
  std::optional<ProcessEnd> end_;
};

}  // namespace

std::string shell_line(const Command& command) {
  std::vector<std::string> words;
  for (const std::string& word : command.environment) words.push_back(base::shell_literal(word));
  for (const std::string& word : command.arguments) words.push_back(base::shell_literal(word));
  const std::string line = fmt::format("{}", fmt::join(words, " "));
  return command.working_directory.empty()
             ? line
             : fmt::format("cd {} && {}", base::shell_literal(command.working_directory), line);
}

std::unique_ptr<Process> SystemProcessRunner::start(const Command& command) {
  MOETUNE_CHECK(!command.arguments.empty(), "a command without a program");
  // Looked at here, where the message can name it; the child only has one number to send back.
  const std::string& folder = command.working_directory;
  std::error_code ignored;
  if (!folder.empty() &&
      (!std::filesystem::is_directory(folder, ignored) || access(folder.c_str(), X_OK) != 0)) {
    throw base::Error(fmt::format("{}: cannot be entered, or is not a folder", folder));
  }
  const ExecArguments exec(command);
  const Descriptor in(open_or_throw("/dev/null", O_RDONLY));
  const Descriptor out(open_or_throw(command.stdout_path, O_WRONLY | O_CREAT | O_APPEND));
  const Descriptor err(open_or_throw(command.stderr_path, O_WRONLY | O_CREAT | O_APPEND));
  // Carries errno back when exec fails; closes by itself when it succeeds.
  std::array<int, 2> report{};
  MOETUNE_CHECK(pipe2(report.data(), O_CLOEXEC) == 0, "pipe: {}", std::strerror(errno));
  const Descriptor report_in(report[0]);
  Descriptor report_out(report[1]);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  MOETUNE_CHECK(pid >= 0, "fork: {}", std::strerror(errno));
  if (pid == 0) {
    const int error =
        become(exec, folder.c_str(), in.get(), out.get(), err.get(), parent, command.death_signal);
    [[maybe_unused]] const ssize_t written = write(report_out.get(), &error, sizeof(error));
    _exit(127);
  }
  report_out.close_now();
  int error = 0;
  ssize_t num_read = 0;
  do {
    num_read = read(report_in.get(), &error, sizeof(error));
  } while (num_read < 0 && errno == EINTR);
  auto process = std::make_unique<SystemProcess>(pid);
  if (num_read == sizeof(error)) {
    throw base::EnvironmentFailure(
        fmt::format("{}: cannot be started: {}", command.arguments.front(), std::strerror(error)));
  }
  return process;
}

std::vector<int64_t> processes_of_session(int64_t session_id) {
  std::vector<int64_t> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), last; !error && entry != last;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    int64_t pid = 0;
    const auto [end, parse_error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parse_error != std::errc() || end != name.data() + name.size()) continue;
    const std::optional<ProcStat> stat = read_stat(pid);
    if (stat && stat->session == session_id && stat->state != 'Z' && stat->state != 'X') {
      found.push_back(pid);
    }
  }
  return found;
}

std::string signal_text(int signal_number) {
  const char* description = strsignal(signal_number);
  return fmt::format("signal {} ({})", signal_number,
                     description == nullptr ? "unknown" : description);
}

}  // namespace moetune::sweeps
