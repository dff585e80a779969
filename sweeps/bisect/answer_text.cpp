#include "sweeps/bisect/answer_text.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "sweeps/bisect/effect_text.h"
#include "sweeps/bisect/text.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;

constexpr size_t kWhole = std::numeric_limits<size_t>::max() / 2;  ///< bytes: nothing is cut

/// "noise of one run 0.49 %; these runs show changes from 0.97 % on, 20 more runs from 0.60 % on"
std::string noise_text(const tuner::EndsEffect& ends) {
  if (ends.noise_ratio <= 0) return "counts as exact: no noise";
  return fmt::format(
      "noise of one run {:.2f} %; these runs show changes from {:.2f} % on, {} more runs from "
      "{:.2f} % on",
      100 * ends.noise_ratio, 100 * ends.detectable_ratio, tuner::kMoreRuns,
      100 * ends.detectable_with_more_ratio);
}

}  // namespace

json answer_json(const AnyHuntAnswer& answer, const tuner::HuntOutcome& outcome,
                 const AnswerLimits& limits) {
  const auto known = [&](const json& value) { return outcome.is_known ? value : json(); };
  return {{"verdict", tuner::name_of(outcome.verdict)},
          {"reason", outcome.reason},
          {"is_swapped", outcome.is_swapped},
          {"is_interrupted", answer.is_interrupted},
          {"metric", answer.metric},
          {"hunted_metric", answer.hunted_metric},
          {"note", answer.note},
          {"failure", answer.failure},
          {"unit", answer.unit},
          {"confidence", limits.confidence},
          {"min_effect_ratio", limits.min_effect_ratio},
          {"no_change", outcome.no_change ? json(*outcome.no_change) : json()},
          {"effect", known(effect_json(outcome))},
          {"noise_ratio", known(outcome.noise_ratio)},
          {"detectable_ratio", known(outcome.detectable_ratio)},
          {"detectable_with_more_ratio", known(outcome.detectable_with_more_ratio)},
          {"more_runs", tuner::kMoreRuns},
          {"has_drift", outcome.has_drift},
          {"has_dropped_earlier", answer.has_dropped_earlier},
          {"runs", answer.num_runs},
          {"builds", answer.num_builds},
          {"seconds", answer.seconds}};
}

void add_levels(const AnyHuntAnswer& answer, const tuner::Effect& effect, double before,
                double after, json& culprit) {
  const bool has_level = answer.failure.empty();
  culprit["effect"] = has_level ? effect_json(effect) : json();
  culprit["before"] = has_level ? json(before) : json();
  culprit["after"] = has_level ? json(after) : json();
}

std::string opening_text(const AnyHuntAnswer& answer, const tuner::HuntOutcome& outcome,
                         const char* between) {
  std::string text = fmt::format("verdict: {}\n", tuner::name_of(outcome.verdict));
  if (!outcome.reason.empty()) text += fmt::format("  {}\n", outcome.reason);
  if (answer.failure.empty() && outcome.is_known) {
    text += fmt::format("  {}: {} between {} ({} to {}), {}\n", answer.metric,
                        percent(outcome.effect_ratio), between, percent(outcome.effect_low_ratio),
                        percent(outcome.effect_high_ratio), noise_text(outcome));
  }
  if (!answer.note.empty()) text += fmt::format("  {}\n", plain_text(answer.note, kWhole));
  if (answer.has_dropped_earlier) {
    text += "  earlier runs were not used: the machine is not what it was\n";
  }
  if (outcome.has_drift) {
    text +=
        "  the machine's speed changed during the hunt: runs were compared with those made around "
        "the same time\n";
  }
  return text;
}

std::string failures_text(const tuner::HuntOutcome& outcome, bool has_failures) {
  const bool is_open = outcome.verdict == tuner::HuntVerdict::unresolved;
  return is_open && has_failures
             ? "stored failures are not repeated; --fresh measures everything again\n"
             : "";
}

}  // namespace moetune::sweeps
