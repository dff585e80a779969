// The blocks that steps are made of, one file each: what a block computes forward and backward, in
// which order, with which buffers and parameters.
#pragma once

#include <set>
#include <span>
#include <utility>
#include <vector>

#include "engine/plan/segment_writer.h"

namespace moetune::plan {

/// What a block declares: how its two halves run, its parameters and buffers. Rows stand in the
/// block's file; those of all blocks are the tables that param_row and buffer_row look into. Parts
/// that two blocks have are declared by both.
struct Block {
  BlockKind kind;
  Segment (*forward)(const BlockContext&);
  Segment (*backward)(const BlockContext&);  ///< null: with forward
  std::vector<std::span<const ParamRow>> params;
  std::vector<std::span<const BufferRow>> buffers;
};
const Block& block_of(BlockKind kind);
/// Parts of a layer that the block's buffers belong to, in the order in which they begin.
std::vector<Part> parts_of(const Block& block);
/// The two halves of a layer.
std::pair<BlockKind, BlockKind> halves_of(const LayerDims& dims);

/// What goes into the model: rows of the embedding's table.
Block embedding();
/// The residual stream at the borders of layers and virtual stages. What crosses them is below.
Block residual();
/// Attention with grouped queries: norm, projections, QK-norm, RoPE, core attention, output
/// projection onto the residual `mid`. Forward begins the layer (its output's buffer among others),
/// backward ends it.
Block gqa();
/// The dense feed-forward half of a layer, from `mid` to the next layer's input.
Block dense_mlp();
/// The Mixture-of-Experts half: router, dispatch, experts, combine; shared experts beside them.
Block moe();
/// Final norm, head and loss, whose gradients are taken at once: linear cross-entropy in chunks of
/// tokens.
Block head();

/// What lies between the projections: from rotated queries and keys to `attn_out`; `attn_out` made
/// again where recomputation has dropped it, and whatever the gradients need of other ranks; from
/// `d_attn_out` to `d_qkv`.
void core_attention_forward(SegmentWriter& w, const BlockContext& context);
void core_attention_remake(SegmentWriter& w, const BlockContext& context);
void core_attention_backward(SegmentWriter& w, const BlockContext& context);
std::span<const BufferRow> core_attention_buffers();

/// The norm of every feed-forward half.
std::span<const ParamRow> feed_forward_params();
std::span<const BufferRow> feed_forward_buffers();

/// Shared experts, written into the MoE block where they hide its first transfer; forward with the
/// layer's residual.
void shared_experts_forward(SegmentWriter& w);
void shared_experts_backward(SegmentWriter& w);
std::span<const ParamRow> shared_experts_params();
std::span<const BufferRow> shared_experts_buffers();

/// The border between virtual stage `number` and the next one, as seen from one of them.
struct Border {
  int number = 0;
  int peer = 0;  ///< the other's index in the pipeline group
};
/// Messages between virtual stages.
Segment receive_forward(const BlockContext& context, const Border& border);
Segment send_forward(const BlockContext& context, const Border& border);
Segment receive_backward(const BlockContext& context, const Border& border);
Segment send_backward(const BlockContext& context, const Border& border);

/// Parts of the update, outside of micro-batches, as where every rank updates all that it holds;
/// passes/distributed_optimizer.cpp shares that out.
struct UpdateContext {
  const BlockContext& block;
  const ParamPlan& params;
  const Layout& layout;
  int num_micro_batches = 1;
  int num_message_slots = 0;
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
