#include "profiler/analysis/recurring_steps.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

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

/// The kernels of a trace that were launched, in that order, and the period in which they recur.
struct Recurrence {
  std::vector<uint32_t> launched;  ///< rows of its ops
  size_t period = 0;               ///< 0: none of which there are two

  [[nodiscard]] size_t num_periods() const { return period == 0 ? 0 : launched.size() / period; }
};

Recurrence recurrence_of(const ImportedTrace& trace) {
  Recurrence found = {ops_by_call(trace, [](const ImportedOp& op) {
    return op.kind == ActivityKind::kernel || op.kind == ActivityKind::graph;
  })};
  if (found.launched.size() < 2 * kFewestKernelsEach) return found;
  std::vector<uint32_t> names;
  names.reserve(found.launched.size());
  for (const uint32_t row : found.launched) names.push_back(trace.ops[row].name);
  const size_t period = period_of(names);
  if (period >= kFewestKernelsEach && 2 * period <= names.size()) found.period = period;
  return found;
}

/// The whole periods from one launch on.
std::vector<ImportedStep> periods_from(const ImportedTrace& trace, const Recurrence& recurrence,
                                       size_t first, int64_t number) {
  const std::vector<uint32_t>& launched = recurrence.launched;
  const auto launch_of = [&](size_t i) -> const HostCall& {
    return *trace.launch_of(trace.ops[launched[i]]);
  };
  int64_t last_ns = launch_of(0).end_ns;
  for (size_t i = 1; i < launched.size(); ++i) last_ns = std::max(last_ns, launch_of(i).end_ns);
  std::vector<ImportedStep> steps;
  for (; first + recurrence.period <= launched.size(); first += recurrence.period) {
    const size_t next = first + recurrence.period;
    const int64_t end_ns = next < launched.size() ? launch_of(next).start_ns : last_ns;
    steps.push_back({number++, launch_of(first).start_ns, end_ns});
  }
  return steps;
}

/// Ranks that do not have equally many periods, as where one was recorded later: those that begin
/// with the same launch as one rank's, as far as collectives tell that. Empty where they do not.
class PeriodsInCommon {
 public:
  PeriodsInCommon(std::span<const ImportedTrace> traces, const CollectiveMatching& matching)
      : traces_(traces), matching_(matching), places_(traces.size()), behind_(traces.size()) {
    for (const ImportedTrace& trace : traces) found_.push_back(recurrence_of(trace));
  }

  std::vector<std::vector<ImportedStep>> steps() {
    const auto longest = std::ranges::max_element(found_, {}, &Recurrence::num_periods);
    // Ends of messages do not stand at the same place of their ranks' launches.
    if (longest->num_periods() < kFewestPeriods || !matching_.messages.empty()) return {};
    const auto is_other = [&](size_t i) {
      return !traces_[i].ops.empty() && found_[i].period != longest->period;
    };
    for (size_t i = 0; i < traces_.size(); ++i) {
      if (is_other(i)) return {};
      places_[i].assign(traces_[i].ops.size(), -1);
      for (size_t j = 0; j < found_[i].launched.size(); ++j) {
        places_[i][found_[i].launched[j]] = static_cast<int64_t>(j);
      }
    }
    behind_[static_cast<size_t>(longest - found_.begin())] = 0;
    while (true) {
      const std::optional<bool> has_more = compare_places();
      if (!has_more) return {};
      if (!*has_more) break;
    }
    std::vector<std::vector<ImportedStep>> steps(traces_.size());
    const auto period = static_cast<int64_t>(longest->period);
    for (size_t i = 0; i < traces_.size(); ++i) {
      if (traces_[i].ops.empty()) continue;
      if (!behind_[i]) return {};
      const int64_t first = (*behind_[i] % period + period) % period;
      steps[i] = periods_from(traces_[i], found_[i], static_cast<size_t>(first),
                              (first - *behind_[i]) / period);
    }
    return steps;
  }

 private:
  /// One walk over all matches. None: ranks differ in what they launch, so places tell nothing.
  std::optional<bool> compare_places() {
    bool has_more = false;
    for (const MatchedCollective& one : matching_.matched) {
      std::optional<int64_t> place;  // on the rank with most periods
      for (const CollectivePart& part : one.parts) {
        const int64_t own = places_[part.trace][part.op];
        if (own < 0 || !behind_[part.trace]) continue;
        if (place && *place != own - *behind_[part.trace]) return std::nullopt;
        place = own - *behind_[part.trace];
      }
      if (!place) continue;
      for (const CollectivePart& part : one.parts) {
        const int64_t own = places_[part.trace][part.op];
        if (own < 0 || behind_[part.trace]) continue;
        behind_[part.trace] = own - *place;
        has_more = true;
      }
    }
    return has_more;
  }

  std::span<const ImportedTrace> traces_;
  const CollectiveMatching& matching_;
  std::vector<Recurrence> found_;             ///< by trace
  std::vector<std::vector<int64_t>> places_;  ///< by trace and row: among its launches, or -1
  /// By trace: how many launches later the same one stands than on the rank with most periods.
  std::vector<std::optional<int64_t>> behind_;
};

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
  const Recurrence found = recurrence_of(trace);
  if (found.num_periods() < kFewestPeriods) return {};
  return periods_from(trace, found, 0, 0);
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
  const auto in_common = [&] {
    std::vector<std::vector<ImportedStep>> steps = PeriodsInCommon(traces, matching).steps();
    return steps.empty() ? std::move(marked) : std::move(steps);
  };
  const auto is_other = [&](size_t count) { return count != counts[0]; };
  if (counts[0] == 0 || std::ranges::any_of(counts, is_other)) return in_common();
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
  return are_same ? std::move(periods) : in_common();
}

}  // namespace moetune::profiler
