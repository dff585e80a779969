// What Megatron-Core's host has to do for a layer. It is counted, not timed: in dry runs of
// Megatron-LM (tests/engines/dry_run), which call all that a training run calls and launch nothing.
#pragma once

#include "engine/spec/model_spec.h"
#include "tuner/planner/run.h"

namespace moetune::tuner::planner {

/// Calls of the host for one micro-batch of a layer, forward and backward, without graphs of a
/// whole iteration: those of Python functions, two for each launch of a kernel or copy, twenty for
/// one of Triton's. Experts' products are grouped. `num_adapters`: of LoRA.
double host_calls(const PlanRun& run, spec::LayerKind kind, double num_adapters);

/// Those of the layer that Rates::host_layer_ns is the time of: grouped-query attention, an
/// all-to-all and eight experts of a rank, 16 bits.
double reference_host_calls();

}  // namespace moetune::tuner::planner
