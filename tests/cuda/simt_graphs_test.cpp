// Graphs of the fake device: a captured graph keeps what the program ordered, and a capture refuses
// what a card refuses.
#include <array>
#include <functional>
#include <thread>
#include <vector>

#include "tests/cuda/simt_programs.h"

namespace moetune::simt {
BOOST_FIXTURE_TEST_SUITE(simt_graphs, FreshDevice)

namespace {

/// A graph, its instance and their end.
struct Captured {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t instance = nullptr;

  explicit Captured(cudaStream_t stream) {
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&instance, graph, 0));
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  ~Captured() {
    cudaGraphExecDestroy(instance);
    cudaGraphDestroy(graph);
  }
  [[nodiscard]] size_t num_nodes() const {
    size_t count = 0;
    CHECK_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
    return count;
  }
};

cudaError_t begin(cudaStream_t stream,
                  cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
  return cudaStreamBeginCapture(stream, mode);
}

cudaError_t order(cudaStream_t first, cudaStream_t then, cudaEvent_t event) {
  const cudaError_t status = cudaEventRecord(event, first);
  return status == cudaSuccess ? cudaStreamWaitEvent(then, event, 0) : status;
}

/// Set, doubled in two streams, added up: 4 times `value`, when `is_joined_late`; else the left
/// branch is joined before its last operation, and the sum may miss it.
int diamond(bool is_joined_late, int value) {
  const OwnStream left;
  const OwnStream right;
  const OwnEvent event;
  const OwnEvent back;
  const OnDevice memory(4);
  int* const at = memory.data();
  CHECK_CUDA(begin(left));
  int captured = value;
  CHECK_CUDA(start(left, 1, set, at, captured));
  captured = 0;
  CHECK_CUDA(order(left, right, event));
  if (!is_joined_late) CHECK_CUDA(order(right, left, back));
  CHECK_CUDA(start(left, 1, sum_of, at, at, at + 1));
  CHECK_CUDA(start(right, 1, sum_of, at, at, at + 2));
  cudaStreamCaptureStatus state{};
  CHECK_CUDA(cudaStreamIsCapturing(right, &state));
  BOOST_TEST(state == cudaStreamCaptureStatusActive);
  if (is_joined_late) CHECK_CUDA(order(right, left, event));
  CHECK_CUDA(start(left, 1, sum_of, at + 1, at + 2, at + 3));
  if (!is_joined_late) CHECK_CUDA(order(right, left, event));
  const Captured graph(left);
  CHECK_CUDA(cudaStreamIsCapturing(right, &state));
  BOOST_TEST(state == cudaStreamCaptureStatusNone);
  BOOST_TEST(graph.num_nodes() == 4U);
  BOOST_TEST(num_pending() == 0);
  BOOST_TEST(memory.read() == std::vector<int>(4, -1), boost::test_tools::per_element());
  for (int replay = 0; replay < 3; ++replay) {
    CHECK_CUDA(cudaMemsetAsync(at, 0, memory.bytes(), right));
    CHECK_CUDA(order(right, left, event));
    CHECK_CUDA(cudaGraphLaunch(graph.instance, left));
    CHECK_CUDA(cudaStreamSynchronize(left));
    if (memory.read()[3] != 4 * value) break;
  }
  return memory.read()[3];
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_graph_keeps_what_was_ordered) {
  BOOST_TEST(over_seeds([] { return diamond(true, 5); }).count(20) == kNumSeeds + 1);
  const auto results = over_seeds([] { return diamond(false, 5); });
  BOOST_TEST(results.count(10) > 0U);  // without the right branch
  BOOST_TEST(results.count(20) + results.count(10) == kNumSeeds + 1);
}

BOOST_AUTO_TEST_CASE(a_captured_stream_leaves_other_work_alone) {
  const auto results = over_seeds([] {
    const OwnStream stream;
    const OwnStream other;
    const OnDevice data(2);
    CHECK_CUDA(start(stream, 1, set, data.data(), 3));  // before the capture, so before its replay
    CHECK_CUDA(begin(stream));
    CHECK_CUDA(start(stream, 1, times_3_plus, data.data(), 1));
    CHECK_CUDA(start(other, 1, set, data.data() + 1, 8));
    const Captured graph(stream);
    CHECK_CUDA(cudaStreamSynchronize(other));
    BOOST_TEST(data.read()[1] == 8);
    CHECK_CUDA(cudaGraphLaunch(graph.instance, stream));
    CHECK_CUDA(start(stream, 1, times_3_plus, data.data(), 2));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    return data.first();
  });
  BOOST_TEST(results.count((3 * 3 + 1) * 3 + 2) == kNumSeeds + 1);
}

BOOST_AUTO_TEST_CASE(a_graph_does_not_run_beside_itself) {
  const auto results = over_seeds([] {
    const OwnStream first;
    const OwnStream second;
    const OnDevice data(2);
    CHECK_CUDA(cudaMemset(data.data(), 0, data.bytes()));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(begin(first));
    CHECK_CUDA(start(first, 1, copy, data.data(), data.data() + 1));
    CHECK_CUDA(start(first, 1, add, data.data() + 1, 1, data.data()));
    const Captured graph(first);
    for (int i = 0; i < 3; ++i) {
      CHECK_CUDA(cudaGraphLaunch(graph.instance, first));
      CHECK_CUDA(cudaGraphLaunch(graph.instance, second));
    }
    CHECK_CUDA(cudaDeviceSynchronize());
    return data.first();
  });
  BOOST_TEST(results.count(6) == kNumSeeds + 1);
}

BOOST_AUTO_TEST_CASE(fills_and_copies_are_captured) {
  set_schedule(adversarial(2));
  const OwnStream stream;
  const OnDevice data(2);
  int* pinned = nullptr;
  CHECK_CUDA(cudaMallocHost(&pinned, 2 * sizeof(int)));
  CHECK_CUDA(begin(stream));
  CHECK_CUDA(cudaMemcpyAsync(data.data(), pinned, 4, cudaMemcpyHostToDevice, stream));
  CHECK_CUDA(cudaMemcpyAsync(data.data() + 1, data.data(), 4, cudaMemcpyDefault, stream));
  CHECK_CUDA(cudaMemsetAsync(data.data(), 0, 4, stream));
  CHECK_CUDA(cudaMemcpyAsync(pinned + 1, data.data() + 1, 4, cudaMemcpyDeviceToHost, stream));
  const Captured graph(stream);
  BOOST_TEST(graph.num_nodes() == 4U);
  for (const int value : {5, 6}) {
    pinned[0] = value;  // read when the graph runs
    CHECK_CUDA(cudaGraphLaunch(graph.instance, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    BOOST_TEST(pinned[1] == value);
    BOOST_TEST(data.first() == 0);
  }
  CHECK_CUDA(cudaFreeHost(pinned));
}

BOOST_AUTO_TEST_CASE(a_failing_graph_fails_its_launch_or_its_wait) {
  const OwnStream stream;
  CHECK_CUDA(begin(stream));
  CHECK_CUDA(start(stream, 1, traps));
  const Captured graph(stream);
  CHECK_REFUSED(cudaGraphLaunch(graph.instance, stream), cudaErrorLaunchFailure);
  set_schedule(adversarial(1));
  CHECK_CUDA(cudaGraphLaunch(graph.instance, stream));
  CHECK_REFUSED(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  set_schedule(in_order());
}

BOOST_AUTO_TEST_CASE(an_empty_graph_keeps_the_order) {
  set_schedule(adversarial(1));
  const OwnStream stream;
  const OnDevice data(1);
  CHECK_CUDA(begin(stream));
  const Captured graph(stream);
  CHECK_CUDA(start(stream, 1, set, data.data(), 7));
  CHECK_CUDA(cudaGraphLaunch(graph.instance, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  BOOST_TEST(data.first() == 7);
}

// --- what a capture refuses -------------------------------------------------------------------

namespace {

/// Something done while `stream` is captured by this thread.
struct Refusal {
  const char* name;
  cudaError_t error;
  std::function<cudaError_t(cudaStream_t stream)> act;
};

/// Made before the capture, gone after it.
struct Bystanders {
  OwnStream other;
  OwnEvent before;    ///< recorded in `other` before the capture
  OwnEvent captured;  ///< recorded in the captured stream
  OnDevice memory{16};
  std::array<int, 16> pageable{};
  int* pinned = nullptr;
  Bystanders() { CHECK_CUDA(cudaMallocHost(&pinned, 64)); }
  ~Bystanders() { cudaFreeHost(pinned); }
};

std::vector<Refusal> refusals(Bystanders& by) {
  return {
      {"wait for the stream", cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize},
      {"query of the stream", cudaErrorStreamCaptureUnsupported, cudaStreamQuery},
      {"wait for another stream", cudaErrorStreamCaptureUnsupported,
       [&](cudaStream_t) { return cudaStreamSynchronize(by.other); }},
      {"wait for the device", cudaErrorStreamCaptureUnsupported,
       [](cudaStream_t) { return cudaDeviceSynchronize(); }},
      {"wait for a captured event", cudaErrorCapturedEvent,
       [&](cudaStream_t) { return cudaEventSynchronize(by.captured); }},
      {"query of a captured event", cudaErrorCapturedEvent,
       [&](cudaStream_t) { return cudaEventQuery(by.captured); }},
      {"query of an event from before", cudaErrorStreamCaptureUnsupported,
       [&](cudaStream_t) { return cudaEventQuery(by.before); }},
      {"stream's wait for an event from before", cudaErrorStreamCaptureIsolation,
       [&](cudaStream_t stream) { return cudaStreamWaitEvent(stream, by.before, 0); }},
      {"allocation", cudaErrorStreamCaptureUnsupported,
       [](cudaStream_t) {
         void* memory = nullptr;
         return cudaMalloc(&memory, 4);
       }},
      {"allocation of pinned memory", cudaErrorStreamCaptureUnsupported,
       [](cudaStream_t) {
         void* memory = nullptr;
         return cudaMallocHost(&memory, 4);
       }},
      {"free", cudaErrorStreamCaptureUnsupported,
       [&](cudaStream_t) { return cudaFree(by.memory.data()); }},
      {"synchronous copy", cudaErrorStreamCaptureUnsupported,
       [&](cudaStream_t) {
         return cudaMemcpy(by.pinned, by.memory.data(), 4, cudaMemcpyDeviceToHost);
       }},
      {"copy from ordinary memory", cudaErrorStreamCaptureUnsupported,
       [&](cudaStream_t stream) {
         return cudaMemcpyAsync(by.memory.data(), by.pageable.data(), 4, cudaMemcpyHostToDevice,
                                stream);
       }},
      {"copy to ordinary memory", cudaErrorStreamCaptureUnsupported,
       [&](cudaStream_t stream) {
         return cudaMemcpyAsync(by.pageable.data(), by.memory.data(), 4, cudaMemcpyDefault, stream);
       }},
      {"legacy stream that waits for it", cudaErrorStreamCaptureImplicit,
       [&](cudaStream_t) { return cudaStreamWaitEvent(nullptr, by.captured, 0); }},
      {"end in a stream that joined", cudaErrorStreamCaptureUnmatched,
       [&](cudaStream_t) {
         CHECK_CUDA(cudaStreamWaitEvent(by.other, by.captured, 0));
         cudaGraph_t graph = nullptr;
         return cudaStreamEndCapture(by.other, &graph);
       }},
      {"end in another thread", cudaErrorStreamCaptureWrongThread,
       [](cudaStream_t stream) {
         cudaError_t status = cudaSuccess;
         cudaGraph_t graph = nullptr;
         std::thread([&] { status = cudaStreamEndCapture(stream, &graph); }).join();
         return status;
       }},
  };
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_a_capture_refuses_invalidates_it) {
  for (const Schedule schedule : {in_order(), adversarial(4)}) {
    set_schedule(schedule);
    Bystanders by;
    const OwnStream stream;
    for (const Refusal& refusal : refusals(by)) {
      BOOST_TEST_CONTEXT(refusal.name) {
        CHECK_CUDA(start(by.other, 1, set, by.memory.data(), 1));
        CHECK_CUDA(cudaEventRecord(by.before, by.other));
        CHECK_CUDA(begin(stream));
        CHECK_CUDA(start(stream, 1, set, by.memory.data(), 2));
        CHECK_CUDA(cudaEventRecord(by.captured, stream));
        CHECK_REFUSED(refusal.act(stream), refusal.error);
        cudaStreamCaptureStatus state{};
        CHECK_CUDA(cudaStreamIsCapturing(stream, &state));
        BOOST_TEST(state == cudaStreamCaptureStatusInvalidated);
        CHECK_REFUSED(start(stream, 1, set, by.memory.data(), 2),
                      cudaErrorStreamCaptureInvalidated);
        cudaGraph_t graph = nullptr;
        CHECK_REFUSED(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
        BOOST_TEST(graph == nullptr);
        // Everything works again, and nothing of the capture has run.
        CHECK_CUDA(cudaDeviceSynchronize());
        BOOST_TEST(by.memory.first() == 1);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(an_unjoined_stream_ends_without_a_graph) {
  const OwnStream stream;
  const OwnStream other;
  const OwnEvent event;
  const OnDevice data(1);
  CHECK_CUDA(begin(stream));
  CHECK_CUDA(order(stream, other, event));
  CHECK_CUDA(order(other, stream, event));
  CHECK_CUDA(start(other, 1, set, data.data(), 1));  // behind the join
  cudaGraph_t graph = nullptr;
  CHECK_REFUSED(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
  BOOST_TEST(graph == nullptr);
  CHECK_CUDA(cudaStreamSynchronize(other));
  BOOST_TEST(data.first() == -1);
}

BOOST_AUTO_TEST_CASE(captures_do_not_mix) {
  const OwnStream first;
  const OwnStream second;
  const OwnStream third;
  const OwnEvent event;
  cudaGraph_t graph = nullptr;
  CHECK_CUDA(begin(first));
  CHECK_CUDA(begin(second));
  CHECK_REFUSED(begin(first), cudaErrorIllegalState);
  CHECK_REFUSED(order(first, second, event), cudaErrorStreamCaptureMerge);
  CHECK_REFUSED(cudaStreamEndCapture(first, &graph), cudaErrorStreamCaptureInvalidated);
  CHECK_REFUSED(cudaStreamEndCapture(second, &graph), cudaErrorStreamCaptureInvalidated);
  CHECK_REFUSED(cudaStreamEndCapture(first, &graph), cudaErrorIllegalState);
  CHECK_REFUSED(begin(nullptr), cudaErrorStreamCaptureUnsupported);
  // The event is still one of a captured stream.
  CHECK_REFUSED(cudaEventQuery(event), cudaErrorCapturedEvent);
  CHECK_REFUSED(cudaStreamWaitEvent(third, event, 0), cudaErrorStreamCaptureIsolation);
  CHECK_CUDA(cudaEventRecord(event, third));
  CHECK_CUDA(cudaEventQuery(event));
}

BOOST_AUTO_TEST_CASE(the_legacy_stream_would_wait_for_a_captured_blocking_stream) {
  const OwnStream stream(cudaStreamDefault);
  const OnDevice data(1);
  cudaGraph_t graph = nullptr;
  CHECK_CUDA(begin(stream));
  CHECK_REFUSED(start(nullptr, 1, set, data.data(), 1), cudaErrorStreamCaptureImplicit);
  CHECK_REFUSED(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
}

BOOST_AUTO_TEST_CASE(other_threads_may_allocate_beside_a_thread_local_capture) {
  const auto allocates_elsewhere = [](cudaStreamCaptureMode mode) {
    const OwnStream stream;
    CHECK_CUDA(begin(stream, mode));
    cudaError_t status = cudaSuccess;
    std::thread([&] {
      void* memory = nullptr;
      status = cudaMalloc(&memory, 4);
      if (status == cudaSuccess) cudaFree(memory);
    }).join();
    cudaGraph_t graph = nullptr;
    BOOST_TEST((cudaStreamEndCapture(stream, &graph) == status || status != cudaSuccess));
    if (graph != nullptr) cudaGraphDestroy(graph);
    return status;
  };
  CHECK_CUDA(allocates_elsewhere(cudaStreamCaptureModeThreadLocal));
  CHECK_CUDA(allocates_elsewhere(cudaStreamCaptureModeRelaxed));
  CHECK_REFUSED(allocates_elsewhere(cudaStreamCaptureModeGlobal),
                cudaErrorStreamCaptureUnsupported);
  // A thread can say that it knows what it does.
  const OwnStream stream;
  CHECK_CUDA(begin(stream));
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  CHECK_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  void* memory = nullptr;
  CHECK_CUDA(cudaMalloc(&memory, 4));
  CHECK_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  const Captured graph(stream);
  CHECK_CUDA(cudaFree(memory));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::simt
