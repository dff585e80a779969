// Ranks that share one device: what was enqueued and waited while others were at work there is
// explained, in the budget, in the wall's sentence and in the replay. The same traces of ranks with
// a device each leave it unexplained.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "profiler/analysis/budget.h"
#include "profiler/analysis/device_work.h"
#include "profiler/analysis/step_account.h"
#include "profiler/analysis/step_verdict.h"
#include "tests/profiler/synthetic_trace.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(shared_device)

namespace {

constexpr int64_t kUs = 1000;
const ClassificationRules kRules = {{"permute", "unpermute"}, {"pp"}};

/// Two ranks that launch all at once and compute by turns, 100 us each; the step takes 1 ms.
std::vector<StepTrace> by_turns() {
  std::vector<StepTrace> traces;
  for (int32_t rank = 0; rank < 2; ++rank) {
    TraceBuilder t(0, 1000 * kUs, rank);
    for (int64_t turn = rank; turn < 10; turn += 2) {
      t.kernel("gemm", 0, 0, turn * 100 * kUs, (turn + 1) * 100 * kUs);
    }
    traces.push_back(t.trace());
  }
  return traces;
}

std::vector<StepBudget> budgets_of(const std::vector<StepTrace>& traces, bool is_shared) {
  const std::vector<DeviceWork> others = work_of_others(traces);
  std::vector<StepBudget> budgets;
  for (size_t i = 0; i < traces.size(); ++i) {
    budgets.push_back(is_shared ? compute_budget(traces[i], kRules, others[i])
                                : compute_budget(traces[i], kRules));
  }
  return budgets;
}

StepVerdict verdict_of(const std::vector<StepTrace>& traces, bool is_shared) {
  const std::vector<DeviceWork> others =
      is_shared ? work_of_others(traces) : std::vector<DeviceWork>();
  return judge_step(ReplayedRun(traces, {}, {}, others), {});
}

/// Two budgets are one but for the waiting that others on the device explain.
void check_only_explained(const StepBudget& shared, const StepBudget& alone) {
  BOOST_TEST(alone.device_shared_ns == 0);
  BOOST_TEST(shared.device_shared_ns >= 0);
  BOOST_TEST(shared.dependency_stalled_ns >= 0);
  BOOST_TEST(shared.residual_ns == 0);
  BOOST_TEST(shared.device_shared_ns + shared.dependency_stalled_ns == alone.dependency_stalled_ns);
  BOOST_TEST(shared.num_unresolved_gaps <= alone.num_unresolved_gaps);
  BOOST_TEST(shared.step_ns == alone.step_ns);
  BOOST_TEST(shared.compute_busy_ns == alone.compute_busy_ns);
  BOOST_TEST(shared.launch_starved_ns == alone.launch_starved_ns);
  BOOST_TEST(shared.blocking_transfer_ns == alone.blocking_transfer_ns);
  BOOST_TEST(shared.blocking_wait_ns == alone.blocking_wait_ns);
}

}  // namespace

BOOST_AUTO_TEST_CASE(others_are_all_ranks_but_the_own) {
  std::vector<StepTrace> traces;
  for (int32_t rank = 0; rank < 3; ++rank) {
    TraceBuilder t(0, 100, rank);
    t.kernel("gemm", 0, 0, 10 * rank, 10 * rank + 5);
    t.add(RecordKind::memcpy, "upload", 1, 0, 50 + 10 * rank, 55 + 10 * rank);
    // Waiting for the others is no work: the last 4 ns are.
    t.collective("ep", 2, 0, 80, 90 + rank, 4);
    t.host_sync(0, 100, 0);
    traces.push_back(t.trace());
  }
  const std::vector<DeviceWork> others = work_of_others(traces);
  BOOST_TEST_REQUIRE(others.size() == 3);
  using Intervals = std::vector<Interval>;
  BOOST_TEST((others[0].kernels.intervals() == Intervals{{10, 15}, {20, 25}, {87, 92}}));
  BOOST_TEST((others[1].kernels.intervals() == Intervals{{0, 5}, {20, 25}, {86, 92}}));
  BOOST_TEST((others[2].kernels.intervals() == Intervals{{0, 5}, {10, 15}, {86, 91}}));
  BOOST_TEST((others[1].copies.intervals() == Intervals{{50, 55}, {70, 75}}));
  BOOST_TEST(work_of_others({}).empty());
  const std::vector<DeviceWork> alone = work_of_others(std::span(traces).first(1));
  BOOST_TEST_REQUIRE(alone.size() == 1);
  BOOST_TEST(alone[0].kernels.empty());
  BOOST_TEST(alone[0].copies.empty());
}

BOOST_AUTO_TEST_CASE(copies_and_kernels_hold_up_their_own_kind) {
  const DeviceWork work = {IntervalSet({{0, 10}}), IntervalSet({{5, 30}})};
  TraceRecord record;
  for (const RecordKind kind : {RecordKind::kernel, RecordKind::collective, RecordKind::p2p}) {
    record.kind = kind;
    BOOST_TEST(work.held_up_ns(record, {4, 20}) == 6);
  }
  record.kind = RecordKind::memcpy;
  BOOST_TEST(work.held_up_ns(record, {4, 20}) == 15);
  BOOST_TEST(work.held_up_ns(record, {20, 4}) == 0);
  BOOST_TEST(DeviceWork().held_up_ns(record, {4, 20}) == 0);
}

BOOST_AUTO_TEST_CASE(waiting_for_the_device_that_others_use_is_explained) {
  const std::vector<StepTrace> traces = by_turns();
  const std::vector<StepBudget> shared = budgets_of(traces, true);
  const std::vector<StepBudget> alone = budgets_of(traces, false);
  for (size_t i = 0; i < 2; ++i) {
    check_only_explained(shared[i], alone[i]);
    BOOST_TEST(shared[i].compute_busy_ns == 500 * kUs);
    BOOST_TEST(shared[i].device_shared_ns == (i == 0 ? 400 : 500) * kUs);
    BOOST_TEST(shared[i].blocking_wait_ns == (i == 0 ? 100 : 0) * kUs);  // the end of the step
    BOOST_TEST(shared[i].dependency_stalled_ns == 0);
    BOOST_TEST(shared[i].num_unresolved_gaps == 0);
    BOOST_TEST(alone[i].dependency_stalled_ns == (i == 0 ? 400 : 500) * kUs);
  }
}

// What the host, a collective or an idle device explains, the others' work does not.
BOOST_AUTO_TEST_CASE(only_what_was_enqueued_waits_for_the_device) {
  TraceBuilder own(0, 100);
  own.kernel("gemm", 0, 0, 0, 10);
  own.kernel("gemm", 0, 30, 40, 50);  // 20 not launched, then 10 waiting
  own.collective("ep", 1, 1, 50, 70, 20, 1);
  own.kernel("expert", 0, 31, 80, 100, 2);  // 20 of transfer, then 10 of which 4 are shared
  TraceBuilder other(0, 100, 1);
  other.kernel("gemm", 0, 0, 0, 74);
  const std::vector<StepTrace> traces = {own.trace(), other.trace()};
  const StepBudget shared = budgets_of(traces, true)[0];
  check_only_explained(shared, budgets_of(traces, false)[0]);
  BOOST_TEST(shared.launch_starved_ns == 20);
  BOOST_TEST(shared.blocking_transfer_ns == 20);
  BOOST_TEST(shared.device_shared_ns == 10 + 4);
  BOOST_TEST(shared.dependency_stalled_ns == 6);
  BOOST_TEST(shared.num_gaps == 2);
  BOOST_TEST(shared.num_unresolved_gaps == 1);
}

BOOST_AUTO_TEST_CASE(any_traces_add_up) {
  std::mt19937_64 random(9);
  int64_t shared_ns = 0;
  for (int round = 0; round < 1000; ++round) {
    std::vector<StepTrace> traces;
    for (int rank = 0; rank < 3; ++rank) {
      traces.push_back(round % 2 == 0 ? random_garbage_trace(random)
                                      : random_timeline_trace(random));
    }
    const std::vector<StepBudget> shared = budgets_of(traces, true);
    const std::vector<StepBudget> alone = budgets_of(traces, false);
    for (size_t i = 0; i < traces.size(); ++i) {
      check_only_explained(shared[i], alone[i]);
      shared_ns += shared[i].device_shared_ns;
    }
  }
  BOOST_TEST(shared_ns > 0);
}

BOOST_AUTO_TEST_CASE(the_wall_is_compute_and_says_what_waits) {
  const std::string told = "waiting while other virtual ranks use the card";
  const StepVerdict shared = verdict_of(by_turns(), true);
  BOOST_TEST((shared.label == Wall::compute), shared.summary);
  BOOST_TEST(shared.summary.find(told) != std::string::npos, shared.summary);
  const StepAccount account = account_of(budgets_of(by_turns(), true));
  BOOST_TEST(account.ratio_of(base::StepPart::device_shared) == 0.45);
  BOOST_TEST(account.ratio_of(base::StepPart::stalled) == 0.0);
  // Of ranks that have each a device nothing explains it.
  const StepVerdict alone = verdict_of(by_turns(), false);
  BOOST_TEST((alone.label == Wall::unknown), alone.summary);
  BOOST_TEST(account_of(budgets_of(by_turns(), false)).ratio_of(base::StepPart::stalled) == 0.45);
  BOOST_TEST(StepAccount().ratio_of(base::StepPart::device_shared) == 0.0);
}

BOOST_AUTO_TEST_CASE(the_replay_keeps_what_the_device_explains) {
  const std::vector<StepTrace> traces = by_turns();
  const std::vector<DeviceWork> others = work_of_others(traces);
  const ReplayedRun run(traces, {}, {}, others);
  std::vector<ReplayOp> ops = run.ops();
  BOOST_TEST(run.step_ns(ops) == 1000 * kUs);
  int64_t shared_ns = 0;
  for (ReplayOp& op : ops) {
    BOOST_TEST(op.slack_ns == 0);
    shared_ns += std::exchange(op.shared_ns, 0);
  }
  BOOST_TEST(shared_ns == 900 * kUs);
  BOOST_TEST(run.step_ns(ops) == 500 * kUs);
}

BOOST_AUTO_TEST_CASE(the_verdict_is_compute_where_it_was_unknown) {
  const StepVerdict shared = verdict_of(by_turns(), true);
  BOOST_TEST((shared.label == Wall::compute), shared.summary);
  BOOST_TEST(shared.step_ns == 1000 * kUs);
  BOOST_TEST(shared.unknown_ratio() == 0.0);
  BOOST_TEST(std::abs(shared.device_shared_ratio - 0.45) < 1e-9);
  BOOST_TEST(std::abs(shared.ceiling_ratio() - 0.95) < 1e-9);
  BOOST_TEST(shared.summary.starts_with("compute: 50.0 % of the step, "), shared.summary);
  BOOST_TEST(shared.summary.find(", and 45.0 % waiting while other virtual ranks use the card; ") !=
                 std::string::npos,
             shared.summary);
  const StepVerdict alone = verdict_of(by_turns(), false);
  BOOST_TEST((alone.label == Wall::unknown), alone.summary);
  BOOST_TEST(alone.unknown_ratio() == 0.5);
  BOOST_TEST(alone.device_shared_ratio == 0.0);
}

// Two of five kernels repeat the forward pass, on both ranks: without them nobody waits for them.
BOOST_AUTO_TEST_CASE(recomputation_takes_its_waiting_for_the_device_along) {
  std::vector<StepTrace> traces = by_turns();
  for (StepTrace& trace : traces) {
    for (TraceRecord& record : trace.records) record.is_recompute = record.id > 2;
  }
  const std::vector<DeviceWork> others = work_of_others(traces);
  StepFacts facts;
  facts.memory = {900, 1000};
  const StepVerdict verdict = judge_step(ReplayedRun(traces, {}, {}, others), facts);
  BOOST_TEST((verdict.label == Wall::memory), verdict.summary);
  BOOST_TEST(std::abs(verdict.ceiling_ratio() - 0.4) < 1e-9);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
