// How CUDA's errors become ours, and the pool of message slots: a slot is used again once its mark
// has passed.
#include "engine/comm/cuda_transit.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/cuda/device_error.h"
#include "kernels/cuda/runtime_check.h"

namespace moetune::engine {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kMaxSlots = 32;

bool is_host(const void* data, int64_t bytes) {
  if (bytes == 0) return false;
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, data), "where a buffer is");
  return attributes.type == cudaMemoryTypeUnregistered || attributes.type == cudaMemoryTypeHost;
}

}  // namespace

void check_cuda(int error, const char* what) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  std::rethrow_exception(cuda_failure(
      error,
      fmt::format("CUDA: {}: {}", what, cudaGetErrorString(static_cast<cudaError_t>(error)))));
}

std::exception_ptr cuda_failure(int error, const std::string& text) {
  if (error == cudaErrorMemoryAllocation) return kernels::cuda::memory_failure(text);
  if (kernels::cuda::is_device_error(error)) {
    return std::make_exception_ptr(base::DeviceFailed(text));
  }
  return std::make_exception_ptr(base::Error(text));
}

bool is_capturing(CudaStream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), "the state of a stream");
  return status != cudaStreamCaptureStatusNone;
}

Mark::Mark(CudaStream stream) {
  check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
  const cudaError_t error = cudaEventRecord(event_, stream);
  if (error == cudaSuccess) return;
  (void)cudaEventDestroy(event_);
  check_cuda(error, "recording an event");
}

Mark::~Mark() { (void)cudaEventDestroy(event_); }

Mark::State Mark::query() const {
  const cudaError_t error = cudaEventQuery(event_);
  if (error == cudaErrorNotReady) return State::running;
  return error == cudaSuccess ? State::done : State::failed;
}

std::exception_ptr Mark::failure(const std::string& text) const {
  const cudaError_t error = cudaEventQuery(event_);
  return cuda_failure(error, fmt::format("{}: {}", text, cudaGetErrorString(error)));
}

void copy_and_order(void* to, const void* from, int64_t bytes, CudaStream stream,
                    CudaStream other) {
  check_cuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream),
             "copying a message");
  const Mark copied(stream);
  check_cuda(cudaStreamWaitEvent(other, copied.event(), 0), "waiting for a message's copy");
}

Transit::Transit(Allocate allocate, Release release, Wait wait)
    : allocate_(std::move(allocate)), release_(std::move(release)), wait_(std::move(wait)) {}

Transit::~Transit() {
  for (const auto& [key, stream] : streams_) (void)cudaStreamDestroy(stream);
  for (const Slot& slot : slots_) release(slot.data);
  if (device_ != nullptr) release(device_);
  if (host_ != nullptr) (void)cudaFreeHost(host_);
}

char* Transit::host() {
  if (host_ == nullptr) {
    void* memory = nullptr;
    check_cuda(cudaMallocHost(&memory, kScratchBytes), "allocating pinned memory");
    host_ = static_cast<char*>(memory);
  }
  return host_;
}

char* Transit::device() {
  if (device_ == nullptr) device_ = static_cast<char*>(allocate(kScratchBytes));
  return device_;
}

CudaStream Transit::stream(int key) {
  const auto known = streams_.find(key);
  if (known != streams_.end()) return known->second;
  CudaStream stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  streams_[key] = stream;
  return stream;
}

Transit::Slot& Transit::slot(int64_t bytes) {
  while (true) {
    std::shared_ptr<Mark> oldest;
    for (Slot& slot : slots_) {
      if (slot.sent && slot.sent->query() == Mark::State::running) {
        if (!oldest) oldest = slot.sent;
      } else if (slot.bytes >= bytes) {
        return slot;
      }
    }
    if (slots_.size() < kMaxSlots) {
      slots_.push_back({allocate(bytes), bytes, nullptr});
      return slots_.back();
    }
    if (oldest) {
      wait_(oldest);
    } else {
      release(slots_.front().data);  // all free and too small
      slots_.pop_front();
    }
  }
}

void* Transit::allocate(int64_t bytes) {
  if (allocate_) return allocate_(bytes);
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, static_cast<size_t>(bytes)), "allocating memory for messages");
  return memory;
}

void Transit::release(void* memory) {
  if (release_) {
    release_(memory);
  } else {
    (void)cudaFree(memory);
  }
}

const void* HostValues::in(const void* data, int64_t bytes) {
  if (!is_host(data, bytes)) return data;
  return transit_.device() + carry_in(data, bytes);
}

void* HostValues::out(void* data, int64_t bytes) {
  if (!is_host(data, bytes)) return data;
  returns_.push_back({data, reserve(bytes), static_cast<size_t>(bytes)});
  return transit_.device() + returns_.back().offset;
}

void* HostValues::in_out(void* data, int64_t bytes) {
  if (!is_host(data, bytes)) return data;
  returns_.push_back({data, carry_in(data, bytes), static_cast<size_t>(bytes)});
  return transit_.device() + returns_.back().offset;
}

void HostValues::start_return() {
  for (const Return& r : returns_) {
    check_cuda(cudaMemcpyAsync(transit_.host() + r.offset, transit_.device() + r.offset, r.bytes,
                               cudaMemcpyDeviceToHost, stream_),
               "copying values to the host");
  }
}

void HostValues::finish_return() {
  for (const Return& r : returns_) std::memcpy(r.target, transit_.host() + r.offset, r.bytes);
}

size_t HostValues::carry_in(const void* data, int64_t bytes) {
  const size_t at = reserve(bytes);
  std::memcpy(transit_.host() + at, data, static_cast<size_t>(bytes));
  check_cuda(cudaMemcpyAsync(transit_.device() + at, transit_.host() + at,
                             static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_),
             "copying values to the device");
  return at;
}

size_t HostValues::reserve(int64_t bytes) {
  const size_t at = used_bytes_;
  const auto aligned = (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
  MOETUNE_CHECK(aligned <= Transit::kScratchBytes - at,
                "an operand of {} bytes in host memory; a call takes {} at most", bytes,
                Transit::kScratchBytes);
  used_bytes_ += aligned;
  return at;
}

}  // namespace moetune::engine
