// The critical path on a known chain, and its tiling of the step on random traces.
#include "profiler/analysis/critical_path.h"

#include <boost/test/unit_test.hpp>
#include <vector>

#include "profiler/analysis/budget.h"
#include "profiler/analysis/replayed_run.h"
#include "tests/profiler/synthetic_trace.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(critical_path_suite)

namespace {

const ClassificationRules kRules = {{"permute"}, {"pp"}};

void check_tiles(const CriticalPath& path, const StepTrace& trace) {
  int64_t cursor = trace.start_ns;
  for (const PathSegment& segment : path.segments) {
    BOOST_TEST(segment.start_ns == cursor);
    BOOST_TEST(segment.end_ns > segment.start_ns);
    cursor = segment.end_ns;
  }
  BOOST_TEST(cursor == trace.end_ns);
  int64_t by_class = 0;
  for (const auto& [path_class, ns] : path.ns_by_class) by_class += ns;
  BOOST_TEST(by_class == trace.end_ns - trace.start_ns);
}

BOOST_AUTO_TEST_CASE(known_chain) {
  TraceBuilder t(0, 120);
  t.kernel("router", 0, 10, 10, 30).launch_start_ns = 0;
  t.kernel("shared_expert", 0, 20, 30, 50);  // off the path
  t.kernel("permute", 1, 20, 30, 35, 0);
  t.collective("ep", 1, 20, 35, 80, 25);
  t.kernel("expert", 0, 20, 80, 110, 3);
  const CriticalPath path = critical_path(t.trace(), kRules);
  check_tiles(path, t.trace());
  using enum PathClass;
  const std::vector<std::pair<std::string, PathClass>> expected = {
      {"launch", host},    {"router", compute}, {"permute", dispatcher}, {"ep_op", wait},
      {"ep_op", transfer}, {"expert", compute}, {"step_end", wait}};
  BOOST_REQUIRE(path.segments.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    BOOST_TEST(path.segments[i].name == expected[i].first);
    BOOST_TEST((path.segments[i].path_class == expected[i].second));
  }
  BOOST_TEST(path.ns_by_class.at(transfer) == 25);
  BOOST_TEST(path.ns_by_class.at(wait) == 30);
  BOOST_TEST(path.segments[3].group == "ep");
}

// What a sender without a slot waits for ends before its message does.
BOOST_AUTO_TEST_CASE(a_message_on_its_way_was_waited_for_until_it_left) {
  TraceBuilder t(0, 120);
  t.kernel("first", 0, 10, 10, 30).launch_start_ns = 0;
  t.collective("pp", 1, 20, 30, 100, 25, 0).kind = RecordKind::p2p;  // ready at 30, left at 75
  t.kernel("second", 0, 20, 75, 120, 1);
  const CriticalPath path = critical_path(t.trace(), kRules);
  check_tiles(path, t.trace());
  using enum PathClass;
  const std::vector<std::pair<std::string, PathClass>> expected = {
      {"launch", host}, {"first", compute}, {"pp_op", wait}, {"second", compute}};
  BOOST_REQUIRE(path.segments.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    BOOST_TEST(path.segments[i].name == expected[i].first);
    BOOST_TEST((path.segments[i].path_class == expected[i].second));
  }
  BOOST_TEST(path.ns_by_class.at(wait) == 45);
  // The same in the budget.
  const StepBudget budget = compute_budget(t.trace(), kRules);
  BOOST_TEST(budget.blocking_wait_ns == 45);
  BOOST_TEST(budget.blocking_transfer_ns == 0);
}

BOOST_AUTO_TEST_CASE(a_synchronisation_leads_to_what_it_waited_for) {
  TraceBuilder t(0, 100);
  t.kernel("preprocess", 0, 0, 0, 40);
  t.host_sync(5, 50, 0);
  TraceRecord& expert = t.kernel("expert", 0, 60, 60, 100);
  expert.launch_start_ns = 50;
  const CriticalPath path = critical_path(t.trace(), kRules);
  check_tiles(path, t.trace());
  std::map<std::string, int64_t> ns_by_name;
  for (const PathSegment& s : path.segments) ns_by_name[s.name] += s.end_ns - s.start_ns;
  const std::map<std::string, int64_t> expected = {
      {"preprocess", 40}, {"sync", 10}, {"launch", 10}, {"expert", 40}};
  BOOST_TEST((ns_by_name == expected));
}

BOOST_AUTO_TEST_CASE(host_bound_step_is_all_launches) {
  Timeline clock(ClockMode::virtual_modelled, 0, 1, {10, 10, 0});
  clock.begin_step(0, TraceLevel::all);
  for (int i = 0; i < 5; ++i) clock.finish(0, RecordKind::kernel, {"tiny"}, clock.launch(0), 1);
  const StepTrace trace = clock.end_step(clock.latest_ns());
  const CriticalPath path = critical_path(trace, kRules);
  BOOST_TEST(path.ns_by_class.at(PathClass::host) == 50);
  BOOST_TEST(path.ns_by_class.at(PathClass::compute) == 1);
}

BOOST_AUTO_TEST_CASE(unexplained_time_is_stalled) {
  TraceBuilder t(0, 50);
  t.kernel("gemm", 0, 0, 0, 10);
  t.kernel("gemm", 0, 0, 30, 50);
  BOOST_TEST(critical_path(t.trace(), kRules).ns_by_class.at(PathClass::stalled) == 20);
}

// Rank 1 comes 600 late into a collective, as its host launched a kernel late.
BOOST_AUTO_TEST_CASE(the_path_goes_on_at_the_rank_that_was_waited_for) {
  std::vector<StepTrace> traces;
  for (int32_t rank = 0; rank < 3; ++rank) {
    TraceBuilder t(0, 1000, rank);
    const int64_t late_ns = rank == 1 ? 600 : 0;
    t.kernel("gemm", 0, late_ns, late_ns, late_ns + 200);
    t.collective("dp", 0, late_ns, late_ns + 200, 900, 100).sequence = 0;
    t.kernel("gemm", 0, late_ns, 900, 1000);
    traces.push_back(t.trace());
  }
  const CriticalPath path = critical_path(ReplayedRun(traces, {}), kRules);
  BOOST_TEST(path.ns_by_class.at(PathClass::host) == 600);
  BOOST_TEST(path.ns_by_class.at(PathClass::transfer) == 100);
  BOOST_TEST(path.ns_by_class.at(PathClass::compute) == 300);
  BOOST_TEST(!path.ns_by_class.contains(PathClass::wait));
  BOOST_TEST(path.ns_by_rank.at(1) == 800);
  BOOST_TEST(path.ns_by_rank.at(0) == 200);
  // One rank alone can only tell that it waited.
  BOOST_TEST(critical_path(traces[0], kRules).ns_by_class.at(PathClass::wait) == 600);
  BOOST_TEST(critical_path(ReplayedRun({}, {}), kRules).segments.empty());
}

BOOST_AUTO_TEST_CASE(the_path_goes_from_a_receive_to_its_send) {
  std::vector<StepTrace> traces;
  TraceBuilder first(0, 500, 0);
  first.kernel("stage", 0, 0, 0, 300);
  TraceRecord& sent = first.add(RecordKind::p2p, "pp_send_forward", 1, 0, 300, 340);
  sent.group = "pp";
  sent.transfer_ns = 40;
  sent.sequence = 0;
  sent.micro_batch = 0;
  sent.producer_id = 0;
  TraceBuilder second(0, 500, 1);
  TraceRecord& received = second.add(RecordKind::p2p, "pp_recv_forward", 1, 0, 0, 340);
  received.group = "pp";
  received.transfer_ns = 40;
  received.sequence = 0;
  received.micro_batch = 0;
  second.kernel("stage", 0, 0, 340, 500, 0);
  traces = {first.trace(), second.trace()};
  const CriticalPath path = critical_path(ReplayedRun(traces, {}), kRules);
  BOOST_TEST(path.ns_by_class.at(PathClass::compute) == 460);
  BOOST_TEST(path.ns_by_class.at(PathClass::transfer) == 40);
  BOOST_TEST(path.ns_by_class.size() == 2U);
}

// Whatever the ranks' traces say of each other, the pieces of the path touch.
BOOST_AUTO_TEST_CASE(random_ranks_are_tiled) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 1000; ++round) {
    std::vector<StepTrace> traces;
    for (int32_t rank = 0; rank < 3; ++rank) {
      traces.push_back(round % 2 == 0 ? random_timeline_trace(random)
                                      : random_garbage_trace(random));
      traces.back().rank = rank;
      for (TraceRecord& record : traces.back().records) record.rank = rank;
    }
    const CriticalPath path = critical_path(ReplayedRun(traces, {}), kRules);
    for (size_t i = 0; i < path.segments.size(); ++i) {
      BOOST_TEST(path.segments[i].start_ns < path.segments[i].end_ns);
      if (i > 0) BOOST_TEST(path.segments[i - 1].end_ns == path.segments[i].start_ns);
    }
  }
}

BOOST_AUTO_TEST_CASE(random_traces_are_tiled) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 2000; ++round) {
    const StepTrace exact = random_timeline_trace(random);
    const CriticalPath path = critical_path(exact, kRules);
    check_tiles(path, exact);
    BOOST_TEST(path.ns_by_class.count(PathClass::stalled) == 0U);
    const auto compute = path.ns_by_class.find(PathClass::compute);
    if (compute != path.ns_by_class.end()) {
      BOOST_TEST(compute->second <= compute_budget(exact, kRules).compute_busy_ns);
    }
    const StepTrace garbage = random_garbage_trace(random);
    check_tiles(critical_path(garbage, kRules), garbage);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
