// A layer's halves in order, with the allocation discipline the memory model relies on; see
// layer.h.
#include "engine/model/layer.h"

#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

using spec::ParamKind;
using spec::RecomputeModule;

kernels::Activation activation_of(const std::string& name) {
  if (name == "gelu") return kernels::Activation::gelu;
  if (name == "gelu_tanh") return kernels::Activation::gelu_tanh;
  if (name == "relu") return kernels::Activation::relu;
  return kernels::Activation::silu;
}

}  // namespace

Layer::Layer(RankContext& rank, BufferPlan& buffers, const Parameters& params,
             const SharedTables& tables, int64_t layer, RoutingObserver* observer)
    : rank_(rank),
      buffers_(buffers),
      params_(params),
      tables_(tables),
      layer_(layer),
      observer_(observer),
      is_moe_(rank.trial.model.is_moe_layer[static_cast<size_t>(layer)]),
      activation_(activation_of(rank.trial.model.hidden_act)),
      attn_norm_(norm(ParamKind::attn_norm)),
      q_norm_(norm(ParamKind::q_norm)),
      k_norm_(norm(ParamKind::k_norm)),
      mlp_norm_(norm(ParamKind::mlp_norm)) {
  constexpr auto kQkvBias = ParamKind::qkv_bias;
  constexpr auto kOutBias = ParamKind::o_bias;
  constexpr auto kFc1Bias = ParamKind::mlp_fc1_bias;
  constexpr auto kFc2Bias = ParamKind::mlp_fc2_bias;
  qkv_ = linear(ParamKind::qkv, &kQkvBias);
  o_ = linear(ParamKind::o_proj, &kOutBias);
  router_ = linear(ParamKind::router);
  mlp_fc1_ = linear(ParamKind::mlp_fc1, &kFc1Bias);
  mlp_fc2_ = linear(ParamKind::mlp_fc2, &kFc2Bias);
  shared_fc1_ = linear(ParamKind::shared_fc1);
  shared_fc2_ = linear(ParamKind::shared_fc2);
  expert_fc1_ = linear(ParamKind::expert_fc1);
  expert_fc2_ = linear(ParamKind::expert_fc2);
}

Layer::Linear Layer::linear(ParamKind weight, const ParamKind* bias) const {
  Linear made{params_.weight(weight, layer_), params_.grad(weight, layer_), {}, {}};
  if (bias != nullptr) {
    made.bias = params_.weight(*bias, layer_);
    made.bias_grad = params_.grad(*bias, layer_);
  }
  return made;
}

Layer::Norm Layer::norm(ParamKind kind) const {
  return {params_.weight(kind, layer_), params_.grad(kind, layer_)};
}

void Layer::forward(LayerState& state, Tensor out, PassKind pass, Pass label) {
  rank_.place.layer = static_cast<int32_t>(layer_);
  const Part ffn = is_moe_ ? Part::experts : Part::mlp;
  buffers_.allocate(state, Part::block, pass);
  buffers_.allocate(state, Part::attn, pass);
  attention_forward(state, label);
  buffers_.release_workspace(state, Part::attn, pass);

  buffers_.allocate(state, Part::route, pass);
  if (is_moe_) {
    moe_forward(state, out, pass, label);
  } else {
    buffers_.allocate(state, ffn, pass);
    mlp_forward(state, out, label);
  }
  buffers_.release_workspace(state, ffn, pass);
  buffers_.release_workspace(state, Part::route, pass);
  buffers_.release_workspace(state, Part::block, pass);
  rank_.place.layer = -1;
}

void Layer::backward(LayerState& state, Tensor d_hidden) {
  rank_.place.layer = static_cast<int32_t>(layer_);
  const Part ffn = is_moe_ ? Part::experts : Part::mlp;
  const auto& dims = state.dims;
  buffers_.allocate(state, Part::route, PassKind::backward);
  buffers_.allocate(state, ffn, PassKind::backward);
  if (spec::recomputes(rank_.trial.knobs, RecomputeModule::norm)) {
    norm_forward(Op::mlp_norm, Pass::recompute, state[Buf::mid], mlp_norm_,
                 state[Buf::mlp_norm_out], state[Buf::mlp_norm_rstd], dims);
  }
  if (is_moe_) {
    moe_backward(state, d_hidden);
  } else {
    mlp_backward(state, d_hidden);
  }
  run_op(rank_, Op::mlp_norm, Pass::backward,
         spec::op_cost(Op::mlp_norm, Pass::backward, dims, rank_.element_bytes), [&] {
           rank_.backend.rms_norm_backward({state[Buf::mid], mlp_norm_.weight,
                                            state[Buf::mlp_norm_rstd], state[Buf::d_mlp_norm],
                                            d_hidden, mlp_norm_.grad, 1, true});
         });
  buffers_.release_workspace(state, ffn, PassKind::backward);
  buffers_.release_workspace(state, Part::route, PassKind::backward);

  buffers_.allocate(state, Part::attn, PassKind::backward);
  attention_backward(state, d_hidden);
  buffers_.release_workspace(state, Part::attn, PassKind::backward);

  for (const Part part : {ffn, Part::route, Part::attn, Part::block, Part::input}) {
    buffers_.release_saved(state, part);
  }
  rank_.place.layer = -1;
}

void Layer::norm_forward(Op op, Pass label, Tensor x, const Norm& norm, Tensor out, Tensor rstd,
                         const spec::LayerDims& dims) {
  run_op(rank_, op, label, spec::op_cost(op, label, dims, rank_.element_bytes), [&] {
    rank_.backend.rms_norm({x, norm.weight, out, rstd, 1, rank_.trial.model.rms_norm_eps});
  });
}

void Layer::linear_forward(Op op, Pass label, const Linear& l, Tensor x, Tensor y, bool accumulate,
                           const spec::LayerDims& dims) {
  run_op(rank_, op, label, spec::op_cost(op, label, dims, rank_.element_bytes), [&] {
    rank_.backend.gemm({x, l.weight, y, false, true, accumulate, l.bias});
  });
}

void Layer::linear_backward(Op op, Op bias_op, const Linear& l, Tensor x, Tensor dy, Tensor dx,
                            bool accumulate, const spec::LayerDims& dims) {
  if (!l.bias.is_null()) {
    run_op(rank_, bias_op, Pass::backward,
           spec::op_cost(bias_op, Pass::backward, dims, rank_.element_bytes), [&] {
             rank_.backend.bias_backward({dy, l.bias_grad});
           });
  }
  const spec::OpCost cost = spec::op_cost(op, Pass::backward, dims, rank_.element_bytes);
  run_op(rank_, op, Pass::backward, cost, [&] {
    rank_.backend.gemm({dy, l.weight, dx, false, false, accumulate});
  });
  run_op(rank_, op, Pass::wgrad, cost, [&] {
    rank_.backend.gemm({dy, x, l.grad, true, false, true});
  });
}

}  // namespace moetune::engine
