// The one median.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/base/error.h"

namespace moetune::base {

/// Moves the value at size / 2 of the sorted order to its place, smaller ones before it. Throws
/// base::Error when there are none.
template <typename Number>
typename std::vector<Number>::iterator select_middle(std::vector<Number>& values) {
  MOETUNE_CHECK(!values.empty(), "the median of no values");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return middle;
}

/// The middle value, or halfway between the two in the middle; the values need no order. Throws
/// base::Error when there are none.
template <typename Number>
double median(std::vector<Number> values) {
  const auto middle = select_middle(values);
  const auto upper = static_cast<double>(*middle);
  if (values.size() % 2 == 1) return upper;
  const auto lower = static_cast<double>(*std::max_element(values.begin(), middle));
  return lower + 0.5 * (upper - lower);
}

/// The median; of an even number of values the upper of the two middle ones. Always one of the
/// values, so integers stay exact. Throws base::Error if there are none.
template <typename Number>
Number upper_median(std::vector<Number> values) {
  return *select_middle(values);
}

}  // namespace moetune::base
