// The words for what was measured; see judgement.h.
#include "tuner/judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "kernels/base/units.h"
#include "tuner/search_space.h"

namespace moetune::tuner {
namespace {

std::string share_text(const std::string& name) {
  static const std::map<std::string, std::string> kTexts = {
      {"recompute", "recomputation"},
      {"launch_starved", "waiting for the host's launches"},
      {"bubble", "pipeline bubble"},
      {"pipeline_bubble", "pipeline bubble"},
      {"transfer", "blocking data movement"},
      {"jitter", "waiting for late ranks"},
      {"blocking_step_end", "waiting for the slowest rank at the end"},
      {"dependency_stalled", "unexplained waiting"}};
  if (const auto known = kTexts.find(name); known != kTexts.end()) return known->second;
  constexpr std::string_view kBlocking = "blocking_";
  if (name.starts_with(kBlocking)) {
    return fmt::format("blocking {} communication", name.substr(kBlocking.size()));
  }
  return name;
}

}  // namespace

std::string describe_change(double gain_ratio, std::string_view link) {
  std::string text =
      gain_ratio >= 0
          ? fmt::format("{} faster", base::format_ratio(gain_ratio))
          : fmt::format("{} longer", base::format_ratio(1.0 / (1.0 + gain_ratio) - 1.0));
  if (!link.empty()) text += fmt::format(" {}", link);
  return text;
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
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", share_text(name),
                        base::format_ratio(ratio));
  }
  return text;
}

std::string describe(const spec::Knobs& knobs) {
  return fmt::format("{}, micro-batch {}, recompute {}", layout_text(knobs), knobs.micro_batch_size,
                     knobs.recompute);
}

}  // namespace moetune::tuner
