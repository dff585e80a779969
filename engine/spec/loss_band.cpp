#include "engine/spec/loss_band.h"

#include <algorithm>
#include <cmath>

namespace moetune::spec {

double largest_mean_difference(std::span<const double> a, std::span<const double> b) {
  const size_t num_steps = std::min(a.size(), b.size());
  double sum = 0;
  double largest = 0;
  for (size_t step = 0; step < num_steps; ++step) {
    sum += a[step] - b[step];
    if (step >= kLossMeanSteps) sum -= a[step - kLossMeanSteps] - b[step - kLossMeanSteps];
    const auto count = static_cast<double>(std::min(step + 1, kLossMeanSteps));
    largest = std::max(largest, std::abs(sum / count));
  }
  return largest;
}

}  // namespace moetune::spec
