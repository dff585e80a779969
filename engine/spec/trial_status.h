// What can become of a trial, and the exit codes that carry it from the child process to the tuner.
// One table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace moetune::spec {

enum class TrialStatus : uint8_t {
  running,
  ok,
  invalid,  ///< breaks a constraint; never started
  pruned,   ///< predicted not to fit or not to win; never started
  oom,
  wrong,        ///< NaN, or a loss off the reference
  failed,       ///< an error with a message
  crashed,      ///< ended by a signal
  hung,         ///< no new step within the limit
  interrupted,  ///< Ctrl-C, or the tuner itself was killed
};

/// Exit codes of moetune-rank (and, from 2 on, of moetune).
enum class ExitCode : int {
  ok = 0,
  mismatch = 1,  ///< --verify found a difference
  usage = 2,
  oom = 10,
  wrong = 11,
  failed = 12,  ///< also: a database that is locked or damaged, a full disk, any other error
  hung = 13,
  interrupted = 14,
  /// What a trial needs around it is not there (a GPU, a launcher, a library, memory of the host):
  /// nothing can be said of the trial.
  environment = 15,
  unvalidated = 16,  ///< moetune sweep: the best configuration did not pass its validation
  // Kinds of `failed` that a person or a launcher may want to tell apart.
  no_driver = 20,
  no_device = 21,
  device_too_old = 22,
  device_failed = 23,  ///< a kernel error
  peer_failed = 24,    ///< another rank is gone or has failed; the cause is there
  // What a hunt (moetune bisect) ends in beside a culprit and no change.
  unresolved = 30,
  environment_changed = 31,
};

struct StatusRow {
  TrialStatus status;
  std::string_view name;
  std::optional<ExitCode> exit_code;
  std::string_view help;
};

std::span<const StatusRow> status_table();
std::string_view name_of(TrialStatus status);
std::optional<TrialStatus> find_status(std::string_view name);
/// Throws base::Error for an unknown name.
TrialStatus status_from_name(std::string_view name);
/// What an exit code of moetune-rank means; unknown codes are `failed`.
TrialStatus status_from_exit_code(int code);

}  // namespace moetune::spec
