#include "kernels/cuda/staging.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "kernels/cuda/runtime_check.h"

namespace moetune::kernels::cuda {

Staging::~Staging() {
  for (const Buffer& buffer : buffers_) {
    if (buffer.sent != nullptr) static_cast<void>(cudaEventDestroy(buffer.sent));
    if (buffer.memory != nullptr) static_cast<void>(cudaFreeHost(buffer.memory));
  }
}

Staging::Buffer& Staging::room() {
  if (buffers_[current_].used_bytes == kBufferBytes) {
    current_ = (current_ + 1) % buffers_.size();
    Buffer& next = buffers_[current_];
    if (next.sent != nullptr) {
      check(cudaEventSynchronize(next.sent), "an upload");
      next.used_bytes = 0;
    }
  }
  Buffer& buffer = buffers_[current_];
  if (buffer.memory == nullptr) {
    check(cudaMallocHost(&buffer.memory, static_cast<size_t>(kBufferBytes)), "pinned memory");
    check(cudaEventCreateWithFlags(&buffer.sent, cudaEventDisableTiming), "making an event");
  }
  return buffer;
}

void Staging::upload(Stream stream, void* device, const void* host, int64_t bytes) {
  const auto* from = static_cast<const char*>(host);
  auto* to = static_cast<char*>(device);
  while (bytes > 0) {
    Buffer& buffer = room();
    const int64_t count = std::min(bytes, kBufferBytes - buffer.used_bytes);
    char* place = static_cast<char*>(buffer.memory) + buffer.used_bytes;
    std::memcpy(place, from, static_cast<size_t>(count));
    check(cudaMemcpyAsync(to, place, static_cast<size_t>(count), cudaMemcpyHostToDevice, stream),
          "copy to the device");
    // Copies of one buffer may be on several streams; each record would forget those before. A
    // buffer is full after few copies, so waiting for the one before is cheap.
    if (buffer.used_bytes > 0) {
      check(cudaStreamWaitEvent(stream, buffer.sent, 0), "waiting for an upload");
    }
    check(cudaEventRecord(buffer.sent, stream), "recording an event");
    buffer.used_bytes = std::min(kBufferBytes, (buffer.used_bytes + count + 255) / 256 * 256);
    from += count;
    to += count;
    bytes -= count;
  }
}

}  // namespace moetune::kernels::cuda
