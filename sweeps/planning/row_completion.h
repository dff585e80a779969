// What follows from what a row states: the date that its rates are of, its throughput from another
// figure, and how lean the run may have been.
#pragma once

#include <vector>

#include "sweeps/planning/published_rows.h"
#include "sweeps/planning/row_reader.h"

namespace moetune::sweeps {

/// Tells in `assumed` where the software's date is none (not `is_known`), or is outside of the span
/// of the rates.
void tell_date(const RowReader& row, bool is_known, PublishedRow& result);

/// Tokens/s of a device where the row does not state them: by the step's time and the batch, else
/// by TFLOP/s and the way in which the source counts FLOPs. Not where batch or count are not known.
void complete_throughput(const RowReader& row, PublishedRow& result);

/// The row's run with the leanest value of each key of memory that the row does not state:
/// recomputation, FSDP, the optimizer's sharding, types and place, offloaded activations, the loss,
/// graphs, a balanced load. Several runs, as no choice is the leanest beside all others. None
/// breaks a rule of Megatron-Core that the row's run does not. `is_optimizer_assumed`: what stands
/// in `optimizer` is no statement.
std::vector<tuner::planner::PlanRun> leaner_runs(const RowReader& row, const PublishedRow& result,
                                                 bool is_optimizer_assumed);

}  // namespace moetune::sweeps
