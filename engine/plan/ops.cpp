// The op table and what each op costs; see ops.h. The order of a step's ops is in blocks/.
#include "engine/plan/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

namespace moetune::plan {
namespace {

using G = Group;
using K = OpKind;
using S = Stream;
using C = GraphScope;

constexpr std::array<OpRow, static_cast<size_t>(Op::count)> kOps = {{
    {Op::embed, "embed", K::memory, S::compute, G::world, C::none},
    {Op::attn_norm, "attn_norm", K::memory, S::compute, G::world, C::attn},
    {Op::qkv_proj, "qkv_proj", K::compute, S::compute, G::world, C::attn},
    {Op::qkv_bias, "qkv_bias", K::memory, S::compute, G::world, C::attn},
    {Op::qk_norm, "qk_norm", K::memory, S::compute, G::world, C::attn},
    {Op::rope, "rope", K::memory, S::compute, G::world, C::attn},
    {Op::kv_pack, "kv_pack", K::memory, S::compute, G::world, C::attn},
    {Op::kv_gather, "kv_gather", K::collective, S::context, G::cp, C::attn},
    {Op::kv_reorder, "kv_reorder", K::memory, S::compute, G::world, C::attn},
    {Op::core_attn, "core_attn", K::compute, S::compute, G::world, C::attn},
    {Op::o_proj, "o_proj", K::compute, S::compute, G::world, C::attn},
    {Op::o_bias, "o_bias", K::memory, S::compute, G::world, C::attn},
    {Op::attn_residual, "attn_residual", K::memory, S::compute, G::world, C::attn},
    {Op::mlp_norm, "mlp_norm", K::memory, S::compute, G::world, C::moe_router},
    {Op::router_gemm, "router_gemm", K::compute, S::compute, G::world, C::moe_router},
    {Op::router, "router", K::memory, S::compute, G::world, C::moe_router},
    {Op::aux_loss_reduce, "aux_loss_reduce", K::collective, S::context, G::cp, C::moe_router},
    {Op::aux_loss, "aux_loss", K::memory, S::compute, G::world, C::moe_router},
    {Op::moe_preprocess, "moe_preprocess", K::dispatcher, S::compute, G::world, C::moe_preprocess},
    {Op::count_exchange, "count_exchange", K::collective, S::expert, G::ep, C::moe_preprocess},
    {Op::permute, "permute", K::dispatcher, S::compute, G::world, C::moe_preprocess},
    {Op::permute_probs, "permute_probs", K::dispatcher, S::compute, G::world, C::moe_preprocess},
    {Op::dispatch, "dispatch", K::collective, S::expert, G::ep, C::none},
    {Op::sort_rows, "sort_rows", K::dispatcher, S::compute, G::world, C::none},
    {Op::sort_probs, "sort_probs", K::dispatcher, S::compute, G::world, C::none},
    {Op::expert_fc1, "expert_fc1", K::compute, S::compute, G::world, C::none},
    {Op::expert_act, "expert_act", K::memory, S::compute, G::world, C::none},
    {Op::expert_fc2, "expert_fc2", K::compute, S::compute, G::world, C::none},
    {Op::unsort_rows, "unsort_rows", K::dispatcher, S::compute, G::world, C::none},
    {Op::combine, "combine", K::collective, S::expert, G::ep, C::none},
    {Op::unpermute, "unpermute", K::dispatcher, S::compute, G::world, C::none},
    {Op::zero_norm_grad, "zero_norm_grad", K::memory, S::compute, G::world, C::none},
    {Op::shared_fc1, "shared_fc1", K::compute, S::compute, G::world, C::none},
    {Op::shared_act, "shared_act", K::memory, S::compute, G::world, C::none},
    {Op::shared_fc2, "shared_fc2", K::compute, S::compute, G::world, C::none},
    {Op::mlp_fc1, "mlp_fc1", K::compute, S::compute, G::world, C::none},
    {Op::mlp_act, "mlp_act", K::memory, S::compute, G::world, C::none},
    {Op::mlp_fc2, "mlp_fc2", K::compute, S::compute, G::world, C::none},
    {Op::mlp_bias, "mlp_bias", K::memory, S::compute, G::world, C::none},
    {Op::ffn_residual, "ffn_residual", K::memory, S::compute, G::world, C::none},
    {Op::final_norm, "final_norm", K::memory, S::compute, G::world, C::none},
    {Op::lm_head, "lm_head", K::compute, S::compute, G::world, C::none},
    {Op::cross_entropy, "cross_entropy", K::memory, S::compute, G::world, C::none},
    {Op::pp_send, "pp_send", K::p2p, S::pipeline_send, G::pp, C::none},
    {Op::pp_recv, "pp_recv", K::p2p, S::pipeline_recv, G::pp, C::none},
    {Op::embedding_grad_reduce, "embedding_grad_reduce", K::collective, S::data, G::embedding,
     C::none},
    {Op::grad_reduce, "grad_reduce", K::collective, S::data, G::dp_cp, C::none},
    {Op::grad_norm, "grad_norm", K::memory, S::compute, G::world, C::none},
    {Op::norm_reduce, "norm_reduce", K::collective, S::data, G::world, C::none},
    {Op::adamw, "adamw", K::memory, S::compute, G::world, C::none},
    {Op::param_gather, "param_gather", K::collective, S::data, G::dp_cp, C::none},
    {Op::loss_reduce, "loss_reduce", K::collective, S::data, G::world, C::none},
    {Op::zero_grads, "zero_grads", K::memory, S::compute, G::world, C::none},
    {Op::host_sync, "host_sync", K::host, S::compute, G::world, C::none},
}};

constexpr bool is_indexed_by_id() {
  for (size_t i = 0; i < kOps.size(); ++i) {
    if (kOps[i].id != static_cast<Op>(i)) return false;
  }
  return true;
}
static_assert(is_indexed_by_id(), "kOps must be in the order of Op");

constexpr size_t kNumPasses = static_cast<size_t>(Pass::count);
using Labels = std::array<std::array<std::string, kNumPasses>, kOps.size()>;

const Labels& labels() {
  static const Labels kLabels = [] {
    Labels made;
    for (size_t op = 0; op < kOps.size(); ++op) {
      for (size_t pass = 0; pass < kNumPasses; ++pass) {
        made[op][pass] = fmt::format("{}.{}", kOps[op].name, name_of(static_cast<Pass>(pass)));
      }
    }
    return made;
  }();
  return kLabels;
}

// A GEMM of [m,k] x [k,n]: a multiply-add is two FLOPs; operands read once, the result written
// once.
OpCost gemm(int64_t m, int64_t n, int64_t k, int64_t element_bytes) {
  return {2 * m * n * k, (m * k + k * n + m * n) * element_bytes};
}

// An op that touches `elements` and does a handful of FLOPs on each.
OpCost elementwise(int64_t elements, int64_t element_bytes, int64_t flops_per_element = 1) {
  return {elements * flops_per_element, elements * element_bytes};
}

// Experts: every local expert's weights are read once.
OpCost grouped(int64_t rows, int64_t experts, int64_t n, int64_t k, int64_t element_bytes) {
  return {2 * rows * n * k, (rows * k + experts * k * n + rows * n) * element_bytes};
}

}  // namespace

std::span<const OpRow> op_table() { return kOps; }
const OpRow& op_row(Op op) { return kOps[static_cast<size_t>(op)]; }

const char* name_of(Pass pass) {
  static constexpr std::array<const char*, kNumPasses> kNames = {"forward", "backward", "wgrad",
                                                                 "recompute", "update"};
  return kNames[static_cast<size_t>(pass)];
}

const char* name_of(Stream stream) {
  static constexpr std::array<const char*, static_cast<size_t>(Stream::count)> kNames = {
      "compute",       "expert parallel", "context parallel",
      "data parallel", "pipeline send",   "pipeline receive",
      "copy"};
  return kNames[static_cast<size_t>(stream)];
}

const char* op_label(Op op, Pass pass) {
  return labels()[static_cast<size_t>(op)][static_cast<size_t>(pass)].c_str();
}

const OpRow* find_op_label(std::string_view label) {
  static const std::map<std::string, const OpRow*, std::less<>> kByLabel = [] {
    std::map<std::string, const OpRow*, std::less<>> made;
    for (size_t op = 0; op < kOps.size(); ++op) {
      for (const std::string& text : labels()[op]) made[text] = &kOps[op];
    }
    return made;
  }();
  const auto found = kByLabel.find(label);
  return found == kByLabel.end() ? nullptr : found->second;
}

OpCost op_cost(Op op, Pass pass, const LayerDims& d, int64_t element_bytes) {
  const int64_t t = d.tokens;
  const int64_t h = d.hidden;
  const int64_t r = d.received_rows;
  const int64_t qkv = d.q + 2 * d.kv;
  const int64_t e = element_bytes;
  const bool is_backward = pass == Pass::backward;
  switch (op) {
    case Op::embed:
      return elementwise(2 * t * h, e);
    case Op::attn_norm:
    case Op::mlp_norm:
    case Op::final_norm:
      return elementwise((is_backward ? 4 : 2) * t * h, e, 2);
    case Op::qkv_proj:
      return gemm(t, qkv, h, e);
    case Op::qkv_bias:
      return elementwise(2 * t * qkv, e);
    case Op::qk_norm:
      return elementwise((is_backward ? 3 : 2) * t * (d.q + d.kv) / 2, e, 2);
    case Op::rope:
      return elementwise(t * (d.q + d.kv), e, 2);
    case Op::kv_pack:
      return elementwise(2 * t * d.kv, e);
    case Op::kv_gather:
      return {0, t * 2 * d.kv * (d.cp - 1) * e};
    case Op::kv_reorder:
      return elementwise(4 * d.context_tokens * d.kv, e);
    case Op::core_attn: {
      // Causal: each query sees on average half of the context; backward does five GEMMs for two.
      const int64_t pairs = t * d.context_tokens / std::max<int64_t>(d.sequences, 1) / 2;
      const int64_t flops = (is_backward ? 10 : 4) * pairs * d.q;
      return {flops, (2 * t * d.q + 2 * d.context_tokens * d.kv) * e * (is_backward ? 2 : 1)};
    }
    case Op::o_proj:
      return gemm(t, h, d.q, e);
    case Op::o_bias:
    case Op::attn_residual:
    case Op::ffn_residual:
      return elementwise(2 * t * h, e);
    case Op::router_gemm:
      return gemm(t, d.experts, h, e);
    case Op::router:
      return elementwise(2 * t * d.experts, e, 4);
    case Op::aux_loss_reduce:
      return {0, 2 * d.sequences * d.experts * e};
    case Op::aux_loss:
      return elementwise(t + 2 * d.sequences * d.experts, e, 2);
    case Op::moe_preprocess:
      return {0, 6 * t * d.topk * 4};
    case Op::count_exchange:
      return {0, (d.chunks_forward + d.chunks_backward) * d.experts * 4 * (d.ep - 1)};
    case Op::permute:
    case Op::permute_probs:
    case Op::unpermute:
      return elementwise(2 * t * d.topk * h, e);
    case Op::dispatch:
    case Op::combine:
      return {0, t * d.topk * (h + 1) * e * (d.ep - 1) / d.ep};
    case Op::sort_rows:
    case Op::sort_probs:
    case Op::unsort_rows:
      return elementwise(2 * r * h, e);
    case Op::expert_fc1:
      return grouped(r, d.local_experts, 2 * d.moe_ffn, h, e);
    case Op::expert_act:
      return elementwise((is_backward ? 5 : 3) * r * d.moe_ffn, e, 4);
    case Op::expert_fc2:
      return grouped(r, d.local_experts, h, d.moe_ffn, e);
    case Op::shared_fc1:
      return gemm(t, 2 * d.shared_ffn, h, e);
    case Op::shared_act:
      return elementwise((is_backward ? 5 : 3) * t * d.shared_ffn, e, 4);
    case Op::shared_fc2:
      return gemm(t, h, d.shared_ffn, e);
    case Op::mlp_fc1:
      return gemm(t, 2 * d.ffn, h, e);
    case Op::mlp_act:
      return elementwise((is_backward ? 5 : 3) * t * d.ffn, e, 4);
    case Op::mlp_fc2:
      return gemm(t, h, d.ffn, e);
    case Op::mlp_bias:
      return elementwise(2 * t * d.ffn, e);
    case Op::lm_head:
      return gemm(d.ce_chunk, d.vocab, h, e);
    case Op::cross_entropy:
      return elementwise(2 * d.ce_chunk * d.vocab, e, 4);
    case Op::pp_send:
    case Op::pp_recv:
      return {0, t * h * e};
    default:
      // The step's tail is sized by parameters, not by a layer: see blocks/update.cpp.
      return {};
  }
}

int64_t roofline_ns(const HardwareSpec& hardware, const OpCost& cost) {
  double seconds = 0;
  if (hardware.peak_flops_per_s > 0) {
    seconds = static_cast<double>(cost.flops) / hardware.peak_flops_per_s;
  }
  if (hardware.memory_bytes_per_s > 0) {
    seconds = std::max(seconds, static_cast<double>(cost.bytes) / hardware.memory_bytes_per_s);
  }
  return std::max(static_cast<int64_t>(seconds * 1e9), hardware.kernel_floor_ns);
}

}  // namespace moetune::plan
