// How a change is said.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tuner/strategy.h"

namespace moetune::tuner {

/// Of a step: "12.3 % faster" (throughput gained) or "20.0 % slower" (of speed, as the gain),
/// followed by the `link` to what it is compared with, if any: "12.3 % faster than".
std::string describe_change(double gain_ratio, std::string_view link = {});

/// Steps at the end of a run whose mean is its loss: one batch's says little, and those of the
/// first three quarters of a short run were before it has learned.
size_t num_steps_at_end(size_t num_steps);
/// That mean; 0 without a step.
double loss_at_end(const std::vector<double>& losses);

/// "(+38.9 to +47.1 %)": an interval of throughput gained.
std::string interval_text(double low_ratio, double high_ratio);

/// Status, median step time with its interval and the number of steps, peak; for a decision.
nlohmann::json evidence_of(const TrialOutcome& outcome);

/// "compute 50.3 %, blocking ep communication 31.2 %, ...": the shares above 1 %, largest first.
std::string describe_shares(const TrialOutcome& outcome);

/// layout_text, then ", micro-batch 2, recompute norm".
std::string describe(const spec::Knobs& knobs);

/// What differs between them of the named knobs: ", overlap_grad_reduce true".
std::string schedule_text(const spec::Knobs& knobs, const spec::Knobs& from,
                          const std::vector<std::string_view>& names);

}  // namespace moetune::tuner
