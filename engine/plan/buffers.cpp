// The rows of the buffer table; see buffers.h.
#include "engine/plan/buffers.h"

#include <algorithm>
#include <array>

namespace moetune::plan {
namespace {

using D = const LayerDims&;
using R = RecomputeModule;
constexpr auto kKept = std::nullopt;
constexpr auto kElement = Content::element;
constexpr auto kStat = Content::stat;
constexpr auto kIndex = Content::index;

int64_t one(D) { return 1; }
int64_t tokens(D d) { return d.tokens; }
int64_t hidden(D d) { return d.hidden; }
int64_t block(D d) { return d.block_tokens; }
int64_t block_if_tp(D d) { return d.tp > 1 ? d.block_tokens : 0; }
int64_t context_if_gathered(D d) { return d.is_gathered() ? d.context_tokens : 0; }
int64_t block_if_ring(D d) { return d.is_ring ? d.block_tokens : 0; }
int64_t block_if_cp(D d) { return d.cp > 1 ? d.block_tokens : 0; }
int64_t block_if_qk_norm(D d) { return d.has_qk_norm ? d.block_tokens : 0; }
int64_t tokens_if_moe(D d) { return d.is_moe ? d.tokens : 0; }
int64_t block_if_shared(D d) { return d.is_moe && d.shared_ffn > 0 ? d.block_tokens : 0; }
int64_t block_if_mlp_tp(D d) { return !d.is_moe || d.shared_ffn > 0 ? block_if_tp(d) : 0; }
int64_t qkv(D d) { return d.q + 2 * d.kv; }
int64_t kv2(D d) { return 2 * d.kv; }
int64_t slots(D d) { return d.tokens * d.slots_per_token(); }
int64_t received(D d) { return d.received_rows; }
int64_t slots_if_ep(D d) { return d.is_moe && d.ep > 1 ? slots(d) : 0; }
int64_t received_if_ep(D d) { return d.ep > 1 ? d.received_rows : 0; }
int64_t route_chunks(D d) {
  if (!d.is_moe) return 0;
  return d.ep > 1 ? d.chunks_forward + d.chunks_backward : 2;
}
int64_t sequences_if_moe(D d) { return d.is_moe ? d.sequences : 0; }
int64_t own_sequences_if_moe(D d) { return d.is_moe ? d.own_sequences : 0; }
int64_t ce_stats_if_tp(D d) { return d.tp > 1 ? d.ce_chunk : 0; }
constexpr int64_t kCeStats = 3;  // kernels::CrossEntropyStatsArgs

// One row of a table that is indexed by Buf; is_indexed_by_id below checks the order.
constexpr std::array<BufferRow, static_cast<size_t>(Buf::count)> kBuffers = {{
    {Buf::input, "input", Part::input, Keep::saved, kKept, kElement, tokens, hidden},
    {Buf::embed_partial, "embed_partial", Part::embed, Keep::wire, kKept, kElement, block_if_tp,
     hidden},
    {Buf::mid, "mid", Part::block, Keep::saved, kKept, kElement, tokens, hidden},

    {Buf::attn_gathered, "attn_gathered", Part::attn, Keep::wire, kKept, kElement, block_if_tp,
     hidden},
    {Buf::attn_partial, "attn_partial", Part::attn, Keep::wire, kKept, kElement, block_if_tp,
     hidden},
    {Buf::attn_norm_out, "attn_norm_out", Part::attn, Keep::saved, R::norm, kElement, tokens,
     hidden},
    {Buf::attn_norm_rstd, "attn_norm_rstd", Part::attn, Keep::saved, kKept, kStat, tokens, one},
    {Buf::qkv, "qkv", Part::attn, Keep::saved, kKept, kElement, block, qkv},
    {Buf::q_rstd, "q_rstd", Part::attn, Keep::saved, kKept, kStat, block_if_qk_norm,
     [](D d) { return d.heads; }},
    {Buf::k_rstd, "k_rstd", Part::attn, Keep::saved, kKept, kStat, block_if_qk_norm,
     [](D d) { return d.kv_heads; }},
    {Buf::q_rot, "q_rot", Part::attn, Keep::saved, kKept, kElement, block_if_qk_norm,
     [](D d) { return d.q; }},
    {Buf::k_rot, "k_rot", Part::attn, Keep::saved, kKept, kElement, block_if_qk_norm,
     [](D d) { return d.kv; }},
    {Buf::kv_local, "kv_local", Part::attn, Keep::wire, kKept, kElement, block_if_cp, kv2},
    {Buf::kv_gathered, "kv_gathered", Part::attn, Keep::wire, kKept, kElement, context_if_gathered,
     kv2},
    {Buf::kv_full, "kv_full", Part::attn, Keep::both, kKept, kElement, context_if_gathered, kv2},
    {Buf::kv_ring, "kv_ring", Part::attn, Keep::wire, kKept, kElement, block_if_ring, kv2},
    {Buf::d_kv_local, "d_kv_local", Part::attn, Keep::backward_wire, kKept, kElement, block_if_ring,
     kv2},
    {Buf::d_kv_ring, "d_kv_ring", Part::attn, Keep::backward_wire, kKept, kElement, block_if_ring,
     kv2},
    {Buf::part_out, "part_out", Part::attn, Keep::both, kKept, kElement, block_if_ring,
     [](D d) { return d.q; }},
    {Buf::part_lse, "part_lse", Part::attn, Keep::both, kKept, kStat, block_if_ring,
     [](D d) { return d.heads; }},
    {Buf::attn_out, "attn_out", Part::attn, Keep::saved, R::core_attn, kElement, block,
     [](D d) { return d.q; }},
    {Buf::attn_lse, "attn_lse", Part::attn, Keep::saved, R::core_attn, kStat, block,
     [](D d) { return d.heads; }},
    {Buf::d_attn_out, "d_attn_out", Part::attn, Keep::backward, kKept, kElement, block,
     [](D d) { return d.q; }},
    {Buf::d_qkv, "d_qkv", Part::attn, Keep::backward, kKept, kElement, block, qkv},
    {Buf::d_attn_norm, "d_attn_norm", Part::attn, Keep::backward, kKept, kElement, tokens, hidden},

    {Buf::mlp_gathered, "mlp_gathered", Part::route, Keep::wire, kKept, kElement, block_if_mlp_tp,
     hidden},
    {Buf::mlp_partial, "mlp_partial", Part::route, Keep::wire, kKept, kElement, block_if_mlp_tp,
     hidden},
    {Buf::mlp_norm_out, "mlp_norm_out", Part::route, Keep::saved, R::norm, kElement, tokens,
     hidden},
    {Buf::mlp_norm_rstd, "mlp_norm_rstd", Part::route, Keep::saved, kKept, kStat, tokens, one},
    {Buf::router_probs, "router_probs", Part::route, Keep::saved, kKept, kStat, tokens_if_moe,
     [](D d) { return d.experts; }},
    {Buf::router_lse, "router_lse", Part::route, Keep::saved, kKept, kStat, tokens_if_moe, one},
    {Buf::topk_indices, "topk_indices", Part::route, Keep::saved, kKept, kIndex, tokens_if_moe,
     [](D d) { return d.topk; }},
    {Buf::slice_indices, "slice_indices", Part::route, Keep::forward, kKept, kIndex,
     [](D d) { return d.is_moe && d.etp > 1 ? d.tokens : 0; },
     [](D d) { return d.slots_per_token(); }},
    {Buf::topk_weights, "topk_weights", Part::route, Keep::saved, kKept, kStat, tokens_if_moe,
     [](D d) { return d.topk; }},
    {Buf::expert_counts, "expert_counts", Part::route, Keep::saved, kKept, kIndex,
     own_sequences_if_moe, [](D d) { return d.experts; }},
    // Probability sums per sequence, then tokens per expert; the latter become the aux loss's
    // gradient.
    {Buf::aux_sums, "aux_sums", Part::route, Keep::saved, kKept, kStat,
     [](D d) { return 2 * sequences_if_moe(d); }, [](D d) { return d.experts; }},
    // Send order of the (token, slot) pairs and its inverse, for forward and backward chunks.
    {Buf::slot_maps, "slot_maps", Part::route, Keep::saved, kKept, kIndex,
     [](D d) { return d.is_moe ? int64_t{4} : int64_t{0}; }, slots},
    // Rows by chunk of both directions and expert: this rank's, and those of the whole group.
    {Buf::chunk_counts, "chunk_counts", Part::route, Keep::forward, kKept, kIndex, route_chunks,
     [](D d) { return d.expert_slices(); }},
    {Buf::gathered_counts, "gathered_counts", Part::route, Keep::wire, kKept, kIndex,
     [](D d) { return d.ep > 1 ? d.ep * route_chunks(d) : 0; },
     [](D d) { return d.expert_slices(); }},
    {Buf::shared_fc1, "shared_fc1", Part::route, Keep::saved, kKept, kElement, block_if_shared,
     [](D d) { return 2 * d.shared_ffn; }},
    {Buf::shared_act, "shared_act", Part::route, Keep::saved, R::moe_act, kElement, block_if_shared,
     [](D d) { return d.shared_ffn; }},
    {Buf::d_shared_act, "d_shared_act", Part::route, Keep::backward, kKept, kElement,
     block_if_shared, [](D d) { return d.shared_ffn; }},
    {Buf::d_shared_fc1, "d_shared_fc1", Part::route, Keep::backward, kKept, kElement,
     block_if_shared, [](D d) { return 2 * d.shared_ffn; }},
    {Buf::d_router, "d_router", Part::route, Keep::backward, kKept, kElement, tokens_if_moe,
     [](D d) { return d.experts; }},
    {Buf::d_topk_weights, "d_topk_weights", Part::route, Keep::backward, kKept, kStat,
     tokens_if_moe, [](D d) { return d.topk; }},
    {Buf::d_mlp_norm, "d_mlp_norm", Part::route, Keep::backward, kKept, kElement, tokens, hidden},

    // Arrival order to canonical place and the chunks' row lists, for forward and backward chunks.
    {Buf::row_maps, "row_maps", Part::experts, Keep::saved, kKept, kIndex,
     [](D) { return int64_t{4}; }, received},
    // Where each expert's rows begin: canonical, then per forward chunk, then per backward chunk.
    {Buf::offsets, "offsets", Part::experts, Keep::saved, kKept, kIndex,
     [](D d) { return 1 + d.chunks_forward + d.chunks_backward; },
     [](D d) { return d.local_experts + 1; }},
    {Buf::send_rows, "send_rows", Part::route, Keep::wire, kKept, kElement, slots_if_ep, hidden},
    {Buf::recv_rows, "recv_rows", Part::experts, Keep::wire, kKept, kElement, received_if_ep,
     hidden},
    {Buf::send_probs, "send_probs", Part::route, Keep::wire, kKept, kStat, slots_if_ep, one},
    {Buf::recv_probs, "recv_probs", Part::experts, Keep::wire, kKept, kStat, received_if_ep, one},
    {Buf::expert_input, "expert_input", Part::experts, Keep::saved, kKept, kElement, received,
     hidden},
    {Buf::expert_probs, "expert_probs", Part::experts, Keep::saved, kKept, kStat, received, one},
    {Buf::fc1_out, "fc1_out", Part::experts, Keep::saved, R::experts, kElement, received,
     [](D d) { return 2 * d.moe_ffn; }},
    {Buf::act_out, "act_out", Part::experts, Keep::saved, R::moe_act, kElement, received,
     [](D d) { return d.moe_ffn; }},
    {Buf::fc2_out, "fc2_out", Part::experts, Keep::forward, kKept, kElement, received, hidden},
    {Buf::d_fc2_out, "d_fc2_out", Part::experts, Keep::backward, kKept, kElement, received, hidden},
    {Buf::d_act, "d_act", Part::experts, Keep::backward, kKept, kElement, received,
     [](D d) { return d.moe_ffn; }},
    {Buf::d_fc1, "d_fc1", Part::experts, Keep::backward, kKept, kElement, received,
     [](D d) { return 2 * d.moe_ffn; }},
    {Buf::d_expert_probs, "d_expert_probs", Part::experts, Keep::backward, kKept, kStat, received,
     one},

    {Buf::d_expert_input, "d_expert_input", Part::experts, Keep::backward, kKept, kElement,
     received, hidden},

    {Buf::mlp_fc1, "mlp_fc1", Part::mlp, Keep::saved, kKept, kElement, block,
     [](D d) { return 2 * d.ffn; }},
    {Buf::mlp_act, "mlp_act", Part::mlp, Keep::saved, kKept, kElement, block,
     [](D d) { return d.ffn; }},
    {Buf::d_mlp_act, "d_mlp_act", Part::mlp, Keep::backward, kKept, kElement, block,
     [](D d) { return d.ffn; }},
    {Buf::d_mlp_fc1, "d_mlp_fc1", Part::mlp, Keep::backward, kKept, kElement, block,
     [](D d) { return 2 * d.ffn; }},

    {Buf::final_norm_out, "final_norm_out", Part::head, Keep::forward, kKept, kElement, tokens,
     hidden},
    {Buf::final_norm_rstd, "final_norm_rstd", Part::head, Keep::forward, kKept, kStat, tokens, one},
    {Buf::head_gathered, "head_gathered", Part::head, Keep::wire, kKept, kElement, block_if_tp,
     hidden},
    {Buf::head_partial, "head_partial", Part::head, Keep::wire, kKept, kElement, block_if_tp,
     hidden},
    {Buf::ce_stats, "ce_stats", Part::head, Keep::wire, kKept, kStat, ce_stats_if_tp,
     [](D) { return kCeStats; }},
    {Buf::ce_all_stats, "ce_all_stats", Part::head, Keep::wire, kKept, kStat,
     [](D d) { return d.tp * ce_stats_if_tp(d); }, [](D) { return kCeStats; }},
    {Buf::logits, "logits", Part::head, Keep::forward, kKept, kElement,
     [](D d) { return d.ce_chunk; }, [](D d) { return d.vocab; }},
    {Buf::d_hidden, "d_hidden", Part::grad, Keep::saved, kKept, kElement, tokens, hidden},
}};

constexpr bool is_indexed_by_id() {
  for (size_t i = 0; i < kBuffers.size(); ++i) {
    if (kBuffers[i].id != static_cast<Buf>(i)) return false;
  }
  return true;
}
static_assert(is_indexed_by_id(), "kBuffers must be in the order of Buf");

}  // namespace

bool is_dropped(const BufferRow& row, const Knobs& knobs) {
  if (!row.dropped_by) return false;
  if (recomputes(knobs, *row.dropped_by)) return true;
  // Dropping the experts' fc1 output drops what is computed from it, too.
  return row.id == Buf::act_out && recomputes(knobs, RecomputeModule::experts);
}

std::span<const BufferRow> buffer_table() { return kBuffers; }

const BufferRow& buffer_row(Buf id) { return kBuffers[static_cast<size_t>(id)]; }

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
  d.ep = knobs.expert_model_parallel_size * d.etp;
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
