// What a run of somebody else's engine has left, as the result of a trial; and what it has to show
// before its time counts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/store/store.h"
#include "sweeps/adapters/user_run.h"
#include "sweeps/diagnosis.h"
#include "sweeps/runs/run_facts.h"

namespace moetune::sweeps {

/// Optimizer steps that a run has to make before anything is believed of it.
inline constexpr int64_t kFewestOptimizerSteps = 3;

/// How the command itself ended, where it was run from here.
struct CommandEnd {
  enum class How : uint8_t { exited, signalled, hung, interrupted, out_of_time };
  How how = How::exited;
  int code = 0;        ///< exit code or signal
  std::string detail;  ///< of a hung one: for how long nothing came; else its last words
};

struct EngineLeavings {
  CommandEnd end;
  std::optional<RunFacts> facts;       ///< none: no log
  std::optional<Diagnosis> diagnosis;  ///< none: no trace
  std::vector<std::string> notes;
};

/// Status, times, losses, memory and wall. The gates: the run ended well, made three optimizer
/// steps and as many as were asked for, its losses lie within the band of the baseline's
/// (request.spec.reference_loss), and what its log says of its configuration is what was asked.
/// Throws base::EnvironmentFailure where it was ended from outside (a queue, a node), which says
/// nothing of the trial.
store::TrialResult engine_result(const UserRun& run, const tuner::TrialRequest& request,
                                 const EngineLeavings& left);

/// Where the log's configuration is another than the one asked for; empty: nowhere that it tells.
std::string echo_mismatch(const UserRun& run, const tuner::TrialRequest& request,
                          const RunFacts& facts);

}  // namespace moetune::sweeps
