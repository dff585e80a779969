// The recorder against a CUPTI that does what the test wants: notes for each way it can be missing,
// the order of its calls, ops, labels of graphs, and buffers that all come back.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <thread>

#include "profiler/device/cupti_recorder.h"
#include "tests/profiler_cupti/fake/fake_cupti.h"

namespace moetune::profiler {
namespace {

namespace data = boost::unit_test::data;

DeviceOp op_named(const char* name) {
  DeviceOp op;
  op.tag.name = name;
  return op;
}

/// A kernel launched now by this thread, which runs at once.
void launch(uint32_t correlation, uint64_t node = 0, uint32_t stream = 7) {
  if (fake::current_op() != 0) {
    CUpti_ActivityExternalCorrelation link{};
    link.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    link.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    link.externalId = fake::current_op();
    link.correlationId = correlation;
    fake::write(link);
  }
  CUpti_ActivityAPI call{};
  call.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  call.correlationId = correlation;
  call.start = fake::now();
  call.end = fake::now();
  fake::write(call);
  CUpti_ActivityKernel10 kernel{};
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.correlationId = correlation;
  kernel.streamId = stream;
  kernel.graphNodeId = node;
  kernel.start = fake::now();
  kernel.end = fake::now();
  kernel.name = "_Z4gemmPf";
  fake::write(kernel);
}

struct RecorderFixture {
  RecorderFixture() { fake::reset(); }
};

struct NoteCase {
  const char* part;  ///< of the note
  std::function<void(fake::Machine&)> break_it;
};
std::ostream& operator<<(std::ostream& out, const NoteCase& c) { return out << c.part; }
const std::vector<NoteCase> kNoteCases = {
    {"there is no NVIDIA driver", [](fake::Machine& m) { m.driver_version = 0; }},
    {"there is no usable GPU: driver version is insufficient",
     [](fake::Machine& m) { m.num_devices = 0; }},
    {"libcupti has version 18, this build needs", [](fake::Machine& m) { m.cupti_version = 18; }},
    {"another tool is attached: Nsight Systems; run without nsys",
     [](fake::Machine& m) {
       m.subscribe_result = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
       m.subscriber = "Nsight Systems";
     }},
    {"another tool is attached; run without nsys",
     [](fake::Machine& m) { m.subscribe_result = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED; }},
    {"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35); it needs root, CAP_PERFMON",
     [](fake::Machine& m) { m.subscribe_result = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES; }},
    {"CUPTI_ERROR_NOT_COMPATIBLE (14); the driver",
     [](fake::Machine& m) { m.clock_result = CUPTI_ERROR_NOT_COMPATIBLE; }},
    {"kind 10: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)",
     [](fake::Machine& m) {
       m.failing_kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
       m.enable_result = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
     }},
};

BOOST_FIXTURE_TEST_SUITE(recorder_on_a_fake, RecorderFixture)

BOOST_DATA_TEST_CASE(what_is_missing_is_a_note_and_the_run_goes_on, data::make(kNoteCases), c) {
  c.break_it(fake::machine);
  const std::unique_ptr<DeviceRecorder> recorder = make_cupti_recorder(0);
  recorder->begin_step(0);
  { const DeviceOpScope scope(recorder.get(), op_named("gemm")); }
  const DeviceStep step = recorder->end_step();
  BOOST_TEST_MESSAGE(recorder->note());
  BOOST_TEST(!recorder->is_active());
  BOOST_TEST(recorder->note().starts_with("GPU activity is not traced: "));
  BOOST_TEST(recorder->note().find(c.part) != std::string::npos);
  BOOST_TEST(step.ranks.at(0).trace.records.empty());
  BOOST_TEST(!fake::machine.is_subscribed);
}

BOOST_AUTO_TEST_CASE(a_kind_that_is_refused_costs_only_itself) {
  fake::machine.failing_kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  fake::machine.enable_result = CUPTI_ERROR_INVALID_KIND;
  const std::unique_ptr<DeviceRecorder> recorder = make_cupti_recorder(0);
  recorder->begin_step(0);
  BOOST_TEST(recorder->is_active());
  BOOST_TEST(recorder->note() ==
             "GPU activity is traced in part: kind 17: CUPTI_ERROR_INVALID_KIND (21).");
  launch(1);
  BOOST_TEST(recorder->end_step().ranks.at(0).trace.records.size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_step_in_the_right_order_of_calls) {
  {
    DeviceRecorderOptions options;
    options.ranks = {3};
    const std::unique_ptr<DeviceRecorder> recorder = make_cupti_recorder(options);
    BOOST_TEST(recorder->note().empty());
    const std::unique_ptr<DeviceRecorder> second = make_cupti_recorder(3);
    BOOST_TEST(second->note().find("already has a recorder") != std::string::npos);
    BOOST_TEST(recorder->device_buffer_bytes() == 9600000);
    BOOST_TEST(fake::machine.enabled.empty());  // nothing before the first traced step
    for (int number = 0; number < 3; ++number) {
      recorder->begin_step(number);
      DeviceOp outer = op_named("outer");
      outer.rank = 3;
      DeviceOp inner = op_named("inner");
      inner.rank = 3;
      inner.kind = RecordKind::collective;
      inner.group = "ep";
      {
        const DeviceOpScope scope(recorder.get(), outer);
        launch(100);
        second->begin_step(number);
        second->end_step();
        {
          DeviceOpScope nested(recorder.get(), inner);
          launch(101, 0, 8);
          nested.set_communication(4096, 6);
        }
        launch(102);
      }
      fake::machine.num_dropped += 5;
      const DeviceStep step = recorder->end_step();
      const StepTrace& trace = step.ranks.at(0).trace;
      BOOST_REQUIRE_EQUAL(trace.records.size(), 3U);
      BOOST_TEST(trace.rank == 3);
      BOOST_TEST(trace.step == number);
      BOOST_TEST(trace.records[0].name == "outer");
      BOOST_TEST(trace.records[1].name == "inner");
      BOOST_TEST(trace.records[1].bytes == 4096);
      BOOST_TEST(trace.records[1].sequence == 6);
      BOOST_TEST(trace.records[2].name == "outer");
      BOOST_TEST(trace.records[0].start_ns >= trace.start_ns);
      BOOST_TEST(trace.records[2].end_ns <= trace.end_ns);
      BOOST_TEST(step.facts.num_dropped == 5);
      BOOST_TEST(step.facts.num_outside == (number == 0 ? 0 : 1));
      BOOST_TEST(missing_text(step.facts) ==
                 "the device trace is incomplete: records dropped for lack of buffers: 5");
      BOOST_TEST(fake::current_op() == 0U);
      launch(200);  // between steps: in nobody's trace, like what was dropped there
      fake::machine.num_dropped = 9;
    }
    BOOST_TEST(fake::machine.enabled.size() == 10U);
    // The kind is on, and what is switched off are calls that launch nothing.
    BOOST_TEST(fake::machine.enabled.contains(CUPTI_ACTIVITY_KIND_DRIVER));
    BOOST_TEST(fake::machine.driver_calls_off.contains(CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion));
    BOOST_TEST(!fake::machine.driver_calls_off.contains(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx));
  }
  BOOST_TEST(!fake::machine.was_enabled_before_clock);
  BOOST_TEST(!fake::machine.was_flushed_unsynchronised);
  BOOST_TEST(!fake::machine.was_flushed_softly);
  BOOST_TEST(fake::machine.enabled.empty());
  BOOST_TEST(!fake::machine.is_subscribed);
  BOOST_TEST(fake::machine.num_buffers_out == 0);
  BOOST_TEST(fake::machine.num_refused == 0);
}

BOOST_AUTO_TEST_CASE(between_distant_steps_it_pauses) {
  const std::unique_ptr<DeviceRecorder> recorder = make_cupti_recorder(0);
  recorder->pause();
  recorder->begin_step(0);
  launch(1);
  recorder->end_step();
  recorder->pause();
  BOOST_TEST(fake::machine.enabled.empty());
  BOOST_TEST(fake::machine.num_buffers_out == 0);
  recorder->begin_step(1);
  BOOST_TEST(fake::machine.enabled.size() == 10U);
  launch(2);
  BOOST_TEST(recorder->end_step().ranks.at(0).trace.records.size() == 1U);
}

BOOST_AUTO_TEST_CASE(less_detail_enables_less) {
  DeviceRecorderOptions options;
  options.detail = DeviceDetail::kernels;
  options.use_whole_graphs = true;
  const std::unique_ptr<DeviceRecorder> recorder = make_cupti_recorder(options);
  recorder->begin_step(0);
  const std::set<CUpti_ActivityKind> expected = {
      CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
      CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_GRAPH_TRACE};
  BOOST_TEST((fake::machine.enabled == expected));
  recorder->end_step();
}

BOOST_AUTO_TEST_CASE(all_driver_calls_come_back_on_demand) {
  for (const bool use_all : {false, true}) {
    DeviceRecorderOptions options;
    options.use_all_driver_calls = use_all;
    const std::unique_ptr<DeviceRecorder> recorder = make_cupti_recorder(options);
    recorder->begin_step(0);
    const bool is_off =
        fake::machine.driver_calls_off.contains(CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion);
    BOOST_TEST(is_off == !use_all);
    recorder->end_step();
  }
}

BOOST_AUTO_TEST_CASE(all_driver_calls_where_some_cannot_be_chosen) {
  fake::machine.driver_api_result = CUPTI_ERROR_NOT_SUPPORTED;
  const std::unique_ptr<DeviceRecorder> recorder = make_cupti_recorder(0);
  recorder->begin_step(0);
  BOOST_TEST(fake::machine.enabled.contains(CUPTI_ACTIVITY_KIND_DRIVER));
  recorder->end_step();
}

BOOST_AUTO_TEST_CASE(nodes_captured_before_the_first_step_keep_their_op_when_replayed) {
  const std::unique_ptr<DeviceRecorder> recorder = make_cupti_recorder(0);
  {
    DeviceOp op = op_named("norm");
    op.tag.layer = 2;
    const DeviceOpScope scope(recorder.get(), op);
    fake::create_node(1);
  }
  {
    const DeviceOpScope scope(recorder.get(), op_named("attn"));
    fake::create_node(2);
  }
  fake::create_node(3);
  fake::depend(2, 1);
  for (uint64_t node = 1; node <= 3; ++node) {
    fake::create_node(100 + node);  // some drivers may tell of clones twice
    fake::clone_node(node, 100 + node);
    fake::clone_node(100 + node, 200 + node);  // a clone of a clone
    fake::create_node(200 + node);
  }
  recorder->begin_step(0);
  {
    DeviceOp op = op_named("replay");
    op.tag.micro_batch = 1;
    const DeviceOpScope scope(recorder.get(), op);
    launch(10, 201, 7);
    CUpti_ActivityKernel10 node{};
    node.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    node.correlationId = 10;
    node.name = "_Z4attnv";
    node.start = node.end = fake::now();
    node.streamId = 31;
    node.graphNodeId = 202;
    fake::write(node);
    node.graphNodeId = 203;
    node.start = node.end = fake::now();
    fake::write(node);
  }
  const DeviceStep step = recorder->end_step();
  const auto& records = step.ranks.at(0).trace.records;
  BOOST_REQUIRE_EQUAL(records.size(), 3U);
  BOOST_TEST(records[0].name == "norm");
  BOOST_TEST(records[0].layer == 2);
  BOOST_TEST(records[0].micro_batch == 1);
  BOOST_TEST(records[1].name == "attn");
  BOOST_TEST(records[1].producer_id == 0);
  BOOST_TEST(records[2].name == "replay");
}

BOOST_AUTO_TEST_CASE(captured_communication_has_its_bytes_and_an_instance_for_each_replay) {
  const std::unique_ptr<DeviceRecorder> recorder = make_cupti_recorder(0);
  {
    DeviceOp op = op_named("dispatch");
    op.kind = RecordKind::collective;
    op.group = "ep";
    DeviceOpScope scope(recorder.get(), op);
    fake::create_node(1);
    scope.set_communication(4096, 5);
  }
  fake::clone_node(1, 2);
  recorder->begin_step(0);
  launch(10, 2);
  launch(11, 2);
  const DeviceStep step = recorder->end_step();
  const auto& records = step.ranks.at(0).trace.records;
  BOOST_REQUIRE_EQUAL(records.size(), 2U);
  for (const TraceRecord& record : records) {
    BOOST_TEST((record.kind == RecordKind::collective));
    BOOST_TEST(record.bytes == 4096);
    BOOST_TEST(record.sequence % (int64_t{1} << 32) == 5);
  }
  BOOST_TEST(records[0].sequence != records[1].sequence);
}

BOOST_AUTO_TEST_CASE(more_than_one_buffer_and_more_than_there_are) {
  const std::unique_ptr<DeviceRecorder> recorder = make_cupti_recorder(0);
  recorder->begin_step(0);
  // 8 MB hold some 30,000 of these launches.
  constexpr uint32_t kLaunches = 70000;
  {
    const DeviceOpScope scope(recorder.get(), op_named("gemm"));
    for (uint32_t i = 0; i < kLaunches; ++i) launch(i + 1);
  }
  const DeviceStep step = recorder->end_step();
  BOOST_TEST(step.ranks.at(0).trace.records.size() == kLaunches);
  BOOST_TEST(step.facts.num_records == 3 * kLaunches);
  BOOST_TEST(fake::machine.num_buffers_out == 0);
}

BOOST_AUTO_TEST_CASE(ops_of_several_threads) {
  DeviceRecorderOptions options;
  options.ranks = {0, 1, 2};
  const std::unique_ptr<DeviceRecorder> recorder = make_cupti_recorder(options);
  recorder->begin_step(0);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      for (int i = 0; i < 200; ++i) {
        DeviceOp op = op_named("gemm");
        op.rank = rank;
        const DeviceOpScope scope(recorder.get(), op);
        fake::create_node(1000U * (rank + 1) + i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const DeviceStep step = recorder->end_step();
  BOOST_TEST(step.ranks.size() == 3U);
}

BOOST_AUTO_TEST_CASE(when_cupti_gives_up_the_run_goes_on) {
  const std::unique_ptr<DeviceRecorder> recorder = make_cupti_recorder(0);
  recorder->begin_step(0);
  fake::fail_fatally("out of device memory");
  BOOST_TEST(recorder->end_step().ranks.at(0).trace.records.empty());
  BOOST_TEST(recorder->note() ==
             "GPU activity is no longer traced: CUPTI gave up: CUPTI_ERROR_HARDWARE (9): out of "
             "device memory.");
  const int num_flushes = fake::machine.num_flushes;
  recorder->begin_step(1);
  recorder->end_step();
  BOOST_TEST(fake::machine.num_flushes == num_flushes);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::profiler
