// The dense feed-forward half of a layer.
#include "engine/model/layer.h"

namespace moetune::engine {

void Layer::mlp_forward(LayerState& state, Tensor out, Pass label) {
  const auto& dims = state.dims;
  const int64_t e = rank_.element_bytes;
  norm_forward(Op::mlp_norm, label, state[Buf::mid], mlp_norm_, state[Buf::mlp_norm_out],
               state[Buf::mlp_norm_rstd], dims);
  run_op(rank_, Op::ffn_residual, label, spec::op_cost(Op::ffn_residual, label, dims, e), [&] {
    rank_.backend.copy({state[Buf::mid], out, false});
  });
  linear_forward(Op::mlp_fc1, label, mlp_fc1_, state[Buf::mlp_norm_out], state[Buf::mlp_fc1], false,
                 dims);
  run_op(rank_, Op::mlp_act, label, spec::op_cost(Op::mlp_act, label, dims, e), [&] {
    rank_.backend.gated_act({state[Buf::mlp_fc1], {}, state[Buf::mlp_act], {}, activation_});
  });
  linear_forward(Op::mlp_fc2, label, mlp_fc2_, state[Buf::mlp_act], out, true, dims);
}

void Layer::mlp_backward(LayerState& state, Tensor d_hidden) {
  const auto& dims = state.dims;
  const int64_t e = rank_.element_bytes;
  linear_backward(Op::mlp_fc2, Op::mlp_bias, mlp_fc2_, state[Buf::mlp_act], d_hidden,
                  state[Buf::d_mlp_act], false, dims);
  run_op(rank_, Op::mlp_act, Pass::backward, spec::op_cost(Op::mlp_act, Pass::backward, dims, e),
         [&] {
           rank_.backend.gated_act_backward({{state[Buf::mlp_fc1], {}, {}, {}, activation_},
                                             state[Buf::d_mlp_act],
                                             state[Buf::d_mlp_fc1],
                                             {}});
         });
  linear_backward(Op::mlp_fc1, Op::mlp_bias, mlp_fc1_, state[Buf::mlp_norm_out],
                  state[Buf::d_mlp_fc1], state[Buf::d_mlp_norm], false, dims);
}

}  // namespace moetune::engine
