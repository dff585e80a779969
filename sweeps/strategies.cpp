// From the tuner's tables and models to what the loop needs; see strategies.h.
#include "sweeps/strategies.h"

#include "tuner/cost_model.h"
#include "tuner/memory_model.h"
#include "tuner/strategies/strategies.h"

namespace moetune::sweeps {

std::unique_ptr<tuner::Strategy> make_strategy(const spec::SweepSpec& sweep) {
  return tuner::make_strategy(sweep.strategy, sweep);
}

tuner::Prediction predict(const spec::TrialSpec& spec) {
  tuner::Prediction prediction;
  const tuner::MemoryEstimate memory = tuner::estimate_memory(spec, {});
  prediction.peak_bytes = memory.peak_bytes;
  prediction.memory_grade = memory.grade;
  for (const tuner::RankMemory& rank : memory.ranks) {
    tuner::Prediction::Rank& row = prediction.ranks.emplace_back();
    row.peak_bytes = rank.peak_bytes;
    for (size_t group = 0; group < rank.group_bytes.size(); ++group) {
      row.group_bytes[profiler::name_of(static_cast<tuner::MemoryGroup>(group))] =
          rank.group_bytes[group];
    }
  }
  tuner::CostEstimate step = tuner::CostModel().estimate(spec);
  prediction.step_ns = step.step_ns;
  prediction.time_grade = step.grade;
  prediction.step_parts_ns = std::move(step.parts_ns);
  return prediction;
}

}  // namespace moetune::sweeps
