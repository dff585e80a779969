// Predicts the step time of a layout by playing one rank per pipeline stage through the op list in a small virtual time
// of its own: host clock, compute stream, communication streams, pipeline schedule.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "engine/spec/trial_spec.h"
#include "tuner/strategy.h"

namespace moetune::tuner {

/// How long ops really take, learned from finished trials; without any the roofline is used.
class Calibration {
 public:
  /// Adds the measured op times of a trial that ran with `spec` (TrialOutcome::op_times).
  void add(const spec::TrialSpec& spec, const TrialOutcome& outcome);

  [[nodiscard]] bool is_empty() const { return labels_.empty(); }

  /// Time of one launch of the op (a compute-like op's label, such as "expert_fc1.forward") with this work. Falls back
  /// to ops of the same kind, then to the roofline.
  [[nodiscard]] int64_t op_ns(const spec::HardwareSpec& hardware, const std::string& label,
                              int64_t flops, int64_t bytes) const;

 private:
  /// Sums for a least-squares line ns = a + b * work over (trial, label) means, a >= 0.
  struct Fit {
    double n = 0;
    double x = 0;
    double xx = 0;
    double y = 0;
    double xy = 0;
  };
  std::map<std::string, Fit> labels_;
};

struct StepPrediction {
  int64_t step_ns = 0;
  /// compute, recompute, launch, dispatcher, and per group the communication that was not hidden ("ep", "cp", "dp_cp",
  /// "edp", "pp", "world"), bubble, update; of the slowest stage, adding up to step_ns.
  std::map<std::string, int64_t> parts_ns;
};

/// The knobs must satisfy the constraints. Balanced routing is assumed.
StepPrediction predict_step(const spec::TrialSpec& trial, const Calibration& calibration);

}  // namespace moetune::tuner
