// The noise of a run, as all hunts assume it. It is normal: with probability 0.95 with standard
// deviation s, else (an outlier) with 10 s.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace moetune::tuner {

/// The values of s that are considered, as factors of its robust estimate. They are even in the
/// logarithm.
inline constexpr std::array kNoiseFactors = {0.4, 0.56, 0.8, 1.12, 1.6, 2.24};

/// Adds to sums[i]: `weight` times the log density of independent readings `values` at levels[i],
/// up to a constant. All sums over levels and noises spend their time here, so it is written for a
/// processor's vectors.
void add_log_likelihoods(std::span<const double> values, double noise, double weight,
                         std::span<const double> levels, std::span<double> sums);

/// Sets weights[i] to exp(logs[i] - the largest of logs), to within 1e-15 of itself, and returns
/// that largest one. Both are as long, and not empty.
double scale_by_largest(std::span<const double> logs, std::span<double> weights);

/// The smallest difference of two levels that is shown in 9 of 10 hunts, by `num_a` and `num_b`
/// runs with a one-sided confidence of 95 %. Outliers are not counted.
double detectable_change(double noise, size_t num_a, size_t num_b);

}  // namespace moetune::tuner
