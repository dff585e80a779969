// Canned buffers in, records out: each rule of convert_step on a step small enough to know the
// answer.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "profiler/device/kernel_name.h"
#include "tests/profiler_cupti/canned_buffer.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(cupti_convert)

namespace {

namespace data = boost::unit_test::data;
using testing::CannedBuffer;
using testing::CannedStep;

const TraceRecord* find(const StepTrace& trace, const std::string& name) {
  for (const TraceRecord& record : trace.records) {
    if (record.name == name) return &record;
  }
  return nullptr;
}

bool is_same(const TraceRecord& a, const TraceRecord& b) {
  return a.id == b.id && a.kind == b.kind && a.stream == b.stream && a.name == b.name &&
         a.layer == b.layer && a.micro_batch == b.micro_batch &&
         a.launch_start_ns == b.launch_start_ns && a.launch_end_ns == b.launch_end_ns &&
         a.start_ns == b.start_ns && a.end_ns == b.end_ns && a.group == b.group &&
         a.bytes == b.bytes && a.flops == b.flops && a.transfer_ns == b.transfer_ns &&
         a.sequence == b.sequence && a.graph_id == b.graph_id && a.producer_id == b.producer_id;
}

BOOST_AUTO_TEST_CASE(kernel_gets_its_op_and_its_launch) {
  CannedStep step;
  DeviceOp op;
  op.tag = {"core_attn.backward", 5, 2, 1000, 64, true};
  op.stream = 1;
  const OpId id = step.op(op);
  step.buffer.call(10, 1100, 1110, id);
  step.buffer.kernel(10, 13, 1200, 1300, "_ZN3cub4scanIfEEvPT_");
  const DeviceStep converted = step.convert();
  const StepTrace& trace = converted.ranks.at(0).trace;
  BOOST_TEST(trace.step == 3);
  BOOST_TEST(trace.start_ns == 1000);
  BOOST_TEST(trace.end_ns == 2000);
  BOOST_REQUIRE_EQUAL(trace.records.size(), 1U);
  const TraceRecord& record = trace.records[0];
  BOOST_TEST((record.kind == RecordKind::kernel));
  BOOST_TEST(record.name == "core_attn.backward");
  BOOST_TEST(record.layer == 5);
  BOOST_TEST(record.micro_batch == 2);
  BOOST_TEST(record.flops == 1000);
  BOOST_TEST(record.bytes == 64);
  BOOST_TEST(record.is_recompute);
  BOOST_TEST(record.stream == 1);
  BOOST_TEST(record.launch_start_ns == 1100);
  BOOST_TEST(record.launch_end_ns == 1110);
  BOOST_TEST(record.start_ns == 1200);
  BOOST_TEST(record.end_ns == 1300);
  BOOST_TEST(record.graph_id == 0);
  BOOST_TEST(record.thread == 0);
  BOOST_TEST(record.device == 2);
  BOOST_TEST(record.kernel == "void cub::scan<float>(float*)");
  BOOST_TEST((record.grid == std::array<int32_t, 3>{640, 2, 1}));
  BOOST_TEST((record.block == std::array<int32_t, 3>{128, 1, 1}));
  BOOST_TEST(record.communicator == -1);
  BOOST_TEST(record.peer == -1);
  BOOST_TEST(converted.ranks[0].details.at(0) == "scan");
  BOOST_TEST(missing_text(converted.facts).empty());
}

BOOST_AUTO_TEST_CASE(threads_are_counted_and_messages_name_the_other_side) {
  CannedStep step;
  const OpId gemm = step.kernel_op("gemm");
  const OpId send = step.comm_op("send.forward", "pp", 1, 0);
  step.ops.ops.back().kind = RecordKind::p2p;
  step.ops.ops.back().partners = {1, 5};
  step.buffer.call(10, 1010, 1011, gemm, 4711);
  step.buffer.kernel(10, 7, 1100, 1200);
  step.buffer.call(11, 1012, 1013, send, 17);
  step.buffer.copy(11, 8, 1200, 1210, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, 64);
  step.buffer.call(12, 1014, 1015, send, 17);
  step.buffer.kernel(12, 8, 1210, 1300, "ncclDevKernel_SendRecv");
  step.buffer.call(13, 1016, 1017, gemm, 4711);
  step.buffer.kernel(13, 7, 1310, 1320, "gemm");
  const StepTrace trace = step.trace();
  BOOST_REQUIRE_EQUAL(trace.records.size(), 3U);
  BOOST_TEST(trace.records[0].thread == 0);
  BOOST_TEST(trace.records[1].thread == 1);
  BOOST_TEST(trace.records[2].thread == 0);
  BOOST_TEST(trace.records[0].kernel == "gemm(float*)");
  BOOST_TEST(trace.records[2].kernel.empty());  // says no more than the record's name
  const TraceRecord& message = trace.records[1];
  BOOST_TEST(message.communicator == 1);
  BOOST_TEST(message.peer == 5);
  BOOST_TEST(message.kernel == "ncclDevKernel_SendRecv");  // the longest of its work
  BOOST_TEST(message.grid[0] == 640);
}

BOOST_AUTO_TEST_CASE(all_that_is_waited_for_is_kept) {
  CannedStep step;
  const OpId id = step.kernel_op("gemm");
  for (uint32_t i = 0; i < 3; ++i) {
    step.buffer.call(10 + 2 * i, 1010 + 2 * i, 1011 + 2 * i, id);
    step.buffer.kernel(10 + 2 * i, 7 + i, 1100, 1200 + 10 * i);
    step.buffer.event(11 + 2 * i, 7 + i, 100 + i);
  }
  // Two waits for the earlier ends behind that for the last one, and one twice.
  for (const uint32_t event : {2U, 0U, 1U, 1U}) step.buffer.wait(20 + event, 10, 100 + event);
  step.buffer.call(30, 1050, 1051, id);
  step.buffer.kernel(30, 10, 1300, 1400);
  step.buffer.call(31, 1052, 1450);
  step.buffer.sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE, 31, 0, 1052, 1450);
  const StepTrace trace = step.trace();
  BOOST_REQUIRE_EQUAL(trace.records.size(), 5U);
  BOOST_TEST(trace.records[3].producer_id == 2);
  BOOST_TEST(trace.records[4].producer_id == 3);
  const std::vector<FurtherWait> expected = {{3, 0}, {3, 1}, {4, 0}, {4, 1}, {4, 2}};
  BOOST_TEST((trace.further_waits == expected));
}

BOOST_AUTO_TEST_CASE(runtime_and_driver_records_of_one_launch_are_one_launch) {
  CannedStep step;
  const OpId id = step.kernel_op("gemm");
  step.buffer.call(10, 1105, 1108, id, testing::kThread, CUPTI_ACTIVITY_KIND_DRIVER);
  step.buffer.call(10, 1100, 1110, id);
  step.buffer.link(10, 777, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1);  // another library's
  // The work may start before the call returns; the schema has launches end before.
  step.buffer.kernel(10, 7, 1109, 1300);
  const StepTrace trace = step.trace();
  BOOST_TEST(trace.records.at(0).name == "gemm");
  BOOST_TEST(trace.records[0].launch_start_ns == 1100);
  BOOST_TEST(trace.records[0].launch_end_ns == 1109);
}

BOOST_AUTO_TEST_CASE(several_kernels_of_an_op_share_its_name_and_book_its_work_once) {
  CannedStep step;
  DeviceOp op;
  op.tag = {"permute.forward", 0, 0, 500, 80, false};
  const OpId id = step.op(op);
  step.buffer.call(10, 1010, 1011, id);
  step.buffer.kernel(10, 7, 1100, 1120, "_Z5countPi");
  step.buffer.call(11, 1012, 1013, id);
  step.buffer.kernel(11, 7, 1130, 1190, "_Z7scatterPi");
  step.buffer.call(12, 1014, 1015, id);
  step.buffer.fill(12, 7, 1195, 1196, 4096);
  const DeviceStep converted = step.convert();
  const auto& records = converted.ranks.at(0).trace.records;
  BOOST_REQUIRE_EQUAL(records.size(), 3U);
  int64_t flops = 0;
  int64_t bytes = 0;
  for (const TraceRecord& record : records) {
    BOOST_TEST(record.name == "permute.forward");
    BOOST_TEST((record.kind == RecordKind::kernel));  // its fill, too, is its work
    flops += record.flops;
    bytes += record.bytes;
  }
  BOOST_TEST(flops == 500);
  BOOST_TEST(bytes == 80);
  BOOST_TEST(records[1].flops == 500);
  const std::vector<std::string> details = {"count", "scatter", "fill"};
  BOOST_TEST(converted.ranks[0].details == details, boost::test_tools::per_element());
}

struct CopyCase {
  CUpti_ActivityMemcpyKind copy;
  bool is_labelled;
  RecordKind expected;
  const char* name;
};
std::ostream& operator<<(std::ostream& out, const CopyCase& c) {
  return out << c.copy << (c.is_labelled ? " labelled" : "");
}
const std::vector<CopyCase> kCopyCases = {
    {CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, true, RecordKind::memcpy, "op"},
    {CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, true, RecordKind::memcpy, "op"},
    {CUPTI_ACTIVITY_MEMCPY_KIND_PTOP, true, RecordKind::memcpy, "op"},
    {CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, true, RecordKind::kernel, "op"},
    {CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, false, RecordKind::memcpy, "copy to_device"},
    {CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, false, RecordKind::memcpy, "copy to_host"},
    {CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, false, RecordKind::memcpy, "copy on_device"},
    {CUPTI_ACTIVITY_MEMCPY_KIND_HTOH, false, RecordKind::memcpy, "copy on_host"},
    {CUPTI_ACTIVITY_MEMCPY_KIND_UNKNOWN, false, RecordKind::memcpy, "copy"},
};

BOOST_DATA_TEST_CASE(copies, data::make(kCopyCases), c) {
  CannedStep step;
  const OpId id = c.is_labelled ? step.kernel_op("op") : kNoOp;
  step.buffer.call(10, 1010, 1011, id);
  step.buffer.copy(10, 7, 1100, 1200, c.copy, 640);
  const StepTrace trace = step.trace();
  BOOST_REQUIRE_EQUAL(trace.records.size(), 1U);
  BOOST_TEST((trace.records[0].kind == c.expected));
  BOOST_TEST(trace.records[0].name == c.name);
  if (c.expected == RecordKind::memcpy) BOOST_TEST(trace.records[0].bytes == 640);
}

BOOST_AUTO_TEST_CASE(peer_copies_and_fills_without_op) {
  CannedStep step;
  step.buffer.call(10, 1010, 1011);
  step.buffer.peer_copy(10, 7, 1100, 1200, 640);
  step.buffer.call(11, 1012, 1013);
  step.buffer.fill(11, 7, 1200, 1210, 64);
  const DeviceStep converted = step.convert();
  const auto& records = converted.ranks.at(0).trace.records;
  BOOST_TEST(records.at(0).name == "copy peer");
  BOOST_TEST(records.at(1).name == "fill");
  BOOST_TEST((records[1].kind == RecordKind::memcpy));
  BOOST_TEST(records[1].bytes == 64);
  BOOST_TEST(converted.facts.num_unlabelled == 2);
}

BOOST_AUTO_TEST_CASE(copy_is_found_by_its_runtime_correlation_id) {
  CannedStep step;
  const OpId id = step.kernel_op("load");
  step.buffer.call(10, 1010, 1011, id);
  CUpti_ActivityMemcpy6 copy{};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  copy.flags = CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC;
  copy.correlationId = 11;
  copy.runtimeCorrelationId = 10;
  copy.start = 1100;
  copy.end = 1200;
  step.buffer.add(copy);
  const StepTrace trace = step.trace();
  BOOST_TEST(trace.records.at(0).name == "load");
  BOOST_TEST(trace.records[0].launch_end_ns == 1011);
}

BOOST_AUTO_TEST_CASE(communication_is_one_record_of_its_op) {
  CannedStep step;
  const OpId dispatch = step.comm_op("dispatch.forward", "ep", 1, 17);
  step.ops.ops.back().tag.bytes = 4096;
  step.buffer.call(10, 1010, 1011, dispatch);
  step.buffer.copy(10, 20, 1100, 1110, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, 64);
  step.buffer.call(11, 1012, 1013, dispatch);
  step.buffer.kernel(11, 20, 1120, 1220, "_Z26ncclDevKernel_SendRecv4096P4args");
  const DeviceStep converted = step.convert();
  const auto& records = converted.ranks.at(0).trace.records;
  BOOST_REQUIRE_EQUAL(records.size(), 1U);
  BOOST_TEST((records[0].kind == RecordKind::collective));
  BOOST_TEST(records[0].group == "ep");
  BOOST_TEST(records[0].sequence == 17);
  BOOST_TEST(records[0].bytes == 4096);
  BOOST_TEST(records[0].stream == 1);
  BOOST_TEST(records[0].launch_end_ns == 1011);
  BOOST_TEST(records[0].start_ns == 1100);
  BOOST_TEST(records[0].end_ns == 1220);
  BOOST_TEST(records[0].transfer_ns == 120);
  BOOST_TEST(converted.ranks[0].details.at(0) == "ncclDevKernel_SendRecv4096");
}

BOOST_AUTO_TEST_CASE(nccl_without_op_is_still_communication) {
  CannedStep step;
  step.buffer.call(11, 1012, 1013);
  step.buffer.kernel(11, 20, 1120, 1220, "ncclDevKernel_AllReduce_Sum_bf16");
  const StepTrace trace = step.trace();
  BOOST_TEST((trace.records.at(0).kind == RecordKind::collective));
  BOOST_TEST(trace.records[0].group == "nccl");
  BOOST_TEST(trace.records[0].name == "ncclDevKernel_AllReduce_Sum_bf16");
}

BOOST_AUTO_TEST_CASE(streams_wait_for_the_event_as_it_was_recorded) {
  CannedStep step;
  const OpId gemm = step.kernel_op("gemm", 0);
  const OpId late = step.kernel_op("late", 0);
  const OpId send = step.comm_op("dispatch", "ep", 1);
  step.buffer.call(10, 1010, 1011, gemm);
  step.buffer.kernel(10, 7, 1100, 1200);
  step.buffer.event(11, 7, 501);
  step.buffer.call(12, 1020, 1021, late);
  step.buffer.kernel(12, 7, 1200, 1400);
  step.buffer.event(13, 7, 502);  // the same event, later: nobody waits for this record of it
  step.buffer.wait(14, 20, 501);
  step.buffer.call(15, 1030, 1031, send);
  step.buffer.kernel(15, 20, 1200, 1300, "ncclDevKernel");
  step.buffer.wait(16, 20, 999);  // recorded before the step
  const DeviceStep converted = step.convert();
  const StepTrace& trace = converted.ranks.at(0).trace;
  BOOST_TEST(find(trace, "dispatch")->producer_id == find(trace, "gemm")->id);
  BOOST_TEST(find(trace, "late")->producer_id == kNoRecord);
  BOOST_TEST(converted.facts.num_waits == 2);
  BOOST_TEST(converted.facts.num_unresolved_waits == 1);
  BOOST_TEST(missing_text(converted.facts) == "");
  RecordingFacts lossy = converted.facts;
  lossy.num_dropped = 2;
  BOOST_TEST(missing_text(lossy) ==
             "the device trace is incomplete: records dropped for lack of buffers: 2; waits for "
             "unknown events: 1");
  // Records that another step has lost do not make this one's waits lack something.
  RecordingCounts both = converted.facts;
  both.num_unresolved_waits = 0;
  both += lossy;
  both += converted.facts;
  BOOST_TEST(missing_text(both) == missing_text(lossy));
  BOOST_TEST(both.num_waits == 6);
}

BOOST_AUTO_TEST_CASE(of_several_waits_the_latest_to_end_is_the_producer) {
  CannedStep step;
  const OpId a = step.kernel_op("a", 0);
  const OpId b = step.kernel_op("b", 1);
  const OpId c = step.kernel_op("c", 2);
  step.buffer.call(10, 1010, 1011, a);
  step.buffer.kernel(10, 7, 1100, 1500);
  step.buffer.event(11, 7, 501);
  step.buffer.call(12, 1020, 1021, b);
  step.buffer.kernel(12, 8, 1100, 1200);
  step.buffer.event(13, 8, 502);
  step.buffer.wait(14, 9, 501);
  step.buffer.wait(15, 9, 502);
  step.buffer.call(16, 1030, 1031, c);
  step.buffer.kernel(16, 9, 1500, 1600);
  step.buffer.call(17, 1040, 1041, c);
  step.buffer.kernel(17, 9, 1600, 1700);
  const StepTrace trace = step.trace();
  BOOST_TEST(trace.records.at(2).producer_id == 0);
  BOOST_TEST(trace.records.at(3).producer_id == kNoRecord);  // only stream order
}

struct SyncCase {
  CUpti_ActivitySynchronizationType type;
  uint32_t stream;
  uint64_t sync_id;
  int64_t producer_id;
  const char* name;
};
std::ostream& operator<<(std::ostream& out, const SyncCase& c) { return out << c.name; }
const uint64_t kInvalid = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
const std::vector<SyncCase> kSyncCases = {
    {CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE, 7, kInvalid, 0, "stream_synchronize"},
    {CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE, 8, kInvalid, 1, "stream_synchronize"},
    {CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE, 9, kInvalid, -1, "stream_synchronize"},
    {CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE, 0, kInvalid, 1, "device_synchronize"},
    {CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE, 0, 501, 0, "event_synchronize"},
    {CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE, 0, 502, -1, "event_synchronize"},
    {CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_UNKNOWN, 7, kInvalid, -1, "synchronize"},
};

BOOST_DATA_TEST_CASE(host_synchronisations, data::make(kSyncCases), c) {
  CannedStep step;
  const OpId gemm = step.kernel_op("gemm", 0);
  const OpId copy = step.kernel_op("copy", 1);
  step.buffer.call(10, 1010, 1011, gemm);
  step.buffer.kernel(10, 7, 1100, 1200);
  step.buffer.event(11, 7, 501);
  step.buffer.call(12, 1020, 1021, copy);
  step.buffer.kernel(12, 8, 1100, 1300);
  step.buffer.sync(c.type, 13, c.stream, 1050, 1310, c.sync_id);
  const StepTrace trace = step.trace();
  BOOST_REQUIRE_EQUAL(trace.records.size(), 3U);
  const TraceRecord& sync = trace.records[2];
  BOOST_TEST((sync.kind == RecordKind::host_sync));
  BOOST_TEST(sync.name == c.name);
  BOOST_TEST(sync.stream == kHostStream);
  BOOST_TEST(sync.producer_id == c.producer_id);
  BOOST_TEST(sync.start_ns == 1050);
  BOOST_TEST(sync.end_ns == 1310);
}

BOOST_AUTO_TEST_CASE(synchronisation_is_named_by_its_op_and_a_failed_query_is_none) {
  CannedStep step;
  DeviceOp op;
  op.tag.name = "host_sync.update";
  op.kind = RecordKind::host_sync;
  const OpId id = step.op(op);
  step.buffer.link(10, id);
  step.buffer.sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE, 10, 0, 1500, 1600);
  step.buffer.sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE, 11, 0, 1601, 1602, 501,
                   600);
  step.buffer.link(12, kRecorderOp);
  step.buffer.sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE, 12, 0, 1700, 1800);
  const StepTrace trace = step.trace();
  BOOST_REQUIRE_EQUAL(trace.records.size(), 1U);
  BOOST_TEST(trace.records[0].name == "host_sync.update");
}

void check_blocking_copy(const StepTrace& trace) {
  BOOST_REQUIRE_EQUAL(trace.records.size(), 2U);
  BOOST_TEST((trace.records[0].kind == RecordKind::memcpy));
  BOOST_TEST(trace.records[0].launch_end_ns == 1010);
  BOOST_TEST((trace.records[1].kind == RecordKind::host_sync));
  BOOST_TEST(trace.records[1].start_ns == 1010);
  BOOST_TEST(trace.records[1].end_ns == 1330);
  BOOST_TEST(trace.records[1].producer_id == 0);
}

BOOST_AUTO_TEST_CASE(host_waits_in_a_blocking_copy) {
  CannedStep step;
  const OpId id = step.kernel_op("loss", 0);
  step.buffer.call(10, 1010, 1330, id);
  step.buffer.copy(10, 7, 1300, 1320, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, 8, false);
  check_blocking_copy(step.trace());
}

BOOST_AUTO_TEST_CASE(host_waits_for_a_copy_to_memory_that_is_not_pinned) {
  CannedStep step;
  const OpId id = step.kernel_op("loss", 0);
  step.buffer.call(10, 1010, 1330, id);
  step.buffer.copy(10, 7, 1300, 1320, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, 8, true,
                   CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE);
  check_blocking_copy(step.trace());
}

BOOST_AUTO_TEST_CASE(records_come_in_any_order) {
  CannedStep step;
  std::vector<OpId> ops;
  for (int i = 0; i < 6; ++i) {
    ops.push_back(i % 3 == 2 ? step.comm_op("reduce", "dp", 1, i)
                             : step.kernel_op(i % 2 == 0 ? "gemm" : "norm"));
  }
  for (uint32_t i = 0; i < 6; ++i) {
    const uint32_t correlation = 0xFFFFFFF0U + i * 8;  // the counter wraps on the way
    const uint32_t stream = i % 3 == 2 ? 20 : 7;
    step.buffer.wait(correlation, stream, 500 + i - 1);
    step.buffer.call(correlation + 1, 1010 + i, 1011 + i, ops[i]);
    step.buffer.kernel(correlation + 1, stream, 1100 + 100 * i, 1190 + 100 * i);
    step.buffer.event(correlation + 2, stream, 500 + i);
  }
  step.buffer.sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE, 100, 0, 1200, 1700);
  const StepTrace expected = step.trace();
  BOOST_REQUIRE_EQUAL(expected.records.size(), 7U);
  for (size_t i = 0; i < 6; ++i) {
    BOOST_TEST(expected.records[i].start_ns == 1100 + 100 * static_cast<int64_t>(i));
    BOOST_TEST(expected.records[i].producer_id == static_cast<int64_t>(i) - 1);
  }
  BOOST_TEST(expected.records[6].producer_id == 5);
  std::mt19937_64 random(4);
  for (int round = 0; round < 50; ++round) {
    step.buffer.shuffle(random);
    const StepTrace trace = step.trace();
    BOOST_REQUIRE_EQUAL(trace.records.size(), expected.records.size());
    for (size_t i = 0; i < trace.records.size(); ++i) {
      BOOST_TEST(is_same(trace.records[i], expected.records[i]), "record " << i);
    }
  }
}

BOOST_AUTO_TEST_CASE(what_cannot_be_used_is_dropped_and_counted) {
  CannedStep step;
  const OpId id = step.kernel_op("gemm");
  step.buffer.call(10, 1010, 1011, id);
  step.buffer.kernel(10, 7, 0, 0);
  step.buffer.kernel(11, 7, 1300, 1200);
  step.buffer.kernel(12, 7, 100, 200);                 // an earlier step
  step.buffer.kernel(13, 7, 2100, 2200);               // a later one
  step.buffer.link(14, 12345);                         // an op of another step
  step.buffer.kernel(14, 7, 1400, 1500, "_Z5otherv");  // whose call was not recorded
  CUpti_ActivityDevice5 device{};
  device.kind = CUPTI_ACTIVITY_KIND_DEVICE;
  step.buffer.add(device);
  const DeviceStep converted = step.convert();
  BOOST_REQUIRE_EQUAL(converted.ranks.at(0).trace.records.size(), 1U);
  const TraceRecord& record = converted.ranks[0].trace.records[0];
  BOOST_TEST(record.name == "other");
  BOOST_TEST(record.launch_end_ns == 1000);
  BOOST_TEST(converted.facts.num_untimed == 2);
  BOOST_TEST(converted.facts.num_outside == 2);
  BOOST_TEST(converted.facts.num_unlabelled == 1);
  BOOST_TEST(converted.facts.num_without_launch == 1);
  BOOST_TEST(converted.facts.num_unknown == 1);
  BOOST_TEST(converted.facts.num_broken_buffers == 0);
  BOOST_TEST(converted.facts.num_records == 9);
}

BOOST_AUTO_TEST_CASE(step_lasts_until_its_last_record_ends) {
  CannedStep step;
  step.buffer.call(10, 1010, 1011);
  step.buffer.kernel(10, 7, 1900, 2100);
  BOOST_TEST(step.trace().end_ns == 2100);
}

BOOST_AUTO_TEST_CASE(overheads_are_summed_within_the_step) {
  CannedStep step;
  step.buffer.overhead(CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING, 1100, 1200);
  step.buffer.overhead(CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING, 900, 1010);
  step.buffer.overhead(CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL, 1500, 1700);
  step.buffer.overhead(static_cast<CUpti_ActivityOverheadKind>(99 << 16), 1500, 1501);
  step.buffer.overhead(CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH, 3000, 4000);
  const std::vector<OverheadSum> sums = step.convert().facts.overheads;
  BOOST_REQUIRE_EQUAL(sums.size(), 3U);
  BOOST_TEST(sums[0].name == "command buffer full");
  BOOST_TEST(sums[0].ns == 200);
  BOOST_TEST(sums[1].name == "lazy function loading");
  BOOST_TEST(sums[1].ns == 110);
  BOOST_TEST(sums[1].count == 2);
  BOOST_TEST(sums[2].name == "unknown overhead");
}

BOOST_AUTO_TEST_CASE(short_names) {
  BOOST_TEST(short_kernel_name("_ZN7moetune4cuda8rms_normI13__nv_bfloat16EEvPKT_Pfl") ==
             "rms_norm");
  BOOST_TEST(short_kernel_name("ncclDevKernel_AllGather") == "ncclDevKernel_AllGather");
  BOOST_TEST(short_kernel_name("sm90_xmma_gemm_bf16") == "sm90_xmma_gemm_bf16");
  BOOST_TEST(short_kernel_name("_ZN12_GLOBAL__N_16gatherEPKi") == "gather");
  BOOST_TEST(short_kernel_name("_ZN7cutlass13device_kernelINS_4gemm6kernel4UnivIfEEEEvv") ==
             "device_kernel");
  BOOST_TEST(short_kernel_name("").empty());
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
