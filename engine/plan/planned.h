// Techniques that plans price and the engine does not run yet, as the compiler takes them. They are
// no knobs of a trial: rule engine_runs_knob refuses those (engine/spec/engine_gap.h).
#pragma once

#include "engine/spec/plan_knobs.h"

namespace moetune::plan {

/// What a planned step has beside its trial. Each is a pass, a schedule, a dispatcher or a form of
/// attention; empty: the step is the engine's own.
struct Planned {
  spec::Fsdp fsdp = spec::Fsdp::none;
  spec::OffloadSet offload;           ///< saved activations that wait in the host's memory
  float optimizer_offload_ratio = 0;  ///< of the optimizer's state, 0 to 1
  spec::PrecisionRecipe precision = spec::PrecisionRecipe::bf16;  ///< of products
  spec::Dispatcher dispatcher = spec::Dispatcher::alltoall;
  bool overlaps_micro_batches = false;  ///< one's forward beside another's backward
  bool exchanges_heads = false;  ///< of attention: a rank has all tokens and a share of the heads

  bool operator==(const Planned&) const = default;
};

/// Of a plan's choices, what belongs here.
inline Planned planned_of(const spec::PlanKnobs& knobs) {
  return {knobs.fsdp,
          knobs.offload,
          knobs.optimizer_offload_ratio,
          knobs.precision,
          knobs.dispatcher,
          knobs.overlap_moe_expert_parallel_comm,
          knobs.exchanges_heads()};
}

}  // namespace moetune::plan
