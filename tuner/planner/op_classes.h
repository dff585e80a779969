// Classes of operations whose time a choice of a run changes.
#pragma once

#include "engine/plan/ops.h"
#include "engine/spec/model_spec.h"
#include "engine/spec/plan_knobs.h"

namespace moetune::tuner::planner {

/// Whether it belongs to routing and the experts, and moves memory only.
bool is_of_experts(plan::Op op);
/// Whether a fused grouped MLP does it along with the products.
bool is_in_fused_mlp(plan::Op op);
/// Modules that have an operation computed again, in a layer with that feed-forward half.
spec::PlanRecomputeSet modules_of(plan::Op op, spec::FeedForward half);

}  // namespace moetune::tuner::planner
