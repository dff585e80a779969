// The run of today beside the plans of a search.
#pragma once

#include "sweeps/planning/plan_answer.h"

namespace moetune::sweeps {

/// How runs of a question are estimated.
EstimateContext context_of(const tuner::planner::PlanQuestion& question);

/// Judges the run of today and the way from it to the first plan. What fits on the way, today's run
/// too, and is faster than the first plan gets into `answer` and leads there; then the way is
/// looked for anew. So no step that fits is faster than the first plan.
Against set_against(const tuner::planner::PlanQuestion& question, const Calibration& calibration,
                    const tuner::planner::PlanRun& today, const spec::dialects::RunConfig* words,
                    tuner::planner::PlanAnswer& answer);

}  // namespace moetune::sweeps
