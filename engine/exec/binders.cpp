// Each op's backend call: transposes, heads and scales come from the op, its pass and the layer's
// dims.
#include "engine/exec/binders.h"

#include <array>
#include <cmath>
#include <vector>

#include "engine/optim/adamw.h"

namespace moetune::engine {
namespace {

using kernels::GroupedGemmMode;
using plan::Op;

kernels::Activation activation_of(const Launch& l) {
  const std::string& name = l.exec.rank().trial.model.hidden_act;
  if (name == "gelu") return kernels::Activation::gelu;
  if (name == "gelu_tanh") return kernels::Activation::gelu_tanh;
  if (name == "relu") return kernels::Activation::relu;
  return kernels::Activation::silu;
}

Tensor as_column(const Tensor& tensor) { return tensor.reshape(tensor.numel(), 1); }

// {x, w, y, bias}, {dy, w, dx} or {dy, x, dw}.
kernels::GemmArgs product(const Launch& l) {
  if (l.is_wgrad()) return {l.t[0], l.t[1], l.t[2], true, false, l.instr.accumulate, {}};
  if (l.is_backward()) return {l.t[0], l.t[1], l.t[2], false, false, l.instr.accumulate, {}};
  const Tensor bias = l.t.size() > 3 ? l.t[3] : Tensor{};
  return {l.t[0], l.t[1], l.t[2], false, true, l.instr.accumulate, bias};
}

void linear(const Launch& l) { l.backend().gemm(product(l)); }

// Small GEMMs would leave a GPU idle and read the head's weights many times. There a chunk is one
// GEMM, so the chunk size changes the order of sums.
void head_linear(const Launch& l) {
  const kernels::GemmArgs whole = product(l);
  const int64_t count = l.t[0].rows;
  const int64_t tile = l.backend().prefers_small_products() ? spec::kLossTile : count;
  for (int64_t at = 0; at < count; at += tile) {
    const int64_t n = std::min(tile, count - at);
    kernels::GemmArgs part = whole;
    part.a = whole.a.row_range(at, n);
    if (l.is_wgrad()) {
      part.b = whole.b.row_range(at, n);
    } else {
      part.c = whole.c.row_range(at, n);
    }
    l.backend().gemm(part);
  }
}

// {dy, dbias}.
void bias(const Launch& l) { l.backend().bias_backward({l.t[0], l.t[1]}); }

// {x, w, out, rstd} or {x, w, rstd, dy, dx, dw}.
void norm(const Launch& l) {
  const int64_t heads = l.t[0].cols / l.t[1].cols;
  if (l.is_backward()) {
    l.backend().rms_norm_backward(
        {l.t[0], l.t[1], l.t[2], l.t[3], l.t[4], l.t[5], heads, l.instr.accumulate});
  } else {
    l.backend().rms_norm(
        {l.t[0], l.t[1], l.t[2], l.t[3], heads, l.exec.rank().trial.model.rms_norm_eps});
  }
}

// {x, cos, sin, positions}.
void rope(const Launch& l) {
  l.backend().rope(
      {l.t[0], l.t[1], l.t[2], l.t[3], l.t[0].cols / l.dims().head_dim, l.is_backward()});
}

// {from, to}.
void copy(const Launch& l) { l.backend().copy({l.t[0], l.t[1], l.instr.accumulate}); }

// {x, index, out}.
void reorder(const Launch& l) { l.backend().gather_rows({l.t[0], l.t[2], l.t[1], 1}); }

// {q, k, v, out, lse, positions}; backward also {dout, dq, dk, dv}. In a ring the last operand is
// the positions of the block's keys.
void attention(const Launch& l) {
  const plan::LayerDims& d = l.dims();
  kernels::AttentionArgs args;
  args.q = l.t[0];
  args.k = l.t[1];
  args.v = l.t[2];
  args.out = l.t[3];
  args.lse = l.t[4];
  args.positions = l.t[5];
  args.batch = d.sequences;
  args.heads = d.heads;
  args.kv_heads = d.kv_heads;
  args.window = d.window;
  args.scale = 1.0 / std::sqrt(static_cast<double>(d.head_dim));
  if (d.is_ring) args.key_positions = l.t.back();
  if (l.is_backward()) {
    l.backend().attention_backward({args, l.t[6], l.t[7], l.t[8], l.t[9], l.instr.accumulate});
  } else {
    l.backend().attention(args);
  }
}

// {out, lse, part's out, part's lse}.
void attn_merge(const Launch& l) {
  l.backend().attention_merge({l.t[0], l.t[1], l.t[2], l.t[3], l.dims().heads});
}

// {x, out} or {x, dout, dx}.
void act(const Launch& l) {
  if (l.is_backward()) {
    l.backend().gated_act_backward({{l.t[0], {}, {}, {}, activation_of(l)}, l.t[1], l.t[2], {}});
  } else {
    l.backend().gated_act({l.t[0], {}, l.t[1], {}, activation_of(l)});
  }
}

// {probs (logits before), lse, indices, weights, counts, probability sums, token counts or none,
// counts or none} or {probs, lse, indices, weights, dweights, dlogits, aux scale or none}.
void router(const Launch& l) {
  const auto& trial = l.exec.rank().trial;
  if (l.is_backward()) {
    kernels::RouterBackwardArgs args;
    args.probs = l.t[0];
    args.lse = l.t[1];
    args.indices = l.t[2];
    args.weights = l.t[3];
    args.dweights = l.t[4];
    args.dlogits = l.t[5];
    args.aux_scale = l.t[6];
    args.z_scale = trial.training.z_loss_coeff / spec::tokens_per_step(trial.training);
    args.normalize = trial.model.normalizes_topk;
    l.backend().router_backward(args);
    return;
  }
  kernels::RouterArgs args;
  args.logits = l.t[0];
  args.probs = l.t[0];
  args.lse = l.t[1];
  args.indices = l.t[2];
  args.weights = l.t[3];
  args.counts = l.t[4];
  args.prob_sums = l.t[5];
  args.normalize = trial.model.normalizes_topk;
  l.backend().router(args);
  if (!l.t[6].is_null()) l.backend().copy({l.t[7], l.t[6], false});
}

// Sequence-level load-balancing loss: mean over sequences of E / (K S) * sum_e counts_e * mean
// prob_e (the sequence-wise form of Fedus et al. 2021, eq. 4), and z loss: mean over tokens of the
// squared log-sum-exp (Zoph et al. 2022, eq. 5). Both are means over the global batch, so no layout
// changes them. {sums or none, lse or none, load balance or none, z loss or none}.
void aux_loss(const Launch& l) {
  const plan::LayerDims& d = l.dims();
  const auto& training = l.exec.rank().trial.training;
  kernels::AuxLossArgs args;
  if (!l.t[1].is_null()) {
    args.lse = l.t[1];
    args.z_scale = training.z_loss_coeff / spec::tokens_per_step(training);
    args.z_loss = static_cast<double*>(l.t[3].data);
  }
  if (!l.t[0].is_null()) {
    const auto seq = static_cast<double>(training.seq_length);
    args.sums = l.t[0];
    args.scale = training.aux_loss_coeff / static_cast<double>(training.global_batch_size) *
                 static_cast<double>(d.experts) / (static_cast<double>(d.topk) * seq * seq);
    // Every rank that shares the sequences' tokens has the whole sum.
    args.loss_share = 1.0 / static_cast<double>(d.sequence_ranks());
    args.load_balance = static_cast<double*>(l.t[2].data);
  }
  l.backend().aux_loss(args);
}

// {indices, indices of slices}.
void expand_experts(const Launch& l) {
  l.backend().expand_experts({l.t[0], l.t[1], l.dims().etp, l.dims().local_experts});
}

// {indices, slot maps, chunk counts, offsets or none, indices}: the order of sending, for the
// forward and for the backward chunks, each from the indices.
void route_plan(const Launch& l) {
  const plan::LayerDims& d = l.dims();
  const int64_t num_forward = d.expert_ranks > 1 ? d.chunks_forward : 1;
  const int64_t num_backward = d.expert_ranks > 1 ? d.chunks_backward : 1;
  const auto map = [&](int64_t row) { return as_column(l.t[1].row_range(row, 1)); };
  kernels::RoutePlanArgs args;
  args.indices = l.t[0];
  args.order = map(0);
  args.position = map(1);
  args.counts = l.t[2].row_range(0, num_forward);
  args.num_chunks = num_forward;
  args.offsets = l.t[3];
  l.backend().route_plan(args);
  args.indices = l.t[4];
  args.order = map(2);
  args.position = map(3);
  args.counts = l.t[2].row_range(num_forward, num_backward);
  args.num_chunks = num_backward;
  args.offsets = {};
  l.backend().route_plan(args);
}

// {tokens' rows, slots' rows, order, position}: rows of tokens to slots.
void to_slots(const Launch& l) {
  l.backend().gather_rows({l.t[0], l.t[1], l.t[2], l.dims().slots_per_token(), l.t[3]});
}
// {slots' rows, tokens' rows, position}: added up.
void from_slots(const Launch& l) {
  l.backend().combine_rows({l.t[0], l.t[1], l.t[2], l.dims().slots_per_token()});
}
void permute(const Launch& l) { l.is_backward() ? from_slots(l) : to_slots(l); }
void unpermute(const Launch& l) { l.is_backward() ? to_slots(l) : from_slots(l); }
// {from, to, index}: copies the number of a chosen expert to each of its slots; backward adds the
// numbers of the slots up.
void permute_probs(const Launch& l) {
  const int64_t etp = l.dims().etp;
  if (etp > 1 && l.is_backward()) {
    l.backend().combine_rows({as_column(l.t[0]), as_column(l.t[1]), l.t[2], etp});
  } else {
    l.backend().gather_rows({as_column(l.t[0]), as_column(l.t[1]), l.t[2], etp});
  }
}

// {rows as they arrive, canonical rows, arrival}, or the way back.
void into_order(const Launch& l) {
  if (l.t[0].rows > 0) l.backend().scatter_rows({l.t[0], l.t[1], l.t[2]});
}
void out_of_order(const Launch& l) {
  if (l.t[1].rows > 0) l.backend().gather_rows({l.t[0], l.t[1], l.t[2], 1});
}
void sort_rows(const Launch& l) { l.is_backward() ? out_of_order(l) : into_order(l); }
void unsort_rows(const Launch& l) { l.is_backward() ? into_order(l) : out_of_order(l); }

// {x, w, y, rows or none, offsets}, {dy, w, dx, rows or none, offsets} or {dy, x, dw, offsets}.
void expert_linear(const Launch& l) {
  kernels::GroupedGemmArgs args;
  if (l.is_wgrad()) {
    args = {GroupedGemmMode::wgrad, l.t[1], l.t[0], l.t[2], {}, l.t[3]};
  } else if (l.is_backward()) {
    args = {GroupedGemmMode::dgrad, l.t[2], l.t[0], l.t[1], l.t[3], l.t[4]};
  } else {
    args = {GroupedGemmMode::forward, l.t[0], l.t[2], l.t[1], l.t[3], l.t[4]};
  }
  l.backend().grouped_gemm(args);
}

// {x, probs, out, rows or none} or {x, probs, dout, dx, dprobs, rows or none}.
void expert_act(const Launch& l) {
  const Tensor& rows = l.t.back();
  // A chunk's list may be empty: nothing to do. Without chunks there is no list: all rows count.
  const bool is_list = l.instr.chunk >= 0 && l.exec.segment().num_chunks > 1;
  if ((is_list ? rows.rows : l.t[0].rows) == 0) return;
  if (l.is_backward()) {
    l.backend().gated_act_backward(
        {{l.t[0], l.t[1], {}, rows, activation_of(l)}, l.t[2], l.t[3], l.t[4]});
  } else {
    l.backend().gated_act({l.t[0], l.t[1], l.t[2], rows, activation_of(l)});
  }
}

// {table, tokens, out} or {dtable, tokens, dout}.
void embed(const Launch& l) {
  const plan::LayerDims& d = l.dims();
  if (l.is_backward()) {
    l.backend().embedding_backward({l.t[0], l.t[1], l.t[2], d.tp_rank * d.vocab, d.tp * d.vocab});
  } else {
    l.backend().embedding({l.t[0], l.t[1], l.t[2], d.tp_rank * d.vocab, d.tp * d.vocab});
  }
}

// {logits, targets, stats}.
void cross_entropy_stats(const Launch& l) {
  l.backend().cross_entropy_stats({l.t[0], l.t[1], l.t[2], l.dims().tp_rank * l.dims().vocab});
}

// {logits, targets, loss, stats of all shards or none}.
void cross_entropy(const Launch& l) {
  l.backend().cross_entropy(
      {l.t[0], l.t[1], 1.0 / spec::tokens_per_step(l.exec.rank().trial.training),
       static_cast<double*>(l.t[2].data), l.t[3], l.dims().tp_rank * l.dims().vocab});
}

void zero(const Launch& l) {
  for (const Tensor& tensor : l.t) l.backend().fill_zero(tensor.data, tensor.bytes());
}

// {squared norm, gradients...}.
void grad_norm(const Launch& l) {
  kernels::SquaredNormArgs args;
  args.dtype = l.exec.rank().precision.stat;
  args.result = static_cast<double*>(l.t[0].data);
  for (const Tensor& grad : l.t.subspan(1)) args.slices.push_back({grad.data, grad.numel()});
  l.backend().squared_norm(args);
}

// {weights, gradients, master weights, m, v}, repeated for each bucket. The norm is over all ranks,
// so all of them skip the same steps.
void adamw(const Launch& l) {
  const StepValues& values = l.exec.values();
  if (values.is_skipped()) return;
  std::vector<BucketSlice> slices;
  for (size_t i = 0; i < l.t.size(); i += 5) {
    const plan::Ref& weight = l.instr.refs[i];
    slices.push_back({static_cast<int>(weight.row), weight.col, l.t[i], l.t[i + 1], l.t[i + 2],
                      l.t[i + 3], l.t[i + 4]});
  }
  l.backend().adamw(adamw_args(l.exec.rank(), l.exec.params().plan(), slices, values.num_updates,
                               values.lr, values.grad_norm));
}

constexpr std::array kBinders = {
    std::pair{Op::embed, &embed},
    std::pair{Op::attn_norm, &norm},
    std::pair{Op::qkv_proj, &linear},
    std::pair{Op::qkv_bias, &bias},
    std::pair{Op::qk_norm, &norm},
    std::pair{Op::rope, &rope},
    std::pair{Op::kv_pack, &copy},
    std::pair{Op::kv_reorder, &reorder},
    std::pair{Op::core_attn, &attention},
    std::pair{Op::attn_merge, &attn_merge},
    std::pair{Op::o_proj, &linear},
    std::pair{Op::o_bias, &bias},
    std::pair{Op::attn_residual, &copy},
    std::pair{Op::mlp_norm, &norm},
    std::pair{Op::router_gemm, &linear},
    std::pair{Op::router, &router},
    std::pair{Op::aux_loss, &aux_loss},
    std::pair{Op::expand_experts, &expand_experts},
    std::pair{Op::moe_preprocess, &route_plan},
    std::pair{Op::permute, &permute},
    std::pair{Op::permute_probs, &permute_probs},
    std::pair{Op::sort_rows, &sort_rows},
    std::pair{Op::sort_probs, &sort_rows},
    std::pair{Op::expert_fc1, &expert_linear},
    std::pair{Op::expert_act, &expert_act},
    std::pair{Op::expert_fc2, &expert_linear},
    std::pair{Op::unsort_rows, &unsort_rows},
    std::pair{Op::unpermute, &unpermute},
    std::pair{Op::zero_norm_grad, &zero},
    std::pair{Op::zero_sums, &zero},
    std::pair{Op::shared_fc1, &linear},
    std::pair{Op::shared_act, &act},
    std::pair{Op::shared_fc2, &linear},
    std::pair{Op::mlp_fc1, &linear},
    std::pair{Op::mlp_act, &act},
    std::pair{Op::mlp_fc2, &linear},
    std::pair{Op::mlp_bias, &bias},
    std::pair{Op::ffn_residual, &copy},
    std::pair{Op::final_norm, &norm},
    std::pair{Op::lm_head, &head_linear},
    std::pair{Op::cross_entropy_stats, &cross_entropy_stats},
    std::pair{Op::cross_entropy, &cross_entropy},
    std::pair{Op::grad_norm, &grad_norm},
    std::pair{Op::adamw, &adamw},
    std::pair{Op::zero_grads, &zero},
};

constexpr auto kByOp = [] {
  std::array<Binder, static_cast<size_t>(Op::count)> table{};
  for (const auto& [op, binder] : kBinders) table[static_cast<size_t>(op)] = binder;
  return table;
}();

}  // namespace

Binder binder_of(Op op) { return kByOp[static_cast<size_t>(op)]; }

}  // namespace moetune::engine
