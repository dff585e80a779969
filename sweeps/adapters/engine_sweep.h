// A sweep over another engine: the parts for the loop of sweeps, and the texts for people who
// launch the runs by hand.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "profiler/store/store.h"
#include "sweeps/adapters/foreign_engine.h"
#include "tuner/strategy.h"

namespace moetune::sweeps {

struct EngineSweep {
  std::shared_ptr<const UserRun> run;
  std::unique_ptr<tuner::Strategy> strategy;
  store::SweepRow row;
  std::vector<std::pair<std::string, std::string>> illegal_axes;  ///< EngineSpace::illegal_axes
};
/// Throws base::UsageError for what the sweep file's engine cannot be.
EngineSweep engine_sweep_of(const spec::SweepSpec& sweep);

/// The command of a trial that nobody has run yet. `folder`: see engine_folder; a configuration
/// file that the command reads is written there.
struct NextCommand {
  std::string title;
  std::string phase;
  std::string why;  ///< it is tried, a sentence
  std::string command;
  std::string working_folder;
  int64_t predicted_step_ns = 0;
  int64_t predicted_peak_bytes = 0;
  bool is_profiled = false;  ///< it leaves traces, to be told with the log
};
NextCommand next_command(const UserRun& run, const tuner::TrialRequest& request,
                         const std::string& folder);
std::string to_text(const NextCommand& next);
nlohmann::json to_json(const NextCommand& next);

}  // namespace moetune::sweeps
