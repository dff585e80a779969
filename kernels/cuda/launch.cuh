// The one way a kernel is started: typed arguments, every launch checked, and the place of the call
// in the message. Written against the runtime API only, so that the host-side fake of the device
// can take its place.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime_check.h"

namespace moetune::kernels::cuda {

/// Blocks, threads per block, and dynamic shared memory per block.
struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
};

/// A stream together with the line that names it: the call of launch().
struct StreamAt {
  Stream stream;
  std::source_location site;

  StreamAt(Stream stream_in,  // NOLINT: the conversion is what captures the caller's line
           std::source_location site_in = std::source_location::current())
      : stream(stream_in), site(site_in) {}
};

/// More dynamic shared memory than this has to be asked for, kernel by kernel.
inline constexpr size_t kDefaultSharedBytes = 48 * 1024;

/// Throws what check() does, naming the launch, when `status` is not success.
inline void check_launch(cudaError_t status, const std::source_location& site) {
  if (status == cudaSuccess) return;
  check(status, fmt::format("kernel launched at {}:{}", site.file_name(), site.line()).c_str());
}

/// Enqueues kernel(args...) on the stream; a grid without blocks enqueues nothing. Arguments
/// convert implicitly to the kernel's parameters. What goes wrong while the kernel runs shows at a
/// later call of the runtime; here only a refused launch can show.
template <typename... P, typename... A>
void launch(void (*kernel)(P...), const LaunchShape& shape, StreamAt stream, A&&... args) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  if (shape.shared_bytes > kDefaultSharedBytes) {
    check_launch(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                      cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(shape.shared_bytes)),
                 stream.site);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream.stream;
  check_launch(cudaLaunchKernelEx(&config, kernel, std::forward<A>(args)...), stream.site);
}

/// Streaming multiprocessors that grids are sized for: those of an H100 or H200. A constant, so
/// that sums over blocks (and with them the last bits of a gradient) are the same on every card.
inline constexpr int64_t kNumSms = 132;

/// ceil(a / b) for a >= 0, b > 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// A grid of min(needed, limit) blocks along x.
inline dim3 grid_of(int64_t needed, int64_t limit = kNumSms * 32) {
  return dim3(static_cast<unsigned>(needed < limit ? needed : limit));
}

}  // namespace moetune::kernels::cuda
