// What the tests of the fake device's streams and memory share: a device in its first state before
// and after each case, and owners for streams, events and memory.
#pragma once

#include <cuda_runtime.h>

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/fakes/simt/simt_device.h"

namespace moetune::simt {

/// For BOOST_FIXTURE_TEST_SUITE. Ends with an error when a case leaves failed work behind.
struct FreshDevice {
  static void setup() { reset(); }
  static void teardown() { reset(); }
};

#define CHECK_CUDA(CALL) \
  BOOST_TEST_REQUIRE((CALL) == cudaSuccess, cudaGetErrorString(cudaPeekAtLastError()))
#define CHECK_REFUSED(CALL, ERROR) \
  BOOST_TEST(std::string(cudaGetErrorName(CALL)) == cudaGetErrorName(ERROR))

/// A stream that does not wait for the legacy stream, unless it says so.
class OwnStream {
 public:
  explicit OwnStream(unsigned flags = cudaStreamNonBlocking) {
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream_, flags));
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() { cudaStreamDestroy(stream_); }
  operator cudaStream_t() const { return stream_; }  // NOLINT: tests read better

 private:
  cudaStream_t stream_ = nullptr;
};

class OwnEvent {
 public:
  OwnEvent() { CHECK_CUDA(cudaEventCreate(&event_)); }
  OwnEvent(const OwnEvent&) = delete;
  OwnEvent& operator=(const OwnEvent&) = delete;
  ~OwnEvent() { cudaEventDestroy(event_); }
  operator cudaEvent_t() const { return event_; }  // NOLINT: tests read better

 private:
  cudaEvent_t event_ = nullptr;
};

/// Integers in memory of the device, -1 when fresh. read() looks at them as they are now.
class OnDevice {
 public:
  explicit OnDevice(size_t count) : count_(count) {
    CHECK_CUDA(cudaMalloc(&data_, count * sizeof(int)));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data_); }

  [[nodiscard]] int* data() const { return data_; }
  [[nodiscard]] size_t bytes() const { return count_ * sizeof(int); }
  [[nodiscard]] std::vector<int> read() const { return {data_, data_ + count_}; }
  [[nodiscard]] int first() const { return *data_; }

 private:
  size_t count_;
  int* data_ = nullptr;
};

/// Enqueues kernel(args...) as one block.
template <typename... P, typename... A>
cudaError_t start(cudaStream_t stream, unsigned num_threads, void (*kernel)(P...), A... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(num_threads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, args...);
}

}  // namespace moetune::simt
