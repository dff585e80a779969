// The step budget on traces with known answers, and its sums on random ones.
#include "profiler/analysis/budget.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <vector>

#include "kernels/base/error.h"
#include "tests/profiler/synthetic_trace.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(budget)

namespace {

const ClassificationRules kRules = {{"permute", "unpermute"}, {"pp"}};

StepBudget budget_of(const TraceBuilder& builder) {
  return compute_budget(builder.trace(), kRules);
}

const GroupBudget& group_named(const StepBudget& budget, const std::string& name) {
  const auto found = std::find_if(budget.groups.begin(), budget.groups.end(),
                                  [&](const GroupBudget& g) { return g.group == name; });
  BOOST_REQUIRE(found != budget.groups.end());
  return *found;
}

/// The parts of compute-absent in the order launch, transfer, wait, stalled.
void check_parts(const StepBudget& b, std::array<int64_t, 4> expected) {
  BOOST_TEST(b.launch_starved_ns == expected[0]);
  BOOST_TEST(b.blocking_transfer_ns == expected[1]);
  BOOST_TEST(b.blocking_wait_ns == expected[2]);
  BOOST_TEST(b.dependency_stalled_ns == expected[3]);
}

void check_sums(const StepBudget& b) {
  BOOST_TEST(b.compute_busy_ns + b.launch_starved_ns + b.blocking_transfer_ns + b.blocking_wait_ns +
                 b.device_shared_ns + b.dependency_stalled_ns ==
             b.step_ns);
  BOOST_TEST(b.residual_ns == 0);
  BOOST_TEST(b.compute_busy_ns <= b.device_busy_ns);
  BOOST_TEST(b.device_busy_ns <= b.step_ns);
  BOOST_TEST(b.device_busy_ns + b.device_idle_ns == b.step_ns);
  BOOST_TEST(b.compute_busy_ns + b.compute_absent_ns == b.step_ns);
  BOOST_TEST(b.occupied_not_computing_ns == b.device_busy_ns - b.compute_busy_ns);
  BOOST_TEST(b.recompute_busy_ns <= b.compute_busy_ns);
  BOOST_TEST(b.recompute_blocking_ns <= b.blocking_ns());
  BOOST_TEST(b.pipeline_bubble_ns <= b.blocking_wait_ns);
  BOOST_TEST(b.host_sync_in_idle_ns <= std::min(b.host_sync_ns, b.device_idle_ns));
  BOOST_TEST(b.communication.exposed_ns <= b.communication.busy_ns);
  BOOST_TEST(b.num_unresolved_gaps <= b.num_gaps);
  BOOST_TEST(b.device_shared_ns == 0);  // of a rank with a device of its own
  int64_t transfer_ns = 0, wait_ns = 0;
  for (const GroupBudget& group : b.groups) {
    BOOST_TEST(group.exposed_ns <= group.busy_ns);
    BOOST_TEST(group.overlap_ratio() >= 0.0);
    BOOST_TEST(group.overlap_ratio() <= 1.0);
    transfer_ns += group.blocking_transfer_ns;
    wait_ns += group.blocking_wait_ns;
  }
  BOOST_TEST(transfer_ns == b.blocking_transfer_ns);
  BOOST_TEST(wait_ns == b.blocking_wait_ns);
}

/// Length of the union of the records of some classes, nanosecond by nanosecond.
int64_t brute_force_ns(const StepTrace& trace, const std::vector<OpClass>& classes) {
  int64_t total = 0;
  for (int64_t t = trace.start_ns; t < trace.end_ns; ++t) {
    total += std::any_of(trace.records.begin(), trace.records.end(), [&](const TraceRecord& r) {
      return r.start_ns <= t && t < r.end_ns &&
             std::find(classes.begin(), classes.end(), classify(r, kRules)) != classes.end();
    });
  }
  return total;
}

BOOST_AUTO_TEST_CASE(empty_trace_is_unexplained) {
  const StepBudget b = budget_of(TraceBuilder(100, 300));
  check_parts(b, {0, 0, 0, 200});
  check_sums(b);
  BOOST_TEST(b.num_unresolved_gaps == 1);
  const StepBudget nothing = budget_of(TraceBuilder(100, 100));
  BOOST_TEST(nothing.step_ns == 0);
  check_sums(nothing);
}

BOOST_AUTO_TEST_CASE(slow_launches_starve_the_device) {
  TraceBuilder t(0, 50);
  t.kernel("gemm", 0, 10, 10, 15);
  t.kernel("gemm", 0, 20, 20, 25);
  t.kernel("gemm", 0, 40, 40, 50);
  const StepBudget b = budget_of(t);
  check_parts(b, {30, 0, 0, 0});
  check_sums(b);
  BOOST_TEST(b.device_idle_ns == 30);
  BOOST_TEST(b.num_launches == 3);
  BOOST_TEST(b.num_gaps == 3);
}

BOOST_AUTO_TEST_CASE(blocking_collective_is_transfer_and_wait) {
  TraceBuilder t(0, 100);
  t.kernel("gemm", 0, 0, 0, 20);
  t.collective("ep", 1, 1, 20, 70, 30, 0);
  t.kernel("expert", 0, 2, 70, 100, 1);
  const StepBudget b = budget_of(t);
  check_parts(b, {0, 30, 20, 0});
  check_sums(b);
  BOOST_TEST(b.occupied_not_computing_ns == 50);
  const GroupBudget& ep = group_named(b, "ep");
  BOOST_TEST(ep.volume_ns == 50);
  BOOST_TEST(ep.exposed_ns == 50);
  BOOST_TEST(ep.dominant_op == "ep_op");
  BOOST_TEST(b.communication.blocking_ns() == 50);
}

BOOST_AUTO_TEST_CASE(exposed_is_not_blocking) {
  // The gradient reduction is exposed from 60 to 90, but the kernel at 90 waited for its own launch
  // only.
  TraceBuilder t(0, 100);
  t.kernel("gemm", 0, 0, 0, 60);
  t.collective("dp", 1, 1, 40, 100, 60);
  t.kernel("adamw", 0, 90, 90, 100);
  const StepBudget b = budget_of(t);
  check_parts(b, {30, 0, 0, 0});
  check_sums(b);
  const GroupBudget& dp = group_named(b, "dp");
  BOOST_TEST(dp.exposed_ns == 30);
  BOOST_TEST(dp.blocking_ns() == 0);
  BOOST_TEST(dp.overlap_ratio() == 0.5);
}

BOOST_AUTO_TEST_CASE(hidden_communication_costs_nothing) {
  TraceBuilder t(0, 100);
  t.kernel("gemm", 0, 0, 0, 100);
  t.collective("ep", 1, 1, 10, 90, 80);
  const StepBudget b = budget_of(t);
  check_parts(b, {0, 0, 0, 0});
  BOOST_TEST(group_named(b, "ep").overlap_ratio() == 1.0);
  BOOST_TEST(b.num_gaps == 0);
}

BOOST_AUTO_TEST_CASE(a_late_launch_costs_nothing_while_its_producer_runs) {
  TraceBuilder t(0, 100);
  t.kernel("gemm", 0, 0, 0, 20);
  t.collective("ep", 1, 1, 20, 80, 60, 0);
  t.kernel("expert", 0, 50, 80, 100, 1);
  check_parts(budget_of(t), {0, 60, 0, 0});
}

BOOST_AUTO_TEST_CASE(a_launch_behind_the_end_of_its_producer_costs_what_is_left) {
  TraceBuilder t(0, 100);
  t.kernel("gemm", 0, 0, 0, 20);
  t.collective("ep", 1, 1, 20, 60, 40, 0);
  t.kernel("expert", 0, 75, 80, 100, 1);
  check_parts(budget_of(t), {15, 40, 0, 5});
}

BOOST_AUTO_TEST_CASE(a_late_launch_of_the_producer_is_the_host_s) {
  TraceBuilder t(0, 100);
  t.kernel("gemm", 0, 0, 0, 20);
  t.collective("ep", 1, 50, 50, 80, 30, 0);
  t.kernel("expert", 0, 60, 80, 100, 1);
  check_parts(budget_of(t), {30, 30, 0, 0});
}

BOOST_AUTO_TEST_CASE(dispatcher_kernels_and_copies_block_too) {
  TraceBuilder t(0, 100);
  t.kernel("gemm.forward", 0, 0, 0, 20);
  t.kernel("permute.forward", 0, 0, 20, 30);
  t.add(RecordKind::memcpy, "offload", 2, 0, 30, 55).producer_id = 1;
  t.kernel("gemm.forward", 0, 0, 55, 100, 2);
  const StepBudget b = budget_of(t);
  check_parts(b, {0, 35, 0, 0});
  check_sums(b);
  BOOST_TEST(group_named(b, kDispatcherGroup).blocking_transfer_ns == 10);
  BOOST_TEST(group_named(b, kMemcpyGroup).blocking_transfer_ns == 25);
  BOOST_TEST(b.communication.blocking_ns() == 10);
  BOOST_TEST(b.communication.count == 1);
  BOOST_TEST(b.device_busy_ns == 100);
}

BOOST_AUTO_TEST_CASE(chain_of_producers_is_followed_to_its_root) {
  // The compute kernel waits for the combine, which waits for the dispatch, which was launched
  // late.
  TraceBuilder t(0, 100);
  t.collective("ep", 1, 10, 10, 40, 30);
  t.collective("cp", 2, 10, 40, 60, 15, 0);
  t.kernel("gemm", 0, 10, 60, 100, 1);
  const StepBudget b = budget_of(t);
  check_parts(b, {10, 45, 5, 0});
  BOOST_TEST(group_named(b, "ep").blocking_transfer_ns == 30);
  BOOST_TEST(group_named(b, "cp").blocking_transfer_ns == 15);
  BOOST_TEST(group_named(b, "cp").blocking_wait_ns == 5);
}

BOOST_AUTO_TEST_CASE(unknown_reason_is_stalled) {
  TraceBuilder t(0, 100);
  t.kernel("gemm", 0, 0, 0, 20);
  t.kernel("gemm", 0, 0, 60, 100);
  const StepBudget b = budget_of(t);
  check_parts(b, {0, 0, 0, 40});
  BOOST_TEST(b.num_unresolved_gaps == 1);
}

// The second kernel ends the later gap, together with the last one, which was launched earlier: the
// first in program order counts.
BOOST_AUTO_TEST_CASE(program_order_is_not_the_order_of_times) {
  TraceBuilder t(0, 70);
  t.kernel("gemm", 0, 0, 0, 10);
  t.kernel("gemm", 0, 60, 60, 70);
  t.kernel("gemm", 1, 20, 20, 30);
  t.kernel("gemm", 2, 55, 60, 65);
  const StepBudget b = budget_of(t);
  check_parts(b, {40, 0, 0, 0});
  BOOST_TEST(b.num_gaps == 2);
}

BOOST_AUTO_TEST_CASE(waiting_in_pipeline_groups_is_bubble) {
  TraceBuilder t(0, 100);
  t.collective("pp", 1, 0, 0, 40, 10).kind = RecordKind::p2p;
  t.kernel("gemm", 0, 0, 40, 100, 0);
  const StepBudget b = budget_of(t);
  check_parts(b, {0, 10, 30, 0});
  BOOST_TEST(b.pipeline_bubble_ns == 30);
  BOOST_TEST(group_named(b, "pp").is_pipeline);
}

BOOST_AUTO_TEST_CASE(tail_after_the_last_kernel_counts) {
  TraceBuilder t(0, 100);
  t.kernel("adamw", 0, 0, 0, 30);
  t.collective("dp", 1, 0, 30, 80, 40, 0);
  t.host_sync(5, 90, 1);
  const StepBudget b = budget_of(t);
  // Parameter gather 30-80, return of the synchronisation 80-90, then other ranks until 100.
  check_parts(b, {10, 40, 20, 0});
  check_sums(b);
  BOOST_TEST(group_named(b, kStepEndGroup).blocking_wait_ns == 10);
  BOOST_TEST(b.communication.blocking_ns() == 50);
  BOOST_TEST(b.host_sync_ns == 85);
  BOOST_TEST(b.host_sync_in_idle_ns == 10);
}

BOOST_AUTO_TEST_CASE(host_waiting_for_communication_is_not_launch_starved) {
  // The host needs the token counts, which the all-to-all brings, before it can launch the experts.
  TraceBuilder t(0, 100);
  t.kernel("router", 0, 0, 0, 10);
  t.collective("ep", 1, 0, 10, 60, 45, 0);
  t.host_sync(5, 62, 1);
  t.kernel("expert", 0, 70, 70, 100);
  const StepBudget b = budget_of(t);
  check_parts(b, {10, 45, 5, 0});
  check_sums(b);
}

BOOST_AUTO_TEST_CASE(recomputation_counts_where_nothing_else_computes) {
  TraceBuilder t(0, 100);
  t.kernel("attention", 0, 0, 0, 50);
  t.kernel("attention", 1, 0, 40, 70).is_recompute = true;
  t.collective("ep", 2, 0, 70, 80, 10, 1).is_recompute = true;
  t.kernel("expert", 0, 0, 80, 100, 2);
  const StepBudget b = budget_of(t);
  BOOST_TEST(b.recompute_busy_ns == 20);
  BOOST_TEST(b.recompute_blocking_ns == 10);
  check_sums(b);
}

BOOST_AUTO_TEST_CASE(a_graph_replay_is_one_launch) {
  TraceBuilder t(0, 100);
  for (int i = 0; i < 4; ++i) t.kernel("op", 0, 10, 10 + 10 * i, 20 + 10 * i).graph_id = 1;
  t.kernel("op", 0, 20, 50, 60).graph_id = 2;
  t.kernel("op", 0, 60, 60, 100);
  const StepBudget b = budget_of(t);
  BOOST_TEST(b.num_launches == 3);
  check_parts(b, {10, 0, 0, 0});
}

BOOST_AUTO_TEST_CASE(zero_length_and_overlapping_kernels) {
  TraceBuilder t(0, 100);
  t.kernel("gemm", 0, 0, 0, 30);
  t.collective("ep", 1, 0, 30, 60, 30, 0);
  t.kernel("empty_expert", 0, 0, 60, 60, 1);
  t.kernel("gemm", 0, 65, 65, 100);
  t.kernel("gemm", 2, 65, 70, 90);
  const StepBudget b = budget_of(t);
  BOOST_TEST(b.compute_busy_ns == 65);
  // The kernel at 65 is behind the empty one, which waits for the collective.
  check_parts(b, {5, 30, 0, 0});
  check_sums(b);
}

BOOST_AUTO_TEST_CASE(records_are_clipped_to_the_step) {
  TraceBuilder t(50, 100);
  t.kernel("gemm", 0, 0, 0, 60);
  t.kernel("gemm", 0, 0, 90, 500);
  const StepBudget b = budget_of(t);
  BOOST_TEST(b.compute_busy_ns == 20);
  check_sums(b);
}

BOOST_AUTO_TEST_CASE(order_of_records_does_not_matter) {
  std::mt19937_64 random(5);
  StepTrace trace = random_timeline_trace(random);
  const StepBudget sorted = compute_budget(trace, kRules);
  std::shuffle(trace.records.begin(), trace.records.end(), random);
  const StepBudget shuffled = compute_budget(trace, kRules);
  BOOST_TEST(sorted.launch_starved_ns == shuffled.launch_starved_ns);
  BOOST_TEST(sorted.blocking_ns() == shuffled.blocking_ns());
}

BOOST_AUTO_TEST_CASE(contradicting_traces_are_errors) {
  TraceBuilder reversed(0, 10);
  reversed.kernel("gemm", 0, 0, 8, 4);
  BOOST_CHECK_THROW(budget_of(reversed), base::Error);
  TraceBuilder twice(0, 10);
  twice.kernel("gemm", 0, 0, 0, 4);
  twice.kernel("gemm", 0, 0, 4, 8).id = 0;
  BOOST_CHECK_THROW(budget_of(twice), base::Error);
  BOOST_CHECK_THROW(budget_of(TraceBuilder(10, 0)), base::Error);
}

BOOST_AUTO_TEST_CASE(virtual_time_leaves_nothing_unexplained) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 3000; ++round) {
    const StepTrace trace = random_timeline_trace(random);
    const StepBudget b = compute_budget(trace, kRules);
    check_sums(b);
    if (!trace.records.empty()) BOOST_TEST(b.dependency_stalled_ns == 0);
  }
}

BOOST_AUTO_TEST_CASE(any_trace_adds_up) {
  std::mt19937_64 random(3);
  using enum OpClass;
  for (int round = 0; round < 3000; ++round) {
    const StepTrace trace = random_garbage_trace(random);
    const StepBudget b = compute_budget(trace, kRules);
    check_sums(b);
    BOOST_TEST(b.compute_busy_ns == brute_force_ns(trace, {compute}));
    BOOST_TEST(b.device_busy_ns ==
               brute_force_ns(trace, {compute, dispatcher, communication, memcpy}));
    BOOST_TEST(b.communication.busy_ns == brute_force_ns(trace, {dispatcher, communication}));
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
