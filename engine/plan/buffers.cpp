// Walks the blocks' rows in the order of allocation, and works out the sizes that rows have in a
// layout.
#include "engine/plan/buffers.h"

#include <algorithm>
#include <array>

namespace moetune::plan {
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
  d.q = model.q_size() / d.tp;
  d.kv = model.kv_size() / d.tp;
  d.heads = model.num_heads / d.tp;
  d.kv_heads = model.num_kv_heads / d.tp;
  d.head_dim = model.head_dim;
  d.experts = model.num_experts;
  d.local_experts = model.num_experts / knobs.expert_model_parallel_size;
  d.topk = model.experts_per_token;
  d.received_rows = d.tokens * d.slots_per_token();
  d.moe_ffn = model.moe_ffn_size / d.etp;
  d.shared_ffn = model.shared_ffn_size / d.tp;
  d.ffn = model.ffn_size / d.tp;
  d.vocab = model.vocab_size / d.tp;
  d.ce_chunk = std::min(knobs.linear_ce_chunk_tokens, d.block_tokens);
  d.chunks_forward = knobs.ep_chunks_forward;
  d.chunks_backward = knobs.ep_chunks_backward;
  d.window = model.attention_window[static_cast<size_t>(layer)];
  d.has_qk_norm = model.has_qk_norm;
  d.has_own_head = !model.ties_embeddings || knobs.pipeline_model_parallel_size > 1;
  d.is_moe = model.is_moe_layer[static_cast<size_t>(layer)];
  return d;
}

Place place_of(const BufferRow& row, const Knobs& knobs, PassKind pass) {
  if (row.keep == Keep::wire) return Place::communication;
  if (row.keep == Keep::backward_wire) {
    return pass == PassKind::backward ? Place::communication : Place::absent;
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

int64_t buffer_bytes(const BufferRow& row, const LayerDims& dims, const Precision& precision) {
  return row.rows(dims) * row.cols(dims) * base::size_of(precision.of(row.content));
}

std::array<TableRow, static_cast<size_t>(Table::count)> tables_of(const LayerDims& dims,
                                                                  int64_t seq_length,
                                                                  int64_t num_micro_batches) {
  const int64_t step_tokens = dims.block_tokens * num_micro_batches;
  const int64_t keys = dims.is_gathered() ? dims.context_tokens : 0;
  const int64_t num_blocks = dims.is_ring ? dims.cp : 0;
  return {{{Table::tokens, "tokens", Content::index, step_tokens, 1},
           {Table::targets, "targets", Content::index, step_tokens, 1},
           {Table::positions, "positions", Content::index, dims.block_tokens, 1},
           {Table::rope_cos, "rope_cos", Content::stat, seq_length, dims.head_dim / 2},
           {Table::rope_sin, "rope_sin", Content::stat, seq_length, dims.head_dim / 2},
           {Table::kv_order, "kv_order", Content::index, keys, 1},
           {Table::kv_inverse, "kv_inverse", Content::index, keys, 1},
           {Table::ring_positions, "ring_positions", Content::index, num_blocks,
            dims.is_ring ? dims.block_tokens / dims.sequences : 0}}};
}

}  // namespace moetune::plan
