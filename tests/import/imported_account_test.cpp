// The account of imported traces in the parts of our own steps: each moment once, by the cause that
// the verdict has for it, and communication by the groups that have a name.
#include "profiler/analysis/imported_account.h"

#include <boost/test/unit_test.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/import/trace_texts.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(imported_accounts)

namespace {

/// A step of 100 us: the host launches until 5 us, a product runs from 10 us on, a collective with
/// nothing beside it up to 60 us, and a product up to the end.
ImportedTrace step_with_collective(double begins_us, const std::string& words) {
  tests::EventText events;
  events.range(0, 100, "ProfilerStep#1").call(0, 5, 1).call(6, 2, 2).call(9, 1, 3);
  events.kernel(10, begins_us - 10, 1);
  events.kernel(begins_us, 60 - begins_us, 2, "ncclDevKernel_AllReduce_Sum_f32(Args<4096ul>)", 9,
                words);
  events.kernel(60, 40, 3);
  return events.read();
}

const std::string kTensorGroup =
    R"(, "Collective name": "allreduce", "Process Group Name": "4", "Group size": 2, )"
    R"("Process Group Description": "TENSOR_MODEL_PARALLEL_GROUP")";

std::vector<StepBudget> budgets_of(const std::vector<ImportedTrace>& traces,
                                   const CollectiveMatching& matching = {}) {
  return imported_budgets(traces, matching, counted_steps(traces, matching));
}

/// Steps of 100 us each, with one product of 20 us times the number of the step.
ImportedTrace marked_steps(int first, int last) {
  tests::EventText events;
  for (int step = first; step <= last; ++step) {
    const double start_us = 100.0 * step;
    events.range(start_us, 100, "ProfilerStep#" + std::to_string(step));
    events.call(start_us, 5, step + 1).kernel(start_us + 10, 20 * step, step + 1);
  }
  return events.read();
}

void check_sum(const StepBudget& budget) {
  BOOST_TEST(budget.compute_busy_ns + budget.launch_starved_ns + budget.blocking_transfer_ns +
                 budget.blocking_wait_ns + budget.dependency_stalled_ns ==
             budget.step_ns);
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_moment_is_booked_as_the_verdict_has_it) {
  std::vector<ImportedTrace> traces;
  traces.push_back(step_with_collective(30, kTensorGroup));
  const std::vector<StepBudget> budgets = budgets_of(traces);
  BOOST_TEST_REQUIRE(budgets.size() == 1U);
  const StepBudget& budget = budgets[0];
  check_sum(budget);
  BOOST_TEST(budget.step_ns == 100'000);
  // 20 and 40 us of products. A launch takes 5 us, and 5 to reach the device.
  BOOST_TEST(budget.compute_busy_ns == 60'000);
  BOOST_TEST(budget.launch_starved_ns == 10'000);
  BOOST_TEST(budget.blocking_transfer_ns == 30'000);
  BOOST_TEST(budget.device_idle_ns == 10'000);
  BOOST_TEST(budget.communication.volume_ns == 30'000);
  BOOST_TEST(budget.communication.exposed_ns == 30'000);
  BOOST_TEST_REQUIRE(budget.groups.size() == 1U);
  BOOST_TEST(budget.groups[0].group == "tp");
  BOOST_TEST(budget.groups[0].volume_ns == 30'000);
  BOOST_TEST(budget.groups[0].exposed_ns == 30'000);
  BOOST_TEST(budget.groups[0].blocking_transfer_ns == 30'000);
}

// The first rank was recorded from its first step on, the second for its last two only.
BOOST_AUTO_TEST_CASE(means_are_of_the_steps_that_all_ranks_have) {
  std::vector<ImportedTrace> traces;
  traces.push_back(marked_steps(1, 4));
  traces.push_back(marked_steps(3, 4));
  const std::vector<StepBudget> budgets = budgets_of(traces);
  BOOST_TEST_REQUIRE(budgets.size() == 2U);
  for (const StepBudget& budget : budgets) {
    check_sum(budget);
    BOOST_TEST(budget.step_ns == 100'000);
    BOOST_TEST(budget.device_busy_ns == 70'000);
  }
}

BOOST_AUTO_TEST_CASE(without_a_common_step_each_rank_has_the_mean_of_its_own) {
  std::vector<ImportedTrace> traces;
  traces.push_back(marked_steps(1, 2));
  traces.push_back(marked_steps(4, 4));
  const std::vector<StepBudget> budgets = budgets_of(traces);
  BOOST_TEST_REQUIRE(budgets.size() == 2U);
  BOOST_TEST(budgets[0].step_ns == 100'000);
  BOOST_TEST(budgets[0].device_busy_ns == 30'000);
  BOOST_TEST(budgets[1].step_ns == 100'000);
  BOOST_TEST(budgets[1].device_busy_ns == 80'000);
}

// Three periods of eight kernels, and half of one behind them, which is of no step.
BOOST_AUTO_TEST_CASE(a_rest_behind_recurring_steps_is_not_divided_by_them) {
  tests::EventText events;
  for (int i = 0; i < 28; ++i) {
    events.call(100 * i, 5, i + 1);
    events.kernel(100 * i + 5, 95, i + 1, "kernel " + std::to_string(i % 8));
  }
  std::vector<ImportedTrace> traces;
  traces.push_back(events.read());
  const StepBudget budget = budgets_of(traces).at(0);
  check_sum(budget);
  BOOST_TEST(budget.step_ns == 800'000);
  BOOST_TEST(budget.device_busy_ns == 8 * 95'000);
}

BOOST_AUTO_TEST_CASE(a_group_without_a_name_is_in_the_totals_alone) {
  std::vector<ImportedTrace> traces;
  traces.push_back(step_with_collective(30, ""));
  const StepBudget budget = budgets_of(traces).at(0);
  check_sum(budget);
  BOOST_TEST(budget.groups.empty());
  BOOST_TEST(budget.blocking_transfer_ns == 30'000);
  BOOST_TEST(budget.communication.volume_ns == 30'000);
}

// The first product runs from 10 to 40 us, a copy from the host beside it from 20 us and alone up
// to 60 us, the second product up to the end.
BOOST_AUTO_TEST_CASE(copies_from_the_host_are_a_group) {
  tests::EventText events;
  events.range(0, 100, "ProfilerStep#1").call(0, 5, 1).call(6, 2, 2, "cudaMemcpyAsync");
  events.call(9, 1, 3).kernel(10, 30, 1).kernel(60, 40, 3);
  events.copy(20, 40, 2, "Memcpy HtoD (Pinned -> Device)", 9);
  std::vector<ImportedTrace> traces;
  traces.push_back(events.read());
  const StepBudget budget = budgets_of(traces).at(0);
  check_sum(budget);
  BOOST_TEST(budget.blocking_transfer_ns == 20'000);
  BOOST_TEST(budget.communication.volume_ns == 0);
  BOOST_TEST_REQUIRE(budget.groups.size() == 1U);
  BOOST_TEST(budget.groups[0].group == kMemcpyGroup);
  BOOST_TEST(budget.groups[0].volume_ns == 40'000);
  BOOST_TEST(budget.groups[0].exposed_ns == 20'000);
  BOOST_TEST(budget.groups[0].blocking_transfer_ns == 20'000);
}

BOOST_AUTO_TEST_CASE(waiting_for_a_late_rank_is_no_transfer) {
  std::vector<ImportedTrace> traces;
  traces.push_back(step_with_collective(30, kTensorGroup));
  traces.push_back(step_with_collective(50, kTensorGroup));
  CollectiveMatching matching;
  // By start the collective is the second operation of both. The second rank comes last.
  matching.matched.push_back({{{0, 1}, {1, 1}}, 1, 10'000});
  const std::vector<StepBudget> budgets = budgets_of(traces, matching);
  BOOST_TEST_REQUIRE(budgets.size() == 2U);
  for (const StepBudget& budget : budgets) {
    check_sum(budget);
    BOOST_TEST(budget.blocking_transfer_ns == 10'000);
  }
  BOOST_TEST(budgets[0].blocking_wait_ns == 20'000);
  BOOST_TEST(budgets[1].blocking_wait_ns == 0);
  BOOST_TEST(budgets[0].groups.at(0).blocking_wait_ns == 20'000);
  BOOST_TEST(budgets[1].rank == 1);
  // 40 and 40 us of products.
  BOOST_TEST(budgets[1].compute_busy_ns == 80'000);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
