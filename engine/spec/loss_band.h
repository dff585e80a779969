// How losses of two runs are compared: by the mean of their last differences, as a token that a
// rounding difference sends to another expert makes single steps differ either way.
#pragma once

#include <cstddef>
#include <span>

namespace moetune::spec {

/// So many differences, the latest, are averaged.
constexpr size_t kLossMeanSteps = 10;

/// The largest mean of kLossMeanSteps differences in a row (fewer at the beginning), as an absolute
/// value, over the steps that both runs have.
double largest_mean_difference(std::span<const double> a, std::span<const double> b);

}  // namespace moetune::spec
