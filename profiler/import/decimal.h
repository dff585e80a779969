// Numbers as trace files write them, read by their digits: a double holds microseconds since 1970
// only to a quarter of a microsecond.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace moetune::profiler {

/// "12.345" times 10 to the power of `scale`, rounded to the nearest whole number, to the even one
/// of two. Nothing for what is no number of JSON, or does not fit into 64 bits.
std::optional<int64_t> scaled_decimal(std::string_view text, int scale);

/// A whole number; also one that is written with zeros behind a point.
inline std::optional<int64_t> whole_number(std::string_view text) {
  return scaled_decimal(text, 0);
}

}  // namespace moetune::profiler
