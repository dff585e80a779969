#include "profiler/analysis/imported_account.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "profiler/analysis/collective_waits.h"
#include "profiler/analysis/group_costs.h"
#include "profiler/analysis/imported_recompute.h"
#include "profiler/analysis/imported_steps.h"
#include "profiler/analysis/intervals.h"
#include "profiler/analysis/trace_causes.h"
#include "profiler/analysis/trace_windows.h"

namespace moetune::profiler {
namespace {

/// The account of one rank, summed over the window of its counted steps.
class RankAccount {
 public:
  RankAccount(const ImportedTrace& trace, const CountedSteps& steps,
              const std::vector<bool>& is_message, const WaitsByOp& waits)
      : trace_(trace),
        steps_(steps),
        is_message_(is_message),
        waits_(waits),
        groups_(trace, is_message, costs_) {}

  /// None without device work.
  std::optional<StepBudget> sums() {
    const TraceExtent extent = extent_of(trace_);
    if (extent.last_ns - extent.first_ns > kMaxTraceNs) return std::nullopt;
    const TraceWindows windows(trace_, DeviceOps::all);
    auto window = counted_window(windows);
    if (!window) return std::nullopt;
    const CauseSegments segments =
        steps_.host ? explain_steps(trace_, *steps_.host, *window, windows.wide())
                    : explain_window(trace_, *window, windows.wide());
    take_figures(windows.measure_wide(*window));
    add_volumes(window->ops, windows.wide());
    book(segments, recomputed_alone(trace_, window->ops, windows.wide()));
    for (auto& [name, group] : by_name_) {
      group.group = name;
      sums_.groups.push_back(std::move(group));
    }
    return std::move(sums_);
  }

 private:
  /// Where no step counts all that was launched, as for the verdict.
  [[nodiscard]] std::optional<TraceWindow> counted_window(const TraceWindows& windows) const {
    if (!steps_.host) return judged_window(trace_, windows);
    const ImportedStep all = {0, steps_.host->start_ns, steps_.host->end_ns};
    return windows.make(WindowKind::step_by_launch, &all);
  }

  void take_figures(const WindowBudget& figures) {
    sums_.step_ns = figures.window_ns;
    sums_.device_busy_ns = figures.busy_ns;
    sums_.communication.busy_ns = figures.comm_busy_ns;
    sums_.communication.exposed_ns = figures.exposed_comm_ns;
  }

  /// What each group moves, blocking or not.
  void add_volumes(const std::vector<uint32_t>& ops, const WorkClasses& wide) {
    std::map<std::string, std::vector<Interval>, std::less<>> busy;
    std::vector<Interval> comm;
    std::vector<Interval> copies;
    std::vector<Interval> others;
    for (const uint32_t row : ops) {
      const ImportedOp& op = trace_.ops[row];
      const WorkClass work = wide.of(op);
      std::string_view name;
      if (work == WorkClass::communication) {
        comm.push_back({op.start_ns, op.end_ns});
        add_volume(op, sums_.communication);
        name = groups_.of(op);
      } else if (work == WorkClass::copy && is_of_host(op)) {
        copies.push_back({op.start_ns, op.end_ns});
        name = kMemcpyGroup;
      } else {
        others.push_back({op.start_ns, op.end_ns});
      }
      if (name.empty()) continue;
      add_volume(op, by_name_[std::string(name)]);
      busy[std::string(name)].push_back({op.start_ns, op.end_ns});
    }
    const IntervalSet other_work(std::move(others));
    const IntervalSet beside_comm = unite(other_work, IntervalSet(std::move(copies)));
    const IntervalSet beside_copies = unite(other_work, IntervalSet(std::move(comm)));
    for (auto& [name, intervals] : busy) {
      const IntervalSet own(std::move(intervals));
      GroupBudget& group = by_name_[name];
      group.busy_ns = own.total_ns();
      group.exposed_ns =
          subtract(own, name == kMemcpyGroup ? beside_copies : beside_comm).total_ns();
    }
  }

  static bool is_of_host(const ImportedOp& op) {
    return op.path == CopyPath::to_device || op.path == CopyPath::to_host;
  }

  static void add_volume(const ImportedOp& op, GroupBudget& group) {
    ++group.count;
    group.bytes += op.bytes;
    group.volume_ns += op.duration_ns();
  }

  void book(const CauseSegments& segments, const IntervalSet& recomputed) {
    for (const CauseSegment& segment : segments) {
      const int64_t ns = segment.end_ns - segment.start_ns;
      switch (segment.cause) {
        case IdleCause::compute:
        case IdleCause::latency:
          sums_.compute_busy_ns += ns;
          sums_.recompute_busy_ns += covered_ns(recomputed, {segment.start_ns, segment.end_ns});
          break;
        case IdleCause::host:
          sums_.launch_starved_ns += ns;
          break;
        case IdleCause::communication:
          book_comm(segment);
          break;
        case IdleCause::host_copy:
        case IdleCause::offload:
          sums_.blocking_transfer_ns += ns;
          by_name_[kMemcpyGroup].blocking_transfer_ns += ns;
          break;
        case IdleCause::unknown:
        case IdleCause::count:
          sums_.dependency_stalled_ns += ns;
          break;
      }
    }
  }

  void book_comm(const CauseSegment& segment) {
    const ImportedOp& op = trace_.ops[segment.op];
    const int64_t ns = segment.end_ns - segment.start_ns;
    const bool is_stage = op.comm != kNoRow && is_message_[op.comm];
    const int64_t wait_ns = is_stage ? ns : split_comm(segment, &waits_).wait_ns;
    const auto add = [&](GroupBudget& group) {
      group.blocking_transfer_ns += ns - wait_ns;
      group.blocking_wait_ns += wait_ns;
    };
    sums_.blocking_transfer_ns += ns - wait_ns;
    sums_.blocking_wait_ns += wait_ns;
    if (is_stage) sums_.pipeline_bubble_ns += ns;
    if (is_recomputed(trace_, segment.op)) sums_.recompute_blocking_ns += ns - wait_ns;
    add(sums_.communication);
    const std::string_view name = groups_.of(op);
    if (name.empty()) return;
    GroupBudget& group = by_name_[std::string(name)];
    group.is_pipeline = group.is_pipeline || is_stage;
    add(group);
  }

  const ImportedTrace& trace_;
  const CountedSteps& steps_;
  const std::vector<bool>& is_message_;
  const WaitsByOp& waits_;
  GroupCosts costs_;  ///< of no interest here
  CommGroups groups_;
  StepBudget sums_;
  std::map<std::string, GroupBudget, std::less<>> by_name_;
};

void divide(int64_t& value, double by) { value = std::llround(static_cast<double>(value) / by); }

void divide(GroupBudget& group, double by) {
  for (int64_t* value : {&group.count, &group.bytes, &group.volume_ns, &group.busy_ns,
                         &group.exposed_ns, &group.blocking_transfer_ns, &group.blocking_wait_ns}) {
    divide(*value, by);
  }
}

/// Of the sums over a window the mean of its steps.
void divide(StepBudget& budget, double by) {
  for (int64_t* value :
       {&budget.step_ns, &budget.device_busy_ns, &budget.compute_busy_ns, &budget.launch_starved_ns,
        &budget.blocking_transfer_ns, &budget.blocking_wait_ns, &budget.pipeline_bubble_ns,
        &budget.dependency_stalled_ns, &budget.recompute_busy_ns, &budget.recompute_blocking_ns}) {
    divide(*value, by);
  }
  divide(budget.communication, by);
  for (GroupBudget& group : budget.groups) divide(group, by);
}

}  // namespace

std::vector<StepBudget> imported_budgets(std::span<const ImportedTrace> traces,
                                         const CollectiveMatching& matching,
                                         std::span<const CountedSteps> steps) {
  const std::vector<WaitsByOp> waits = waits_of(traces, matching);
  const std::vector<std::vector<bool>> is_message = stage_messages_of(traces, matching);
  std::vector<StepBudget> budgets;
  for (size_t i = 0; i < traces.size(); ++i) {
    std::optional<StepBudget> sums =
        RankAccount(traces[i], steps[i], is_message[i], waits[i]).sums();
    if (!sums) continue;
    divide(*sums, static_cast<double>(steps[i].num));
    sums->rank = static_cast<int32_t>(i);
    sums->device_idle_ns = sums->step_ns - sums->device_busy_ns;
    sums->compute_absent_ns = sums->step_ns - sums->compute_busy_ns;
    sums->occupied_not_computing_ns =
        std::max<int64_t>(0, sums->device_busy_ns - sums->compute_busy_ns);
    budgets.push_back(std::move(*sums));
  }
  return budgets;
}

}  // namespace moetune::profiler
