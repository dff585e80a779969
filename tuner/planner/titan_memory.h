// What torchtitan holds in device memory where it differs from Megatron-Core: its FSDP2, its loss,
// its selective activation checkpointing. Read in releases 0.1 and 0.2.2 and in PyTorch of that
// time; docs/planner.md (Torchtitan) has what published runs say about each.
#pragma once

#include <optional>

#include "tuner/planner/layer_sizes.h"

namespace moetune::tuner::planner {

/// Whether PyTorch's FSDP2 shards the run's weights, as torchtitan applies it.
bool has_titan_shards(const PlanRun& run);

/// Whether FSDP2 keeps all weights of a stage gathered from the first forward to the last backward.
/// Beside pipeline stages torchtitan does not reshard after forward (apply_fsdp, policy "default"),
/// nor does PyTorch's pipeline after backward (backward_maybe_with_nosync).
bool keeps_titan_stage_gathered(const PlanRun& run);

/// Whether gradients of a whole stage are summed up unsharded, in 32 bits, the type that they are
/// reduced in: the pipeline reduces them behind the last of several micro-batches alone
/// (backward_maybe_with_nosync, FSDPParam.to_accumulated_grad_if_needed).
bool sums_titan_gradients_whole(const PlanRun& run);

/// Bytes of a logit at the loss's worst moment; none: the loss is not one of torchtitan's two.
/// Compiled (CrossEntropy::native), the logits in 16 bits and their gradient: the 32-bit copy is
/// fused away. Else (unfused) three arrays of 32 bits in its backward: the log-softmax, the
/// gradient of what was picked from it, and the gradient of the logits. With loss parallelism four,
/// as PyTorch's loss_parallel writes the last one out by steps.
std::optional<double> titan_logit_bytes(const spec::PlanKnobs& knobs);

/// Bytes that a dense layer of attention keeps under selective activation checkpointing by
/// operation: its input, every second product, attention's output and log-sum-exp, and what
/// tensor parallelism has scattered. None: it computes all or nothing again, or is another layer.
std::optional<double> titan_selective_bytes(const PlanRun& run, const LayerSizes& sizes);

}  // namespace moetune::tuner::planner
