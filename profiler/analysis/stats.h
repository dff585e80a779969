// Order statistics of few, skewed measurements: medians with distribution-free intervals. Whether
// one configuration is really faster than another is asked of runs, not of the steps of one: see
// tuner/stats.
#pragma once

#include <cstdint>
#include <vector>

namespace moetune::profiler {

/// Empty input throws base::Error in all of these. Inputs need no order.
double median(std::vector<double> values);
/// Linear interpolation between order statistics (type 7 of Hyndman and Fan 1996); `q` in 0..1.
double quantile(std::vector<double> values, double q);
/// Standard deviation over median absolute deviation, in a normal distribution.
inline constexpr double kMadToDeviation = 1.4826;
/// Standard errors on each side of an interval of 95 %, in a normal distribution.
inline constexpr double kNormal95 = 1.96;
/// Standard error of a median over that of a mean, in a normal distribution: sqrt(pi / 2).
inline constexpr double kMedianError = 1.2533;
/// Median absolute deviation from the median, unscaled.
double median_absolute_deviation(const std::vector<double>& values);

/// A median and where it lies.
struct MedianInterval {
  double median = 0;
  double low = 0;
  double high = 0;
  double confidence_ratio = 0;  ///< achieved, 0..1
  bool is_range = false;        ///< too few values for the asked confidence: low..high is min..max
  int64_t num_values = 0;

  /// Half the width over the median: the noise of the measurement. 0 when the median is 0.
  [[nodiscard]] double noise_ratio() const;
};

/// Interval between two order statistics, placed by the binomial distribution with p = 1/2 (David
/// and Nagaraja, Order Statistics, 7.1). Six values are the fewest for 95 %; below, min..max and
/// is_range.
MedianInterval median_interval(std::vector<double> values, double confidence_ratio = 0.95);

}  // namespace moetune::profiler
