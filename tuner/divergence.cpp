// Losses that are no numbers fail every comparison, so each is written to be false for them.
#include "tuner/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/spec/trial_spec.h"

namespace moetune::tuner {

std::optional<Divergence> find_divergence(std::span<const double> losses) {
  if (losses.empty()) return std::nullopt;
  const auto at = [&](size_t step) { return Divergence{static_cast<int64_t>(step), losses[step]}; };
  const double bound = kDivergedRatio * std::max(losses.front(), kLeastFirstLoss);
  size_t step = losses.size();
  while (step > 0 && !(losses[step - 1] <= bound)) --step;
  const size_t enough =
      std::clamp(losses.size() - 1, size_t{1}, static_cast<size_t>(kDivergedSteps));
  if (losses.size() - step >= enough) return at(step);
  for (step = 0; step < losses.size(); ++step) {
    if (!(std::abs(losses[step]) <= spec::kMostReferenceLoss)) return at(step);
  }
  return std::nullopt;
}

std::string divergence_text(const Divergence& divergence, std::span<const double> losses,
                            double rate) {
  return fmt::format(
      "diverged at step {} (loss {:.4g}, at step 0 {:.4g}): lower training.lr, which is {:g}",
      divergence.step, divergence.loss, losses.front(), rate);
}

}  // namespace moetune::tuner
