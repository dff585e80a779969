// Sizes from the configuration; parameters from the rows that the blocks of engine/plan declare.
#include "tuner/planner/layer_sizes.h"

#include <algorithm>
#include <optional>

#include "engine/plan/blocks/blocks.h"
#include "tuner/planner/adapters.h"

namespace moetune::tuner::planner {

namespace {

using plan::BlockKind;
using plan::LayerDims;
using plan::ParamRow;
using plan::Split;

void add_row(const ParamRow& row, const LayerDims& dims, Weights& weights) {
  const int64_t rows = row.rows(dims);
  const int64_t cols = row.cols(dims);
  const auto elements = static_cast<double>(rows) * static_cast<double>(cols);
  if (row.sync == plan::Sync::no_gradient) return;
  const bool is_expert = row.split == Split::expert_rows || row.split == Split::expert_cols;
  (is_expert                   ? weights.experts
   : row.split == Split::whole ? weights.replicated
                               : weights.split) += elements;
  // A matrix, not a vector of norms or biases.
  if (std::min(rows, cols) <= 1) return;
  const int64_t copies = is_expert ? std::max<int64_t>(dims.local_experts, 1) : 1;
  // The router's product is done in fp32, outside of the layers' linear modules.
  if (row.id == plan::ParamKind::router) return;
  weights.products += elements;
  weights.shapes.push_back({rows / copies, cols});
  const std::optional<Adapter> adapter = adapter_of(row, dims);
  if (!adapter) return;
  (is_expert ? weights.expert_adapters : weights.adapters) += adapter->inputs + adapter->outputs;
}

Weights weights_of(BlockKind block, const spec::ModelSpec& model, const LayerDims& dims) {
  Weights weights;
  for (const std::span<const ParamRow> declared : plan::block_of(block).params) {
    for (const ParamRow& row : declared) {
      if (is_there(row, model, dims)) add_row(row, dims, weights);
    }
  }
  return weights;
}

}  // namespace

plan::LayerDims dims_of(const PlanRun& run, spec::LayerKind kind, int64_t window,
                        int64_t seq_length) {
  const spec::ModelSpec& model = *run.model;
  const spec::Knobs knobs = sizes_as_knobs(run.knobs);
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const auto i = static_cast<size_t>(layer);
    const int64_t of_layer = i < model.attention_window.size() ? model.attention_window[i] : 0;
    if (model.kind_of(layer) == kind && (window == kAnyWindow || of_layer == window)) {
      return plan::layer_dims(model, knobs, seq_length, layer);
    }
  }
  // A kind that only multi-token prediction has.
  spec::ModelSpec alone = model;
  alone.num_layers = 1;
  alone.mtp = {};
  alone.layer_kinds = {kind};
  alone.is_moe_layer = {kind.feed_forward == spec::FeedForward::moe};
  alone.attention_window = {std::max<int64_t>(window, 0)};
  return plan::layer_dims(alone, knobs, seq_length, 0);
}

void Weights::add(const Weights& other, double times) {
  split += times * other.split;
  replicated += times * other.replicated;
  experts += times * other.experts;
  products += times * other.products;
  adapters += times * other.adapters;
  expert_adapters += times * other.expert_adapters;
  for (const Shape& shape : other.shapes) {
    if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
  }
}

double bytes_of_type(spec::StateType type) {
  switch (type) {
    case spec::StateType::fp32:
      return 4;
    case spec::StateType::bf16:
    case spec::StateType::fp16:
      return 2;
    case spec::StateType::fp8:
      return 1;
  }
  return 4;
}

bool has_wide_elements(const spec::PlanKnobs& knobs) {
  return knobs.precision == spec::PrecisionRecipe::fp32 ||
         knobs.params_dtype == spec::StateType::fp32;
}

bool has_narrow_weights(const spec::PlanKnobs& knobs) {
  return knobs.fp8_param_gather && knobs.fsdp != spec::Fsdp::torch &&
         is_product_narrow(knobs.precision) && knobs.precision != spec::PrecisionRecipe::nvfp4;
}

spec::Knobs sizes_as_knobs(const spec::PlanKnobs& k) {
  spec::Knobs knobs;
  for (const spec::LayoutSize& size : spec::layout_sizes()) {
    knobs.*size.member = k.*size.plan_member;
  }
  knobs.micro_batch_size = k.micro_batch_size;
  // A trial has no word for an exchange of heads. What plans price of it beside what travels is a
  // ring's; its program is asked for with plan::Planned.
  knobs.cp_comm_type = k.cp_comm_type == spec::PlanCp::all_gather ? spec::CpCommType::all_gather
                                                                  : spec::CpCommType::p2p;
  knobs.linear_ce_chunk_tokens = 1 << 20;
  return knobs;
}

double expert_rows_ratio(const PlanRun& run) {
  const auto capacity = static_cast<double>(run.knobs.capacity_factor);
  if (capacity <= 0) return run.load;
  return run.knobs.pad_to_capacity ? capacity : std::min(capacity, run.load);
}

LayerSizes sizes_of(const PlanRun& run, spec::LayerKind kind, int64_t window) {
  const spec::PlanKnobs& k = run.knobs;
  const spec::ModelSpec& model = *run.model;
  LayerSizes sizes;
  sizes.model = &model;
  sizes.kind = kind;
  sizes.seq = static_cast<double>(run.seq_length);
  sizes.context = window > 0 ? std::min(static_cast<double>(window), sizes.seq) : sizes.seq;
  sizes.tp = k.tp;
  sizes.ep = k.ep;
  sizes.etp = k.etp;
  sizes.tokens = context_tokens(run);
  sizes.own_tokens = sequence_tokens(run);
  sizes.rows = sizes.own_tokens * static_cast<double>(model.experts_per_token) * k.etp *
               expert_rows_ratio(run);
  // Chunks that are recomputed take turns, each with its backward.
  const bool takes_turns = k.recompute.has(spec::PlanRecompute::full);
  sizes.chunk_rows = sizes.rows / (takes_turns ? f64(std::max<int64_t>(run.ep_chunks, 1)) : 1.0);
  sizes.hidden = static_cast<double>(model.hidden_size);
  sizes.element = has_wide_elements(k) ? 4 : 2;
  sizes.is_narrow = is_product_narrow(k.precision);
  sizes.operand = sizes.is_narrow ? 1 : sizes.element;
  return sizes;
}

Weights layer_weights(const PlanRun& run, spec::LayerKind kind) {
  const LayerDims dims = dims_of(run, kind, kAnyWindow, 1);
  Weights weights;
  for (const BlockKind half : plan::halves_of(dims))
    weights.add(weights_of(half, *run.model, dims));
  return weights;
}

Weights embedding_weights(const PlanRun& run) {
  Weights weights = weights_of(BlockKind::embedding, *run.model,
                               dims_of(run, run.model->kind_of(0), kAnyWindow, 1));
  weights.products = 0;
  weights.shapes.clear();
  return weights;
}

Weights head_weights(const PlanRun& run, bool has_embedding_beside) {
  LayerDims dims = dims_of(run, run.model->kind_of(0), kAnyWindow, 1);
  dims.has_own_head = !(run.model->ties_embeddings && has_embedding_beside);
  Weights weights = weights_of(BlockKind::head, *run.model, dims);
  if (!dims.has_own_head) weights.split = 0;
  weights.products = 0;
  return weights;
}

Weights mtp_weights(const PlanRun& run, bool has_embedding_beside) {
  const spec::MtpSpec& mtp = run.model->mtp;
  Weights weights;
  if (mtp.depth == 0) return weights;
  for (const spec::LayerKind kind : mtp.layers) weights.add(layer_weights(run, kind));
  weights.add(
      weights_of(BlockKind::mtp, *run.model, dims_of(run, mtp.layers.front(), kAnyWindow, 1)));
  Weights all;
  all.add(weights, mtp.repeats_layer ? 1 : static_cast<double>(mtp.depth));
  if (!has_embedding_beside) all.add(embedding_weights(run));
  return all;
}

}  // namespace moetune::tuner::planner
