// The rules of virtual time: what a launch costs, what a stream waits for, what a graph saves.
#include "profiler/timeline.h"

#include <boost/test/unit_test.hpp>

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(timeline)

namespace {

constexpr HostCosts kCosts = {10, 15, 3};

Timeline started(int num_streams = 2, TraceLevel level = TraceLevel::all) {
  Timeline clock(ClockMode::virtual_modelled, 4, num_streams, kCosts);
  clock.begin_step(7, level);
  return clock;
}

Event run(Timeline& clock, int stream, int64_t duration_ns, const char* name = "op") {
  return clock.finish(stream, RecordKind::kernel, {name}, clock.launch(stream), duration_ns);
}

BOOST_AUTO_TEST_CASE(an_op_starts_when_launched_and_its_stream_is_free) {
  Timeline clock = started();
  run(clock, 0, 100);
  run(clock, 0, 5);
  run(clock, 1, 5);
  const StepTrace trace = clock.end_step(clock.latest_ns());
  BOOST_REQUIRE(trace.records.size() == 3U);
  BOOST_TEST(trace.records[0].start_ns == 10);
  BOOST_TEST(trace.records[1].start_ns == 110);  // launched at 20, stream busy until 110
  BOOST_TEST(trace.records[1].launch_start_ns == 10);
  BOOST_TEST(trace.records[1].launch_end_ns == 20);
  BOOST_TEST(trace.records[2].start_ns == 30);  // another stream
  BOOST_TEST(trace.rank == 4);
  BOOST_TEST(trace.records[2].rank == 4);
  BOOST_TEST(trace.records[2].step == 7);
  BOOST_TEST(trace.records[2].id == 2);
  BOOST_TEST(trace.end_ns == 115);
}

BOOST_AUTO_TEST_CASE(a_launch_waits_for_room_in_the_queue) {
  Timeline clock(ClockMode::virtual_modelled, 0, 1, {10, 15, 3, 2});
  clock.begin_step(0, TraceLevel::all);
  for (int i = 0; i < 4; ++i) run(clock, 0, 100);
  const StepTrace trace = clock.end_step(clock.latest_ns());
  // They begin at 10, 110, 210 and 310. The third is launched when the first has begun, the fourth
  // when the second begins.
  BOOST_TEST(trace.records[2].launch_end_ns == 30);
  BOOST_TEST(trace.records[3].launch_start_ns == 30);
  BOOST_TEST(trace.records[3].launch_end_ns == 110);
  BOOST_TEST(trace.records[3].start_ns == 310);
}

BOOST_AUTO_TEST_CASE(events_order_streams_and_name_the_producer) {
  Timeline clock = started(3);
  const Event late = run(clock, 0, 100);  // ends at 110
  const Event early = run(clock, 1, 20);  // ends at 40
  clock.wait_event(2, late);
  clock.wait_event(2, early);
  run(clock, 2, 1);
  run(clock, 2, 1);
  const StepTrace trace = clock.end_step(clock.latest_ns());
  BOOST_TEST(trace.records[2].start_ns == 110);
  BOOST_TEST(trace.records[2].producer_id == late.record_id);
  BOOST_TEST(trace.records[3].producer_id == kNoRecord);  // a wait is for one op
}

BOOST_AUTO_TEST_CASE(records_name_all_that_they_waited_for) {
  Timeline clock = started(4);
  const Event late = run(clock, 0, 100);
  const Event early = run(clock, 1, 20);
  clock.wait_event(2, early);
  clock.wait_event(2, late);
  clock.wait_event(2, early);
  run(clock, 2, 1);  // 2: waits for 0 and 1
  run(clock, 2, 1);
  clock.wait_event(1, late);
  // A point behind records 1 and 0.
  clock.wait_event(3, clock.record_event(1));
  run(clock, 3, 1);  // 4
  clock.wait_event(1, early);
  clock.synchronize(clock.record_event(1), {"sync"});  // 5
  const StepTrace trace = clock.end_step(clock.latest_ns());
  BOOST_TEST(trace.records[2].producer_id == 0);
  BOOST_TEST(trace.records[4].producer_id == 0);
  BOOST_TEST(trace.records[5].producer_id == 0);
  BOOST_TEST((trace.further_waits == std::vector<FurtherWait>{{2, 1}, {4, 1}, {5, 1}}));
  BOOST_TEST(further_waits_of(trace, 4).size() == 1U);
  BOOST_TEST(further_waits_of(trace, 3).empty());
}

BOOST_AUTO_TEST_CASE(what_is_left_out_leaves_no_waits) {
  Timeline clock = started(3);
  clock.filter_records([](const TraceRecord& record) { return record.id != 2; });
  const Event first = run(clock, 0, 100);
  const Event second = run(clock, 1, 20);
  for (const int stream : {2, 2}) {
    clock.wait_event(stream, first);
    clock.wait_event(stream, second);
    run(clock, stream, 1);
  }
  const StepTrace trace = clock.end_step(clock.latest_ns());
  BOOST_TEST(trace.records.size() == 3U);
  BOOST_TEST((trace.further_waits == std::vector<FurtherWait>{{3, 1}}));
}

BOOST_AUTO_TEST_CASE(records_say_where_they_ran) {
  Timeline clock(ClockMode::virtual_modelled, 4, 2, kCosts, 3);
  clock.begin_step(0, TraceLevel::all);
  run(clock, 0, 100);
  clock.finish_communication(1, RecordKind::p2p, {"send"}, "pp", 0, clock.launch(1), 50, 10,
                             {1, 6});
  clock.synchronize(clock.record_event(0), {"sync"});
  const StepTrace trace = clock.end_step(clock.latest_ns());
  for (const TraceRecord& record : trace.records) BOOST_TEST(record.thread == 0);
  BOOST_TEST(trace.records[0].device == 3);
  BOOST_TEST(trace.records[0].communicator == -1);
  BOOST_TEST(trace.records[0].peer == -1);
  BOOST_TEST(trace.records[1].device == 3);
  BOOST_TEST(trace.records[1].communicator == 1);
  BOOST_TEST(trace.records[1].peer == 6);
  BOOST_TEST(trace.records[2].device == -1);
}

BOOST_AUTO_TEST_CASE(an_event_before_any_work_is_no_wait) {
  Timeline clock = started();
  clock.wait_event(0, clock.record_event(1));
  run(clock, 0, 1);
  BOOST_TEST(clock.end_step(clock.latest_ns()).records[0].producer_id == kNoRecord);
}

BOOST_AUTO_TEST_CASE(communication_ends_when_told) {
  Timeline clock = started();
  const int64_t ready = clock.launch(1);
  clock.finish_communication(1, RecordKind::collective, {"dispatch"}, "ep", 9, ready, 200, 50);
  const TraceRecord record = clock.end_step(clock.latest_ns()).records.at(0);
  BOOST_TEST((record.kind == RecordKind::collective));
  BOOST_TEST(record.group == "ep");
  BOOST_TEST(record.sequence == 9);
  BOOST_TEST(record.start_ns == 10);
  BOOST_TEST(record.end_ns == 200);
  BOOST_TEST(record.transfer_ns == 50);
}

// A point on a stream comes after all that the stream has been told to wait for, also when nothing
// was launched in between.
BOOST_AUTO_TEST_CASE(a_recorded_point_keeps_what_its_stream_waits_for) {
  Timeline clock = started(3);
  clock.finish(1, RecordKind::kernel, {"slow"}, clock.launch(1), 1000);
  clock.wait_event(0, clock.record_event(1));
  clock.wait_event(2, clock.record_event(0));
  const Event end = clock.record_event(1);
  BOOST_TEST(clock.launch(2) == end.time_ns);
  clock.finish(2, RecordKind::kernel, {"late"}, end.time_ns, 10);
  const StepTrace trace = clock.end_step(clock.latest_ns());
  BOOST_TEST(trace.records.back().producer_id == trace.records.front().id);
}

// A message's data are safe when its memory was free: who waits for that waits no longer.
BOOST_AUTO_TEST_CASE(a_slot_is_there_before_its_message_has_arrived) {
  const auto send = [](Timeline& clock, int64_t slot_ns) {
    const int64_t ready = clock.launch(1);
    clock.finish_communication(1, RecordKind::p2p, {"send"}, "pp", 0, ready,
                               std::max(ready, slot_ns) + 50, 50);
  };
  Timeline clock = started();
  send(clock, 200);
  const Event slot = clock.record_slot(1);
  BOOST_TEST(slot.time_ns == 200);
  BOOST_TEST(clock.record_event(1).time_ns == 250);
  clock.wait_event(0, slot);
  run(clock, 0, 1);
  const StepTrace trace = clock.end_step(clock.latest_ns());
  BOOST_TEST(trace.records.back().start_ns == 200);
  BOOST_TEST(trace.records.back().producer_id == slot.record_id);

  Timeline free = started();
  send(free, 0);
  BOOST_TEST(free.record_slot(1).record_id == kNoRecord);
}

// Communication is launched by itself, and what comes after it needs a launch of its own.
BOOST_AUTO_TEST_CASE(a_graph_is_cut_by_communication) {
  Timeline clock = started(3);
  clock.begin_graph();
  const auto run = [&](int stream, bool is_captured) {
    clock.finish(stream, RecordKind::kernel, {"op"}, clock.launch(stream, is_captured), 10);
  };
  run(0, true);
  run(0, true);
  clock.cut_graph();
  clock.cut_graph();
  run(1, false);
  run(0, true);
  run(0, true);
  clock.end_graph();
  BOOST_TEST(clock.num_launches() == 3);
  const StepTrace trace = clock.end_step(clock.latest_ns());
  std::vector<int32_t> graphs;
  for (const TraceRecord& record : trace.records) graphs.push_back(record.graph_id);
  BOOST_TEST(graphs == (std::vector<int32_t>{1, 1, 0, 2, 2}), boost::test_tools::per_element());
}

// Of what the rank itself does: communication takes what it takes with the others.
BOOST_AUTO_TEST_CASE(durations_are_told_as_they_come) {
  Timeline clock = started(2, TraceLevel::none);
  std::vector<int64_t> durations;
  run(clock, 0, 1);
  clock.record_durations(&durations);
  run(clock, 0, 100);
  clock.finish_host_work({"host"}, clock.begin_host_work(), 7);
  clock.finish_communication(1, RecordKind::collective, {"comm"}, "ep", 0, clock.launch(1), 900, 5);
  run(clock, 1, 30);
  clock.record_durations(nullptr);
  run(clock, 0, 2);
  BOOST_TEST(durations == (std::vector<int64_t>{100, 7, 30}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_graph_is_launched_once) {
  Timeline clock = started();
  clock.begin_graph();
  for (int i = 0; i < 3; ++i) run(clock, 0, 1);
  clock.end_graph();
  run(clock, 0, 1);
  clock.begin_graph();
  run(clock, 0, 1);
  clock.end_graph();
  BOOST_TEST(clock.num_launches() == 3);
  BOOST_TEST(clock.host_ns() == 15 + 10 + 15);
  const StepTrace trace = clock.end_step(clock.latest_ns());
  BOOST_TEST(trace.records[0].graph_id == 1);
  BOOST_TEST(trace.records[2].graph_id == 1);
  BOOST_TEST(trace.records[2].launch_end_ns == 15);
  BOOST_TEST(trace.records[3].graph_id == 0);
  BOOST_TEST(trace.records[4].graph_id == 2);
}

BOOST_AUTO_TEST_CASE(the_host_waits_for_the_device) {
  Timeline clock = started();
  const Event event = run(clock, 0, 100);
  clock.synchronize(event, {"sync"});
  BOOST_TEST(clock.host_ns() == 113);
  run(clock, 0, 1);
  clock.synchronize(event, {"sync"});  // long done: costs only the return
  BOOST_TEST(clock.host_ns() == 126);
  const StepTrace trace = clock.end_step(clock.latest_ns());
  const TraceRecord& sync = trace.records[1];
  BOOST_TEST((sync.kind == RecordKind::host_sync));
  BOOST_TEST(sync.stream == kHostStream);
  BOOST_TEST(sync.start_ns == 10);
  BOOST_TEST(sync.end_ns == 113);
  BOOST_TEST(sync.producer_id == event.record_id);
  BOOST_TEST(trace.records[2].start_ns == 123);
}

BOOST_AUTO_TEST_CASE(a_step_begins_where_the_last_one_ended) {
  Timeline clock = started();
  run(clock, 0, 100);
  BOOST_TEST(clock.end_step(500).end_ns == 500);
  clock.begin_step(8, TraceLevel::all);
  BOOST_TEST(clock.num_launches() == 0);
  run(clock, 0, 1);
  const StepTrace trace = clock.end_step(clock.latest_ns());
  BOOST_TEST(trace.start_ns == 500);
  BOOST_TEST(trace.step == 8);
  BOOST_TEST(trace.records.at(0).id == 0);
  BOOST_TEST(trace.records.at(0).start_ns == 510);
}

BOOST_AUTO_TEST_CASE(tracing_does_not_change_time) {
  Timeline traced = started(), silent = started(2, TraceLevel::none);
  for (Timeline* clock : {&traced, &silent}) {
    const Event event = run(*clock, 0, 40);
    clock->wait_event(1, event);
    run(*clock, 1, 40);
    clock->synchronize(clock->record_event(1), {"sync"});
    run(*clock, 0, 40);
  }
  BOOST_TEST(traced.latest_ns() == silent.latest_ns());
  BOOST_TEST(traced.num_launches() == silent.num_launches());
  BOOST_TEST(silent.end_step(1000).records.empty());
  BOOST_TEST(traced.end_step(1000).records.size() == 4U);
}

BOOST_AUTO_TEST_CASE(wall_time_is_the_machine_s) {
  Timeline clock(ClockMode::wall, 0, 1, kCosts);
  clock.begin_step(0, TraceLevel::all);
  const int64_t before = wall_ns();
  const int64_t start = clock.launch(0);
  clock.finish(0, RecordKind::kernel, {"op"}, start, wall_ns() - start);
  const StepTrace trace = clock.end_step(wall_ns());
  BOOST_TEST(trace.records.at(0).start_ns >= before);
  BOOST_TEST(trace.records.at(0).end_ns <= trace.end_ns);
}

BOOST_AUTO_TEST_CASE(cpu_time_moves_with_work) {
  const int64_t before = thread_cpu_ns();
  volatile double sink = 0;
  while (thread_cpu_ns() == before) sink = sink + 1.0;
  BOOST_TEST(thread_cpu_ns() > before);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
