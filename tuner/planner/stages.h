// Which layers the stages of a pipeline get, where a plan may choose.
#pragma once

#include <cstdint>
#include <vector>

#include "tuner/planner/run.h"
#include "tuner/planner/step_time.h"

namespace moetune::tuner::planner {

/// Times of a run's layers, those that a block of recomputed ones leaves out with both. `works` as
/// of PreparedStep.
StageParts parts_by_place(const PlanRun& run, WorkCache& works, const Rates& rates);

/// Layers of each virtual stage, in the order of the model, so that the slowest pipeline rank takes
/// least. Of such splits one whose virtual stages are alike, as ranks wait for the slower ones: the
/// slowest takes least, and then the slowest without what the last one has beside its layers. Of
/// these one with the fewest layers times micro-batches that a stage has in flight (`in_flight`, by
/// virtual stage). A stage has at least a layer, but for the last one, which has `parts.end`. Exact
/// with one stage a rank, and where all layers take as long. There are layers for all stages but
/// the last.
std::vector<int64_t> best_split(const StageParts& parts, int64_t pp,
                                const std::vector<int64_t>& in_flight);

/// Seconds of a micro-batch on all stages of a rank, as PreparedStep prices written ones: the
/// slowest rank's, or, for virtual stages, the slowest of each number, one after the other.
double stage_seconds(const StageParts& parts, const std::vector<int64_t>& layers, int64_t pp);

/// By how much a written layout's stages have to be faster than those that need none.
inline constexpr double kWorthWriting = 0.02;

/// The stages of a plan, PlanRun::stages. Where the layers divide: what the framework makes by
/// itself, unless best_split is better. With more stages than layers the ends have stages of their
/// own. Empty without pipeline stages, and where nothing that the
/// framework takes can be said, as the layers do not divide and first and last stage are counted,
/// or it is a hybrid with Mamba layers, whose pattern says its stages. `parts`: of the run. With
/// `is_quick` weights are not weighed where splits take as long, only micro-batches in flight.
Stages choose_stages(const PlanRun& run, const StageParts& parts, bool is_quick = false);

}  // namespace moetune::tuner::planner
