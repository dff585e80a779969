// What a trial of moetune's own engine will need and how fast it will be, by its program.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine/spec/trial_spec.h"
#include "sweeps/planning/estimate.h"
#include "tuner/cost_model.h"
#include "tuner/memory_model.h"

namespace moetune::sweeps {

struct TrialEstimate {
  tuner::MemoryEstimate memory;
  int worst_rank = 0;
  /// Exact for the load that was asked about. The upper end is that of twice the load, as routing
  /// differs from step to step; without expert parallelism it is the peak, too.
  Interval peak_bytes;
  Verdict verdict = Verdict::fits;  ///< of the exact peak: fits or oom, never tight
  double load_that_fits = 0;        ///< as in RunEstimate
  tuner::CostEstimate step;
  Interval step_ns;
  Interval tokens_per_s;  ///< of one device, as is the next
  Interval tflops;
};

/// `load`: rows of the busiest rank's experts over their share, at least 1. The spec must satisfy
/// its constraints.
TrialEstimate estimate_trial(const spec::TrialSpec& trial, double load);

nlohmann::json to_json(const TrialEstimate& estimate, const spec::TrialSpec& trial);
std::string text_of(const TrialEstimate& estimate, const spec::TrialSpec& trial);

}  // namespace moetune::sweeps
