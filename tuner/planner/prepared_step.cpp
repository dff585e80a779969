// Runs that are priced by the works of their layers.
#include <algorithm>
#include <utility>

#include "tuner/planner/full_recompute.h"
#include "tuner/planner/step_time.h"
#include "tuner/planner/titan_memory.h"

namespace moetune::tuner::planner {

using spec::LayerKind;
using spec::PlanKnobs;

PreparedStep::PreparedStep(const PlanRun& run)
    : run_(run),
      own_(std::make_shared<WorkCache>()),
      cache_(own_.get()),
      own_outline_(std::make_shared<const PipelineOutline>(outline_of(run))),
      outline_(own_outline_.get()) {
  prepare();
}

PreparedStep::PreparedStep(const PlanRun& run, WorkCache& cache)
    : run_(run),
      cache_(&cache),
      own_outline_(std::make_shared<const PipelineOutline>(outline_of(run))),
      outline_(own_outline_.get()) {
  prepare();
}

PreparedStep::PreparedStep(const PlanRun& run, const PipelineOutline& outline, WorkCache& cache)
    : run_(run), cache_(&cache), outline_(&outline) {
  prepare();
}

void PreparedStep::choose(const PlanKnobs& knobs) {
  const bool was_wide = has_wide_elements(run_.knobs);
  run_.knobs = knobs;
  run_.knobs = computed_knobs(run_);
  // Works depend on the width of their elements.
  if (has_wide_elements(run_.knobs) != was_wide) prepare();
}

void PreparedStep::prepare() {
  run_.knobs = computed_knobs(run_);
  const PlanRun& run = run_;
  head_ = &cache_->head(run);
  is_split_by_hand_ = !run.stages.empty() || !run.stage_layers.empty() ||
                      run.knobs.first_stage_layers > 0 || run.knobs.last_stage_layers > 0;
  const auto num_layers = static_cast<double>(run.model->num_layers + run.model->mtp.depth);
  const double num_stages = static_cast<double>(run.knobs.pp) * run.knobs.vpp;
  unevenness_ = std::ceil(num_layers / num_stages) * num_stages / num_layers;
  alike_.clear();
  for (const PipelineOutline::Alike& alike : outline_->alike) {
    alike_.push_back({alike.kind, alike.window, &cache_->layer(run, alike.kind, alike.window)});
  }
  stages_.clear();
  rounds_.clear();
  const std::vector<PipelineOutline::Stage>& outlined = outline_->stages;
  const size_t num_rounds = outlined.front().parts.size();
  if (!run.stages.empty() && num_rounds > 1) rounds_.resize(num_rounds);
  const std::vector<const Weights*> of_kinds = cache_->weights_of_kinds(run, *outline_);
  std::vector<size_t> places(outlined.size());  // in stages_
  for (size_t p = 0; p < outlined.size(); ++p) {
    if (outlined[p].first_same != p) {
      places[p] = places[outlined[p].first_same];
      ++stages_[places[p]].num_ranks;
      continue;
    }
    Stage stage;
    for (size_t round = 0; round < outlined[p].parts.size(); ++round) {
      Part part = part_of(outlined[p].parts[round]);
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
      std::vector<Part>& others = rounds_[round];
      if (std::ranges::find(others, part) == others.end()) others.push_back(std::move(part));
    }
    stage.weights = weights_of(outlined[p], of_kinds);
    const auto same = std::ranges::find_if(stages_, [&](const Stage& other) {
      return other.layers == stage.layers && other.kept == stage.kept &&
             other.num_heads == stage.num_heads && other.weights == stage.weights;
    });
    places[p] = static_cast<size_t>(same - stages_.begin());
    if (same != stages_.end()) {
      ++same->num_ranks;
    } else {
      stages_.push_back(std::move(stage));
    }
  }
}

PreparedStep::Part PreparedStep::part_of(const PipelineOutline::Part& outlined) const {
  Part part;
  part.layers = outlined.layers;
  part.kept.resize(part.layers.size(), 0);
  for (size_t i = 0; i < outlined.order.size(); ++i) {
    if (!is_beyond_block(run_.knobs, static_cast<int64_t>(i))) continue;
    part.kept[static_cast<size_t>(outlined.order[i])] += 1;
  }
  if (outlined.has_mtp) {
    const spec::MtpSpec& mtp = run_.model->mtp;
    const auto depth = static_cast<double>(mtp.depth);
    // Megatron-Core recomputes none of these in blocks.
    const bool is_kept = run_.knobs.recompute_method == spec::RecomputeMethod::block;
    for (const LayerKind kind : mtp.layers) {
      const size_t place = outline_->find(kind, 0);
      if (part.layers.size() <= place) {
        part.layers.resize(place + 1, 0);
        part.kept.resize(place + 1, 0);
      }
      part.layers[place] += depth;
      if (is_kept) part.kept[place] += depth;
    }
    part.num_heads += depth;
  }
  if (outlined.has_head) part.num_heads += 1;
  return part;
}

Weights PreparedStep::weights_of(const PipelineOutline::Stage& stage,
                                 const std::vector<const Weights*>& of_kinds) const {
  Weights weights;
  for (const PipelineOutline::Part& part : stage.parts) {
    for (const size_t kind : part.kinds) weights.add(*of_kinds[kind], part.layers[kind]);
    if (part.has_embedding) weights.add(cache_->embedding_weights(run_));
    if (part.has_mtp) weights.add(cache_->mtp_weights(run_, true));
    if (part.has_head) weights.add(cache_->head_weights(run_, part.has_embedding));
  }
  return weights;
}

}  // namespace moetune::tuner::planner
