// Choices of a training run that plans price and the engine does not run yet, or names otherwise:
// one row each. What the engine runs stands in knobs.h. Spelled as Megatron-LM spells them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "engine/spec/knobs.h"
#include "engine/spec/named_set.h"
#include "engine/spec/names.h"

namespace moetune::spec {

/// What the products of the layers compute in. Weights, attention, router and head stay in bf16
/// (fp16, fp32) beside the narrow ones.
enum class PrecisionRecipe : uint8_t {
  bf16,
  fp16,
  fp32,
  fp8_current,    ///< one scale a tensor, from the tensor itself ("tensorwise")
  fp8_delayed,    ///< one scale a tensor, from the steps before
  fp8_blockwise,  ///< a scale for each block of 128 x 128 or 1 x 128
  mxfp8,          ///< a scale for each 32 elements
  nvfp4,          ///< 4 bits, a scale for each 16 elements
};

/// Whether products are in 8 bits or less.
constexpr bool is_product_narrow(PrecisionRecipe recipe) {
  return recipe != PrecisionRecipe::bf16 && recipe != PrecisionRecipe::fp16 &&
         recipe != PrecisionRecipe::fp32;
}

enum class Dispatcher : uint8_t { alltoall, allgather, deepep, hybridep };

/// Who holds weights and gradients.
enum class Fsdp : uint8_t {
  none,
  megatron,  ///< units gathered from and scattered to all replicas (ZeRO-3)
  torch,     ///< the same by PyTorch's FSDP2
};

/// What is computed again in the backward pass, Megatron's modules.
enum class PlanRecompute : uint8_t {
  core_attn,
  layernorm,
  mla_up_proj,
  moe_act,
  mlp,
  moe,
  shared_experts,
  gdn_norm_out,
  full,
};

/// Which layers full recomputation takes.
enum class RecomputeMethod : uint8_t {
  uniform,  ///< all, in groups: the input of each group is kept
  block,    ///< the first of each virtual stage; the others keep all of theirs
};

/// Parts of a step that are captured as a graph.
enum class PlanGraph : uint8_t {
  attn,
  mamba,
  mlp,
  moe,
  moe_router,
  moe_preprocess,
  full_iteration,
};

/// Tensors that are kept in the host's memory between forward and backward.
enum class Offload : uint8_t {
  attn_norm,
  qkv_linear,
  core_attn,
  attn_proj,
  mlp_norm,
  expert_fc1,
  moe_act,
};

enum class CrossEntropy : uint8_t {
  unfused,
  native,   ///< Megatron's fused loss
  te,       ///< Transformer Engine's
  chunked,  ///< linear cross-entropy: logits exist for a chunk of tokens only
};

enum class PlanCp : uint8_t { p2p, all_gather, a2a };

enum class OptimizerKind : uint8_t { adam, muon, sgd };

/// Of moments, gradients and master weights.
enum class StateType : uint8_t { fp32, bf16, fp16, fp8 };

enum class TrainingTask : uint8_t { pretrain, sft, lora };

template <>
struct NameTable<PrecisionRecipe> {
  static constexpr std::array kRows = {
      Named<PrecisionRecipe>{PrecisionRecipe::bf16, "bf16"},
      Named<PrecisionRecipe>{PrecisionRecipe::fp16, "fp16"},
      Named<PrecisionRecipe>{PrecisionRecipe::fp32, "fp32"},
      Named<PrecisionRecipe>{PrecisionRecipe::fp8_current, "fp8-current-scaling"},
      Named<PrecisionRecipe>{PrecisionRecipe::fp8_delayed, "fp8-delayed"},
      Named<PrecisionRecipe>{PrecisionRecipe::fp8_blockwise, "fp8-blockwise"},
      Named<PrecisionRecipe>{PrecisionRecipe::mxfp8, "mxfp8"},
      Named<PrecisionRecipe>{PrecisionRecipe::nvfp4, "nvfp4"}};
};
template <>
struct NameTable<Dispatcher> {
  static constexpr std::array kRows = {Named<Dispatcher>{Dispatcher::alltoall, "alltoall"},
                                       Named<Dispatcher>{Dispatcher::allgather, "allgather"},
                                       Named<Dispatcher>{Dispatcher::deepep, "deepep"},
                                       Named<Dispatcher>{Dispatcher::hybridep, "hybridep"}};
};
template <>
struct NameTable<Fsdp> {
  static constexpr std::array kRows = {Named<Fsdp>{Fsdp::none, "none"},
                                       Named<Fsdp>{Fsdp::megatron, "megatron"},
                                       Named<Fsdp>{Fsdp::torch, "torch"}};
};
template <>
struct NameTable<PlanRecompute> {
  static constexpr std::array kRows = {
      SetMember<PlanRecompute>{PlanRecompute::core_attn, "core_attn"},
      SetMember<PlanRecompute>{PlanRecompute::layernorm, "layernorm"},
      SetMember<PlanRecompute>{PlanRecompute::mla_up_proj, "mla_up_proj"},
      SetMember<PlanRecompute>{PlanRecompute::moe_act, "moe_act"},
      SetMember<PlanRecompute>{PlanRecompute::mlp, "mlp"},
      SetMember<PlanRecompute>{PlanRecompute::moe, "moe"},
      SetMember<PlanRecompute>{PlanRecompute::shared_experts, "shared_experts"},
      SetMember<PlanRecompute>{PlanRecompute::gdn_norm_out, "gdn_norm_out"},
      SetMember<PlanRecompute>{PlanRecompute::full, "full", true}};
};
template <>
struct NameTable<RecomputeMethod> {
  static constexpr std::array kRows = {Named<RecomputeMethod>{RecomputeMethod::uniform, "uniform"},
                                       Named<RecomputeMethod>{RecomputeMethod::block, "block"}};
};
template <>
struct NameTable<PlanGraph> {
  static constexpr std::array kRows = {
      SetMember<PlanGraph>{PlanGraph::attn, "attn"},
      SetMember<PlanGraph>{PlanGraph::mamba, "mamba"},
      SetMember<PlanGraph>{PlanGraph::mlp, "mlp"},
      SetMember<PlanGraph>{PlanGraph::moe, "moe"},
      SetMember<PlanGraph>{PlanGraph::moe_router, "moe_router"},
      SetMember<PlanGraph>{PlanGraph::moe_preprocess, "moe_preprocess"},
      SetMember<PlanGraph>{PlanGraph::full_iteration, "full_iteration", true}};
};
template <>
struct NameTable<Offload> {
  static constexpr std::array kRows = {SetMember<Offload>{Offload::attn_norm, "attn_norm"},
                                       SetMember<Offload>{Offload::qkv_linear, "qkv_linear"},
                                       SetMember<Offload>{Offload::core_attn, "core_attn"},
                                       SetMember<Offload>{Offload::attn_proj, "attn_proj"},
                                       SetMember<Offload>{Offload::mlp_norm, "mlp_norm"},
                                       SetMember<Offload>{Offload::expert_fc1, "expert_fc1"},
                                       SetMember<Offload>{Offload::moe_act, "moe_act"}};
};
template <>
struct NameTable<CrossEntropy> {
  static constexpr std::array kRows = {Named<CrossEntropy>{CrossEntropy::unfused, "unfused"},
                                       Named<CrossEntropy>{CrossEntropy::native, "native"},
                                       Named<CrossEntropy>{CrossEntropy::te, "te"},
                                       Named<CrossEntropy>{CrossEntropy::chunked, "chunked"}};
};
template <>
struct NameTable<PlanCp> {
  static constexpr std::array kRows = {Named<PlanCp>{PlanCp::p2p, "p2p"},
                                       Named<PlanCp>{PlanCp::all_gather, "all_gather"},
                                       Named<PlanCp>{PlanCp::a2a, "a2a"}};
};
template <>
struct NameTable<OptimizerKind> {
  static constexpr std::array kRows = {Named<OptimizerKind>{OptimizerKind::adam, "adam"},
                                       Named<OptimizerKind>{OptimizerKind::muon, "muon"},
                                       Named<OptimizerKind>{OptimizerKind::sgd, "sgd"}};
};
template <>
struct NameTable<StateType> {
  static constexpr std::array kRows = {
      Named<StateType>{StateType::fp32, "fp32"}, Named<StateType>{StateType::bf16, "bf16"},
      Named<StateType>{StateType::fp16, "fp16"}, Named<StateType>{StateType::fp8, "fp8"}};
};
template <>
struct NameTable<TrainingTask> {
  static constexpr std::array kRows = {Named<TrainingTask>{TrainingTask::pretrain, "pretrain"},
                                       Named<TrainingTask>{TrainingTask::sft, "sft"},
                                       Named<TrainingTask>{TrainingTask::lora, "lora"}};
};

using PlanRecomputeSet = NamedSet<PlanRecompute>;
using PlanGraphSet = NamedSet<PlanGraph>;
using OffloadSet = NamedSet<Offload>;

/// A configuration of a run as plans see it: plain old data, so that many can be looked at. The
/// stages of a hand-written pipeline layout stand beside it (PlanSpec).
struct PlanKnobs {
  // Sizes, as in Knobs.
  int32_t tp = 1;
  int32_t cp = 1;
  int32_t dp = 1;
  int32_t pp = 1;
  int32_t vpp = 1;
  int32_t ep = 1;
  int32_t etp = 1;
  int32_t micro_batch_size = 1;
  int32_t first_stage_layers = 0;  ///< 0: even split
  int32_t last_stage_layers = 0;   ///< 0: even split

  PrecisionRecipe precision = PrecisionRecipe::bf16;
  PlanRecomputeSet recompute;
  RecomputeMethod recompute_method = RecomputeMethod::uniform;  ///< counts where recompute is full
  int32_t recompute_num_layers = 1;  ///< of a group, or of a virtual stage the first
  PlanGraphSet cuda_graphs;
  OffloadSet offload;
  Dispatcher dispatcher = Dispatcher::alltoall;
  Fsdp fsdp = Fsdp::none;
  PlanCp cp_comm_type = PlanCp::p2p;
  CrossEntropy cross_entropy = CrossEntropy::native;
  OptimizerKind optimizer = OptimizerKind::adam;
  StateType params_dtype = StateType::bf16;  ///< of weights and activations
  StateType exp_avg = StateType::fp32;
  StateType exp_avg_sq = StateType::fp32;
  StateType main_params = StateType::fp32;
  StateType main_grads = StateType::fp32;  ///< of the gradient buffer
  TrainingTask task = TrainingTask::pretrain;
  bool sequence_parallel = true;  ///< counts where tp > 1
  bool distributed_optimizer = true;
  bool precision_aware_optimizer = false;
  bool overlap_grad_reduce = true;
  bool overlap_param_gather = true;
  bool tp_comm_overlap = false;
  bool overlap_moe_expert_parallel_comm = false;
  bool delay_wgrad_compute = false;
  bool moe_grouped_gemm = true;
  bool moe_permute_fusion = true;
  bool fused_grouped_mlp = false;  ///< products and activation of experts in one kernel
  bool fp8_attention = false;
  bool fp8_param_gather = false;  ///< weights of the products are kept and gathered in FP8 alone
  bool fused_attention = true;
  bool fused_activation = true;
  bool gradient_accumulation_fusion = true;
  float optimizer_offload_ratio = 0;    ///< of the optimizer's state, in the host's memory
  float capacity_factor = 0;            ///< 0: dropless
  bool pad_to_capacity = false;         ///< counts where there is a capacity
  int32_t optimizer_instances = 1;      ///< replicas of the distributed optimizer's shards
  int32_t lora_rank = 32;               ///< of adapters, where the task is lora
  int32_t cuda_graph_warmup_steps = 3;  ///< before parts of a step are captured
  /// Of DeepEP and HybridEP; 0: what they take by themselves.
  int32_t moe_flex_dispatcher_num_sms = 0;
  /// Queues between host and device, of the environment; 8 is CUDA's own.
  int32_t cuda_device_max_connections = 8;

  bool operator==(const PlanKnobs&) const = default;

  /// Whether each layer is recomputed by itself, from its own input.
  [[nodiscard]] bool recomputes_each_layer() const {
    return recompute.has(PlanRecompute::full) && recompute_method == RecomputeMethod::uniform &&
           recompute_num_layers == 1;
  }
  /// Whether some layers of a virtual stage may be recomputed and others keep their tensors.
  [[nodiscard]] bool recomputes_block() const {
    return recompute.has(PlanRecompute::full) && recompute_method == RecomputeMethod::block;
  }
  /// Ranks of a pipeline stage.
  [[nodiscard]] int64_t stage_ranks() const { return int64_t{tp} * cp * dp; }
  /// Ranks that hold the model once.
  [[nodiscard]] int64_t replica_ranks() const { return int64_t{tp} * cp * pp; }
  [[nodiscard]] int64_t world_size() const { return stage_ranks() * pp; }
  /// Ranks that hold the same slice of the dense weights.
  [[nodiscard]] int64_t dense_copies() const { return int64_t{cp} * dp; }
  /// Whether no rank holds less of the model than another, but for shards of FSDP.
  [[nodiscard]] bool has_replicas_only() const { return replica_ranks() == 1 && ep == 1; }
  /// Ranks that hold the same slice of the same experts, at least 1.
  [[nodiscard]] int64_t expert_copies() const {
    return std::max<int64_t>(stage_ranks() / (int64_t{ep} * etp), 1);
  }
  /// Sizes by which a rank's slice of a layer is cut: tensors, sequences, experts, their tensors.
  [[nodiscard]] std::array<int32_t, 4> slice_sizes() const { return {tp, cp, ep, etp}; }
  /// Of tokens of whole sequences those that one of the ranks has that share them.
  [[nodiscard]] double own_tokens(double tokens) const { return tokens / cp; }
  /// Whether ranks that share sequences exchange heads for tokens before attention and back.
  [[nodiscard]] bool exchanges_heads() const { return cp > 1 && cp_comm_type == PlanCp::a2a; }
};

/// Whether the optimizer keeps moments or master weights in fewer than 32 bits, which in Megatron
/// only the precision-aware one does.
inline bool has_narrow_state(const PlanKnobs& knobs) {
  return knobs.exp_avg != StateType::fp32 || knobs.exp_avg_sq != StateType::fp32 ||
         knobs.main_params != StateType::fp32;
}

inline void set_one_rank(PlanKnobs& knobs) {
  knobs.tp = knobs.cp = knobs.dp = knobs.pp = knobs.vpp = knobs.ep = knobs.etp = 1;
}

/// Gives all devices that the other sizes leave to dp. False if they do not divide `devices`: then
/// nothing changes.
inline bool set_dp_for(int64_t devices, PlanKnobs& knobs) {
  const int64_t replica = knobs.replica_ranks();
  if (replica < 1 || devices % replica != 0) return false;  // huge sizes may overflow
  knobs.dp = static_cast<int32_t>(devices / replica);
  return true;
}

using PlanKnobMember =
    std::variant<int32_t PlanKnobs::*, bool PlanKnobs::*, float PlanKnobs::*,
                 PrecisionRecipe PlanKnobs::*, PlanRecomputeSet PlanKnobs::*,
                 RecomputeMethod PlanKnobs::*, PlanGraphSet PlanKnobs::*, OffloadSet PlanKnobs::*,
                 Dispatcher PlanKnobs::*, Fsdp PlanKnobs::*, PlanCp PlanKnobs::*,
                 CrossEntropy PlanKnobs::*, OptimizerKind PlanKnobs::*, StateType PlanKnobs::*,
                 TrainingTask PlanKnobs::*>;

/// One row of the table of what plans can choose.
struct PlanKnobRow {
  std::string_view name;    ///< JSON key; on the command line with dashes
  std::string_view values;  ///< what is allowed, for people
  std::string_view help;
  PlanKnobMember member;
  bool is_of_experts = false;  ///< it says nothing where there are none
};

std::span<const PlanKnobRow> plan_knob_table();
/// By name, with dashes or underscores; null when there is none.
const PlanKnobRow* find_plan_knob(std::string_view name);
std::string get_plan_knob(const PlanKnobs& knobs, const PlanKnobRow& row);
/// Whether both have the same value of a knob.
bool have_same(const PlanKnobRow& row, const PlanKnobs& a, const PlanKnobs& b);
/// Throws base::UsageError naming the knob, the value and what would be right.
void set_plan_knob(PlanKnobs& knobs, const PlanKnobRow& row, std::string_view text);
nlohmann::json to_json(const PlanKnobs& knobs);

}  // namespace moetune::spec
