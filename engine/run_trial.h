// One whole trial, or this process's part of it: ranks, steps, the shard file, and what a failure
// means as an exit code.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <string>

#include "engine/spec/trial_spec.h"
#include "engine/spec/trial_status.h"

namespace moetune::engine {

struct RunOptions {
  /// On a device: a step that takes longer ends the process with the exit code for `hung`.
  std::chrono::milliseconds step_limit{std::chrono::minutes(15)};
  /// Is told at the end, in a line, how long a step took and what tracing added.
  std::function<void(const std::string& line)> on_summary;
  /// A folder (saved_run.h): the run goes on with what is saved there, and is saved there, so that
  /// the next one can. Of one rank without reference_loss. Empty: it always begins at step 0.
  std::string saved_run{};
};

/// Trains as the spec says and writes `out_dir`/shard-0.db (after every step) and
/// `out_dir`/progress ("step k of n"); of several processes each has a shard of its own,
/// shard-R.db, leaves a last word (last_word.h), and rank 0 writes the progress. Throws what the
/// ranks threw: base::OutOfMemory, base::WrongNumbers, base::UsageError, base::NoDevice,
/// base::DeviceFailed, base::PeerFailed, base::Error. Returns `interrupted` when SIGTERM or SIGINT
/// asked for an end.
spec::ExitCode run_trial(const spec::TrialSpec& trial, const std::string& out_dir,
                         const RunOptions& options = {});

/// What a failure of a trial is to the parent.
spec::ExitCode exit_code_of(const std::exception& error);

}  // namespace moetune::engine
