#include "sweeps/runs/ended_processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <string>

#include "sweeps/runs/log_collector.h"
#include "sweeps/runs/text_scan.h"

namespace moetune::sweeps::processes {
namespace {

using log_text::integer_behind;
using log_text::leading_integer;

constexpr int64_t kMostCode = 255;
constexpr int kAbort = 6;
constexpr int kKill = 9;
constexpr int kTerminate = 15;

struct SignalWords {
  int number;
  std::string_view words;  ///< its name first
};
constexpr std::array kSignalWords = {
    SignalWords{4, "SIGILL: the processor has no such instruction"},
    SignalWords{kAbort, "SIGABRT: a watchdog or an assertion of C++"},
    SignalWords{7, "SIGBUS: most often /dev/shm is full"},
    SignalWords{8, "SIGFPE: a whole number was divided by zero"},
    SignalWords{kKill, "SIGKILL: most often the host ran out of memory, or a scheduler ended it"},
    SignalWords{11, "SIGSEGV: it touched memory that is not its own"},
    SignalWords{kTerminate, "SIGTERM: asked to end, most often because another rank had failed"},
};

std::string exit_words(int code) {
  const int signal = code < 0 ? -code : (code > 128 ? code - 128 : 0);
  for (const SignalWords& row : kSignalWords) {
    if (row.number == signal) return fmt::format("exit code {} ({})", code, row.words);
  }
  return fmt::format("exit code {}", code);
}

/// What srun, with a colon, and shells call a process that a signal has ended. Of others there are
/// rows with words.
struct ProcessEnd {
  std::string_view anchor;
  int signal;
};
constexpr std::array kProcessEnds = {
    ProcessEnd{": Killed", kKill},        ProcessEnd{": Terminated", kTerminate},
    ProcessEnd{": Aborted", kAbort},      ProcessEnd{"Killed", kKill},
    ProcessEnd{"Terminated", kTerminate}, ProcessEnd{"Aborted", kAbort},
    ProcessEnd{"Illegal instruction", 4}, ProcessEnd{"Floating point exception", 8}};
constexpr std::string_view kDumped = "(core dumped)";

/// What a command that trains has in it, as a shell shows it. Others, such as "nvidia-smi dmon", a
/// script has started beside it.
constexpr std::array<std::string_view, 11> kTrainingWords = {
    "python",     "torchrun", "srun",        "mpirun",    "mpiexec", "deepspeed",
    "accelerate", ".py",      "singularity", "apptainer", ".sh"};

bool may_train(std::string_view command) {
  if (command.starts_with('$') || command.starts_with("\"$")) return true;  // "$CMD"
  return std::ranges::any_of(kTrainingWords, [&](std::string_view word) {
    return command.find(word) != std::string_view::npos;
  });
}

/// "task 3:" of srun, "process rank 3" of mpirun, "[rank: 3] Child process" of Lightning; -1 where
/// several are named, or none.
int rank_in(std::string_view text) {
  for (const std::string_view key : {": task ", "process rank ", "[rank: "}) {
    const int rank = log_text::rank_of(integer_behind(text, key));
    if (rank >= 0) return rank;
  }
  return -1;
}

/// `forced_by`: who killed it though it had not failed; empty: nobody. `more` stands behind the
/// words of the code.
void add_end(LogCollector& log, int rank, int code, std::string_view forced_by,
             std::string_view more) {
  // Those that were sent SIGTERM, or SIGKILL where that did not help, are the others.
  const bool is_forced = !forced_by.empty();
  const bool is_victim = code == -kTerminate || code == -kAbort || is_forced;
  const bool is_signal = code < 0 || code > 128;
  const auto& row = failure_form(is_victim ? "ended" : (is_signal ? "signal" : "exit-code"));
  std::string detail = is_forced ? std::string(forced_by) : exit_words(code);
  detail += more;
  Failure* failure = log.add_failure(row, rank, detail);
  if (failure != nullptr) failure->exit_code = code;
}

/// Adds the end of a process by the signal of the form's anchor.
bool add_signalled(const FailureForm& form, int rank, LogCollector& log) {
  const auto* const end = std::ranges::find(kProcessEnds, form.anchor, &ProcessEnd::anchor);
  if (end == kProcessEnds.end()) return false;
  const bool is_forced = end->signal == kKill && log.is_step_ended;
  add_end(log, rank, -end->signal, is_forced ? "SIGKILL of Slurm, as the step was ended" : "", "");
  return true;
}

/// "job.sh: line 12:  4242 ": the process's number stands behind the line's.
bool is_place_in_script(std::string_view front) {
  const size_t line = front.rfind(": line ");
  const size_t colon = line == std::string_view::npos ? line : front.find(": ", line + 2);
  if (colon == std::string_view::npos) return false;
  const std::string_view pid = log_text::bare(front.substr(colon + 2));
  return !pid.empty() &&
         std::ranges::all_of(pid, [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

bool read_task(const FailureForm& form, std::string_view text, size_t, LogCollector& log) {
  log.add_failure(form, rank_in(text), text);
  return true;
}

bool read_exit_code(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  const auto code = leading_integer(text.substr(at + form.anchor.size()));
  if (!code || *code < -kMostCode || *code > kMostCode || *code == 0) return false;
  const bool is_box = form.anchor == kBoxCode;
  const int exit_code = static_cast<int>(*code);
  const auto pid = integer_behind(text, "(pid: ");
  const bool is_forced = exit_code == -kKill && pid && log.forced_pids.contains(*pid);
  const bool is_root = is_box && log.is_root_cause;
  add_end(log, is_box ? log.box_rank : rank_in(text), exit_code,
          is_forced ? "SIGKILL of the launcher, as it did not end when asked to" : "",
          is_root ? ", the first that torchrun saw" : "");
  return true;
}

bool read_on_signal(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  const auto signal = leading_integer(text.substr(at + form.anchor.size()));
  if (!signal || *signal < 1 || *signal > kMostCode) return false;
  add_end(log, rank_in(text), -static_cast<int>(*signal), "", "");
  return true;
}

bool read_named_signal(const FailureForm& form, std::string_view text, size_t at,
                       LogCollector& log) {
  constexpr std::string_view kPrefix = "SIG";
  const std::string_view name = text.substr(at + form.anchor.size() - kPrefix.size());
  for (const SignalWords& row : kSignalWords) {
    if (!name.starts_with(log_text::up_to(row.words, ":"))) continue;
    add_end(log, -1, -row.number, "", "");
    return true;
  }
  return false;
}

bool read_signalled_task(const FailureForm& form, std::string_view text, size_t at,
                         LogCollector& log) {
  const std::string_view rest = log_text::bare(text.substr(at + form.anchor.size()));
  const bool is_task = text.substr(0, at).rfind(": task") != std::string_view::npos;
  if (!is_task || !(rest.empty() || rest == kDumped)) return false;
  return add_signalled(form, rank_in(text), log);
}

bool read_signalled_command(const FailureForm& form, std::string_view text, size_t at,
                            LogCollector& log) {
  const std::string_view front = text.substr(0, at);
  std::string_view rest = log_text::bare(text.substr(at + form.anchor.size()));
  if (rest.starts_with(kDumped)) rest = log_text::bare(rest.substr(kDumped.size()));
  const bool is_alone = rest.empty() && log_text::bare(front).empty();
  if (!is_alone && !(is_place_in_script(front) && may_train(rest))) return false;
  if (form.anchor == "Aborted") {
    // Of a task that is named a launcher may have asked for it; here nobody says so.
    Failure* failure = log.add_failure(failure_form("signal"), -1, exit_words(-kAbort));
    if (failure != nullptr) failure->exit_code = -kAbort;
    return true;
  }
  return add_signalled(form, -1, log);
}

bool read_killed_worker(const FailureForm& form, std::string_view text, size_t, LogCollector& log) {
  // Slurm kills the workers with their ranks.
  log.add_failure(log.is_step_ended ? failure_form("ended") : form, text);
  return true;
}

bool read_step_end(const FailureForm&, std::string_view, size_t, LogCollector& log) {
  log.is_step_ended = true;
  return true;
}

bool read_forced(const FailureForm&, std::string_view text, size_t, LogCollector& log) {
  constexpr size_t kMostForced = 65'536;
  const auto pid = integer_behind(text, "shutdown process ");
  if (!pid || log.forced_pids.size() >= kMostForced) return false;
  log.forced_pids.insert(*pid);
  return true;
}

bool read_box_root(const FailureForm&, std::string_view, size_t, LogCollector& log) {
  log.is_root_cause = true;
  return true;
}
bool read_box_others(const FailureForm&, std::string_view, size_t, LogCollector& log) {
  log.is_root_cause = false;
  return true;
}
/// Of the entry: it is not that of the lines before the box.
bool read_box_time(const FailureForm&, std::string_view, size_t, LogCollector& log) {
  return log.time().has_value();
}
bool read_box_rank(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  log.box_rank = log_text::rank_of(leading_integer(text.substr(at + form.anchor.size())));
  return true;
}

}  // namespace moetune::sweeps::processes
