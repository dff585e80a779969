// What a stage holds from the first step to the last: weights, gradients, the optimizer's state and
// what goes with them.
#pragma once

#include "tuner/planner/layer_sizes.h"
#include "tuner/planner/memory_profile.h"

namespace moetune::tuner::planner {

/// Share of the moments in an optimizer's state with masters.
inline constexpr double kMomentsOfState = 2.0 / 3;

/// Bytes of an activation or a parameter.
inline double element_bytes(const spec::PlanKnobs& k) { return has_wide_elements(k) ? 4 : 2; }

/// Whether the optimizer is given 16-bit weights and keeps what they lack. Beside products in 8
/// bits with scales of the current tensor or of blocks Megatron-Core makes wide masters itself,
/// unless the state is in the host's memory (optimizer_config.py,
/// use_precision_aware_optimizer_no_fp8_or_ds_fp8).
inline bool has_master_remainders(const spec::PlanKnobs& k) {
  const bool has_current_scales = k.precision == spec::PrecisionRecipe::fp8_current ||
                                  k.precision == spec::PrecisionRecipe::fp8_blockwise ||
                                  k.precision == spec::PrecisionRecipe::mxfp8;
  return k.precision_aware_optimizer &&
         (!has_current_scales || k.main_params != spec::StateType::fp32 ||
          k.optimizer_offload_ratio > 0);
}

struct StaticParts {
  MemoryParts parts;
  /// During the update: narrower gradients in fp32, for an optimizer that takes no others. They are
  /// gone before the next forward (zero_grad of Megatron-Core's distributed optimizer).
  double gradient_copy = 0;
};

/// What PyTorch's allocator counts beside tensors of optimizer state of whole experts: a tensor
/// from 10 MiB on has a segment of its own, in steps of 2 MiB, and up to 1 MiB that it leaves is
/// not split off (c10/cuda/CUDACachingAllocator.cpp: kMinLargeAlloc, kRoundLarge, kSmallSize).
double state_rounding(const PlanRun& run, double expert_elements);

/// Everything that is there from the first step to the last, of one stage. `shapes_elements`: of
/// all different matrices. Bytes.
StaticParts static_parts(const PlanRun& run, const Weights& weights, double shapes_elements);

}  // namespace moetune::tuner::planner
