// Messages between ranks: which are of a pipeline, how their two ends are matched, and what a slow
// or late stage does to the others. Also launches that wait for room in a full queue, and waits
// that are known from the order of calls alone.
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "profiler/analysis/group_words.h"
#include "profiler/analysis/imported_steps.h"
#include "profiler/analysis/imported_wall.h"
#include "profiler/analysis/matched_collectives.h"
#include "profiler/analysis/missing_ranks.h"
#include "tests/import/trace_texts.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(stages)

namespace {

using tests::EventText;

/// What the file says about a message or a collective.
std::string comm_of(const std::string& collective, const std::string& group,
                    const std::string& more = "") {
  return R"(, "Collective name": ")" + collective +
         R"(", "In msg nelems": 100, "Out msg nelems": 100, "dtype": "Float",
            "Process Group Name": "5", "Group size": 4, "Process Group Description": ")" +
         group + "\"" + more;
}

/// 60 us of work and 39 of communication, by turns.
ImportedTrace with_comms(const std::vector<std::string>& comms) {
  EventText events;
  for (int i = 0; i < 50; ++i) {
    events.call(i, 1, 2 * i + 1).kernel(10'000 + 100 * i, 60, 2 * i + 1);
    events.call(i + 0.5, 0.2, 2 * i + 2)
        .kernel(10'060 + 100 * i, 39, 2 * i + 2, "ncclDevKernel_SendRecv(x)", 7,
                comms[static_cast<size_t>(i) % comms.size()]);
  }
  return events.read();
}

std::string label_of(const std::vector<std::string>& comms) {
  const ImportedTrace trace = with_comms(comms);
  return name_of(classify_imported(std::span(&trace, 1)).label);
}

std::string rank_facts(int rank, int num_ranks) {
  return R"(, "distributedInfo": {"rank": )" + std::to_string(rank) + R"(, "world_size": )" +
         std::to_string(num_ranks) + "}";
}

/// Two stages that work by turns on one micro-batch after the other, 1,000 us each. The second
/// works for `factor` times that, or its host comes `late_us` after the message.
std::vector<ImportedTrace> two_stages(double factor, double late_us) {
  std::array<EventText, 2> stage;
  std::array<int, 2> id = {0, 0};
  const auto launch = [&](size_t rank, double call) {
    stage[rank].call(call, 5, ++id[rank]);
    return id[rank];
  };
  const auto message = [&](size_t rank, double call, double start, double end, int number,
                           bool is_send, int stream) {
    const std::string peer =
        (is_send ? R"(, "Dst Rank": )" : R"(, "Src Rank": )") + std::to_string(1 - rank);
    const int correlation = launch(rank, call);
    stage[rank].kernel(start, end - start, correlation, "ncclDevKernel_SendRecv(x)", stream,
                       comm_of(is_send ? "send" : "recv", "PIPELINE_MODEL_PARALLEL_GROUP",
                               R"(, "Seq": )" + std::to_string(number) + peer));
  };
  double start = 1000;
  for (int i = 0; i < 12; ++i) {
    const double sent = start + 1000;
    const double received = sent + 50;
    const double begun = received + (late_us > 0 ? late_us + 3 : 0);
    const double done = begun + 1000 * factor;
    const double back = done + 50;
    int correlation = launch(0, start - 900);
    stage[0].kernel(start, 1000, correlation);
    message(0, start - 880, sent, received, 2 * i, true, 20);
    message(1, start - 900, start, received, 2 * i, false, 20);
    correlation = launch(1, late_us > 0 ? received + late_us - 5 : start - 880);
    stage[1].kernel(begun, done - begun, correlation);
    message(1, late_us > 0 ? done - 300 : start - 860, done, back, 2 * i + 1, true, 21);
    message(0, start - 860, received + 10, back, 2 * i + 1, false, 21);
    start = back + 10;
  }
  std::vector<ImportedTrace> traces;
  for (int rank = 0; rank < 2; ++rank) {
    traces.push_back(stage[static_cast<size_t>(rank)].read(rank_facts(rank, 2)));
  }
  return traces;
}

/// Ranks with ten kernels of 100 us and a collective of 300 us, by turns. The host needs 4 us for a
/// launch, or until the 16th operation before has begun. The last rank's kernels take 160 us.
std::vector<ImportedTrace> full_queues(int num_ranks) {
  constexpr size_t kDepth = 16;
  const auto count = static_cast<size_t>(num_ranks);
  std::vector<EventText> events(count);
  std::vector<double> host(count, 1000);
  std::vector<double> device(count, 1000);
  std::vector<std::vector<double>> starts(count);
  for (int layer = 0; layer < 20; ++layer) {
    double latest = 0;
    for (size_t rank = 0; rank < count; ++rank) {
      for (int i = 0; i <= 10; ++i) {
        const double call = host[rank];
        double returned = call + 3;
        const size_t launched = starts[rank].size();
        if (launched >= kDepth) returned = std::max(returned, starts[rank][launched - kDepth]);
        host[rank] = returned + 1;
        const auto id = static_cast<int>(launched) + 1;
        events[rank].call(call, returned - call, id);
        const double start = std::max(device[rank], returned + 3);
        starts[rank].push_back(start);
        if (i == 10) break;
        const double length = rank + 1 == count ? 160 : 100;
        events[rank].kernel(start, length, id);
        device[rank] = start + length;
      }
      latest = std::max(latest, starts[rank].back());
    }
    for (size_t rank = 0; rank < count; ++rank) {
      const double start = starts[rank].back();
      events[rank].kernel(
          start, latest + 300 - start, static_cast<int>(starts[rank].size()),
          "ncclDevKernel_AllReduce(x)", 20,
          comm_of("allreduce", "default_pg", R"(, "Seq": )" + std::to_string(layer)));
      device[rank] = latest + 301;
    }
  }
  std::vector<ImportedTrace> traces;
  for (int rank = 0; rank < num_ranks; ++rank) {
    traces.push_back(events[static_cast<size_t>(rank)].read(rank_facts(rank, num_ranks)));
  }
  return traces;
}

}  // namespace

BOOST_AUTO_TEST_CASE(words_of_groups) {
  const std::pair<const char*, const char*> rows[] = {{"PIPELINE_MODEL_PARALLEL_GROUP", "pp"},
                                                      {"mesh_pp", "pp"},
                                                      {"CONTEXT_PARALLEL_GROUP", "cp"},
                                                      {"EXPERT_MODEL_PARALLEL_GROUP", "ep"},
                                                      {"default_pg", "world"},
                                                      {"expert_tensor_parallel", ""}};
  for (const auto& [words, group] : rows) {
    BOOST_TEST_CONTEXT(words) {
      BOOST_TEST_REQUIRE(group_of_words(words).has_value());
      BOOST_TEST(*group_of_words(words) == group);
    }
  }
  BOOST_TEST(!group_of_words("undefined").has_value());
  BOOST_TEST(!group_of_words("").has_value());
}

BOOST_AUTO_TEST_CASE(the_purpose_of_the_group_says_whether_a_message_is_of_a_pipeline) {
  const std::string to_1 = R"(, "Dst Rank": 1)";
  BOOST_TEST(label_of({comm_of("send", "PIPELINE_MODEL_PARALLEL_GROUP", to_1)}) == "pipeline");
  BOOST_TEST(label_of({comm_of("coalesced", "mesh_pp")}) == "pipeline");
  BOOST_TEST(label_of({comm_of("allreduce", "mesh_pp")}) == "communication");
  for (const char* group : {"CONTEXT_PARALLEL_GROUP", "mesh_cp", "EXPERT_MODEL_PARALLEL_GROUP"}) {
    BOOST_TEST(label_of({comm_of("send", group, to_1)}) == "communication", group);
    BOOST_TEST(label_of({comm_of("recv", group, R"(, "Src Rank": 1)")}) == "communication", group);
  }
}

BOOST_AUTO_TEST_CASE(without_a_purpose_the_peers_say_it) {
  const auto to = [](int rank) {
    return comm_of("send", "undefined", R"(, "Dst Rank": )" + std::to_string(rank));
  };
  const auto from = [](int rank) {
    return comm_of("recv", "undefined", R"(, "Src Rank": )" + std::to_string(rank));
  };
  BOOST_TEST(label_of({to(1)}) == "pipeline");
  BOOST_TEST(label_of({to(1), from(1)}) == "pipeline");
  BOOST_TEST(label_of({to(1), from(1), to(3), from(3)}) == "pipeline");
  BOOST_TEST(label_of({to(1), from(3)}) == "communication");                         // a ring
  BOOST_TEST(label_of({to(1), to(2), to(3), from(1), from(2)}) == "communication");  // all to all
}

BOOST_AUTO_TEST_CASE(the_ends_of_messages_are_matched_by_their_sequence) {
  const std::vector<ImportedTrace> traces = two_stages(1, 0);
  const CollectiveMatching matching = match_across_ranks(traces);
  BOOST_TEST(matching.matched.empty());
  BOOST_TEST_REQUIRE(matching.messages.size() == 24U);
  for (const MatchedCollective& one : matching.messages) {
    BOOST_TEST_REQUIRE(one.parts.size() == 2U);
    const ImportedOp& sent = traces[one.parts[0].trace].ops[one.parts[0].op];
    const ImportedOp& received = traces[one.parts[1].trace].ops[one.parts[1].op];
    BOOST_TEST(one.parts[0].trace != one.parts[1].trace);
    BOOST_TEST(sent.end_ns == received.end_ns);
    BOOST_TEST(one.transfer_ns == 50'000);
  }
  BOOST_TEST_REQUIRE(matching.clock_offsets_ns.size() == 2U);
  for (const auto& offset_ns : matching.clock_offsets_ns) {
    BOOST_TEST_REQUIRE(offset_ns.has_value());
    BOOST_TEST(*offset_ns == 0);
  }
}

BOOST_AUTO_TEST_CASE(records_of_messages_name_pipeline_and_peer) {
  const std::vector<ImportedTrace> traces = two_stages(1, 0);
  const ImportedSteps steps(traces, match_across_ranks(traces));
  for (const StepTrace& step : steps.make(0)) {
    size_t num_messages = 0;
    for (const TraceRecord& record : step.records) {
      const bool is_message = record.kind == RecordKind::p2p;
      num_messages += is_message ? 1 : 0;
      BOOST_TEST(record.peer == (is_message ? 1 - step.rank : -1));
      BOOST_TEST(record.communicator == (is_message ? 0 : -1));
    }
    BOOST_TEST(num_messages > 0U);
  }
}

// The second clock is a second ahead: no message may end before it was sent.
BOOST_AUTO_TEST_CASE(clocks_are_shifted_so_that_messages_come_after_they_are_sent) {
  std::vector<ImportedTrace> traces = two_stages(1, 0);
  for (size_t i = 0; i < traces[1].ops.size(); ++i) {
    traces[1].ops[i].start_ns += 1'000'000'000;
    traces[1].ops[i].end_ns += 1'000'000'000;
  }
  const CollectiveMatching matching = match_across_ranks(traces);
  BOOST_TEST(matching.messages.size() == 24U);
  BOOST_TEST_REQUIRE(matching.clock_offsets_ns[1].has_value());
  BOOST_TEST(*matching.clock_offsets_ns[1] - *matching.clock_offsets_ns[0] == -1'000'000'000);
}

// Of the ranks of a ring each end is a part of a communication, as of a collective.
BOOST_AUTO_TEST_CASE(messages_of_a_ring_are_matched_as_communication) {
  std::vector<ImportedTrace> traces;
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<std::string> comms;
    for (int i = 0; i < 50; ++i) {
      comms.push_back(
          comm_of(rank == 0 ? "send" : "recv", "mesh_cp",
                  (rank == 0 ? R"(, "Dst Rank": 1, "Seq": )" : R"(, "Src Rank": 0, "Seq": )") +
                      std::to_string(i)));
    }
    EventText events;
    for (int i = 0; i < 50; ++i) {
      events.call(i, 1, i + 1)
          .kernel(1000 + 100 * i, 90, i + 1, "ncclDevKernel_SendRecv(x)", 7,
                  comms[static_cast<size_t>(i)]);
    }
    traces.push_back(events.read(rank_facts(rank, 2)));
  }
  const CollectiveMatching matching = match_across_ranks(traces);
  BOOST_TEST(matching.messages.empty());
  BOOST_TEST(matching.matched.size() == 50U);
  BOOST_TEST(matching.num_ops == 100);
  BOOST_TEST(matching.num_unmatched == 0);
}

// What both ends of a message are known of waits for nobody else.
BOOST_AUTO_TEST_CASE(a_message_with_one_end_may_wait_for_a_rank_without_a_trace) {
  const std::vector<ImportedTrace> traces = two_stages(1, 0);
  const MissingRanks with_both(traces, match_across_ranks(traces));
  const MissingRanks with_one({traces.data(), 1}, CollectiveMatching());
  BOOST_TEST(with_both.num() == 2);  // the group is of four
  BOOST_TEST(with_one.num() == 3);
  int num_messages = 0;
  for (uint32_t op = 0; op < traces[0].ops.size(); ++op) {
    if (traces[0].ops[op].comm == kNoRow) continue;
    BOOST_TEST(!with_both.may_delay(0, op));
    BOOST_TEST(with_one.may_delay(0, op));
    ++num_messages;
  }
  BOOST_TEST(num_messages == 24);
  BOOST_TEST(with_one.with_doubt("pipeline (bubble): 5 %", Wall::pipeline, "bubble") ==
             "pipeline (waiting for one of the 3 ranks without a trace): 5 %");
  BOOST_TEST(with_one.with_doubt("pipeline: 5 %", Wall::pipeline, "") ==
             "pipeline: 5 % (waiting for one of the 3 ranks without a trace)");
}

BOOST_AUTO_TEST_CASE(a_slow_stage_is_imbalance_of_its_rank) {
  const ImportedWall wall = classify_imported(two_stages(3, 0));
  BOOST_TEST(name_of(wall.label) == "imbalance", wall.summary);
  BOOST_TEST((wall.rank == 1), wall.summary);
  // 2,000 us of the 4,110 between micro-batches.
  BOOST_TEST(std::abs(wall.share_ratio - 0.487) < 0.03);
}

BOOST_AUTO_TEST_CASE(a_stage_whose_host_is_late_is_host_of_its_rank) {
  const ImportedWall wall = classify_imported(two_stages(1, 2000));
  BOOST_TEST(name_of(wall.label) == "host", wall.summary);
  BOOST_TEST((wall.rank == 1), wall.summary);
  // 2,003 us of the 4,113 between micro-batches: the work still waits for its message.
  BOOST_TEST(std::abs(wall.share_ratio - 0.487) < 0.01);
}

// What a stage saves without its late host is known: the same stages without it. The ceiling is
// neither less than that nor what work would save that needs no message.
BOOST_AUTO_TEST_CASE(the_ceiling_of_a_late_host_is_what_the_stages_take_without_it) {
  const auto length_ns = [](double late_us) {
    const std::vector<ImportedTrace> traces = two_stages(1, late_us);
    const TraceExtent extent = extent_of(traces[0]);
    return extent.last_ns - static_cast<double>(traces[0].ops[0].start_ns);
  };
  for (const double late_us : {500.0, 1000.0, 2000.0, 5000.0}) {
    const ImportedWall wall = classify_imported(two_stages(1, late_us));
    const double gain = 1 - length_ns(0) / length_ns(late_us);
    const double said = wall.ceilings[static_cast<size_t>(Wall::host)];
    BOOST_TEST_CONTEXT(late_us) BOOST_TEST(std::abs(said - gain) < 0.005, said << " of " << gain);
  }
}

BOOST_AUTO_TEST_CASE(work_launched_behind_a_receive_waits_for_it) {
  const auto waits_of = [](const std::vector<ImportedTrace>& traces, size_t rank) {
    const CollectiveMatching matching = match_across_ranks(traces);
    const StepTrace step = ImportedSteps(traces, matching).make(0).at(rank);
    int count = 0;
    for (const TraceRecord& record : step.records) {
      if (record.producer_id == kNoRecord) continue;
      const TraceRecord& producer = step.records[static_cast<size_t>(record.producer_id)];
      BOOST_TEST(producer.name.text() == "recv");
      BOOST_TEST(producer.end_ns <= record.start_ns);
      BOOST_TEST((record.kind == RecordKind::kernel));
      BOOST_TEST(record.is_producer_inferred);
      ++count;
    }
    return count;
  };
  std::vector<ImportedTrace> traces = two_stages(1, 2000);
  BOOST_TEST(waits_of(traces, 0) == 11);  // the first micro-batch comes from nobody
  BOOST_TEST(waits_of(traces, 1) == 12);
  // One that begins before its message is there shows that this program's work need not wait.
  traces = two_stages(1, 0);
  BOOST_TEST(waits_of(traces, 1) == 12);
  for (ImportedOp& op : traces[1].ops) {
    if (op.comm != kNoRow) continue;
    op.start_ns -= 10'000;
    break;
  }
  BOOST_TEST(waits_of(traces, 1) == 0);
  BOOST_TEST(waits_of(traces, 0) == 11);
}

// Where a trace would show waits between streams, that it shows none is known, too.
BOOST_AUTO_TEST_CASE(without_waits_in_a_trace_that_shows_them_none_are_inferred) {
  const auto num_waits = [](const std::vector<ImportedTrace>& traces) {
    const CollectiveMatching matching = match_across_ranks(traces);
    const StepTrace step = ImportedSteps(traces, matching).make(0).at(1);
    return std::ranges::count_if(
        step.records, [](const TraceRecord& record) { return record.producer_id != kNoRecord; });
  };
  const auto with_call = [](const char* name) {
    std::vector<ImportedTrace> traces = two_stages(1, 0);
    HostCall call = traces[1].calls[traces[1].calls.size() - 1];
    call.name = traces[1].names.intern(name);
    call.kind = call_kind_of(name);
    call.correlation = 0;
    traces[1].calls.add(call);
    return traces;
  };
  BOOST_TEST(num_waits(with_call("cudaEventQuery")) == 12);
  BOOST_TEST(num_waits(with_call("cudaEventRecord")) == 0);
  BOOST_TEST(num_waits(with_call("cudaStreamWaitEvent")) == 0);
  std::vector<ImportedTrace> traces = two_stages(1, 0);
  BOOST_TEST(num_waits(traces) == 12);
  traces[1].syncs.push_back({.start_ns = 1, .end_ns = 2, .kind = SyncKind::device});
  BOOST_TEST(num_waits(traces) == 0);
}

BOOST_AUTO_TEST_CASE(stages_that_only_wait_for_each_other_are_pipeline) {
  const ImportedWall wall = classify_imported(two_stages(1, 0));
  BOOST_TEST(name_of(wall.label) == "pipeline", wall.summary);
  BOOST_TEST(!wall.rank.has_value());
  const auto matched = std::ranges::find(wall.evidence, "matched_messages", &Evidence::name);
  BOOST_TEST_REQUIRE((matched != wall.evidence.end()));
  BOOST_TEST(matched->value == 24);
  BOOST_TEST(matched->text == "24 messages between stages were found at both ends");
}

// Of messages that the file says nothing of, only their number and their ends tell whose they are.
// The first and the last of four stages have as many as each other, at an equal distance.
BOOST_AUTO_TEST_CASE(messages_that_nothing_is_said_of_are_no_transfers_between_the_outer_stages) {
  std::array<EventText, 4> stage;
  std::array<int, 4> id = {};
  constexpr double kPeriodUs = 2000;
  const auto launch = [&](size_t rank, double start, double end, const char* name, int stream) {
    ++id[rank];
    stage[rank].call(2 * id[rank], 1, id[rank]);
    stage[rank].kernel(start, end - start, id[rank], name, stream);
  };
  const char* message = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";
  for (int i = 0; i < 30; ++i) {
    for (size_t rank = 0; rank < 4; ++rank) {
      // The second stage works nearly all the time, the others for half of it.
      const double begun = 400 + kPeriodUs * (i + static_cast<double>(rank));
      const double done = begun + (rank == 1 ? 1900 : 1000);
      const double before = begun - (rank == 1 ? 50 : kPeriodUs - 1000);
      if (rank > 0) launch(rank, before, begun, message, 21);
      launch(rank, begun, done, "gemm", 7);
      if (rank < 3) launch(rank, done, begun + kPeriodUs, message, 20);
    }
  }
  std::vector<ImportedTrace> traces;
  for (int rank = 0; rank < 4; ++rank) {
    traces.push_back(stage[static_cast<size_t>(rank)].read(rank_facts(rank, 4)));
  }
  BOOST_TEST(match_across_ranks(traces).matched.empty());
  const ImportedWall wall = classify_imported(traces);
  BOOST_TEST(name_of(wall.label) == "unknown", wall.summary);
}

// An exchange of all ranks has all in it, and is known by that.
BOOST_AUTO_TEST_CASE(exchanges_that_nothing_is_said_of_are_matched_where_all_ranks_have_them) {
  std::vector<ImportedTrace> traces;
  for (int rank = 0; rank < 4; ++rank) {
    EventText events;
    const double late_us = rank == 2 ? 300 : 0;
    for (int i = 0; i < 30; ++i) {
      const double start = 10 + 600 * i;
      events.call(4 * i, 1, 2 * i + 1).kernel(start, 200 + late_us, 2 * i + 1);
      events.call(4 * i + 2, 1, 2 * i + 2)
          .kernel(start + 200 + late_us, 400 - late_us, 2 * i + 2, "ncclDevKernel_SendRecv(x)");
    }
    traces.push_back(events.read(rank_facts(rank, 4)));
  }
  BOOST_TEST(match_across_ranks(traces).matched.size() == 30U);
  const ImportedWall wall = classify_imported(traces);
  BOOST_TEST(name_of(wall.label) == "imbalance", wall.summary);
  BOOST_TEST((wall.rank == 2), wall.summary);
}

// Without the limit of the queue the verdict is the same.
BOOST_AUTO_TEST_CASE(a_full_launch_queue_does_not_hide_a_slow_rank) {
  const ImportedWall wall = classify_imported(full_queues(4));
  BOOST_TEST(name_of(wall.label) == "imbalance", wall.summary);
  BOOST_TEST((wall.rank == 3), wall.summary);
  // 600 us of 1,901 a layer.
  BOOST_TEST(std::abs(wall.share_ratio - 0.316) < 0.02);
}

BOOST_AUTO_TEST_CASE(waits_are_inferred_from_the_order_of_calls) {
  const auto step_of = [](double producer_us) {
    EventText events;
    events.call(0, 1, 1).call(2, 1, 0, "cudaEventRecord").call(4, 1, 2);
    events.call(6, 1, 3, "cudaStreamWaitEvent").call(8, 1, 4);
    // Enqueued on stream 7 and recorded, then again, then on stream 20 behind the wait.
    events.kernel(20, producer_us, 1).kernel(80, 20, 2).kernel(60, 10, 4, "gemm", 20);
    const ImportedTrace trace = events.read();
    return ImportedSteps(std::span(&trace, 1), {}).make(0).at(0);
  };
  const StepTrace step = step_of(30);
  BOOST_TEST_REQUIRE(step.records.size() == 3U);
  BOOST_TEST(step.records[2].start_ns == 60'000);
  BOOST_TEST(step.records[2].producer_id == step.records[0].id);
  BOOST_TEST(step.records[2].is_producer_inferred);
  BOOST_TEST(!step.records[1].is_producer_inferred);
  // It cannot have waited for what still ran.
  BOOST_TEST(step_of(55).records[2].producer_id == kNoRecord);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
