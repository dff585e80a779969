// Steps by hand, replayed with other durations: what waits for what, and for how long.
#include "profiler/analysis/replayed_run.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <random>
#include <span>
#include <vector>

#include "tests/profiler/synthetic_trace.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(replayed_runs)

namespace {

/// Launched in `launch_end_ns`, after whatever was launched before.
TraceRecord& add(StepTrace& trace, int stream, int64_t launch_end_ns, int64_t start_ns,
                 int64_t end_ns) {
  TraceRecord record;
  record.id = static_cast<int64_t>(trace.records.size());
  record.rank = trace.rank;
  record.stream = stream;
  record.name = "gemm";
  record.launch_start_ns = trace.records.empty() ? 0 : trace.records.back().launch_end_ns;
  record.launch_end_ns = launch_end_ns;
  record.start_ns = start_ns;
  record.end_ns = end_ns;
  trace.records.push_back(record);
  trace.end_ns = std::max(trace.end_ns, end_ns);
  return trace.records.back();
}

TraceRecord& add_message(StepTrace& trace, const char* name, int64_t launch_end_ns,
                         int64_t start_ns, int64_t end_ns) {
  TraceRecord& record = add(trace, 1, launch_end_ns, start_ns, end_ns);
  record.kind = RecordKind::p2p;
  record.name = name;
  record.group = "pipeline";
  record.sequence = 0;
  record.transfer_ns = 5000;
  return record;
}

/// With the kernels of one rank in that part of their time.
int64_t step_with(const ReplayedRun& run, uint32_t trace, int64_t divisor) {
  std::vector<ReplayOp> ops = run.ops();
  for (ReplayOp& op : ops) {
    if (op.trace == trace && run.record_of(op).kind == RecordKind::kernel)
      op.duration_ns /= divisor;
  }
  return run.step_ns(ops);
}

}  // namespace

// Four operations may be launched and not have begun. What the host waits for room is no work of
// its own: with kernels of a quarter of the time, the step takes a quarter.
BOOST_AUTO_TEST_CASE(a_launch_that_waits_for_room_in_the_queue_follows_the_device) {
  StepTrace trace;
  for (int64_t i = 0; i < 8; ++i) {
    // The fifth launch finds room; from the sixth on, the operation four before has to begin.
    const int64_t launched_ns = i < 5 ? 1000 * (i + 1) : 1000 + (i - 4) * 100'000;
    add(trace, 0, launched_ns, 1000 + i * 100'000, 1000 + (i + 1) * 100'000);
  }
  const ReplayedRun run(std::span(&trace, 1), {});
  BOOST_TEST(run.step_ns(run.ops()) == 801'000);
  BOOST_TEST(step_with(run, 0, 4) == 201'000);
  for (size_t i = 0; i < 8; ++i) BOOST_TEST(run.ops()[i].launch_ns == (i < 5 ? 1000 : 5000));
  // The same with changes that are made on the way, in room that was used before.
  ReplayRoom room;
  BOOST_TEST(run.step_ns([](size_t, ReplayOp& op) { op.duration_ns /= 4; }, room) == 201'000);
  BOOST_TEST(run.step_ns([](size_t, ReplayOp&) {}, room) == 801'000);
}

// The device has nothing to do until a launch returns: that is the host's time.
BOOST_AUTO_TEST_CASE(a_long_launch_that_the_device_waits_for_is_the_hosts) {
  StepTrace trace;
  for (int64_t i = 0; i < 4; ++i) {
    add(trace, 0, (i + 1) * 100'000, (i + 1) * 100'000, (i + 1) * 100'000 + 50'000);
  }
  const ReplayedRun run(std::span(&trace, 1), {});
  BOOST_TEST(run.step_ns(run.ops()) == 450'000);
  BOOST_TEST(step_with(run, 0, 2) == 425'000);
  for (const ReplayOp& op : run.ops()) BOOST_TEST(op.launch_ns == 100'000);
}

BOOST_AUTO_TEST_CASE(a_message_ends_when_both_ends_are_there) {
  std::vector<StepTrace> traces(2);
  traces[1].rank = 1;
  add(traces[0], 0, 1000, 1000, 100'000);
  add_message(traces[0], "send", 2000, 100'000, 105'000).producer_id = 0;
  add_message(traces[1], "recv", 1000, 1000, 105'000);
  add(traces[1], 0, 2000, 105'000, 205'000).producer_id = 0;
  const ReplayedRun run(traces, {});
  BOOST_TEST(run.step_ns(run.ops()) == 205'000);
  // The sender's kernel of 99,000 ns takes 49,500.
  BOOST_TEST(step_with(run, 0, 2) == 155'500);
  BOOST_TEST(step_with(run, 1, 2) == 155'000);
}

BOOST_AUTO_TEST_CASE(a_message_that_is_kept_is_received_when_it_is_asked_for) {
  std::vector<StepTrace> traces(2);
  traces[1].rank = 1;
  add(traces[0], 0, 1000, 1000, 20'000);
  add_message(traces[0], "send", 2000, 20'000, 25'000).producer_id = 0;
  add(traces[1], 0, 1000, 1000, 101'000);
  add_message(traces[1], "recv", 2000, 101'000, 106'000).producer_id = 0;
  const ReplayedRun run(traces, {});
  BOOST_TEST(run.step_ns(run.ops()) == 106'000);
  // 100,000 ns in 50,000, and 5,000 to receive.
  BOOST_TEST(step_with(run, 1, 2) == 56'000);
  // In 2,000, so that the message is not there yet: it ends where it is sent.
  BOOST_TEST(step_with(run, 1, 50) == 25'000);
}

// Each rank launches its receive before the send that the other one waits for, on another stream.
BOOST_AUTO_TEST_CASE(ranks_may_launch_in_another_order_than_they_wait) {
  std::vector<StepTrace> traces(2);
  traces[1].rank = 1;
  for (StepTrace& trace : traces) {
    const int64_t start_ns = trace.rank == 0 ? 1000 : 2000;
    add_message(trace, "recv", 1000, 1000, trace.rank == 0 ? 57'000 : 56'000).sequence = trace.rank;
    add(trace, 0, start_ns, start_ns, start_ns + 50'000);
    TraceRecord& send =
        add_message(trace, "send", start_ns + 1000, start_ns + 50'000, start_ns + 55'000);
    send.stream = 2;
    send.sequence = 1 - trace.rank;
    send.producer_id = 1;
  }
  const ReplayedRun run(traces, {});
  BOOST_TEST(run.step_ns(run.ops()) == 57'000);
  for (const ReplayOp& op : run.ops()) BOOST_TEST(op.slack_ns == 0);
  // Rank 1's kernel ends at 27,000: the message of rank 0 is the last one then.
  BOOST_TEST(step_with(run, 1, 2) == 56'000);
}

// A kernel up to 50,000. A synchronisation that began while it ran waited for it and returned late;
// from 2 ms on, and where it began later, nothing says what for.
BOOST_AUTO_TEST_CASE(a_synchronisation_waits_for_what_ended_in_it) {
  struct Row {
    int64_t start_ns, end_ns, late_ns, unknown_ns;
  };
  for (const Row& row : {Row{10'000, 350'000, 300'000, 0}, Row{60'000, 350'000, 0, 290'000},
                         Row{10'000, 9'050'000, 2'000'000, 7'000'000}}) {
    StepTrace trace;
    add(trace, 0, 1000, 1000, 50'000);
    TraceRecord& sync = add(trace, kHostStream, row.start_ns, row.start_ns, row.end_ns);
    sync.kind = RecordKind::host_sync;
    sync.launch_start_ns = row.start_ns;
    const ReplayedRun run(std::span(&trace, 1), {});
    BOOST_TEST(run.step_ns(run.ops()) == row.end_ns);
    BOOST_TEST(run.ops()[1].duration_ns == row.late_ns);
    BOOST_TEST(run.ops()[1].slack_ns == row.unknown_ns);
  }
}

// One long wait that is stated, and a short one that is not.
BOOST_AUTO_TEST_CASE(waits_count_by_their_time) {
  StepTrace trace;
  add(trace, 0, 1000, 1000, 100'000);
  add(trace, 1, 2000, 100'000, 120'000).producer_id = 0;
  add(trace, 2, 3000, 3000, 110'000);
  add(trace, 3, 105'000, 110'000, 130'000);
  const ReplayedRun run(std::span(&trace, 1), {});
  BOOST_TEST(run.num_edges() == 2);
  BOOST_TEST(run.num_inferred_edges() == 1);
  BOOST_TEST(run.waited_ns() == 98'000 + 5000);
  BOOST_TEST(run.inferred_wait_ns() == 5000);
}

// Numbers of records need not ascend, and of two alike the first counts. What is launched later is
// waited for by nobody.
BOOST_AUTO_TEST_CASE(a_producer_is_found_by_its_number) {
  StepTrace trace;
  add(trace, 0, 1000, 1000, 100'000).id = 5;
  add(trace, 1, 2000, 2000, 40'000).id = 5;
  TraceRecord& waiting = add(trace, 2, 3000, 100'000, 120'000);
  waiting.id = 2;
  waiting.producer_id = 5;
  TraceRecord& other = add(trace, 3, 130'000, 130'000, 140'000);
  other.id = 9;
  other.producer_id = 11;
  add(trace, 0, 131'000, 131'000, 150'000).id = 11;
  const ReplayedRun run(std::span(&trace, 1), {});
  BOOST_TEST(run.num_edges() == 1);
  BOOST_TEST(run.num_inferred_edges() == 0);
  BOOST_TEST(run.waited_ns() == 97'000);
  BOOST_TEST(run.step_ns(run.ops()) == 150'000);
}

// The latest end hides that the others are waited for, too, until it comes earlier.
BOOST_AUTO_TEST_CASE(all_producers_are_waited_for) {
  StepTrace trace;
  add(trace, 0, 1000, 1000, 100'000);
  add(trace, 1, 2000, 2000, 60'000);
  add(trace, 2, 3000, 3000, 40'000);
  add(trace, 3, 4000, 100'000, 150'000).producer_id = 0;
  const auto without_first = [&] {
    const ReplayedRun run(std::span(&trace, 1), {}, {});
    BOOST_TEST(run.step_ns(run.ops()) == 150'000);
    std::vector<ReplayOp> ops = run.ops();
    ops[0].duration_ns = 0;
    return run.step_ns(ops);
  };
  BOOST_TEST(without_first() == 60'000);  // ends with the second; the last one takes from 4,000 on
  trace.further_waits = {{3, 2}};
  BOOST_TEST(without_first() == 90'000);
  trace.further_waits = {{3, 1}, {3, 2}};
  BOOST_TEST(without_first() == 110'000);
  // Itself, what comes behind it, and nobody are no producers.
  trace.further_waits = {{3, 3}, {3, 4}, {3, 99}, {99, 1}};
  BOOST_TEST(without_first() == 60'000);
  // Of what goes on when it begins, the trace does not say how much was needed.
  trace.records[1].end_ns = 120'000;
  trace.further_waits = {{3, 1}};
  BOOST_TEST(without_first() == 120'000);
}

BOOST_AUTO_TEST_CASE(a_host_waits_for_all_producers) {
  StepTrace trace;
  add(trace, 0, 1000, 1000, 100'000);
  add(trace, 1, 2000, 2000, 60'000);
  TraceRecord& sync = add(trace, kHostStream, 2000, 2000, 101'000);
  sync.kind = RecordKind::host_sync;
  sync.launch_start_ns = 2000;
  sync.producer_id = 0;
  trace.further_waits = {{2, 1}};
  add(trace, 0, 102'000, 102'000, 110'000);
  const ReplayedRun run(std::span(&trace, 1), {}, {});
  BOOST_TEST(run.step_ns(run.ops()) == 110'000);
  std::vector<ReplayOp> ops = run.ops();
  ops[0].duration_ns = 0;
  BOOST_TEST(run.step_ns(ops) == 70'000);
  ops[2].is_waiting = false;
  BOOST_TEST(run.step_ns(ops) == 60'000);
}

// It waited for another rank's work at last, which is no record of its own.
BOOST_AUTO_TEST_CASE(what_the_host_waits_for_beyond_its_producers_is_delay) {
  StepTrace trace;
  add(trace, 0, 1000, 1000, 100'000);
  TraceRecord& sync = add(trace, kHostStream, 1000, 1000, 9'000'000);
  sync.kind = RecordKind::host_sync;
  sync.launch_start_ns = 1000;
  trace.further_waits = {{1, 0}};
  const ReplayedRun run(std::span(&trace, 1), {}, {});
  BOOST_TEST(run.step_ns(run.ops()) == 9'000'000);
  BOOST_TEST(run.ops()[1].duration_ns == 2'000'000);
  BOOST_TEST(run.ops()[1].slack_ns == 6'900'000);
}

// With the waits of all records, whatever they are, the step takes what it took.
BOOST_AUTO_TEST_CASE(random_steps_are_replayed_as_they_were) {
  std::mt19937_64 random(11);
  size_t num_waits = 0;
  for (int i = 0; i < 200; ++i) {
    const StepTrace trace = random_timeline_trace(random);
    num_waits += trace.further_waits.size();
    const ReplayedRun run(std::span(&trace, 1), {}, {});
    BOOST_TEST(run.step_ns(run.ops()) == trace.end_ns - trace.start_ns);
  }
  BOOST_TEST(num_waits > 0U);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
