// One whole trial in this process: ranks as threads, steps, the shard file, and what a failure
// means as an exit code.
#pragma once

#include <string>

#include "engine/spec/trial_spec.h"
#include "engine/spec/trial_status.h"

namespace moetune::engine {

/// Trains as the spec says and writes `out_dir`/shard-0.db (after every step) and
/// `out_dir`/progress ("step k of n"). Throws what the ranks threw: base::OutOfMemory,
/// base::WrongNumbers, base::UsageError, base::Error. Returns `interrupted` when SIGTERM or SIGINT
/// asked for an end.
spec::ExitCode run_trial(const spec::TrialSpec& trial, const std::string& out_dir);

}  // namespace moetune::engine
