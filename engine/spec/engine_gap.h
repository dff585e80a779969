// What of a planned run the engine does not run yet, each with the rule that says so.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/model_spec.h"
#include "engine/spec/plan_knobs.h"

namespace moetune::spec {

struct EngineGap {
  std::string_view rule;           ///< by which a trial with it is refused
  std::string what;                ///< "Gated DeltaNet", "FSDP"
  std::string_view stand_in{};     ///< what a played step has in its place, as a sentence
  bool is_in_played_step = false;  ///< its time is, whatever the engine lacks
};

/// Of the parts of a model: rule engine_runs_model.
std::vector<EngineGap> engine_gaps(const ModelSpec& model);
/// Of choices: rule engine_runs_knob.
std::vector<EngineGap> engine_gaps(const PlanKnobs& knobs);

}  // namespace moetune::spec
