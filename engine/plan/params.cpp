// The parameter plan; see params.h.
#include "engine/plan/params.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace moetune::plan {
namespace {

// Buckets are padded so that every shard of the distributed optimizer starts at an aligned address.
constexpr int64_t kShardAlignment = 64;

int64_t align(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

using D = const LayerDims&;
int64_t one(D) { return 1; }
int64_t hidden(D d) { return d.hidden; }
int64_t vocab(D d) { return d.vocab; }
int64_t head_dim(D d) { return d.head_dim; }
int64_t qkv(D d) { return d.q + 2 * d.kv; }
int64_t ffn2(D d) { return 2 * d.ffn; }

constexpr std::array<ParamRow, static_cast<size_t>(ParamKind::count)> kParams = {{
    {ParamKind::embedding, "embedding", vocab, hidden, Split::rows},
    {ParamKind::attn_norm, "attn_norm", one, hidden, Split::whole},
    {ParamKind::qkv, "qkv", qkv, hidden, Split::projections},
    {ParamKind::qkv_bias, "qkv_bias", qkv, one, Split::projections},
    {ParamKind::q_norm, "q_norm", one, head_dim, Split::whole},
    {ParamKind::k_norm, "k_norm", one, head_dim, Split::whole},
    {ParamKind::o_proj, "o_proj", hidden, [](D d) { return d.q; }, Split::cols},
    {ParamKind::o_bias, "o_bias", one, hidden, Split::whole},
    {ParamKind::mlp_norm, "mlp_norm", one, hidden, Split::whole},
    {ParamKind::router, "router", [](D d) { return d.experts; }, hidden, Split::whole},
    {ParamKind::mlp_fc1, "mlp_fc1", ffn2, hidden, Split::halves},
    {ParamKind::mlp_fc1_bias, "mlp_fc1_bias", ffn2, one, Split::halves},
    {ParamKind::mlp_fc2, "mlp_fc2", hidden, [](D d) { return d.ffn; }, Split::cols},
    {ParamKind::mlp_fc2_bias, "mlp_fc2_bias", one, hidden, Split::whole},
    {ParamKind::shared_fc1, "shared_fc1", [](D d) { return 2 * d.shared_ffn; }, hidden,
     Split::halves},
    {ParamKind::shared_fc2, "shared_fc2", hidden, [](D d) { return d.shared_ffn; }, Split::cols},
    {ParamKind::expert_fc1, "expert_fc1", [](D d) { return d.local_experts * 2 * d.moe_ffn; },
     hidden, Split::expert_rows},
    {ParamKind::expert_fc2, "expert_fc2", [](D d) { return d.local_experts * d.hidden; },
     [](D d) { return d.moe_ffn; }, Split::expert_cols},
    {ParamKind::final_norm, "final_norm", one, hidden, Split::whole},
    {ParamKind::head, "head", vocab, hidden, Split::rows},
}};

constexpr bool is_indexed_by_kind() {
  for (size_t i = 0; i < kParams.size(); ++i) {
    if (kParams[i].id != static_cast<ParamKind>(i)) return false;
  }
  return true;
}
static_assert(is_indexed_by_kind(), "kParams must be in the order of ParamKind");

void add_run(ParamDesc& param, int64_t global, int64_t count) {
  const int64_t local = param.runs.empty() ? 0 : param.runs.back().local + param.runs.back().count;
  if (!param.runs.empty() && param.runs.back().global + param.runs.back().count == global) {
    param.runs.back().count += count;
  } else {
    param.runs.push_back({local, global, count});
  }
}

/// Rows that `size` ranks share, block by block; `place` is this rank's.
void add_blocks(ParamDesc& param, std::initializer_list<int64_t> local_rows, int64_t size,
                int64_t place, int64_t first = 0) {
  for (const int64_t count : local_rows) {
    add_run(param, first + place * count, count);
    first += size * count;
  }
}

/// Which rows and columns of the whole parameter `rank` holds.
void map_shard(ParamDesc& param, Split split, const LayerDims& d, const Layout& layout, int rank) {
  const int tp = layout.tp_rank(rank);
  param.global_rows = param.rows;
  param.global_cols = param.cols;
  const int64_t half = param.rows / 2;
  switch (split) {
    case Split::whole:
      add_run(param, 0, param.rows);
      break;
    case Split::rows:
      add_blocks(param, {param.rows}, layout.tp, tp);
      param.global_rows *= layout.tp;
      break;
    case Split::projections:
      add_blocks(param, {d.q, d.kv, d.kv}, layout.tp, tp);
      param.global_rows *= layout.tp;
      break;
    case Split::halves:
      add_blocks(param, {half, half}, layout.tp, tp);
      param.global_rows *= layout.tp;
      break;
    case Split::cols:
      add_run(param, 0, param.rows);
      param.first_col = tp * param.cols;
      param.global_cols *= layout.tp;
      break;
    case Split::expert_rows: {
      const int64_t rows = 2 * d.moe_ffn * layout.etp;  // of a whole expert
      for (int64_t i = 0; i < d.local_experts; ++i) {
        add_blocks(param, {d.moe_ffn, d.moe_ffn}, layout.etp, layout.etp_rank(rank),
                   (layout.ep_rank(rank) * d.local_experts + i) * rows);
      }
      param.global_rows *= layout.etp * layout.ep;
      break;
    }
    case Split::expert_cols:
      add_run(param, layout.ep_rank(rank) * param.rows, param.rows);
      param.global_rows *= layout.ep;
      param.first_col = layout.etp_rank(rank) * param.cols;
      param.global_cols *= layout.etp;
      break;
  }
}

class PlanBuilder {
 public:
  PlanBuilder(const Layout& layout, int rank) : layout_(layout), rank_(rank) {}

  void begin_bucket(std::string name, Group group, int64_t layer, bool is_tied_copy = false) {
    finish_bucket();
    plan_.buckets.push_back({std::move(name), group, layer, 0, is_tied_copy});
  }

  void add(ParamKind kind, const LayerDims& dims) {
    BucketDesc& bucket = plan_.buckets.back();
    const ParamRow& row = param_row(kind);
    const std::string_view name = row.name;
    ParamDesc param;
    param.kind = kind;
    param.name =
        bucket.layer >= 0 ? fmt::format("layers.{}.{}", bucket.layer, name) : std::string(name);
    param.layer = bucket.layer;
    param.rows = row.rows(dims);
    param.cols = row.cols(dims);
    param.is_norm = name.ends_with("norm");
    param.is_bias = name.ends_with("bias");
    map_shard(param, row.split, dims, layout_, rank_);
    param.bucket = static_cast<int>(plan_.buckets.size()) - 1;
    param.offset = bucket.numel;
    param.is_tied_copy = bucket.is_tied_copy;
    bucket.numel += align(param.numel(), kShardAlignment);
    plan_.params.push_back(std::move(param));
  }

  ParamPlan finish() {
    finish_bucket();
    return std::move(plan_);
  }

 private:
  void finish_bucket() {
    if (plan_.buckets.empty()) return;
    BucketDesc& bucket = plan_.buckets.back();
    bucket.numel = align(bucket.numel, layout_.group_size(bucket.group) * kShardAlignment);
  }

  Layout layout_;
  int rank_;
  ParamPlan plan_;
};

/// The parameters of a layer but for its experts, in the order in which they lie.
std::vector<ParamKind> dense_params(const ModelSpec& model, const LayerDims& dims) {
  using P = ParamKind;
  std::vector<ParamKind> kinds;
  const auto add = [&](std::initializer_list<ParamKind> more, bool is_there = true) {
    if (is_there) kinds.insert(kinds.end(), more);
  };
  add({P::attn_norm, P::qkv});
  add({P::qkv_bias}, model.has_attention_bias);
  add({P::q_norm, P::k_norm}, model.has_qk_norm);
  add({P::o_proj});
  add({P::o_bias}, model.has_attention_output_bias);
  add({P::mlp_norm});
  add({P::router}, dims.is_moe);
  add({P::shared_fc1, P::shared_fc2}, dims.is_moe && dims.shared_ffn > 0);
  add({P::mlp_fc1}, !dims.is_moe);
  add({P::mlp_fc1_bias}, !dims.is_moe && model.has_mlp_bias);
  add({P::mlp_fc2}, !dims.is_moe);
  add({P::mlp_fc2_bias}, !dims.is_moe && model.has_mlp_bias);
  return kinds;
}

/// What tensor parallelism does not split has a bucket of its own where there is any: its gradients
/// are added up over more ranks.
void add_dense_layer(PlanBuilder& builder, const ModelSpec& model, const LayerDims& dims,
                     int64_t layer) {
  const std::vector<ParamKind> kinds = dense_params(model, dims);
  const auto is_split = [&](ParamKind kind) {
    return dims.tp == 1 || param_row(kind).split != Split::whole;
  };
  builder.begin_bucket(fmt::format("layers.{}.dense", layer), Group::dp_cp, layer);
  for (const ParamKind kind : kinds) {
    if (is_split(kind)) builder.add(kind, dims);
  }
  if (dims.tp == 1) return;
  builder.begin_bucket(fmt::format("layers.{}.replicated", layer), Group::stage, layer);
  for (const ParamKind kind : kinds) {
    if (!is_split(kind)) builder.add(kind, dims);
  }
}

}  // namespace

const ParamRow& param_row(ParamKind kind) { return kParams[static_cast<size_t>(kind)]; }

ParamPlan make_param_plan(const ModelSpec& model, const Knobs& knobs, int rank) {
  const Layout layout = layout_of(knobs);
  const std::vector<StageLayers> stages = split_layers(model, knobs);
  PlanBuilder builder(layout, rank);
  // Sizes of parameters follow neither from the sequence nor from the batch.
  const auto dims_of = [&](int64_t layer) { return layer_dims(model, knobs, 1, layer); };
  const LayerDims outside = dims_of(0);
  for (size_t k = 0; k < stages.size(); ++k) {
    if (static_cast<int>(k) % layout.pp != layout.pp_rank(rank)) continue;
    if (k == 0) {
      builder.begin_bucket("embedding", Group::dp_cp, -1);
      builder.add(ParamKind::embedding, outside);
    }
    for (int64_t i = 0; i < stages[k].count; ++i) {
      const int64_t layer = stages[k].first + i;
      const LayerDims dims = dims_of(layer);
      add_dense_layer(builder, model, dims, layer);
      if (!dims.is_moe) continue;
      builder.begin_bucket(fmt::format("layers.{}.experts", layer), Group::edp, layer);
      builder.add(ParamKind::expert_fc1, dims);
      builder.add(ParamKind::expert_fc2, dims);
    }
    if (k + 1 < stages.size()) continue;
    builder.begin_bucket("final_norm", layout.tp > 1 ? Group::stage : Group::dp_cp, -1);
    builder.add(ParamKind::final_norm, outside);
    if (outside.has_own_head) {
      builder.begin_bucket("head", Group::dp_cp, -1, model.ties_embeddings);
      builder.add(ParamKind::head, outside);
    }
  }
  return builder.finish();
}

int64_t shard_of(const BucketDesc& bucket, const Layout& layout, bool is_sharded) {
  return is_sharded ? bucket.numel / layout.group_size(bucket.group) : bucket.numel;
}

std::vector<ShardPiece> shard_pieces(const ParamPlan& plan, const Layout& layout, int rank,
                                     bool is_sharded) {
  std::vector<ShardPiece> pieces;
  for (size_t i = 0; i < plan.params.size(); ++i) {
    const ParamDesc& param = plan.params[i];
    const BucketDesc& bucket = plan.buckets[static_cast<size_t>(param.bucket)];
    const int64_t shard = shard_of(bucket, layout, is_sharded);
    const int64_t first = is_sharded ? shard * layout.rank_in(bucket.group, rank) : 0;
    const int64_t begin = std::max(param.offset, first);
    const int64_t end = std::min(param.offset + param.numel(), first + shard);
    if (begin < end) pieces.push_back({i, begin, end});
  }
  return pieces;
}

}  // namespace moetune::plan
