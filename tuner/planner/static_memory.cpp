// Bytes by the types of a run, shared out over replicas.
#include "tuner/planner/static_memory.h"

#include <algorithm>
#include <cmath>

#include "tuner/planner/adapters.h"
#include "tuner/planner/memory_rows.h"
#include "tuner/planner/titan_memory.h"

namespace moetune::tuner::planner {

using spec::Fsdp;
using spec::OptimizerKind;
using spec::PlanKnobs;
using spec::PrecisionRecipe;
using spec::StateType;

namespace {

/// Optimizer state of one parameter that a rank owns: moments and master weight.
double state_bytes(const PlanKnobs& k, bool has_master) {
  double moments = bytes_of_type(k.exp_avg) + bytes_of_type(k.exp_avg_sq);
  // Muon has one moment for matrices, and nearly all parameters are matrices. Sharded it holds more
  // than its share, since whole matrices go to ranks.
  if (k.optimizer == OptimizerKind::muon && !k.distributed_optimizer)
    moments = bytes_of_type(k.exp_avg);
  if (k.optimizer == OptimizerKind::sgd) moments = 0;
  double master = figure_of<MemoryRule::master>();
  if (has_wide_elements(k) || !has_master) {
    master = 0;
  } else if (has_master_remainders(k)) {
    // The master stores only the 16 bits that the 16-bit weight lacks.
    master = figure_of<MemoryRule::master_remainder>();
  }
  return (moments + master) * (1 - static_cast<double>(k.optimizer_offload_ratio));
}

/// Copies of a linear weight in the products' own type, beside the 16-bit one.
double narrow_bytes(const PlanRun& run) {
  switch (run.knobs.precision) {
    case PrecisionRecipe::fp8_current:
    case PrecisionRecipe::fp8_delayed:
      return run.hardware->fp4_flops_per_s > 0 ? figure_of<MemoryRule::fp8_copies_of_fp4_devices>()
                                               : figure_of<MemoryRule::fp8_copies>();
    case PrecisionRecipe::fp8_blockwise:
      return figure_of<MemoryRule::blockwise_copies>();
    case PrecisionRecipe::mxfp8:
      return figure_of<MemoryRule::mxfp8_copies>();
    case PrecisionRecipe::nvfp4:
      return figure_of<MemoryRule::nvfp4_copies>();
    default:
      return 0;
  }
}

}  // namespace

double state_rounding(const PlanRun& run, double expert_elements) {
  const PlanKnobs& k = run.knobs;
  const spec::ModelSpec& model = *run.model;
  const bool is_cut = k.distributed_optimizer && k.expert_copies() > 1;
  const bool is_elsewhere = k.fsdp != Fsdp::none || k.optimizer_offload_ratio > 0;
  if (expert_elements <= 0 || is_cut || is_elsewhere || has_adapters(k)) return 0;
  constexpr double kMiB = 1 << 20;
  const auto beside = [](double bytes) {
    if (bytes < 10 * kMiB) return 0.0;
    const double left = std::ceil(bytes / (2 * kMiB)) * 2 * kMiB - bytes;
    return left <= kMiB ? left : 0.0;
  };
  const double width =
      static_cast<double>(model.moe_latent_size > 0 ? model.moe_latent_size : model.hidden_size);
  const double second = width * static_cast<double>(model.moe_ffn_size) / k.etp;
  const double first = second * (model.has_gated_mlp ? 2 : 1);
  double master = figure_of<MemoryRule::master>();
  if (has_master_remainders(k)) master = figure_of<MemoryRule::master_remainder>();
  if (has_wide_elements(k)) master = 0;
  double each = 0;
  for (const double type : {bytes_of_type(k.exp_avg), bytes_of_type(k.exp_avg_sq), master}) {
    each += beside(first * type) + beside(second * type);
  }
  return each * expert_elements / (first + second);
}

StaticParts static_parts(const PlanRun& run, const Weights& weights, double shapes_elements) {
  const PlanKnobs& k = run.knobs;
  const double element = element_bytes(k);
  const double dense = weights.split + weights.replicated;
  const auto copies = static_cast<double>(k.dense_copies());
  const auto expert_copies = static_cast<double>(k.expert_copies());
  const auto shards = [&](double all) {
    return k.distributed_optimizer ? all / std::min<double>(all, k.optimizer_instances) : 1.0;
  };
  const bool is_sharded = k.fsdp != Fsdp::none;
  const auto held_of = [&](double whole, double experts) {
    return is_sharded ? whole / copies + experts / expert_copies : whole + experts;
  };
  const auto owned_of = [&](double whole, double experts) {
    return is_sharded ? held_of(whole, experts)
                      : whole / shards(copies) + experts / shards(expert_copies);
  };
  const double held = held_of(dense, weights.experts);
  // Of the products' matrices, those of experts are shared out over the experts' own replicas.
  const double dense_products = std::max(0.0, weights.products - weights.experts);
  const double held_products =
      is_sharded ? dense_products / copies + (weights.products - dense_products) / expert_copies
                 : weights.products;
  // Frozen weights have neither gradients nor state: adapters beside them do.
  const bool is_frozen = has_adapters(k);
  const double rank = k.lora_rank;
  const double dense_adapters = rank * weights.adapters;
  const double expert_adapters = rank * weights.expert_adapters;
  const double held_adapters = is_frozen ? held_of(dense_adapters, expert_adapters) : 0;
  const double trained = is_frozen ? held_adapters : held;
  const double owned =
      is_frozen ? owned_of(dense_adapters, expert_adapters) : owned_of(dense, weights.experts);
  StaticParts result;
  MemoryParts& parts = result.parts;
  parts.weights = element * (held + held_adapters);
  if (!run.is_of_megatron) {
    // Torchtitan has the weights that the optimizer updates and no others, none in 8 bits. What
    // FSDP2 offloads is all of that, gradients too.
    const double here = 1 - static_cast<double>(k.optimizer_offload_ratio);
    parts.weights = here * bytes_of_type(k.main_params) * (held + held_adapters);
    parts.gradients = sums_titan_gradients_whole(run)
                          ? figure_of<MemoryRule::titan_whole_gradients>() * weights.total()
                          : here * bytes_of_type(k.main_grads) * trained;
    parts.optimizer = state_bytes(k, false) * owned;
    return result;
  }
  const double gradient = bytes_of_type(k.main_grads);
  parts.gradients = gradient * trained;
  parts.optimizer = state_bytes(k, true) * owned + state_rounding(run, weights.experts);
  constexpr double kCopied = figure_of<MemoryRule::gradient_copy>();
  if (gradient < kCopied && !k.precision_aware_optimizer) result.gradient_copy = kCopied * owned;
  parts.narrow_weights = narrow_bytes(run) * held_products;
  if (has_narrow_weights(k)) parts.weights -= element * held_products;
  if (k.gradient_accumulation_fusion && !is_frozen) {
    parts.dummy_gradients = element * shapes_elements;
  }
  return result;
}

}  // namespace moetune::tuner::planner
