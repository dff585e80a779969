// Shapes of all weights in a layout, and how they are put into buckets.
#include "engine/plan/params.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "engine/plan/blocks/blocks.h"
#include "kernels/base/error.h"

namespace moetune::plan {
namespace {

// Buckets are padded so that every shard of the distributed optimizer starts at an aligned address.
constexpr int64_t kShardAlignment = 64;

int64_t align(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

void add_run(ParamDesc& param, int64_t global, int64_t count) {
  const int64_t local = param.runs.empty() ? 0 : param.runs.back().local + param.runs.back().count;
  if (!param.runs.empty() && param.runs.back().global + param.runs.back().count == global) {
    param.runs.back().count += count;
  } else {
    param.runs.push_back({local, global, count});
  }
}

/// Rows that `size` ranks share, block by block; `place` is this rank's.
void add_blocks(ParamDesc& param, const std::vector<int64_t>& local_rows, int64_t size,
                int64_t place, int64_t first = 0) {
  for (const int64_t count : local_rows) {
    if (count == 0) continue;
    add_run(param, first + place * count, count);
    first += size * count;
  }
}

/// The same of each of the rank's experts.
void add_experts(ParamDesc& param, const std::vector<int64_t>& local_rows, const LayerDims& d,
                 const Layout& layout, int rank) {
  const int64_t rows = param.rows / d.local_experts * layout.etp;  // of a whole expert
  for (int64_t i = 0; i < d.local_experts; ++i) {
    add_blocks(param, local_rows, layout.etp, layout.etp_rank(rank),
               (layout.ep_rank(rank) * d.local_experts + i) * rows);
  }
  param.global_rows *= layout.etp * layout.ep;
}

/// Which rows and columns of the whole parameter `rank` holds.
void map_shard(ParamDesc& param, const ParamRow& row, const LayerDims& d, const Layout& layout,
               int rank) {
  const int tp = layout.tp_rank(rank);
  param.global_rows = param.rows;
  param.global_cols = param.cols;
  const auto num_halves = static_cast<size_t>(d.fc1_halves);
  const auto in_halves = [&](int64_t rows) {
    return std::vector<int64_t>(num_halves, rows / d.fc1_halves);
  };
  switch (row.split) {
    case Split::whole:
      add_run(param, 0, param.rows);
      break;
    case Split::rows:
      add_blocks(param, {param.rows}, layout.tp, tp);
      param.global_rows *= layout.tp;
      break;
    case Split::projections:
      add_blocks(param, row.projections(d), layout.tp, tp);
      param.global_rows *= layout.tp;
      break;
    case Split::halves:
      add_blocks(param, in_halves(param.rows), layout.tp, tp);
      param.global_rows *= layout.tp;
      break;
    case Split::cols:
      add_run(param, 0, param.rows);
      param.first_col = tp * param.cols;
      param.global_cols *= layout.tp;
      break;
    case Split::expert_rows:
      add_experts(param, in_halves(param.rows / d.local_experts), d, layout, rank);
      break;
    case Split::expert_part:
      add_experts(param, {param.rows / d.local_experts}, d, layout, rank);
      break;
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
    plan_.buckets.push_back(
        {.name = std::move(name), .group = group, .layer = layer, .is_tied_copy = is_tied_copy});
  }

  void add(const ParamRow& row, const LayerDims& dims) {
    BucketDesc& bucket = plan_.buckets.back();
    const std::string_view name = row.name;
    ParamDesc param;
    param.kind = row.id;
    param.name =
        bucket.layer >= 0 ? fmt::format("layers.{}.{}", bucket.layer, name) : std::string(name);
    param.layer = bucket.layer;
    param.rows = row.rows(dims);
    param.cols = row.cols(dims);
    param.is_norm = name.ends_with("norm");
    param.is_bias = name.ends_with("bias");
    map_shard(param, row, dims, layout_, rank_);
    param.bucket = static_cast<int>(plan_.buckets.size()) - 1;
    bucket.has_gradient = row.sync != Sync::no_gradient;
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
    bucket.own_numel = bucket.numel;
  }

  Layout layout_;
  int rank_;
  ParamPlan plan_;
};

bool is_of_experts(const ParamRow& row) {
  return row.split == Split::expert_rows || row.split == Split::expert_cols ||
         row.split == Split::expert_part;
}

/// Those of a block that the model has.
void append_rows(BlockKind kind, const ModelSpec& model, const LayerDims& dims,
                 std::vector<const ParamRow*>& rows) {
  for (const std::span<const ParamRow> declared : block_of(kind).params) {
    for (const ParamRow& row : declared) {
      if (is_there(row, model, dims)) rows.push_back(&row);
    }
  }
}

std::vector<const ParamRow*> declared_rows(const ModelSpec& model, const LayerDims& dims) {
  std::vector<const ParamRow*> rows;
  for (const BlockKind half : halves_of(dims)) append_rows(half, model, dims, rows);
  return rows;
}

/// Which parameters lie together: those whose gradients the same ranks sum up.
struct BucketKind {
  const char* name;
  bool is_of_experts;
  Sync sync;
  Group group;
};
constexpr BucketKind kBucketKinds[] = {
    {"dense", false, Sync::sharded, Group::dp_cp},
    {"replicated", false, Sync::replicated, Group::stage},
    {"state", false, Sync::no_gradient, Group::stage},
    {"experts", true, Sync::sharded, Group::edp},
    {"expert_state", true, Sync::no_gradient, Group::edp},
};

/// Without tensor parallelism nothing is split, and nobody else sees other tokens.
bool belongs(const ParamRow& row, const BucketKind& kind, const LayerDims& dims) {
  MOETUNE_CHECK(row.sync == Sync::no_gradient ||
                    (row.sync == Sync::replicated) == (row.split == Split::whole),
                "{}: a split parameter must be sharded, a whole one replicated", row.name);
  const bool is_alone = row.sync == Sync::replicated && dims.tp == 1;
  return is_of_experts(row) == kind.is_of_experts &&
         (is_alone ? Sync::sharded : row.sync) == kind.sync;
}

void add_layer(PlanBuilder& builder, const std::vector<const ParamRow*>& rows,
               const LayerDims& dims, int64_t layer) {
  for (const BucketKind& kind : kBucketKinds) {
    const auto is_in = [&](const ParamRow* row) { return belongs(*row, kind, dims); };
    if (std::ranges::none_of(rows, is_in)) continue;
    builder.begin_bucket(fmt::format("layers.{}.{}", layer, kind.name), kind.group, layer);
    for (const ParamRow* row : rows) {
      if (is_in(row)) builder.add(*row, dims);
    }
  }
}

void add_end(PlanBuilder& builder, const ParamRow& row, const LayerDims& dims, bool is_tied_copy) {
  const auto* kind = std::ranges::find_if(
      kBucketKinds, [&](const BucketKind& other) { return belongs(row, other, dims); });
  builder.begin_bucket(row.name, kind->group, -1, is_tied_copy);
  builder.add(row, dims);
}

/// Outside of layers each parameter has a bucket of its own.
void add_ends(PlanBuilder& builder, BlockKind block, const ModelSpec& model,
              const LayerDims& dims) {
  std::vector<const ParamRow*> rows;
  append_rows(block, model, dims, rows);
  for (const ParamRow* row : rows) {
    add_end(builder, *row, dims, row->id == ParamKind::head && model.ties_embeddings);
  }
}

}  // namespace

bool has_embedding_copy(const ModelSpec& model, const Knobs& knobs) {
  return model.mtp.depth > 0 && !model.ties_embeddings && knobs.pipeline_model_parallel_size > 1;
}

ParamPlan make_param_plan(const ModelSpec& model, const Knobs& knobs, int rank) {
  return make_param_plan(model, knobs, rank, declared_rows);
}

ParamPlan make_param_plan(const ModelSpec& model, const Knobs& knobs, int rank,
                          LayerRows rows_of_layer) {
  const Layout layout = layout_of(knobs);
  const std::vector<StageLayers> stages = split_layers(model, knobs);
  PlanBuilder builder(layout, rank);
  // Sizes of parameters follow neither from the sequence nor from the batch.
  const auto dims_of = [&](int64_t layer) { return layer_dims(model, knobs, 1, layer); };
  for (size_t k = 0; k < stages.size(); ++k) {
    if (layout.place_of_stage(Axis::pp, static_cast<int>(k)) != layout.pp_rank(rank)) continue;
    if (k == 0) add_ends(builder, BlockKind::embedding, model, dims_of(0));
    for (int64_t i = 0; i < stages[k].count; ++i) {
      const LayerDims dims = dims_of(stages[k].first + i);
      add_layer(builder, rows_of_layer(model, dims), dims, stages[k].first + i);
    }
    if (k + 1 < stages.size()) continue;
    const auto num_in_depth = static_cast<int64_t>(model.mtp.layers.size());
    const int64_t num_depths =
        model.mtp.repeats_layer ? std::min<int64_t>(model.mtp.depth, 1) : model.mtp.depth;
    for (int64_t i = 0; i < num_depths * num_in_depth; ++i) {
      const LayerDims dims = dims_of(model.num_layers + i);
      std::vector<const ParamRow*> rows;
      if (i % num_in_depth == 0) {
        append_rows(BlockKind::mtp, model, dims, rows);
        append_rows(BlockKind::mtp_head, model, dims, rows);
        // The head is the model's own.
        std::erase_if(rows, [](const ParamRow* row) { return row->id == ParamKind::head; });
      }
      const std::vector<const ParamRow*> of_layer = rows_of_layer(model, dims);
      rows.insert(rows.end(), of_layer.begin(), of_layer.end());
      add_layer(builder, rows, dims, model.num_layers + i);
    }
    if (has_embedding_copy(model, knobs)) {
      add_end(builder, param_row(ParamKind::embedding), dims_of(0), true);
    }
    add_ends(builder, BlockKind::head, model, dims_of(0));
  }
  return builder.finish();
}

int64_t shard_of(const BucketDesc& bucket, const Layout& layout) {
  return bucket.numel / layout.group_size(bucket.group);
}

std::vector<ShardPiece> shard_pieces(const ParamPlan& plan, const Layout& layout, int rank) {
  std::vector<ShardPiece> pieces;
  for (size_t i = 0; i < plan.params.size(); ++i) {
    const ParamDesc& param = plan.params[i];
    const BucketDesc& bucket = plan.buckets[static_cast<size_t>(param.bucket)];
    const int64_t shard = shard_of(bucket, layout);
    const int64_t first = shard * layout.rank_in(bucket.group, rank);
    const int64_t begin = std::max(param.offset, first);
    const int64_t end = std::min(param.offset + param.numel(), first + shard);
    if (begin < end) pieces.push_back({i, begin, end});
  }
  return pieces;
}

}  // namespace moetune::plan
