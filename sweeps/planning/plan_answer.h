// The answer of moetune plan as data. Text and JSON are made from it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "engine/spec/engine_gap.h"
#include "kernels/base/step_parts.h"
#include "sweeps/planning/change_path.h"
#include "sweeps/planning/estimate.h"
#include "sweeps/planning/like_runs.h"
#include "tuner/cost_model.h"
#include "tuner/planner/search.h"

namespace moetune::sweeps {

/// The run of today, for --against.
struct Against {
  tuner::planner::PlanRun run;
  RunEstimate estimate;
  /// Differences from it to the first plan: those behind which it fits first, the best in front.
  /// If it does not fit as it is and no change alone helps, that with the least memory in front.
  std::vector<KnobGain> changes;
  /// The same step by step, see change_path; none to a plan for another engine.
  std::vector<PathStep> path;
  double missing_bytes = 0;  ///< memory that a device lacks for it; negative: it fits
  /// Parts of the command that were only partly understood, and whether the plan is for another
  /// engine.
  std::vector<std::string> notes;
  spec::dialects::UnpricedSettings settings;
};

/// What a rule of thumb says about the first plan.
struct ThumbOpinion {
  std::string name;
  std::string says;
  bool agrees = false;
  /// How much slower the fastest known plan is that follows the rule; empty if none is known.
  std::optional<double> cost_ratio;
};

/// A change that would help if nothing fits.
struct WayOut {
  std::string what;
  double missing_bytes = 0;  ///< memory that is still missing after it, at least; <= 0: it fits
  bool is_tight = false;     ///< it fits as predicted, and is not sure to: torchtitan's may not
};

/// The first plan with another global batch.
struct BatchSpeed {
  int64_t global_batch_size = 0;  ///< sequences
  Interval seconds;               ///< of a step
  Speed speed;
};

/// A plan after the first, played without its records.
struct PlayedPlan {
  int64_t step_ns = 0;
  base::Wall wall = base::Wall::compute;
  double seconds = 0;  ///< time that playing took
};

struct PlanResult {
  tuner::planner::PlanQuestion question;
  tuner::planner::PlanAnswer answer;
  std::vector<RunEstimate> estimates;  ///< one for each of PlanAnswer::best
  std::vector<ThumbOpinion> thumbs;    ///< about the first plan
  std::vector<KnobGain> helps;         ///< gains by one change of the question, best first
  std::vector<WayOut> ways_out;        ///< if nothing fits: best first
  std::optional<Against> against;
  std::optional<LikeRuns> published;  ///< of --published
  std::vector<BatchSpeed> batches;    ///< see look_at_batches; by size
  std::vector<std::string> assumptions;
  /// The step of the first plan, played instruction by instruction.
  std::optional<tuner::PlayedStep> played;
  base::Wall played_wall = base::Wall::compute;
  std::string not_played;                  ///< why a requested step could not be played
  std::vector<std::string> not_in_played;  ///< choices of the first plan that the engine lacks
  double play_seconds = 0;                 ///< time that playing the first plan took
  std::vector<PlayedPlan> played_others;   ///< the next plans, in their order
  double seconds = 0;                      ///< time that the search took
};

/// Plays the steps of the first three plans. With `has_records`, keeps the records of the first.
/// Throws base::Error if the engine cannot play one.
void play_best(const Calibration& calibration, bool has_records, PlanResult& result);

/// Searches and judges; `against` may be empty. Its routing is that of the question. `words`: the
/// same run as its framework has it, for what changes there; may be null.
PlanResult make_plan(const tuner::planner::PlanQuestion& question, const Calibration& calibration,
                     const std::optional<tuner::planner::PlanRun>& against,
                     const spec::dialects::RunConfig* words = nullptr);

/// For a question whose global batch nobody gave: prices the first plan's layout, and nothing else,
/// with 1, 2, 4, 8 and 16 million tokens, rounded to what its replicas share evenly, and with the
/// batch that is planned for. Batches with which it does not fit are left out.
void look_at_batches(const Calibration& calibration, PlanResult& result);
/// The smallest of PlanResult::batches that is at most 2 % slower than the fastest; 0: there are
/// none.
int64_t smallest_good_batch(const PlanResult& result);

/// "tp 2 cp 1 ..." and "recompute full, FSDP, ..., stages Et*3|...".
std::string layout_text(const spec::PlanKnobs& knobs);
std::string choices_text(const tuner::planner::PlanRun& run);
/// The part of the step in which another plan differs most from the best, and by how much.
std::string why_slower(const tuner::planner::StepTime& best, const tuner::planner::StepTime& other);
/// Tokens a second and GPU of the first plan over those of the run of today: steps may differ. Both
/// are predicted, as what single changes buy is, also where a run was measured.
double speed_ratio(const Against& theirs, const PlanResult& result);
/// What the order of the changes to the first plan follows, as a sentence.
std::string_view order_text(const Against& theirs);
/// Memory of a device that may be used.
double capacity_of(const tuner::planner::PlanQuestion& question);
/// Memory that a device lacks for a configuration with this peak, graph pools and buffers of the
/// dispatcher included; negative if it fits.
double missing_bytes(const tuner::planner::PlanQuestion& question, double peak_bytes);
/// What PyTorch has allocated of that peak: what is told as the peak of a configuration.
double allocated_bytes(const tuner::planner::PlanQuestion& question,
                       const tuner::planner::PlannedConfig& config);

/// What of a run moetune's own engine does not run yet, with the rules that say so.
std::vector<spec::EngineGap> gaps_of_run(const tuner::planner::PlanRun& run);
/// Of the first plan, for people; empty where there is nothing to tell.
std::string engine_gaps_text(const PlanResult& result);

nlohmann::json to_json(const PlanResult& result);
/// `width`: of the terminal, empty where it is none.
std::string to_text(const PlanResult& result, std::optional<size_t> width);

}  // namespace moetune::sweeps
