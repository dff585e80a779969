// The backward pass of a virtual stage, layer by layer from its end.
#include "tuner/planner/full_recompute.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace moetune::tuner::planner {

namespace {

using OfLayer = PreparedMemory::LayerMemory;

const OfLayer& of_kind(const std::vector<OfLayer>& layers, int kind) {
  return layers[static_cast<size_t>(kind)];
}

/// All layers are recomputed, `count` at once: their inputs are kept where a group begins, and in a
/// group's backward all of its layers have their tensors again. What is saved behind is gone.
PartMemory of_groups(const std::vector<int>& order, size_t count, double behind_bytes,
                     const std::vector<OfLayer>& again) {
  PartMemory memory;
  memory.is_last_recomputed = true;
  const size_t num_groups = (order.size() + count - 1) / count;
  double behind = behind_bytes;
  double worst = -std::numeric_limits<double>::infinity();
  for (size_t group = num_groups; group-- > 0;) {
    const size_t first = group * count;
    const size_t end = std::min(order.size(), first + count);
    double before = 0;  // of the group's layers before this one
    for (size_t i = first; i < end; ++i) {
      const OfLayer& layer = of_kind(again, order[i]);
      worst = std::max(worst, layer.transient + before - behind);
      before += layer.recomputed;
    }
    const double input = of_kind(again, order[first]).saved;
    memory.saved += input;
    behind += input;
  }
  memory.on_top = worst;
  return memory;
}

/// The first `count` layers are recomputed each by itself, the others keep their tensors.
PartMemory of_block(const std::vector<int>& order, size_t count, double behind_bytes,
                    const std::vector<OfLayer>& again, const std::vector<OfLayer>& kept) {
  PartMemory memory;
  memory.is_last_recomputed = order.size() <= count;
  double worst = -std::numeric_limits<double>::infinity();
  for (size_t i = order.size(); i-- > 0;) {
    const OfLayer& layer = of_kind(i < count ? again : kept, order[i]);
    worst = std::max(worst, layer.transient - behind_bytes - memory.saved);
    memory.saved += layer.saved;
    memory.of_mixer += layer.of_mixer;
  }
  memory.on_top = worst;
  return memory;
}

}  // namespace

PartMemory part_memory(const std::vector<int>& order, double behind_bytes,
                       const std::vector<OfLayer>& again, const std::vector<OfLayer>& kept,
                       const spec::PlanKnobs& knobs) {
  if (order.empty()) return {};
  const auto count = static_cast<size_t>(std::max(1, knobs.recompute_num_layers));
  return knobs.recomputes_block() ? of_block(order, count, behind_bytes, again, kept)
                                  : of_groups(order, count, behind_bytes, again);
}

}  // namespace moetune::tuner::planner
