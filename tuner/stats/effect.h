// A change of a level as shares of it, and what runs of both ends could have shown.
#pragma once

#include <cstddef>

#include "tuner/stats/levels.h"

namespace moetune::tuner {

/// after / before - 1, with the interval of the asked confidence.
struct Effect {
  double effect_ratio = 0.0;
  double effect_low_ratio = 0.0;
  double effect_high_ratio = 0.0;
};

/// Of the bad end over the good one.
struct EndsEffect : Effect {
  bool is_known = false;     ///< else nothing has been compared yet
  double noise_ratio = 0.0;  ///< of one run, over the good end's level
  /// What these many runs of both ends could just have shown, and what kMoreRuns more could.
  double detectable_ratio = 0.0;
  double detectable_with_more_ratio = 0.0;
};

/// Of both ends together, for EndsEffect::detectable_with_more_ratio.
inline constexpr int kMoreRuns = 20;

/// A difference without noise.
LevelDifference exact_difference(double before, double after);

/// `sign` is -1 where the levels are those of a metric turned round, as more of it is better;
/// `unit` is the level that the shares are of, not 0.
Effect effect_of(const LevelDifference& difference, double sign, double unit);
EndsEffect ends_effect_of(const LevelDifference& difference, double sign, double unit,
                          size_t num_good, size_t num_bad);

}  // namespace moetune::tuner
