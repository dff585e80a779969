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
/// The halves of a layer in the order in which they run: what mixes the tokens and the feed-forward
/// one, or one of them alone.
std::vector<BlockKind> halves_of(const LayerDims& dims);

/// What goes into the model: rows of the embedding's table.
Block embedding();
/// The residual stream at the borders of layers and virtual stages. What crosses them is below.
Block residual();
/// Attention with grouped queries: norm, projections, QK-norm, RoPE, core attention, output
/// projection onto the residual. Its output may have a gate.
Block gqa();
/// Multi-head latent attention: queries, keys and values are projected by way of latents, and a
/// part of each key is the same for all heads.
Block mla();
/// Gated DeltaNet: a causal convolution and a scan along the sequence instead of attention.
Block gdn();
/// Mamba-2, likewise.
Block mamba();
/// The dense feed-forward half of a layer.
Block dense_mlp();
/// The Mixture-of-Experts half: router, dispatch, experts, combine; shared experts beside them.
Block moe();
/// Where a depth of multi-token prediction begins and ends.
Block mtp();
Block mtp_head();
/// Final norm, head and loss, whose gradients are taken at once: linear cross-entropy in chunks of
/// tokens.
Block head();

// Where the halves of a layer meet its borders. A layer with one half has no `mid`: that half reads
// the layer's input and writes the next one's.
/// What the feed-forward half adds to, and what the mixer has written.
Ref feed_forward_input(const LayerDims& dims);
Ref mixer_output(const LayerDims& dims);
/// What the layer as a whole holds, such as the buffer of its output: the first half begins it, the
/// last half ends it. In the backward pass the first half runs last: it ends what the layer saved.
void begin_layer(SegmentWriter& w);
void end_layer(SegmentWriter& w);
void end_layer_backward(SegmentWriter& w);

/// What every mixer has: the norm of its input, the rows that travel between tensor-parallel ranks.
std::span<const ParamRow> mixer_params();
std::span<const BufferRow> mixer_buffers();
void mixer_norm(SegmentWriter& w);
void mixer_norm_backward(SegmentWriter& w);

/// What lies between the projections. Forward: from rotated queries and keys to `attn_out`. Remake:
/// `attn_out` again where recomputation has dropped it, and what the gradients need from other
/// ranks. Backward: from `d_attn_out` to `d_qkv`.
void core_attention_forward(SegmentWriter& w, const BlockContext& context);
void core_attention_remake(SegmentWriter& w, const BlockContext& context);
void core_attention_backward(SegmentWriter& w, const BlockContext& context);
std::span<const BufferRow> core_attention_buffers();
/// The projection of attention's output onto the residual.
std::span<const ParamRow> attention_output_params();

/// The norm of every feed-forward half.
std::span<const ParamRow> feed_forward_params();
std::span<const BufferRow> feed_forward_buffers();
void feed_forward_norm(SegmentWriter& w);
void feed_forward_norm_backward(SegmentWriter& w);

/// Shared experts, placed in the MoE block where they hide its first transfer. Their forward pass
/// also adds the layer's residual.
void shared_experts_forward(SegmentWriter& w);
void shared_experts_backward(SegmentWriter& w);
std::span<const ParamRow> shared_experts_params();
std::span<const BufferRow> shared_experts_buffers();

/// A depth of multi-token prediction (DeepSeek-AI 2024, arXiv 2412.19437, section 2.2).
struct MtpDepth {
  int64_t number = 0;
  bool is_last = true;  ///< no other one goes on from it
};
/// The end of the stream and the embedding of the token that was predicted there, each with a norm,
/// side by side, become the input of the depth's layers.
Segment mtp_forward(const BlockContext& context, const MtpDepth& depth);
Segment mtp_backward(const BlockContext& context, const MtpDepth& depth);
/// A norm of its own, the model's head, the loss of one token further than before.
Segment mtp_head_forward(const BlockContext& context, const MtpDepth& depth);

/// What heads share.
struct HeadParts {
  ParamKind norm;
  ParamKind norm_bias;
  Ref targets;     ///< of a whole micro-batch
  bool is_joined;  ///< multi-token prediction goes on from its input, and ends that
};
void head_and_loss(SegmentWriter& w, const BlockContext& context, const HeadParts& parts);
std::span<const ParamRow> head_params();
std::span<const BufferRow> head_buffers();

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

/// Parts of the update, outside of micro-batches. They are written as if every rank updated all
/// that it holds; passes/distributed_optimizer.cpp then gives each rank its shard.
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
