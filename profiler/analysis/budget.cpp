// Computes a budget: the time that each kind of work covers, as unions of intervals, and the gaps
// of the device by their cause.
#include "profiler/analysis/budget.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <unordered_set>

#include "kernels/base/error.h"
#include "profiler/analysis/gaps.h"
#include "profiler/analysis/intervals.h"
#include "profiler/analysis/trace_index.h"

namespace moetune::profiler {
namespace {

/// Unions over one step, clipped to it.
struct BusySets {
  IntervalSet compute;
  IntervalSet compute_not_recomputed;
  IntervalSet communication;  ///< with the dispatcher
  IntervalSet memcpy;
  IntervalSet device;
  IntervalSet host_sync;
  std::map<std::string, IntervalSet> by_group;
};

BusySets busy_sets(const TraceIndex& index) {
  std::vector<Interval> compute, useful, communication, memcpy, host_sync;
  compute.reserve(static_cast<size_t>(index.size()));
  useful.reserve(static_cast<size_t>(index.size()));
  std::map<std::string, std::vector<Interval>> by_group;
  for (int64_t i = 0; i < index.size(); ++i) {
    const TraceRecord& record = index.record(i);
    const Interval interval = {std::max(record.start_ns, index.window().start_ns),
                               std::min(record.end_ns, index.window().end_ns)};
    const OpClass op_class = index.op_class(i);
    switch (op_class) {
      case OpClass::compute:
        compute.push_back(interval);
        if (!record.is_recompute) useful.push_back(interval);
        continue;
      case OpClass::host:
        if (record.kind == RecordKind::host_sync) host_sync.push_back(interval);
        continue;
      case OpClass::memcpy:
        memcpy.push_back(interval);
        break;
      case OpClass::dispatcher:
      case OpClass::communication:
        communication.push_back(interval);
        break;
    }
    by_group[group_of(record, op_class)].push_back(interval);
  }
  BusySets sets;
  sets.compute = IntervalSet(std::move(compute));
  sets.compute_not_recomputed = IntervalSet(std::move(useful));
  sets.communication = IntervalSet(std::move(communication));
  sets.memcpy = IntervalSet(std::move(memcpy));
  sets.host_sync = IntervalSet(std::move(host_sync));
  sets.device = unite(unite(sets.compute, sets.communication), sets.memcpy);
  for (auto& [group, intervals] : by_group)
    sets.by_group[group] = IntervalSet(std::move(intervals));
  return sets;
}

/// Counts, volumes, busy and exposed times; blocking comes from the gaps.
std::map<std::string, GroupBudget> group_volumes(const TraceIndex& index, const BusySets& sets) {
  std::map<std::string, GroupBudget> groups;
  for (int64_t i = 0; i < index.size(); ++i) {
    if (index.op_class(i) == OpClass::compute || index.op_class(i) == OpClass::host) continue;
    const TraceRecord& record = index.record(i);
    const std::string name = group_of(record, index.op_class(i));
    GroupBudget& group = groups[name];
    ++group.count;
    group.bytes += record.bytes;
    group.volume_ns += record.end_ns - record.start_ns;
  }
  const IntervalSet not_communication = unite(sets.compute, sets.memcpy);
  const IntervalSet not_memcpy = unite(sets.compute, sets.communication);
  for (auto& [name, group] : groups) {
    const IntervalSet& busy = sets.by_group.at(name);
    group.busy_ns = busy.total_ns();
    const IntervalSet& others = name == kMemcpyGroup ? not_memcpy : not_communication;
    group.exposed_ns = subtract(busy, others).total_ns();
  }
  return groups;
}

/// The compute kernel that starts at the end of each gap, first in program order; kNoPosition where
/// none does. Gaps are ascending.
std::vector<int64_t> kernels_behind(const TraceIndex& index, const std::vector<Interval>& gaps) {
  std::vector<int64_t> kernels(gaps.size(), kNoPosition);
  size_t at = 0;  // kernels mostly start one after the other, so the next gap is near
  for (int64_t i = 0; i < index.size(); ++i) {
    const TraceRecord& record = index.record(i);
    if (index.op_class(i) != OpClass::compute || record.end_ns <= record.start_ns) continue;
    if (at == gaps.size() || gaps[at].end_ns != record.start_ns) {
      const bool is_between = at < gaps.size() && record.start_ns < gaps[at].end_ns &&
                              (at == 0 || record.start_ns > gaps[at - 1].end_ns);
      if (is_between) continue;
      at = static_cast<size_t>(
          std::ranges::lower_bound(gaps, record.start_ns, {}, &Interval::end_ns) - gaps.begin());
      if (at == gaps.size() || gaps[at].end_ns != record.start_ns) continue;
    }
    if (kernels[at] == kNoPosition) kernels[at] = i;
  }
  return kernels;
}

class BlockingBook {
 public:
  BlockingBook(const TraceIndex& index, StepBudget& budget,
               std::map<std::string, GroupBudget>& groups, const ClassificationRules& rules,
               const DeviceWork& others)
      : index_(index), budget_(budget), groups_(groups), rules_(rules), others_(others) {}

  void book(const GapPart& part) {
    const int64_t ns = part.end_ns - part.start_ns;
    switch (part.cause) {
      case GapCause::launch_starved:
        budget_.launch_starved_ns += ns;
        return;
      case GapCause::dependency_stalled: {
        const int64_t shared_ns = shared_ns_of(part);
        budget_.device_shared_ns += shared_ns;
        budget_.dependency_stalled_ns += ns - shared_ns;
        return;
      }
      case GapCause::transfer:
      case GapCause::wait:
        break;
    }
    const bool is_transfer = part.cause == GapCause::transfer;
    (is_transfer ? budget_.blocking_transfer_ns : budget_.blocking_wait_ns) += ns;
    std::string name = kStepEndGroup;
    if (part.position != kNoPosition) {
      const TraceRecord& record = index_.record(part.position);
      name = group_of(record, index_.op_class(part.position));
      if (record.is_recompute) budget_.recompute_blocking_ns += ns;
      ns_by_op_[name][record.name] += ns;
    }
    GroupBudget& group = groups_[name];
    (is_transfer ? group.blocking_transfer_ns : group.blocking_wait_ns) += ns;
    if (!is_transfer && is_pipeline_group(name, rules_)) budget_.pipeline_bubble_ns += ns;
  }

  void set_dominant_ops() {
    for (const auto& [name, ops] : ns_by_op_) {
      const auto longest = std::max_element(
          ops.begin(), ops.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
      groups_[name].dominant_op = longest->first;
    }
  }

 private:
  /// What the record waited for may have been the device, while others had it.
  [[nodiscard]] int64_t shared_ns_of(const GapPart& part) const {
    if (part.position == kNoPosition) return 0;
    return others_.held_up_ns(index_.record(part.position), {part.start_ns, part.end_ns});
  }

  const TraceIndex& index_;
  StepBudget& budget_;
  std::map<std::string, GroupBudget>& groups_;
  const ClassificationRules& rules_;
  const DeviceWork& others_;
  std::map<std::string, std::map<std::string, int64_t>> ns_by_op_;
};

void explain_gaps(const TraceIndex& index, const IntervalSet& gaps, BlockingBook& book,
                  StepBudget& budget) {
  const std::vector<int64_t> kernels = kernels_behind(index, gaps.intervals());
  for (size_t i = 0; i < kernels.size(); ++i) {
    const Interval& gap = gaps.intervals()[i];
    const int64_t kernel = gap.end_ns == index.window().end_ns ? kNoPosition : kernels[i];
    const int64_t stalled_before = budget.dependency_stalled_ns;
    for (const GapPart& part : explain_gap(index, gap, kernel)) book.book(part);
    ++budget.num_gaps;
    if (budget.dependency_stalled_ns > stalled_before) ++budget.num_unresolved_gaps;
  }
}

GroupBudget whole_communication(const std::map<std::string, GroupBudget>& groups,
                                const BusySets& sets) {
  GroupBudget all;
  int64_t longest_ns = 0;
  for (const auto& [name, group] : groups) {
    if (name == kMemcpyGroup || name == kStepEndGroup) continue;
    all.count += group.count;
    all.bytes += group.bytes;
    all.volume_ns += group.volume_ns;
    all.blocking_transfer_ns += group.blocking_transfer_ns;
    all.blocking_wait_ns += group.blocking_wait_ns;
    if (group.blocking_ns() > longest_ns) {
      longest_ns = group.blocking_ns();
      all.dominant_op = group.dominant_op;
    }
  }
  all.busy_ns = sets.communication.total_ns();
  all.exposed_ns = subtract(sets.communication, unite(sets.compute, sets.memcpy)).total_ns();
  return all;
}

void count_launches(const TraceIndex& index, StepBudget& budget) {
  std::unordered_set<int32_t> graphs;
  for (int64_t i = 0; i < index.size(); ++i) {
    if (index.op_class(i) == OpClass::host) continue;
    const TraceRecord& record = index.record(i);
    budget.flops += record.flops;
    if (record.graph_id == 0 || graphs.insert(record.graph_id).second) ++budget.num_launches;
  }
}

void check_adds_up(const StepBudget& b) {
  const auto holds = [&b](bool is_true, const char* what) {
    MOETUNE_CHECK(is_true, "the budget of step {} on rank {} contradicts itself: {}", b.step,
                  b.rank, what);
  };
  holds(0 <= b.compute_busy_ns && b.compute_busy_ns <= b.device_busy_ns,
        "compute busy exceeds device busy");
  holds(b.device_busy_ns <= b.step_ns, "device busy exceeds the step");
  holds(b.device_busy_ns + b.device_idle_ns == b.step_ns, "busy and idle are not the step");
  holds(std::llabs(b.residual_ns) <= kMaxResidualNs, "the parts of compute-absent do not add up");
  holds(b.communication.exposed_ns <= b.communication.busy_ns, "exposed exceeds busy");
}

}  // namespace

double GroupBudget::overlap_ratio() const {
  if (busy_ns == 0) return 0;
  return static_cast<double>(busy_ns - exposed_ns) / static_cast<double>(busy_ns);
}

StepBudget compute_budget(const StepTrace& trace, const ClassificationRules& rules,
                          const DeviceWork& others) {
  return compute_budget(TraceIndex(trace, rules), rules, others);
}

StepBudget compute_budget(const TraceIndex& index, const ClassificationRules& rules,
                          const DeviceWork& others) {
  const BusySets sets = busy_sets(index);
  const IntervalSet window({index.window()});
  const IntervalSet idle = subtract(window, sets.device);

  StepBudget budget;
  budget.rank = index.trace().rank;
  budget.step = index.trace().step;
  budget.step_ns = window.total_ns();
  budget.device_busy_ns = sets.device.total_ns();
  budget.device_idle_ns = idle.total_ns();
  budget.compute_busy_ns = sets.compute.total_ns();
  budget.compute_absent_ns = budget.step_ns - budget.compute_busy_ns;
  budget.occupied_not_computing_ns = budget.device_busy_ns - budget.compute_busy_ns;
  budget.recompute_busy_ns = subtract(sets.compute, sets.compute_not_recomputed).total_ns();
  budget.host_sync_ns = sets.host_sync.total_ns();
  budget.host_sync_in_idle_ns = intersect(sets.host_sync, idle).total_ns();
  count_launches(index, budget);

  std::map<std::string, GroupBudget> groups = group_volumes(index, sets);
  BlockingBook book(index, budget, groups, rules, others);
  explain_gaps(index, subtract(window, sets.compute), book, budget);
  book.set_dominant_ops();
  budget.residual_ns = budget.compute_absent_ns - budget.launch_starved_ns - budget.blocking_ns() -
                       budget.device_shared_ns - budget.dependency_stalled_ns;

  budget.communication = whole_communication(groups, sets);
  for (auto& [name, group] : groups) {
    group.group = name;
    group.is_pipeline = is_pipeline_group(name, rules);
    budget.groups.push_back(std::move(group));
  }
  std::stable_sort(
      budget.groups.begin(), budget.groups.end(),
      [](const GroupBudget& a, const GroupBudget& b) { return a.blocking_ns() > b.blocking_ns(); });
  check_adds_up(budget);
  return budget;
}

}  // namespace moetune::profiler
