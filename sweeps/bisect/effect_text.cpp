// See effect_text.h.
#include "sweeps/bisect/effect_text.h"

#include <fmt/format.h>

#include <cmath>

#include "kernels/base/units.h"
#include "sweeps/bisect/metric_names.h"

namespace moetune::sweeps {
namespace {

/// "noise of one run 0.49 %; as many runs could have shown 0.97 %, with 20 more 0.60 %"
std::string noise_text(const tuner::EndsEffect& ends) {
  if (ends.noise_ratio <= 0) return "taken as the same in every run";
  return fmt::format(
      "noise of one run {:.2f} %; as many runs could have shown {:.2f} %, with {} more {:.2f} %",
      100 * ends.noise_ratio, 100 * ends.detectable_ratio, tuner::kMoreRuns,
      100 * ends.detectable_with_more_ratio);
}

}  // namespace

std::string count_text(size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string percent(double ratio) { return fmt::format("{:+.2f} %", 100 * ratio); }

std::string effect_text(const tuner::Effect& effect) {
  return fmt::format("{} ({} to {})", percent(effect.effect_ratio),
                     percent(effect.effect_low_ratio), percent(effect.effect_high_ratio));
}

std::string value_text(double value, const std::string& unit) {
  constexpr double kLargest = 9e18;
  if (std::abs(value) < kLargest && unit == "ns") return base::format_ns(std::llround(value));
  if (std::abs(value) < kLargest && unit == "bytes") return base::format_bytes(std::llround(value));
  return fmt::format("{:.6g}", value);
}

std::string unit_of(const std::string& metric) {
  const std::string name = stored_metric(metric);
  if (name.ends_with("_ns")) return "ns";
  return name.ends_with("_bytes") ? "bytes" : "";
}

std::string ends_line(const std::string& metric, const char* between,
                      const tuner::EndsEffect& ends) {
  if (!ends.is_known) return "";
  return fmt::format("  {}: {} between {} ({} to {}), {}\n", metric, percent(ends.effect_ratio),
                     between, percent(ends.effect_low_ratio), percent(ends.effect_high_ratio),
                     noise_text(ends));
}

std::string machine_text(bool has_drift, bool has_dropped_earlier) {
  std::string text;
  if (has_dropped_earlier) {
    text += "  earlier runs were not used: the machine is not what it was\n";
  }
  if (has_drift) {
    text +=
        "  the machine's speed changed meanwhile: runs were compared with those made around the "
        "same time\n";
  }
  return text;
}

nlohmann::json effect_json(const tuner::Effect& effect) {
  return {{"ratio", effect.effect_ratio},
          {"low", effect.effect_low_ratio},
          {"high", effect.effect_high_ratio}};
}

void add_ends(const tuner::EndsEffect& ends, nlohmann::json& document) {
  const auto known = [&](const nlohmann::json& value) {
    return ends.is_known ? value : nlohmann::json();
  };
  document["effect"] = known(effect_json(ends));
  document["noise_ratio"] = known(ends.noise_ratio);
  document["detectable_ratio"] = known(ends.detectable_ratio);
  document["detectable_with_more_ratio"] = known(ends.detectable_with_more_ratio);
  document["more_runs"] = tuner::kMoreRuns;
}

}  // namespace moetune::sweeps
