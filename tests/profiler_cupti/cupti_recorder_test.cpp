// The recorder where there is no GPU, which is a note and no error; with one where there is one;
// and the pool of buffers under threads.
#include "profiler/device/cupti_recorder.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <set>
#include <thread>

#include "profiler/analysis/budget.h"
#include "profiler/device/activity_buffers.h"

namespace moetune::profiler {
namespace {

bool has_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

DeviceOp op_named(const char* name, int32_t stream = 0) {
  DeviceOp op;
  op.tag.name = name;
  op.stream = stream;
  return op;
}

BOOST_AUTO_TEST_SUITE(cupti_recorder)

BOOST_AUTO_TEST_CASE(without_a_gpu_it_says_so_and_does_nothing) {
  BOOST_TEST(has_cupti());
  if (has_gpu()) return;
  for (int round = 0; round < 2; ++round) {
    DeviceRecorderOptions options;
    options.ranks = {2, 3};
    const std::unique_ptr<DeviceRecorder> recorder = make_cupti_recorder(options);
    BOOST_REQUIRE(recorder != nullptr);
    BOOST_TEST_MESSAGE(recorder->note());
    BOOST_TEST(!recorder->is_active());
    BOOST_TEST(recorder->note().starts_with("GPU activity is not traced: there is no "));
    BOOST_TEST(recorder->note().back() == '.');
    recorder->begin_step(9);
    {
      DeviceOpScope scope(recorder.get(), op_named("gemm"));
      scope.set_communication(1, 2);
    }
    recorder->pop_op();
    const DeviceStep step = recorder->end_step();
    BOOST_REQUIRE_EQUAL(step.ranks.size(), 2U);
    BOOST_TEST(step.ranks[1].trace.rank == 3);
    BOOST_TEST(step.ranks[1].trace.step == 9);
    BOOST_TEST(step.ranks[1].trace.records.empty());
    BOOST_TEST(step.ranks[1].trace.end_ns >= step.ranks[1].trace.start_ns);
    BOOST_TEST(missing_text(step.facts).empty());
    BOOST_TEST(recorder->device_buffer_bytes() == 0);
  }
}

BOOST_AUTO_TEST_CASE(scope_without_recorder_does_nothing) {
  DeviceOpScope scope(nullptr, op_named("gemm"));
  scope.set_communication(1, 2);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(on_a_gpu)

void check(cudaError_t error) {
  BOOST_REQUIRE_MESSAGE(error == cudaSuccess, cudaGetErrorString(error));
}

/// Two streams and some memory; fills and copies are all the device work that needs no kernel.
struct Gpu {
  Gpu() {
    check(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    check(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    check(cudaMalloc(&memory, kBytes));
    check(cudaMalloc(&other, kBytes));
  }
  ~Gpu() {
    cudaFree(memory);
    cudaFree(other);
    cudaEventDestroy(event);
    cudaStreamDestroy(first);
    cudaStreamDestroy(second);
  }
  static constexpr size_t kBytes = 64 << 20;
  cudaStream_t first = nullptr;
  cudaStream_t second = nullptr;
  cudaEvent_t event = nullptr;
  void* memory = nullptr;
  void* other = nullptr;
};

BOOST_AUTO_TEST_CASE(one_step_with_events_and_a_graph) {
  if (!has_gpu()) {
    BOOST_TEST_MESSAGE("skipped: no GPU");
    return;
  }
  const std::unique_ptr<DeviceRecorder> recorder = make_cupti_recorder(0);
  BOOST_REQUIRE_MESSAGE(recorder->is_active(), recorder->note());
  const std::unique_ptr<DeviceRecorder> another = make_cupti_recorder(0);
  BOOST_TEST(!another->is_active());
  BOOST_TEST_MESSAGE(another->note());

  Gpu gpu;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  check(cudaStreamBeginCapture(gpu.first, cudaStreamCaptureModeThreadLocal));
  {
    const DeviceOpScope scope(recorder.get(), op_named("captured"));
    check(cudaMemsetAsync(gpu.memory, 1, Gpu::kBytes, gpu.first));
  }
  check(cudaStreamEndCapture(gpu.first, &graph));
  check(cudaGraphInstantiate(&replay, graph, 0));

  for (int number = 0; number < 2; ++number) {  // the first step sets CUPTI up
    recorder->begin_step(number);
    {
      const DeviceOpScope scope(recorder.get(), op_named("produce", 0));
      check(cudaMemsetAsync(gpu.memory, 2, Gpu::kBytes, gpu.first));
    }
    check(cudaEventRecord(gpu.event, gpu.first));
    check(cudaStreamWaitEvent(gpu.second, gpu.event, 0));
    {
      const DeviceOpScope scope(recorder.get(), op_named("consume", 1));
      check(cudaMemcpyAsync(gpu.other, gpu.memory, Gpu::kBytes, cudaMemcpyDeviceToDevice,
                            gpu.second));
    }
    {
      const DeviceOpScope scope(recorder.get(), op_named("replay", 0));
      check(cudaGraphLaunch(replay, gpu.first));
    }
    check(cudaStreamSynchronize(gpu.second));
    const DeviceStep step = recorder->end_step();
    const StepTrace& trace = step.ranks.at(0).trace;
    BOOST_TEST_MESSAGE("note: '" << recorder->note() << "', " << missing_text(step.facts) << ", "
                                 << step.facts.num_records << " records, device buffers "
                                 << recorder->device_buffer_bytes() << " bytes");
    for (size_t i = 0; i < trace.records.size(); ++i) {
      const TraceRecord& r = trace.records[i];
      BOOST_TEST_MESSAGE(r.id << ' ' << name_of(r.kind) << ' ' << r.name << " ("
                              << step.ranks[0].details[i] << ") stream " << r.stream << " launch "
                              << r.launch_start_ns - trace.start_ns << ".."
                              << r.launch_end_ns - trace.start_ns << " run "
                              << r.start_ns - trace.start_ns << ".." << r.end_ns - trace.start_ns
                              << " graph " << r.graph_id << " producer " << r.producer_id);
    }
    for (const OverheadSum& sum : step.facts.overheads) {
      BOOST_TEST_MESSAGE("overhead: " << sum.name << ' ' << sum.count << " x, " << sum.ns << " ns");
    }
    if (number == 0) continue;
    std::set<std::string> names;
    int64_t produce_id = kNoRecord;
    for (const TraceRecord& record : trace.records) {
      names.insert(record.name);
      if (record.name == "produce") produce_id = record.id;
      if (record.name == "consume") BOOST_TEST(record.producer_id == produce_id);
      if (record.name == "captured") BOOST_TEST(record.graph_id == 1);
      // One clock for the host, the device and the step.
      BOOST_TEST(record.start_ns >= trace.start_ns);
      BOOST_TEST(record.end_ns <= trace.end_ns);
    }
    for (const char* name : {"produce", "consume", "captured", "stream_synchronize"}) {
      BOOST_TEST(names.contains(name), name);
    }
    BOOST_TEST(step.facts.num_dropped == 0);
    BOOST_TEST(step.facts.num_untimed == 0);
    BOOST_TEST(step.facts.num_without_launch == 0);
    BOOST_TEST(compute_budget(trace, {}).residual_ns == 0);
  }
  check(cudaGraphExecDestroy(replay));
  check(cudaGraphDestroy(graph));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(activity_buffers)

bool is_zero(const uint8_t* data, size_t bytes) {
  return data[0] == 0 && std::memcmp(data, data + 1, bytes - 1) == 0;
}

BOOST_AUTO_TEST_CASE(hands_out_up_to_its_limit_and_zeroes_what_comes_back) {
  ActivityBuffers buffers(4096, 2);
  buffers.reserve(8);
  BOOST_TEST(buffers.num_buffers() == 2U);
  uint8_t* a = buffers.hand_out();
  uint8_t* b = buffers.hand_out();
  BOOST_REQUIRE(a != nullptr);
  BOOST_REQUIRE(b != nullptr);
  BOOST_TEST(reinterpret_cast<uintptr_t>(a) % 8 == 0U);
  BOOST_TEST(buffers.hand_out() == nullptr);
  BOOST_TEST(buffers.num_refused() == 1);
  std::memset(a, 1, 4096);
  buffers.take_back(a, 100);
  buffers.take_back(a, 100);
  uint8_t stranger = 0;
  buffers.take_back(&stranger, 1);
  BOOST_TEST(buffers.num_strangers() == 2);
  buffers.take_back(b, 0);
  std::vector<ActivityBuffers::Buffer> full = buffers.take_full();
  BOOST_REQUIRE_EQUAL(full.size(), 1U);
  BOOST_TEST(full[0].valid_bytes == 100U);
  BOOST_TEST(buffers.take_full().empty());
  buffers.recycle(std::move(full));
  for (int i = 0; i < 2; ++i) {
    uint8_t* again = buffers.hand_out();
    BOOST_REQUIRE(again != nullptr);
    BOOST_TEST(is_zero(again, 4096));
    buffers.take_back(again, 5000);
  }
  BOOST_TEST(buffers.take_full().at(0).valid_bytes == 4096U);
}

BOOST_AUTO_TEST_CASE(threads_never_share_a_buffer) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 500;
  ActivityBuffers buffers(256, 6);
  buffers.reserve(2);
  std::atomic<int> num_filled{0};
  std::atomic<bool> is_clean{true};
  std::atomic<int> num_running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        uint8_t* buffer = buffers.hand_out();
        if (buffer == nullptr) continue;
        if (!is_zero(buffer, 256)) is_clean = false;
        std::memset(buffer, t + 1, 256);
        if (buffer[0] != buffer[255]) is_clean = false;
        buffers.take_back(buffer, 256);
        ++num_filled;
      }
      --num_running;
    });
  }
  int num_read = 0;
  const auto read = [&] {
    std::vector<ActivityBuffers::Buffer> full = buffers.take_full();
    for (const ActivityBuffers::Buffer& buffer : full) {
      if (buffer.data[0] == 0 || buffer.data[0] != buffer.data[255]) is_clean = false;
      ++num_read;
    }
    buffers.recycle(std::move(full));
  };
  while (num_running > 0) read();
  for (std::thread& thread : threads) thread.join();
  read();
  BOOST_TEST(num_read == num_filled);
  BOOST_TEST(is_clean);
  BOOST_TEST(buffers.num_buffers() <= 6U);
  BOOST_TEST(buffers.num_strangers() == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::profiler
