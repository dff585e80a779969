// Chooses another metric of the same runs to follow: one that has changed between the ends, too,
// but has less noise. Where it changes, the metric that was asked for probably does.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sweeps/bisect/hunt_runs.h"
#include "sweeps/bisect/vocabulary.h"

namespace moetune::sweeps {

/// Factor by which a lead's shift, in its own noises, must exceed that of the metric that was asked
/// for. With less, following it gains nothing.
inline constexpr double kWorthFollowing = 1.3;

/// A value that is the same in every run of an end and differs between them.
struct CounterLead {
  std::string metric;
  bool has_fallen = false;  ///< from the good end to the bad one
};

/// Changed values of the configuration come first, as they are causes and not signs; then the
/// counters that have changed most.
std::vector<CounterLead> counters_to_follow(const HuntRuns& runs, const HuntSetup& setup);

/// A duration that has grown. In relation to that, it has less noise than the metric that was asked
/// for.
struct PartLead {
  std::string metric;
  double noises = 0.0;              ///< growth over noise
  double least_effect_ratio = 0.0;  ///< to hunt it with: half of its growth, as a ratio
  /// Factor from its unit to that of the metric that was asked for; empty if either is not known.
  std::optional<double> scale;
};

/// The duration with the largest growth over noise. A part of the metric has to explain half of the
/// metric's growth: of the lower end of its interval, or of the least effect if that is more. Where
/// noise hides the metric's growth, the part has to grow by the whole least effect.
std::optional<PartLead> part_to_follow(const HuntRuns& runs, const HuntSetup& setup,
                                       const tuner::HuntResult& ends);

/// The durations that are parts of the metric that was asked for and that all good runs of both
/// ends have. By name, the factor from the part's unit to the metric's.
std::map<std::string, double> parts_of(const HuntRuns& runs, const HuntSetup& setup);

/// Whether another part has become shorter at this commit, by half of `growth` (in units of the
/// metric) at least. Then work was moved, not added.
bool is_made_up_for(const HuntRuns& runs, const HuntSetup& setup, int position, double growth);

}  // namespace moetune::sweeps
