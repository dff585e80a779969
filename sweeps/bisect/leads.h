// Other metrics of the same runs that may show where the one that was asked for has changed, with
// less noise: what to follow, chosen from the runs of both ends.
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

/// A changed default comes first, as it is a cause and not a sign; then what has changed most.
std::vector<CounterLead> counters_to_follow(const HuntRuns& runs, const HuntSetup& setup);

/// A duration that has grown, with less noise beside it than the metric that was asked for.
struct PartLead {
  std::string metric;
  double noises = 0.0;  ///< by how many of its noises
  double least_effect_ratio = 0.0;
  /// Both have units: it is a part of the metric, and this many of the metric's units are one of
  /// its own.
  std::optional<double> scale;
};

/// The one that moved by most of its noises. Parts that explain little of what the ends differ by,
/// or of the least effect where the noise hides how much that is, do not count.
std::optional<PartLead> part_to_follow(const HuntRuns& runs, const HuntSetup& setup,
                                       const tuner::HuntResult& ends);

/// The parts of the metric that was asked for, in all good runs of both ends: how many of its units
/// are one of theirs.
std::map<std::string, double> parts_of(const HuntRuns& runs, const HuntSetup& setup);

/// Whether at this commit another part has become shorter by a good share of `growth` (in units of
/// the metric): work that was moved, not added.
bool is_made_up_for(const HuntRuns& runs, const HuntSetup& setup, int position, double growth);

}  // namespace moetune::sweeps
