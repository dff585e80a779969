// The blocks that steps are made of, one file each: what a block computes forward and backward, in
// which order, with which buffers and parameters.
#pragma once

#include <set>
#include <utility>

#include "engine/plan/segment_writer.h"

namespace moetune::plan {

/// Attention with grouped queries: norm, projections, QK-norm, RoPE, core attention, output
/// projection onto the residual `mid`. Forward begins the layer (its output's buffer among others),
/// backward ends it.
Segment gqa_forward(const BlockContext& context);
Segment gqa_backward(const BlockContext& context);

/// What lies between the projections: from rotated queries and keys to `attn_out`; `attn_out` made
/// again where recomputation has dropped it, and whatever the gradients need of other ranks; from
/// `d_attn_out` to `d_qkv`.
void core_attention_forward(SegmentWriter& w, const BlockContext& context);
void core_attention_remake(SegmentWriter& w, const BlockContext& context);
void core_attention_backward(SegmentWriter& w, const BlockContext& context);

/// The dense feed-forward half of a layer, from `mid` to the next layer's input.
Segment dense_mlp_forward(const BlockContext& context);
Segment dense_mlp_backward(const BlockContext& context);

/// The Mixture-of-Experts half: router, dispatch, experts, combine; shared experts beside them.
Segment moe_forward(const BlockContext& context);
Segment moe_backward(const BlockContext& context);

/// Shared experts, written into the MoE block where they hide its first transfer; forward with the
/// layer's residual.
void shared_experts_forward(SegmentWriter& w);
void shared_experts_backward(SegmentWriter& w);

/// The border between virtual stage `number` and the next one, as seen from one of them.
struct Border {
  int number = 0;
  int peer = 0;  ///< the other's index in the pipeline group
};
/// What goes into a virtual stage and out of it: the embedding, or messages to the stages beside
/// it.
Segment embedding_forward(const BlockContext& context);
Segment embedding_backward(const BlockContext& context);
Segment receive_forward(const BlockContext& context, const Border& border);
Segment send_forward(const BlockContext& context, const Border& border);
Segment receive_backward(const BlockContext& context, const Border& border);
Segment send_backward(const BlockContext& context, const Border& border);

/// Final norm, head and loss, whose gradients are taken at once: linear cross-entropy in chunks of
/// tokens.
Segment head_forward(const BlockContext& context);

/// Parts of the update, outside of micro-batches, as where every rank updates all that it holds;
/// passes/distributed_optimizer.cpp shares that out.
struct UpdateContext {
  const BlockContext& block;
  const ParamPlan& params;
  const Layout& layout;
  int num_micro_batches = 1;
  /// The ends of borders that the rank sends over: peer and whether backward.
  std::set<std::pair<int, bool>> sends = {};
};
/// Everything that lives from the first step to the last.
Segment setup(const UpdateContext& context);
/// The step's tokens come in, sums and gradients are cleared.
Segment begin_step(const UpdateContext& context);
/// The gradients of one bucket are summed over the ranks that hold the same parameters.
Segment reduce_bucket(const UpdateContext& context, int bucket);
/// Those of an embedding that the first and the last stage hold.
Segment reduce_tied_embedding(const UpdateContext& context, int bucket);
Segment clip_gradients(const UpdateContext& context);
Segment update_weights(const UpdateContext& context);
/// The losses are summed up and read.
Segment end_step(const UpdateContext& context);
/// A captured graph of the whole iteration begins, or ends.
Segment iteration_graph(const BlockContext& context, bool is_open);

}  // namespace moetune::plan
