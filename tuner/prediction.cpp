#include "tuner/prediction.h"

#include <utility>

namespace moetune::tuner {

void put_memory(const MemoryEstimate& memory, Prediction& prediction) {
  prediction.peak_bytes = memory.peak_bytes;
  prediction.most_peak_bytes = memory.most_peak_bytes;
  prediction.is_peak_exact = memory.is_exact;
  prediction.memory_grade = memory.grade;
  for (const RankMemory& rank : memory.ranks) {
    Prediction::Rank& row = prediction.ranks.emplace_back();
    row.peak_bytes = rank.peak_bytes;
    for (size_t group = 0; group < rank.group_bytes.size(); ++group) {
      row.group_bytes[profiler::name_of(static_cast<MemoryGroup>(group))] = rank.group_bytes[group];
    }
  }
}

void put_time(CostEstimate step, Prediction& prediction) {
  prediction.step_ns = step.step_ns;
  prediction.time_grade = step.grade;
  prediction.step_parts_ns = std::move(step.parts_ns);
}

}  // namespace moetune::tuner
