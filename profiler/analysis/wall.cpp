// Adds up what each wall costs the ranks, decides which one limits the trial, and says why.
#include "profiler/analysis/wall.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "profiler/analysis/budget_terms.h"
#include "profiler/analysis/wall_text.h"

namespace moetune::profiler {
namespace {

using base::StepPart;

constexpr const char* kBubbleGroup = "pp";

double ratio_of(int64_t part_ns, int64_t whole_ns) {
  return whole_ns == 0 ? 0.0 : static_cast<double>(part_ns) / static_cast<double>(whole_ns);
}

int64_t mean_of(int64_t sum_ns, size_t count) {
  return std::llround(static_cast<double>(sum_ns) / static_cast<double>(count));
}

int64_t part_ns(const StepBudget& budget, const base::StepPartRow& row) {
  int64_t ns = budget_term(budget, row.metric);
  if (row.subtracted[0] != '\0') ns -= budget_term(budget, row.subtracted);
  // It is 0, but counted, so that the parts always make the whole.
  return row.id == StepPart::stalled ? ns + budget.residual_ns : ns;
}

int64_t recoverable_ns(const StepBudget& budget, Wall wall) {
  if (wall == Wall::compute) return 0;
  int64_t ns = 0;
  for (const base::StepPartRow& row : base::step_parts()) {
    if (row.wall == wall) ns += part_ns(budget, row);
  }
  return ns;
}

const StepBudget& slowest_of(const std::vector<StepBudget>& budgets) {
  const auto working_ns = [](const StepBudget& b) { return b.step_ns - b.blocking_wait_ns; };
  return *std::max_element(
      budgets.begin(), budgets.end(),
      [&](const StepBudget& a, const StepBudget& b) { return working_ns(a) < working_ns(b); });
}

/// Waiting in a pipeline's groups is the bubble's.
int64_t late_ns(const GroupBudget& group) { return group.is_pipeline ? 0 : group.blocking_wait_ns; }

std::vector<StepShare> shares_of(const std::vector<StepBudget>& budgets) {
  std::vector<std::pair<std::string, int64_t>> sums;
  std::map<std::string, int64_t> blocking;
  int64_t steps_ns = 0;
  for (const base::StepPartRow& row : base::step_parts()) {
    if (!row.is_by_group) sums.emplace_back(base::name_of(row.id), 0);
  }
  for (const StepBudget& budget : budgets) {
    steps_ns += budget.step_ns;
    size_t next = 0;
    for (const base::StepPartRow& row : base::step_parts()) {
      if (!row.is_by_group) sums[next++].second += part_ns(budget, row);
    }
    for (const GroupBudget& group : budget.groups) {
      const int64_t ns = group.blocking_transfer_ns + late_ns(group);
      if (ns != 0) blocking[base::name_of(StepPart::transfer, group.group)] += ns;
    }
  }
  sums.insert(sums.end(), blocking.begin(), blocking.end());
  std::vector<StepShare> shares;
  for (const auto& [name, sum_ns] : sums) {
    shares.push_back({name, mean_of(sum_ns, budgets.size()), ratio_of(sum_ns, steps_ns)});
  }
  return shares;
}

WallBound bound_of(Wall wall, const std::vector<StepBudget>& budgets, const StepBudget& slowest) {
  int64_t sum_ns = 0;
  int64_t steps_ns = 0;
  for (const StepBudget& budget : budgets) {
    sum_ns += recoverable_ns(budget, wall);
    steps_ns += budget.step_ns;
  }
  WallBound bound;
  bound.wall = wall;
  bound.mean_ns = mean_of(sum_ns, budgets.size());
  bound.slowest_ns = recoverable_ns(slowest, wall);
  bound.mean_ratio = ratio_of(sum_ns, steps_ns);
  bound.slowest_ratio = ratio_of(bound.slowest_ns, slowest.step_ns);
  // A step that is nothing but recoverable would gain without limit; 1 ns keeps the number finite.
  const int64_t rest_ns = std::max<int64_t>(steps_ns - sum_ns, 1);
  bound.gain_ceiling_ratio = ratio_of(sum_ns, rest_ns);
  return bound;
}

/// The group that blocks longest; waiting in any pipeline group counts as one bubble, under the
/// pipeline group.
DominantGroup dominant_group(const std::vector<StepBudget>& budgets) {
  std::map<std::string, DominantGroup> groups;
  std::map<std::string, std::map<std::string, int64_t>> ns_by_op;
  for (const StepBudget& budget : budgets) {
    for (const GroupBudget& group : budget.groups) {
      DominantGroup& sum = groups[group.group];
      sum.transfer_ns += group.blocking_transfer_ns;
      sum.volume_ns += group.volume_ns;
      sum.exposed_ns += group.exposed_ns;
      if (group.is_pipeline) {
        groups[kBubbleGroup].wait_ns += group.blocking_wait_ns;
        groups[kBubbleGroup].is_bubble = true;
      } else {
        sum.wait_ns += group.blocking_wait_ns;
      }
      if (!group.dominant_op.empty())
        ns_by_op[group.group][group.dominant_op] += group.blocking_ns();
    }
  }
  DominantGroup dominant;
  for (auto& [name, group] : groups) {
    if (group.transfer_ns + group.wait_ns <= dominant.transfer_ns + dominant.wait_ns) continue;
    dominant = group;
    dominant.group = name;
  }
  int64_t longest_ns = 0;
  for (const auto& [op, ns] : ns_by_op[dominant.group]) {
    if (ns > longest_ns) dominant.op = op;
    longest_ns = std::max(longest_ns, ns);
  }
  for (int64_t* ns :
       {&dominant.transfer_ns, &dominant.wait_ns, &dominant.volume_ns, &dominant.exposed_ns}) {
    *ns = mean_of(*ns, budgets.size());
  }
  return dominant;
}

Wall decide(const WallEvidence& verdict, const MemoryFacts& memory, const WallOptions& options) {
  if (memory.is_oom) return Wall::memory;
  std::array<double, kNumWalls> shares{};
  for (const Wall wall : base::kRecoverableWalls) {
    shares[static_cast<size_t>(wall)] = verdict.bounds[static_cast<size_t>(wall)].mean_ratio;
  }
  return base::binding_wall(shares, options.threshold_ratio);
}

void add_memory_evidence(const MemoryFacts& memory, WallEvidence& verdict) {
  if (memory.is_oom) {
    verdict.evidence.push_back({"is_oom", 1, "count", "The trial ran out of memory."});
  }
  if (memory.capacity_bytes <= 0) return;
  const double used = ratio_of(memory.peak_bytes, memory.capacity_bytes);
  verdict.evidence.push_back(
      {"memory_used_ratio", used, "ratio",
       fmt::format("The fullest rank {} {} of {} ({}).", memory.is_oom ? "had reached" : "peaks at",
                   base::format_bytes(memory.peak_bytes), base::format_bytes(memory.capacity_bytes),
                   base::format_ratio(used))});
}

void add_step_evidence(const std::vector<StepBudget>& budgets, const DominantGroup& dominant,
                       WallEvidence& verdict) {
  for (const Wall wall : base::kRecoverableWalls) {
    const WallBound& bound = verdict.bounds[static_cast<size_t>(wall)];
    verdict.evidence.push_back({fmt::format("recoverable_{}_ratio", name_of(wall)),
                                bound.mean_ratio, "ratio",
                                bound_text(bound, verdict.num_ranks, verdict.slowest_rank)});
  }
  if (!dominant.group.empty()) {
    verdict.evidence.push_back({"dominant_group_blocking_ratio", verdict.dominant_ratio, "ratio",
                                dominant_text(dominant, verdict.step_ns)});
  }
  int64_t launches = 0, sync_idle_ns = 0, gaps = 0, unresolved = 0;
  for (const StepBudget& budget : budgets) {
    launches += budget.num_launches;
    sync_idle_ns += budget.host_sync_in_idle_ns;
    gaps += budget.num_gaps;
    unresolved += budget.num_unresolved_gaps;
  }
  const int64_t mean_launches = mean_of(launches, budgets.size());
  const int64_t mean_sync_ns = mean_of(sync_idle_ns, budgets.size());
  verdict.evidence.push_back(
      {"launches_per_step", static_cast<double>(mean_launches), "count",
       fmt::format("The host launches {} operations per rank and step.", mean_launches)});
  verdict.evidence.push_back(
      {"host_sync_in_idle_ns", static_cast<double>(mean_sync_ns), "ns",
       fmt::format(
           "The host stands in synchronisations for {} of the step while the device is idle.",
           base::format_ns(mean_sync_ns))});
  verdict.evidence.push_back(
      {"unresolved_gaps_ratio", ratio_of(unresolved, gaps), "ratio",
       unresolved == 0
           ? fmt::format("All {} gaps between compute kernels are explained.", gaps)
           : fmt::format("{} of {} gaps between compute kernels are not fully explained: blocking "
                         "time is a lower bound.",
                         unresolved, gaps)});
}

}  // namespace

double WallEvidence::ratio_of(base::StepPart part) const {
  const auto share = std::ranges::find(shares, base::name_of(part), &StepShare::name);
  return share == shares.end() ? 0.0 : share->ratio;
}

WallEvidence classify_wall(const std::vector<StepBudget>& budgets, const MemoryFacts& memory,
                           const WallOptions& options) {
  MOETUNE_CHECK(memory.is_oom || !budgets.empty(), "a trial without a traced step has no wall");
  WallEvidence verdict;
  for (size_t i = 0; i < verdict.bounds.size(); ++i) verdict.bounds[i].wall = static_cast<Wall>(i);
  DominantGroup dominant;
  if (!budgets.empty()) {
    const StepBudget& slowest = slowest_of(budgets);
    int64_t steps_ns = 0;
    for (const StepBudget& budget : budgets) steps_ns += budget.step_ns;
    verdict.num_ranks = static_cast<int64_t>(budgets.size());
    verdict.slowest_rank = slowest.rank;
    verdict.step_ns = mean_of(steps_ns, budgets.size());
    for (WallBound& bound : verdict.bounds) bound = bound_of(bound.wall, budgets, slowest);
    verdict.shares = shares_of(budgets);
    dominant = dominant_group(budgets);
    verdict.dominant_group = dominant.group;
    verdict.dominant_ratio = ratio_of(dominant.transfer_ns + dominant.wait_ns, verdict.step_ns);
  }
  verdict.wall = decide(verdict, memory, options);
  verdict.summary = wall_summary(verdict, dominant, memory, options);
  add_memory_evidence(memory, verdict);
  if (!budgets.empty()) add_step_evidence(budgets, dominant, verdict);
  return verdict;
}

}  // namespace moetune::profiler
