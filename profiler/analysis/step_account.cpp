// Adds up the parts of a step over its ranks, and says which communication blocks longest.
#include "profiler/analysis/step_account.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "profiler/analysis/budget_terms.h"

namespace moetune::profiler {
namespace {

using base::format_ns;
using base::format_ratio;
using base::StepPart;

constexpr const char* kBubbleGroup = "pp";

/// What is said about the group that blocks longest.
struct DominantGroup {
  std::string group;
  std::string op;           ///< name of the record that blocked longest
  int64_t transfer_ns = 0;  ///< means over ranks
  int64_t wait_ns = 0;
  int64_t volume_ns = 0;
  int64_t exposed_ns = 0;
  bool is_bubble = false;  ///< waiting is pipeline bubble
};

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

std::string over_ranks(int64_t num_ranks) {
  return num_ranks == 1 ? std::string("on its one rank")
                        : fmt::format("on average over {} ranks", num_ranks);
}

std::string mostly(const DominantGroup& dominant) {
  return dominant.op.empty() ? std::string() : fmt::format(" (mostly {})", dominant.op);
}

std::string communication_subject(const DominantGroup& dominant) {
  if (dominant.is_bubble && dominant.wait_ns > dominant.transfer_ns) {
    return "Pipeline bubbles, in which a stage waits for another one, take";
  }
  const base::GroupRow* row = base::find_group(dominant.group);
  if (row != nullptr && row->text[0] != '\0') {
    std::string text = row->text;
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    return fmt::format("{}{} takes", text, mostly(dominant));
  }
  const std::string adjective =
      row == nullptr ? fmt::format("'{}'", dominant.group) : std::string(row->adjective);
  if (dominant.wait_ns > dominant.transfer_ns) {
    return fmt::format("Waiting for late ranks in {} communication{} takes", adjective,
                       mostly(dominant));
  }
  return fmt::format("Blocking {} communication{} takes", adjective, mostly(dominant));
}

/// The three numbers of communication.
std::string dominant_text(const DominantGroup& dominant, int64_t step_ns) {
  const auto of_step = [step_ns](int64_t ns) {
    return format_ratio(step_ns == 0 ? 0.0
                                     : static_cast<double>(ns) / static_cast<double>(step_ns));
  };
  return fmt::format(
      "Group '{}' per rank and step: volume {} of device work, exposed {} ({} of the step), "
      "blocking {} ({}), of which {} {}.",
      dominant.group, format_ns(dominant.volume_ns), format_ns(dominant.exposed_ns),
      of_step(dominant.exposed_ns), format_ns(dominant.transfer_ns + dominant.wait_ns),
      of_step(dominant.transfer_ns + dominant.wait_ns), format_ns(dominant.wait_ns),
      dominant.is_bubble ? "is pipeline bubble" : "is waiting for a late participant");
}

void add_evidence(const std::vector<StepBudget>& budgets, const DominantGroup& dominant,
                  StepAccount& account) {
  if (!dominant.group.empty()) {
    account.evidence.push_back(
        {"dominant_group_blocking_ratio", account.dominant_ratio, "ratio",
         fmt::format("{} {} of the step {}.", communication_subject(dominant),
                     format_ratio(account.dominant_ratio), over_ranks(account.num_ranks))});
    account.evidence.push_back({"dominant_group_exposed_ns",
                                static_cast<double>(dominant.exposed_ns), "ns",
                                dominant_text(dominant, account.step_ns)});
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
  account.evidence.push_back(
      {"launches_per_step", static_cast<double>(mean_launches), "count",
       fmt::format("The host launches {} operations per rank and step.", mean_launches)});
  account.evidence.push_back(
      {"host_sync_in_idle_ns", static_cast<double>(mean_sync_ns), "ns",
       fmt::format(
           "The host stands in synchronisations for {} of the step while the device is idle.",
           base::format_ns(mean_sync_ns))});
  account.evidence.push_back(
      {"unresolved_gaps_ratio", ratio_of(unresolved, gaps), "ratio",
       unresolved == 0
           ? fmt::format("All {} gaps between compute kernels are explained.", gaps)
           : fmt::format("{} of {} gaps between compute kernels are not fully explained: blocking "
                         "time is a lower bound.",
                         unresolved, gaps)});
}

}  // namespace

double StepAccount::ratio_of(base::StepPart part) const {
  const auto share = std::ranges::find(shares, base::name_of(part), &StepShare::name);
  return share == shares.end() ? 0.0 : share->ratio;
}

StepAccount account_of(const std::vector<StepBudget>& budgets) {
  MOETUNE_CHECK(!budgets.empty(), "a step without ranks has no account");
  int64_t steps_ns = 0;
  for (const StepBudget& budget : budgets) steps_ns += budget.step_ns;
  StepAccount account;
  account.num_ranks = static_cast<int64_t>(budgets.size());
  account.slowest_rank = slowest_of(budgets).rank;
  account.step_ns = mean_of(steps_ns, budgets.size());
  account.shares = shares_of(budgets);
  const DominantGroup dominant = dominant_group(budgets);
  account.dominant_group = dominant.group;
  account.dominant_ratio = ratio_of(dominant.transfer_ns + dominant.wait_ns, account.step_ns);
  add_evidence(budgets, dominant, account);
  return account;
}

}  // namespace moetune::profiler
