// Works of layers and parameters by what determines them.
#include "tuner/planner/work_cache.h"

namespace moetune::tuner::planner {

using spec::LayerKind;
using spec::PlanKnobs;

WorkCache::Sizes WorkCache::sizes_key(const PlanRun& run) {
  const PlanKnobs& k = run.knobs;
  const bool is_gathered = k.cp_comm_type == spec::PlanCp::all_gather;
  return {k.slice_sizes(), k.micro_batch_size, is_gathered, has_wide_elements(k)};
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

const Weights& WorkCache::embedding_weights(const PlanRun& run) {
  const auto [place, is_new] = embedding_weights_.try_emplace(sizes_key(run));
  if (is_new) place->second = planner::embedding_weights(run);
  return place->second;
}

const Weights& WorkCache::head_weights(const PlanRun& run, bool has_embedding_beside) {
  const auto [place, is_new] = head_weights_.try_emplace({sizes_key(run), has_embedding_beside});
  if (is_new) place->second = planner::head_weights(run, has_embedding_beside);
  return place->second;
}

const Weights& WorkCache::mtp_weights(const PlanRun& run, bool has_embedding_beside) {
  const auto [place, is_new] = mtp_weights_.try_emplace({sizes_key(run), has_embedding_beside});
  if (is_new) place->second = planner::mtp_weights(run, has_embedding_beside);
  return place->second;
}

std::vector<const Weights*> WorkCache::weights_of_kinds(const PlanRun& run,
                                                        const PipelineOutline& outline) {
  std::vector<const Weights*> all;
  all.reserve(outline.alike.size());
  for (const PipelineOutline::Alike& alike : outline.alike) {
    all.push_back(&weights(run, alike.kind));
  }
  return all;
}

}  // namespace moetune::tuner::planner
