#include "sweeps/runs/seen_world.h"

#include "engine/spec/plan_knobs.h"

namespace moetune::sweeps {
namespace {

std::optional<int64_t> seen_world_size(const RunDiagnosis& diagnosis) {
  if (diagnosis.facts && diagnosis.facts->world_size) return diagnosis.facts->world_size;
  if (diagnosis.traces) {
    for (const profiler::ImportedTrace& trace : diagnosis.traces->traces) {
      if (trace.facts.world_size) return trace.facts.world_size;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> world_size_of(const RunDiagnosis& diagnosis) {
  if (diagnosis.config && diagnosis.config->world_size > 0) return diagnosis.config->world_size;
  return seen_world_size(diagnosis);
}

void take_seen_world(RunDiagnosis& diagnosis) {
  if (!diagnosis.config || diagnosis.config->stated_world_size > 0) return;
  spec::dialects::RunConfig& config = *diagnosis.config;
  const std::optional<int64_t> seen = seen_world_size(diagnosis);
  spec::PlanKnobs knobs = config.knobs;
  // torchtitan's degrees say its ranks.
  const bool is_open = config.dialect != spec::dialects::Dialect::torchtitan;
  if (!seen || *seen == config.world_size || !is_open || !spec::set_dp_for(*seen, knobs)) return;
  config.knobs = knobs;
  config.world_size = *seen;
  if (config.is_batch_derived) {
    config.global_batch_size = int64_t{knobs.micro_batch_size} * knobs.dp;
  }
}

}  // namespace moetune::sweeps
