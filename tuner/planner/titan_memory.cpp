// FSDP2, loss and selective activation checkpointing as torchtitan has them.
#include "tuner/planner/titan_memory.h"

#include <algorithm>

namespace moetune::tuner::planner {

using spec::CrossEntropy;
using spec::PlanRecompute;

bool has_titan_shards(const PlanRun& run) {
  return !run.is_of_megatron && run.knobs.fsdp != spec::Fsdp::none;
}

bool keeps_titan_stage_gathered(const PlanRun& run) {
  return has_titan_shards(run) && run.knobs.pp > 1;
}

bool sums_titan_gradients_whole(const PlanRun& run) {
  return keeps_titan_stage_gathered(run) && num_micro_batches(run) > 1;
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

std::optional<double> titan_selective_bytes(const PlanRun& run, const LayerSizes& sizes) {
  const spec::PlanRecomputeSet& recompute = run.knobs.recompute;
  const bool is_selective =
      !run.is_of_megatron && !recompute.empty() && !recompute.has(PlanRecompute::full);
  if (!is_selective || sizes.kind.mixer != spec::Mixer::gqa ||
      sizes.kind.feed_forward != spec::FeedForward::dense) {
    return std::nullopt;
  }
  const spec::ModelSpec& model = *sizes.model;
  const double heads = static_cast<double>(model.num_heads) / sizes.tp;
  const double kv_heads = std::max(1.0, static_cast<double>(model.num_kv_heads) / sizes.tp);
  const auto head_dim = static_cast<double>(model.head_dim);
  // In order: queries, keys, values, attention's output, gate, up, down. Odd ones are kept.
  double columns = heads * head_dim + kv_heads * head_dim;
  columns += static_cast<double>(model.ffn_size) / sizes.tp;
  if (model.has_gated_mlp) columns += sizes.hidden;
  const double attention = heads * head_dim;
  constexpr double kLogSumExp = 4;
  double bytes = sizes.own_tokens * sizes.hidden * sizes.element;
  bytes += sizes.tokens * ((columns + attention) * sizes.element + heads * kLogSumExp);
  if (sizes.tp > 1) bytes += 2 * sizes.own_tokens * sizes.hidden * sizes.element;
  return bytes;
}

}  // namespace moetune::tuner::planner
