#include "tuner/stats/noise_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "tuner/stats/fast_exp.h"

namespace moetune::tuner {
namespace {

constexpr double kOutlierShare = 0.05;
constexpr double kOutlierWidth = 10.0;
/// Slope of log(outliers' density) over z^2, z being the distance in noises.
constexpr double kOutlierSlope = -0.5 / (kOutlierWidth * kOutlierWidth);
/// Slope of log(usual density / outliers' density) over z^2.
constexpr double kUsualSlope = -0.5 - kOutlierSlope;
/// A product of so many factors of at most 1 + 0.95 / 0.05 * 10 does not overflow.
constexpr size_t kMostFactors = 64;

}  // namespace

// The density is outliers' part * (1 + usual part / outliers' part). Over many readings the
// logarithms of the first factor, which are squares, are summed. The second factors are multiplied,
// so that one logarithm serves all of them.
void add_log_likelihoods(std::span<const double> values, double noise, double weight,
                         std::span<const double> levels, std::span<double> sums) {
  const double log_outlier = std::log(kOutlierShare / kOutlierWidth);
  const double log_ratio = std::log(1.0 - kOutlierShare) - log_outlier;
  const double per_noise = 1.0 / noise;
  const size_t num_levels = levels.size();
  const double* const level = levels.data();
  std::vector<double> squares(num_levels);
  std::vector<double> products(num_levels);
  while (!values.empty()) {
    const std::span<const double> some = values.first(std::min(values.size(), kMostFactors));
    values = values.subspan(some.size());
    std::fill(squares.begin(), squares.end(), 0.0);
    std::fill(products.begin(), products.end(), 1.0);
    double* const square = squares.data();
    double* const product = products.data();
    for (const double value : some) {
      for (size_t i = 0; i < num_levels; ++i) {
        const double z = (value - level[i]) * per_noise;
        square[i] += z * z;
        product[i] *= 1.0 + fast_exp(log_ratio + kUsualSlope * (z * z));
      }
    }
    const double constant = static_cast<double>(some.size()) * (log_outlier - std::log(noise));
    for (size_t i = 0; i < num_levels; ++i) {
      sums[i] += weight * (constant + kOutlierSlope * square[i] + std::log(product[i]));
    }
  }
}

// The largest is sought in lanes: a vector's elements do not wait for each other, and in whatever
// order they are compared, it is the same.
double scale_by_largest(std::span<const double> logs, std::span<double> weights) {
  constexpr size_t kLanes = 16;
  std::array<double, kLanes> lanes;
  lanes.fill(-std::numeric_limits<double>::infinity());
  const size_t num_logs = logs.size();
  const double* const log = logs.data();
  size_t i = 0;
  for (; i + kLanes <= num_logs; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = log[i + lane] > lanes[lane] ? log[i + lane] : lanes[lane];
    }
  }
  double largest = *std::max_element(lanes.begin(), lanes.end());
  for (; i < num_logs; ++i) largest = log[i] > largest ? log[i] : largest;
  double* const weight = weights.data();
  for (size_t w = 0; w < num_logs; ++w) weight[w] = fast_exp(log[w] - largest);
  return largest;
}

double detectable_change(double noise, size_t num_a, size_t num_b) {
  constexpr double kErrors = 1.645 + 1.282;  // standard errors: of 95 % and of 9 in 10
  return kErrors * noise *
         std::sqrt(1.0 / static_cast<double>(num_a) + 1.0 / static_cast<double>(num_b));
}

}  // namespace moetune::tuner
