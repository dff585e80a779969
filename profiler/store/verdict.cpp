#include "profiler/store/verdict.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "profiler/store/untrusted_json.h"

namespace moetune::store {
namespace {

/// Of a verdict's evidence: the step of its trial and of its baseline, in runs of one length.
std::pair<std::optional<int64_t>, std::optional<int64_t>> screening_steps(
    const DecisionRow& decision) {
  // Anybody may have edited the database, and an older moetune has not said it.
  const auto evidence = parse_untrusted(decision.evidence_json);
  const auto step_of = [&](const char* place) -> std::optional<int64_t> {
    const nlohmann::json::json_pointer pointer(std::string("/screening/") + place + "/step_ns");
    if (!evidence.is_object() || !evidence.contains(pointer)) return std::nullopt;
    const nlohmann::json& ns = evidence.at(pointer);
    if (!ns.is_number() || !(ns.get<double>() > 0 && ns.get<double>() < 1e18)) return std::nullopt;
    return std::llround(ns.get<double>());
  };
  return {step_of("after"), step_of("before")};
}

/// Whether its evidence says so. Anybody may have edited the database.
bool has_flag(const DecisionRow& decision, const char* flag) {
  const auto evidence = parse_untrusted(decision.evidence_json);
  if (!evidence.is_object()) return false;
  const auto found = evidence.find(flag);
  return found != evidence.end() && *found == true;
}

}  // namespace

std::string Validation::reason() const {
  std::string sentence = text;
  while (sentence.ends_with('.') || sentence.ends_with(' ')) sentence.pop_back();
  return sentence;
}

Validation validation_of(const std::vector<DecisionRow>& decisions, const TrialRow& winner) {
  Validation validation;
  for (const DecisionRow& decision : decisions) {
    if (decision.phase != name_of(Phase::validate)) continue;
    // A long run is told with its own trial and, as the baseline, the short one that it was for.
    const bool is_of_winner =
        decision.trial_id == winner.id || decision.baseline_trial_id == winner.id;
    if (decision.kind == DecisionKind::kept && decision.trial_id == winner.id) {
      return {true, decision.text, has_flag(decision, "is_slower_in_long_run")};
    }
    if (decision.kind == DecisionKind::rejected && is_of_winner)
      validation = {false, decision.text, false};
    // Rejected as slow, and kept after all: the long run is the winner, and the short one is not
    // refused any more.
    if (decision.kind == DecisionKind::kept && is_of_winner) validation = {};
    const bool is_verdict = decision.gain_ratio.has_value();
    if (decision.kind == DecisionKind::note && is_of_winner && !is_verdict &&
        !validation.is_passed) {
      validation.text = decision.text;
    }
  }
  return validation;
}

std::set<int64_t> cleared_trials(const std::vector<DecisionRow>& decisions) {
  std::set<int64_t> ids;
  for (const DecisionRow& decision : decisions) {
    if (decision.kind != DecisionKind::note || !decision.trial_id) continue;
    if (has_flag(decision, "is_cleared")) ids.insert(*decision.trial_id);
  }
  return ids;
}

std::optional<Gain> gain_over_first_fit(const std::vector<DecisionRow>& decisions,
                                        const TrialRow& winner, const TrialRow& first_fit) {
  for (const DecisionRow& decision : decisions) {
    // What is kept or rejected there is a long run beside its own short ones.
    if (decision.trial_id == winner.id && decision.baseline_trial_id == first_fit.id &&
        decision.phase == name_of(Phase::validate) && decision.kind == DecisionKind::note &&
        decision.gain_ratio) {
      const auto [step_ns, first_fit_step_ns] = screening_steps(decision);
      return Gain{*decision.gain_ratio, decision.gain_low_ratio, decision.gain_high_ratio, step_ns,
                  first_fit_step_ns};
    }
  }
  if (winner.step_ns.value_or(0) <= 0 || !first_fit.step_ns) return std::nullopt;
  return Gain{static_cast<double>(*first_fit.step_ns) / static_cast<double>(*winner.step_ns) - 1,
              std::nullopt, std::nullopt, winner.step_ns, first_fit.step_ns};
}

}  // namespace moetune::store
