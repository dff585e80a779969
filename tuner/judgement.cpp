// The sentences' parts: how much faster, between which bounds, with which shares of the step.
#include "tuner/judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/base/step_parts.h"
#include "kernels/base/units.h"
#include "tuner/search_space.h"

namespace moetune::tuner {
std::string describe_change(double gain_ratio, std::string_view link) {
  std::string text = gain_ratio >= 0 ? fmt::format("{} faster", base::format_ratio(gain_ratio))
                                     : fmt::format("{} slower", base::format_ratio(-gain_ratio));
  if (!link.empty()) text += fmt::format(" {}", link);
  return text;
}

size_t num_steps_at_end(size_t num_steps) {
  constexpr size_t kLeastSteps = 2;
  constexpr size_t kMostSteps = 10;
  return std::min(std::clamp(num_steps / 4, kLeastSteps, kMostSteps), num_steps);
}

double loss_at_end(const std::vector<double>& losses) {
  const size_t count = num_steps_at_end(losses.size());
  if (count == 0) return 0;
  return std::accumulate(losses.end() - static_cast<int64_t>(count), losses.end(), 0.0) /
         static_cast<double>(count);
}

std::string interval_text(double low_ratio, double high_ratio) {
  return fmt::format("({:+.1f} to {:+.1f} %)", 100 * low_ratio, 100 * high_ratio);
}

nlohmann::json evidence_of(const TrialOutcome& outcome) {
  nlohmann::json evidence = {{"status", spec::name_of(outcome.status)},
                             {"peak_bytes", outcome.peak_bytes}};
  if (outcome.step_ns > 0) {
    evidence.update({{"step_ns", outcome.step_ns},
                     {"step_low_ns", outcome.step_low_ns},
                     {"step_high_ns", outcome.step_high_ns},
                     {"num_timed_steps", outcome.num_timed_steps}});
  }
  return evidence;
}

std::string describe_shares(const TrialOutcome& outcome) {
  std::vector<std::pair<std::string, double>> shares(outcome.shares.begin(), outcome.shares.end());
  std::stable_sort(shares.begin(), shares.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [name, ratio] : shares) {
    if (ratio < 0.01) continue;
    const auto part = base::part_from_name(name);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", part ? base::text_of(*part) : name,
                        base::format_ratio(ratio));
  }
  return text;
}

std::string schedule_text(const spec::Knobs& knobs, const spec::Knobs& from,
                          const std::vector<std::string_view>& names) {
  std::string text;
  for (const std::string_view name : names) {
    const spec::KnobRow& row = *spec::find_knob(name);
    const std::string value = spec::get_knob(knobs, row);
    if (value != spec::get_knob(from, row)) text += fmt::format(", {} {}", name, value);
  }
  return text;
}

std::string describe(const spec::Knobs& knobs) {
  return fmt::format("{}, micro-batch {}, recompute {}", layout_text(knobs), knobs.micro_batch_size,
                     knobs.recompute.text());
}

}  // namespace moetune::tuner
