// Order statistics, binomial and Mann-Whitney intervals; see stats.h.
#include "profiler/analysis/stats.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <utility>

#include "kernels/base/error.h"

namespace moetune::profiler {
namespace {

/// Pairs up to which the Mann-Whitney distribution is counted out; beyond, its normal approximation
/// is good to three digits.
constexpr int64_t kMaxExactPairs = 400;

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

/// P(U = u) for u in 0..m*n, two samples of sizes m and n from one distribution: the coefficients
/// of the Gaussian binomial (m+n choose m), divided by their sum (Mann and Whitney 1947).
std::vector<double> mann_whitney_distribution(int64_t m, int64_t n) {
  const auto size = static_cast<size_t>(m * n) + 1;
  std::vector<double> count(size, 0.0);
  count[0] = 1.0;
  for (int64_t i = 1; i <= m; ++i) {
    // Times (1 - x^(n+i)), then over (1 - x^i).
    for (size_t u = size; u-- > static_cast<size_t>(n + i);)
      count[u] -= count[u - static_cast<size_t>(n + i)];
    for (auto u = static_cast<size_t>(i); u < size; ++u)
      count[u] += count[u - static_cast<size_t>(i)];
  }
  double total = 0;
  for (const double c : count) total += c;
  for (double& c : count) c /= total;
  return count;
}

struct CutOff {
  int64_t num_outside = 0;  ///< pairwise ratios beyond the interval, on each side
  double confidence_ratio = 0;
};

/// How many pairwise ratios may be cut off at each end: the largest k with P(U <= k - 1) <= (1 -
/// confidence) / 2.
CutOff mann_whitney_cut_off(int64_t m, int64_t n, double confidence_ratio) {
  const double tail = (1.0 - confidence_ratio) / 2.0;
  if (m * n <= kMaxExactPairs) {
    const std::vector<double> probability = mann_whitney_distribution(m, n);
    double below = 0;
    int64_t k = 0;
    while (k < m * n / 2 && below + probability[static_cast<size_t>(k)] <= tail) {
      below += probability[static_cast<size_t>(k++)];
    }
    // The whole range of the ratios still misses the truth when all of one sample lies beyond the
    // other: P(U = 0).
    const double outside = k == 0 ? probability[0] : below;
    return {std::max<int64_t>(k - 1, 0), std::max(0.0, 1.0 - 2.0 * outside)};
  }
  const auto pairs = static_cast<double>(m * n);
  const double sigma = std::sqrt(pairs * static_cast<double>(m + n + 1) / 12.0);
  const double z = boost::math::quantile(boost::math::normal(), 1.0 - tail);
  const auto k = static_cast<int64_t>(std::floor(pairs / 2.0 - z * sigma + 0.5));
  return {std::max<int64_t>(k - 1, 0), confidence_ratio};
}

}  // namespace

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

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

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::faster:
      return "faster";
    case Verdict::slower:
      return "slower";
    case Verdict::same:
      return "same";
  }
  return "?";
}

Comparison compare(const std::vector<double>& baseline, const std::vector<double>& candidate,
                   double min_effect_ratio, double confidence_ratio) {
  check_values(baseline);
  check_values(candidate);
  MOETUNE_CHECK(confidence_ratio > 0.0 && confidence_ratio < 1.0, "confidence {} is not in 0..1",
                confidence_ratio);
  std::vector<double> ratios;
  ratios.reserve(baseline.size() * candidate.size());
  for (const double b : baseline) {
    for (const double c : candidate) {
      MOETUNE_CHECK(b > 0.0 && c > 0.0, "durations to compare must be positive: {} and {}", b, c);
      ratios.push_back(c / b);
    }
  }
  std::sort(ratios.begin(), ratios.end());
  const CutOff cut = mann_whitney_cut_off(static_cast<int64_t>(baseline.size()),
                                          static_cast<int64_t>(candidate.size()), confidence_ratio);
  Comparison result;
  result.ratio = sorted_quantile(ratios, 0.5);
  result.low = ratios[static_cast<size_t>(cut.num_outside)];
  result.high = ratios[ratios.size() - 1 - static_cast<size_t>(cut.num_outside)];
  result.confidence_ratio = cut.confidence_ratio;
  if (result.high < 1.0 && result.gain_ratio() > min_effect_ratio) {
    result.verdict = Verdict::faster;
  } else if (result.low > 1.0 && result.ratio - 1.0 > min_effect_ratio) {
    result.verdict = Verdict::slower;
  }
  return result;
}

}  // namespace moetune::profiler
