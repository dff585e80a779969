// Imported traces in the form of our own steps: what waits for what, and what the host did.
#include "profiler/analysis/imported_steps.h"

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <string>

#include "profiler/analysis/imported_wall.h"
#include "profiler/analysis/replayed_run.h"
#include "tests/import/trace_texts.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(imported_steps)

namespace {

using tests::EventText;

std::vector<StepTrace> steps_of(const ImportedTrace& trace) {
  const ImportedSteps steps(std::span(&trace, 1), {});
  std::vector<StepTrace> made;
  for (size_t i = 0; i < steps.num_steps(); ++i) made.push_back(steps.make(i).at(0));
  return made;
}

std::vector<const TraceRecord*> of_kind(const StepTrace& step, RecordKind kind) {
  std::vector<const TraceRecord*> found;
  for (const TraceRecord& record : step.records) {
    if (record.kind == kind) found.push_back(&record);
  }
  return found;
}

/// Three steps of 1 ms: the host launches late, by 50 us more in each.
EventText three_steps() {
  EventText events;
  for (int step = 0; step < 3; ++step) {
    const double start = 1000 * step;
    events.range(start, 1000, "ProfilerStep#" + std::to_string(step + 5));
    for (int i = 0; i < 16; ++i) {
      const double launch = start + 50 * i + (i < 8 ? 0 : 50 * step);
      const int id = 100 * step + i + 1;
      events.call(launch, 5, id).kernel(launch + 8, 20, id);
    }
  }
  return events;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_step_is_what_was_launched_in_it) {
  const ImportedTrace trace = three_steps().read();
  const std::vector<StepTrace> steps = steps_of(trace);
  BOOST_REQUIRE(steps.size() == 3u);
  for (size_t i = 0; i < steps.size(); ++i) {
    BOOST_TEST(of_kind(steps[i], RecordKind::kernel).size() == 16u);
    // From one host's step to the next, since the device was idle at both.
    BOOST_TEST(steps[i].start_ns == static_cast<int64_t>(i) * 1'000'000);
    BOOST_TEST(steps[i].end_ns - steps[i].start_ns == 1'000'000);
    const ReplayedRun run(std::span(&steps[i], 1), {}, {20'000, 5'000});
    BOOST_TEST(run.step_ns(run.ops()) == 1'000'000);
  }
}

// Without the profiler's own steps those that the program marks are taken.
BOOST_AUTO_TEST_CASE(ranges_of_the_program_are_steps_too) {
  const auto events = [](bool has_profiler_steps) {
    EventText made;
    for (int step = 0; step < 3; ++step) {
      const double start = 1000 * step;
      made.range(start, 990, "train_step " + std::to_string(step + 5)).range(start, 500, "forward");
      if (has_profiler_steps) made.range(start, 1000, "ProfilerStep#" + std::to_string(step));
      made.call(start + 10, 5, step + 1).kernel(start + 20, 20, step + 1);
    }
    return made.read();
  };
  const ImportedTrace marked = events(false);
  BOOST_REQUIRE(marked.steps.size() == 3u);
  BOOST_TEST(marked.steps[0].number == 5);
  BOOST_TEST(marked.steps[2].start_ns == 2'000'000);
  BOOST_TEST(marked.steps[2].end_ns == 2'990'000);
  const ImportedTrace both = events(true);
  BOOST_REQUIRE(both.steps.size() == 3u);
  BOOST_TEST(both.steps[0].number == 0);
  BOOST_TEST(both.steps[2].end_ns == 3'000'000);
}

/// Four times ten kernels of ten names, in steps of 1 ms that nobody marks. With `is_odd` one of
/// the third step has another name.
EventText unmarked_steps(bool is_odd) {
  EventText events;
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < 10; ++i) {
      const double launch = 1000 * step + 50 * i;
      const int id = 100 * step + i + 1;
      const std::string name = is_odd && step == 2 && i == 5 ? "odd" : "k" + std::to_string(i);
      events.call(launch, 5, id).kernel(launch + 8, 20, id, name);
    }
  }
  return events;
}

BOOST_AUTO_TEST_CASE(kernels_that_recur_make_steps) {
  const ImportedTrace trace = unmarked_steps(false).read();
  const std::vector<StepTrace> steps = steps_of(trace);
  BOOST_REQUIRE(steps.size() == 4u);
  BOOST_TEST(of_kind(steps[1], RecordKind::kernel).size() == 10u);
  BOOST_TEST(steps[1].start_ns == 1'000'000);
  BOOST_TEST(steps[1].end_ns == 2'000'000);
  const ImportedWall wall = classify_imported(std::span(&trace, 1));
  BOOST_TEST(name_of(wall.label) == "host");
  BOOST_TEST(wall.num_steps == 4);
  const auto is_told = [](const Evidence& one) { return one.name == "recurring_steps"; };
  BOOST_TEST(std::ranges::any_of(wall.evidence, is_told));

  BOOST_TEST(steps_of(unmarked_steps(true).read()).size() == 1u);
  // Ten times the same kernel is no step.
  EventText same;
  for (int i = 0; i < 40; ++i) same.call(50 * i, 5, i + 1).kernel(50 * i + 8, 20, i + 1);
  BOOST_TEST(steps_of(same.read()).size() == 1u);
}

/// Four times ten kernels and an all-reduce behind them, of one of two ranks. The first `num_lost`
/// of the 44 were launched before the recording began.
ImportedTrace unmarked_rank(int rank, int num_lost) {
  EventText events;
  for (int i = num_lost; i < 44; ++i) {
    const double launch = 1000 * (i / 11) + 50 * (i % 11);
    events.call(launch, 5, i + 1);
    if (i % 11 < 10) {
      events.kernel(launch + 8, 20, i + 1, "k" + std::to_string(i % 11));
    } else {
      events.kernel(launch + 8, 20, i + 1, "ncclDevKernel_AllReduce(x)", 20,
                    R"(, "Collective name": "allreduce", "In msg nelems": 100, "dtype": "Float",
                       "Process Group Name": "0", "Group size": 2, "Seq": )" +
                        std::to_string(i / 11));
    }
  }
  return events.read(R"(, "distributedInfo": {"world_size": 2, "rank": )" + std::to_string(rank) +
                     "}");
}

BOOST_AUTO_TEST_CASE(kernels_that_recur_on_all_ranks_make_steps) {
  const auto num_steps = [](int lost_by_first, int lost_by_second, bool are_matched) {
    std::vector<ImportedTrace> traces;
    traces.push_back(unmarked_rank(0, lost_by_first));
    traces.push_back(unmarked_rank(1, lost_by_second));
    const CollectiveMatching matching =
        are_matched ? match_across_ranks(traces) : CollectiveMatching();
    return ImportedSteps(traces, matching).num_steps();
  };
  BOOST_TEST(num_steps(0, 0, true) == 4u);
  BOOST_TEST(num_steps(3, 3, true) == 3u);
  // Four periods and three, or two, of which one began within.
  BOOST_TEST(num_steps(0, 11, true) == 3u);
  BOOST_TEST(num_steps(0, 22, true) == 2u);
  BOOST_TEST(num_steps(19, 0, true) == 2u);
  // Three each, but the first rank's first period is the other's second.
  BOOST_TEST(num_steps(11, 3, true) == 3u);
  // One period does not recur, and two each are too few.
  BOOST_TEST(num_steps(0, 30, true) == 1u);
  BOOST_TEST(num_steps(22, 22, true) == 1u);
  // Nothing says that they are the same.
  BOOST_TEST(num_steps(0, 0, false) == 1u);
  BOOST_TEST(num_steps(0, 11, false) == 1u);
}

BOOST_AUTO_TEST_CASE(the_ceiling_has_an_interval_over_steps) {
  const ImportedTrace trace = three_steps().read();
  const ImportedWall wall = classify_imported(std::span(&trace, 1));
  BOOST_TEST(name_of(wall.label) == "host");
  BOOST_TEST(wall.num_steps == 3);
  BOOST_TEST(wall.low_ratio <= wall.share_ratio);
  BOOST_TEST(wall.share_ratio <= wall.high_ratio);
  // 16 kernels of 20 us are left of a step of 1,000.
  BOOST_TEST(std::abs(wall.share_ratio - 0.68) < 0.02);
  BOOST_TEST(wall.ceilings[static_cast<size_t>(Wall::host)] == wall.share_ratio);
}

BOOST_AUTO_TEST_CASE(a_device_that_lags_is_not_waited_for) {
  // The host runs ahead; work of the first step still runs when the second begins.
  EventText events;
  for (int step = 0; step < 2; ++step) {
    events.range(100 * step, 100, "ProfilerStep#" + std::to_string(step));
    for (int i = 0; i < 10; ++i) {
      const int id = 10 * step + i + 1;
      events.call(100 * step + 5 * i, 4, id).kernel(1000 * step + 100 * i + 10, 99, id);
    }
  }
  const std::vector<StepTrace> steps = steps_of(events.read());
  BOOST_REQUIRE(steps.size() == 2u);
  BOOST_TEST(steps[1].start_ns == 1'009'000);  // where the first one's work ended
  BOOST_TEST(of_kind(steps[1], RecordKind::host_work).empty());
}

// The next input is copied beside the step before, whose work is what the next step waits for.
BOOST_AUTO_TEST_CASE(a_copy_that_runs_ahead_does_not_make_its_step_longer) {
  EventText events;
  for (int step = 0; step < 3; ++step) {
    events.range(100 * step, 100, "ProfilerStep#" + std::to_string(step));
    const int id = 100 * step;
    events.call(100 * step, 2, id + 1, "cudaMemcpyAsync")
        .copy(100 * step + 5, 20, id + 1, "Memcpy HtoD (Pinned -> Device)", 20);
    for (int i = 0; i < 20; ++i) {
      events.call(100 * step + 4 * i + 3, 2, id + i + 2)
          .kernel(50 + 2000 * step + 100 * i, 99, id + i + 2);
    }
  }
  const ImportedTrace trace = events.read();
  const std::vector<StepTrace> steps = steps_of(trace);
  BOOST_REQUIRE(steps.size() == 3u);
  BOOST_TEST(steps[2].start_ns == 4'049'000);
  BOOST_TEST(steps[2].end_ns == 6'049'000);
  const ImportedWall wall = classify_imported(std::span(&trace, 1));
  BOOST_TEST(name_of(wall.label) == "compute");
  BOOST_TEST(wall.unknown_ratio < 0.05);
}

// With programmatic dependent launch a kernel begins before the one ahead has ended.
BOOST_AUTO_TEST_CASE(kernels_that_overlap_on_a_stream_are_replayed_as_they_ran) {
  EventText events;
  for (int i = 0; i < 40; ++i) events.call(i, 1, i + 1).kernel(1000 + 90 * i, 100, i + 1);
  const StepTrace step = steps_of(events.read()).at(0);
  const ReplayedRun run(std::span(&step, 1), {}, {20'000, 5'000});
  BOOST_TEST(run.step_ns(run.ops()) == step.end_ns - step.start_ns);
}

BOOST_AUTO_TEST_CASE(syncs_and_allocations_become_records) {
  EventText events;
  for (int i = 0; i < 40; ++i) {
    const double start = 100 * i;
    events.call(start, 5, i + 1).kernel(start + 6, 40, i + 1);
    events.call(start + 10, 37, 0, "cudaStreamSynchronize");
    events.call(start + 50, 20, 0, "cudaMalloc");
    events.range(start + 75, 15, "enumerate(DataLoader)#_SingleProcess.__next__");
  }
  const StepTrace step = steps_of(events.read()).at(0);
  BOOST_TEST(of_kind(step, RecordKind::host_sync).size() == 40u);
  const auto work = of_kind(step, RecordKind::host_work);
  const auto named = [&](const char* name) {
    return std::ranges::count_if(work, [&](const auto* one) { return one->name == name; });
  };
  BOOST_TEST(named("alloc") == 39);
  BOOST_TEST(named("load") == 39);
}

BOOST_AUTO_TEST_CASE(a_sync_during_another_threads_launches_is_ignored) {
  EventText events;
  for (int i = 0; i < 40; ++i) events.call(10 * i, 5, i + 1).kernel(1000 + 100 * i, 99, i + 1);
  events.call(401, 5, 500, "cudaLaunchKernel", 2).kernel(5100, 99, 500);
  events.call(1, 398, 0, "cudaDeviceSynchronize", 2);
  BOOST_TEST(of_kind(steps_of(events.read()).at(0), RecordKind::host_sync).empty());
}

BOOST_AUTO_TEST_CASE(a_wait_that_the_file_states_is_an_edge) {
  ImportedTrace trace;
  trace.facts.file = "made";
  const uint16_t first = trace.stream_row({0, 7});
  const uint16_t second = trace.stream_row({0, 20});
  const uint16_t thread = trace.thread_row({1, 1});
  const uint32_t launch = trace.names.intern("cudaLaunchKernel");
  const uint32_t wait = trace.names.intern("cudaStreamWaitEvent");
  const uint32_t record = trace.names.intern("cudaEventRecord");
  const uint32_t gemm = trace.names.intern("gemm");
  const auto call = [&](int64_t start_ns, uint32_t name, CallKind kind, uint32_t correlation) {
    trace.calls.add({start_ns, start_ns + 1000, name, correlation, thread, kind});
  };
  const auto op = [&](int64_t start_ns, int64_t end_ns, uint32_t correlation, uint16_t stream) {
    ImportedOp one;
    one.start_ns = start_ns;
    one.end_ns = end_ns;
    one.correlation = correlation;
    one.name = gemm;
    one.stream = stream;
    trace.ops.add(one);
  };
  call(0, launch, CallKind::launch, 1);
  call(2000, record, CallKind::event_record, 2);
  call(4000, launch, CallKind::launch, 3);
  call(6000, wait, CallKind::stream_wait, 4);
  call(8000, launch, CallKind::launch, 5);
  call(10'000, launch, CallKind::launch, 6);
  op(20'000, 30'000, 1, first);
  op(30'000, 90'000, 3, first);   // enqueued behind the record: not waited for
  op(35'000, 40'000, 5, second);  // waits for the first
  op(41'000, 50'000, 6, second);
  ImportedSync sync;
  sync.kind = SyncKind::stream_wait;
  sync.stream = second;
  sync.producer_stream = first;
  sync.correlation = 4;
  sync.record_correlation = 2;
  trace.syncs.push_back(sync);
  trace.finish();
  const StepTrace step = steps_of(trace).at(0);
  BOOST_REQUIRE(step.records.size() == 4u);
  BOOST_TEST(step.records[2].start_ns == 35'000);
  BOOST_TEST(step.records[2].producer_id == step.records[0].id);
  BOOST_TEST(step.records[3].producer_id == kNoRecord);
}

// The wait for the latest end is the producer; the others are kept beside it.
BOOST_AUTO_TEST_CASE(all_waits_that_the_file_states_are_kept) {
  const auto step_of = [](bool has_streams) {
    ImportedTrace trace;
    trace.facts.file = "made";
    std::vector<uint16_t> streams;
    for (int64_t id = 0; id < 4; ++id) streams.push_back(trace.stream_row({2, 7 + id}));
    const uint16_t thread = trace.thread_row({1, 1});
    const uint32_t gemm = trace.names.intern("gemm");
    int64_t at_ns = 0;
    uint32_t correlation = 0;
    const auto call = [&](CallKind kind) {
      trace.calls.add({at_ns, at_ns + 1000, gemm, ++correlation, thread, kind});
      at_ns += 2000;
      return correlation;
    };
    const auto op = [&](int64_t start_ns, int64_t end_ns, uint16_t stream) {
      ImportedOp one;
      one.start_ns = start_ns;
      one.end_ns = end_ns;
      one.correlation = call(CallKind::launch);
      one.name = gemm;
      one.stream = stream;
      trace.ops.add(one);
    };
    for (size_t i = 0; i < 3; ++i) {
      op(50'000, 60'000 + 10'000 * static_cast<int64_t>(i), streams[i]);
      ImportedSync sync;
      sync.kind = SyncKind::stream_wait;
      if (has_streams) sync.stream = streams[3];
      if (has_streams) sync.producer_stream = streams[i];
      sync.record_correlation = call(CallKind::event_record);
      sync.correlation = call(CallKind::stream_wait);
      trace.syncs.push_back(sync);
    }
    op(81'000, 90'000, streams[3]);
    trace.finish();
    return steps_of(trace).at(0);
  };
  const StepTrace stated = step_of(true);
  BOOST_REQUIRE(stated.records.size() == 4u);
  BOOST_TEST(stated.records[3].producer_id == 2);
  BOOST_TEST((stated.further_waits == std::vector<FurtherWait>{{3, 0}, {3, 1}}));
  BOOST_TEST(stated.records[3].device == 2);
  // What follows from the order of calls alone may be wrong: the latest is enough of it.
  const StepTrace inferred = step_of(false);
  BOOST_REQUIRE(inferred.records.size() == 4u);
  BOOST_TEST(inferred.further_waits.empty());
}

BOOST_AUTO_TEST_CASE(records_say_what_was_launched_by_whom) {
  EventText events;
  const std::string more = R"(, "grid": [640, 2, 1], "block": [128, 1, 1])";
  const std::string name = "void ns::gemm<float>(float*)";
  events.call(0, 5, 1, "cudaLaunchKernel", 4).kernel(10, 20, 1, name, 7, more);
  events.call(6, 2, 2, "cudaLaunchKernel", 9).kernel(40, 20, 2, "plain", 8);
  events.call(20, 41, 0, "cudaDeviceSynchronize", 9);
  const ImportedTrace trace = events.read();
  for (const RecordNames names : {RecordNames::numbers, RecordNames::texts}) {
    const ImportedSteps steps(std::span(&trace, 1), {}, names);
    const StepTrace step = steps.make(0).at(0);
    BOOST_REQUIRE(step.records.size() == 3u);
    const TraceRecord& first = step.records[0];
    const TraceRecord& second = step.records[1];
    BOOST_TEST(first.thread >= 0);
    BOOST_TEST(second.thread >= 0);
    BOOST_TEST(first.thread != second.thread);
    BOOST_TEST(step.records[2].thread == second.thread);
    BOOST_TEST(step.records[2].device == -1);
    BOOST_TEST(first.device == 0);
    BOOST_TEST((first.grid == std::array<int32_t, 3>{640, 2, 1}));
    BOOST_TEST((first.block == std::array<int32_t, 3>{128, 1, 1}));
    BOOST_TEST(second.grid[0] == 0);
    // The replay has numbers for names. A name that is whole is there once.
    BOOST_TEST(first.kernel == (names == RecordNames::texts ? name : std::string()));
    BOOST_TEST(second.kernel.empty());
  }
}

// Starts and lengths in a file are rounded to the nanosecond, each by itself.
BOOST_AUTO_TEST_CASE(a_wait_that_is_inferred_survives_rounding) {
  const auto step_of = [](double start, bool has_events) {
    EventText events;
    events.call(0, 1, 1).kernel(20, 50, 1);
    if (has_events) events.call(2, 1, 2, "cudaEventRecord").call(4, 1, 3, "cudaStreamWaitEvent");
    events.call(6, 1, 4).kernel(start, 5, 4, "gemm", 20);
    return steps_of(events.read()).at(0);
  };
  const auto producer = [&](double start) {
    const StepTrace step = step_of(start, true);
    return of_kind(step, RecordKind::kernel).at(1)->producer_id;
  };
  BOOST_TEST(producer(70) == 0);
  BOOST_TEST(producer(69.999) == 0);
  BOOST_TEST(producer(69.9) == kNoRecord);
  // The same by times alone: without the first kernel's 50 us the second one starts so much sooner.
  const auto without_first_ns = [&](double start) {
    const StepTrace step = step_of(start, false);
    const ReplayedRun run(std::span(&step, 1), {}, {20'000, 5'000, 5'000, 0, kRoundingNs});
    std::vector<ReplayOp> ops = run.ops();
    ops[0].duration_ns = 0;
    return run.step_ns(run.ops()) - run.step_ns(ops);
  };
  BOOST_TEST(without_first_ns(70) >= 49'999);
  BOOST_TEST(without_first_ns(69.999) >= 49'999);
  BOOST_TEST(without_first_ns(69.9) == 0);
}

BOOST_AUTO_TEST_CASE(messages_count_as_pipeline) {
  EventText events;
  for (int i = 0; i < 50; ++i) {
    events.call(i, 1, 2 * i + 1).kernel(10'000 + 100 * i, 60, 2 * i + 1);
    events.call(i + 0.5, 0.2, 2 * i + 2)
        .kernel(10'060 + 100 * i, 39, 2 * i + 2, "ncclDevKernel_SendRecv(x)", 7,
                R"(, "Collective name": "recv", "In msg nelems": 100, "dtype": "Float",
                   "Process Group Name": "3", "Group size": 2)");
  }
  const ImportedTrace trace = events.read();
  const ImportedWall wall = classify_imported(std::span(&trace, 1));
  BOOST_TEST(name_of(wall.label) == "pipeline");
  // Of its group of two the other rank has no trace: what it waits for is not known.
  BOOST_TEST(wall.sub_cause.empty());
  BOOST_TEST(
      wall.summary.starts_with("pipeline (waiting for the one rank without a trace): without it"),
      wall.summary);
  BOOST_TEST(wall.evidence.back().name == "ranks_missing");
  BOOST_TEST(std::abs(wall.share_ratio - 0.39) < 0.02);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
