// What a change of a run buys, alone or as a step, in words and as JSON.
#include "sweeps/planning/change_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "kernels/base/units.h"
#include "sweeps/table.h"
#include "tuner/planner/memory_profile.h"

namespace moetune::sweeps {

namespace planner = tuner::planner;
using nlohmann::json;

namespace {

constexpr const char* kTokensPerGpu = "tokens_per_s_per_gpu";

/// Of a change that leaves a run too large.
std::string_view unfit_text(std::optional<Verdict> verdict) {
  if (verdict == Verdict::oom) return ", does not fit alone";
  return verdict == Verdict::tight ? ", tight alone" : "";
}

/// " (2412 tokens/s, 1974 to 2947, calibrated)".
std::string speed_of(const KnobGain& change) {
  if (!change.speed) return "";
  const Interval& tokens = change.speed->tokens_per_s;
  return fmt::format(" ({:.0f} tokens/s, {:.0f} to {:.0f}, {})", tokens.value, tokens.low,
                     tokens.high, change.speed->grade);
}

}  // namespace

void put_speed(const Speed& speed, json& entry) {
  put(entry, kTokensPerGpu, speed.tokens_per_s);
  entry["grade"] = speed.grade;
}

std::string range_text(const Interval& interval) {
  return fmt::format("{:.0f}, {:.0f}", interval.low, interval.high);
}

json change_json(const KnobGain& change) {
  json entry = {{"knob", change.knob}, {"from", change.from}, {"to", change.to}};
  entry["gain_ratio"] = change.gain ? json(*change.gain) : json(nullptr);
  if (change.speed) {
    put_speed(*change.speed, entry);
  } else {
    for (const char* end : {"", "_low", "_high"}) entry[std::string(kTokensPerGpu) + end] = nullptr;
    entry["grade"] = nullptr;
  }
  entry["more_bytes"] = change.bytes ? json(std::llround(*change.bytes)) : json(nullptr);
  entry["is_priced"] = change.is_priced;
  entry["verdict"] = change.verdict ? json(name_of(*change.verdict)) : json(nullptr);
  entry["broken_rule"] = change.broken_rule.empty() ? json(nullptr) : json(change.broken_rule);
  entry["broken_rule_text"] = change.rule_text.empty() ? json(nullptr) : json(change.rule_text);
  entry["flags"] = change.flags;
  return entry;
}

json step_json(const PathStep& step, double capacity_bytes) {
  json changes = json::array();
  for (const KnobGain& change : step.changes) {
    changes.push_back({{"knob", change.knob}, {"from", change.from}, {"to", change.to}});
  }
  json entry = {
      {"changes", std::move(changes)},
      {"flags", step.flags},
      {"speed_ratio", step.speed_ratio},
      {"cumulative_speed_ratio", step.cumulative_ratio},
      {"is_priced", step.is_priced},
      {"peak_allocated_bytes", std::llround(step.allocated_bytes)},
      {"missing_bytes", std::llround(planner::device_bytes(step.peak_bytes) - capacity_bytes)},
      {"verdict", name_of(step.verdict)}};
  put_speed(step.speed, entry);
  return entry;
}

std::string step_change_text(const PathStep& step) {
  if (!step.flags.empty()) return fmt::format("{}", fmt::join(step.flags, " "));
  std::vector<std::string> changes;
  for (const KnobGain& change : step.changes) {
    changes.push_back(fmt::format("{} {} -> {}", change.knob, change.from, change.to));
  }
  return fmt::format("{}", fmt::join(changes, ", "));
}

std::string gain_text(const KnobGain& change) {
  if (!change.broken_rule.empty()) {
    return fmt::format("not alone: {}: {}", change.broken_rule, change.rule_text);
  }
  return fmt::format(
      "{}, {}{}{}",
      change.gain ? fmt::format("{:+.1f} % speed{}", 100 * *change.gain, speed_of(change))
                  : "speed not priced",
      *change.bytes < 0 ? "-" : "+", base::format_bytes(std::llround(std::abs(*change.bytes))),
      unfit_text(change.verdict));
}

void add_change(const KnobGain& change, std::string& text) {
  text +=
      fmt::format("  {} {} -> {}: {}\n", change.knob, change.from, change.to, gain_text(change));
  if (!change.flags.empty()) text += fmt::format("      {}\n", fmt::join(change.flags, " "));
}

std::string path_text(const std::vector<PathStep>& path) {
  using Align = TextTable::Align;
  TextTable table({{"step", Align::right},
                   {"speed", Align::right},
                   {"so far", Align::right},
                   {"tokens/s", Align::right},
                   {"from, to"},
                   {"grade"},
                   {"peak", Align::right},
                   {""},
                   {"change"}});
  for (size_t i = 0; i < path.size(); ++i) {
    const PathStep& step = path[i];
    table.add({std::to_string(i + 1),
               step.gain() ? fmt::format("{:+.1f} %", 100 * *step.gain()) : "not priced",
               fmt::format("{:.2f} x", step.cumulative_ratio),
               fmt::format("{:.0f}", step.speed.tokens_per_s.value),
               range_text(step.speed.tokens_per_s), step.speed.grade,
               base::format_bytes(std::llround(step.allocated_bytes)), name_of(step.verdict),
               step_change_text(step)});
  }
  return table.text(std::nullopt);
}

}  // namespace moetune::sweeps
