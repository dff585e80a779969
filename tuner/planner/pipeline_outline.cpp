// Layers counted by kind, stages compared.
#include "tuner/planner/pipeline_outline.h"

#include <algorithm>

namespace moetune::tuner::planner {

namespace {

using spec::FeedForward;
using spec::LayerKind;
using Part = PipelineOutline::Part;
using Stage = PipelineOutline::Stage;

/// Whether both keep as much of a micro-batch, if their layers have as many parameters.
bool holds_as_much(const Stage& a, const Stage& b, bool has_order) {
  return a.has_head == b.has_head &&
         std::ranges::equal(a.parts, b.parts, [&](const Part& one, const Part& other) {
           return one.layers == other.layers && one.last == other.last &&
                  (!has_order || one.order == other.order);
         });
}

bool has_same(const Stage& a, const Stage& b) {
  return a.has_embedding == b.has_embedding && a.parts == b.parts;
}

}  // namespace

size_t PipelineOutline::find(LayerKind kind, int64_t window) const {
  size_t i = 0;
  while (i < alike.size() && (alike[i].kind != kind || alike[i].window != window)) ++i;
  return i;
}

PipelineOutline outline_of(const PlanRun& run) {
  PipelineOutline outline;
  const auto place_of = [&](LayerKind kind, int64_t window) {
    const size_t place = outline.find(kind, window);
    if (place == outline.alike.size()) outline.alike.push_back({kind, window});
    return place;
  };
  const std::vector<Chunk> chunks = chunks_of(run);
  const auto pp = static_cast<size_t>(run.knobs.pp);
  outline.stages.resize(pp);
  for (size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& chunk = chunks[i];
    Stage& stage = outline.stages[i % pp];
    Part part;
    part.has_head = chunk.has_head;
    part.has_mtp = chunk.has_mtp && run.model->mtp.depth > 0;
    part.has_embedding = chunk.has_embedding;
    for (int64_t layer = chunk.first; layer < chunk.first + chunk.count; ++layer) {
      const auto index = static_cast<size_t>(layer);
      const auto& windows = run.model->attention_window;
      const LayerKind kind = run.model->kind_of(layer);
      const size_t place = place_of(kind, index < windows.size() ? windows[index] : 0);
      if (part.layers.size() <= place) {
        part.layers.resize(place + 1, 0);
        part.behind.resize(place + 1, 0);
      }
      if (part.layers[place] == 0) part.kinds.push_back(place);
      part.layers[place] += 1;
      for (double& layers : part.behind) layers += 1;
      part.behind[place] = 0;
      part.last = static_cast<int>(place);
      part.order.push_back(part.last);
      stage.has_experts = stage.has_experts || kind.feed_forward == FeedForward::moe;
    }
    if (part.has_mtp) {
      for (const LayerKind kind : run.model->mtp.layers) {
        part.last = static_cast<int>(place_of(kind, 0));
        stage.has_experts = stage.has_experts || kind.feed_forward == FeedForward::moe;
      }
    }
    stage.has_embedding = stage.has_embedding || part.has_embedding;
    stage.has_head = stage.has_head || part.has_head;
    stage.parts.push_back(std::move(part));
  }
  // Of blocks and of groups the order of layers counts, whichever of a run's choices recomputes.
  const bool has_order = run.knobs.recompute_method == spec::RecomputeMethod::block ||
                         run.knobs.recompute_num_layers > 1;
  for (size_t p = 0; p < pp; ++p) {
    Stage& stage = outline.stages[p];
    stage.first_same = p;
    for (size_t before = 0; before < p; ++before) {
      const Stage& other = outline.stages[before];
      if (other.first_same != before) continue;  // its first one was looked at
      if (holds_as_much(other, stage, has_order)) stage.like.push_back(before);
      if (has_same(other, stage)) {
        stage.first_same = before;
        break;
      }
    }
  }
  return outline;
}

}  // namespace moetune::tuner::planner
