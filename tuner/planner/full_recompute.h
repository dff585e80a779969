// Full recomputation that does not take each layer by itself: groups of layers, or only the first
// ones of each virtual stage (`--recompute-method`, `--recompute-num-layers`).
#pragma once

#include <cstdint>
#include <vector>

#include "tuner/planner/memory_profile.h"

namespace moetune::tuner::planner {

/// Of a virtual stage's layers, what one micro-batch has. Bytes.
struct PartMemory {
  double saved = 0;     ///< from forward to backward
  double of_mixer = 0;  ///< part of that
  double on_top = 0;    ///< at the worst moment of the backward, beside what is saved
  /// Whether its last layer has all of its tensors again in its backward.
  bool is_last_recomputed = false;
};

/// Of layers whose kinds come in this order. `again`: each kind under full recomputation; `kept`:
/// without any. Behind them `behind_bytes` are kept by multi-token prediction until its backward.
/// Which layers: Megatron-Core's transformer_block.py, _checkpointed_forward.
PartMemory part_memory(const std::vector<int>& order, double behind_bytes,
                       const std::vector<PreparedMemory::LayerMemory>& again,
                       const std::vector<PreparedMemory::LayerMemory>& kept,
                       const spec::PlanKnobs& knobs);

/// Whether a layer of a virtual stage, by its place there, keeps its tensors under full
/// recomputation.
inline bool is_beyond_block(const spec::PlanKnobs& knobs, int64_t place) {
  return knobs.recompute_method == spec::RecomputeMethod::block &&
         place >= knobs.recompute_num_layers;
}

}  // namespace moetune::tuner::planner
