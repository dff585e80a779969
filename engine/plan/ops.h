// The one vocabulary of work: every operation of a training step, with its FLOPs, bytes and
// communication. The engine runs these ops, the trace is labelled with them, the cost model prices
// them and the report explains them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/plan/buffers.h"
#include "engine/plan/layout.h"
#include "engine/spec/hardware_spec.h"
#include "engine/spec/trial_spec.h"

namespace moetune::plan {

using spec::GraphScope;
using spec::HardwareSpec;
using spec::TrainingSpec;

enum class Op : uint8_t {
  embed,
  attn_norm,
  qkv_proj,
  qkv_bias,
  qk_norm,
  rope,
  kv_pack,
  kv_gather,
  kv_reorder,
  core_attn,
  o_proj,
  o_bias,
  attn_residual,
  mlp_norm,
  router_gemm,
  router,
  aux_loss_reduce,
  aux_loss,
  moe_preprocess,
  count_exchange,
  permute,
  permute_probs,
  dispatch,
  sort_rows,
  sort_probs,
  expert_fc1,
  expert_act,
  expert_fc2,
  unsort_rows,
  combine,
  unpermute,
  zero_norm_grad,
  shared_fc1,
  shared_act,
  shared_fc2,
  mlp_fc1,
  mlp_act,
  mlp_fc2,
  mlp_bias,
  ffn_residual,
  final_norm,
  lm_head,
  cross_entropy,
  pp_send,
  pp_recv,
  embedding_grad_reduce,
  grad_reduce,
  grad_norm,
  norm_reduce,
  adamw,
  param_gather,
  loss_reduce,
  zero_grads,
  host_sync,
  count
};

enum class Pass : uint8_t { forward, backward, wgrad, recompute, update, count };

enum class OpKind : uint8_t {
  compute,     ///< GEMMs and attention: bound by FLOPs
  memory,      ///< element-wise and row moves: bound by bytes
  dispatcher,  ///< packing, routing and control around the expert all-to-all
  collective,
  p2p,
  host,
};

/// Streams of a rank, in the order the timeline numbers them.
enum class Stream : uint8_t {
  compute,
  expert,
  context,
  data,
  pipeline_send,
  pipeline_recv,
  copy,  ///< from the host; of real devices only
  count
};
const char* name_of(Stream stream);

struct OpRow {
  Op id;
  const char* name;
  OpKind kind;
  Stream stream;
  Group group;             ///< collectives and p2p; world otherwise
  GraphScope graph_scope;  ///< which captured graph its forward and backward belong to
};
std::span<const OpRow> op_table();
const OpRow& op_row(Op op);
const char* name_of(Pass pass);
/// "core_attn.backward": the label in traces, op rows and reports. The text lives as long as the
/// program.
const char* op_label(Op op, Pass pass);
/// Row of a label, null for an unknown one.
const OpRow* find_op_label(std::string_view label);

/// Work of one launch. For communication `bytes` is what this rank sends under balanced routing.
struct OpCost {
  int64_t flops = 0;
  int64_t bytes = 0;
};
/// Cost of one launch for the given dims; element_bytes 4 or 8. Ops of the update pass are sized by
/// parameters and are priced where they are written.
OpCost op_cost(Op op, Pass pass, const LayerDims& dims, int64_t element_bytes);

/// Time of one launch on a device by the roofline: max(flops / peak, bytes / bandwidth, floor).
int64_t roofline_ns(const HardwareSpec& hardware, const OpCost& cost);

}  // namespace moetune::plan
