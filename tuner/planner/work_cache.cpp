#include "tuner/planner/work_cache.h"

namespace moetune::tuner::planner {

using spec::LayerKind;

WorkCache::Sizes WorkCache::sizes_key(const PlanRun& run) {
  const PlanKnobs& k = run.knobs;
  const bool is_gathered = k.cp_comm_type == spec::PlanCp::all_gather;
  return {k.tp, k.cp, k.ep, k.etp, k.micro_batch_size, is_gathered ? 1 : 0};
}

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

}  // namespace moetune::tuner::planner
