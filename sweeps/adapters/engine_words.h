// A trial of the user's engine in its own words: which settings differ, and the command that says
// so.
#pragma once

#include <string>
#include <vector>

#include "sweeps/adapters/shell_text.h"
#include "sweeps/adapters/user_run.h"
#include "tuner/strategy.h"

namespace moetune::sweeps {

/// Differences from the user's run, one text each, worded as in remedies.
std::vector<std::string> change_texts(const UserRun& run, const spec::dialects::RunConfig& config);

/// Why the engine's settings cannot express a configuration, "rule: sentence"; empty: they can.
std::string unsayable(const UserRun& run, const spec::dialects::RunConfig& config,
                      const tuner::Settings& settings);

/// The command that is run for a request.
struct EngineCommand {
  std::string text;                      ///< for /bin/sh
  std::vector<std::string> environment;  ///< "NAME=value"
  Placeholders placeholders;
  std::string config_path;  ///< {config}; empty: the command has none
  std::string config_text;

  /// The command as a person would type it.
  [[nodiscard]] std::string shell_text() const;
};
/// Makes the command. `out`: the trial's folder, absolute. Throws base::UsageError.
EngineCommand engine_command(const UserRun& run, const tuner::TrialRequest& request,
                             const std::string& out);

/// Steps of the run, those that are not timed included.
int64_t launched_steps(const tuner::TrialRequest& request);
/// Throws base::UsageError where the command itself states fewer steps than a trial, the run that
/// is profiled or the validation makes.
void check_total_steps(const UserRun& run, bool can_profile);
tuner::Settings settings_of(const tuner::TrialRequest& request);

}  // namespace moetune::sweeps
