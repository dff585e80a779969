#include "sweeps/runs/ended_processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "sweeps/runs/log_collector.h"
#include "sweeps/runs/text_scan.h"

namespace moetune::sweeps::processes {
namespace {

using log_text::integer_behind;
using log_text::leading_integer;

constexpr int64_t kMostCode = 255;
constexpr int kInterrupt = 2;
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

/// The signal that an exit code tells; 0: none. Shells and containers add it to 128.
int signal_of(int code) { return code < 0 ? -code : std::max(code - 128, 0); }

const SignalWords* words_of(int signal) {
  const auto* const row = std::ranges::find(kSignalWords, signal, &SignalWords::number);
  return row == kSignalWords.end() ? nullptr : row;
}

/// Whether a signal ended a process with this code. Above 128 only codes of signals that end
/// processes of themselves count: 255 is what ssh, mpirun and exit(-1) give.
bool is_of_signal(int code) { return code < 0 || words_of(signal_of(code)) != nullptr; }

std::string exit_words(int code) {
  const SignalWords* row = words_of(signal_of(code));
  return row == nullptr ? fmt::format("exit code {}", code)
                        : fmt::format("exit code {} ({})", code, row->words);
}

/// What srun, with a colon, shells and make call a process that a signal has ended, also as zsh
/// spells it.
struct ProcessEnd {
  std::string_view words;
  int signal;
};
constexpr std::array kProcessEnds = {ProcessEnd{"Killed", kKill},
                                     ProcessEnd{"killed", kKill},
                                     ProcessEnd{"Terminated", kTerminate},
                                     ProcessEnd{"terminated", kTerminate},
                                     ProcessEnd{"Interrupt", kInterrupt},
                                     ProcessEnd{"Aborted", kAbort},
                                     ProcessEnd{"abort", kAbort},
                                     ProcessEnd{"Illegal instruction", 4},
                                     ProcessEnd{"illegal hardware instruction", 4},
                                     ProcessEnd{"Bus error", 7},
                                     ProcessEnd{"bus error", 7},
                                     ProcessEnd{"Segmentation fault", 11},
                                     ProcessEnd{"segmentation fault", 11},
                                     ProcessEnd{"Floating point exception", 8},
                                     ProcessEnd{"floating point exception", 8}};
constexpr std::string_view kDumped = "(core dumped)";

const ProcessEnd* end_at(std::string_view text) {
  const auto* const end = std::ranges::find_if(
      kProcessEnds, [&](const ProcessEnd& row) { return text.starts_with(row.words); });
  return end == kProcessEnds.end() ? nullptr : end;
}

/// What stands behind the words of an end: blanks, "(core dumped)" and, as a Mac tells it, the
/// signal's number (": 9") are no more than these.
std::string_view behind_end(std::string_view text, const ProcessEnd& end) {
  std::string_view rest = text.substr(end.words.size());
  const std::string number = fmt::format(": {}", end.signal);
  if (rest.starts_with(number)) rest.remove_prefix(number.size());
  rest = log_text::bare(rest);
  if (rest.starts_with(kDumped)) rest = log_text::bare(rest.substr(kDumped.size()));
  return rest;
}

/// What a command that trains has in it, as a shell shows it. Others, such as "nvidia-smi dmon", a
/// script has started beside it.
constexpr std::array<std::string_view, 13> kTrainingWords = {
    "python", "torchrun",    "srun",      "mpirun", "mpiexec", "deepspeed", "accelerate",
    ".py",    "singularity", "apptainer", ".sh",    "uv run",  "pretrain"};

bool has_one_of(std::string_view text, std::span<const std::string_view> words) {
  return std::ranges::any_of(
      words, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

bool is_in_variable(std::string_view command) {
  return command.starts_with('$') || command.starts_with("\"$");  // "$CMD"
}

bool may_train(std::string_view command) {
  return is_in_variable(command) || has_one_of(command, kTrainingWords);
}

/// What starts ranks and nothing else.
constexpr std::array<std::string_view, 9> kLaunchWords = {
    "torchrun",  "srun",       "mpirun",   "mpiexec", "torch.distributed",
    "deepspeed", "accelerate", "pretrain", "finetune"};

/// Whether a name or a command is that of the run itself: not so "python monitor.py", which may
/// as well be beside it, and "constraints".
bool does_train(std::string_view command) {
  if (is_in_variable(command) || has_one_of(command, kLaunchWords)) return true;
  for (size_t at = command.find("rain"); at < command.size(); at = command.find("rain", at + 1)) {
    const bool is_train = at > 0 && (command[at - 1] == 't' || command[at - 1] == 'T');
    const bool is_inside = at > 1 && std::isalpha(static_cast<unsigned char>(command[at - 2])) != 0;
    if (is_train && !is_inside) return true;
  }
  return false;
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

/// What a line says of a process that has ended.
struct EndOfProcess {
  int rank = -1;
  int code = 0;
  bool may_be_other = false;        ///< it may have run beside the ranks
  std::string_view forced_by = "";  ///< who killed it though it had not failed; empty: nobody
  bool is_first_seen = false;       ///< the first that torchrun saw
};

const FailureForm& form_of(const EndOfProcess& end) {
  constexpr int kInterruptCode = 128 + kInterrupt;
  // Those that were sent SIGTERM, or SIGKILL where that did not help, are the others.
  const bool is_victim =
      signal_of(end.code) == kTerminate || end.code == -kAbort || !end.forced_by.empty();
  if (is_victim) return failure_form("ended");
  if (end.code == kInterruptCode) return failure_form("interrupted");
  if (!is_of_signal(end.code)) return failure_form("exit-code");
  return failure_form(end.may_be_other && end.rank < 0 ? "process-signal" : "signal");
}

void add_end(LogCollector& log, const EndOfProcess& end) {
  std::string detail = end.forced_by.empty() ? exit_words(end.code) : std::string(end.forced_by);
  if (end.is_first_seen) detail += ", the first that torchrun saw";
  Failure* failure = log.add_failure(form_of(end), end.rank, detail);
  if (failure == nullptr) return;
  failure->exit_code = end.code;
  failure->is_first_seen = end.is_first_seen;
}

/// Adds the end of a process by a signal.
void add_signalled(int signal, int rank, bool may_be_other, LogCollector& log) {
  const bool is_forced = signal == kKill && log.is_step_ended;
  add_end(log, {.rank = rank,
                .code = -signal,
                .may_be_other = may_be_other,
                .forced_by = is_forced ? "SIGKILL of Slurm, as the step was ended" : ""});
}

/// The form with words of its own for a signal; null: there is none.
const FailureForm* form_of_signal(int signal) {
  for (const FailureForm& form : failure_forms()) {
    const auto* const end = std::ranges::find(kProcessEnds, form.anchor, &ProcessEnd::words);
    const bool is_it = end != kProcessEnds.end() && end->signal == signal;
    if (is_it && !form.words.empty()) return &form;
  }
  return nullptr;
}

/// The same of a command, where no launcher tells that an abort was asked for.
void add_ended_command(const ProcessEnd& end, bool may_be_other, std::string_view text,
                       LogCollector& log) {
  if (end.signal == kInterrupt) {
    log.add_failure(failure_form("interrupted"), "");
  } else if (const FailureForm* form = may_be_other ? nullptr : form_of_signal(end.signal)) {
    log.add_failure(*form, text);
  } else if (end.signal != kAbort) {
    add_signalled(end.signal, -1, may_be_other, log);
  } else {
    const FailureForm& row = failure_form(may_be_other ? "process-signal" : "signal");
    Failure* failure = log.add_failure(row, -1, exit_words(-kAbort));
    if (failure != nullptr) failure->exit_code = -kAbort;
  }
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

/// "[1]+  ", "[1]  - 4242 ", "[1]    4242 ": a job of an interactive shell.
bool is_job(std::string_view front) {
  if (!front.starts_with('[')) return false;
  const size_t end = front.find(']');
  if (end == std::string_view::npos || end == 1) return false;
  const auto is_of = [](std::string_view text, std::string_view more) {
    return std::ranges::all_of(text, [&](char c) {
      return std::isdigit(static_cast<unsigned char>(c)) != 0 || more.find(c) != more.npos;
    });
  };
  const std::string_view rest = front.substr(end + 1);
  return is_of(front.substr(1, end - 1), "") && rest.ends_with(' ') && is_of(rest, " +-");
}

/// Where a shell says how a command ended: at `at` stand the words, behind them the command. Of
/// what somebody has typed, and within sh -c, the words stand alone.
bool tells_end(std::string_view text, size_t at, const ProcessEnd& end) {
  const std::string_view front = text.substr(0, at);
  const std::string_view rest = behind_end(text.substr(at), end);
  if (log_text::bare(front).empty()) return rest.empty();
  return is_job(front) ? rest.empty() || may_train(rest)
                       : is_place_in_script(front) && may_train(rest);
}

/// Of a shell's job that is not the run itself: whoever works in that shell has started both. A
/// script's command has its place in the script.
bool may_be_other_job(std::string_view text, size_t at, const ProcessEnd& end) {
  const std::string_view command = behind_end(text.substr(at), end);
  return is_job(text.substr(0, at)) && !command.empty() && !does_train(command);
}

/// What a sentence is about stands between its words, and a hint in front of them.
bool is_said_of_process(std::string_view front, std::string_view rest) {
  constexpr std::array<std::string_view, 6> kAdvice = {"WARN", "Warn", "warn",
                                                       "INFO", "hint", "Hint"};
  constexpr std::string_view kBefore = ":])|";
  if (front.empty() || has_one_of(front, kAdvice)) return false;
  if (front.find(kOfMake) != std::string_view::npos) return false;  // read with its target
  // "FatalError: `Segmentation fault` is detected by the operating system." of Paddle.
  if (front.ends_with('`')) return rest.starts_with("` is detected");
  if (front.ends_with("killed by signal:") && rest.starts_with('.')) return true;
  const size_t caught = front.ends_with('(') ? front.rfind("signal ") : std::string_view::npos;
  const bool is_caught = caught != std::string_view::npos;
  // "Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)" of UCX.
  const bool is_at_address = front.substr(0, caught).ends_with("Caught ") && rest.starts_with(':');
  if (is_caught && is_at_address) return true;
  // 'Thread 1 "python" received signal SIGSEGV, Segmentation fault.' of gdb.
  const bool is_received =
      front.ends_with(',') && front.find("received signal SIG") != std::string_view::npos;
  const bool is_behind = is_caught || is_received || front.ends_with("***") ||
                         front.ends_with(" died with") ||
                         kBefore.find(front.back()) != std::string_view::npos;
  // "Signal: Segmentation fault (11)", "on signal 11 (Segmentation fault)."
  return is_behind && rest.find_first_not_of(rest.starts_with('(') ? "(0123456789)." : ").") ==
                          std::string_view::npos;
}

/// Whether the number that `rest` begins with is the last that a line says: with more behind it it
/// is a sentence. "(ignored)" ends nothing.
bool is_last_said(std::string_view rest) {
  std::string_view tail = log_text::bare(rest);
  tail.remove_prefix(std::min(tail.find_first_not_of("0123456789"), tail.size()));
  if (tail.find("ignored") != std::string_view::npos) return false;
  const bool is_explained = tail.starts_with(" (") && tail.ends_with(')');
  return is_explained || tail.find_first_not_of(".;)'\"") == std::string_view::npos;
}

/// "make", "gmake[1]": the program that a line begins with.
bool is_make(std::string_view front) {
  return front.find(' ') == std::string_view::npos &&
         front.substr(0, front.find('[')).ends_with("make");
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
  constexpr std::string_view kForced = "SIGKILL of the launcher, as it did not end when asked to";
  add_end(log, {.rank = is_box ? log.box_rank : rank_in(text),
                .code = exit_code,
                .may_be_other = false,
                .forced_by = is_forced ? kForced : "",
                .is_first_seen = is_root});
  return true;
}

bool read_on_signal(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  const auto signal = leading_integer(text.substr(at + form.anchor.size()));
  if (!signal || *signal < 1 || *signal > kMostCode) return false;
  add_end(log, {.rank = rank_in(text), .code = -static_cast<int>(*signal)});
  return true;
}

bool read_named_signal(const FailureForm& form, std::string_view text, size_t at,
                       LogCollector& log) {
  constexpr std::string_view kPrefix = "SIG";
  const std::string_view name = text.substr(at + form.anchor.size() - kPrefix.size());
  for (const SignalWords& row : kSignalWords) {
    if (!name.starts_with(log_text::up_to(row.words, ":"))) continue;
    const bool may_be_other = form.anchor == kDiedOf && !does_train(text.substr(0, at));
    add_end(log, {.code = -row.number, .may_be_other = may_be_other});
    return true;
  }
  return false;
}

bool read_signalled_task(const FailureForm& form, std::string_view text, size_t at,
                         LogCollector& log) {
  constexpr std::string_view kBetween = ": ";
  const ProcessEnd* end = end_at(form.anchor.substr(kBetween.size()));
  const bool is_task = text.substr(0, at).rfind(": task") != std::string_view::npos;
  if (end == nullptr || !is_task) return false;
  if (!behind_end(text.substr(at + kBetween.size()), *end).empty()) return false;
  add_signalled(end->signal, rank_in(text), false, log);
  return true;
}

bool read_signalled_command(const FailureForm& form, std::string_view text, size_t at,
                            LogCollector& log) {
  const ProcessEnd* end = end_at(form.anchor);
  if (end == nullptr || !tells_end(text, at, *end)) return false;
  add_ended_command(*end, may_be_other_job(text, at, *end), text, log);
  return true;
}

bool read_ended_word(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  const ProcessEnd* end = end_at(form.anchor);
  if (end == nullptr) return false;
  const std::string_view front = log_text::bare(text.substr(0, at));
  const std::string_view rest = behind_end(text.substr(at), *end);
  if (tells_end(text, at, *end)) {
    add_ended_command(*end, may_be_other_job(text, at, *end), text, log);
    return true;
  }
  return is_said_of_process(front, rest) && read_task(form, text, at, log);
}

bool read_zsh(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  const std::string_view said = log_text::bare(text.substr(at + form.anchor.size()));
  const ProcessEnd* end = end_at(said);
  if (end == nullptr || !log_text::bare(text.substr(0, at)).empty()) return false;
  const std::string_view command = behind_end(said, *end);
  if (!command.empty() && !may_train(command)) return false;
  add_ended_command(*end, false, text, log);
  return true;
}

bool read_zsh_job(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  const ProcessEnd* end = end_at(form.anchor.substr(1));  // behind the blank
  if (end == nullptr || !is_job(text.substr(0, at + 1))) return false;
  if (!tells_end(text, at + 1, *end)) return false;
  add_ended_command(*end, may_be_other_job(text, at + 1, *end), text, log);
  return true;
}

bool read_job_code(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  if (!is_job(text.substr(0, at + 1))) return false;
  std::string_view command = log_text::bare(text.substr(at + form.anchor.size()));
  const auto code = leading_integer(command);
  if (!code || *code < 1 || *code > kMostCode) return false;
  command.remove_prefix(std::min(command.find_first_not_of("0123456789"), command.size()));
  command = log_text::bare(command);
  const int exit_code = static_cast<int>(*code);
  const bool is_run = does_train(command);
  if (!is_run && (!is_of_signal(exit_code) || !may_train(command))) return false;
  add_end(log, {.code = exit_code, .may_be_other = !is_run});
  return true;
}

bool read_make(const FailureForm& form, std::string_view text, size_t at, LogCollector& log) {
  constexpr std::string_view kError = "Error ";
  const std::string_view rest = text.substr(at + form.anchor.size());
  const size_t close = rest.find("] ");
  if (!is_make(text.substr(0, at)) || close == std::string_view::npos) return false;
  const std::string_view said = rest.substr(close + 2);
  const bool may_be_other = !does_train(rest.substr(0, close));
  if (const ProcessEnd* end = end_at(said)) {
    if (!behind_end(said, *end).empty()) return false;
    add_ended_command(*end, may_be_other, text, log);
    return true;
  }
  const auto code = said.starts_with(kError) ? leading_integer(said.substr(kError.size()))
                                             : std::optional<int64_t>();
  // "Error 2 (ignored)" ends nothing.
  if (!code || *code < 1 || *code > kMostCode || !said.ends_with(std::to_string(*code))) {
    return false;
  }
  add_end(log, {.code = static_cast<int>(*code), .may_be_other = may_be_other});
  return true;
}

bool read_signal_code(const FailureForm& form, std::string_view text, size_t at,
                      LogCollector& log) {
  const std::string_view rest = text.substr(at + form.anchor.size());
  const auto code = leading_integer(rest);
  if (!code || *code <= 128 || *code > kMostCode) return false;
  const int exit_code = static_cast<int>(*code);
  if (!is_of_signal(exit_code) || !is_last_said(rest)) return false;
  const std::string_view front = text.substr(0, at);
  add_end(log, {.rank = rank_in(text), .code = exit_code, .may_be_other = !does_train(front)});
  return true;
}

bool read_stated_code(const FailureForm& form, std::string_view text, size_t at,
                      LogCollector& log) {
  // "Previous exit code: 137", "expected exit code: 137": of nothing that has ended now.
  const std::string_view front = log_text::bare(text.substr(0, at));
  if (!front.empty() && front != "E" && front != "e" && front != "Process finished with e") {
    return false;
  }
  return read_signal_code(form, text, at, log);
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
