// Whether training went well enough for its losses to be what others are compared with: a learning
// rate that is far too high makes them explode, and then no layout reproduces them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace moetune::tuner {

/// Losses beyond so many times the first one are those of a run that has diverged. A model that
/// knows nothing guesses every token with the same probability, so its loss is the logarithm of the
/// vocabulary's size, 5 to 12. Even a rough start of training stays at a few times that: ten times
/// is left only by parameters that have grown without bound.
constexpr double kDivergedRatio = 10;
/// A first loss counts as at least so much: that of trained weights may be near 0.
constexpr double kLeastFirstLoss = 1;
/// So many last losses are beyond the bound: one step's peak may come down again.
constexpr int64_t kDivergedSteps = 3;

/// Where a run has left what can be compared.
struct Divergence {
  int64_t step = 0;  ///< from 0
  double loss = 0;   ///< may be no number
};

/// `losses`: by step, nats per token. None where the run is fit to be a reference. Else the step
/// from which on all losses are beyond the bound, where these are kDivergedSteps at least (or all
/// but the first); or the first whose loss is not finite or above spec::kMostReferenceLoss.
std::optional<Divergence> find_divergence(std::span<const double> losses);

/// The rest of a sentence whose subject is the run: where it diverged, and what to do. `losses` as
/// above, not empty; `rate`: training.lr.
std::string divergence_text(const Divergence& divergence, std::span<const double> losses,
                            double rate);

}  // namespace moetune::tuner
