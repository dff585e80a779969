// From what a rank process left behind to the numbers of a trial: step statistics, the time budget,
// overlap, the wall. Pure: reads nothing but its arguments.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/spec/trial_spec.h"
#include "profiler/analysis/wall.h"
#include "profiler/store/store.h"

namespace moetune::sweeps {

/// Names of texts that this folder writes into a trial's log.
constexpr const char* kWallEvidenceText = "wall_evidence";  ///< JSON, see wall_json
constexpr const char* kRoutingProfileText = "routing_profile";

/// Fills metrics, wall, step times, tokens per second and the wall's evidence of `result` from the
/// shard. Step times and tokens per second stay empty unless result.status is ok; where the shard
/// has what it takes to play the steps, the step time is that of tuner/played_steps.h, whose
/// `usual_probe_ns` this is. Throws base::Error when a trace or a step contradicts itself.
void analyse_shard(const spec::TrialSpec& spec, const store::ShardContents& shard,
                   double usual_probe_ns, store::TrialResult& result);

/// Parts of the traced step that add up to 1, mean over ranks, finer than the wall's own: compute,
/// recompute, launch_starved, blocking_<group> (data moving, or a participant late), bubble,
/// dependency_stalled.
std::vector<profiler::StepShare> step_parts(const std::vector<profiler::StepBudget>& budgets);

/// The verdict with its evidence, bounds and the parts of the step.
nlohmann::json wall_json(const profiler::WallEvidence& verdict,
                         const std::vector<profiler::StepShare>& parts);

}  // namespace moetune::sweeps
