#include "engine/loss_check.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "engine/spec/loss_band.h"
#include "kernels/base/error.h"

namespace moetune::engine {

void LossCheck::add(int64_t step, const StepResult& result) {
  if (result.is_skipped) return;
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    throw base::WrongNumbers(fmt::format("step {}: loss {} and gradient norm {} must be finite",
                                         step, result.loss, result.grad_norm));
  }
  // What a fake world's other ranks bring is made up.
  if (spec::ranks_of(trial_) == spec::RanksAre::alone) return;
  if (step >= static_cast<int64_t>(trial_.reference_loss.size())) return;
  const double expected = trial_.reference_loss[static_cast<size_t>(step)];
  differences_.push_back(result.loss - expected);
  if (differences_.size() > spec::kLossMeanSteps) differences_.pop_front();
  const double mean = std::accumulate(differences_.begin(), differences_.end(), 0.0) /
                      static_cast<double>(differences_.size());
  const double allowed = spec::reference_tolerance_at(trial_, step);
  if (std::abs(mean) <= allowed) return;
  throw base::WrongNumbers(fmt::format(
      "step {}: loss {:.6f} is off the reference run's {:.6f}; over the last {} steps by {:.2g} "
      "in the mean, allowed are {:.2g}",
      step, result.loss, expected, differences_.size(), mean, allowed));
}

}  // namespace moetune::engine
