// What only several ranks' traces tell: the clocks of hosts against each other.
#include "profiler/across_ranks.h"

#include <boost/test/unit_test.hpp>

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(across_ranks)

namespace {

TraceRecord collective(const char* group, int64_t sequence, int64_t start_ns, int64_t end_ns) {
  TraceRecord record;
  record.kind = RecordKind::collective;
  record.group = group;
  record.sequence = sequence;
  record.launch_start_ns = start_ns - 2;
  record.launch_end_ns = start_ns - 1;
  record.start_ns = start_ns;
  record.end_ns = end_ns;
  return record;
}

StepTrace trace_of(int rank, int64_t start_ns, std::vector<TraceRecord> records) {
  StepTrace trace{rank, 0, start_ns, start_ns + 10'000, std::move(records)};
  for (TraceRecord& record : trace.records) record.rank = rank;
  return trace;
}

// Groups of ranks 0 and 1, 2 and 3 for ep; 1 and 2 for dp.
const CommunicatorKeys kCommunicators = {{{0, "ep"}, 0}, {{1, "ep"}, 0}, {{2, "ep"}, 1},
                                         {{3, "ep"}, 1}, {{1, "dp"}, 0}, {{2, "dp"}, 0}};

BOOST_AUTO_TEST_CASE(clocks_are_brought_together_by_the_ends_of_collectives) {
  // Rank 1's clock is 1000 ahead, rank 2's 5000 behind; rank 3 shares the clock of rank 2 and meets
  // nobody else's. One end in three is off.
  StepTrace r0 = trace_of(
      0, 0,
      {collective("ep", 0, 10, 100), collective("ep", 1, 110, 200), collective("ep", 2, 210, 300)});
  StepTrace r1 = trace_of(1, 1000,
                          {collective("ep", 0, 1050, 1100), collective("ep", 1, 1150, 1280),
                           collective("ep", 2, 1250, 1300), collective("dp", 0, 1400, 1500)});
  StepTrace r2 =
      trace_of(2, -5000, {collective("dp", 0, -4700, -4500), collective("ep", 0, -4990, -4900)});
  StepTrace r3 = trace_of(3, -5000, {collective("ep", 0, -4980, -4900)});
  align_clocks({&r0, &r1, &r2, &r3}, {"a", "b", "c", "c"}, kCommunicators);
  BOOST_TEST(r0.start_ns == 0);
  BOOST_TEST(r1.start_ns == 0);
  BOOST_TEST(r1.end_ns == 10'000);
  BOOST_TEST(r1.records[0].start_ns == 50);
  BOOST_TEST(r1.records[0].launch_start_ns == 48);
  BOOST_TEST(r1.records[0].launch_end_ns == 49);
  BOOST_TEST(r2.start_ns == 0);
  BOOST_TEST(r2.records[0].end_ns == 500);
  BOOST_TEST(r3.start_ns == 0);
}

BOOST_AUTO_TEST_CASE(without_a_common_collective_the_starts_of_the_steps_are_taken) {
  StepTrace r0 = trace_of(0, 500, {collective("ep", 0, 510, 600)});
  StepTrace r2 = trace_of(2, 90'000, {collective("ep", 0, 90'010, 90'100)});
  StepTrace r3 = trace_of(3, 70, {});
  align_clocks({&r0, &r2, &r3}, {"a", "b", "c"}, kCommunicators);
  BOOST_TEST(r2.start_ns == 500);
  BOOST_TEST(r2.records[0].end_ns == 600);
  BOOST_TEST(r3.start_ns == 500);
}

BOOST_AUTO_TEST_CASE(one_clock_is_left_as_it_is) {
  // Even where collectives seem to end at different times.
  StepTrace r0 = trace_of(0, 0, {collective("ep", 0, 10, 100)});
  StepTrace r1 = trace_of(1, 7, {collective("ep", 0, 10, 170)});
  align_clocks({&r0, &r1}, {"", ""}, kCommunicators);
  BOOST_TEST(r1.start_ns == 7);
  BOOST_TEST(r1.records[0].end_ns == 170);
  align_clocks({}, {}, kCommunicators);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
