// The answer of moetune plan as data: what it prints and writes as JSON are two readings of this.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "kernels/base/step_parts.h"
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
  /// alone is illegal or has no price.
  std::optional<double> gain;
  std::optional<double> bytes;  ///< that the worst rank needs more
  std::string broken_rule{};    ///< of an illegal one
  bool is_priced = true;        ///< in time: false where neither formula nor figure is known
};

/// What somebody runs today.
struct Against {
  tuner::planner::PlanRun run;
  RunEstimate estimate;
  std::vector<KnobGain> changes;   ///< to the first plan
  std::vector<std::string> notes;  ///< what of the command was understood only in part
  spec::dialects::UnpricedSettings settings;
};

struct ThumbOpinion {
  std::string name;
  std::string says;
  bool agrees = false;
  /// How much slower the fastest plan known that keeps to it is; none where no such plan is known.
  std::optional<double> cost_ratio;
};

/// What would make something fit where nothing does.
struct WayOut {
  std::string what;
  double missing_bytes = 0;  ///< then, with the least of all; not above 0: it fits
};

/// A plan after the first, played without its records.
struct PlayedPlan {
  int64_t step_ns = 0;
  base::Wall wall = base::Wall::compute;
  double seconds = 0;  ///< that playing took
};

struct PlanResult {
  tuner::planner::PlanQuestion question;
  tuner::planner::PlanAnswer answer;
  std::vector<RunEstimate> estimates;  ///< of the best
  std::vector<ThumbOpinion> thumbs;    ///< on the first
  std::vector<KnobGain> helps;         ///< what one change of what was asked would buy, best first
  std::vector<WayOut> ways_out;        ///< where nothing fits, what is best first
  std::optional<Against> against;
  std::vector<std::string> assumptions;
  /// The step of the first plan, played instruction by instruction, and how long that took.
  std::optional<tuner::PlayedStep> played;
  base::Wall played_wall = base::Wall::compute;
  std::string not_played;                  ///< why a step that was asked for could not be played
  std::vector<std::string> not_in_played;  ///< of the first plan: what the engine has no word for
  double play_seconds = 0;
  std::vector<PlayedPlan> played_others;  ///< the next ones, in their order
  double seconds = 0;                     ///< that the search took
};

/// Plays the steps of the first three plans, that of the first with its records where
/// `has_records`. Throws base::Error where the engine cannot play one.
void play_best(const Calibration& calibration, bool has_records, PlanResult& result);

/// Searches and judges; `against` may be empty.
PlanResult make_plan(const tuner::planner::PlanQuestion& question, const Calibration& calibration,
                     const std::optional<tuner::planner::PlanRun>& against);

/// Knobs that differ, as text, in the order of the table; then the written layout of stages.
std::vector<KnobGain> differences(const tuner::planner::PlanRun& from,
                                  const tuner::planner::PlanRun& to);

/// "tp 2 cp 1 ..." and "recompute full, FSDP, ..., stages Et*3|...".
std::string layout_text(const spec::PlanKnobs& knobs);
std::string choices_text(const tuner::planner::PlanRun& run);
/// The part of the step in which another plan differs most from the best, and by how much.
std::string why_slower(const tuner::planner::StepTime& best, const tuner::planner::StepTime& other);
/// Of a configuration that does not fit; negative where it does.
double missing_bytes(const tuner::planner::PlanQuestion& question, double peak_bytes);

nlohmann::json to_json(const PlanResult& result);
std::string to_text(const PlanResult& result);

}  // namespace moetune::sweeps
