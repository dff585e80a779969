// The work of layers, made once for all runs that share it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "tuner/planner/layer_sizes.h"
#include "tuner/planner/layer_work.h"

namespace moetune::tuner::planner {

/// Works and parameters of layers, shared by runs of one model and recipe whose layers have the
/// same sizes.
class WorkCache {
 public:
  const LayerWork& layer(const PlanRun& run, spec::LayerKind kind, int64_t window);
  const LayerWork& head(const PlanRun& run);
  const Weights& weights(const PlanRun& run, spec::LayerKind kind);

 private:
  /// Sizes that determine a layer's work. Load and capacity are the same for all runs.
  using Sizes = std::array<int32_t, 6>;
  static Sizes sizes_key(const PlanRun& run);

  std::map<std::tuple<Sizes, spec::LayerKind, int64_t>, LayerWork> layers_;
  std::map<Sizes, LayerWork> heads_;
  std::map<std::pair<Sizes, spec::LayerKind>, Weights> weights_;
};

}  // namespace moetune::tuner::planner
