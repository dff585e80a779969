// What torchtitan holds in device memory where it differs from Megatron-Core: its FSDP2, what it
// does without, its loss, its selective activation checkpointing. Read in releases 0.1 and 0.2.2
// and in PyTorch of that time; docs/torchtitan.md has what measured runs say about each.
#pragma once

#include <optional>

#include "tuner/planner/layer_sizes.h"

namespace moetune::tuner::planner {

/// What the run's sizes make of its sharding, as torchtitan takes it: FSDP over one rank is none,
/// and replicas beside other parallelism have shards (DDP stands alone).
spec::Fsdp titan_sharding(const spec::PlanKnobs& knobs);

/// Whether experts on several ranks have no shards beside them. Where torchtitan 0.2.2 asks for
/// FSDP2 then (`fsdp_enabled or ep_enabled`), it stops, as there is no mesh of one shard
/// (ParallelDims.get_mesh); where it does not, nothing mixes precision.
bool lacks_titan_shards(const spec::PlanKnobs& knobs);

/// Whether the run's weights are PyTorch's FSDP2's, as torchtitan applies it.
bool has_titan_shards(const PlanRun& run);

/// Whether weights are whole on their ranks: one GPU, DDP, or tensor and pipeline parallelism
/// alone. Then gradients are freed before each step (OptimizersContainer.zero_grad).
bool is_titan_unsharded(const PlanRun& run);

/// Whether 16 bits come from torch.autocast over 32-bit weights (maybe_enable_amp): on one GPU and
/// with DDP. What is read by products is cast for each of them; the residual stream stays wide.
bool has_titan_autocast(const PlanRun& run);

/// What the run computes in. Megatron-Core's own modules know no recipe of 8 bits. Beside tensor or
/// pipeline parallelism without FSDP torchtitan mixes no precision (maybe_enable_amp): weights,
/// activations and products have 32 bits, and attention is the one of its kernels that takes them,
/// with all scores in memory (ScaledDotProductAttentionWrapper.sdpa_backends; models of latent
/// attention use another).
spec::PlanKnobs computed_knobs(const PlanRun& run);

/// Bytes of DDP's buckets, which are no views of the gradients: replicate() asks for none.
double titan_bucket_bytes(const PlanRun& run, double num_parameters);

/// Bytes that a layer keeps under autocast beside what Megatron-Core's has: the wide stream before
/// both norms, a copy of a norm's output for each product that reads it, norms of heads in 32 bits,
/// the activation before its product with the gate, experts' rows for each of two products and
/// before they are weighted, and all matrices in 16 bits.
double titan_autocast_bytes(const PlanRun& run, const LayerSizes& sizes);

/// Products that read a norm's output of this layer, each a copy of its own under autocast.
double titan_norm_readers(const LayerSizes& sizes);

/// What the head and the loss take under autocast. At the end of forward autocast's cache is still
/// there, `cached_bytes` of which nothing else holds.
double titan_autocast_loss_bytes(const PlanRun& run, double num_logits, double cached_bytes);

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

/// Whether activations are checkpointed by operation, whatever modules there are.
bool has_titan_selective(const PlanRun& run);

/// Bytes that a layer of attention keeps under selective activation checkpointing by operation: its
/// input, every second product, attention's output and log-sum-exp, and what tensor parallelism has
/// scattered. Grouped products of experts are computed again. None: the run computes all or nothing
/// again, or it is another layer, or one with experts on several ranks.
std::optional<double> titan_selective_bytes(const PlanRun& run, const LayerSizes& sizes);

}  // namespace moetune::tuner::planner
