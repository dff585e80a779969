// The noise of a run, as all hunts assume it: with probability 0.95 normal with standard deviation
// s, else (an outlier) normal with 10 s.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace moetune::tuner {

/// The noise around its robust estimate, evenly in the logarithm.
inline constexpr std::array kNoiseFactors = {0.4, 0.56, 0.8, 1.12, 1.6, 2.24};

/// Adds to sums[i]: `weight` times the log density of independent readings `values` at levels[i],
/// up to a constant. All grids of levels and noises come to this, so it is written for a
/// processor's vectors.
void add_log_likelihoods(std::span<const double> values, double noise, double weight,
                         std::span<const double> levels, std::span<double> sums);

/// The smallest difference of two levels that so many runs of each show in 9 of 10 hunts with a
/// one-sided confidence of 95 %, by the normal part of the noise.
double detectable_change(double noise, size_t num_a, size_t num_b);

}  // namespace moetune::tuner
