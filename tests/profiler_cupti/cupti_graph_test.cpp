// Graph replays, several ranks in one process, transfers seen over ranks, and buffers that end in
// the middle.
#include <array>
#include <boost/test/unit_test.hpp>

#include "profiler/across_ranks.h"
#include "tests/profiler_cupti/canned_buffer.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(cupti_graphs)

namespace {

using testing::CannedBuffer;
using testing::CannedStep;

/// Captured nodes 1..4 (norm, the two halves of attn, an unlabelled one), cloned as 101..104.
struct GraphStep : CannedStep {
  GraphStep() {
    const auto label = [this](uint64_t node, OpId op, const char* name, int64_t flops) {
      GraphNode known;
      known.origin = node;
      known.capture_op = op;
      known.op.tag.name = name;
      known.op.tag.layer = 4;
      known.op.tag.flops = flops;
      labels.nodes[node] = known;
      labels.nodes[node + 100] = known;
    };
    // Captured before this step: its ids are not in the table of ops.
    ops.first_id = 50;
    label(1, 7, "norm", 10);
    label(2, 8, "attn", 1000);
    label(3, 8, "attn", 1000);
    label(4, kNoOp, "", 0);
    // Where which of the two comes first is not known: 1 -> 2, 1 -> 3.
    labels.neighbours[2] = {1};
    labels.neighbours[1] = {3};
  }
  OpId replay_op(int32_t micro_batch) {
    DeviceOp replay;
    replay.tag.name = "graph.forward";
    replay.tag.micro_batch = micro_batch;
    return op(replay);
  }
  /// Nodes on two streams: norm, then both halves of attn at once, then the unlabelled one.
  void replay(uint32_t correlation, uint64_t at, OpId id) {
    buffer.call(correlation, at, at + 10, id);
    buffer.kernel(correlation, 7, at + 20, at + 30, "_Z4normv", 101);
    buffer.kernel(correlation, 7, at + 30, at + 60, "_Z5attn1v", 102);
    buffer.kernel(correlation, 31, at + 31, at + 80, "_Z5attn2v", 103);
    buffer.kernel(correlation, 7, at + 80, at + 90, "_Z4tailv", 104);
  }
};

BOOST_AUTO_TEST_CASE(nodes_have_the_op_they_were_captured_in) {
  GraphStep step;
  step.replay(10, 1100, step.replay_op(0));
  step.replay(11, 1300, step.replay_op(1));
  const DeviceStep converted = step.convert();
  const auto& records = converted.ranks.at(0).trace.records;
  BOOST_REQUIRE_EQUAL(records.size(), 8U);
  for (size_t i = 0; i < 8; ++i) {
    const auto micro_batch = static_cast<int32_t>(i / 4);
    BOOST_TEST(records[i].graph_id == micro_batch + 1);
    BOOST_TEST(records[i].micro_batch == micro_batch);
    BOOST_TEST(records[i].launch_start_ns == 1100 + 200 * micro_batch);
    BOOST_TEST(records[i].launch_end_ns == 1110 + 200 * micro_batch);
    const size_t node = i % 4;
    BOOST_TEST(records[i].name == (node == 0 ? "norm" : node == 3 ? "graph.forward" : "attn"));
    BOOST_TEST(records[i].layer == (node == 3 ? -1 : 4));
  }
  // The halves wait for norm, whichever way the edge was told; work of attn counts once a replay.
  BOOST_TEST(records[1].producer_id == 0);
  BOOST_TEST(records[2].producer_id == 0);
  BOOST_TEST(records[5].producer_id == 4);
  BOOST_TEST(records[1].flops == 0);
  BOOST_TEST(records[2].flops == 1000);  // the longer half
  BOOST_TEST(records[6].flops == 1000);
  BOOST_TEST(records[1].stream != records[2].stream);
  BOOST_TEST(converted.facts.num_unlabelled == 0);
}

BOOST_AUTO_TEST_CASE(work_after_a_replay_waits_for_all_of_it) {
  GraphStep step;
  const OpId send = step.comm_op("send", "pp", 3);
  step.buffer.call(10, 1100, 1110);
  step.buffer.kernel(10, 31, 1120, 1190, "_Z4longv", 103);
  step.buffer.kernel(10, 7, 1120, 1130, "_Z5shortv", 101);
  step.buffer.event(11, 7, 501);
  step.buffer.wait(12, 20, 501);
  step.buffer.call(13, 1120, 1121, send);
  step.buffer.kernel(13, 20, 1190, 1200);
  const StepTrace trace = step.trace();
  BOOST_TEST(trace.records.at(2).name == "send");
  BOOST_TEST(trace.records.at(trace.records[2].producer_id).end_ns == 1190);
}

BOOST_AUTO_TEST_CASE(unknown_nodes_belong_to_the_op_that_replays) {
  CannedStep step;
  const OpId replay = step.kernel_op("graph.forward");
  step.buffer.call(10, 1100, 1110, replay);
  step.buffer.kernel(10, 7, 1120, 1130, "_Z1av", 900);
  const StepTrace trace = step.trace();
  BOOST_TEST(trace.records.at(0).name == "graph.forward");
  BOOST_TEST(trace.records[0].graph_id == 1);
}

BOOST_AUTO_TEST_CASE(whole_graphs_are_one_record) {
  CannedStep step;
  const OpId replay = step.kernel_op("graph.forward");
  step.buffer.call(10, 1100, 1110, replay);
  step.buffer.whole_graph(10, 7, 1120, 1500);
  const DeviceStep converted = step.convert();
  const auto& records = converted.ranks.at(0).trace.records;
  BOOST_REQUIRE_EQUAL(records.size(), 1U);
  BOOST_TEST(records[0].name == "graph.forward");
  BOOST_TEST(records[0].graph_id == 1);
  BOOST_TEST((records[0].kind == RecordKind::kernel));
  BOOST_TEST(converted.ranks[0].details.at(0) == "graph");
}

BOOST_AUTO_TEST_CASE(ranks_of_one_process_have_their_own_traces) {
  CannedStep step;
  step.window.ranks = {4, 5};
  DeviceOp op;
  op.tag.name = "gemm";
  op.rank = 4;
  const OpId of_4 = step.op(op);
  op.rank = 5;
  const OpId of_5 = step.op(op);
  op.rank = 6;
  const OpId of_nobody = step.op(op);
  step.buffer.call(10, 1010, 1011, of_4, 1);
  step.buffer.kernel(10, 7, 1100, 1200);
  step.buffer.event(11, 7, 501);
  step.buffer.wait(12, 9, 501);
  step.buffer.call(13, 1020, 1021, of_5, 2);
  step.buffer.kernel(13, 9, 1200, 1300);
  step.buffer.call(14, 1030, 1031, kNoOp, 2);  // unlabelled: by its stream
  step.buffer.kernel(14, 9, 1300, 1400, "_Z5extrav");
  step.buffer.call(15, 1040, 1041, kNoOp, 2);  // by its thread
  step.buffer.kernel(15, 33, 1300, 1400, "_Z5extrav");
  step.buffer.call(16, 1050, 1051, of_nobody, 3);
  step.buffer.kernel(16, 50, 1300, 1400);
  step.buffer.call(17, 1500, 1600, kNoOp, 2);
  step.buffer.sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE, 17, 0, 1500, 1600);
  const DeviceStep converted = step.convert();
  BOOST_REQUIRE_EQUAL(converted.ranks.size(), 2U);
  const StepTrace& first = converted.ranks[0].trace;
  const StepTrace& second = converted.ranks[1].trace;
  BOOST_TEST(first.rank == 4);
  BOOST_TEST(first.records.size() == 1U);
  BOOST_TEST(second.rank == 5);
  BOOST_REQUIRE_EQUAL(second.records.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    BOOST_TEST(second.records[i].id == static_cast<int64_t>(i));
    BOOST_TEST(second.records[i].rank == 5);
  }
  BOOST_TEST(second.records[0].producer_id == kNoRecord);  // it is on the other rank
  BOOST_TEST((second.records[3].kind == RecordKind::host_sync));
  BOOST_TEST(second.records[0].stream == 0);
  BOOST_TEST(second.records[1].stream == 0);
  BOOST_TEST(second.records[2].stream != 0);
  BOOST_TEST(converted.facts.num_outside == 1);
}

BOOST_AUTO_TEST_CASE(different_streams_never_share_a_number) {
  CannedStep step;
  const OpId a = step.kernel_op("a", 0);
  const OpId b = step.kernel_op("b", 1);
  const auto run = [&step](uint32_t correlation, OpId op, uint32_t stream) {
    step.buffer.call(correlation, 1010, 1011, op);
    step.buffer.kernel(correlation, stream, 1100 + correlation, 1101 + correlation);
  };
  run(10, a, 7);
  run(11, a, 7);
  run(12, b, 7);  // most of stream 7 is a's
  run(13, a, 8);  // a's number is taken
  run(14, b, 9);
  const StepTrace trace = step.trace();
  const std::vector<int32_t> expected = {0, 0, 0, 2, 1};
  for (size_t i = 0; i < expected.size(); ++i) {
    BOOST_TEST(trace.records.at(i).stream == expected[i], "record " << i);
  }
}

BOOST_AUTO_TEST_CASE(transfers_are_the_shortest_stay_of_any_participant) {
  const auto trace_of = [](int32_t rank, std::vector<TraceRecord> records) {
    StepTrace trace;
    trace.rank = rank;
    for (TraceRecord& record : records) record.rank = rank;
    trace.records = std::move(records);
    return trace;
  };
  const auto comm = [](RecordKind kind, const char* group, int64_t sequence, int64_t bytes,
                       int64_t duration_ns) {
    TraceRecord record;
    record.kind = kind;
    record.name = "op";
    record.group = group;
    record.sequence = sequence;
    record.bytes = bytes;
    record.start_ns = 1000;
    record.end_ns = 1000 + duration_ns;
    return record;
  };
  // Ranks 0 and 1 are one ep group, 2 another. dp of rank 2 and all p2p have nobody to match.
  StepTrace r0 = trace_of(
      0, {comm(RecordKind::collective, "ep", 0, 64, 90), comm(RecordKind::p2p, "pp", -1, 32, 50),
          comm(RecordKind::p2p, "pp", -1, 64, 10)});
  StepTrace r1 = trace_of(
      1, {comm(RecordKind::collective, "ep", 0, 64, 40), comm(RecordKind::p2p, "pp", -1, 32, 20)});
  StepTrace r2 = trace_of(2, {comm(RecordKind::collective, "ep", 0, 65, 15),
                              comm(RecordKind::collective, "dp", 0, 8, 70)});
  resolve_transfers({&r0, &r1, &r2}, {{{0, "ep"}, 0}, {{1, "ep"}, 0}, {{2, "ep"}, 1}});
  BOOST_TEST(r0.records[0].transfer_ns == 40);
  BOOST_TEST(r1.records[0].transfer_ns == 40);
  BOOST_TEST(r2.records[0].transfer_ns == 15);
  BOOST_TEST(r2.records[1].transfer_ns == 70);
  BOOST_TEST(r0.records[1].transfer_ns == 20);
  BOOST_TEST(r1.records[1].transfer_ns == 20);
  BOOST_TEST(r0.records[2].transfer_ns == 10);
}

BOOST_AUTO_TEST_CASE(truncated_buffers_are_read_up_to_the_cut) {
  CannedBuffer buffer;
  buffer.call(10, 1010, 1011, 1);
  buffer.kernel(10, 7, 1100, 1200);
  buffer.copy(11, 7, 1100, 1200, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, 64);
  buffer.event(12, 7, 501);
  buffer.overhead(CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER, 1, 2);
  const std::vector<uint64_t> words = buffer.words();
  const std::vector<size_t> ends = {24, 64, 280, 376, 432, 488};
  BOOST_REQUIRE_EQUAL(buffer.num_bytes(), ends.back());
  for (size_t valid_bytes = 0; valid_bytes <= ends.back(); ++valid_bytes) {
    // A copy of exactly this length, so that the address sanitizer sees a read beyond it.
    std::vector<uint8_t> cut(valid_bytes + 8);
    auto* begin = cut.data() + (8 - reinterpret_cast<uintptr_t>(cut.data()) % 8) % 8;
    std::memcpy(begin, words.data(), valid_bytes);
    DeviceActivities raw;
    decode_cupti_buffer(begin, valid_bytes, raw);
    free_cupti_attachments(begin, valid_bytes);
    const auto whole = std::count_if(ends.begin(), ends.end(),
                                     [valid_bytes](size_t end) { return end <= valid_bytes; });
    const bool is_cut =
        valid_bytes != 0 && std::find(ends.begin(), ends.end(), valid_bytes) == ends.end();
    BOOST_TEST(raw.num_records == whole, "at " << valid_bytes);
    BOOST_TEST(raw.num_broken_buffers == (is_cut ? 1 : 0), "at " << valid_bytes);
  }
  DeviceActivities raw;
  decode_cupti_buffer(nullptr, 100, raw);
  BOOST_TEST(raw.num_records == 0);
}

BOOST_AUTO_TEST_CASE(no_kind_of_record_is_a_surprise) {
  int64_t num_known = 0;
  for (int kind = -1; kind < 70; ++kind) {
    CannedBuffer buffer;
    buffer.call(10, 1010, 1011);
    std::array<uint64_t, 64> unknown{};
    const int32_t number = kind;
    std::memcpy(unknown.data(), &number, sizeof(number));
    buffer.add(unknown);
    const DeviceActivities raw = buffer.decode();
    BOOST_TEST(raw.calls.size() >= 1U);
    num_known += raw.num_broken_buffers == 0 ? 1 : 0;
  }
  BOOST_TEST(num_known < 70);  // zeros after a record are no records
}

BOOST_AUTO_TEST_CASE(attachments_of_overhead_records_are_freed_once) {
  CannedBuffer buffer;
  buffer.overhead(CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL, 1, 2, std::malloc(12));
  std::vector<uint64_t> words = buffer.words();
  auto* begin = reinterpret_cast<uint8_t*>(words.data());
  free_cupti_attachments(begin, buffer.num_bytes());
  free_cupti_attachments(begin, buffer.num_bytes());
  CUpti_ActivityOverhead3 record;
  std::memcpy(&record, begin, sizeof(record));
  BOOST_TEST((record.overheadData == nullptr));
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
