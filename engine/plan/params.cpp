// The parameter plan; see params.h.
#include "engine/plan/params.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetune::plan {
namespace {

// Buckets are padded so that every shard of the distributed optimizer starts at an aligned address.
constexpr int64_t kShardAlignment = 64;

int64_t align(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

class PlanBuilder {
 public:
  explicit PlanBuilder(const Layout& layout) : layout_(layout) {}

  void begin_bucket(std::string name, Group group, int64_t layer, bool is_tied_copy = false) {
    finish_bucket();
    plan_.buckets.push_back({std::move(name), group, layer, 0, is_tied_copy});
  }

  void add(ParamKind kind, const char* short_name, int64_t rows, int64_t cols,
           int64_t first_row = 0) {
    BucketDesc& bucket = plan_.buckets.back();
    ParamDesc param;
    param.kind = kind;
    param.name = bucket.layer >= 0 ? fmt::format("layers.{}.{}", bucket.layer, short_name)
                                   : std::string(short_name);
    param.layer = bucket.layer;
    param.rows = rows;
    param.cols = cols;
    param.first_row = first_row;
    param.bucket = static_cast<int>(plan_.buckets.size()) - 1;
    param.offset = bucket.numel;
    const std::string_view name = short_name;
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

void add_dense_layer(PlanBuilder& builder, const ModelSpec& model, int64_t layer) {
  const int64_t h = model.hidden_size;
  const int64_t qkv = model.q_size() + 2 * model.kv_size();
  builder.begin_bucket(fmt::format("layers.{}.dense", layer), Group::dp_cp, layer);
  builder.add(ParamKind::attn_norm, "attn_norm", 1, h);
  builder.add(ParamKind::qkv, "qkv", qkv, h);
  if (model.has_attention_bias) builder.add(ParamKind::qkv_bias, "qkv_bias", 1, qkv);
  if (model.has_qk_norm) {
    builder.add(ParamKind::q_norm, "q_norm", 1, model.head_dim);
    builder.add(ParamKind::k_norm, "k_norm", 1, model.head_dim);
  }
  builder.add(ParamKind::o_proj, "o_proj", h, model.q_size());
  if (model.has_attention_output_bias) builder.add(ParamKind::o_bias, "o_bias", 1, h);
  builder.add(ParamKind::mlp_norm, "mlp_norm", 1, h);
  if (model.is_moe_layer[static_cast<size_t>(layer)]) {
    builder.add(ParamKind::router, "router", model.num_experts, h);
    if (model.shared_ffn_size > 0) {
      builder.add(ParamKind::shared_fc1, "shared_fc1", 2 * model.shared_ffn_size, h);
      builder.add(ParamKind::shared_fc2, "shared_fc2", h, model.shared_ffn_size);
    }
    return;
  }
  builder.add(ParamKind::mlp_fc1, "mlp_fc1", 2 * model.ffn_size, h);
  if (model.has_mlp_bias)
    builder.add(ParamKind::mlp_fc1_bias, "mlp_fc1_bias", 1, 2 * model.ffn_size);
  builder.add(ParamKind::mlp_fc2, "mlp_fc2", h, model.ffn_size);
  if (model.has_mlp_bias) builder.add(ParamKind::mlp_fc2_bias, "mlp_fc2_bias", 1, h);
}

void add_experts(PlanBuilder& builder, const ModelSpec& model, const Layout& layout, int rank,
                 int64_t layer) {
  const int64_t num_local = model.num_experts / layout.ep;
  const int64_t first = num_local * layout.ep_rank(rank);
  const int64_t h = model.hidden_size;
  const int64_t f = model.moe_ffn_size;
  builder.begin_bucket(fmt::format("layers.{}.experts", layer), Group::edp, layer);
  builder.add(ParamKind::expert_fc1, "expert_fc1", num_local * 2 * f, h, first * 2 * f);
  builder.add(ParamKind::expert_fc2, "expert_fc2", num_local * h, f, first * h);
}

}  // namespace

ParamPlan make_param_plan(const ModelSpec& model, const Knobs& knobs, int rank) {
  const Layout layout = layout_of(knobs);
  const StageLayers stage = split_layers(model, knobs)[static_cast<size_t>(layout.pp_rank(rank))];
  PlanBuilder builder(layout);
  const bool is_first = layout.pp_rank(rank) == 0;
  const bool is_last = layout.pp_rank(rank) == layout.pp - 1;
  if (is_first) {
    builder.begin_bucket("embedding", Group::dp_cp, -1);
    builder.add(ParamKind::embedding, "embedding", model.vocab_size, model.hidden_size);
  }
  for (int64_t layer = stage.first; layer < stage.first + stage.count; ++layer) {
    add_dense_layer(builder, model, layer);
    if (model.is_moe_layer[static_cast<size_t>(layer)]) {
      add_experts(builder, model, layout, rank, layer);
    }
  }
  if (is_last) {
    builder.begin_bucket("final_norm", Group::dp_cp, -1);
    builder.add(ParamKind::final_norm, "final_norm", 1, model.hidden_size);
    const bool needs_own_head = !model.ties_embeddings || layout.pp > 1;
    if (needs_own_head) {
      builder.begin_bucket("head", Group::dp_cp, -1, model.ties_embeddings);
      builder.add(ParamKind::head, "head", model.vocab_size, model.hidden_size);
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
