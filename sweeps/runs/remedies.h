// What to change in a run of another framework, by the wall that its traces and its log show: rows
// of knobs, written as settings of the framework that the run is for.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "kernels/base/step_parts.h"
#include "tuner/planner/run.h"

namespace moetune::sweeps {

/// The wall of a run, whoever has found it.
struct FoundWall {
  base::WallLabel label = base::WallLabel::unknown;
  std::string sub_cause;  ///< launch, sync, transfer, ...; empty: not told apart
  /// Of the step, by label: what would be saved at most if that were gone.
  std::map<std::string, double, std::less<>> ceilings;
  /// The same by sub-cause, where they have been told apart.
  std::map<std::string, double, std::less<>> cause_ceilings = {};
};

/// The run that is to be changed. Without a configuration remedies are told in Megatron-LM's words,
/// and nothing is known of what is set already.
struct RunToMend {
  std::optional<spec::dialects::RunConfig> config;
  bool is_config_known = true;                   ///< false: only the sizes that a log has told
  std::shared_ptr<const spec::ModelSpec> model;  ///< null: what the configuration says of it
  std::shared_ptr<const spec::HardwareSpec> hardware;  ///< null: as many devices as ranks
};

struct Remedy {
  std::optional<spec::PlanKnobs> knobs;  ///< of the changed run; none: no choice of the run
  std::vector<std::string> flags;  ///< as the framework takes them; empty: not a matter of flags
  double ceiling_ratio = 0;        ///< of the step's time: more cannot be saved by it
  std::string rule;                ///< name of the row
  std::string why;                 ///< a sentence
  std::string refused;             ///< the constraint that forbids it: name and message; or empty
};

/// Those of the wall and of every other label whose share is worth a look, largest ceiling first,
/// refused ones behind. Nothing for an unknown wall.
std::vector<Remedy> remedies_of(const FoundWall& wall, const RunToMend& run);

/// Why the run with other knobs is impossible where the run as it stands is not, "rule: sentence";
/// empty: nothing says so.
std::string rule_broken_by(const RunToMend& run, const spec::PlanKnobs& knobs);

/// Names of the rows, for pages and tests.
std::vector<std::string_view> remedy_rules();

}  // namespace moetune::sweeps
