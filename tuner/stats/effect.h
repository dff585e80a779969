// A change of a level as a ratio of that level, and how small a change the runs could have shown.
#pragma once

#include <cstddef>

#include "tuner/stats/levels.h"

namespace moetune::tuner {

/// after / before - 1, and the ends of its interval with the asked confidence.
struct Effect {
  double effect_ratio = 0.0;
  double effect_low_ratio = 0.0;
  double effect_high_ratio = 0.0;
};

/// The effect between the good end and the bad one.
struct EndsEffect : Effect {
  bool is_known = false;     ///< false: nothing has been compared yet
  double noise_ratio = 0.0;  ///< standard deviation of one run, over the good end's level
  /// The smallest effect that so many runs of both ends could have shown, and the smallest that
  /// kMoreRuns more could show.
  double detectable_ratio = 0.0;
  double detectable_with_more_ratio = 0.0;
};

/// How many more runs, of both ends together, EndsEffect::detectable_with_more_ratio assumes.
inline constexpr int kMoreRuns = 20;

/// The difference of two levels that are known exactly.
LevelDifference exact_difference(double before, double after);

/// The difference as a ratio of `unit`, which is the level before and not 0. `sign` is -1 if the
/// levels are those of a metric whose sign was changed because more of it is better.
Effect effect_of(const LevelDifference& difference, double sign, double unit);
EndsEffect ends_effect_of(const LevelDifference& difference, double sign, double unit,
                          size_t num_good, size_t num_bad);

}  // namespace moetune::tuner
