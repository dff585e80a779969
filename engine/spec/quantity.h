// What a number in a file is measured in, and how people write it: "80GB", "450GB/s", "25us",
// "989TF".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moetune::spec {

/// The base unit of a value. Only the first six can be written with another unit.
enum class Quantity : uint8_t {
  bytes,
  bytes_per_s,
  flops_per_s,
  nanoseconds,
  seconds,
  watts,
  ratio,  ///< 0 to 1
  count,  ///< of ranks, layers, steps, ...: the field's help says of what
  text,   ///< no number
  count_of_quantities
};

/// "bytes", "bytes/s", "ns": for pages and messages. Empty where the number has no unit.
std::string_view unit_name(Quantity quantity);

/// A text with a unit that says the same as a file's number, such as "80GB": for messages. Empty
/// where the quantity has no units.
std::string_view unit_example(Quantity quantity);

/// The regular expression that texts of this quantity match (ECMA 262); empty without units.
std::string unit_pattern(Quantity quantity);

/// "80GB", "80 GB", "1.5e3 MB" to base units. Units are spelled as the field does: B bytes and b
/// bits, K, M, G, T, P powers of 1000, Ki, Mi, Gi, Ti powers of 1024, us or µs. None when the text
/// is none of this quantity.
std::optional<double> parse_quantity(Quantity quantity, std::string_view text);

/// `value` in the largest unit that leaves at least 1 of it, as parse_quantity reads it: "450GB/s".
std::string quantity_text(Quantity quantity, double value);

/// How many powers of ten a value is larger or smaller than that of unit_example.
double distance_from_usual(Quantity quantity, double value);

/// What somebody who wrote `value`, which is out of [min, max], most likely meant: the value in the
/// unit that brings it there and nearest to the usual, such as "450GB/s" for 450 and for 450000.
/// Empty when no unit does.
std::string likely_meaning(Quantity quantity, double value, double min, double max);

/// A key that counts in another unit than this program's: its stem, and what it counts.
struct UnitSuffix {
  std::string_view stem;  ///< "latency" of "latency_us"
  std::string_view unit;  ///< "us"; empty for a base unit
  Quantity quantity = Quantity::count;
};
/// Splits "latency_us", "memory_GB", "bandwidth_gbps", "peak_tflops", and "gbps", whose stem is
/// empty; none without such an ending. The stem is a part of `key`.
std::optional<UnitSuffix> split_unit_suffix(std::string_view key);

}  // namespace moetune::spec
