// A planned step played instruction by instruction, one rank for each pipeline stage: what the
// closed form cannot see, such as who waits for whom.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tuner/cost_model.h"
#include "tuner/planner/rates.h"
#include "tuner/planner/run.h"

namespace moetune::tuner::planner {

/// The run as a trial of our own engine. What the engine has no word for is left out; of that
/// plan::planned_of has what programs know.
spec::TrialSpec trial_of(const PlanRun& asked);

/// What of a plan a played step leaves out, in words; empty: nothing.
std::vector<std::string> not_played(const PlanRun& run);

/// More records than this are not kept of a played plan.
constexpr int64_t kMostRecords = 1'000'000;

/// Its step, played: operations last as long as they are priced at these rates, launches of the
/// host come to what it is priced at, and the fixed cost stands behind. With records where
/// `has_records`. Of a run whose program the engine could be given; throws base::Error where ranks
/// would wait for each other forever.
PlayedStep play_plan(const PlanRun& run, const Rates& rates, bool has_records);

}  // namespace moetune::tuner::planner
