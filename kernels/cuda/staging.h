// Pinned host memory that uploads pass through, so that the host goes on while they are under way.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cuda/ops.h"

struct CUevent_st;

namespace moetune::kernels::cuda {

/// A few buffers used in turn. One thread uses it.
class Staging {
 public:
  Staging() = default;
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Copies on the stream; `host` may be used again at once. Waits when all buffers are under way.
  void upload(Stream stream, void* device, const void* host, int64_t bytes);

 private:
  static constexpr int64_t kBufferBytes = int64_t{4} << 20;
  struct Buffer {
    void* memory = nullptr;
    CUevent_st* sent = nullptr;
    int64_t used_bytes = 0;
  };
  /// Room for some of `bytes` in the current buffer, or the next one once it has been sent.
  Buffer& room();

  std::array<Buffer, 4> buffers_{};
  size_t current_ = 0;
};

}  // namespace moetune::kernels::cuda
