// Where the time of imported traces went, in the parts of our own steps (budget.h). Each moment has
// the cause that the verdict's shares count it to (imported_wall.h), so that both agree.
#pragma once

#include <span>
#include <vector>

#include "profiler/analysis/budget.h"
#include "profiler/analysis/counted_steps.h"
#include "profiler/analysis/matched_collectives.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// One for each trace with device work, whose index is the rank of its budget: the mean over the
/// rank's `steps` (counted_steps()). `matching`: of the traces, empty where it is one. Rules:
///  - compute_busy is what counts as compute or as computed a second time, with the time that a
///    device takes to start.
///  - launch_starved is the time in which the host was late.
///  - blocking_transfer is communication with nothing beside it, from when the last matched rank
///    came; in the group kMemcpyGroup copies to and from the host.
///  - blocking_wait is waiting for that rank, and for messages between stages: pipeline_bubble.
///  - dependency_stalled is what nothing explains.
/// Only groups that we have a name for have a budget of their own. What needs records of our form
/// is 0: host_sync, num_gaps, num_unresolved_gaps, num_launches and flops. Traces with broken times
/// (kMaxTraceNs) are left out.
std::vector<StepBudget> imported_budgets(std::span<const ImportedTrace> traces,
                                         const CollectiveMatching& matching,
                                         std::span<const CountedSteps> steps);

}  // namespace moetune::profiler
