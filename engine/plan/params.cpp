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
    {ParamKind::embedding, "embedding", vocab, hidden},
    {ParamKind::attn_norm, "attn_norm", one, hidden},
    {ParamKind::qkv, "qkv", qkv, hidden},
    {ParamKind::qkv_bias, "qkv_bias", one, qkv},
    {ParamKind::q_norm, "q_norm", one, head_dim},
    {ParamKind::k_norm, "k_norm", one, head_dim},
    {ParamKind::o_proj, "o_proj", hidden, [](D d) { return d.q; }},
    {ParamKind::o_bias, "o_bias", one, hidden},
    {ParamKind::mlp_norm, "mlp_norm", one, hidden},
    {ParamKind::router, "router", [](D d) { return d.experts; }, hidden},
    {ParamKind::mlp_fc1, "mlp_fc1", ffn2, hidden},
    {ParamKind::mlp_fc1_bias, "mlp_fc1_bias", one, ffn2},
    {ParamKind::mlp_fc2, "mlp_fc2", hidden, [](D d) { return d.ffn; }},
    {ParamKind::mlp_fc2_bias, "mlp_fc2_bias", one, hidden},
    {ParamKind::shared_fc1, "shared_fc1", [](D d) { return 2 * d.shared_ffn; }, hidden},
    {ParamKind::shared_fc2, "shared_fc2", hidden, [](D d) { return d.shared_ffn; }},
    {ParamKind::expert_fc1, "expert_fc1", [](D d) { return d.local_experts * 2 * d.moe_ffn; },
     hidden},
    {ParamKind::expert_fc2, "expert_fc2", [](D d) { return d.local_experts * d.hidden; },
     [](D d) { return d.moe_ffn; }},
    {ParamKind::final_norm, "final_norm", one, hidden},
    {ParamKind::head, "head", vocab, hidden},
}};

constexpr bool is_indexed_by_kind() {
  for (size_t i = 0; i < kParams.size(); ++i) {
    if (kParams[i].id != static_cast<ParamKind>(i)) return false;
  }
  return true;
}
static_assert(is_indexed_by_kind(), "kParams must be in the order of ParamKind");

class PlanBuilder {
 public:
  explicit PlanBuilder(const Layout& layout) : layout_(layout) {}

  void begin_bucket(std::string name, Group group, int64_t layer, bool is_tied_copy = false) {
    finish_bucket();
    plan_.buckets.push_back({std::move(name), group, layer, 0, is_tied_copy});
  }

  /// `ep_rank`: of experts, whose shards lie one after another.
  void add(ParamKind kind, const LayerDims& dims, int64_t ep_rank = 0) {
    BucketDesc& bucket = plan_.buckets.back();
    const ParamRow& row = param_row(kind);
    ParamDesc param;
    param.kind = kind;
    param.name = bucket.layer >= 0 ? fmt::format("layers.{}.{}", bucket.layer, row.name)
                                   : std::string(row.name);
    param.layer = bucket.layer;
    param.rows = row.rows(dims);
    param.cols = row.cols(dims);
    param.first_row = ep_rank * param.rows;
    param.bucket = static_cast<int>(plan_.buckets.size()) - 1;
    param.offset = bucket.numel;
    const std::string_view name = row.name;
    param.is_norm = name.ends_with("norm");
    param.is_bias = name.ends_with("bias");
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
  ParamPlan plan_;
};

void add_dense_layer(PlanBuilder& builder, const ModelSpec& model, const LayerDims& dims,
                     int64_t layer) {
  using P = ParamKind;
  const auto add = [&](std::initializer_list<ParamKind> kinds, bool is_there = true) {
    if (!is_there) return;
    for (const ParamKind kind : kinds) builder.add(kind, dims);
  };
  builder.begin_bucket(fmt::format("layers.{}.dense", layer), Group::dp_cp, layer);
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
}

}  // namespace

const ParamRow& param_row(ParamKind kind) { return kParams[static_cast<size_t>(kind)]; }

ParamPlan make_param_plan(const ModelSpec& model, const Knobs& knobs, int rank) {
  const Layout layout = layout_of(knobs);
  const std::vector<StageLayers> stages = split_layers(model, knobs);
  PlanBuilder builder(layout);
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
      builder.add(ParamKind::expert_fc1, dims, layout.ep_rank(rank));
      builder.add(ParamKind::expert_fc2, dims, layout.ep_rank(rank));
    }
    if (k + 1 < stages.size()) continue;
    builder.begin_bucket("final_norm", Group::dp_cp, -1);
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
