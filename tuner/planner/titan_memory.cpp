// FSDP2, autocast, loss and selective activation checkpointing as torchtitan has them.
#include "tuner/planner/titan_memory.h"

#include <algorithm>

#include "tuner/planner/memory_rows.h"

namespace moetune::tuner::planner {

using spec::CrossEntropy;
using spec::FeedForward;
using spec::Mixer;
using spec::PlanRecompute;
using spec::PrecisionRecipe;
using spec::StateType;

namespace {

constexpr double kNarrow = 2;

/// Its products read the norm's output each by itself: gate and up projection, or one.
double mlp_readers(const LayerSizes& sizes) { return sizes.model->has_gated_mlp ? 2 : 1; }

}  // namespace

spec::Fsdp titan_sharding(const spec::PlanKnobs& k) {
  if (k.dense_copies() == 1) return spec::Fsdp::none;
  return k.has_replicas_only() ? k.fsdp : spec::Fsdp::torch;
}

bool lacks_titan_shards(const spec::PlanKnobs& k) {
  return k.ep > 1 && titan_sharding(k) == spec::Fsdp::none;
}

bool has_titan_shards(const PlanRun& run) {
  return !run.is_of_megatron && titan_sharding(run.knobs) != spec::Fsdp::none;
}

bool is_titan_unsharded(const PlanRun& run) {
  return !run.is_of_megatron && !has_titan_shards(run);
}

bool has_titan_autocast(const PlanRun& run) {
  const spec::PlanKnobs& k = run.knobs;
  return is_titan_unsharded(run) && k.tp == 1 && k.pp == 1 && k.main_params == StateType::fp32 &&
         k.precision != PrecisionRecipe::fp32;
}

spec::PlanKnobs computed_knobs(const PlanRun& run) {
  spec::PlanKnobs knobs = run.knobs;
  if (has_own_modules(run) && is_product_narrow(knobs.precision)) {
    knobs.precision = PrecisionRecipe::bf16;
  }
  if (!run.is_of_megatron) knobs.fsdp = titan_sharding(knobs);
  const bool is_wide =
      is_titan_unsharded(run) && knobs.main_params == StateType::fp32 && !has_titan_autocast(run);
  if (!is_wide) return knobs;
  knobs.params_dtype = StateType::fp32;
  if (knobs.precision == PrecisionRecipe::bf16 || knobs.precision == PrecisionRecipe::fp16) {
    knobs.precision = PrecisionRecipe::fp32;
  }
  if (run.model->mla.kv_lora_rank == 0) knobs.fused_attention = false;
  return knobs;
}

double titan_bucket_bytes(const PlanRun& run, double num_parameters) {
  return is_titan_unsharded(run) && run.knobs.dp > 1
             ? figure_of<MemoryRule::titan_buckets>() * num_parameters
             : 0;
}

double titan_norm_readers(const LayerSizes& sizes) {
  double readers = 0;
  if (sizes.kind.mixer == Mixer::gqa) {
    readers += 3;
  } else if (sizes.kind.mixer != Mixer::none) {
    readers += sizes.kind.mixer == Mixer::mla ? 2 : 1;
  }
  if (sizes.kind.feed_forward == FeedForward::dense) readers += mlp_readers(sizes);
  if (sizes.kind.feed_forward == FeedForward::moe) {
    readers += 1;  // the router
    if (sizes.model->shared_ffn_size > 0) readers += mlp_readers(sizes);
  }
  return readers;
}

double titan_autocast_bytes(const PlanRun& run, const LayerSizes& sizes) {
  const spec::ModelSpec& model = *sizes.model;
  const FeedForward half = sizes.kind.feed_forward;
  const double own = sizes.own_tokens * sizes.hidden;
  const double norms =
      (sizes.kind.mixer != Mixer::none ? 1.0 : 0.0) + (half != FeedForward::none ? 1.0 : 0.0);
  // The inputs of norms are wider; each norm has one reader already.
  double bytes = own * (norms * (kWide - kNarrow) + (titan_norm_readers(sizes) - norms) * kNarrow);
  if (sizes.kind.mixer == Mixer::gqa && model.has_qk_norm) {
    // Weights of a norm are wide and its inputs are not: it runs step by step, and keeps its input
    // in 32 bits beside the normalized one.
    bytes += sizes.tokens * kWide * f64((model.num_heads + model.num_kv_heads) * model.head_dim);
  }
  const double gate = model.has_gated_mlp ? kNarrow : 0;
  if (half == FeedForward::dense) bytes += sizes.tokens * f64(model.ffn_size) * gate;
  if (half == FeedForward::moe) {
    bytes += 2 * sizes.rows * sizes.hidden * kNarrow;
    bytes += sizes.tokens * f64(model.shared_ffn_size) * gate;
    if (run.knobs.fused_activation) bytes += sizes.rows * f64(model.moe_ffn_size) * gate;
  }
  return bytes + kNarrow * layer_weights(run, sizes.kind).products;
}

double titan_autocast_loss_bytes(const PlanRun& run, double num_logits, double cached_bytes) {
  const double hidden = f64(run.model->hidden_size);
  const double head = hidden * f64(run.model->vocab_rows());
  const bool is_compiled = run.knobs.cross_entropy == CrossEntropy::native;
  // Forward: logits, compiled nothing else; else their wide copy and its log-softmax. Backward: see
  // titan_logit_bytes. Behind it the gradient of the matrix, cast from 16 bits.
  const double forward = (is_compiled ? kNarrow : kNarrow + 2 * kWide) * num_logits + cached_bytes;
  const double backward = (is_compiled ? 2 * kNarrow : 3 * kWide) * num_logits;
  const double of_head = kNarrow * num_logits + (kNarrow + kWide) * head;
  // The norm's wide input, the head's narrow one, and the matrix in 16 bits.
  const double kept = sequence_tokens(run) * hidden * (kWide + kNarrow) + kNarrow * head;
  return kept + std::max({forward, backward, of_head});
}

bool keeps_titan_stage_gathered(const PlanRun& run) {
  return has_titan_shards(run) && run.knobs.pp > 1;
}

bool sums_titan_gradients_whole(const PlanRun& run) {
  return keeps_titan_stage_gathered(run) && micro_batches_of_pass(run) > 1;
}

std::optional<double> titan_logit_bytes(const spec::PlanKnobs& knobs) {
  switch (knobs.cross_entropy) {
    case CrossEntropy::native:
      return has_wide_elements(knobs) ? 8 : 4;
    case CrossEntropy::unfused:
      return knobs.tp > 1 ? 16 : 12;
    default:
      return std::nullopt;
  }
}

bool has_titan_selective(const PlanRun& run) {
  const spec::PlanRecomputeSet& recompute = run.knobs.recompute;
  return !run.is_of_megatron && !recompute.empty() && !recompute.has(PlanRecompute::full);
}

std::optional<double> titan_selective_bytes(const PlanRun& run, const LayerSizes& sizes) {
  const FeedForward half = sizes.kind.feed_forward;
  const bool is_known = half == FeedForward::dense || (half == FeedForward::moe && sizes.ep == 1);
  if (!has_titan_selective(run) || sizes.kind.mixer != Mixer::gqa || !is_known) {
    return std::nullopt;
  }
  const spec::ModelSpec& model = *sizes.model;
  const double heads = static_cast<double>(model.num_heads) / sizes.tp;
  const double kv_heads = std::max(1.0, static_cast<double>(model.num_kv_heads) / sizes.tp);
  const auto head_dim = static_cast<double>(model.head_dim);
  // In order: queries, keys, values, attention's output, gate, up, down, the latter three of shared
  // experts where there are others. Odd ones are kept. The router's does not count: it is always
  // computed again (per_op_sac_force_recompute_mm_shapes_by_fqns).
  double columns = heads * head_dim + kv_heads * head_dim;
  const int64_t ffn = half == FeedForward::dense ? model.ffn_size : model.shared_ffn_size;
  columns += f64(ffn) / sizes.tp;
  if (model.has_gated_mlp && ffn > 0) columns += sizes.hidden;
  const double attention = heads * head_dim;
  constexpr double kLogSumExp = 4;
  const double stream = has_titan_autocast(run) ? kWide : sizes.element;
  double bytes = sizes.own_tokens * sizes.hidden * stream;
  bytes += sizes.tokens * ((columns + attention) * sizes.element + heads * kLogSumExp);
  if (sizes.tp > 1) bytes += 2 * sizes.own_tokens * sizes.hidden * sizes.element;
  return bytes;
}

}  // namespace moetune::tuner::planner
