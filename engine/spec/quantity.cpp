// Units of quantities: one table for reading, writing, guessing and the schema.
#include "engine/spec/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace moetune::spec {

namespace {

/// One spelling of a unit. Within a quantity they stand from small to large; the first of a factor
/// is the one that is written.
struct UnitRow {
  Quantity quantity;
  std::string_view text;
  double factor;  ///< of the base unit
};
constexpr double kBit = 1.0 / 8;
constexpr double kKi = 1024;
constexpr UnitRow kUnits[] = {
    {Quantity::bytes, "B", 1},
    {Quantity::bytes, "KB", 1e3},
    {Quantity::bytes, "kB", 1e3},
    {Quantity::bytes, "KiB", kKi},
    {Quantity::bytes, "MB", 1e6},
    {Quantity::bytes, "MiB", kKi* kKi},
    {Quantity::bytes, "GB", 1e9},
    {Quantity::bytes, "GiB", kKi* kKi* kKi},
    {Quantity::bytes, "TB", 1e12},
    {Quantity::bytes, "TiB", kKi* kKi* kKi* kKi},
    {Quantity::bytes_per_s, "B/s", 1},
    {Quantity::bytes_per_s, "KB/s", 1e3},
    {Quantity::bytes_per_s, "Mbit/s", 1e6 * kBit},
    {Quantity::bytes_per_s, "Mb/s", 1e6 * kBit},
    {Quantity::bytes_per_s, "Mbps", 1e6 * kBit},
    {Quantity::bytes_per_s, "MB/s", 1e6},
    {Quantity::bytes_per_s, "MiB/s", kKi* kKi},
    {Quantity::bytes_per_s, "Gbit/s", 1e9 * kBit},
    {Quantity::bytes_per_s, "Gb/s", 1e9 * kBit},
    {Quantity::bytes_per_s, "Gbps", 1e9 * kBit},
    {Quantity::bytes_per_s, "GB/s", 1e9},
    {Quantity::bytes_per_s, "GBps", 1e9},
    {Quantity::bytes_per_s, "GiB/s", kKi* kKi* kKi},
    {Quantity::bytes_per_s, "Tb/s", 1e12 * kBit},
    {Quantity::bytes_per_s, "Tbps", 1e12 * kBit},
    {Quantity::bytes_per_s, "TB/s", 1e12},
    {Quantity::bytes_per_s, "TBps", 1e12},
    {Quantity::flops_per_s, "F", 1},
    {Quantity::flops_per_s, "KF", 1e3},
    {Quantity::flops_per_s, "MF", 1e6},
    {Quantity::flops_per_s, "GF", 1e9},
    {Quantity::flops_per_s, "GFLOPS", 1e9},
    {Quantity::flops_per_s, "GFLOP/s", 1e9},
    {Quantity::flops_per_s, "TF", 1e12},
    {Quantity::flops_per_s, "TFLOPS", 1e12},
    {Quantity::flops_per_s, "TFLOP/s", 1e12},
    {Quantity::flops_per_s, "PF", 1e15},
    {Quantity::flops_per_s, "PFLOPS", 1e15},
    {Quantity::flops_per_s, "PFLOP/s", 1e15},
    {Quantity::nanoseconds, "ns", 1},
    {Quantity::nanoseconds, "us", 1e3},
    {Quantity::nanoseconds, "µs", 1e3},
    {Quantity::nanoseconds, "ms", 1e6},
    {Quantity::nanoseconds, "s", 1e9},
    {Quantity::seconds, "ms", 1e-3},
    {Quantity::seconds, "s", 1},
    {Quantity::seconds, "min", 60},
    {Quantity::seconds, "h", 3600},
    {Quantity::watts, "W", 1},
    {Quantity::watts, "kW", 1e3},
};

struct QuantityRow {
  Quantity quantity;
  std::string_view unit;
  std::string_view example;
};
constexpr std::array kQuantities = {
    QuantityRow{Quantity::bytes, "bytes", "80GB"},
    QuantityRow{Quantity::bytes_per_s, "bytes/s", "450GB/s"},
    QuantityRow{Quantity::flops_per_s, "FLOP/s", "989TF"},
    QuantityRow{Quantity::nanoseconds, "ns", "25us"},
    QuantityRow{Quantity::seconds, "s", "10min"},
    QuantityRow{Quantity::watts, "W", "700W"},
    QuantityRow{Quantity::ratio, "ratio", ""},
    QuantityRow{Quantity::count, "", ""},
    QuantityRow{Quantity::text, "", ""},
};
static_assert(kQuantities.size() == static_cast<size_t>(Quantity::count_of_quantities));

/// How keys of other programs' files end, in small letters. Only bits and bytes a second are told
/// apart by a capital, and of rows that are as long the first counts.
constexpr UnitSuffix kSuffixes[] = {
    {"_bytes_per_s", "", Quantity::bytes_per_s},
    {"_mb_per_s", "MB/s", Quantity::bytes_per_s},
    {"_gb_per_s", "GB/s", Quantity::bytes_per_s},
    {"_tb_per_s", "TB/s", Quantity::bytes_per_s},
    {"_megabytes_per_s", "MB/s", Quantity::bytes_per_s},
    {"_gigabytes_per_s", "GB/s", Quantity::bytes_per_s},
    {"_terabytes_per_s", "TB/s", Quantity::bytes_per_s},
    {"_gigabits_per_s", "Gb/s", Quantity::bytes_per_s},
    {"_gb_s", "GB/s", Quantity::bytes_per_s},
    {"_tb_s", "TB/s", Quantity::bytes_per_s},
    {"_GBps", "GB/s", Quantity::bytes_per_s},
    {"_TBps", "TB/s", Quantity::bytes_per_s},
    {"_mbps", "Mb/s", Quantity::bytes_per_s},
    {"_gbps", "Gb/s", Quantity::bytes_per_s},
    {"_tbps", "Tb/s", Quantity::bytes_per_s},
    {"_tflops_per_s", "TF", Quantity::flops_per_s},
    {"_flops_per_s", "", Quantity::flops_per_s},
    {"_gflops", "GF", Quantity::flops_per_s},
    {"_tflops", "TF", Quantity::flops_per_s},
    {"_pflops", "PF", Quantity::flops_per_s},
    {"_flops", "", Quantity::flops_per_s},
    {"_bytes", "", Quantity::bytes},
    {"_mb", "MB", Quantity::bytes},
    {"_mib", "MiB", Quantity::bytes},
    {"_gb", "GB", Quantity::bytes},
    {"_gib", "GiB", Quantity::bytes},
    {"_ns", "", Quantity::nanoseconds},
    {"_us", "us", Quantity::nanoseconds},
    {"_usec", "us", Quantity::nanoseconds},
    {"_ms", "ms", Quantity::nanoseconds},
    {"_min", "min", Quantity::seconds},
    {"_minutes", "min", Quantity::seconds},
    {"_hours", "h", Quantity::seconds},
    {"_seconds", "s", Quantity::seconds},
    {"_s", "s", Quantity::seconds},
    {"_watts", "", Quantity::watts},
    {"_w", "", Quantity::watts},
    {"_kw", "kW", Quantity::watts},
};

const QuantityRow& row_of(Quantity quantity) { return kQuantities[static_cast<size_t>(quantity)]; }

enum class Steps : uint8_t { of_1000, of_1024 };

/// The largest unit with these steps that leaves at least 1 of the value. Bits and second spellings
/// are for reading only.
const UnitRow* unit_of(Quantity quantity, double value, Steps steps) {
  const UnitRow* best = nullptr;
  for (const UnitRow& row : kUnits) {
    if (row.quantity != quantity) continue;
    const bool is_1024 = row.text.find("iB") != std::string_view::npos;
    const bool counts = is_1024 == (steps == Steps::of_1024) && row.factor >= 1 &&
                        row.text.find('b') == std::string_view::npos;
    if (best == nullptr || (counts && row.factor > best->factor && value >= row.factor)) {
      best = &row;
    }
  }
  return best;
}

std::string text_with(const UnitRow* unit, double value) {
  return unit == nullptr ? fmt::format("{:g}", value)
                         : fmt::format("{:.4g}{}", value / unit->factor, unit->text);
}

}  // namespace

std::string_view unit_name(Quantity quantity) { return row_of(quantity).unit; }

std::string_view unit_example(Quantity quantity) { return row_of(quantity).example; }

std::string unit_pattern(Quantity quantity) {
  std::string units;
  for (const UnitRow& row : kUnits) {
    if (row.quantity != quantity) continue;
    units += (units.empty() ? "" : "|") + std::string(row.text);
  }
  return units.empty()
             ? ""
             : fmt::format("^([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)? ?({})$", units);
}

std::optional<double> parse_quantity(Quantity quantity, std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) return std::nullopt;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const UnitRow& row : kUnits) {
    if (row.quantity == quantity && row.text == unit) return number * row.factor;
  }
  return std::nullopt;
}

std::string quantity_text(Quantity quantity, double value) {
  return text_with(unit_of(quantity, value, Steps::of_1000), value);
}

double distance_from_usual(Quantity quantity, double value) {
  const double usual = parse_quantity(quantity, unit_example(quantity)).value_or(1);
  return std::abs(std::log10(value / usual));
}

std::string likely_meaning(Quantity quantity, double value, double min, double max) {
  if (!(value > 0) || (value >= min && value <= max)) return {};
  // Tools count memory in MiB: nobody who writes 81920 means 81.92 GB.
  const bool is_1024 = quantity == Quantity::bytes && value < min && std::fmod(value, kKi) == 0;
  const double step = is_1024 ? kKi : 1e3;
  constexpr int kMostSteps = 4;  // from bytes to TB
  std::optional<double> best;
  double factor = 1;
  for (int i = 0; i < kMostSteps; ++i) {
    factor *= step;
    const double meant = value < min ? value * factor : value / factor;
    if (meant < min || meant > max) continue;
    if (!best || distance_from_usual(quantity, meant) < distance_from_usual(quantity, *best)) {
      best = meant;
    }
  }
  if (!best) return {};
  const Steps steps = is_1024 ? Steps::of_1024 : Steps::of_1000;
  return text_with(unit_of(quantity, *best, steps), *best);
}

std::optional<UnitSuffix> split_unit_suffix(std::string_view key) {
  std::string lower(key);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  // A unit alone has no stem: "gbps".
  const auto ends = [](std::string_view text, std::string_view ending) {
    return (text.size() > ending.size() && text.ends_with(ending)) || text == ending.substr(1);
  };
  const UnitSuffix* longest = nullptr;
  for (const UnitSuffix& row : kSuffixes) {
    if (!ends(key, row.stem) && !ends(lower, row.stem)) continue;
    if (longest == nullptr || row.stem.size() > longest->stem.size()) longest = &row;
  }
  if (longest == nullptr) return std::nullopt;
  const size_t stem_size = key.size() - std::min(key.size(), longest->stem.size());
  return UnitSuffix{key.substr(0, stem_size), longest->unit, longest->quantity};
}

}  // namespace moetune::spec
