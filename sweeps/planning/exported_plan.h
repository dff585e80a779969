// A plan as somebody's command or configuration.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "engine/spec/dialects/run_config.h"
#include "sweeps/planning/plan_answer.h"

namespace moetune::sweeps {

/// In whose words a plan is written, and for what.
struct PlanExport {
  spec::dialects::Dialect dialect;
  std::string machine;              ///< by name or path
  const nlohmann::json& model;      ///< its config.json
  bool is_model_asked_for = false;  ///< not that of the run of today
  /// The run of today. What it says beside its choices goes along, such as paths and learning
  /// rates.
  const std::optional<spec::dialects::RunConfig>& theirs;
};

/// The first plan of a result that has one.
std::string exported(const PlanExport& how, const PlanResult& result);

}  // namespace moetune::sweeps
