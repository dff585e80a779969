// The one vocabulary of work: every operation of a training step, with its FLOPs, bytes and
// communication. The engine runs these ops, the trace is labelled with them, the cost model prices
// them and the report explains them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/plan/buffers.h"
#include "engine/plan/layout.h"
#include "engine/spec/hardware_spec.h"
#include "engine/spec/plan_knobs.h"
#include "engine/spec/trial_spec.h"

namespace moetune::plan {

using spec::GraphScope;
using spec::HardwareSpec;
using spec::TrainingSpec;
using spec::Work;

enum class Op : uint8_t {
  embed,
  embed_positions,  ///< rows of a table of learned positions
  attn_norm,
  qkv_proj,
  qkv_bias,
  qk_norm,
  rope,
  kv_pack,
  kv_gather,
  kv_reorder,
  kv_shift,
  core_attn,
  attn_merge,
  attn_gate,  ///< attention's output times a sigmoid of what the projections gave beside it
  o_proj,
  o_bias,
  attn_residual,
  mla_q_down,
  mla_q_up,  ///< or all of the queries' projection, where they have no latent
  mla_kv_down,
  mla_kv_up,
  mla_latent_norm,
  mla_pack,       ///< keys of all heads from their own part and the one that is rotated
  head_exchange,  ///< a share of the sequence with all heads for all of it with a share of them
  gdn_in_proj,
  gdn_conv,
  gdn_gates,
  gdn_scan,
  gdn_norm,
  gdn_out_proj,
  mamba_in_proj,
  mamba_conv,
  mamba_gates,
  mamba_scan,
  mamba_norm,
  mamba_out_proj,
  tp_gather,   ///< tokens of all tensor-parallel ranks, before a matrix that is split by rows
  tp_scatter,  ///< sums of the ranks' shares of an output, each rank's tokens to itself
  mlp_norm,
  router_gemm,
  router_bias,
  router,
  zero_sums,  ///< what is added to later
  amax,       ///< the largest value of a tensor, for the scale of its narrow copy
  quantize,   ///< a narrow copy with its scales
  aux_loss_reduce,
  aux_loss,
  expand_experts,
  moe_preprocess,
  count_exchange,
  latent_down,  ///< to the width that experts work on
  permute,
  permute_probs,
  dispatch,
  sort_rows,
  sort_probs,
  expert_fc1,
  expert_act,
  expert_fc2,
  expert_bias,
  unsort_rows,
  combine,
  unpermute,
  latent_up,
  zero_norm_grad,
  shared_fc1,
  shared_act,
  shared_fc2,
  shared_gate,   ///< a number for each token
  shared_scale,  ///< the shared experts' output times a sigmoid of it
  mlp_fc1,
  mlp_act,
  mlp_fc2,
  mlp_bias,
  ffn_residual,
  mtp_norm,
  mtp_proj,
  mtp_slice,  ///< the rank's own tokens out of all
  final_norm,
  lm_head,
  cross_entropy_stats,
  vocab_gather,
  cross_entropy,
  pp_send,
  pp_recv,
  embedding_grad_reduce,
  grad_reduce,
  grad_norm,
  norm_reduce,
  adamw,
  param_gather,
  shard_gather,  ///< weights of a unit from the shards of its replicas
  shard_reduce,  ///< gradients of a unit to these shards
  loss_reduce,
  zero_grads,
  host_sync,
  finish_route,  ///< from the counts of all ranks: how many rows go where
  write_route,   ///< index lists for the rows that arrive
  to_host,       ///< what waits in the host's memory, out of the device's
  from_host,     ///< and back
  count
};

enum class Pass : uint8_t { forward, backward, wgrad, recompute, update, count };

enum class OpKind : uint8_t {
  compute,     ///< GEMMs and attention: bound by FLOPs
  memory,      ///< element-wise and row moves: bound by bytes
  dispatcher,  ///< packing, routing and control around the expert all-to-all
  collective,
  p2p,
  host,  ///< of the host, or of the link to its memory
};

/// Streams of a rank, in the order the timeline numbers them.
enum class Stream : uint8_t {
  compute,
  expert,
  context,
  data,
  pipeline_send,
  pipeline_recv,
  tensor,
  copy,  ///< from the host; of real devices only
  // What only plans know:
  weights,    ///< shards that become whole
  to_host,    ///< what waits in the host's memory
  from_host,  ///< and comes back
  count
};
constexpr auto kNumStreams = static_cast<size_t>(Stream::count);
const char* name_of(Stream stream);

struct OpRow {
  Op id;
  const char* name;
  OpKind kind;
  Stream stream;
  Group group;  ///< collectives and p2p; world otherwise
  Work work;
};
std::span<const OpRow> op_table();
const OpRow& op_row(Op op);
const char* name_of(Pass pass);
/// "core_attn.backward": the label in traces, op rows and reports. The text lives as long as the
/// program.
const char* op_label(Op op, Pass pass);
/// Row of a label, null for an unknown one.
const OpRow* find_op_label(std::string_view label);

/// Work of one launch. For communication `bytes` is what this rank sends.
struct OpCost {
  int64_t flops = 0;
  int64_t bytes = 0;
  /// GEMMs: the FLOPs of one row with each matrix. With few rows a GEMM is slower: at
  /// HardwareSpec::half_rows rows a matrix it has half of the rate.
  int64_t row_flops = 0;
  /// Of attention over millions of tokens: FLOPs beyond kMostFlops, which is what `flops` holds.
  double more_flops = 0;
  /// What a product computes in; those of 16 bits and more are as the program's precision says.
  spec::PrecisionRecipe recipe = spec::PrecisionRecipe::bf16;

  static constexpr int64_t kMostFlops = int64_t{1} << 62;
  [[nodiscard]] double all_flops() const { return static_cast<double>(flops) + more_flops; }
};

/// An operand as the cost sees it.
struct OperandShape {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t element_bytes = 0;
  bool is_updated = false;  ///< read and written
  int64_t index_row = 0;    ///< of an index buffer, which of its rows this is

  [[nodiscard]] int64_t numel() const { return rows * cols; }
};

/// Cost of one launch from the shapes of its operands, in the order in which the block gives them.
/// Bytes: every operand once, in its own type, updated ones twice. FLOPs: products 2 m n k; core
/// attention 2 per visible pair of query and key for each column of a head's queries and of its
/// output, backward three of the former and two of the latter (five products for two, Dao et al.
/// 2022); scans as scan_flops; else a fixed number an element of the largest operand.
OpCost op_cost(Op op, Pass pass, const LayerDims& dims, std::span<const OperandShape> operands);

/// FLOPs of Work::scan in a forward pass for each element of its first operand, which is what goes
/// along the sequence: twice as many in a backward pass. Convolution: 2 a tap. Gated DeltaNet: 8 a
/// value's column for each column of its head. Mamba-2: 7 for each number of its state. Both as
/// Megatron-LM counts (num_floating_point_operations in megatron/training/training.py): what the
/// chunks of today's kernels add is left out.
int64_t scan_flops(Op op, const LayerDims& dims);

/// Pairs of query and key that a rank's causal attention sees, all its sequences together: with all
/// keys, or with those that lie on the context-parallel rank `key_rank`. With a window each query
/// sees that many keys at most, so that most blocks of a ring are empty.
int64_t visible_pairs(const LayerDims& dims, std::optional<int64_t> key_rank = {});

/// The first of the ranks of a pipeline stage whose attention sees most, in all layers together.
int busiest_in_attention(const spec::TrialSpec& trial);

/// Bytes a second between a device and its host's memory, in one direction: four fifths of the
/// link's (assumed). A device without a stated link has PCIe 4.0 x16.
double host_link_bytes_per_s(const HardwareSpec& hardware);
/// What a copy of so many bytes takes there.
int64_t host_copy_ns(const HardwareSpec& hardware, const OpCost& cost);

/// What the host takes for work of that many bytes, in modelled time: two bytes a nanosecond, which
/// is what making index lists takes on one core (engine/exec/host_work.cpp).
int64_t host_work_ns(const OpCost& cost);

/// Duration of a kernel beside `num_collectives` collectives. Each of these holds comm_sm_ratio of
/// the multiprocessors, and the kernel slows down in proportion to those that are left. DeepEP's
/// dispatch and combine hold 20 of an H100's 132 (0.15) and slow the GEMMs beside them by about
/// 20 % (DeepSeek-AI 2024, section 3.2.2; DeepEP's README).
int64_t slowed_ns(const HardwareSpec& hardware, int64_t duration_ns, int num_collectives);

/// Whether it brings rows into the order in which they are sent: DeepEP and HybridEP take them as
/// they are.
bool is_before_sending(Op op);
/// Whether it sorts received rows by expert: HybridEP's kernels do it along with the exchange.
bool is_after_receiving(Op op);

/// What the update moves of each of a rank's weights: master weight and both moments are read and
/// written, the gradient read, the weight written.
int64_t update_bytes_per_element(const Precision& precision);

/// Whether it is a product that a recipe of 8 or 4 bits is for: one of the linear modules, neither
/// router nor head nor what multi-token prediction projects.
bool is_of_recipe(Op op);

/// Work of one launch as the time that a device takes for it by the roofline (Williams, Waterman &
/// Patterson 2009): max((flops + h row_flops) / peak, bytes / bandwidth), both times the efficiency
/// of such kernels, with h their half_rows. Nanoseconds; 0 on a machine without peaks.
double work_ns(const HardwareSpec& hardware, Work work, double flops, double bytes,
               double row_flops);
/// Time of one launch of an op: the same at the peak of what it computes in, and no less than the
/// floor. Narrow products, twice as fast, take twice as many rows to reach half of their rate.
int64_t roofline_ns(const HardwareSpec& hardware, Op op, const OpCost& cost);

}  // namespace moetune::plan
