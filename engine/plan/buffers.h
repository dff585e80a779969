// The buffer table: every device buffer a layer needs besides its parameters, one row each: how
// large it is, how long it lives, which recompute module drops it. Blocks declare their rows
// (blocks/blocks.h). The engine allocates by these
// rows and the memory model adds the same rows up, so a prediction differs from the ledger only by
// what nobody can know beforehand (how many rows an expert receives).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/plan/layout.h"
#include "engine/spec/knobs.h"
#include "engine/spec/model_spec.h"
#include "engine/spec/plan_knobs.h"
#include "engine/spec/precision.h"

namespace moetune::plan {

using spec::Content;
using spec::Precision;
using spec::RecomputeModule;

/// Sizes of one layer on one rank for one micro-batch, in elements.
struct LayerDims {
  int64_t tokens = 0;          ///< T: on this rank (micro_batch_size * seq / (cp * tp))
  int64_t block_tokens = 0;    ///< B: of all tensor-parallel ranks together, T * tp
  int64_t context_tokens = 0;  ///< S: keys a rank sees (micro_batch_size * seq)
  int64_t sequences = 0;       ///< micro_batch_size
  int64_t own_sequences = 0;   ///< those that T tokens are of: T is part of one, or some whole ones
  int64_t received_rows = 0;   ///< R: rows this rank's experts receive
  int64_t hidden = 0;
  /// What mixes the layer's tokens. The sizes of what others have are 0.
  spec::Mixer mixer = spec::Mixer::gqa;
  bool has_feed_forward = true;
  // Of attention (gqa, mla), on one tensor-parallel rank:
  int64_t q = 0;
  int64_t kv = 0;    ///< columns of keys
  int64_t v = 0;     ///< columns of values: in gqa as many as of keys
  int64_t attn = 0;  ///< columns of attention's output: in gqa as many as of queries
  int64_t gate = 0;  ///< columns of the output's gate, 0: none
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t rope_dim = 0;     ///< columns of a head that are rotated, in all layers of the model
  int64_t q_lora = 0;       ///< the whole latent of queries; 0: they are projected in one step
  int64_t kv_lora = 0;      ///< the whole latent of keys and values
  int64_t index_heads = 0;  ///< of the indexer that chooses keys, all of them; 0: none
  int64_t index_dim = 0;    ///< columns of its heads
  // Of gdn and mamba, on one tensor-parallel rank:
  int64_t conv_kernel = 0;
  int64_t scan_heads = 0;     ///< of values
  int64_t scan_keys = 0;      ///< columns of keys and, again, of queries: mamba's B and C
  int64_t scan_values = 0;    ///< columns of values, of their gate and of the output
  int64_t scan_head_dim = 0;  ///< columns of a value head
  int64_t scan_state = 0;     ///< numbers of the state for each of them
  int64_t experts = 0;
  int64_t local_experts = 0;
  int64_t topk = 0;
  int64_t moe_ffn = 0;     ///< on one expert-tensor-parallel rank
  int64_t latent = 0;      ///< width of the vectors that experts work on, 0: hidden
  int64_t fc1_halves = 2;  ///< gate and up; 1 in MLPs without a gate
  int64_t shared_ffn = 0;  ///< on one tensor-parallel rank, as are the next two
  int64_t ffn = 0;
  int64_t vocab = 0;
  int64_t learned_positions = 0;  ///< rows of their table, 0: none
  int64_t mtp_depth = 0;          ///< tokens that are predicted besides the next one
  int64_t ce_chunk = 0;           ///< tokens per linear cross-entropy chunk, at most B
  int64_t tp = 1;
  int64_t tp_rank = 0;
  int64_t cp_rank = 0;
  int64_t cp = 1;
  int64_t expert_ranks = 1;  ///< who exchange rows of experts: ep x etp
  int64_t etp = 1;           ///< slices that each expert is cut into
  int64_t chunks_forward = 1;
  int64_t chunks_backward = 1;
  int64_t window = 0;       ///< how many keys a query sees, 0: all before it
  bool is_chunked = false;  ///< the window is a chunk of keys: a query sees those of its own
  bool has_qk_norm = false;
  bool has_layer_norm = false;   ///< norms keep the mean of a row, too
  bool has_shared_gate = false;  ///< on what shared experts give
  bool is_moe = false;
  bool is_ring = false;  ///< keys and values travel around the ring of context-parallel ranks
  /// In attention a context-parallel rank has all tokens and a share of the heads.
  bool exchanges_heads = false;
  bool has_own_head = true;  ///< false: the embedding is on the same stage and is the head
  /// Tokens travel as they are, not a row for each of their experts (passes/dispatchers.cpp).
  bool sends_tokens = false;
  int64_t arriving_tokens = 0;  ///< each once; 0: rows are written where the experts read them
  int64_t passed_tokens = 0;    ///< of other nodes, which the rank passes on within its own

  /// Ranks that share the tokens of a sequence.
  [[nodiscard]] int64_t sequence_ranks() const { return cp * tp; }
  /// Whether context-parallel ranks share each sequence.
  [[nodiscard]] bool is_shared() const { return cp > 1; }
  [[nodiscard]] bool is_gathered() const { return is_shared() && !is_ring && !exchanges_heads; }
  /// Of so many columns of heads those that a context-parallel rank has where each takes all tokens
  /// of some heads.
  [[nodiscard]] int64_t own_columns(int64_t columns) const { return columns / cp; }
  /// Rows that a token becomes: one for each slice of its experts.
  [[nodiscard]] int64_t slots_per_token() const { return topk * etp; }
  /// Slices of experts, in the order of the ranks that have them.
  [[nodiscard]] int64_t expert_slices() const { return experts * etp; }
  [[nodiscard]] int64_t expert_hidden() const { return latent > 0 ? latent : hidden; }

  auto operator<=>(const LayerDims&) const = default;
};

/// Dims of layer `layer`; received_rows is set to the balanced share T * K * etp and replaced when
/// known. tp_rank and cp_rank are those of `rank`. Behind the model's layers come those of its
/// multi-token prediction, depth by depth.
LayerDims layer_dims(const ModelSpec& model, const Knobs& knobs, int64_t seq_length, int64_t layer,
                     int rank = 0);

/// What the rank that `dims` are of has of each sequence (layout.h), or the one at `place` among
/// those that share it.
std::vector<PositionRange> local_ranges(const LayerDims& dims);
std::vector<PositionRange> local_ranges(const LayerDims& dims, int64_t place);

/// Parts of a block in the order they run; each part's buffers are allocated together.
enum class Part : uint8_t {
  input,
  embed,
  block,
  attn,  ///< what every mixer has, and attention
  mla,
  gdn,
  mamba,
  route,
  experts,
  mlp,
  mtp,
  head,
  grad
};

enum class Buf : uint8_t {
  // input: what the previous layer (or stage) handed over
  input,
  // embed
  embed_partial,  ///< rows of the whole block that this rank's vocabulary has, or their gradient
  // block
  mid,  ///< residual after attention
  // attn
  attn_gathered,  ///< with tensor parallelism: the matrices' input of the whole block of tokens
  attn_partial,   ///< their share of the output, or the output's gradient
  attn_norm_out,
  attn_norm_rstd,
  qkv,
  q_rstd,
  k_rstd,
  q_rot,
  k_rot,
  kv_local,
  kv_gathered,
  kv_full,
  kv_ring,  ///< the second block of keys and values, beside kv_local
  d_kv_local,
  d_kv_ring,
  part_out,  ///< attention on the block that is there, before it is merged
  part_lse,
  by_tokens,  ///< of the rank's own tokens queries, keys and values of all heads on their way to
              ///< those who have the heads, or attention's output on its way back
  by_heads,   ///< the same of a share of the heads and all tokens, rank by rank
  qkv_heads,  ///< in the order of the sequence, as are the others of these
  attn_out_heads,
  d_attn_out_heads,
  d_qkv_heads,
  attn_out,
  attn_lse,
  gated_out,  ///< attention's output times its gate
  d_gated_out,
  d_attn_out,
  d_qkv,
  d_attn_norm,
  // mla
  mla_q_down,
  mla_q_rstd,
  mla_q_latent,
  mla_q_gathered,
  mla_kv_down,  ///< the latent of keys and values, then the part of a key that is rotated
  mla_kv_rstd,
  mla_kv_latent,  ///< the same with its latent normalized
  mla_kv_gathered,
  mla_kv,  ///< by head: a key's own part and the value
  mla_q,
  mla_k,
  mla_v,
  mla_q_partial,  ///< this rank's share of the latents' gradients
  mla_kv_partial,
  d_mla_q,
  d_mla_k,
  d_mla_v,
  d_mla_kv,
  d_mla_q_latent,
  d_mla_kv_latent,
  // gdn. With context parallelism all between the projections is of the whole sequence and of a
  // share of the heads.
  gdn_wire,  ///< projections of the rank's own tokens, or their gradient
  gdn_proj,  ///< q, k, v; the output's gate z; what the scan's gates are made of
  gdn_conv_out,
  gdn_gates,   ///< decay and learning rate of each head
  gdn_chunks,  ///< the triangular matrix of each chunk, inverted
  gdn_states,  ///< at each chunk's beginning
  gdn_scan_out,
  gdn_norm_rstd,
  gdn_norm_wire,
  gdn_norm_out,
  d_gdn_norm_out,
  d_gdn_scan_out,
  d_gdn_gates,
  d_gdn_conv_out,
  d_gdn_proj,
  // mamba, alike
  mamba_wire,
  mamba_proj,  ///< the output's gate z; x, B, C; the time steps
  mamba_conv_out,
  mamba_gates,
  mamba_states,
  mamba_scan_out,
  mamba_norm_rstd,
  mamba_norm_wire,
  mamba_norm_out,
  d_mamba_norm_out,
  d_mamba_scan_out,
  d_mamba_gates,
  d_mamba_conv_out,
  d_mamba_proj,
  // route
  mlp_gathered,  ///< as those of attention, for dense layers and shared experts
  mlp_partial,
  mlp_norm_out,
  mlp_norm_rstd,
  router_probs,
  router_lse,
  topk_indices,
  slice_indices,  ///< each chosen expert once for every slice of it
  topk_weights,
  expert_counts,
  aux_sums,
  slot_maps,
  chunk_counts,
  gathered_counts,
  latent_in,   ///< tokens at the width that experts work on
  latent_out,  ///< what experts give, at that width
  d_latent_out,
  d_latent_in,
  shared_fc1,
  shared_act,
  shared_out,   ///< before its gate
  shared_gate,  ///< a number for each token
  d_shared_gate,
  d_shared_out,
  d_shared_act,
  d_shared_fc1,
  d_router,
  d_topk_weights,
  d_mlp_norm,
  // experts
  row_maps,
  offsets,
  send_rows,
  recv_rows,
  node_rows,  ///< tokens of other nodes on their way, or sums for them
  send_probs,
  recv_probs,
  expert_input,
  expert_probs,
  fc1_out,
  act_out,
  fc2_out,
  d_fc2_out,
  d_act,
  d_fc1,
  d_expert_probs,
  d_expert_input,
  // mlp (dense layers; its norm lives in route's place)
  mlp_fc1,
  mlp_act,
  d_mlp_act,
  d_mlp_fc1,
  // mtp, where its input is: at the end of the stream that it goes on from
  mtp_embed_partial,
  mtp_embed,  ///< of the token that is predicted before
  mtp_embed_rstd,
  mtp_hidden_rstd,
  mtp_concat,  ///< both, normalized, side by side
  mtp_gathered,
  mtp_split,   ///< of all tokens the columns that this rank has computed
  mtp_joined,  ///< all columns, or their gradient
  mtp_partial,
  d_mtp_concat,
  d_mtp_embed,
  // head
  final_norm_out,
  final_norm_rstd,
  head_gathered,
  head_partial,
  ce_stats,      ///< of each row of logits: what the other shards of the vocabulary need to know
  ce_all_stats,  ///< that of all shards
  logits,
  // grad
  d_hidden,  ///< gradient of the residual stream, updated in place from the stage's end to its
             ///< start
  count
};

/// When a buffer exists, before recompute is applied.
enum class Keep : uint8_t {
  saved,          ///< from forward to the end of backward
  forward,        ///< during the part's forward
  backward,       ///< during the part's backward
  both,           ///< during each, separately
  wire,           ///< as both; another rank reads or writes it
  backward_wire,  ///< during the part's backward, alike
};

struct BufferRow {
  Buf id = Buf::count;
  const char* name = nullptr;
  Part part = Part::input;
  Keep keep = Keep::saved;
  std::optional<RecomputeModule> dropped_by;  ///< saved buffers only
  Content content = Content::element;
  int64_t (*rows)(const LayerDims&) = nullptr;
  int64_t (*cols)(const LayerDims&) = nullptr;
  /// Saved buffers only: the module that Megatron-Core's offloading of activations names it by.
  std::optional<spec::Offload> offloaded_by = std::nullopt;
  /// Saved buffers only: in which layers no backward pass reads it, so that it ends with forward.
  bool (*is_forward_only)(const LayerDims&) = nullptr;
};

/// In the order of Buf, in which the buffers of a part are allocated.
std::span<const BufferRow> buffer_table();
const BufferRow& buffer_row(Buf id);

/// Which pass a part is being run in.
enum class PassKind : uint8_t {
  forward,          ///< ordinary forward
  forward_dropped,  ///< first forward under full recompute: keeps the layer's input only
  backward,
};

enum class Place : uint8_t { absent, saved, workspace, communication };
/// Where a layer's buffer is allocated in that pass: saved allocations outlive the pass, workspace
/// and communication end with the part.
Place place_of(const BufferRow& row, const LayerDims& dims, const Knobs& knobs, PassKind pass);

/// Whether the knobs have the buffer made again in the backward pass instead of saved.
bool is_dropped(const BufferRow& row, const Knobs& knobs);

/// The module that has the buffer wait in the host's memory, in a layer of these dims.
std::optional<spec::Offload> offload_of(const BufferRow& row, const LayerDims& dims);

/// Bytes of a buffer, not aligned.
int64_t buffer_bytes(const BufferRow& row, const LayerDims& dims, const Precision& precision);

/// Sums over a step that are kept on the device and read at its end, one double each.
enum class Scalar : uint8_t { loss, load_balance_loss, z_loss, squared_norm, count };

/// Tables that a rank holds from start to end, besides parameters.
enum class Table : uint8_t {
  tokens,      ///< i32, of all micro-batches of a step: B of each
  targets,     ///< i32, alike
  positions,   ///< i32 [B, 1]: position of each token of a micro-batch in its sequence
  rope_cos,    ///< [seq, rope_dim / 2]
  rope_sin,    ///< [seq, rope_dim / 2]
  kv_order,    ///< i32 [S, 1]: row of what came rank by rank for each position; empty unless keys
               ///< are gathered or heads exchanged
  kv_inverse,  ///< i32 [S, 1]: the inverse
  ring_positions,  ///< i32 [cp, S / (sequences * cp)]: where each rank's keys of a sequence sit
  mtp_targets,     ///< i32 [B of each, depth]: by column one token further than targets
  count
};
struct TableRow {
  Table id;
  const char* name;
  Content content;
  int64_t rows = 0;
  int64_t cols = 0;
};
/// The tables with their sizes, in the order in which they are allocated.
std::array<TableRow, static_cast<size_t>(Table::count)> tables_of(const LayerDims& dims,
                                                                  int64_t seq_length,
                                                                  int64_t num_micro_batches);

}  // namespace moetune::plan
