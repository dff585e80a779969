#include "profiler/analysis/recurring_steps.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "profiler/analysis/launch_order.h"

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

/// In which step an operation was launched, from 1; 0: before the first; a number more than there
/// are: behind the last. None where the launch is not in the trace.
std::optional<size_t> launching_step(const ImportedTrace& trace,
                                     const std::vector<ImportedStep>& steps, uint32_t op) {
  const HostCall* call = trace.launch_of(trace.ops[op]);
  if (call == nullptr) return std::nullopt;
  if (!steps.empty() && call->start_ns >= steps.back().end_ns) return steps.size() + 1;
  const auto later = std::ranges::upper_bound(steps, call->start_ns, {}, &ImportedStep::start_ns);
  return static_cast<size_t>(later - steps.begin());
}

}  // namespace

std::vector<ImportedStep> recurring_steps(const ImportedTrace& trace) {
  if (!trace.steps.empty()) return trace.steps;
  const std::vector<uint32_t> launched = ops_by_call(trace, [](const ImportedOp& op) {
    return op.kind == ActivityKind::kernel || op.kind == ActivityKind::graph;
  });
  if (launched.size() < kFewestPeriods * kFewestKernelsEach) return {};
  std::vector<uint32_t> names;
  names.reserve(launched.size());
  for (const uint32_t row : launched) names.push_back(trace.ops[row].name);
  const size_t period = period_of(names);
  if (period < kFewestKernelsEach || kFewestPeriods * period > names.size()) return {};
  const auto launch_of = [&](size_t i) -> const HostCall& {
    return *trace.launch_of(trace.ops[launched[i]]);
  };
  int64_t last_ns = launch_of(0).end_ns;
  for (size_t i = 1; i < launched.size(); ++i) last_ns = std::max(last_ns, launch_of(i).end_ns);
  std::vector<ImportedStep> steps;
  for (size_t first = 0; first + period <= launched.size(); first += period) {
    const size_t next = first + period;
    const int64_t end_ns = next < launched.size() ? launch_of(next).start_ns : last_ns;
    steps.push_back({static_cast<int64_t>(steps.size()), launch_of(first).start_ns, end_ns});
  }
  return steps;
}

std::vector<std::vector<ImportedStep>> steps_of_ranks(std::span<const ImportedTrace> traces,
                                                      const CollectiveMatching& matching) {
  std::vector<std::vector<ImportedStep>> marked;
  std::vector<std::vector<ImportedStep>> periods;
  for (const ImportedTrace& trace : traces) marked.push_back(trace.steps);
  if (std::ranges::any_of(marked, [](const auto& steps) { return !steps.empty(); })) return marked;
  std::vector<size_t> counts;  // of ranks that have device work
  for (const ImportedTrace& trace : traces) {
    periods.push_back(recurring_steps(trace));
    if (!trace.ops.empty()) counts.push_back(periods.back().size());
  }
  if (counts.size() < 2) return periods;
  const auto is_other = [&](size_t count) { return count != counts[0]; };
  if (counts[0] == 0 || std::ranges::any_of(counts, is_other)) return marked;
  const auto is_split = [&](const MatchedCollective& one) {
    std::optional<size_t> first;
    for (const CollectivePart& part : one.parts) {
      const auto step = launching_step(traces[part.trace], periods[part.trace], part.op);
      if (first && step && *first != *step) return true;
      if (step) first = step;
    }
    return false;
  };
  const bool are_matched = !matching.matched.empty() || !matching.messages.empty();
  const bool are_same = are_matched && std::ranges::none_of(matching.matched, is_split) &&
                        std::ranges::none_of(matching.messages, is_split);
  return are_same ? periods : marked;
}

}  // namespace moetune::profiler
