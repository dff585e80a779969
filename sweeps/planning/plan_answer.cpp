// Search, then what people ask of its answer: why this one, what the others lack, what would help.
#include "sweeps/planning/plan_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "kernels/base/units.h"
#include "tuner/planner/played_plan.h"
#include "tuner/planner/rules.h"

namespace moetune::sweeps {

namespace planner = tuner::planner;
using planner::PlanQuestion;
using planner::PlanRun;

namespace {

PlanRun run_with(const PlanQuestion& question, const spec::PlanKnobs& knobs) {
  PlanRun run;
  run.model = question.model;
  run.hardware = question.hardware;
  run.knobs = knobs;
  run.global_batch_size = question.global_batch_size;
  run.seq_length = question.seq_length;
  run.load = question.load;
  return run;
}

/// Fills in what each change alone does to `run`.
void judge_changes(const PlanRun& run, const Calibration& calibration,
                   std::vector<KnobGain>& changes) {
  const double seconds = planner::predict_step(run, calibration.rates).seconds;
  const double bytes = planner::predict_memory(run).peak_bytes();
  for (KnobGain& change : changes) {
    const spec::PlanKnobRow* row = spec::find_plan_knob(change.knob);
    PlanRun changed = run;
    spec::set_plan_knob(changed.knobs, *row, change.to);
    // A size takes its devices from the replicas.
    const int64_t plane = int64_t{changed.knobs.tp} * changed.knobs.cp * changed.knobs.pp;
    const int64_t devices = run.hardware->num_devices();
    if (devices % plane == 0) changed.knobs.dp = static_cast<int32_t>(devices / plane);
    // A written layout holds for its own number of stages only.
    if (changed.knobs.pp != run.knobs.pp || changed.knobs.vpp != run.knobs.vpp) {
      changed.stages.clear();
    }
    const planner::PlanRule* broken = planner::broken_rule(changed);
    if (broken != nullptr) {
      change.broken_rule = broken->name;
      continue;
    }
    change.gain = seconds / planner::predict_step(changed, calibration.rates).seconds - 1;
    change.bytes = planner::predict_memory(changed).peak_bytes() - bytes;
  }
  std::stable_sort(changes.begin(), changes.end(), [](const KnobGain& a, const KnobGain& b) {
    return a.gain.value_or(-1) > b.gain.value_or(-1);
  });
}

}  // namespace

std::vector<KnobGain> differences(const spec::PlanKnobs& from, const spec::PlanKnobs& to) {
  std::vector<KnobGain> changes;
  for (const spec::PlanKnobRow& row : spec::plan_knob_table()) {
    // Replicas are what the other sizes leave.
    if (row.name == "dp") continue;
    const std::string before = get_plan_knob(from, row);
    const std::string after = get_plan_knob(to, row);
    if (before != after) changes.push_back({std::string(row.name), before, after, {}, {}, {}});
  }
  return changes;
}

void play_first(const Calibration& calibration, PlanResult& result) {
  if (result.answer.best.empty()) return;
  const auto start = std::chrono::steady_clock::now();
  result.played = planner::play_plan(run_with(result.question, result.answer.best.front().knobs),
                                     calibration.rates);
  result.play_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

PlanResult make_plan(const PlanQuestion& question, const Calibration& calibration,
                     const std::optional<PlanRun>& against) {
  PlanResult result;
  result.question = question;
  const auto start = std::chrono::steady_clock::now();
  result.answer = planner::search_plans(question, calibration.rates);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EstimateContext context;
  context.is_load_stated = true;
  for (const planner::PlannedConfig& config : result.answer.best) {
    result.estimates.push_back(
        estimate_run(run_with(question, config.knobs), calibration, context));
  }
  if (!result.answer.best.empty()) {
    const PlanRun first = run_with(question, result.answer.best.front().knobs);
    for (const planner::Thumb& thumb : planner::thumbs()) {
      if (!thumb.applies(first)) continue;
      result.thumbs.push_back(
          {std::string(thumb.name), std::string(thumb.says), thumb.agrees(first)});
    }
  }
  if (against) {
    Against theirs;
    theirs.run = *against;
    theirs.estimate = estimate_run(*against, calibration, context);
    if (!result.answer.best.empty()) {
      const spec::PlanKnobs& ours = result.answer.best.front().knobs;
      theirs.changes = differences(against->knobs, ours);
      judge_changes(*against, calibration, theirs.changes);
    }
    result.against = std::move(theirs);
  }
  result.assumptions.push_back(fmt::format(
      "the busiest rank's experts receive {:.2f} of their share{}", question.load,
      question.load == 1 ? " (balanced routing, assumed; --imbalance says otherwise)" : ""));
  result.assumptions.push_back(fmt::format(
      "memory as Megatron-Core with Transformer Engine holds it; rates: {}", calibration.basis));
  return result;
}

}  // namespace moetune::sweeps
