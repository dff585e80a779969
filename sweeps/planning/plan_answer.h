// The answer of moetune plan as data: what it prints and writes as JSON are two readings of this.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sweeps/planning/estimate.h"
#include "tuner/cost_model.h"
#include "tuner/planner/search.h"

namespace moetune::sweeps {

/// One difference between two configurations and what it buys.
struct KnobGain {
  std::string knob;
  std::string from;
  std::string to;
  /// Of the step's time, by this change alone, 0.1 being a tenth faster; none where the change
  /// alone is illegal.
  std::optional<double> gain;
  std::optional<double> bytes;  ///< that the worst rank needs more
  std::string broken_rule;      ///< of an illegal one
};

/// What somebody runs today.
struct Against {
  tuner::planner::PlanRun run;
  RunEstimate estimate;
  std::vector<KnobGain> changes;  ///< to the first plan
};

struct ThumbOpinion {
  std::string name;
  std::string says;
  bool agrees = false;
};

struct PlanResult {
  tuner::planner::PlanQuestion question;
  tuner::planner::PlanAnswer answer;
  std::vector<RunEstimate> estimates;  ///< of the best
  std::vector<ThumbOpinion> thumbs;    ///< on the first
  std::vector<KnobGain> helps;         ///< what one change of what was asked would buy
  std::optional<Against> against;
  std::vector<std::string> assumptions;
  /// The step of the first plan, played instruction by instruction, and how long that took.
  std::optional<tuner::CostEstimate> played;
  double play_seconds = 0;
  double seconds = 0;  ///< that the search took
};

/// Plays the step of the first plan.
void play_first(const Calibration& calibration, PlanResult& result);

/// Searches and judges; `against` may be empty.
PlanResult make_plan(const tuner::planner::PlanQuestion& question, const Calibration& calibration,
                     const std::optional<tuner::planner::PlanRun>& against);

/// Knobs that differ, as text, in the order of the table.
std::vector<KnobGain> differences(const spec::PlanKnobs& from, const spec::PlanKnobs& to);

nlohmann::json to_json(const PlanResult& result);
std::string to_text(const PlanResult& result);

}  // namespace moetune::sweeps
