// Walks the blocks' rows in the order of allocation, and works out the sizes that rows have in a
// layout.
#include "engine/plan/buffers.h"

#include <algorithm>
#include <array>

namespace moetune::plan {
namespace {

/// Sizes of what mixes the tokens of the layer.
void set_mixer(LayerDims& d, const ModelSpec& model, int64_t layer) {
  const bool has_latents = model.mla.kv_lora_rank > 0;
  d.rope_dim = has_latents ? model.mla.qk_rope_head_dim : model.head_dim;
  const auto set_heads = [&](int64_t kv_heads, int64_t head_dim, int64_t v_head_dim) {
    d.heads = model.num_heads / d.tp;
    d.kv_heads = kv_heads / d.tp;
    d.head_dim = head_dim;
    d.q = model.num_heads * head_dim / d.tp;
    d.kv = kv_heads * head_dim / d.tp;
    d.v = kv_heads * v_head_dim / d.tp;
    d.attn = model.num_heads * v_head_dim / d.tp;
  };
  switch (d.mixer) {
    case spec::Mixer::gqa:
      set_heads(model.num_kv_heads, model.head_dim, model.head_dim);
      d.gate = model.has_attention_gate ? d.q : 0;
      d.has_qk_norm = model.has_qk_norm;
      // Layers of multi-token prediction see all keys.
      if (layer < model.num_layers) d.window = model.attention_window[static_cast<size_t>(layer)];
      d.is_chunked = model.has_chunked_windows;
      return;
    case spec::Mixer::mla:
      set_heads(model.num_heads, model.mla.qk_head_dim(), model.mla.v_head_dim);
      d.q_lora = model.mla.q_lora_rank;
      d.kv_lora = model.mla.kv_lora_rank;
      d.index_heads = model.mla.index_heads;
      d.index_dim = model.mla.index_head_dim;
      return;
    case spec::Mixer::gdn:
      d.conv_kernel = model.gdn.conv_kernel;
      d.scan_heads = model.gdn.num_value_heads / d.tp;
      d.scan_keys = model.gdn.key_size() / d.tp;
      d.scan_values = model.gdn.value_size() / d.tp;
      d.scan_head_dim = model.gdn.value_head_dim;
      d.scan_state = model.gdn.key_head_dim;
      return;
    case spec::Mixer::mamba:
      d.conv_kernel = model.mamba.conv_kernel;
      d.scan_heads = model.mamba.num_heads / d.tp;
      d.scan_keys = model.mamba.num_groups * model.mamba.state_size / d.tp;
      d.scan_values = model.mamba.inner_size() / d.tp;
      d.scan_head_dim = model.mamba.head_dim;
      d.scan_state = model.mamba.state_size;
      return;
    case spec::Mixer::none:
      return;
  }
}

}  // namespace

bool is_dropped(const BufferRow& row, const Knobs& knobs) {
  if (!row.dropped_by) return false;
  if (recomputes(knobs, *row.dropped_by)) return true;
  // Dropping the experts' fc1 output drops what is computed from it, too.
  return row.id == Buf::act_out && recomputes(knobs, RecomputeModule::experts);
}

LayerDims layer_dims(const ModelSpec& model, const Knobs& knobs, int64_t seq_length, int64_t layer,
                     int rank) {
  LayerDims d;
  const Layout layout = layout_of(knobs);
  d.tp_rank = layout.tp_rank(rank);
  d.cp_rank = layout.cp_rank(rank);
  d.tp = knobs.tensor_model_parallel_size;
  d.cp = knobs.context_parallel_size;
  d.is_ring = spec::is_ring_attention(knobs);
  d.etp = knobs.expert_tensor_parallel_size;
  d.expert_ranks = knobs.expert_model_parallel_size * d.etp;
  d.sequences = knobs.micro_batch_size;
  d.context_tokens = knobs.micro_batch_size * seq_length;
  d.block_tokens = d.context_tokens / d.cp;
  d.tokens = d.block_tokens / d.tp;
  d.own_sequences = std::max<int64_t>(1, d.sequences / d.tp);
  d.hidden = model.hidden_size;
  const spec::LayerKind kind = kind_of_layer(model, layer);
  d.mixer = kind.mixer;
  d.has_feed_forward = kind.feed_forward != spec::FeedForward::none;
  d.is_moe = kind.feed_forward == spec::FeedForward::moe;
  set_mixer(d, model, layer);
  d.experts = model.num_experts;
  d.local_experts = model.num_experts / knobs.expert_model_parallel_size;
  d.topk = model.experts_per_token;
  d.received_rows = d.tokens * d.slots_per_token();
  d.moe_ffn = model.moe_ffn_size / d.etp;
  d.latent = model.moe_latent_size;
  d.fc1_halves = model.has_gated_mlp ? 2 : 1;
  d.shared_ffn = model.shared_ffn_size / d.tp;
  d.ffn = model.ffn_size / d.tp;
  d.vocab = model.vocab_rows() / d.tp;
  d.learned_positions = model.has_learned_positions ? model.max_position_embeddings : 0;
  d.mtp_depth = model.mtp.depth;
  d.ce_chunk = std::min(knobs.linear_ce_chunk_tokens, d.block_tokens);
  d.chunks_forward = knobs.ep_chunks_forward;
  d.chunks_backward = knobs.ep_chunks_backward;
  d.has_layer_norm = model.has_layer_norm;
  d.has_shared_gate = model.has_shared_gate;
  d.has_own_head = !model.ties_embeddings || knobs.pipeline_model_parallel_size > 1;
  return d;
}

std::vector<PositionRange> local_ranges(const LayerDims& dims) {
  return local_ranges(dims, dims.cp_rank);
}

std::vector<PositionRange> local_ranges(const LayerDims& dims, int64_t place) {
  return local_ranges(dims.cp, place, dims.context_tokens / std::max<int64_t>(dims.sequences, 1));
}

Place place_of(const BufferRow& row, const LayerDims& dims, const Knobs& knobs, PassKind pass) {
  if (row.keep == Keep::wire) return Place::communication;
  if (row.keep == Keep::backward_wire) {
    return pass == PassKind::backward ? Place::communication : Place::absent;
  }
  if (row.is_forward_only != nullptr && row.is_forward_only(dims)) {
    return pass == PassKind::backward ? Place::absent : Place::workspace;
  }
  switch (pass) {
    case PassKind::forward:
      if (row.keep == Keep::backward) return Place::absent;
      if (row.keep == Keep::saved && !is_dropped(row, knobs)) return Place::saved;
      return Place::workspace;
    case PassKind::forward_dropped:
      if (row.keep == Keep::backward) return Place::absent;
      if (row.part == Part::input || row.part == Part::head || row.part == Part::grad) {
        return row.keep == Keep::saved ? Place::saved : Place::workspace;
      }
      return Place::workspace;
    case PassKind::backward:
      if (row.keep == Keep::backward || row.keep == Keep::both) return Place::workspace;
      if (row.keep == Keep::saved && is_dropped(row, knobs)) return Place::workspace;
      return Place::absent;
  }
  return Place::absent;
}

std::optional<spec::Offload> offload_of(const BufferRow& row, const LayerDims& dims) {
  // What comes into a layer goes to the norm of its first half.
  if (row.id == Buf::input && dims.mixer == spec::Mixer::none) return spec::Offload::mlp_norm;
  // A norm and the projections behind it are one module of it, and what that is given goes.
  const bool has_fused_norm = dims.mixer != spec::Mixer::mla;
  if (row.offloaded_by == spec::Offload::attn_norm && has_fused_norm) {
    return spec::Offload::qkv_linear;
  }
  // What attention reads is there once more by heads, and that copy goes.
  if (row.id == Buf::qkv && dims.exchanges_heads) return std::nullopt;
  return row.offloaded_by;
}

int64_t buffer_bytes(const BufferRow& row, const LayerDims& dims, const Precision& precision) {
  return row.rows(dims) * row.cols(dims) * base::size_of(precision.of(row.content));
}

std::array<TableRow, static_cast<size_t>(Table::count)> tables_of(const LayerDims& dims,
                                                                  int64_t seq_length,
                                                                  int64_t num_micro_batches) {
  const int64_t step_tokens = dims.block_tokens * num_micro_batches;
  const bool is_reordered = dims.is_gathered() || dims.exchanges_heads;
  const int64_t keys = is_reordered ? dims.context_tokens : 0;
  const int64_t num_blocks = dims.is_ring ? dims.cp : 0;
  return {{{Table::tokens, "tokens", Content::index, step_tokens, 1},
           {Table::targets, "targets", Content::index, step_tokens, 1},
           {Table::positions, "positions", Content::index, dims.block_tokens, 1},
           {Table::rope_cos, "rope_cos", Content::stat, seq_length, dims.rope_dim / 2},
           {Table::rope_sin, "rope_sin", Content::stat, seq_length, dims.rope_dim / 2},
           {Table::kv_order, "kv_order", Content::index, keys, 1},
           {Table::kv_inverse, "kv_inverse", Content::index, keys, 1},
           {Table::ring_positions, "ring_positions", Content::index, num_blocks,
            dims.is_ring ? dims.block_tokens / dims.sequences : 0},
           {Table::mtp_targets, "mtp_targets", Content::index, step_tokens, dims.mtp_depth}}};
}

}  // namespace moetune::plan
