// A way may lead past the plan that was searched: choices of a command are more than a search
// tries.
#include "sweeps/planning/set_against.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tuner/planner/memory_profile.h"
#include "tuner/planner/priced_choices.h"
#include "tuner/planner/rules.h"

namespace moetune::sweeps {

namespace planner = tuner::planner;
using planner::PlannedConfig;
using planner::PlanQuestion;
using planner::PlanRun;

namespace {

/// The run as a plan of the question; none where it is no answer to it, or does not fit.
std::optional<PlannedConfig> plan_of(const PlanRun& run, const PlanQuestion& question,
                                     const Calibration& calibration) {
  if (run.global_batch_size != question.global_batch_size ||
      run.seq_length != question.seq_length || run.is_of_megatron != question.is_of_megatron ||
      (question.keeps != nullptr && !question.keeps(run.knobs))) {
    return std::nullopt;
  }
  PlannedConfig config = {run.knobs, 0, 0, run.stages};
  const PlanRun planned = run_with(question, config);
  if (planner::broken_rule(planned) != nullptr) return std::nullopt;
  config.peak_bytes = planner::predict_memory(planned).peak_bytes();
  if (missing_bytes(question, config.peak_bytes) > 0) return std::nullopt;
  config.seconds = planner::predict_step(planned, calibration.rates).seconds;
  return config;
}

/// The run with the question's values of knobs that no price of a step tells apart and that are not
/// searched: what a command leaves off costs speed all the same.
PlanRun with_free_switches(const PlanRun& run, const PlanQuestion& question) {
  constexpr std::array<std::string_view, 3> kSearched = {
      "cross_entropy", "precision_aware_optimizer", "delay_wgrad_compute"};
  PlanRun switched = run;
  for (const spec::PlanKnobRow& row : spec::plan_knob_table()) {
    const bool is_searched = std::ranges::find(kSearched, row.name) != kSearched.end();
    if (is_searched || planner::has_price_in_time(row.name)) continue;
    spec::set_plan_knob(switched.knobs, row, get_plan_knob(question.base, row));
  }
  return switched;
}

/// The run as a plan of the question, with all that costs no time and still fits.
std::optional<PlannedConfig> switched_plan_of(const PlanRun& run, const PlanQuestion& question,
                                              const Calibration& calibration) {
  const PlanRun switched = with_free_switches(run, question);
  PlanRun fused = switched;
  fused.knobs.cross_entropy = spec::CrossEntropy::native;
  std::optional<PlannedConfig> config = plan_of(fused, question, calibration);
  if (!config) config = plan_of(switched, question, calibration);
  if (!config) config = plan_of(run, question, calibration);
  return config;
}

/// The fastest of these runs that is faster than the first plan by more than rounding.
std::optional<PlannedConfig> faster_plan(const std::vector<const PlanRun*>& runs,
                                         const PlanQuestion& question,
                                         const Calibration& calibration,
                                         const PlannedConfig& first) {
  constexpr double kFaster = 1 - 1e-9;
  std::optional<PlannedConfig> fastest;
  for (const PlanRun* run : runs) {
    std::optional<PlannedConfig> config = switched_plan_of(*run, question, calibration);
    const double bound = fastest ? fastest->seconds : kFaster * first.seconds;
    if (config && config->seconds < bound) fastest = std::move(config);
  }
  return fastest;
}

/// Puts a plan that is faster than all others in front of them.
void lead_with(const PlannedConfig& plan, const PlanQuestion& question,
               planner::PlanAnswer& answer) {
  std::erase_if(answer.best, [&](const PlannedConfig& other) {
    return planner::is_same_choice(other.knobs, plan.knobs);
  });
  answer.best.insert(answer.best.begin(), plan);
  answer.best.resize(std::min(answer.best.size(), static_cast<size_t>(question.num_best)));
  for (planner::PlanCell& cell : answer.cells) {
    const spec::PlanKnobs& k = plan.knobs;
    if (cell.tp != k.tp || cell.cp != k.cp || cell.ep != k.ep || cell.pp != k.pp) continue;
    cell.fastest = plan;
  }
  // The front goes by memory, and has nothing faster now with as much.
  if (!question.wants_space) return;
  std::erase_if(answer.front, [&](const PlannedConfig& other) {
    return other.peak_bytes >= plan.peak_bytes && other.seconds >= plan.seconds;
  });
  const auto place =
      std::ranges::upper_bound(answer.front, plan.peak_bytes, {}, &PlannedConfig::peak_bytes);
  answer.front.insert(place, plan);
}

}  // namespace

EstimateContext context_of(const PlanQuestion& question) {
  EstimateContext context;
  context.is_load_stated = true;
  context.memory_ratio = question.memory_ratio;
  return context;
}

Against set_against(const PlanQuestion& question, const Calibration& calibration,
                    const PlanRun& today, const spec::dialects::RunConfig* words,
                    planner::PlanAnswer& answer) {
  Against theirs;
  theirs.run = today;
  theirs.run.load = question.load;
  // A command of Megatron without a layout has the stages that Megatron makes. Plans for
  // torchtitan have no stages by hand, and today's run is priced as they are.
  if (today.is_of_megatron && today.stages.empty() && today.knobs.pp > 1 &&
      planner::splits_by_itself(today)) {
    theirs.run.stages = planner::unwritten_stages(today);
  }
  const EstimateContext context = context_of(question);
  theirs.estimate = estimate_run(theirs.run, calibration, context);
  theirs.missing_bytes = missing_bytes(question, theirs.estimate.memory.peak_bytes());
  if (answer.best.empty()) return theirs;
  // No command leads from one engine to another: what runs on the way, and how fast, is neither's.
  const bool has_way = question.is_of_megatron == theirs.run.is_of_megatron;
  std::optional<PlannedConfig> faster;
  do {
    if (faster) lead_with(*faster, question, answer);
    const PlanRun ours = run_with(question, answer.best.front());
    theirs.changes = differences(theirs.run, ours);
    const ChangeEnds ends = {theirs.run, ours, capacity_of(question), calibration,
                             has_way ? words : nullptr};
    judge_changes(ends, theirs.changes);
    if (!has_way) break;
    theirs.path = change_path(ends, theirs.changes, theirs.estimate.predicted_tokens_per_s,
                              estimate_run(ours, calibration, context).predicted_tokens_per_s);
    std::vector<const PlanRun*> runs = {&theirs.run};
    for (const PathStep& step : theirs.path) {
      if (step.is_within) runs.push_back(&step.run);
    }
    faster = faster_plan(runs, question, calibration, answer.best.front());
  } while (faster);
  if (!has_way) {
    theirs.notes.emplace_back(
        "the plan is for another engine than yours: its speed is of both engine and choices, "
        "there are no steps to it, and each change is tried on yours");
  }
  return theirs;
}

}  // namespace moetune::sweeps
