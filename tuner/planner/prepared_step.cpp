// Runs that are priced by the works of their layers.
#include <algorithm>
#include <utility>

#include "tuner/planner/full_recompute.h"
#include "tuner/planner/step_time.h"
#include "tuner/planner/titan_memory.h"

namespace moetune::tuner::planner {

using spec::LayerKind;
using spec::PlanKnobs;

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

void PreparedStep::prepare(WorkCache& cache) {
  const PlanRun& run = run_;
  head_ = &cache.head(run);
  is_split_by_hand_ = !run.stages.empty() || !run.stage_layers.empty() ||
                      run.knobs.first_stage_layers > 0 || run.knobs.last_stage_layers > 0;
  const auto num_layers = static_cast<double>(run.model->num_layers + run.model->mtp.depth);
  const double num_stages = static_cast<double>(run.knobs.pp) * run.knobs.vpp;
  unevenness_ = std::ceil(num_layers / num_stages) * num_stages / num_layers;
  const std::vector<Chunk> chunks = chunks_of(run);
  const auto pp = static_cast<size_t>(run.knobs.pp);
  stages_.resize(pp);
  if (!run.stages.empty() && chunks.size() > pp) rounds_.resize(chunks.size() / pp);
  // Another layer of the kind before has no other shapes.
  std::vector<const Weights*> before(pp);
  std::vector<std::pair<LayerKind, const Weights*>> of_kinds;
  const auto weights_of = [&](LayerKind kind) {
    for (const auto& [known, weights] : of_kinds) {
      if (known == kind) return weights;
    }
    return of_kinds.emplace_back(kind, &cache.weights(run, kind)).second;
  };
  for (size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& chunk = chunks[i];
    Stage& stage = stages_[i % pp];
    Part part;
    for (int64_t layer = chunk.first; layer < chunk.first + chunk.count; ++layer) {
      const auto index = static_cast<size_t>(layer);
      const auto& windows = run.model->attention_window;
      const LayerKind kind = run.model->kind_of(layer);
      const bool is_kept = is_beyond_block(run.knobs, layer - chunk.first);
      count(kind, index < windows.size() ? windows[index] : 0, 1, is_kept, cache, part);
      const Weights* const of_layer = weights_of(kind);
      if (before[i % pp] == of_layer) {
        stage.weights.add_elements(*of_layer);
      } else {
        stage.weights.add(*of_layer);
      }
      before[i % pp] = of_layer;
    }
    if (chunk.has_embedding) stage.weights.add(cache.embedding_weights(run));
    if (chunk.has_mtp) {
      const spec::MtpSpec& mtp = run.model->mtp;
      stage.weights.add(cache.mtp_weights(run, true));
      for (const LayerKind kind : mtp.layers) {
        // Megatron-Core recomputes none of these in blocks.
        const bool is_kept = run.knobs.recompute_method == spec::RecomputeMethod::block;
        count(kind, 0, static_cast<double>(mtp.depth), is_kept, cache, part);
      }
      part.num_heads += static_cast<double>(mtp.depth);
    }
    if (chunk.has_head) {
      stage.weights.add(cache.head_weights(run, chunk.has_embedding));
      part.num_heads += 1;
    }
    stage.num_heads += part.num_heads;
    if (stage.layers.size() < part.layers.size()) {
      stage.layers.resize(part.layers.size(), 0);
      stage.kept.resize(part.layers.size(), 0);
    }
    for (size_t kind = 0; kind < part.layers.size(); ++kind) {
      stage.layers[kind] += part.layers[kind];
      stage.kept[kind] += part.kept[kind];
    }
    if (rounds_.empty()) continue;
    std::vector<Part>& round = rounds_[i / pp];
    if (std::ranges::find(round, part) == round.end()) round.push_back(std::move(part));
  }
  std::vector<Stage> different;
  for (Stage& stage : stages_) {
    const auto same = std::ranges::find_if(different, [&](const Stage& other) {
      return other.layers == stage.layers && other.kept == stage.kept &&
             other.num_heads == stage.num_heads && other.weights == stage.weights;
    });
    if (same != different.end()) {
      ++same->num_ranks;
    } else {
      different.push_back(std::move(stage));
    }
  }
  stages_ = std::move(different);
}

void PreparedStep::count(LayerKind kind, int64_t window, double times, bool is_kept,
                         WorkCache& cache, Part& part) {
  size_t place = 0;
  while (place < alike_.size() && (alike_[place].kind != kind || alike_[place].window != window)) {
    ++place;
  }
  if (place == alike_.size()) alike_.push_back({kind, window, &cache.layer(run_, kind, window)});
  if (part.layers.size() <= place) {
    part.layers.resize(place + 1, 0);
    part.kept.resize(place + 1, 0);
  }
  part.layers[place] += times;
  if (is_kept) part.kept[place] += times;
}

}  // namespace moetune::tuner::planner
