// Statistics of few, skewed measurements: medians with distribution-free intervals, and whether one
// configuration is really faster than another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moetune::profiler {

/// Empty input throws base::Error in all of these. Inputs need no order.
double median(std::vector<double> values);
/// Linear interpolation between order statistics (type 7 of Hyndman and Fan 1996); `q` in 0..1.
double quantile(std::vector<double> values, double q);
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

enum class Verdict : uint8_t { faster, slower, same };
const char* name_of(Verdict verdict);

/// Durations of a candidate over those of a baseline.
struct Comparison {
  Verdict verdict = Verdict::same;
  double ratio = 1;  ///< candidate / baseline, below 1 is faster: median of all pairwise ratios
  double low = 1;
  double high = 1;
  double confidence_ratio = 0;  ///< achieved by low..high; below what was asked when values are few
  /// Throughput gained: 1 / ratio - 1.
  [[nodiscard]] double gain_ratio() const { return 1.0 / ratio - 1.0; }
};

/// Hodges-Lehmann estimate on the log scale with the Mann-Whitney interval (exact for few values,
/// normal approximation for many). Faster: the interval lies below 1 and the gain exceeds
/// `min_effect_ratio`; slower likewise; else same. With few values the interval is the whole range
/// of the pairwise ratios and confidence_ratio says what that is worth. Durations must be positive.
Comparison compare(const std::vector<double>& baseline, const std::vector<double>& candidate,
                   double min_effect_ratio = 0.0, double confidence_ratio = 0.95);

}  // namespace moetune::profiler
