// Virtual stages from a written layout, from counts, or split evenly.
#include "tuner/planner/run.h"

#include <algorithm>

#include "engine/spec/pipeline_layout.h"
#include "kernels/base/error.h"

namespace moetune::tuner::planner {

namespace {

Chunk written_chunk(const std::string& letters, int64_t first) {
  Chunk chunk;
  chunk.first = first;
  chunk.count = std::count(letters.begin(), letters.end(), 't');
  chunk.has_embedding = letters.find('E') != std::string::npos;
  chunk.has_head = letters.find('L') != std::string::npos;
  chunk.has_mtp = letters.find('m') != std::string::npos;
  return chunk;
}

/// Where nothing is written and there are fewer layers than stages.
Stages lone_stages(const PlanRun& run) {
  const spec::PlanKnobs& k = run.knobs;
  if (k.pp == 1 || counts_stage_layers(run)) return {};
  return spec::lone_pipeline_stages(run.model->num_layers, run.model->mtp.depth,
                                    int64_t{k.pp} * k.vpp);
}

}  // namespace

int64_t num_virtual_stages(const PlanRun& run) {
  if (run.stages.empty()) return run.knobs.vpp;
  const auto written = static_cast<int64_t>(run.stages.size());
  return std::max<int64_t>(1, written / run.knobs.pp);
}

std::vector<Chunk> chunks_of(const PlanRun& run) {
  std::vector<Chunk> chunks;
  int64_t next = 0;
  const Stages lone = run.stages.empty() ? lone_stages(run) : Stages{};
  for (const std::string& letters : lone.empty() ? run.stages : lone) {
    chunks.push_back(written_chunk(letters, next));
    next += chunks.back().count;
  }
  if (chunks.empty()) {
    const int64_t pp = run.knobs.pp;
    const int64_t vpp = run.knobs.vpp;
    const int64_t layers = run.model->num_layers;
    std::vector<int64_t> of_rank = run.stage_layers;
    const int64_t first = pp > 1 ? run.knobs.first_stage_layers : 0;
    const int64_t last = pp > 1 ? run.knobs.last_stage_layers : 0;
    if (of_rank.empty() && (first > 0 || last > 0)) {
      const int64_t num_free = pp - (first > 0 ? 1 : 0) - (last > 0 ? 1 : 0);
      const int64_t rest = layers - first - last;
      MOETUNE_CHECK(rest >= 0 && (num_free > 0 || rest == 0),
                    "{} layers do not split with {} in the first stage and {} in the last", layers,
                    first, last);
      int64_t free = 0;
      for (int64_t p = 0; p < pp; ++p) {
        if (p == 0 && first > 0) {
          of_rank.push_back(first);
        } else if (p == pp - 1 && last > 0) {
          of_rank.push_back(last);
        } else {
          of_rank.push_back(rest / num_free + (free++ < rest % num_free ? 1 : 0));
        }
      }
    }
    const int64_t stages = pp * vpp;
    for (int64_t k = 0; k < stages; ++k) {
      const int64_t place = k / pp;
      const int64_t whole = of_rank.empty() ? layers : of_rank[static_cast<size_t>(k % pp)];
      const int64_t parts = of_rank.empty() ? stages : vpp;
      const int64_t part = of_rank.empty() ? k : place;
      const int64_t count = whole / parts + (part < whole % parts ? 1 : 0);
      chunks.push_back({next, count, k == 0, k + 1 == stages, false});
      next += count;
    }
  }
  if (run.model->mtp.depth > 0 &&
      std::none_of(chunks.begin(), chunks.end(), [](const Chunk& c) { return c.has_mtp; })) {
    chunks.back().has_mtp = true;
  }
  return chunks;
}

bool splits_by_itself(const PlanRun& run) {
  const spec::PlanKnobs& k = run.knobs;
  if (k.pp == 1) return true;
  const int64_t first = k.first_stage_layers;
  const int64_t last = k.last_stage_layers;
  const int64_t rest = run.model->num_layers - first - last;
  const int64_t free = k.vpp * (int64_t{k.pp} - (first > 0 ? 1 : 0) - (last > 0 ? 1 : 0));
  const bool is_rest_even = free > 0 ? rest > 0 && rest % free == 0 : rest == 0;
  return is_rest_even && first % k.vpp == 0 && last % k.vpp == 0;
}

Stages stages_with(const spec::ModelSpec& model, const std::vector<int64_t>& layers) {
  Stages stages;
  for (const int64_t count : layers) stages.emplace_back(static_cast<size_t>(count), 't');
  stages.front().insert(0, 1, 'E');
  stages.back() += std::string(static_cast<size_t>(model.mtp.depth), 'm') + 'L';
  return stages;
}

Stages unwritten_stages(const PlanRun& run) {
  PlanRun plain = run;
  plain.stages.clear();
  if (Stages stages = lone_stages(plain); !stages.empty()) return stages;
  std::vector<int64_t> layers;
  for (const Chunk& chunk : chunks_of(plain)) layers.push_back(chunk.count);
  return stages_with(*run.model, layers);
}

std::string pipeline_layout_of(const PlanRun& run) {
  if (run.stages.empty() || (splits_by_itself(run) && run.stages == unwritten_stages(run))) {
    return {};
  }
  return spec::pipeline_layout_text(run.stages);
}

}  // namespace moetune::tuner::planner
