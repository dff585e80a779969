// Computes the numbers of a trial from the shard of its ranks: step statistics, the time budget,
// overlap, the wall. Pure: reads nothing but its arguments.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "engine/spec/trial_spec.h"
#include "kernels/base/step_parts.h"
#include "profiler/analysis/budget.h"
#include "profiler/analysis/critical_path.h"
#include "profiler/analysis/wall.h"
#include "profiler/store/store.h"

namespace moetune::sweeps {

/// Names of texts that this folder writes into a trial's log.
constexpr const char* kWallEvidenceText = "wall_evidence";  ///< JSON
/// Of it, the evidence with the length of a step in another engine's traces, ns.
constexpr const char* kTracedStepFact = "traced_step_ns";
constexpr const char* kRoutingProfileText = "routing_profile";

/// Fills metrics, wall, step times, tokens per second and the wall's evidence of `result` from the
/// shard. Step times and tokens per second stay empty unless result.status is ok; where the shard
/// has what it takes to play the steps, the step time is that of tuner/played_steps.h, scaled to
/// the machine's usual speed by `usual_probe_ns` (0: it is not). Of the traced steps several are
/// judged; the account is of the one that store::keep_told_step leaves. Throws base::Error when a
/// trace or a step contradicts itself.
void analyse_shard(const spec::TrialSpec& spec, const store::ShardContents& shard,
                   double usual_probe_ns, store::TrialResult& result);

/// The budgets of a step, one a rank, as metrics: by rank, and of the whole run the mean over the
/// ranks, of groups too.
void add_step_budgets(const std::vector<profiler::StepBudget>& budgets,
                      std::vector<store::MetricRow>& metrics);
/// What a verdict rests on, as stored and told by --format json.
nlohmann::json evidence_json(const std::vector<profiler::Evidence>& evidence);
/// The ceiling of each wall as metrics of the whole run.
void add_wall_ratios(const std::array<double, base::kNumWalls>& ceilings,
                     std::vector<store::MetricRow>& metrics);
/// A critical path by what it consists of, as metrics of the whole run, and by rank.
void add_critical_path(const profiler::CriticalPath& path, std::vector<store::MetricRow>& metrics);

}  // namespace moetune::sweeps
