// One decoder layer on one rank, with forward and backward written out: attention half
// (attention.cpp), dense feed-forward half (mlp.cpp) or Mixture-of-Experts half (moe.cpp). What is
// saved between the passes is exactly what the buffer table says.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/activations.h"
#include "engine/model/parameters.h"
#include "engine/run_op.h"

namespace moetune::engine {

/// Tables that every layer of a rank shares.
struct SharedTables {
  Tensor rope_cos;  ///< [seq, d/2]
  Tensor rope_sin;
  Tensor positions;   ///< i32 [T, 1]: position of each of this rank's tokens in its sequence
  Tensor kv_order;    ///< i32 [S, 1]: row of the gathered keys for each position; null without cp
  Tensor kv_inverse;  ///< i32 [S, 1]: the inverse
};

/// Receives every routing decision of a forward pass (not of recomputation); used to record the
/// routing profile.
class RoutingObserver {
 public:
  virtual ~RoutingObserver() = default;
  /// indices i32 [T,K] of MoE layer `layer`; called from the thread of `rank`.
  virtual void on_routing(int rank, int64_t layer, int64_t micro_batch, const int32_t* indices,
                          int64_t num_tokens, int64_t topk) = 0;
};

class Layer {
 public:
  Layer(RankContext& rank, BufferPlan& buffers, const Parameters& params,
        const SharedTables& tables, int64_t layer, RoutingObserver* observer);

  /// state[input] holds the input; writes the layer's output to `out` [T,h].
  void forward(LayerState& state, Tensor out, PassKind pass, Pass label);
  /// d_hidden [T,h] comes in as the gradient of the output and leaves as that of the input. Needs
  /// the state of a forward with PassKind::forward (under full recompute: made again by the
  /// caller). Releases what forward saved.
  void backward(LayerState& state, Tensor d_hidden);

  [[nodiscard]] bool is_moe() const { return is_moe_; }

 private:
  struct Linear {
    Tensor weight;  ///< [out, in]
    Tensor grad;
    Tensor bias;  ///< [1, out] or null
    Tensor bias_grad;
  };
  struct Norm {
    Tensor weight;
    Tensor grad;
  };

  void attention_forward(LayerState& state, Pass label);
  void attention_backward(LayerState& state, Tensor d_hidden);
  void gather_kv(LayerState& state, Pass label);
  void core_attention(LayerState& state, Pass label);
  kernels::AttentionArgs attention_args(LayerState& state) const;

  void norm_forward(Op op, Pass label, Tensor x, const Norm& norm, Tensor out, Tensor rstd,
                    const spec::LayerDims& dims);
  void mlp_forward(LayerState& state, Tensor out, Pass label);
  void mlp_backward(LayerState& state, Tensor d_hidden);

  void moe_forward(LayerState& state, Tensor out, PassKind pass, Pass label);
  void moe_backward(LayerState& state, Tensor d_hidden);
  void route(LayerState& state, Pass label);
  void preprocess(LayerState& state, PassKind pass, Pass label);
  void aux_losses(LayerState& state, Pass label);
  void begin_route(LayerState& state);
  void plan_route(LayerState& state);
  void observe_route(LayerState& state);
  void finish_route(LayerState& state, const std::vector<int32_t>& gathered);
  void write_route(LayerState& state);
  void move_rows(LayerState& state, Op op, Pass label, const ChunkRoute& chunk, bool is_to_experts,
                 bool moves_probs);
  void expert_forward_chunk(LayerState& state, const ChunkRoute& chunk, int64_t index, Pass label);
  void shared_forward(LayerState& state, Tensor out, Pass label);
  void shared_backward(LayerState& state, Tensor d_hidden);
  kernels::GroupedGemmArgs grouped(LayerState& state, const Linear& linear, Buf x, Buf y,
                                   kernels::GroupedGemmMode mode, int64_t chunk_row) const;
  Tensor chunk_rows(LayerState& state, bool is_forward, const ChunkRoute& chunk,
                    int64_t num_chunks) const;

  [[nodiscard]] Linear linear(spec::ParamKind weight, const spec::ParamKind* bias = nullptr) const;
  [[nodiscard]] Norm norm(spec::ParamKind kind) const;

  /// y (+)= x W^T (+ bias).
  void linear_forward(Op op, Pass label, const Linear& l, Tensor x, Tensor y, bool accumulate,
                      const spec::LayerDims& dims);
  /// dx (+)= dy W; W.grad += dy^T x; bias.grad += column sums.
  void linear_backward(Op op, Op bias_op, const Linear& l, Tensor x, Tensor dy, Tensor dx,
                       bool accumulate, const spec::LayerDims& dims);

  RankContext& rank_;
  BufferPlan& buffers_;
  const Parameters& params_;
  const SharedTables& tables_;
  int64_t layer_;
  RoutingObserver* observer_;
  bool is_moe_;
  kernels::Activation activation_;
  Norm attn_norm_, q_norm_, k_norm_, mlp_norm_;
  Linear qkv_, o_, router_, mlp_fc1_, mlp_fc2_, shared_fc1_, shared_fc2_, expert_fc1_, expert_fc2_;
};

}  // namespace moetune::engine
