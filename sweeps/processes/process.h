// Child processes as values: start one in a session of its own, watch it, end everything it
// started. The seam that tests replace: nothing above this file calls fork or kill.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace moetune::sweeps {

/// What to run and where its output goes. The program is arguments[0], a path; standard input is
/// empty.
struct Command {
  std::vector<std::string> arguments;
  /// "NAME=value", replacing what the environment already has under that name.
  std::vector<std::string> environment;
  std::string stdout_path;  ///< appended to, so that two runs of one folder stay readable
  std::string stderr_path;
  /// Where it runs; empty: in the caller's folder. The paths above are the caller's, but for a
  /// relative program.
  std::string working_directory{};
  /// What it gets when this program dies. Only the process itself does: what it has started lives
  /// on, unless it passes the signal on.
  int death_signal = SIGKILL;
};

/// The command as a line that a shell takes.
std::string shell_line(const Command& command);

/// How a child ended.
struct ProcessEnd {
  bool is_signal =
      false;  ///< ended by a signal: `code` is its number, else `code` is the exit code
  int code = 0;
  bool was_ended_by_us = false;  ///< end() sent the signal
  int64_t max_rss_bytes = 0;  ///< largest resident set of the child (and of children it waited for)
};

/// One running child. Destroying it ends its whole session.
class Process {
 public:
  virtual ~Process() = default;
  /// Waits until the child has ended, at most `limit`; an arriving signal may return earlier. After
  /// the end, always the same answer. Whatever the child left running in its session is ended too.
  virtual std::optional<ProcessEnd> wait(std::chrono::milliseconds limit) = 0;
  /// Ends the child's session: SIGTERM to the child, up to `grace` for it to tidy up, then SIGKILL
  /// to every process of the session, whatever its parent or process group is.
  virtual ProcessEnd end(std::chrono::milliseconds grace) = 0;
  [[nodiscard]] virtual int64_t pid() const = 0;
};

class ProcessRunner {
 public:
  virtual ~ProcessRunner() = default;
  /// Throws base::EnvironmentFailure when the program cannot be started.
  virtual std::unique_ptr<Process> start(const Command& command) = 0;
};

/// The real thing: setsid, a parent-death signal, output to files.
class SystemProcessRunner : public ProcessRunner {
 public:
  std::unique_ptr<Process> start(const Command& command) override;
};

/// Living processes whose session is `session_id`, zombies left out; from /proc.
std::vector<int64_t> processes_of_session(int64_t session_id);

/// "signal 9 (Killed)".
std::string signal_text(int signal_number);

}  // namespace moetune::sweeps
