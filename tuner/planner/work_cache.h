// Works and parameters of layers, shared by runs of one model and recipe whose layers have the same
// sizes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "tuner/planner/layer_sizes.h"
#include "tuner/planner/layer_work.h"
#include "tuner/planner/pipeline_outline.h"
#include "tuner/planner/run.h"

namespace moetune::tuner::planner {

/// What is returned stays where it is as long as the cache.
class WorkCache {
 public:
  const LayerWork& layer(const PlanRun& run, spec::LayerKind kind, int64_t window);
  const LayerWork& head(const PlanRun& run);
  const Weights& weights(const PlanRun& run, spec::LayerKind kind);
  /// As the functions of layer_sizes.h.
  const Weights& embedding_weights(const PlanRun& run);
  const Weights& head_weights(const PlanRun& run, bool has_embedding_beside);
  const Weights& mtp_weights(const PlanRun& run, bool has_embedding_beside);
  /// Of each kind of the outline's layers.
  std::vector<const Weights*> weights_of_kinds(const PlanRun& run, const PipelineOutline& outline);

 private:
  /// Sizes that determine a layer's work. Load and capacity are the same for all runs.
  using Sizes = std::tuple<std::array<int32_t, 4>, int32_t, bool, bool>;
  static Sizes sizes_key(const PlanRun& run);

  std::map<std::tuple<Sizes, spec::LayerKind, int64_t>, LayerWork> layers_;
  std::map<Sizes, LayerWork> heads_;
  std::map<std::pair<Sizes, spec::LayerKind>, Weights> weights_;
  std::map<Sizes, Weights> embedding_weights_;
  std::map<std::pair<Sizes, bool>, Weights> head_weights_;
  std::map<std::pair<Sizes, bool>, Weights> mtp_weights_;
};

}  // namespace moetune::tuner::planner
