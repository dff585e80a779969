// Whether a log that somebody brings is that of the command that was named, and shows its end: of a
// run that moetune has not launched there is no exit code.
#pragma once

#include <optional>
#include <string>

#include "sweeps/adapters/user_run.h"
#include "sweeps/runs/run_facts.h"

namespace moetune::sweeps {

/// Whose framework the log is of, where that cannot have been the engine; empty: it may.
std::string framework_mismatch(const UserRun& run, const RunFacts& facts);

/// Throws base::UsageError for a log of another framework or of a run with other sizes than the
/// user's (size_mismatch). `log`: its name.
void check_told_run(const UserRun& run, const RunFacts& facts, const std::string& log);

/// Throws base::UsageError for a log of other values of the space than those asked for
/// (echo_mismatch), of another number of steps, and where neither the log nor `exit_code` (none: it
/// was not said) tells how the command ended. A run that failed may have made fewer steps.
void check_told_trial(const UserRun& run, const tuner::TrialRequest& request, const RunFacts& facts,
                      const std::string& log, std::optional<int> exit_code);

}  // namespace moetune::sweeps
