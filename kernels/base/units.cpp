#include "kernels/base/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <initializer_list>
#include <utility>

namespace moetune::base {
namespace {

// Three significant digits: 9.99, 99.9, 999.
std::string three_digits(double value) {
  const double magnitude = std::fabs(value);
  if (magnitude < 9.995) return fmt::format("{:.2f}", value);
  if (magnitude < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

template <size_t N>
std::string scaled(double value, double base, const std::array<const char*, N>& units) {
  size_t unit = 0;
  while (std::fabs(value) >= base && unit + 1 < N) {
    value /= base;
    ++unit;
  }
  if (unit == 0 && value == std::floor(value)) return fmt::format("{:.0f}{}", value, units[0]);
  return three_digits(value) + units[unit];
}

std::string scaled(double value, double factor, std::initializer_list<const char*> units) {
  const auto* unit = units.begin();
  while (std::fabs(value) >= factor && unit + 1 != units.end()) {
    value /= factor;
    ++unit;
  }
  return fmt::format("{:.5g}{}", value, *unit);
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  static constexpr std::array<const char*, 6> kUnits = {" B",   " KiB", " MiB",
                                                        " GiB", " TiB", " PiB"};
  return scaled(static_cast<double>(bytes), 1024.0, kUnits);
}

std::string format_ns(int64_t ns) {
  constexpr int64_t kMinute = 60'000'000'000;
  if (ns >= kMinute) {
    const int64_t seconds = ns / 1'000'000'000;
    return fmt::format("{} min {:02d} s", seconds / 60, seconds % 60);
  }
  static constexpr std::array<const char*, 4> kUnits = {" ns", " us", " ms", " s"};
  return scaled(static_cast<double>(ns), 1000.0, kUnits);
}

std::string format_flops_per_s(double flops_per_s) {
  static constexpr std::array<const char*, 6> kUnits = {" FLOP/s",  " kFLOP/s", " MFLOP/s",
                                                        " GFLOP/s", " TFLOP/s", " PFLOP/s"};
  return scaled(flops_per_s, 1000.0, kUnits);
}

std::string format_count(double count) {
  static constexpr std::array<const char*, 5> kUnits = {"", "k", "M", "G", "T"};
  return scaled(count, 1000.0, kUnits);
}

std::string format_ratio(double ratio) { return fmt::format("{:.1f} %", ratio * 100.0); }

std::string format_value(double value, std::string_view unit) {
  if (unit == "ns") return scaled(value, 1000, {" ns", " us", " ms", " s"});
  if (unit == "bytes") return scaled(value, 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
  if (unit == "ratio") return fmt::format("{:.5g} %", 100 * value);
  if (unit == "1/s") return format_count(value) + "/s";
  constexpr double kPlainFrom = 1e5;
  constexpr double kPlainTo = 1e15;
  const double size = std::fabs(value);
  const std::string number = size >= kPlainFrom && size < kPlainTo ? fmt::format("{:.0f}", value)
                                                                   : fmt::format("{:.5g}", value);
  return fmt::format("{}{}{}", number, unit.empty() ? "" : " ", unit);
}

std::string_view unit_of_name(std::string_view metric) {
  for (const auto& [end, unit] : std::initializer_list<std::pair<const char*, const char*>>{
           {"_ns", "ns"}, {"_bytes", "bytes"}, {"_seconds", "s"}}) {
    if (metric.ends_with(end)) return unit;
  }
  return "";
}

std::string short_commit(std::string_view id) {
  constexpr size_t kDigits = 12;
  if (id.ends_with('\n')) id.remove_suffix(1);
  const bool is_id = (id.size() == 40 || id.size() == 64) &&  // SHA-1 and SHA-256
                     id.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  return std::string(is_id ? id.substr(0, kDigits) : id);
}

}  // namespace moetune::base
