// Which parameters a rank holds and in which buckets they lie. The engine allocates by this plan
// and the memory model adds it up, so both always agree.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/plan/buffers.h"
#include "engine/plan/layout.h"
#include "engine/spec/knobs.h"
#include "engine/spec/model_spec.h"
#include "engine/spec/precision.h"

namespace moetune::plan {

enum class ParamKind : uint8_t {
  embedding,     ///< [vocab, h]
  attn_norm,     ///< [1, h]
  qkv,           ///< [q + 2 kv, h]: q rows, k rows, v rows
  qkv_bias,      ///< [q + 2 kv, 1]
  q_norm,        ///< [1, d]
  k_norm,        ///< [1, d]
  o_proj,        ///< [h, q]
  o_bias,        ///< [1, h]
  mlp_norm,      ///< [1, h]
  router,        ///< [E, h]
  mlp_fc1,       ///< [2 ffn, h], gate rows first
  mlp_fc1_bias,  ///< [2 ffn, 1]
  mlp_fc2,       ///< [h, ffn]
  mlp_fc2_bias,  ///< [1, h]
  shared_fc1,    ///< [2 fs, h]
  shared_fc2,    ///< [h, fs]
  expert_fc1,    ///< [local experts * 2 f, h]
  expert_fc2,    ///< [local experts * h, f]
  final_norm,    ///< [1, h]
  head,          ///< [vocab, h]
  // What plans know and the engine does not run yet. Above are those whose numbers the engine draws
  // by (optim/adamw.cpp): nothing may come between them.
  position_embedding,  ///< [positions, h]
  attn_norm_bias,      ///< [1, h], as other norms' biases
  mlp_norm_bias,
  final_norm_bias,
  attn_sinks,       ///< [heads, 1]: a logit that takes a share and gives no value
  mla_q_down,       ///< [q_lora, h]
  mla_q_norm,       ///< [1, q_lora]
  mla_q_up,         ///< [q, q_lora], or [q, h] where queries have no latent
  mla_kv_down,      ///< [kv_lora + rope, h]
  mla_kv_norm,      ///< [1, kv_lora]
  mla_kv_up,        ///< [heads * (nope + v), kv_lora]
  gdn_in_proj,      ///< [2 keys + 2 values + 2 heads, h]: q, k, v, z, b, a
  gdn_conv,         ///< [2 keys + values, taps]
  gdn_decay,        ///< [heads, 1]: A
  gdn_dt_bias,      ///< [heads, 1]
  gdn_norm,         ///< [1, head_dim]
  gdn_out_proj,     ///< [h, values]
  mamba_in_proj,    ///< [2 values + 2 keys + heads, h]: z, x, B, C, dt
  mamba_conv,       ///< [values + 2 keys, taps]
  mamba_conv_bias,  ///< [values + 2 keys, 1]
  mamba_decay,      ///< [heads, 1]: A
  mamba_dt_bias,    ///< [heads, 1]
  mamba_skip,       ///< [heads, 1]: D
  mamba_norm,       ///< [1, values]
  mamba_out_proj,   ///< [h, values]
  router_bias,      ///< [E, 1]
  balance_bias,     ///< [E, 1]: state; chooses experts and weighs none
  latent_down,      ///< [latent, h]
  latent_up,        ///< [h, latent]
  expert_fc1_bias,  ///< [local experts * 2 f, 1]
  expert_fc2_bias,  ///< [local experts * h, 1]
  shared_gate,      ///< [1, h]
  mtp_embed_norm,   ///< [1, h]
  mtp_embed_norm_bias,
  mtp_hidden_norm,  ///< [1, h]
  mtp_hidden_norm_bias,
  mtp_proj,        ///< [h, 2 h]
  mtp_final_norm,  ///< [1, h]
  mtp_final_norm_bias,
  index_q,          ///< [heads * width, q_lora]: the indexer of latent attention
  index_k,          ///< [width, h]: one head of keys
  index_norm,       ///< [1, width]
  index_norm_bias,  ///< [1, width]
  index_weights,    ///< [heads, h]
  count
};

/// Which part of a parameter a rank holds.
enum class Split : uint8_t {
  whole,        ///< all of it on every tensor-parallel rank
  rows,         ///< as many rows on every tensor-parallel rank
  projections,  ///< as many rows of each of the matrices below each other
  halves,       ///< as many gate rows and as many up rows
  cols,         ///< as many columns on every tensor-parallel rank
  expert_rows,  ///< the rank's experts; of each as many gate and up rows by expert-tensor rank
  expert_cols,  ///< the rank's experts; of each as many columns by expert-tensor rank
  expert_part,  ///< the rank's experts; of each as many rows by expert-tensor rank
};

/// How the copies of a parameter on different ranks stay the same.
enum class Sync : uint8_t {
  sharded,      ///< the gradient is summed over the ranks that hold the same part: dp_cp, or edp
  replicated,   ///< over the tensor-parallel ranks, too, which see different tokens: stage
  no_gradient,  ///< state: no gradient is taken, nothing is summed, the optimizer leaves it alone
};

/// One row of the parameter table: name, size on one rank, and what is elsewhere. Blocks declare
/// their rows (blocks/blocks.h).
struct ParamRow {
  ParamKind id = ParamKind::count;
  const char* name = nullptr;  ///< without the layer
  int64_t (*rows)(const LayerDims&) = nullptr;
  int64_t (*cols)(const LayerDims&) = nullptr;
  Split split = Split::whole;
  /// `replicated` for a whole parameter, `sharded` for a split one; `no_gradient` for state.
  Sync sync = Sync::replicated;
  /// Whether models have it; null: all with this block.
  bool (*is_there)(const ModelSpec&, const LayerDims&) = nullptr;
  /// Of projections: the rows of each on one rank.
  std::vector<int64_t> (*projections)(const LayerDims&) = nullptr;
};
const ParamRow& param_row(ParamKind kind);
inline bool is_there(const ParamRow& row, const ModelSpec& model, const LayerDims& dims) {
  return row.is_there == nullptr || row.is_there(model, dims);
}

/// Rows that lie together here and in the whole parameter.
struct RowRun {
  int64_t local = 0;
  int64_t global = 0;
  int64_t count = 0;
};

/// One parameter tensor of this rank. Element (r, c) lies at bucket offset + r * cols + c.
struct ParamDesc {
  ParamKind kind;
  std::string name;    ///< global name without rank, such as "layers.3.expert_fc1"
  int64_t layer = -1;  ///< global layer index, -1: none
  int64_t rows = 0;
  int64_t cols = 0;
  // Of the whole parameter:
  std::vector<RowRun> runs;  ///< which rows these are, ascending
  int64_t first_col = 0;
  int64_t global_rows = 0;
  int64_t global_cols = 0;
  int bucket = 0;
  int64_t offset = 0;         ///< elements from the bucket's start
  bool is_norm = false;       ///< starts at one
  bool is_bias = false;       ///< starts at zero
  bool is_tied_copy = false;  ///< the last stage's copy of the embedding: same values, counted once

  [[nodiscard]] int64_t numel() const { return rows * cols; }

  /// body(local, global, count) for the elements [begin, end) of the shard, in stretches that lie
  /// together here and in the whole parameter: `count` from `local` on are those from `global` on.
  template <typename Body>
  void for_stretches(int64_t begin, int64_t end, Body&& body) const {
    for (const RowRun& run : runs) {
      const bool is_whole_width = cols == global_cols;
      for (int64_t row = 0; row < run.count; row += is_whole_width ? run.count : 1) {
        const int64_t first = (run.local + row) * cols;
        const int64_t last = first + (is_whole_width ? run.count : 1) * cols;
        const int64_t from = std::max(begin, first);
        const int64_t to = std::min(end, last);
        if (from >= to) continue;
        body(from, (run.global + row) * global_cols + first_col + from - first, to - from);
      }
    }
  }
};

/// Parameters that are reduced and gathered together: one layer's dense part, what of it
/// tensor parallelism does not split, one layer's experts, embedding, head.
struct BucketDesc {
  std::string name;
  /// Who holds the same parameters: dp_cp, edp for experts; stage for what tensor parallelism does
  /// not split.
  Group group = Group::dp_cp;
  int64_t layer = -1;
  int64_t numel = 0;  ///< padded to a multiple of group size * 64
  bool is_tied_copy = false;
  bool has_gradient = true;  ///< else it has weights only
  bool is_sharded = false;   ///< weights and gradients are shards, too (passes/fsdp.cpp)
  /// Of its elements those that the rank updates and has the optimizer's state of: all of them, or
  /// its shard (passes/distributed_optimizer.cpp).
  int64_t own_begin = 0;
  int64_t own_numel = 0;
};

struct ParamPlan {
  std::vector<ParamDesc> params;
  std::vector<BucketDesc> buckets;

  [[nodiscard]] bool has_gradient(const ParamDesc& param) const {
    return buckets[static_cast<size_t>(param.bucket)].has_gradient;
  }
  /// Elements of parameters with a gradient.
  [[nodiscard]] int64_t num_trained() const {
    int64_t sum = 0;
    for (const ParamDesc& param : params) sum += has_gradient(param) ? param.numel() : 0;
    return sum;
  }
};

/// Of what the blocks declare. The other one is for rows of one's own in each layer.
ParamPlan make_param_plan(const ModelSpec& model, const Knobs& knobs, int rank);
using LayerRows = std::vector<const ParamRow*> (*)(const ModelSpec&, const LayerDims&);
ParamPlan make_param_plan(const ModelSpec& model, const Knobs& knobs, int rank,
                          LayerRows rows_of_layer);

/// Whether the last stage has the embedding's table a second time, for multi-token prediction. A
/// head that is tied to the embedding is that already.
bool has_embedding_copy(const ModelSpec& model, const Knobs& knobs);

/// Elements of the bucket for each rank of its group, shared out in their order.
int64_t shard_of(const BucketDesc& bucket, const Layout& layout);

/// A piece of a parameter within the shard of its bucket that `rank` has.
struct ShardPiece {
  size_t param = 0;   ///< of the plan
  int64_t begin = 0;  ///< elements from the bucket's start
  int64_t end = 0;
};
std::vector<ShardPiece> shard_pieces(const ParamPlan& plan, const Layout& layout, int rank);

}  // namespace moetune::plan
