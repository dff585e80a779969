// What graphs hold of a layer with experts, as rules and rules of thumb ask for it.
#pragma once

#include "tuner/planner/run.h"

namespace moetune::tuner::planner {

inline bool has_experts(const PlanRun& run) { return run.model->num_experts > 0; }

/// Whether graphs hold what is behind the router.
inline bool captures_experts(const PlanRun& run) {
  const spec::PlanGraphSet& graphs = run.knobs.cuda_graphs;
  return graphs.has(spec::PlanGraph::moe) ||
         (graphs.has(spec::PlanGraph::full_iteration) && has_experts(run));
}
/// Whether experts have as many rows in every step.
inline bool has_static_shapes(const PlanRun& run) {
  return (run.knobs.capacity_factor > 0 && run.knobs.pad_to_capacity) ||
         run.knobs.fused_grouped_mlp;
}

}  // namespace moetune::tuner::planner
