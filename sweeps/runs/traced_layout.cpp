#include "sweeps/runs/traced_layout.h"

#include <fmt/format.h>

namespace moetune::sweeps {

namespace {

constexpr int64_t kMostTracedRanks = 1 << 20;

/// Ranks of the group that is named as the size; 0: not known.
int64_t traced_size(const profiler::GroupCosts& groups, const ParallelSizeRow& row) {
  const auto found = groups.sizes.find(row.name);
  const bool is_known = found != groups.sizes.end() && row.knob != nullptr;
  return is_known && found->second <= kMostTracedRanks ? found->second : 0;
}

}  // namespace

ParallelSizes take_traced_sizes(const profiler::GroupCosts& groups, const ParallelSizes& said,
                                int64_t world_size, spec::PlanKnobs& knobs) {
  spec::PlanKnobs taken = knobs;
  ParallelSizes sizes;
  for (const ParallelSizeRow& row : parallel_sizes()) {
    const int64_t size = traced_size(groups, row);
    if (size == 0 || said.*row.size) continue;
    taken.*row.knob = static_cast<int32_t>(size);
    sizes.*row.size = size;
  }
  const int64_t replica = taken.replica_ranks();
  if (world_size > 0 && (replica < 1 || world_size % replica != 0)) return {};
  knobs = taken;
  return sizes;
}

std::vector<std::string> contradicted_sizes(const profiler::GroupCosts& groups,
                                            const spec::PlanKnobs& knobs) {
  std::vector<std::string> sentences;
  for (const ParallelSizeRow& row : parallel_sizes()) {
    const int64_t size = traced_size(groups, row);
    if (size == 0 || size == knobs.*row.knob) continue;
    sentences.push_back(
        fmt::format("the configuration says {} {}, the traces have such groups of {} ranks: they "
                    "do not seem to be of one run",
                    row.name, knobs.*row.knob, size));
  }
  return sentences;
}

}  // namespace moetune::sweeps
