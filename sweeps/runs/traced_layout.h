// The layout of a run by the groups of ranks that its traces name: where no configuration is known,
// and to see whether a configuration is of the same run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/spec/plan_knobs.h"
#include "profiler/analysis/group_costs.h"
#include "sweeps/runs/run_facts.h"

namespace moetune::sweeps {

/// Sets the sizes that the traces tell and `said`, the logs, do not. Nothing where all of them do
/// not divide `world_size` ranks; 0: not known. Returns what was set.
ParallelSizes take_traced_sizes(const profiler::GroupCosts& groups, const ParallelSizes& said,
                                int64_t world_size, spec::PlanKnobs& knobs);

/// A sentence for each size that the traces tell otherwise than a configuration.
std::vector<std::string> contradicted_sizes(const profiler::GroupCosts& groups,
                                            const spec::PlanKnobs& knobs);

}  // namespace moetune::sweeps
