#include "profiler/analysis/recurring_steps.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace moetune::profiler {
namespace {

constexpr size_t kFewestPeriods = 3;
constexpr size_t kFewestKernelsEach = 8;

/// The smallest p for which names[i] == names[i + p] wherever both exist.
size_t period_of(const std::vector<uint32_t>& names) {
  // Length of the longest prefix that also ends there, and is not all.
  std::vector<uint32_t> border(names.size() + 1);
  size_t length = 0;
  for (size_t i = 1; i < names.size(); ++i) {
    while (length > 0 && names[i] != names[length]) length = border[length];
    if (names[i] == names[length]) ++length;
    border[i + 1] = static_cast<uint32_t>(length);
  }
  return names.size() - border[names.size()];
}

}  // namespace

std::vector<ImportedStep> recurring_steps(const ImportedTrace& trace) {
  if (!trace.steps.empty()) return trace.steps;
  std::vector<std::pair<uint32_t, uint32_t>> launched;  // row of the call and of the op
  int64_t last_ns = 0;
  for (uint32_t row = 0; row < trace.ops.size(); ++row) {
    const ImportedOp& op = trace.ops[row];
    const bool is_kernel = op.kind == ActivityKind::kernel || op.kind == ActivityKind::graph;
    const HostCall* call = trace.launch_of(op);
    if (!is_kernel || call == nullptr) continue;
    last_ns = launched.empty() ? call->end_ns : std::max(last_ns, call->end_ns);
    launched.emplace_back(op.call, row);
  }
  if (launched.size() < kFewestPeriods * kFewestKernelsEach) return {};
  std::ranges::sort(launched);
  std::vector<uint32_t> names;
  names.reserve(launched.size());
  for (const auto& [call, row] : launched) names.push_back(trace.ops[row].name);
  const size_t period = period_of(names);
  if (period < kFewestKernelsEach || kFewestPeriods * period > names.size()) return {};
  std::vector<ImportedStep> steps;
  for (size_t first = 0; first + period <= launched.size(); first += period) {
    const size_t next = first + period;
    const int64_t end_ns =
        next < launched.size() ? trace.calls[launched[next].first].start_ns : last_ns;
    steps.push_back(
        {static_cast<int64_t>(steps.size()), trace.calls[launched[first].first].start_ns, end_ns});
  }
  return steps;
}

}  // namespace moetune::profiler
