// Which parameters a rank holds and in which buckets they lie. The engine allocates by this plan
// and the memory model adds it up, so both always agree.
#pragma once

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
  qkv_bias,      ///< [1, q + 2 kv]
  q_norm,        ///< [1, d]
  k_norm,        ///< [1, d]
  o_proj,        ///< [h, q]
  o_bias,        ///< [1, h]
  mlp_norm,      ///< [1, h]
  router,        ///< [E, h]
  mlp_fc1,       ///< [2 ffn, h], gate rows first
  mlp_fc1_bias,  ///< [1, 2 ffn]
  mlp_fc2,       ///< [h, ffn]
  mlp_fc2_bias,  ///< [1, h]
  shared_fc1,    ///< [2 fs, h]
  shared_fc2,    ///< [h, fs]
  expert_fc1,    ///< [local experts * 2 f, h]
  expert_fc2,    ///< [local experts * h, f]
  final_norm,    ///< [1, h]
  head,          ///< [vocab, h]
  count
};

/// One row of the parameter table: name and size on one rank.
struct ParamRow {
  ParamKind id;
  const char* name;  ///< without the layer
  int64_t (*rows)(const LayerDims&);
  int64_t (*cols)(const LayerDims&);
};
const ParamRow& param_row(ParamKind kind);

/// One parameter tensor of this rank. Element (r, c) lies at bucket offset + r * cols + c.
struct ParamDesc {
  ParamKind kind;
  std::string name;    ///< global name without rank, such as "layers.3.expert_fc1"
  int64_t layer = -1;  ///< global layer index, -1: none
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t first_row =
      0;  ///< of the whole parameter: expert shards start at their first expert's row
  int bucket = 0;
  int64_t offset = 0;         ///< elements from the bucket's start
  bool is_norm = false;       ///< starts at one
  bool is_bias = false;       ///< starts at zero
  bool is_tied_copy = false;  ///< the last stage's copy of the embedding: same values, counted once

  [[nodiscard]] int64_t numel() const { return rows * cols; }
};

/// Parameters that are reduced and gathered together: one layer's dense part, one layer's experts,
/// embedding, head.
struct BucketDesc {
  std::string name;
  Group group = Group::dp_cp;  ///< dp_cp, or edp for experts: who holds the same parameters
  int64_t layer = -1;
  int64_t numel = 0;  ///< padded to a multiple of group size * 64
  bool is_tied_copy = false;
};

struct ParamPlan {
  std::vector<ParamDesc> params;
  std::vector<BucketDesc> buckets;
};

ParamPlan make_param_plan(const ModelSpec& model, const Knobs& knobs, int rank);

/// Elements of the bucket that this rank updates: a shard of it with the distributed optimizer
/// (ZeRO-1, Rajbhandari et al. 2020), else all.
int64_t shard_of(const BucketDesc& bucket, const Layout& layout, bool is_sharded);

/// A piece of a parameter within the shard of its bucket that `rank` updates.
struct ShardPiece {
  size_t param = 0;   ///< of the plan
  int64_t begin = 0;  ///< elements from the bucket's start
  int64_t end = 0;
};
std::vector<ShardPiece> shard_pieces(const ParamPlan& plan, const Layout& layout, int rank,
                                     bool is_sharded);

}  // namespace moetune::plan
