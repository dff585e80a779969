#include "profiler/analysis/one_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "kernels/base/error.h"

namespace moetune::profiler {
namespace {

std::set<int64_t> step_numbers_of(const ImportedTrace& trace) {
  std::set<int64_t> numbers;
  for (const ImportedStep& step : trace.steps) numbers.insert(step.number);
  return numbers;
}

/// Steps that two traces have marked, and none of them in both: they are of other parts of the run.
bool has_other_steps(const ImportedTrace& a, const ImportedTrace& b) {
  const std::set<int64_t> of_a = step_numbers_of(a);
  return !a.steps.empty() && !b.steps.empty() &&
         std::ranges::none_of(b.steps,
                              [&](const ImportedStep& step) { return of_a.contains(step.number); });
}

}  // namespace

void check_one_run(std::span<const ImportedTrace> traces) {
  std::map<int64_t, const TraceFacts*> by_rank;
  // The first that says its world, and the first that says its device.
  const TraceFacts* sized = nullptr;
  const ImportedTrace* named = nullptr;
  for (const ImportedTrace& trace : traces) {
    const TraceFacts& facts = trace.facts;
    if (facts.world_size) {
      if (sized == nullptr) sized = &facts;
      if (*facts.world_size != *sized->world_size) {
        throw base::UsageError(
            fmt::format("{} is of a run of {} ranks, {} of one of {}: expected traces of one run",
                        facts.file, *facts.world_size, sized->file, *sized->world_size));
      }
    }
    const bool has_own_rank = facts.rank && !facts.is_rank_counted;
    if (has_own_rank && !by_rank.emplace(*facts.rank, &facts).second) {
      throw base::UsageError(
          fmt::format("{} and {} are both of rank {}: expected one trace of each rank of one run",
                      by_rank[*facts.rank]->file, facts.file, *facts.rank));
    }
    if (has_other_steps(traces[0], trace)) {
      throw base::UsageError(
          fmt::format("{} has steps from {} on, {} from {} on, and none is in both: expected "
                      "traces of the same steps",
                      traces[0].facts.file, traces[0].steps.front().number, facts.file,
                      trace.steps.front().number));
    }
    const std::string device = trace.device_name();
    if (device.empty()) continue;
    if (named == nullptr) named = &trace;
    if (device != named->device_name()) {
      throw base::UsageError(
          fmt::format("{} is of an {}, {} of an {}: expected traces of one run on like devices",
                      named->facts.file, named->device_name(), facts.file, device));
    }
  }
}

}  // namespace moetune::profiler
