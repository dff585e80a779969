// Streams, events and graphs of the fake device: what the program orders is kept under every
// schedule, what it forgot to order shows under some, and what a card refuses is refused.
#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "tests/cuda/simt_fixture.h"

namespace moetune::simt {
BOOST_FIXTURE_TEST_SUITE(simt_streams, FreshDevice)

namespace {

constexpr uint64_t kNumSeeds = 40;
constexpr unsigned kThreads = 64;

void set(int* to, int value) { to[threadIdx.x] = value; }
void copy(const int* from, int* to) { to[threadIdx.x] = from[threadIdx.x]; }
void times_3_plus(int* at, int value) { at[threadIdx.x] = at[threadIdx.x] * 3 + value; }
void sum_of(const int* a, const int* b, int* to) {
  to[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x];
}
void add(const int* from, int value, int* to) { to[threadIdx.x] = from[threadIdx.x] + value; }
void traps() { __trap(); }
void misses_a_barrier() {
  if (threadIdx.x != 3) __syncthreads();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The values that `program` returned, one for each of many schedules.
std::multiset<int> over_seeds(const std::function<int()>& program) {
  std::multiset<int> results;
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    set_schedule(adversarial(seed));
    results.insert(program());
  }
  set_schedule(in_order());
  results.insert(program());
  return results;
}

/// 7 when the consumer's stream saw what the producer's stream wrote.
int produce_and_consume(bool has_event, bool waits_for_all) {
  const OwnStream producer;
  const OwnStream consumer;
  const OwnEvent written;
  const OnDevice data(kThreads);
  const OnDevice seen(kThreads);
  CHECK_CUDA(start(producer, kThreads, set, data.data(), 7));
  if (has_event) {
    CHECK_CUDA(cudaEventRecord(written, producer));
    CHECK_CUDA(cudaStreamWaitEvent(consumer, written, 0));
  }
  CHECK_CUDA(start(consumer, kThreads, copy, data.data(), seen.data()));
  CHECK_CUDA(waits_for_all ? cudaDeviceSynchronize() : cudaStreamSynchronize(consumer));
  return seen.first();
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_missing_event_is_found) {
  for (const bool waits_for_all : {false, true}) {
    const auto with = over_seeds([&] { return produce_and_consume(true, waits_for_all); });
    BOOST_TEST(with.count(7) == kNumSeeds + 1);
  }
  // Only the consumer is waited for: the producer never has to run.
  const auto behind = over_seeds([] { return produce_and_consume(false, false); });
  BOOST_TEST(behind.count(-1) == kNumSeeds);
  BOOST_TEST(behind.count(7) == 1U);  // in order
  // Both are: it depends.
  const auto either = over_seeds([] { return produce_and_consume(false, true); });
  BOOST_TEST(either.count(-1) > 0U);
  BOOST_TEST(either.count(7) > 1U);
  BOOST_TEST(either.count(7) + either.count(-1) == kNumSeeds + 1);
}

// The producer's write is one of many: picking streams at random would hardly ever be late enough.
BOOST_AUTO_TEST_CASE(a_stream_can_be_far_behind) {
  const auto results = over_seeds([] {
    const OwnStream first;
    const OwnStream second;
    const OnDevice data(1);
    const OnDevice other(1);
    const OnDevice seen(1);
    CHECK_CUDA(start(first, 1, set, data.data(), 7));
    for (int i = 0; i < 30; ++i) CHECK_CUDA(start(second, 1, set, other.data(), i));
    CHECK_CUDA(start(second, 1, copy, data.data(), seen.data()));
    CHECK_CUDA(cudaDeviceSynchronize());
    return seen.first();
  });
  BOOST_TEST(results.count(-1) > 2U);
  BOOST_TEST(results.count(7) > 2U);
}

BOOST_AUTO_TEST_CASE(one_stream_is_in_order) {
  const auto results = over_seeds([] {
    const OwnStream stream;
    const OwnStream other;
    const OnDevice data(1);
    const OnDevice others(1);
    CHECK_CUDA(cudaMemsetAsync(data.data(), 0, data.bytes(), stream));
    for (int i = 0; i < 8; ++i) {
      CHECK_CUDA(start(stream, 1, times_3_plus, data.data(), i));
      CHECK_CUDA(start(other, 1, set, others.data(), i));
    }
    CHECK_CUDA(cudaDeviceSynchronize());
    BOOST_TEST(others.first() == 7);
    return data.first();
  });
  int expected = 0;
  for (int i = 0; i < 8; ++i) expected = expected * 3 + i;
  BOOST_TEST(results.count(expected) == kNumSeeds + 1);
}

BOOST_AUTO_TEST_CASE(nothing_runs_before_it_is_waited_for) {
  set_schedule(adversarial(1));
  const OwnStream stream;
  const OwnStream other;
  const OnDevice data(1);
  CHECK_CUDA(start(stream, 1, set, data.data(), 7));
  CHECK_CUDA(start(other, 1, set, data.data(), 8));
  BOOST_TEST(data.first() == -1);
  BOOST_TEST(num_pending() == 2);
  CHECK_CUDA(cudaStreamSynchronize(stream));
  BOOST_TEST(data.first() == 7);
  BOOST_TEST(num_pending() == 1);
  CHECK_CUDA(cudaDeviceSynchronize());
  BOOST_TEST(data.first() == 8);
  BOOST_TEST(num_pending() == 0);
}

BOOST_AUTO_TEST_CASE(launches_copy_their_arguments) {
  set_schedule(adversarial(1));
  const OwnStream stream;
  const OnDevice data(1);
  int value = 7;
  CHECK_CUDA(start(stream, 1, set, data.data(), value));
  value = 8;
  CHECK_CUDA(cudaStreamSynchronize(stream));
  BOOST_TEST(data.first() == 7);
}

BOOST_AUTO_TEST_CASE(a_wait_is_for_the_last_record_before_it) {
  set_schedule(adversarial(3));
  const OwnStream first;
  const OwnStream second;
  const OwnEvent event;
  const OnDevice data(1);
  const OnDevice seen(2);
  CHECK_CUDA(cudaStreamWaitEvent(second, event, 0));  // never recorded
  CHECK_CUDA(start(first, 1, set, data.data(), 1));
  CHECK_CUDA(start(second, 1, copy, data.data(), seen.data()));
  CHECK_CUDA(cudaStreamSynchronize(second));
  BOOST_TEST(seen.first() == -1);
  CHECK_CUDA(cudaEventRecord(event, first));
  CHECK_CUDA(cudaStreamWaitEvent(second, event, 0));
  CHECK_CUDA(start(first, 1, set, data.data(), 2));
  CHECK_CUDA(cudaEventRecord(event, first));  // does not move the wait
  CHECK_CUDA(start(second, 1, copy, data.data(), seen.data()));
  CHECK_CUDA(cudaStreamSynchronize(second));
  BOOST_TEST(seen.first() == 1);
  CHECK_CUDA(cudaEventSynchronize(event));
  BOOST_TEST(data.first() == 2);
}

BOOST_AUTO_TEST_CASE(polling_ends) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    set_schedule(adversarial(seed));
    const OwnStream stream;
    const OwnEvent event;
    const OnDevice data(1);
    for (int i = 0; i < 50; ++i) CHECK_CUDA(start(stream, 1, set, data.data(), i));
    CHECK_CUDA(cudaEventRecord(event, stream));
    CHECK_CUDA(start(stream, 1, set, data.data(), 50));
    int num_polls = 0;
    cudaError_t status = cudaErrorNotReady;
    while ((status = cudaEventQuery(event)) == cudaErrorNotReady && num_polls < 100) ++num_polls;
    CHECK_CUDA(status);
    BOOST_TEST(num_polls > 1);
    BOOST_TEST(data.first() == 49);
    CHECK_REFUSED(cudaStreamQuery(stream), cudaErrorNotReady);
    CHECK_CUDA(cudaStreamQuery(stream));
    BOOST_TEST(data.first() == 50);
  }
}

BOOST_AUTO_TEST_CASE(the_legacy_stream_orders_blocking_streams_only) {
  const auto run = [](unsigned flags) {
    return over_seeds([flags] {
      const OwnStream stream(flags);
      const OnDevice data(1);
      const OnDevice seen(2);
      CHECK_CUDA(start(nullptr, 1, set, data.data(), 7));
      CHECK_CUDA(start(stream, 1, copy, data.data(), seen.data()));
      CHECK_CUDA(start(nullptr, 1, copy, seen.data(), seen.data() + 1));
      CHECK_CUDA(cudaDeviceSynchronize());
      return seen.read()[1];
    });
  };
  BOOST_TEST(run(cudaStreamDefault).count(7) == kNumSeeds + 1);
  BOOST_TEST(run(cudaStreamNonBlocking).count(-1) > 0U);
}

BOOST_AUTO_TEST_CASE(a_destroyed_streams_work_runs) {
  set_schedule(adversarial(0));
  const OnDevice data(1);
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK_CUDA(start(stream, 1, set, data.data(), 7));
  CHECK_CUDA(cudaStreamDestroy(stream));
  BOOST_TEST(data.first() == -1);
  CHECK_CUDA(cudaDeviceSynchronize());
  BOOST_TEST(data.first() == 7);
  CHECK_REFUSED(start(stream, 1, set, data.data(), 8), cudaErrorInvalidResourceHandle);
  CHECK_REFUSED(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
}

BOOST_AUTO_TEST_CASE(host_work_is_on_the_stream) {
  set_schedule(adversarial(0));
  const OwnStream stream;
  const OnDevice data(1);
  int seen = 0;
  cudaError_t called_back = cudaSuccess;
  CHECK_CUDA(start(stream, 1, set, data.data(), 7));
  CHECK_CUDA(enqueue(stream, [&] {
    seen = data.first();
    called_back = cudaStreamQuery(stream);
  }));
  CHECK_CUDA(start(stream, 1, set, data.data(), 8));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  BOOST_TEST(seen == 7);
  CHECK_REFUSED(called_back, cudaErrorNotPermitted);
  CHECK_CUDA(enqueue(stream, [] { throw std::runtime_error("no network"); }));
  CHECK_REFUSED(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  BOOST_TEST(contains(cudaGetErrorString(cudaErrorLaunchFailure), "no network"));
}

BOOST_AUTO_TEST_CASE(elapsed_time_grows_with_the_work) {
  for (const Schedule schedule : {in_order(), adversarial(1)}) {
    set_schedule(schedule);
    const OwnStream stream;
    const OwnEvent begin;
    const OwnEvent end;
    const OnDevice data(1);
    float ms = 0.0F;
    CHECK_REFUSED(cudaEventElapsedTime(&ms, begin, end), cudaErrorInvalidResourceHandle);
    CHECK_CUDA(cudaEventRecord(begin, stream));
    for (int i = 0; i < 5; ++i) CHECK_CUDA(start(stream, 1, set, data.data(), i));
    CHECK_CUDA(cudaEventRecord(end, stream));
    CHECK_CUDA(cudaEventSynchronize(end));
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    BOOST_TEST(ms == 0.005F, boost::test_tools::tolerance(1e-3F));
  }
}

// --- failing kernels --------------------------------------------------------------------------

BOOST_AUTO_TEST_CASE(a_failure_in_order_is_the_launchs_own) {
  const OwnStream stream;
  const OnDevice data(1);
  CHECK_REFUSED(start(stream, kThreads, misses_a_barrier), cudaErrorLaunchFailure);
  BOOST_TEST(contains(cudaGetErrorString(cudaErrorLaunchFailure), "thread 3, which has returned"));
  BOOST_TEST(cudaGetLastError() == cudaErrorLaunchFailure);
  BOOST_TEST(cudaGetLastError() == cudaSuccess);
  CHECK_CUDA(start(stream, 1, set, data.data(), 7));
  BOOST_TEST(data.first() == 7);
}

BOOST_AUTO_TEST_CASE(a_deferred_failure_ends_the_device) {
  set_schedule(adversarial(5));
  const OwnStream stream;
  const OnDevice data(1);
  CHECK_CUDA(start(stream, kThreads, misses_a_barrier));
  CHECK_CUDA(start(stream, 1, set, data.data(), 7));
  CHECK_REFUSED(start(stream, 2000, set, data.data(), 7), cudaErrorInvalidConfiguration);
  CHECK_REFUSED(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  BOOST_TEST(contains(cudaGetErrorString(cudaErrorLaunchFailure), "thread 3, which has returned"));
  BOOST_TEST(data.first() == -1);
  void* memory = nullptr;
  CHECK_REFUSED(cudaMalloc(&memory, 4), cudaErrorLaunchFailure);
  BOOST_TEST(cudaGetLastError() == cudaErrorLaunchFailure);
  BOOST_TEST(cudaGetLastError() == cudaErrorLaunchFailure);
  cudaError_t elsewhere = cudaSuccess;
  std::string text;
  std::thread([&] {
    elsewhere = cudaStreamQuery(stream);
    text = cudaGetErrorString(elsewhere);
  }).join();
  CHECK_REFUSED(elsewhere, cudaErrorLaunchFailure);
  BOOST_TEST(contains(text, "which has returned"));
  set_schedule(adversarial(5));
  CHECK_CUDA(start(stream, 1, set, data.data(), 7));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  BOOST_TEST(data.first() == 7);
}

BOOST_AUTO_TEST_CASE(a_failure_that_nobody_saw_is_not_lost) {
  set_schedule(adversarial(5));
  const OwnStream stream;
  CHECK_CUDA(start(stream, 1, traps));
  BOOST_CHECK_THROW(set_schedule(in_order()), std::runtime_error);
  CHECK_CUDA(cudaStreamSynchronize(stream));
}

// --- capture ----------------------------------------------------------------------------------

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

// --- several host threads ---------------------------------------------------------------------

BOOST_AUTO_TEST_CASE(threads_order_their_streams_by_events) {
  constexpr int kNumThreads = 4;
  constexpr int kNumRounds = 20;
  for (const Schedule schedule : {in_order(), adversarial(1), adversarial(2), adversarial(3)}) {
    set_schedule(schedule);
    const OnDevice data(kThreads);
    CHECK_CUDA(cudaMemset(data.data(), 0, data.bytes()));
    CHECK_CUDA(cudaDeviceSynchronize());
    std::mutex mutex;
    std::condition_variable turned;
    int turn = 0;
    cudaEvent_t last = nullptr;
    std::array<cudaError_t, kNumThreads> status{};
    const auto rank = [&](int number) {
      cudaStream_t stream = nullptr;
      std::vector<cudaEvent_t> events(kNumRounds);
      cudaError_t worst = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      const auto note = [&](cudaError_t result) { worst = worst == cudaSuccess ? result : worst; };
      for (int round = 0; round < kNumRounds; ++round) {
        note(cudaEventCreate(&events[round]));
        std::unique_lock lock(mutex);
        turned.wait(lock, [&] { return turn % kNumThreads == number; });
        if (last != nullptr) note(cudaStreamWaitEvent(stream, last, 0));
        note(start(stream, kThreads, add, data.data(), 1, data.data()));
        note(cudaEventRecord(events[round], stream));
        last = events[round];
        ++turn;
        turned.notify_all();
        lock.unlock();
        if (round % 3 == number % 3) note(cudaStreamSynchronize(stream));
      }
      note(cudaStreamSynchronize(stream));
      status[number] = worst;
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < kNumThreads; ++i) threads.emplace_back(rank, i);
    for (std::thread& thread : threads) thread.join();
    for (const cudaError_t result : status) CHECK_CUDA(result);
    CHECK_CUDA(cudaDeviceSynchronize());
    BOOST_TEST(data.first() == kNumThreads * kNumRounds);
    BOOST_TEST(data.read().back() == kNumThreads * kNumRounds);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::simt
