// How a kernel of the host program becomes work of the fake device: the checks of a launch, and the
// attributes of kernels.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <unordered_map>

#include "tests/fakes/simt/simt_streams.h"

namespace moetune::simt {
namespace {

constexpr size_t kDefaultSharedBytes = 48 * 1024;
constexpr unsigned kMaxGridYz = 65535;

/// What cudaFuncSetAttribute allowed each kernel.
std::unordered_map<const void*, size_t>& allowed_shared_bytes() {
  static auto* all = new std::unordered_map<const void*, size_t>;
  return *all;
}

size_t allowed_shared(const void* kernel) {
  const auto found = allowed_shared_bytes().find(kernel);
  return found == allowed_shared_bytes().end() ? kDefaultSharedBytes : found->second;
}

cudaError_t check_shape(const void* kernel, const cudaLaunchConfig_t& config) {
  const dim3& grid = config.gridDim;
  const dim3& block = config.blockDim;
  const uint64_t num_threads = uint64_t{block.x} * block.y * block.z;
  if (num_threads == 0 || num_threads > kMaxBlockThreads || block.z > 64 || grid.x == 0 ||
      grid.x > 0x7FFFFFFFU || grid.y == 0 || grid.y > kMaxGridYz || grid.z == 0 ||
      grid.z > kMaxGridYz) {
    return refuse(cudaErrorInvalidConfiguration,
                  fmt::format("grid ({},{},{}) of blocks ({},{},{}) cannot be launched", grid.x,
                              grid.y, grid.z, block.x, block.y, block.z));
  }
  if (config.dynamicSmemBytes > kDefaultSharedBytes &&
      config.dynamicSmemBytes > allowed_shared(kernel)) {
    return refuse(cudaErrorInvalidValue,
                  fmt::format("{} bytes of shared memory, the kernel is allowed {}",
                              config.dynamicSmemBytes, allowed_shared(kernel)));
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t launch(const void* kernel, const cudaLaunchConfig_t& config,
                   const std::function<void()>& body,
                   const std::function<std::function<void()>()>& owned_body) {
  return call("cudaLaunchKernelEx", [&] {
    CUstream_st* stream = find_stream(config.stream);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->device != current_device()) {
      return refuse(cudaErrorInvalidResourceHandle,
                    fmt::format("a stream of device {}, device {} is current", stream->device,
                                current_device()));
    }
    if (const cudaError_t status = prepare(*stream); status != cudaSuccess) return status;
    if (const cudaError_t status = check_shape(kernel, config); status != cudaSuccess) {
      return status;
    }
    const auto start = [grid = config.gridDim, block = config.blockDim,
                        shared_bytes =
                            config.dynamicSmemBytes](const std::function<void()>& kernel_body) {
      return run(grid, block, shared_bytes, kernel_body);
    };
    Operation what;
    what.kind = WorkKind::kernel;
    what.kernel = kernel;
    what.grid = config.gridDim;
    what.block = config.blockDim;
    what.shared_bytes = config.dynamicSmemBytes;
    if (!stream->capture && !world().schedule.is_deferred) {
      return run_now([&] { return start(body); }, placed(what, *stream));
    }
    return submit(
        *stream, [start, own = owned_body()] { return start(own); }, what);
  });
}

}  // namespace moetune::simt

using namespace moetune::simt;

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return call("cudaFuncSetAttribute", [&] {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || static_cast<size_t>(value) > kMaxSharedBytes) {
      return refuse(
          cudaErrorInvalidValue,
          fmt::format("{} bytes of shared memory, a block has {} at most", value, kMaxSharedBytes));
    }
    allowed_shared_bytes()[kernel] = static_cast<size_t>(value);
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return call("cudaFuncGetAttributes", [&] {
    *attributes = {};
    attributes->maxThreadsPerBlock = kMaxBlockThreads;
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(allowed_shared(kernel));
    return cudaSuccess;
  });
}

}  // extern "C"
