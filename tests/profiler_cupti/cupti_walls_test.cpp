// Whole steps from CUPTI records through the same analysis as the CPU's: each of the four walls,
// with the budget to the nanosecond.
#include <boost/test/unit_test.hpp>

#include "profiler/across_ranks.h"
#include "profiler/analysis/budget.h"
#include "profiler/analysis/critical_path.h"
#include "profiler/analysis/step_account.h"
#include "tests/profiler_cupti/canned_buffer.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(cupti_walls)

namespace {

using testing::CannedStep;

const ClassificationRules kRules = {{"permute"}, {"pp"}};

StepBudget checked_budget(StepTrace trace) {
  resolve_transfers({&trace}, {});
  const StepBudget budget = compute_budget(trace, kRules);
  BOOST_TEST(budget.residual_ns == 0);
  BOOST_TEST(budget.compute_busy_ns + budget.launch_starved_ns + budget.blocking_ns() +
                 budget.dependency_stalled_ns ==
             budget.step_ns);
  const CriticalPath path = critical_path(trace, kRules);
  int64_t path_ns = 0;
  for (const PathSegment& segment : path.segments) path_ns += segment.end_ns - segment.start_ns;
  BOOST_TEST(path_ns == budget.step_ns);
  return budget;
}

BOOST_AUTO_TEST_CASE(compute) {
  CannedStep step;
  const OpId gemm = step.kernel_op("gemm.forward");
  for (uint32_t i = 0; i < 10; ++i) {
    step.buffer.call(10 + i, 1000 + i, 1001 + i, gemm);
    step.buffer.kernel(10 + i, 7, 1000 + 100 * i, 1100 + 100 * i);
  }
  const StepBudget budget = checked_budget(step.trace());
  BOOST_TEST(budget.compute_busy_ns == 1000);
  BOOST_TEST(budget.num_launches == 10);
}

BOOST_AUTO_TEST_CASE(memory) {
  CannedStep step;
  DeviceOp op;
  op.tag.name = "core_attn.recompute";
  op.tag.is_recompute = true;
  const OpId again = step.op(op);
  const OpId gemm = step.kernel_op("gemm.forward");
  step.buffer.call(10, 1000, 1000, gemm);
  step.buffer.kernel(10, 7, 1000, 1700);
  step.buffer.call(11, 1001, 1002, again);
  step.buffer.kernel(11, 7, 1700, 2000);
  const StepBudget budget = checked_budget(step.trace());
  BOOST_TEST(budget.recompute_busy_ns == 300);
}

BOOST_AUTO_TEST_CASE(host) {
  // Ten kernels of 40 ns, each launched when the one before is long done.
  CannedStep step;
  const OpId tiny = step.kernel_op("norm.forward");
  for (uint32_t i = 0; i < 10; ++i) {
    step.buffer.call(10 + i, 1040 + 100 * i, 1060 + 100 * i, tiny);
    step.buffer.kernel(10 + i, 7, 1060 + 100 * i, 1100 + 100 * i);
  }
  const StepBudget budget = checked_budget(step.trace());
  BOOST_TEST(budget.compute_busy_ns == 400);
  BOOST_TEST(budget.launch_starved_ns == 600);
}

BOOST_AUTO_TEST_CASE(communication) {
  // gemm, then an all-to-all on a stream of its own that waits for it, then the experts that wait
  // for the all-to-all. Of the 500 ns 400 are transfer, as the second all-to-all shows.
  CannedStep step;
  const OpId gemm = step.kernel_op("router_gemm.forward", 0);
  const OpId dispatch = step.comm_op("dispatch.forward", "ep", 1, 0);
  const OpId experts = step.kernel_op("expert_fc1.forward", 0);
  const OpId hidden = step.comm_op("dispatch.forward", "ep", 1, 1);
  step.buffer.call(10, 1000, 1000, gemm);
  step.buffer.kernel(10, 7, 1000, 1100);
  step.buffer.event(11, 7, 501);
  step.buffer.wait(12, 20, 501);
  step.buffer.call(13, 1005, 1006, dispatch);
  step.buffer.kernel(13, 20, 1100, 1600, "ncclDevKernel_SendRecv");
  step.buffer.event(14, 20, 502);
  step.buffer.wait(15, 7, 502);
  step.buffer.call(16, 1007, 1008, experts);
  step.buffer.kernel(16, 7, 1600, 2000);
  step.buffer.call(17, 1009, 1010, hidden);
  step.buffer.kernel(17, 20, 1600, 2000, "ncclDevKernel_SendRecv");
  const StepBudget budget = checked_budget(step.trace());
  BOOST_TEST(budget.blocking_transfer_ns == 400);
  BOOST_TEST(budget.blocking_wait_ns == 100);
  BOOST_TEST(budget.launch_starved_ns == 0);
  BOOST_TEST(budget.dependency_stalled_ns == 0);
  BOOST_TEST(budget.communication.exposed_ns == 500);
  BOOST_TEST(budget.communication.volume_ns == 900);
  BOOST_TEST(account_of({budget}).dominant_group == "ep");
}

BOOST_AUTO_TEST_CASE(without_events_the_wait_is_unresolved_and_not_blamed) {
  CannedStep step;
  const OpId gemm = step.kernel_op("gemm.forward", 0);
  const OpId dispatch = step.comm_op("dispatch.forward", "ep", 1, 0);
  step.buffer.call(10, 1000, 1000, gemm);
  step.buffer.kernel(10, 7, 1000, 1100);
  step.buffer.call(13, 1005, 1006, dispatch);
  step.buffer.kernel(13, 20, 1100, 1600, "ncclDevKernel_SendRecv");
  step.buffer.wait(15, 7, 502);
  step.buffer.call(16, 1007, 1008, gemm);
  step.buffer.kernel(16, 7, 1600, 2000);
  const StepBudget budget = checked_budget(step.trace());
  BOOST_TEST(budget.blocking_ns() == 0);
  BOOST_TEST(budget.dependency_stalled_ns == 500);
  BOOST_TEST(budget.num_unresolved_gaps == 1);
}

BOOST_AUTO_TEST_CASE(host_that_waits_for_the_device_is_not_the_reason) {
  // The host reads token counts: until the copy is there, the copy is to blame, then the host.
  CannedStep step;
  const OpId gemm = step.kernel_op("gemm.forward", 0);
  step.buffer.call(10, 1000, 1000, gemm);
  step.buffer.kernel(10, 7, 1000, 1100);
  step.buffer.call(11, 1005, 1320, gemm);
  step.buffer.copy(11, 7, 1100, 1300, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, 64, false);
  step.buffer.call(12, 1330, 1340, gemm);
  step.buffer.kernel(12, 7, 1340, 2000);
  const StepBudget budget = checked_budget(step.trace());
  BOOST_TEST(budget.blocking_transfer_ns == 200);
  BOOST_TEST(budget.launch_starved_ns == 40);
  BOOST_TEST(budget.host_sync_ns == 315);
}

BOOST_AUTO_TEST_CASE(graph_replay_is_one_launch) {
  CannedStep step;
  const OpId replay = step.kernel_op("graph.forward");
  for (uint32_t i = 0; i < 2; ++i) {
    step.buffer.call(10 + i, 1000 + 500 * i, 1010 + 500 * i, replay);
    for (uint64_t node = 0; node < 5; ++node) {
      const uint64_t start = 1010 + 500 * i + 90 * node;
      step.buffer.kernel(10 + i, 7, start, start + 90, "_Z4gemmPf", node + 1);
    }
  }
  const StepBudget budget = checked_budget(step.trace());
  BOOST_TEST(budget.num_launches == 2);
  BOOST_TEST(budget.compute_busy_ns == 900);
  // Before each replay, up to the return of its launch; and the end of the step.
  BOOST_TEST(budget.launch_starved_ns == 60);
  BOOST_TEST(budget.dependency_stalled_ns == 0);
}

BOOST_AUTO_TEST_CASE(random_steps_add_up) {
  std::mt19937_64 random(11);
  const auto up_to = [&random](uint64_t n) {
    return std::uniform_int_distribution<uint64_t>(0, n)(random);
  };
  for (int round = 0; round < 200; ++round) {
    CannedStep step;
    const std::vector<OpId> ops = {step.kernel_op("gemm"),
                                   step.kernel_op("permute"),
                                   step.comm_op("dispatch", "ep", 1, 0),
                                   step.comm_op("send", "pp", 2, -1),
                                   kNoOp,
                                   OpId{999}};
    const auto num_calls = static_cast<uint32_t>(up_to(40));
    for (uint32_t i = 0; i < num_calls; ++i) {
      const auto stream = static_cast<uint32_t>(7 + up_to(2));
      const uint64_t start = 900 + up_to(1200);
      const uint64_t end = start + up_to(80);
      switch (up_to(7)) {
        case 0:
          step.buffer.event(i, stream, up_to(5));
          break;
        case 1:
          step.buffer.wait(i, stream, up_to(5));
          break;
        case 2:
          step.buffer.sync(static_cast<CUpti_ActivitySynchronizationType>(up_to(4)), i, stream,
                           start, end, up_to(5));
          break;
        case 3:
          step.buffer.copy(i, stream, start, end, static_cast<CUpti_ActivityMemcpyKind>(up_to(10)),
                           64, up_to(1) == 0);
          break;
        default:
          step.buffer.kernel(i, stream, start, end, "_Z1kv", up_to(3) == 0 ? up_to(4) : 0);
      }
      if (up_to(3) > 0) step.buffer.call(i, 900 + up_to(1200), 2101, ops[up_to(5)]);
      if (up_to(9) == 0) step.buffer.kernel(i, stream, start, end);
    }
    step.buffer.shuffle(random);
    const StepTrace trace = step.trace();
    for (const TraceRecord& record : trace.records) {
      BOOST_TEST(record.producer_id < record.id);
      BOOST_TEST(record.launch_start_ns <= record.launch_end_ns);
      BOOST_TEST(record.launch_end_ns <= record.start_ns);
    }
    checked_budget(trace);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
