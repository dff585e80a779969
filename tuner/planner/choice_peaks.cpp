// What layers hold is kept until a choice changes it.
#include "tuner/planner/choice_peaks.h"

#include <algorithm>

#include "tuner/planner/titan_memory.h"

namespace moetune::tuner::planner {

using spec::PlanKnobs;

namespace {

/// Without what no layer's memory depends on.
PlanKnobs knobs_of_layers(const PlanRun& run) {
  PlanKnobs knobs = run.knobs;
  const PlanKnobs usual;
  knobs.cross_entropy = usual.cross_entropy;
  knobs.dispatcher = usual.dispatcher;
  knobs.cuda_graphs = usual.cuda_graphs;
  knobs.cuda_device_max_connections = usual.cuda_device_max_connections;
  knobs.overlap_param_gather = usual.overlap_param_gather;
  knobs.delay_wgrad_compute = usual.delay_wgrad_compute;
  knobs.distributed_optimizer = usual.distributed_optimizer;
  knobs.precision_aware_optimizer = usual.precision_aware_optimizer;
  knobs.gradient_accumulation_fusion = usual.gradient_accumulation_fusion;
  // Torchtitan computes in 32 bits or casts, depending on it.
  if (run.is_of_megatron) knobs.fsdp = usual.fsdp;
  return knobs;
}

}  // namespace

ChoicePeaks::ChoicePeaks(const PreparedMemory& memory, double load)
    : memory_(memory), run_(memory.run_) {
  run_.load = load;
}

void ChoicePeaks::choose(const PlanKnobs& knobs) {
  run_.knobs = knobs;
  run_.knobs = computed_knobs(run_);
}

double ChoicePeaks::dispatcher_bytes(const PlanKnobs& knobs) {
  choose(knobs);
  return planner::dispatcher_bytes(run_);
}

double ChoicePeaks::peak_bytes(const PlanKnobs& knobs) {
  return peaks(knobs).with(dispatcher_bytes(knobs));
}

ChoicePeaks::Peaks ChoicePeaks::peaks(const PlanKnobs& knobs) {
  choose(knobs);
  run_.knobs.dispatcher = spec::Dispatcher::alltoall;  // which holds nothing for itself
  PlanKnobs of_layers = knobs_of_layers(run_);
  const bool has_overlap = of_layers.overlap_moe_expert_parallel_comm;
  Known& known = known_[has_overlap ? 1 : 0];
  if (known.stages.empty() || known.knobs != of_layers) {
    known.knobs = of_layers;
    // Overlap changes how many are in flight, not what one holds.
    of_layers.overlap_moe_expert_parallel_comm = false;
    if (layer_knobs_ != of_layers) {
      layer_knobs_ = of_layers;
      layers_ = memory_.layers_of(run_);
    }
    known.stages.clear();
    known.peaks.clear();
    for (const size_t p : memory_.different_) {
      known.stages.push_back(memory_.of_layers(p, run_, layers_));
    }
  }
  return peaks_of(known, true, peaks_without_head(known));
}

ChoicePeaks::Peaks ChoicePeaks::peaks_of(const Known& known, bool has_head, Peaks peaks) const {
  for (size_t i = 0; i < known.stages.size(); ++i) {
    const size_t p = memory_.different_[i];
    const PipelineOutline::Stage& stage = memory_.outline_->stages[p];
    if (stage.has_head != has_head) continue;
    double& peak = stage.has_experts ? peaks.of_experts : peaks.plain;
    peak = std::max(peak, memory_.stage_memory(p, run_, known.stages[i]).peak.total());
  }
  return peaks;
}

ChoicePeaks::Peaks ChoicePeaks::peaks_without_head(Known& known) const {
  PlanKnobs knobs = run_.knobs;
  knobs.cross_entropy = PlanKnobs{}.cross_entropy;
  for (const auto& [before, peaks] : known.peaks) {
    if (before == knobs) return peaks;
  }
  const Peaks peaks = peaks_of(known, false, {});
  known.peaks.emplace_back(knobs, peaks);
  return peaks;
}

}  // namespace moetune::tuner::planner
