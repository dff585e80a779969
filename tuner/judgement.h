// Is a change a gain, and how is it said.
#pragma once

#include <string>
#include <string_view>

#include "tuner/strategy.h"

namespace moetune::tuner {

/// A change of step time beside what the noise allows to see.
struct Comparison {
  double gain_ratio = 0;   ///< time before / time after - 1
  double noise_ratio = 0;  ///< relative half widths of both intervals, added as independent errors
  bool is_gain = false;    ///< gain_ratio > max(min_gain_ratio, noise_ratio)
};
Comparison compare(const TrialOutcome& before, const TrialOutcome& after, double min_gain_ratio);

/// Of a step: "12.3 % faster" (throughput gained) or "25.0 % longer" (time added), followed by the
/// `link` to what it is compared with, if any: "12.3 % faster than".
std::string describe_change(double gain_ratio, std::string_view link = {});

/// Status, median step time with its interval and the number of steps, peak; for a decision.
nlohmann::json evidence_of(const TrialOutcome& outcome);

/// "compute 50.3 %, blocking ep communication 31.2 %, ...": the shares above 1 %, largest first.
std::string describe_shares(const TrialOutcome& outcome);

/// "dp 4, cp 1, ep 4, pp 2, micro-batch 2, recompute norm".
std::string describe(const spec::Knobs& knobs);

}  // namespace moetune::tuner
