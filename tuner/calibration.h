// How fast each op really runs: fitted from the op times of finished trials, so that predictions
// stop being roofline estimates after the first trial.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/plan/ops.h"
#include "tuner/strategy.h"

namespace moetune::tuner {

/// Per op label, ns per launch = fixed + slope * roofline time. Both are at least 0. Communication
/// is not fitted: its measured times contain the waiting for others, and its transfers follow the
/// links.
class Calibration {
 public:
  /// Adds the op times of one finished trial on `hardware` and fits again.
  void add(const spec::HardwareSpec& hardware,
           const std::map<std::string, TrialOutcome::OpTime>& op_times);

  /// Predicted time of one launch. An op that was never measured borrows the mean efficiency of its
  /// kind; without any measurement the roofline decides.
  [[nodiscard]] int64_t duration_ns(const spec::HardwareSpec& hardware, plan::Op op,
                                    plan::Pass pass, const plan::OpCost& cost) const;
  [[nodiscard]] bool is_empty() const { return num_trials_ == 0; }

 private:
  struct Sample {
    double count = 0;
    double work_ns = 0;      ///< roofline time of one launch, mean
    double duration_ns = 0;  ///< of one launch, mean
  };
  struct Fit {
    bool is_set = false;
    double fixed_ns = 0;
    double slope = 1;
    std::vector<Sample> samples;
  };
  static constexpr size_t kNumPasses = static_cast<size_t>(plan::Pass::count);
  static constexpr size_t kNumLabels = static_cast<size_t>(plan::Op::count) * kNumPasses;
  static constexpr size_t kNumKinds = 6;

  static size_t index_of(plan::Op op, plan::Pass pass) {
    return static_cast<size_t>(op) * kNumPasses + static_cast<size_t>(pass);
  }
  static Fit fitted(std::vector<Sample> samples);

  std::array<Fit, kNumLabels> fits_{};
  std::array<Fit, kNumKinds> kinds_{};
  int64_t num_trials_ = 0;
};

}  // namespace moetune::tuner
