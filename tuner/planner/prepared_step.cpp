// Works of layers by what determines them, and runs that are priced by them.
#include "tuner/planner/step_time.h"
#include "tuner/planner/titan_memory.h"

namespace moetune::tuner::planner {

using spec::LayerKind;
using spec::PlanKnobs;

const LayerWork& WorkCache::layer(const PlanRun& run, LayerKind kind, int64_t window) {
  const auto [place, is_new] = layers_.try_emplace({sizes_key(run), kind, window});
  if (is_new) place->second = layer_work(run, kind, window);
  return place->second;
}

const LayerWork& WorkCache::head(const PlanRun& run) {
  const auto [place, is_new] = heads_.try_emplace(sizes_key(run));
  if (is_new) place->second = head_work(run);
  return place->second;
}

const Weights& WorkCache::weights(const PlanRun& run, LayerKind kind) {
  const auto [place, is_new] = weights_.try_emplace({sizes_key(run), kind});
  if (is_new) place->second = layer_weights(run, kind);
  return place->second;
}

PreparedStep::PreparedStep(const PlanRun& run) : run_(run), own_(std::make_shared<WorkCache>()) {
  run_.knobs = computed_knobs(run);
  cache_ = own_.get();
  prepare(*cache_);
}

PreparedStep::PreparedStep(const PlanRun& run, WorkCache& cache) : run_(run), cache_(&cache) {
  run_.knobs = computed_knobs(run);
  prepare(cache);
}

void PreparedStep::choose(const PlanKnobs& knobs) {
  const bool was_wide = has_wide_elements(run_.knobs);
  run_.knobs = knobs;
  run_.knobs = computed_knobs(run_);
  if (has_wide_elements(run_.knobs) == was_wide) return;
  // Works depend on the width of their elements.
  alike_.clear();
  stages_.clear();
  rounds_.clear();
  prepare(*cache_);
}

}  // namespace moetune::tuner::planner
