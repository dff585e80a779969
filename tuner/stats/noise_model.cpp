// See noise_model.h.
#include "tuner/stats/noise_model.h"

#include <cmath>

namespace moetune::tuner {
namespace {

constexpr double kOutlierShare = 0.05;
constexpr double kOutlierWidth = 10.0;

}  // namespace

double log_density(double difference, double noise) {
  const double z2 = difference * difference / (noise * noise);
  // Far outside the normal part only the outliers' is left, and the exponentials are saved.
  const double outlier =
      std::log(kOutlierShare / kOutlierWidth) - 0.5 * z2 / (kOutlierWidth * kOutlierWidth);
  const double usual = std::log(1.0 - kOutlierShare) - 0.5 * z2;
  if (usual < outlier - 40) return outlier - std::log(noise);
  return outlier + std::log1p(std::exp(usual - outlier)) - std::log(noise);
}

double detectable_change(double noise, size_t num_a, size_t num_b) {
  constexpr double kErrors = 1.645 + 1.282;  // standard errors: of 95 % and of 9 in 10
  return kErrors * noise *
         std::sqrt(1.0 / static_cast<double>(num_a) + 1.0 / static_cast<double>(num_b));
}

}  // namespace moetune::tuner
