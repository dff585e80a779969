// The one median.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/base/error.h"

namespace moetune::base {

/// The middle value, or halfway between the two in the middle; the values need no order. Throws
/// base::Error when there are none.
template <typename Number>
double median(std::vector<Number> values) {
  MOETUNE_CHECK(!values.empty(), "the median of no values");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  const auto upper = static_cast<double>(*middle);
  if (values.size() % 2 == 1) return upper;
  const auto lower = static_cast<double>(*std::max_element(values.begin(), middle));
  return lower + 0.5 * (upper - lower);
}

/// The middle value, of an even number the upper one: no number that is not among them, and to the
/// last digit. Throws base::Error when there are none.
template <typename Number>
Number upper_median(std::vector<Number> values) {
  MOETUNE_CHECK(!values.empty(), "the median of no values");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace moetune::base
