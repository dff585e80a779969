// Is a change a gain, and how is it said.
#pragma once

#include <string>

#include "tuner/strategy.h"

namespace moetune::tuner {

/// A change of step time beside what the noise allows to see.
struct Comparison {
  double gain_ratio = 0;   ///< time before / time after - 1
  double noise_ratio = 0;  ///< relative half widths of both intervals, added as independent errors
  bool is_gain = false;    ///< gain_ratio > max(min_gain_ratio, noise_ratio)
};
Comparison compare(const TrialOutcome& before, const TrialOutcome& after, double min_gain_ratio);

/// "compute 50.3 %, blocking ep communication 31.2 %, ...": the shares above 1 %, largest first.
std::string describe_shares(const TrialOutcome& outcome);

/// "dp 4, cp 1, ep 4, pp 2, micro-batch 2, recompute norm".
std::string describe(const spec::Knobs& knobs);

}  // namespace moetune::tuner
