// Whether a trial's losses are those that they should be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "engine/spec/trial_spec.h"
#include "engine/trainer.h"

namespace moetune::engine {

/// Compares losses with the reference run's as they come. A token that a rounding difference sends
/// to another expert makes single steps differ either way; what is judged is the mean difference of
/// the last spec::kLossMeanSteps.
class LossCheck {
 public:
  explicit LossCheck(const spec::TrialSpec& trial) : trial_(trial) {}

  /// Throws base::WrongNumbers. A skipped step has no loss to compare.
  void add(int64_t step, const StepResult& result);

 private:
  const spec::TrialSpec& trial_;
  std::deque<double> differences_;
};

}  // namespace moetune::engine
