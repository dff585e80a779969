// The common part of the answers of hunts through commits and through configurations, as JSON and
// as text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "sweeps/bisect/vocabulary.h"
#include "tuner/bisect/vocabulary.h"

namespace moetune::sweeps {

struct AnswerLimits {
  double confidence = 0.0;
  double min_effect_ratio = 0.0;
};

/// The answer as an object, without its culprits.
nlohmann::json answer_json(const AnyHuntAnswer& answer, const tuner::HuntOutcome& outcome,
                           const AnswerLimits& limits);

/// Adds "effect", "before" and "after" to a culprit's object. They are null if the regression is
/// that runs fail, which has no level.
void add_levels(const AnyHuntAnswer& answer, const tuner::Effect& effect, double before,
                double after, nlohmann::json& culprit);

/// The first lines: verdict, reason, how the ends differ, how it was found, what the machine did.
/// `between`: what the ends are called, such as "the ends".
std::string opening_text(const AnyHuntAnswer& answer, const tuner::HuntOutcome& outcome,
                         const char* between);

/// What to do about failures that were kept; empty where there is nothing to do.
std::string failures_text(const tuner::HuntOutcome& outcome, bool has_failures);

}  // namespace moetune::sweeps
