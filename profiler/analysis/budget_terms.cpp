// The rows of the table: each term's name, and how it is read from a budget.
#include "profiler/analysis/budget_terms.h"

#include <algorithm>
#include <array>

#include "kernels/base/error.h"

namespace moetune::profiler {
namespace {

constexpr auto kBudgetTerms = std::to_array<BudgetTerm>({
    {"traced_step_ns", [](const StepBudget& b) { return b.step_ns; }},
    {"device_busy_ns", [](const StepBudget& b) { return b.device_busy_ns; }},
    {"device_idle_ns", [](const StepBudget& b) { return b.device_idle_ns; }},
    {"compute_busy_ns", [](const StepBudget& b) { return b.compute_busy_ns; }},
    {"compute_absent_ns", [](const StepBudget& b) { return b.compute_absent_ns; }},
    {"occupied_not_computing_ns", [](const StepBudget& b) { return b.occupied_not_computing_ns; }},
    {"launch_starved_ns", [](const StepBudget& b) { return b.launch_starved_ns; }},
    {"blocking_ns", [](const StepBudget& b) { return b.blocking_ns(); }},
    {"blocking_transfer_ns", [](const StepBudget& b) { return b.blocking_transfer_ns; }},
    {"blocking_wait_ns", [](const StepBudget& b) { return b.blocking_wait_ns; }},
    {"pipeline_bubble_ns", [](const StepBudget& b) { return b.pipeline_bubble_ns; }},
    {"device_shared_ns", [](const StepBudget& b) { return b.device_shared_ns; }},
    {"dependency_stalled_ns", [](const StepBudget& b) { return b.dependency_stalled_ns; }},
    {"residual_ns", [](const StepBudget& b) { return b.residual_ns; }},
    {"recompute_busy_ns", [](const StepBudget& b) { return b.recompute_busy_ns; }},
    {"recompute_blocking_ns", [](const StepBudget& b) { return b.recompute_blocking_ns; }},
    {"host_sync_ns", [](const StepBudget& b) { return b.host_sync_ns; }},
    {"host_sync_in_idle_ns", [](const StepBudget& b) { return b.host_sync_in_idle_ns; }},
    {"num_gaps", [](const StepBudget& b) { return b.num_gaps; }},
    {"num_unresolved_gaps", [](const StepBudget& b) { return b.num_unresolved_gaps; }},
    {"num_launches", [](const StepBudget& b) { return b.num_launches; }},
    {"flops", [](const StepBudget& b) { return b.flops; }},
    {"comm_volume_ns", [](const StepBudget& b) { return b.communication.volume_ns; }},
    {"comm_busy_ns", [](const StepBudget& b) { return b.communication.busy_ns; }},
    {"comm_exposed_ns", [](const StepBudget& b) { return b.communication.exposed_ns; }},
    {"comm_bytes",
     [](const StepBudget& b) {
       // What a dispatcher kernel or a copy moves stays on the device: it is not sent.
       int64_t bytes = 0;
       for (const GroupBudget& group : b.groups) bytes += is_network(group.group) ? group.bytes : 0;
       return bytes;
     }},
    {"comm_count", [](const StepBudget& b) { return b.communication.count; }},
});

}  // namespace

std::span<const BudgetTerm> budget_terms() { return kBudgetTerms; }

int64_t budget_term(const StepBudget& budget, std::string_view name) {
  const auto* found = std::ranges::find(kBudgetTerms, name, &BudgetTerm::name);
  MOETUNE_CHECK(found != kBudgetTerms.end(), "no term of a step budget is called '{}'", name);
  return found->value(budget);
}

bool is_network(std::string_view group) {
  return group != kDispatcherGroup && group != kMemcpyGroup;
}

}  // namespace moetune::profiler
