#include "profiler/store/verdict.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace moetune::store {

std::string Validation::reason() const {
  std::string sentence = text;
  while (sentence.ends_with('.') || sentence.ends_with(' ')) sentence.pop_back();
  return sentence;
}

Validation validation_of(const std::vector<DecisionRow>& decisions, const TrialRow& winner) {
  Validation validation;
  for (const DecisionRow& decision : decisions) {
    if (decision.phase != "validate") continue;
    // A long run is told with its own trial and, as the baseline, the short one that it was for.
    const bool is_of_winner =
        decision.trial_id == winner.id || decision.baseline_trial_id == winner.id;
    if (decision.kind == "kept" && decision.trial_id == winner.id) {
      return {true, decision.text};
    }
    if (decision.kind == "rejected" && is_of_winner) validation = {false, decision.text};
    const bool is_verdict = decision.gain_ratio.has_value();
    if (decision.kind == "note" && is_of_winner && !is_verdict && !validation.is_passed) {
      validation.text = decision.text;
    }
  }
  return validation;
}

std::set<int64_t> cleared_trials(const std::vector<DecisionRow>& decisions) {
  std::set<int64_t> ids;
  for (const DecisionRow& decision : decisions) {
    if (decision.kind != "note" || !decision.trial_id) continue;
    // Anybody may have edited the database.
    const auto evidence = nlohmann::json::parse(decision.evidence_json, nullptr, false);
    if (!evidence.is_object()) continue;
    const auto found = evidence.find("is_cleared");
    if (found != evidence.end() && *found == true) ids.insert(*decision.trial_id);
  }
  return ids;
}

}  // namespace moetune::store
