// The few functions of the CUDA runtime that kernels' tests need, at once and on the host. A launch
// that fails keeps its text for cudaGetErrorString, so that it reaches the caller by the same way
// as an error of the real runtime.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "tests/fakes/simt/simt.h"

namespace moetune::simt {
namespace {

constexpr size_t kAlignmentBytes = 256;
constexpr size_t kDefaultSharedBytes = 48 * 1024;
constexpr unsigned kMaxGridYz = 65535;

thread_local std::string launch_failure;

/// What cudaFuncSetAttribute allowed each kernel.
std::map<const void*, size_t> allowed_shared_bytes;  // NOLINT: of the whole program
std::mutex allowed_mutex;

size_t allowed_shared(const void* kernel) {
  const std::lock_guard lock(allowed_mutex);
  const auto found = allowed_shared_bytes.find(kernel);
  return found == allowed_shared_bytes.end() ? kDefaultSharedBytes : found->second;
}

cudaError_t refuse(cudaError_t status, const std::string& text) {
  launch_failure = text;
  return status;
}

}  // namespace

cudaError_t launch(const void* kernel, const cudaLaunchConfig_t& config,
                   const std::function<void()>& body) {
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
  if (config.dynamicSmemBytes > allowed_shared(kernel)) {
    return refuse(cudaErrorInvalidValue,
                  fmt::format("{} bytes of shared memory, the kernel is allowed {}",
                              config.dynamicSmemBytes, allowed_shared(kernel)));
  }
  launch_failure = run(grid, block, config.dynamicSmemBytes, body);
  return launch_failure.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}

}  // namespace moetune::simt

extern "C" {

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : moetune::simt::launch_failure.c_str();
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    default:
      return "another error";
  }
}

cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<size_t>(value) > moetune::simt::kMaxSharedBytes) {
    return moetune::simt::refuse(cudaErrorInvalidValue,
                                 fmt::format("{} bytes of shared memory, a block has {} at most",
                                             value, moetune::simt::kMaxSharedBytes));
  }
  const std::lock_guard lock(moetune::simt::allowed_mutex);
  moetune::simt::allowed_shared_bytes[kernel] = static_cast<size_t>(value);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  // Exactly that long, so that the address sanitizer sees what goes past the end.
  if (posix_memalign(pointer, moetune::simt::kAlignmentBytes, std::max<size_t>(bytes, 1)) != 0) {
    return cudaErrorMemoryAllocation;
  }
  if (bytes > 0) std::memset(*pointer, 0xFF, bytes);
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (bytes > 0) std::memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t) {
  for (size_t row = 0; row < height; ++row) {
    cudaMemcpy(static_cast<char*>(to) + row * to_pitch,
               static_cast<const char*>(from) + row * from_pitch, width, kind);
  }
  return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  if (bytes > 0) std::memset(to, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  return cudaMemset(to, value, bytes);
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = nullptr;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

}  // extern "C"
