// Matching of collectives over ranks: transfer against jitter, and who was late.
#include "profiler/analysis/overlap.h"

#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "tests/profiler/synthetic_trace.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(overlap)

namespace {

/// One rank with one all-to-all that it was ready for at `ready_ns` and that ended at 100 for all.
StepTrace rank_ready_at(int32_t rank, int64_t ready_ns, int64_t sequence = 0) {
  TraceBuilder t(0, 120, rank);
  t.kernel("gemm", 0, 0, 0, ready_ns);
  TraceRecord& record = t.collective("ep", 1, 0, ready_ns, 100, 20, 0);
  record.sequence = sequence;
  record.bytes = 1000;
  t.kernel("expert", 0, 0, 100, 120, 1);
  return t.trace();
}

std::vector<GroupOverlap> overlaps_of(const std::vector<StepTrace>& traces,
                                      const GroupInstances& instances) {
  std::vector<StepBudget> budgets;
  for (const StepTrace& trace : traces) budgets.push_back(compute_budget(trace, {}));
  return group_overlaps(traces, budgets, instances);
}

BOOST_AUTO_TEST_CASE(proxy_is_the_shortest_participant) {
  const auto groups =
      overlaps_of({rank_ready_at(0, 30), rank_ready_at(1, 80), rank_ready_at(2, 50)}, {});
  BOOST_REQUIRE(groups.size() == 1U);
  const GroupOverlap& ep = groups[0];
  BOOST_TEST(ep.group == "ep");
  BOOST_TEST(ep.count == 3);
  BOOST_TEST(ep.bytes == 3000);
  BOOST_TEST(ep.num_matched == 1);
  BOOST_TEST(ep.num_unmatched == 0);
  BOOST_TEST(ep.transfer_proxy_ns == 20);
  BOOST_TEST(ep.jitter_ns == 50 + 0 + 30);
  BOOST_TEST(ep.late_rank == 1);
  BOOST_TEST(ep.late_rank_ratio == 1.0);
  BOOST_TEST(ep.blocking_transfer_ns == 60);
  BOOST_TEST(ep.blocking_wait_ns == 80);
  BOOST_TEST(ep.overlap_ratio == 0.0);
}

BOOST_AUTO_TEST_CASE(instances_of_a_group_are_not_mixed) {
  const std::vector<StepTrace> traces = {rank_ready_at(0, 30), rank_ready_at(1, 80),
                                         rank_ready_at(2, 50), rank_ready_at(3, 60)};
  const GroupInstances instances = {{{0, "ep"}, 0}, {{1, "ep"}, 0}, {{2, "ep"}, 2}, {{3, "ep"}, 2}};
  const auto collectives = match_collectives(traces, instances);
  BOOST_REQUIRE(collectives.size() == 2U);
  BOOST_TEST(collectives[0].instance_key == 0);
  BOOST_TEST(collectives[0].transfer_proxy_ns == 20);
  BOOST_TEST(collectives[0].late_rank == 1);
  BOOST_TEST(collectives[1].instance_key == 2);
  BOOST_TEST(collectives[1].transfer_proxy_ns == 40);
  BOOST_TEST(collectives[1].jitter_ns == 10);
  BOOST_TEST(collectives[1].bytes == 2000);
}

BOOST_AUTO_TEST_CASE(different_sequences_do_not_match) {
  const auto groups = overlaps_of({rank_ready_at(0, 30, 0), rank_ready_at(1, 80, 1)}, {});
  BOOST_TEST(groups[0].num_matched == 0);
  BOOST_TEST(groups[0].num_unmatched == 2);
  BOOST_TEST(groups[0].jitter_ns == 0);
  BOOST_TEST(groups[0].late_rank == -1);
}

BOOST_AUTO_TEST_CASE(transfers_between_two_ranks_are_left_out) {
  TraceBuilder t(0, 10);
  TraceRecord& send = t.collective("pp", 0, 0, 0, 10, 10);
  send.kind = RecordKind::p2p;
  send.sequence = 0;
  t.collective("dp", 1, 0, 0, 10, 10);  // no sequence
  BOOST_TEST(match_collectives({t.trace()}, {}).empty());
}

BOOST_AUTO_TEST_CASE(traces_and_budgets_must_belong_together) {
  BOOST_CHECK_THROW(group_overlaps({rank_ready_at(0, 30)}, {}, {}), base::Error);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
