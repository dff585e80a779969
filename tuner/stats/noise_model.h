// The noise of a run, as all hunts assume it: with probability 0.95 normal with standard deviation
// s, else (an outlier) normal with 10 s.
#pragma once

#include <array>
#include <cstddef>

namespace moetune::tuner {

/// The noise around its robust estimate, evenly in the logarithm.
inline constexpr std::array kNoiseFactors = {0.4, 0.56, 0.8, 1.12, 1.6, 2.24};

/// Logarithm of the density, but for a constant, of a run that is `difference` off its level.
double log_density(double difference, double noise);

/// The smallest difference of two levels that so many runs of each show in 9 of 10 hunts with a
/// one-sided confidence of 95 %, by the normal part of the noise.
double detectable_change(double noise, size_t num_a, size_t num_b);

}  // namespace moetune::tuner
