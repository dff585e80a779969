// Choices of Megatron-Core that others bring with them, whoever makes these.
#pragma once

#include "engine/spec/plan_knobs.h"

namespace moetune::spec {

/// Sets what Megatron-Core asserts beside the run's other choices.
inline void set_implied(PlanKnobs& knobs) {
  // Its only optimizer whose state may lie in the host's memory, or in fewer bits.
  if (knobs.optimizer_offload_ratio > 0 || has_narrow_state(knobs)) {
    knobs.precision_aware_optimizer = true;
  }
  // FSDP2 shares out by itself, and accumulates by itself.
  if (knobs.fsdp == Fsdp::torch) {
    knobs.distributed_optimizer = knobs.gradient_accumulation_fusion = false;
  }
  // Nothing is gathered where nothing is shared out.
  const bool is_shared = knobs.distributed_optimizer || knobs.fsdp == Fsdp::megatron;
  if (!is_shared) knobs.overlap_param_gather = false;
}

}  // namespace moetune::spec
