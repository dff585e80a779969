#include "profiler/analysis/imported_recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/base/units.h"
#include "profiler/analysis/step_verdict.h"

namespace moetune::profiler {

bool is_recomputed(const ImportedTrace& trace, uint32_t row) {
  return std::ranges::binary_search(trace.recomputed, row);
}

IntervalSet recomputed_alone(const ImportedTrace& trace, const std::vector<uint32_t>& ops,
                             const WorkClasses& wide) {
  if (trace.recomputed.empty()) return {};
  std::vector<Interval> again;
  std::vector<Interval> others;
  for (const uint32_t row : ops) {
    const ImportedOp& op = trace.ops[row];
    const WorkClass work = wide.of(op);
    const bool is_host_copy =
        work == WorkClass::copy && (op.path == CopyPath::to_device || op.path == CopyPath::to_host);
    if (work == WorkClass::communication || is_host_copy) continue;
    (is_recomputed(trace, row) ? again : others).push_back({op.start_ns, op.end_ns});
  }
  return subtract(IntervalSet(std::move(again)), IntervalSet(std::move(others)));
}

std::string text_of_use(const MemoryFacts& memory) {
  return fmt::format("{} of {}", base::format_bytes(memory.peak_bytes),
                     base::format_bytes(memory.capacity_bytes));
}

Evidence recompute_evidence(double share_ratio, double saved_ratio, const MemoryFacts& memory) {
  std::string why = "how much of the device's memory was in use is not known";
  if (memory.peak_bytes > 0 && memory.capacity_bytes > 0) {
    why = fmt::format("{}at its fullest the device has {} in use",
                      is_memory_short(memory) ? "" : "memory is not short: ", text_of_use(memory));
  }
  return {"recompute_ratio", share_ratio, "ratio",
          fmt::format("{} of the time goes to activations that are computed a second time; without "
                      "that the step would be {} shorter; it counts as {}, as {}",
                      base::format_ratio(share_ratio), base::format_ratio(saved_ratio),
                      is_memory_short(memory) ? "memory" : "compute", why)};
}

}  // namespace moetune::profiler
