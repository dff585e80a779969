// Makes the result of a trial from the files that a run of another engine has left, and checks that
// its time may count.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/store/store.h"
#include "sweeps/adapters/user_run.h"
#include "sweeps/diagnosis.h"
#include "sweeps/runs/run_facts.h"

namespace moetune::sweeps {

/// Fewest optimizer steps of a run that counts.
inline constexpr int64_t kFewestOptimizerSteps = 3;

/// How the command ended, if moetune started it.
struct CommandEnd {
  enum class How : uint8_t { exited, signalled, hung, interrupted, out_of_time };
  How how = How::exited;
  int code = 0;        ///< exit code or signal
  std::string detail;  ///< hung: how long there was no output; else its last lines
};

/// Whether a trial of the run is told how many steps to make.
bool asks_for_steps(const UserRun& run);
/// Steps that the log shows as made. Lines stand every so many steps, so there may be a few more.
int64_t steps_made(const RunFacts& facts);
/// "ended after 6 of 51 steps"; empty: all that were asked for were made, or nobody asked.
std::string early_end(const UserRun& run, const tuner::TrialRequest& request,
                      const RunFacts& facts);

struct EngineLeavings {
  CommandEnd end;
  std::optional<RunFacts> facts;       ///< none: no log
  std::optional<Diagnosis> diagnosis;  ///< none: no trace
  std::vector<std::string> notes;
};

/// Throws base::EnvironmentFailure as engine_result does.
void check_environment(const EngineLeavings& left);

/// Status, times, losses, memory and wall of a run. It counts as ok if it ended well, made at least
/// three optimizer steps and as many steps as requested, has losses within the band around the
/// baseline's (request.spec.reference_loss), and logged the requested configuration. Throws
/// base::EnvironmentFailure if it was stopped from outside (a queue, a node), which says nothing
/// about the trial.
store::TrialResult engine_result(const UserRun& run, const tuner::TrialRequest& request,
                                 const EngineLeavings& left);

}  // namespace moetune::sweeps
