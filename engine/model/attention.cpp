// The attention half of a layer: norm, projections, QK-norm, RoPE, context-parallel gathering of
// keys and values, core attention, output projection onto the residual.
#include <cmath>

#include "engine/model/layer.h"

namespace moetune::engine {
namespace {

using spec::RecomputeModule;

constexpr std::initializer_list<Part> kGraphParts = {Part::input, Part::block, Part::attn};

}  // namespace

void Layer::attention_forward(LayerState& state, Pass label) {
  GraphCapture graph(rank_, spec::GraphScope::attn, label,
                     [&] { return state.addresses(kGraphParts); });
  const auto& dims = state.dims;
  const auto& model = rank_.trial.model;
  const int64_t e = rank_.element_bytes;
  norm_forward(Op::attn_norm, label, state[Buf::input], attn_norm_, state[Buf::attn_norm_out],
               state[Buf::attn_norm_rstd], dims);
  linear_forward(Op::qkv_proj, label, qkv_, state[Buf::attn_norm_out], state[Buf::qkv], false,
                 dims);
  Tensor q = state[Buf::qkv].columns(0, dims.q);
  Tensor k = state[Buf::qkv].columns(dims.q, dims.kv);
  if (model.has_qk_norm) {
    const spec::OpCost cost = spec::op_cost(Op::qk_norm, label, dims, e);
    run_op(rank_, Op::qk_norm, label, cost, [&] {
      rank_.backend.rms_norm({q, q_norm_.weight, state[Buf::q_rot], state[Buf::q_rstd], dims.heads,
                              model.rms_norm_eps});
    });
    run_op(rank_, Op::qk_norm, label, cost, [&] {
      rank_.backend.rms_norm({k, k_norm_.weight, state[Buf::k_rot], state[Buf::k_rstd],
                              dims.kv_heads, model.rms_norm_eps});
    });
    q = state[Buf::q_rot];
    k = state[Buf::k_rot];
  }
  const spec::OpCost rope_cost = spec::op_cost(Op::rope, label, dims, e);
  run_op(rank_, Op::rope, label, rope_cost, [&] {
    rank_.backend.rope(
        {q, tables_.rope_cos, tables_.rope_sin, tables_.positions, dims.heads, false});
  });
  run_op(rank_, Op::rope, label, rope_cost, [&] {
    rank_.backend.rope(
        {k, tables_.rope_cos, tables_.rope_sin, tables_.positions, dims.kv_heads, false});
  });
  gather_kv(state, label);
  core_attention(state, label);
  run_op(rank_, Op::attn_residual, label, spec::op_cost(Op::attn_residual, label, dims, e), [&] {
    rank_.backend.copy({state[Buf::input], state[Buf::mid], false});
  });
  linear_forward(Op::o_proj, label, o_, state[Buf::attn_out], state[Buf::mid], true, dims);
  graph.close();
}

// Rows of a context-parallel rank lie sequence by sequence; gathered they lie rank by rank and are
// brought into position order, so that causal attention sees contiguous keys.
void Layer::gather_kv(LayerState& state, Pass label) {
  const auto& dims = state.dims;
  if (dims.cp == 1) return;
  const int64_t e = rank_.element_bytes;
  const Tensor k =
      rank_.trial.model.has_qk_norm ? state[Buf::k_rot] : state[Buf::qkv].columns(dims.q, dims.kv);
  const Tensor v = state[Buf::qkv].columns(dims.q + dims.kv, dims.kv);
  const spec::OpCost pack_cost = spec::op_cost(Op::kv_pack, label, dims, e);
  run_op(rank_, Op::kv_pack, label, pack_cost, [&] {
    rank_.backend.copy({k, state[Buf::kv_local].columns(0, dims.kv), false});
  });
  run_op(rank_, Op::kv_pack, label, pack_cost, [&] {
    rank_.backend.copy({v, state[Buf::kv_local].columns(dims.kv, dims.kv), false});
  });
  join_streams(rank_, Stream::context, Stream::compute);
  run_comm(rank_, Op::kv_gather, label, spec::Group::cp, [&](int64_t ready_ns) {
    return rank_.comms.cp->all_gather(state[Buf::kv_local].data, state[Buf::kv_gathered].data,
                                      state[Buf::kv_local].bytes(), ready_ns);
  });
  join_streams(rank_, Stream::compute, Stream::context);
  run_op(rank_, Op::kv_reorder, label, spec::op_cost(Op::kv_reorder, label, dims, e), [&] {
    rank_.backend.gather_rows({state[Buf::kv_gathered], state[Buf::kv_full], tables_.kv_order, 1});
  });
}

kernels::AttentionArgs Layer::attention_args(LayerState& state) const {
  const auto& dims = state.dims;
  const auto& model = rank_.trial.model;
  kernels::AttentionArgs args;
  args.q = model.has_qk_norm ? state[Buf::q_rot] : state[Buf::qkv].columns(0, dims.q);
  if (dims.cp > 1) {
    args.k = state[Buf::kv_full].columns(0, dims.kv);
    args.v = state[Buf::kv_full].columns(dims.kv, dims.kv);
  } else {
    args.k = model.has_qk_norm ? state[Buf::k_rot] : state[Buf::qkv].columns(dims.q, dims.kv);
    args.v = state[Buf::qkv].columns(dims.q + dims.kv, dims.kv);
  }
  args.out = state[Buf::attn_out];
  args.lse = state[Buf::attn_lse];
  args.positions = tables_.positions.row_range(0, dims.tokens / dims.sequences);
  args.batch = dims.sequences;
  args.heads = dims.heads;
  args.kv_heads = dims.kv_heads;
  args.window = model.attention_window[static_cast<size_t>(layer_)];
  args.scale = 1.0 / std::sqrt(static_cast<double>(dims.head_dim));
  return args;
}

void Layer::core_attention(LayerState& state, Pass label) {
  run_op(rank_, Op::core_attn, label,
         spec::op_cost(Op::core_attn, label, state.dims, rank_.element_bytes),
         [&] { rank_.backend.attention(attention_args(state)); });
}

void Layer::attention_backward(LayerState& state, Tensor d_hidden) {
  GraphCapture graph(rank_, spec::GraphScope::attn, Pass::backward,
                     [&] { return state.addresses(kGraphParts, d_hidden.data); });
  const auto& dims = state.dims;
  const auto& knobs = rank_.trial.knobs;
  const auto& model = rank_.trial.model;
  const int64_t e = rank_.element_bytes;
  if (spec::recomputes(knobs, RecomputeModule::norm)) {
    norm_forward(Op::attn_norm, Pass::recompute, state[Buf::input], attn_norm_,
                 state[Buf::attn_norm_out], state[Buf::attn_norm_rstd], dims);
  }
  gather_kv(state, Pass::backward);
  if (spec::recomputes(knobs, RecomputeModule::core_attn)) core_attention(state, Pass::recompute);
  linear_backward(Op::o_proj, Op::o_bias, o_, state[Buf::attn_out], d_hidden,
                  state[Buf::d_attn_out], false, dims);

  const Tensor dq = state[Buf::d_qkv].columns(0, dims.q);
  const Tensor dk = state[Buf::d_qkv].columns(dims.q, dims.kv);
  const Tensor dv = state[Buf::d_qkv].columns(dims.q + dims.kv, dims.kv);
  // With context parallelism the gradients of all keys go where the gathered keys have been.
  const Tensor dk_all = dims.cp > 1 ? state[Buf::kv_gathered].columns(0, dims.kv) : dk;
  const Tensor dv_all = dims.cp > 1 ? state[Buf::kv_gathered].columns(dims.kv, dims.kv) : dv;
  run_op(rank_, Op::core_attn, Pass::backward,
         spec::op_cost(Op::core_attn, Pass::backward, dims, e), [&] {
           rank_.backend.attention_backward(
               {attention_args(state), state[Buf::d_attn_out], dq, dk_all, dv_all});
         });
  if (dims.cp > 1) {
    run_op(rank_, Op::kv_reorder, Pass::backward,
           spec::op_cost(Op::kv_reorder, Pass::backward, dims, e), [&] {
             rank_.backend.gather_rows(
                 {state[Buf::kv_gathered], state[Buf::kv_full], tables_.kv_inverse, 1});
           });
    join_streams(rank_, Stream::context, Stream::compute);
    run_comm(rank_, Op::kv_gather, Pass::backward, spec::Group::cp, [&](int64_t ready_ns) {
      return rank_.comms.cp->reduce_scatter(state[Buf::kv_full].data, state[Buf::kv_local].data,
                                            state[Buf::kv_local].numel(), rank_.precision.element,
                                            ready_ns);
    });
    join_streams(rank_, Stream::compute, Stream::context);
    const spec::OpCost cost = spec::op_cost(Op::kv_pack, Pass::backward, dims, e);
    run_op(rank_, Op::kv_pack, Pass::backward, cost, [&] {
      rank_.backend.copy({state[Buf::kv_local].columns(0, dims.kv), dk, false});
    });
    run_op(rank_, Op::kv_pack, Pass::backward, cost, [&] {
      rank_.backend.copy({state[Buf::kv_local].columns(dims.kv, dims.kv), dv, false});
    });
  }
  const spec::OpCost rope_cost = spec::op_cost(Op::rope, Pass::backward, dims, e);
  run_op(rank_, Op::rope, Pass::backward, rope_cost, [&] {
    rank_.backend.rope(
        {dq, tables_.rope_cos, tables_.rope_sin, tables_.positions, dims.heads, true});
  });
  run_op(rank_, Op::rope, Pass::backward, rope_cost, [&] {
    rank_.backend.rope(
        {dk, tables_.rope_cos, tables_.rope_sin, tables_.positions, dims.kv_heads, true});
  });
  if (model.has_qk_norm) {
    const spec::OpCost cost = spec::op_cost(Op::qk_norm, Pass::backward, dims, e);
    run_op(rank_, Op::qk_norm, Pass::backward, cost, [&] {
      rank_.backend.rms_norm_backward({state[Buf::qkv].columns(0, dims.q), q_norm_.weight,
                                       state[Buf::q_rstd], dq, dq, q_norm_.grad, dims.heads,
                                       false});
    });
    run_op(rank_, Op::qk_norm, Pass::backward, cost, [&] {
      rank_.backend.rms_norm_backward({state[Buf::qkv].columns(dims.q, dims.kv), k_norm_.weight,
                                       state[Buf::k_rstd], dk, dk, k_norm_.grad, dims.kv_heads,
                                       false});
    });
  }
  linear_backward(Op::qkv_proj, Op::qkv_bias, qkv_, state[Buf::attn_norm_out], state[Buf::d_qkv],
                  state[Buf::d_attn_norm], false, dims);
  run_op(rank_, Op::attn_norm, Pass::backward,
         spec::op_cost(Op::attn_norm, Pass::backward, dims, e), [&] {
           rank_.backend.rms_norm_backward({state[Buf::input], attn_norm_.weight,
                                            state[Buf::attn_norm_rstd], state[Buf::d_attn_norm],
                                            d_hidden, attn_norm_.grad, 1, true});
         });
  graph.close();
}

}  // namespace moetune::engine
