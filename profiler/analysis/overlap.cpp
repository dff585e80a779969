// Matches a collective's records over its ranks, and sums what each of them waited and moved.
#include "profiler/analysis/overlap.h"

#include <algorithm>
#include <tuple>

#include "kernels/base/error.h"

namespace moetune::profiler {
namespace {

struct Participant {
  int32_t rank = 0;
  int64_t duration_ns = 0;
  int64_t bytes = 0;
};

CollectiveInstance summarise(const std::vector<Participant>& participants) {
  const auto shortest = std::min_element(
      participants.begin(), participants.end(),
      [](const Participant& a, const Participant& b) { return a.duration_ns < b.duration_ns; });
  CollectiveInstance instance;
  instance.num_participants = static_cast<int>(participants.size());
  instance.late_rank = shortest->rank;
  instance.transfer_proxy_ns = shortest->duration_ns;
  for (const Participant& p : participants) {
    instance.jitter_ns += p.duration_ns - shortest->duration_ns;
    instance.bytes += p.bytes;
  }
  return instance;
}

void add_budget(const StepBudget& budget, std::map<std::string, GroupOverlap>& groups) {
  for (const GroupBudget& group : budget.groups) {
    GroupOverlap& sum = groups[group.group];
    sum.count += group.count;
    sum.bytes += group.bytes;
    sum.volume_ns += group.volume_ns;
    sum.busy_ns += group.busy_ns;
    sum.exposed_ns += group.exposed_ns;
    sum.blocking_transfer_ns += group.blocking_transfer_ns;
    sum.blocking_wait_ns += group.blocking_wait_ns;
  }
}

void set_late_rank(const std::map<int32_t, int64_t>& jitter_by_rank, GroupOverlap& group) {
  for (const auto& [rank, jitter_ns] : jitter_by_rank) {
    const double ratio = static_cast<double>(jitter_ns) / static_cast<double>(group.jitter_ns);
    if (jitter_ns > 0 && ratio > group.late_rank_ratio) {
      group.late_rank = rank;
      group.late_rank_ratio = ratio;
    }
  }
}

}  // namespace

std::vector<CollectiveInstance> match_collectives(const std::vector<StepTrace>& traces,
                                                  const GroupInstances& instances) {
  using Key = std::tuple<std::string, int64_t, int64_t>;
  std::map<Key, std::vector<Participant>> participants;
  for (const StepTrace& trace : traces) {
    for (const TraceRecord& record : trace.records) {
      if (record.kind != RecordKind::collective || record.sequence < 0) continue;
      const std::string group = group_of(record, OpClass::communication);
      const auto instance = instances.find({trace.rank, group});
      const int64_t instance_key = instance == instances.end() ? 0 : instance->second;
      participants[{group, instance_key, record.sequence}].push_back(
          {trace.rank, record.end_ns - record.start_ns, record.bytes});
    }
  }
  std::vector<CollectiveInstance> matched;
  matched.reserve(participants.size());
  for (const auto& [key, ranks] : participants) {
    CollectiveInstance& instance = matched.emplace_back(summarise(ranks));
    std::tie(instance.group, instance.instance_key, instance.sequence) = key;
  }
  return matched;
}

std::vector<GroupOverlap> group_overlaps(const std::vector<StepTrace>& traces,
                                         const std::vector<StepBudget>& budgets,
                                         const GroupInstances& instances) {
  MOETUNE_CHECK(traces.size() == budgets.size(), "{} traces with {} budgets", traces.size(),
                budgets.size());
  std::map<std::string, GroupOverlap> groups;
  for (const StepBudget& budget : budgets) add_budget(budget, groups);

  std::map<std::string, std::map<int32_t, int64_t>> jitter_by_late_rank;
  for (const CollectiveInstance& instance : match_collectives(traces, instances)) {
    GroupOverlap& group = groups[instance.group];
    if (instance.num_participants < 2) {
      ++group.num_unmatched;
      continue;
    }
    ++group.num_matched;
    group.transfer_proxy_ns += instance.transfer_proxy_ns;
    group.jitter_ns += instance.jitter_ns;
    jitter_by_late_rank[instance.group][instance.late_rank] += instance.jitter_ns;
  }

  std::vector<GroupOverlap> result;
  for (auto& [name, group] : groups) {
    group.group = name;
    if (group.busy_ns > 0) {
      group.overlap_ratio = static_cast<double>(group.busy_ns - group.exposed_ns) /
                            static_cast<double>(group.busy_ns);
    }
    set_late_rank(jitter_by_late_rank[name], group);
    result.push_back(group);
  }
  std::stable_sort(result.begin(), result.end(), [](const GroupOverlap& a, const GroupOverlap& b) {
    return a.blocking_transfer_ns + a.blocking_wait_ns >
           b.blocking_transfer_ns + b.blocking_wait_ns;
  });
  return result;
}

}  // namespace moetune::profiler
