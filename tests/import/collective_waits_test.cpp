// A collective of two ranks is waiting until the later one has come, and transfer from then on.
#include "profiler/analysis/collective_waits.h"

#include <boost/test/unit_test.hpp>
#include <utility>
#include <vector>

#include "tests/import/trace_texts.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(collective_waits)

namespace {

/// One collective up to 100 us, with a kernel before it.
ImportedTrace rank_that_comes_at(double begins_us) {
  tests::EventText events;
  events.call(0, 1, 1).call(2, 1, 2).kernel(4, 2, 1);
  events.kernel(begins_us, 100 - begins_us, 2, "ncclDevKernel_AllReduce_Sum_f32(Args<4096ul>)", 9);
  return events.read();
}

CauseSegment communication(int64_t start_ns, int64_t end_ns) {
  return {start_ns, end_ns, IdleCause::communication, 1};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_segment_is_split_where_the_last_rank_came) {
  std::vector<ImportedTrace> traces;
  traces.push_back(rank_that_comes_at(20));
  traces.push_back(rank_that_comes_at(70));
  CollectiveMatching matching;
  matching.matched.push_back({{{0, 1}, {1, 1}}, 1, 30'000});
  const std::vector<WaitsByOp> waits = waits_of(traces, matching);
  BOOST_TEST_REQUIRE(waits.size() == 2U);
  const SplitComm whole = split_comm(communication(20'000, 100'000), &waits[0]);
  BOOST_TEST(whole.wait_ns == 50'000);
  BOOST_TEST(whole.transfer_ns == 30'000);
  BOOST_TEST(whole.last.trace == 1U);
  BOOST_TEST(whole.last.op == 1U);
  // Segments begin where other work ends, and end where it begins.
  BOOST_TEST(split_comm(communication(30'000, 60'000), &waits[0]).wait_ns == 30'000);
  BOOST_TEST(split_comm(communication(80'000, 90'000), &waits[0]).wait_ns == 0);
  BOOST_TEST(split_comm(communication(80'000, 90'000), &waits[0]).transfer_ns == 10'000);
  BOOST_TEST(split_comm(communication(70'000, 100'000), &waits[1]).wait_ns == 0);
  BOOST_TEST(split_comm(communication(20'000, 100'000), nullptr).transfer_ns == 80'000);
}

// A message may be of two matches, of which the later one is right.
BOOST_AUTO_TEST_CASE(of_several_entries_of_an_operation_the_last_one_counts) {
  const ByOp<int> by_op(std::vector<ByOp<int>::Entry>{{7, 1}, {2, 2}, {7, 3}, {4, 4}});
  BOOST_TEST(*by_op.find(2) == 2);
  BOOST_TEST(*by_op.find(4) == 4);
  BOOST_TEST(*by_op.find(7) == 3);
  for (const uint32_t other : {0U, 3U, 8U}) BOOST_TEST(by_op.find(other) == nullptr);
  BOOST_TEST(ByOp<int>().find(0) == nullptr);
}

BOOST_AUTO_TEST_CASE(segments_end_where_the_next_ones_begin) {
  CauseSegments segments = {{10, 20, IdleCause::compute, kNoRow}, {20, 50, IdleCause::host, 3}};
  segments.extend(60);
  BOOST_TEST_REQUIRE(segments.size() == 2U);
  BOOST_TEST(segments[0].end_ns == 20);
  BOOST_TEST(segments[1].end_ns == 60);
  BOOST_TEST((segments[1].cause == IdleCause::host && segments[1].op == 3U));
  // A segment that ends at the moment is over.
  for (const auto& [moment_ns, place] :
       {std::pair(0, 0U), {19, 0U}, {20, 1U}, {59, 1U}, {60, 2U}}) {
    BOOST_TEST(segments.first_after(moment_ns) == place, moment_ns);
  }
  BOOST_TEST(CauseSegments().first_after(0) == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
