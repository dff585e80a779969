// Order statistics, and the binomial intervals that say which of them bound a median.
#include "profiler/analysis/stats.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <cmath>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/median.h"

namespace moetune::profiler {
namespace {

double sorted_quantile(const std::vector<double>& sorted, double q) {
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double fraction = position - static_cast<double>(below);
  return sorted[below] + fraction * (sorted[above] - sorted[below]);
}

void check_values(const std::vector<double>& values) {
  MOETUNE_CHECK(!values.empty(), "statistics of no values");
  MOETUNE_CHECK(
      std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); }),
      "statistics of a value that is not finite");
}

}  // namespace

double median(std::vector<double> values) {
  check_values(values);
  return base::median(std::move(values));
}

double quantile(std::vector<double> values, double q) {
  check_values(values);
  MOETUNE_CHECK(q >= 0.0 && q <= 1.0, "quantile {} is not in 0..1", q);
  std::sort(values.begin(), values.end());
  return sorted_quantile(values, q);
}

double median_absolute_deviation(const std::vector<double>& values) {
  const double centre = median(values);
  std::vector<double> deviations;
  deviations.reserve(values.size());
  for (const double value : values) deviations.push_back(std::fabs(value - centre));
  return median(std::move(deviations));
}

double MedianInterval::noise_ratio() const {
  return median == 0.0 ? 0.0 : (high - low) / 2.0 / std::fabs(median);
}

MedianInterval median_interval(std::vector<double> values, double confidence_ratio) {
  check_values(values);
  MOETUNE_CHECK(confidence_ratio > 0.0 && confidence_ratio < 1.0, "confidence {} is not in 0..1",
                confidence_ratio);
  std::sort(values.begin(), values.end());
  const auto n = static_cast<int64_t>(values.size());
  MedianInterval result;
  result.num_values = n;
  result.median = sorted_quantile(values, 0.5);
  // The interval [x_(k), x_(n+1-k)] misses the median with probability 2 P(B <= k - 1), B binomial
  // (n, 1/2).
  const boost::math::binomial flips(static_cast<double>(n), 0.5);
  const auto missed = [&flips](int64_t k) {
    return 2.0 * boost::math::cdf(flips, static_cast<double>(k - 1));
  };
  int64_t k = 1;
  while (k + 1 <= n / 2 && missed(k + 1) <= 1.0 - confidence_ratio) ++k;
  result.low = values[static_cast<size_t>(k - 1)];
  result.high = values[static_cast<size_t>(n - k)];
  result.confidence_ratio = std::max(0.0, 1.0 - missed(k));
  result.is_range = result.confidence_ratio < confidence_ratio;
  return result;
}

}  // namespace moetune::profiler
