// The account of imported traces in the parts of our own steps: each moment once, by the cause that
// the verdict has for it, and communication by the groups that have a name.
#include "profiler/analysis/imported_account.h"

#include <boost/test/unit_test.hpp>
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

void check_sum(const StepBudget& budget) {
  BOOST_TEST(budget.compute_busy_ns + budget.launch_starved_ns + budget.blocking_transfer_ns +
                 budget.blocking_wait_ns + budget.dependency_stalled_ns ==
             budget.step_ns);
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_moment_is_booked_as_the_verdict_has_it) {
  std::vector<ImportedTrace> traces;
  traces.push_back(step_with_collective(30, kTensorGroup));
  const std::vector<StepBudget> budgets = imported_budgets(traces, {}, 1);
  BOOST_TEST_REQUIRE(budgets.size() == 1U);
  const StepBudget& budget = budgets[0];
  check_sum(budget);
  BOOST_TEST(budget.step_ns == 100'000);
  // 20 and 40 us of products, and 5 us in which the device starts.
  BOOST_TEST(budget.compute_busy_ns == 65'000);
  BOOST_TEST(budget.launch_starved_ns == 5'000);
  BOOST_TEST(budget.blocking_transfer_ns == 30'000);
  BOOST_TEST(budget.device_idle_ns == 10'000);
  BOOST_TEST(budget.communication.volume_ns == 30'000);
  BOOST_TEST(budget.communication.exposed_ns == 30'000);
  BOOST_TEST_REQUIRE(budget.groups.size() == 1U);
  BOOST_TEST(budget.groups[0].group == "tp");
  BOOST_TEST(budget.groups[0].volume_ns == 30'000);
  BOOST_TEST(budget.groups[0].exposed_ns == 30'000);
  BOOST_TEST(budget.groups[0].blocking_transfer_ns == 30'000);
  // Of a window of two steps the mean.
  const StepBudget half = imported_budgets(traces, {}, 2).at(0);
  BOOST_TEST(half.step_ns == 50'000);
  BOOST_TEST(half.blocking_transfer_ns == 15'000);
}

BOOST_AUTO_TEST_CASE(a_group_without_a_name_is_in_the_totals_alone) {
  std::vector<ImportedTrace> traces;
  traces.push_back(step_with_collective(30, ""));
  const StepBudget budget = imported_budgets(traces, {}, 1).at(0);
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
  const StepBudget budget = imported_budgets(traces, {}, 1).at(0);
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
  const std::vector<StepBudget> budgets = imported_budgets(traces, matching, 1);
  BOOST_TEST_REQUIRE(budgets.size() == 2U);
  for (const StepBudget& budget : budgets) {
    check_sum(budget);
    BOOST_TEST(budget.blocking_transfer_ns == 10'000);
  }
  BOOST_TEST(budgets[0].blocking_wait_ns == 20'000);
  BOOST_TEST(budgets[1].blocking_wait_ns == 0);
  BOOST_TEST(budgets[0].groups.at(0).blocking_wait_ns == 20'000);
  BOOST_TEST(budgets[1].rank == 1);
  // 40 and 40 us of products, and 5 us in which the device starts.
  BOOST_TEST(budgets[1].compute_busy_ns == 85'000);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
