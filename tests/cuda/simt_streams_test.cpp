// Streams and events of the fake device: what the program orders is kept under every schedule, what
// it forgot to order shows under some, and failing kernels are reported. Graphs are in
// simt_graphs_test.cpp.
#include <array>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "tests/cuda/simt_programs.h"

namespace moetune::simt {
BOOST_FIXTURE_TEST_SUITE(simt_streams, FreshDevice)

namespace {

void misses_a_barrier() {
  if (threadIdx.x != 3) __syncthreads();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
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
