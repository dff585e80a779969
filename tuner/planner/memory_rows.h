// What is known of device memory beside the tensors that layers save (memory_terms.cpp): a row for
// each term, with its figure, what the figure is multiplied with, and how that is known. The
// profile reads its figures here, and people are shown the same rows. Figures are in the header as
// a search asks for them millions of times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "tuner/planner/memory_profile.h"
#include "tuner/planner/static_memory.h"
#include "tuner/planner/titan_memory.h"

namespace moetune::tuner::planner {

/// Lines of a breakdown: the parts of a peak, then what a device needs beside it.
enum class MemoryLine : uint8_t {
  weights,
  gradients,
  optimizer,
  narrow_weights,
  dummy_gradients,
  workspaces,
  gathered,
  exchange_buffers,  ///< part of the peak, beside PyTorch's allocator
  activations,
  transient,
  graph_pool,      ///< part of the peak, which PyTorch does not call allocated
  fragments,       ///< beside the peak, in what fits
  beside_pytorch,  ///< likewise
  cached,          ///< what PyTorch reserves beside what it has allocated
  count
};

enum class MemoryRule : uint8_t {
  weight_types,
  titan_weight_types,
  tied_embeddings,
  mtp_embedding,
  main_gradients,
  titan_gradients,
  titan_whole_gradients,
  adapter_gradients,
  moments,
  master,
  master_remainder,
  optimizer_shares,
  state_rounding,
  optimizer_offload,
  titan_state,
  fp8_copies,
  fp8_copies_of_fp4_devices,
  blockwise_copies,
  mxfp8_copies,
  nvfp4_copies,
  dummy_gradients,
  workspace,
  plain_workspaces,
  grouped_workspaces,
  gathered_head_input,
  gathered_tokens,
  titan_buckets,
  fsdp_units,
  fsdp_ahead,
  fsdp_root,
  fsdp_gradient,
  fsdp_waiting,
  titan_stage_units,
  deepep_workspace,
  deepep_channels,
  deepep_heap,
  hybridep_domain,
  hybridep_network,
  saved_tensors,
  plain_pipeline,
  virtual_pipeline,
  overlap_in_flight,
  overlapped_outputs,
  all_in_flight,
  mtp_activations,
  embedding_mask,
  layer_inputs,
  titan_autocast,
  titan_selective,
  moe_forward_rows,
  received_gradient,
  moe_rows,
  moe_stream,
  dense_stream,
  dense_own_stream,
  recomputed_layer,
  offload_on_its_way,
  offload_loaded_back,
  kept_at_head,
  logits,
  logit_gradients,
  head_gradient,
  softmax,
  compiled_logits,
  titan_logits,
  gradient_copy,
  captured_attention,
  fragments,
  beside_pytorch,
  cached_share,
  cached_least,
  count
};

/// What a row may depend on: a run, its knobs as they are computed with, and one of its stages.
struct MemoryView {
  const PlanRun& run;
  const StageMemory& memory;
  bool has_embedding = false;
  bool has_head = false;
  bool has_mtp = false;
  bool has_experts = false;
  bool has_far_experts = false;  ///< on several nodes

  [[nodiscard]] const spec::PlanKnobs& knobs() const { return run.knobs; }
  /// Whether the peak is in the backward pass of layers, or comes to it.
  [[nodiscard]] bool is_in_layers() const {
    return memory.moment == kMomentOfLayer || memory.moment == kMomentOfLastLayer;
  }
};

struct MemoryRow {
  MemoryRule rule;
  MemoryLine line;
  std::string_view name;  ///< for people and JSON
  double figure;          ///< 0: there is none
  /// What the figure is of, or what is counted where there is none.
  std::string_view formula;
  Evidence evidence;
  std::string_view basis;  ///< where it was read, or which runs show it
  /// Of a line with bytes; null: whatever runs.
  bool (*is_there)(const MemoryView&);
};

namespace rows {

using spec::CrossEntropy;
using spec::PlanRecompute;
using spec::PrecisionRecipe;
using L = MemoryLine;
using M = MemoryRule;
using V = const MemoryView&;

inline constexpr Evidence kSource = Evidence::source;
inline constexpr Evidence kMeasured = Evidence::measured;
inline constexpr Evidence kAssumed = Evidence::assumed;
inline constexpr double kMiB = 1 << 20;

inline bool is_megatron(V v) { return v.run.is_of_megatron; }
inline bool is_titan(V v) { return !v.run.is_of_megatron; }
inline bool is_lora(V v) { return v.knobs().task == spec::TrainingTask::lora; }
inline bool has_fsdp(V v) { return v.knobs().fsdp != spec::Fsdp::none; }
inline bool computes_in(V v, PrecisionRecipe recipe) { return v.knobs().precision == recipe; }
inline bool has_scale_a_tensor(V v) {
  return computes_in(v, PrecisionRecipe::fp8_current) ||
         computes_in(v, PrecisionRecipe::fp8_delayed);
}
inline bool has_fp4(V v) { return v.run.hardware->fp4_flops_per_s > 0; }
inline bool has_masters(V v) { return is_megatron(v) && !has_wide_elements(v.knobs()); }
inline bool is_at_loss(V v) { return v.memory.moment == kMomentOfLoss; }
inline bool is_at_head(V v) { return is_at_loss(v) || v.memory.moment == kMomentOfHead; }
inline bool keeps_probabilities(V v) {
  const CrossEntropy loss = v.knobs().cross_entropy;
  return is_megatron(v) && (loss == CrossEntropy::native || loss == CrossEntropy::unfused);
}
/// Of FSDP, but for stages of torchtitan that stay gathered.
inline bool gathers_units(V v) { return has_fsdp(v) && !keeps_titan_stage_gathered(v.run); }
/// Megatron's FSDP has embedding and head as one.
inline bool has_root_unit(V v) { return v.knobs().fsdp == spec::Fsdp::megatron; }
inline bool gathers_layers(V v) {
  return gathers_units(v) &&
         (v.is_in_layers() || v.memory.moment == kMomentOfForward || !has_root_unit(v));
}
inline bool sends_by(V v, spec::Dispatcher dispatcher) {
  return v.has_experts && v.knobs().dispatcher == dispatcher;
}
inline bool is_recomputed(V v) { return v.knobs().recompute.has(PlanRecompute::full); }

}  // namespace rows

inline constexpr MemoryRow kMemoryRows[] = {
    {rows::M::weight_types, rows::L::weights, "weights", 0,
     "bytes of its type for each parameter of the rank; FSDP shares them out", rows::kMeasured,
     "Megatron-Core distributed/param_and_grad_buffer.py (gathered in place); step-end memory of "
     "release tests",
     rows::is_megatron},
    {rows::M::titan_weight_types, rows::L::weights, "weights of torchtitan", 0,
     "bytes of the type that the optimizer updates; the offloaded share is in the host's memory",
     rows::kSource, "torchtitan 0.2.2, PyTorch's fully_shard", rows::is_titan},
    {rows::M::tied_embeddings, rows::L::weights, "embedding of tied stages", 0,
     "the table once on the first stage and once on the last", rows::kSource,
     "Megatron-Core models/common/language_module (shared_embedding_or_output_weight)",
     [](const MemoryView& v) {
       return v.run.model->ties_embeddings && v.knobs().pp > 1 && (v.has_embedding || v.has_head);
     }},
    {rows::M::mtp_embedding, rows::L::weights, "embedding of multi-token prediction", 0,
     "its layers, projection and norms; a copy of the embedding's table where the stage has none",
     rows::kMeasured,
     "Megatron-Core transformer/multi_token_prediction.py; step-end memory of a release test",
     [](const MemoryView& v) { return v.has_mtp; }},
    {rows::M::main_gradients, rows::L::gradients, "main gradients", 0,
     "bytes of their type for each trained parameter, whole on each rank but for FSDP",
     rows::kMeasured, "Megatron-Core distributed/param_and_grad_buffer.py; published peaks",
     rows::is_megatron},
    {rows::M::titan_gradients, rows::L::gradients, "gradients of torchtitan", 0,
     "bytes of their type for each parameter of the rank's share, freed before each step",
     rows::kSource, "torchtitan 0.2.2 OptimizersContainer.zero_grad",
     [](const MemoryView& v) { return rows::is_titan(v) && !sums_titan_gradients_whole(v.run); }},
    {rows::M::titan_whole_gradients, rows::L::gradients, "gradients summed unsharded", 4,
     "bytes for each parameter of the stage", rows::kSource,
     "PyTorch FSDPParam.to_accumulated_grad_if_needed, backward_maybe_with_nosync",
     [](const MemoryView& v) { return sums_titan_gradients_whole(v.run); }},
    {rows::M::adapter_gradients, rows::L::gradients, "gradients of adapters", 0,
     "of LoRA's matrices alone: frozen weights have neither gradients nor state", rows::kSource,
     "Megatron-Bridge peft/lora.py", rows::is_lora},
    {rows::M::moments, rows::L::optimizer, "moments", 0,
     "bytes of their types for each trained parameter; one of Muon's, none of SGD", rows::kSource,
     "Megatron-Core optimizer/optimizer_config.py; two in fp32 are measured", nullptr},
    {rows::M::master, rows::L::optimizer, "master weights", 4, "bytes for each trained parameter",
     rows::kMeasured, "Megatron-Core optimizer/distrib_optimizer.py; published peaks",
     [](const MemoryView& v) { return rows::has_masters(v) && !has_master_remainders(v.knobs()); }},
    {rows::M::master_remainder, rows::L::optimizer,
     "master weights of the precision-aware optimizer", 2,
     "bytes that the 16-bit weight lacks, for each trained parameter", rows::kMeasured,
     "Transformer Engine optimizers/fused_adam.py (store_param_remainders); mean error of 77 "
     "published peaks 2.0 % without it, 1.7 with",
     [](const MemoryView& v) { return rows::has_masters(v) && has_master_remainders(v.knobs()); }},
    {rows::M::optimizer_shares, rows::L::optimizer, "shares of the optimizer's state", 0,
     "shared out over the replicas of an optimizer instance; that of experts over their own",
     rows::kMeasured, "Megatron-Core optimizer/distrib_optimizer.py; published peaks",
     [](const MemoryView& v) { return v.knobs().distributed_optimizer || rows::has_fsdp(v); }},
    {rows::M::state_rounding, rows::L::optimizer, "rounding of the allocator", 0,
     "up to 1 MiB beside each tensor of whole experts from 10 MiB on, which is not split off",
     rows::kMeasured, "PyTorch c10/cuda/CUDACachingAllocator.cpp; docs/planner.md, dry runs",
     [](const MemoryView& v) {
       return rows::is_megatron(v) && v.has_experts && state_rounding(v.run, 1) > 0;
     }},
    {rows::M::optimizer_offload, rows::L::optimizer, "state in the host's memory", 0,
     "optimizer_offload_ratio of it is not on the device", rows::kSource,
     "Megatron-Core optimizer/cpu_offloading",
     [](const MemoryView& v) { return v.knobs().optimizer_offload_ratio > 0; }},
    {rows::M::titan_state, rows::L::optimizer, "state of torchtitan's optimizer", 0,
     "moments alone: the weights that it updates are the only ones", rows::kSource,
     "torchtitan 0.2.2 components/optimizer.py", rows::is_titan},
    {rows::M::fp8_copies, rows::L::narrow_weights, "FP8 weights with a scale a tensor", 2,
     "bytes for each parameter of products: the matrix and its transpose", rows::kSource,
     "Transformer Engine tensor/float8_tensor.py; one published peak agrees",
     [](const MemoryView& v) { return rows::has_scale_a_tensor(v) && !rows::has_fp4(v); }},
    {rows::M::fp8_copies_of_fp4_devices, rows::L::narrow_weights,
     "FP8 weights with a scale a tensor, Blackwell", 1,
     "byte for each parameter of products, which are multiplied in either layout", rows::kSource,
     "Transformer Engine tensor/float8_tensor.py, module/base.py",
     [](const MemoryView& v) { return rows::has_scale_a_tensor(v) && rows::has_fp4(v); }},
    {rows::M::blockwise_copies, rows::L::narrow_weights, "FP8 weights by blocks", 2,
     "bytes for each parameter of products: by rows and by columns", rows::kSource,
     "Transformer Engine tensor/float8_blockwise_tensor.py",
     [](const MemoryView& v) {
       return rows::computes_in(v, spec::PrecisionRecipe::fp8_blockwise);
     }},
    {rows::M::mxfp8_copies, rows::L::narrow_weights, "MXFP8 weights", 2 + 2.0 / 32,
     "bytes for each parameter of products: by rows and by columns, a scale for each 32",
     rows::kSource, "Transformer Engine tensor/mxfp8_tensor.py",
     [](const MemoryView& v) { return rows::computes_in(v, spec::PrecisionRecipe::mxfp8); }},
    {rows::M::nvfp4_copies, rows::L::narrow_weights, "NVFP4 weights", 1 + 2.0 / 16,
     "bytes for each parameter of products: by rows and by columns, a scale for each 16",
     rows::kSource, "Transformer Engine tensor/nvfp4_tensor.py",
     [](const MemoryView& v) { return rows::computes_in(v, spec::PrecisionRecipe::nvfp4); }},
    {rows::M::dummy_gradients, rows::L::dummy_gradients, "placeholders of gradients", 0,
     "one in the weights' type for each different matrix: accumulation is fused", rows::kMeasured,
     "Transformer Engine module/base.py get_dummy_wgrad; 0.2 to 9.9 GiB of published peaks",
     nullptr},
    {rows::M::workspace, rows::L::workspaces, "workspace of cuBLAS", 32 * rows::kMiB,
     "for each handle", rows::kMeasured,
     "Transformer Engine cpp_extensions/gemm.py (Hopper and newer); mean error of 77 published "
     "peaks 2.9 % without it, 1.7 with",
     nullptr},
    {rows::M::plain_workspaces, rows::L::workspaces, "handles", 3,
     "of Transformer Engine, of PyTorch forward, of autograd's thread", rows::kMeasured,
     "step-end memory of release tests within 0.04 GiB", nullptr},
    {rows::M::grouped_workspaces, rows::L::workspaces, "handles of grouped products", 4,
     "more, one for each stream of them", rows::kMeasured,
     "mean error of 77 published peaks 2.2 % without it, 1.7 with",
     [](const MemoryView& v) { return v.has_experts && has_grouped_products(v.run); }},
    {rows::M::gathered_head_input, rows::L::workspaces, "gathered input of the head", 2,
     "bytes for each column of each token: sequence parallelism", rows::kSource,
     "Megatron-Core GlobalMemoryBuffer; published peaks do not show it",
     [](const MemoryView& v) {
       return v.has_head && v.knobs().sequence_parallel && v.knobs().tp > 1;
     }},
    {rows::M::gathered_tokens, rows::L::workspaces, "gathered tokens of the allgather dispatcher",
     2, "bytes for each column of the tokens of all ranks that share experts", rows::kSource,
     "Megatron-Core GlobalMemoryBuffer, moe/token_dispatcher.py",
     [](const MemoryView& v) {
       return v.has_experts && v.knobs().dispatcher == spec::Dispatcher::allgather &&
              v.knobs().ep * v.knobs().etp > 1;
     }},
    {rows::M::titan_buckets, rows::L::workspaces, "buckets of DDP", 4, "bytes for each parameter",
     rows::kSource, "PyTorch replicate(), gradient_as_bucket_view false",
     [](const MemoryView& v) { return is_titan_unsharded(v.run) && v.knobs().dp > 1; }},
    {rows::M::fsdp_units, rows::L::gathered, "units of FSDP", 2,
     "gathered at once, the one in use and the next: the largest, in the weights' type",
     rows::kMeasured,
     "Megatron-Core fsdp/src/megatron_fsdp; docs/planner.md, dry runs; of FSDP2 assumed",
     rows::gathers_layers},
    {rows::M::fsdp_ahead, rows::L::gathered, "units of FSDP ahead", 5e8,
     "parameters of layers are gathered at least", rows::kMeasured,
     "Megatron-Core fsdp/src/megatron_fsdp, suggested_AG_prefetch_size; docs/planner.md, dry runs",
     [](const MemoryView& v) { return rows::gathers_layers(v) && rows::has_root_unit(v); }},
    {rows::M::fsdp_root, rows::L::gathered, "embedding and head of FSDP", 0,
     "a unit that stays gathered, from the head's backward on with its gradient", rows::kMeasured,
     "Megatron-Core fsdp/src/megatron_fsdp; docs/planner.md, dry runs", rows::has_root_unit},
    {rows::M::fsdp_gradient, rows::L::gathered, "gradient of a unit", 4,
     "bytes for each parameter of the largest; of Megatron's FSDP in the weights' type, and of all "
     "where exchanges overlap",
     rows::kMeasured, "Megatron-Core fsdp/src/megatron_fsdp; docs/planner.md, dry runs",
     [](const MemoryView& v) {
       return rows::gathers_units(v) && (v.is_in_layers() || !rows::has_root_unit(v) ||
                                         v.knobs().overlap_moe_expert_parallel_comm);
     }},
    {rows::M::fsdp_waiting, rows::L::gathered, "gradients of units that wait", 1e9,
     "parameters of layers may wait for their reduction, and two layers more: as far as what these "
     "had saved is less",
     rows::kMeasured,
     "Megatron-Core fsdp/src/megatron_fsdp, suggested_RS_queue_capacity; docs/planner.md, dry runs",
     [](const MemoryView& v) { return rows::has_root_unit(v) && v.is_in_layers(); }},
    {rows::M::titan_stage_units, rows::L::gathered, "stage that stays gathered", 0,
     "all units of the stage and the gradient of one, in the run's type", rows::kSource,
     "torchtitan 0.2.2 apply_fsdp (reshard_after_forward), PyTorch's pipeline",
     [](const MemoryView& v) { return keeps_titan_stage_gathered(v.run); }},
    {rows::M::deepep_workspace, rows::L::exchange_buffers, "workspace of DeepEP", 32 * rows::kMiB,
     "once", rows::kSource, "DeepEP csrc/legacy/buffer.hpp; no published run isolates it",
     [](const MemoryView& v) { return rows::sends_by(v, spec::Dispatcher::deepep); }},
    {rows::M::deepep_channels, rows::L::exchange_buffers, "DeepEP's buffer for NVLink", 0,
     "256 to 720 rows for each of 8 ranks and each channel, of which two multiprocessors have one",
     rows::kSource,
     "DeepEP csrc/legacy/config.hpp, deep_ep/buffers/legacy.py; no published run "
     "isolates it",
     [](const MemoryView& v) { return rows::sends_by(v, spec::Dispatcher::deepep); }},
    {rows::M::deepep_heap, rows::L::exchange_buffers, "DeepEP's buffer for the network",
     512 * rows::kMiB, "or several times that: twice 128 rows or more for each node and channel",
     rows::kSource,
     "DeepEP csrc/legacy/config.hpp, NVSHMEM_CUMEM_GRANULARITY; no published run isolates it",
     [](const MemoryView& v) {
       return rows::sends_by(v, spec::Dispatcher::deepep) && v.knobs().ep * v.knobs().etp > 8;
     }},
    {rows::M::hybridep_domain, rows::L::exchange_buffers, "HybridEP's buffer of a domain", 0,
     "rows, scales and probabilities of all tokens of the group: all may go to one rank",
     rows::kSource,
     "DeepEP, branch hybrid-ep, csrc/hybrid_ep/buffer/intranode.cu; no published run isolates it",
     [](const MemoryView& v) { return rows::sends_by(v, spec::Dispatcher::hybridep); }},
    {rows::M::hybridep_network, rows::L::exchange_buffers, "HybridEP's buffers of other domains", 0,
     "the rank's own tokens once, and three times for each other domain", rows::kSource,
     "DeepEP, branch hybrid-ep, csrc/hybrid_ep/buffer/internode_doca.cu; no published run isolates "
     "it",
     [](const MemoryView& v) {
       return rows::sends_by(v, spec::Dispatcher::hybridep) && v.has_far_experts;
     }},
    {rows::M::saved_tensors, rows::L::activations, "saved tensors", 0,
     "each tensor that a layer keeps, but for what is recomputed or offloaded (saved_terms)",
     rows::kMeasured, "Transformer Engine and Megatron-Core, module by module; published peaks",
     nullptr},
    {rows::M::plain_pipeline, rows::L::activations, "micro-batches in flight", 0,
     "as many as stages from this one to the last, at most all", rows::kMeasured,
     "Megatron-Core pipeline_parallel/schedules.py; published peaks",
     [](const MemoryView& v) {
       return v.knobs().pp > 1 && num_virtual_stages(v.run) == 1 && !v.run.holds_all_micro_batches;
     }},
    {rows::M::virtual_pipeline, rows::L::activations, "micro-batches in flight of virtual stages",
     0, "2 (stages behind) + (virtual stages - 1) group + 1 forwards, in rounds of a group",
     rows::kMeasured, "Megatron-Core pipeline_parallel/schedules.py; four published peaks",
     [](const MemoryView& v) {
       return v.knobs().pp > 1 && num_virtual_stages(v.run) > 1 && !v.run.holds_all_micro_batches;
     }},
    {rows::M::overlap_in_flight, rows::L::activations, "forward of an overlapped exchange", 1,
     "micro-batch more in flight", rows::kMeasured,
     "a published pair with and without: 1.5 GiB more",
     [](const MemoryView& v) {
       return v.knobs().overlap_moe_expert_parallel_comm && v.knobs().pp > 1 &&
              !v.run.holds_all_micro_batches;
     }},
    {rows::M::overlapped_outputs, rows::L::activations, "outputs between overlapped parts", 8,
     "copies of the rank's own tokens for each layer of the micro-batch whose loss it is, and its "
     "received rows",
     rows::kMeasured, "Megatron-Core pipeline_parallel/combined_1f1b.py; docs/planner.md, dry runs",
     [](const MemoryView& v) {
       return v.knobs().overlap_moe_expert_parallel_comm && v.knobs().pp > 1 && rows::is_at_head(v);
     }},
    {rows::M::all_in_flight, rows::L::activations, "all micro-batches of a pass", 0,
     "no backward comes before all forwards", rows::kSource,
     "PyTorch pipelining ScheduleGPipe, ScheduleLoopedBFS",
     [](const MemoryView& v) { return v.run.holds_all_micro_batches && v.knobs().pp > 1; }},
    {rows::M::mtp_activations, rows::L::activations, "multi-token prediction", 10,
     "bytes for each column of each token and depth, beside its layers", rows::kMeasured,
     "Megatron-Core transformer/multi_token_prediction.py; mean error of 77 published peaks 1.73 % "
     "without it, 1.69 with",
     [](const MemoryView& v) { return v.has_mtp; }},
    {rows::M::embedding_mask, rows::L::activations, "mask of the embedding's dropout", 1,
     "byte for each column of each token", rows::kSource, "Megatron-Core language model embedding",
     [](const MemoryView& v) { return v.has_embedding && v.run.model->hidden_dropout > 0; }},
    {rows::M::layer_inputs, rows::L::activations, "inputs of recomputed layers", 0,
     "the input of each layer or group that is recomputed as a whole", rows::kMeasured,
     "Megatron-Core transformer_block.py; five published peaks, 2 % too low", rows::is_recomputed},
    {rows::M::titan_autocast, rows::L::activations, "copies of autocast", 0,
     "wide inputs of norms, a copy of their output for each reader, matrices in 16 bits",
     rows::kSource, "torchtitan 0.2.2 maybe_enable_amp, torch.autocast",
     [](const MemoryView& v) { return has_titan_autocast(v.run); }},
    {rows::M::titan_selective, rows::L::activations, "checkpointing by operation", 0,
     "the layer's input, every second product, attention's output and log-sum-exp", rows::kSource,
     "torchtitan 0.2.2 activation_checkpoint.py",
     [](const MemoryView& v) { return has_titan_selective(v.run); }},
    {rows::M::moe_forward_rows, rows::L::transient, "experts' rows, forward", 3,
     "copies of the received rows, one of those that were sent and the shared expert's output, "
     "when "
     "experts are done",
     rows::kMeasured,
     "Megatron-Core moe/moe_layer.py, token_dispatcher.py; docs/planner.md, dry runs",
     [](const MemoryView& v) {
       return v.has_experts &&
              (v.memory.moment == kMomentOfForward || (v.is_in_layers() && rows::is_recomputed(v)));
     }},
    {rows::M::received_gradient, rows::L::transient, "gradient that is received", 2,
     "bytes for each column of each token, before the forward is done", rows::kMeasured,
     "Megatron-Core pipeline_parallel/p2p_communication.py; docs/planner.md, dry runs",
     [](const MemoryView& v) {
       return v.memory.moment == kMomentOfForward && v.knobs().pp > 1 && !v.has_head;
     }},
    {rows::M::moe_rows, rows::L::transient, "experts' rows, backward", 2,
     "copies of the received rows, before and after they are sorted or exchanged", rows::kMeasured,
     "mean error of the seven published peaks that isolate it 1.9 % without it, 1.7 with",
     [](const MemoryView& v) { return v.is_in_layers() && v.has_experts; }},
    {rows::M::moe_stream, rows::L::transient, "gradients of the stream, MoE layer", 2,
     "copies of the rank's own tokens", rows::kSource,
     "Megatron-Core moe/moe_layer.py; published peaks hardly tell",
     [](const MemoryView& v) { return v.is_in_layers() && v.has_experts; }},
    {rows::M::dense_stream, rows::L::transient, "gradients of the stream, dense layer", 2,
     "copies of the gathered tokens, beside the gradient of the first product", rows::kSource,
     "Transformer Engine module/layernorm_linear.py; published peaks do not tell",
     [](const MemoryView& v) { return v.is_in_layers() && !v.has_experts; }},
    {rows::M::dense_own_stream, rows::L::transient, "gradient of the residual, dense layer", 1,
     "copy of the rank's own tokens", rows::kSource,
     "Transformer Engine module/layernorm_linear.py; published peaks do not tell",
     [](const MemoryView& v) { return v.is_in_layers() && !v.has_experts; }},
    {rows::M::recomputed_layer, rows::L::transient, "recomputed layer", 0,
     "all tensors of the layer or group that is recomputed", rows::kMeasured,
     "five published peaks, 2 % too low",
     [](const MemoryView& v) { return v.is_in_layers() && rows::is_recomputed(v); }},
    {rows::M::offload_on_its_way, rows::L::transient, "tensors that stay here", 1,
     "layer's: those of the last one are not offloaded", rows::kMeasured,
     "Megatron-Core fine_grained_activation_offload.py; docs/planner.md, dry runs",
     [](const MemoryView& v) { return !v.knobs().offload.empty(); }},
    {rows::M::offload_loaded_back, rows::L::transient, "tensors that are loaded back", 0,
     "those of a virtual stage whose backward is next when the loss is computed", rows::kMeasured,
     "Megatron-Core fine_grained_activation_offload.py; docs/planner.md, dry runs",
     [](const MemoryView& v) {
       return !v.knobs().offload.empty() && v.has_head && rows::is_at_head(v) &&
              num_virtual_stages(v.run) > 1;
     }},
    {rows::M::kept_at_head, rows::L::transient, "inputs of the final norm and the head", 4,
     "bytes for each column of each token", rows::kSource,
     "Megatron-Core final norm and output layer; mean error of 77 published peaks 1.70 % without "
     "it, 1.69 with",
     [](const MemoryView& v) { return rows::is_at_head(v) && !has_titan_autocast(v.run); }},
    {rows::M::logits, rows::L::transient, "logits", 2, "bytes each, twice that in 32 bits",
     rows::kMeasured, "mean error of 77 published peaks 3.9 % without it, 1.7 with",
     [](const MemoryView& v) {
       return rows::is_at_head(v) && rows::is_megatron(v) &&
              v.knobs().cross_entropy != spec::CrossEntropy::chunked;
     }},
    {rows::M::logit_gradients, rows::L::transient, "gradient of the head's input", 4,
     "bytes for each column of each gathered token: the input and its gradient", rows::kSource,
     "Megatron-Core tensor_parallel/layers.py; 27 published peaks are within 0.6 %",
     [](const MemoryView& v) {
       return v.memory.moment == kMomentOfHead ||
              (rows::is_at_loss(v) && v.knobs().cross_entropy == spec::CrossEntropy::chunked);
     }},
    {rows::M::head_gradient, rows::L::transient, "gradient of the head", 0,
     "of its weights and in their type, where it is not added to the others at once",
     rows::kMeasured, "Megatron-Core tensor_parallel/layers.py; docs/planner.md, dry runs",
     [](const MemoryView& v) {
       return rows::is_megatron(v) && v.memory.moment == kMomentOfHead &&
              !v.knobs().gradient_accumulation_fusion && !rows::is_lora(v);
     }},
    {rows::M::softmax, rows::L::transient, "probabilities of the loss", 4,
     "bytes for each logit, until its backward; as much for each depth of multi-token prediction",
     rows::kMeasured,
     "Megatron-Core tensor_parallel/cross_entropy.py; mean error of 77 published peaks 7.1 % "
     "without it, 1.7 with",
     [](const MemoryView& v) {
       return v.has_head && rows::keeps_probabilities(v) &&
              (rows::is_at_head(v) ||
               (v.is_in_layers() && rows::is_recomputed(v) && v.run.model->mtp.depth > 0));
     }},
    {rows::M::compiled_logits, rows::L::transient, "wide logits of the compiled loss", 4,
     "bytes for each logit: compiled code makes probabilities beside them", rows::kMeasured,
     "Megatron-Core fusions/fused_cross_entropy.py under torch.compile; docs/planner.md, dry runs",
     [](const MemoryView& v) {
       return rows::is_at_loss(v) && rows::is_megatron(v) && !has_wide_elements(v.knobs()) &&
              v.knobs().cross_entropy == spec::CrossEntropy::native;
     }},
    {rows::M::titan_logits, rows::L::transient, "logits of torchtitan's loss", 0,
     "4 to 16 bytes each, by how the loss is compiled and split", rows::kSource,
     "torchtitan 0.2.2 components/loss.py; traces on one H100",
     [](const MemoryView& v) { return rows::is_titan(v) && rows::is_at_head(v); }},
    {rows::M::gradient_copy, rows::L::transient, "copy of narrow gradients for the update", 4,
     "bytes for each parameter that the rank updates", rows::kSource,
     "Megatron-Core optimizer/distrib_optimizer.py (_copy_model_grads_to_main_grads)",
     [](const MemoryView& v) { return v.memory.moment == kMomentOfUpdate; }},
    {rows::M::captured_attention, rows::L::graph_pool, "pool of graphs", 0,
     "of the peak: what captured attention saves, where no step ran before the capture",
     rows::kMeasured, "one published run: 4 % with it, 12 % without", nullptr},
    {rows::M::fragments, rows::L::fragments, "fragments", 0.02, "of the peak", rows::kAssumed,
     "with room published runs reserve 2.8 % or more over what they have allocated", nullptr},
    {rows::M::beside_pytorch, rows::L::beside_pytorch, "CUDA's context and communicators",
     2560 * rows::kMiB, "whatever runs", rows::kAssumed,
     "three published runs with an all-to-all have 4.0 to 6.3 GiB beside what they reserve",
     nullptr},
    {rows::M::cached_share, rows::L::cached, "blocks that the allocator keeps", 0.06,
     "of what is allocated, as far as there is room", rows::kMeasured,
     "published runs that state both reserved and allocated memory", nullptr},
    {rows::M::cached_least, rows::L::cached, "blocks that it keeps at least", 512 * rows::kMiB,
     "beside that share", rows::kMeasured,
     "published runs that state both reserved and allocated memory", nullptr},
};

constexpr bool is_in_order_of_memory_rules() {
  for (size_t i = 0; i < std::size(kMemoryRows); ++i) {
    if (kMemoryRows[i].rule != static_cast<MemoryRule>(i)) return false;
  }
  return std::size(kMemoryRows) == static_cast<size_t>(MemoryRule::count);
}
static_assert(is_in_order_of_memory_rules(), "kMemoryRows must be in the order of MemoryRule");

/// The figure of a row that has one.
template <MemoryRule kRule>
constexpr double figure_of() {
  constexpr double kFigure = kMemoryRows[static_cast<size_t>(kRule)].figure;
  static_assert(kFigure > 0, "the row has no figure");
  return kFigure;
}

}  // namespace moetune::tuner::planner
