// What a step of torchtitan does otherwise than Megatron-Core's: experts in three tensors, autocast
// and operations by themselves, checkpointing by operation. Read in release 0.2.2, and in traces of
// it on one H100 (docs/torchtitan.md).
#pragma once

#include "engine/plan/ops.h"
#include "tuner/planner/layer_sizes.h"

namespace moetune::tuner::planner {

/// Parameter tensors of a layer that the host goes through in each step: those of norms and
/// projections, and two of each local expert; of torchtitan's experts three, whatever their number.
double parameter_tensors(const PlanRun& run, spec::LayerKind kind);

/// Experts of a layer that the host prepares and launches each by itself. Torchtitan's are one
/// tensor, and their products one launch (GroupedExperts).
double launched_experts(const PlanRun& run);

/// The recipe of experts' products where others have this one. Torchtitan's multiply in 16 bits
/// whatever the others do (_run_experts_grouped_mm).
spec::PrecisionRecipe grouped_recipe(const PlanRun& run, spec::PrecisionRecipe recipe);

/// Whether the fixed time of a step is there, as fitted to Megatron-Core. On one GPU or with DDP
/// torchtitan's step has nothing between its kernels for it.
bool has_fixed_time(const PlanRun& run);

/// Of a forward operation, the share that checkpointing by operation does again: all but attention,
/// the products that are kept (titan_selective_bytes), and what comes behind the last of a layer.
double titan_recomputed_share(const PlanRun& run, plan::Op op);

/// Bytes that are moved in a layer, or at the head, beside what Megatron-Core moves.
struct EagerBytes {
  double forward = 0;
  double backward = 0;
};
/// Under autocast: casts of matrices and of their gradients, and of what products read; the wide
/// stream; experts' rows in 32 bits, which are sorted, padded, cast and weighted one after the
/// other. None where there is no autocast.
EagerBytes eager_layer_bytes(const PlanRun& run, spec::LayerKind kind);
/// Casts of the head's matrix, and the loss in 32 bits unless it is compiled.
EagerBytes eager_head_bytes(const PlanRun& run);

}  // namespace moetune::tuner::planner
