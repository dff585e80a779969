#include "kernels/cuda/runtime_check.h"

#include <cuda_runtime_api.h>

#include "kernels/base/error.h"
#include "kernels/cuda/device_error.h"

namespace moetune::kernels::cuda {
namespace {

struct DeviceMemory {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};

DeviceMemory device_memory() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "memory information");
  return {static_cast<int64_t>(free_bytes), static_cast<int64_t>(total_bytes)};
}

static_assert(kDeviceErrors ==
              std::array<int, 12>{cudaErrorDevicesUnavailable, cudaErrorECCUncorrectable,
                                  cudaErrorIllegalAddress, cudaErrorLaunchTimeout, cudaErrorAssert,
                                  cudaErrorHardwareStackError, cudaErrorIllegalInstruction,
                                  cudaErrorMisalignedAddress, cudaErrorInvalidAddressSpace,
                                  cudaErrorInvalidPc, cudaErrorLaunchFailure, cudaErrorUnknown});

}  // namespace

void check(int code, const char* what) {
  const auto status = static_cast<cudaError_t>(code);
  if (status == cudaSuccess) return;
  if (status == cudaErrorMemoryAllocation) {
    int device = 0;
    static_cast<void>(cudaGetDevice(&device));
    throw_out_of_memory(device, 0);
  }
  const std::string text =
      fmt::format("CUDA, {}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
  if (is_device_error(status)) throw base::DeviceFailed(text);
  throw base::Error(text);
}

void throw_library_error(const std::string& text, bool is_out_of_memory) {
  // A kernel that failed shows at any later call; the library only says that its own went wrong.
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  const cudaError_t status = cudaMemGetInfo(&free_bytes, &total_bytes);
  if (is_device_error(status)) {
    throw base::DeviceFailed(fmt::format("{}; CUDA: {} ({})", text, cudaGetErrorString(status),
                                         cudaGetErrorName(status)));
  }
  if (is_out_of_memory) throw base::OutOfMemory(text);
  throw base::Error(text);
}

std::mutex& measuring_mutex() {
  static std::mutex mutex;
  return mutex;
}

int64_t used_device_bytes() {
  const DeviceMemory memory = device_memory();
  return memory.total_bytes - memory.free_bytes;
}

void throw_out_of_memory(int device, int64_t bytes) {
  static_cast<void>(cudaGetLastError());
  const DeviceMemory memory = device_memory();
  throw base::OutOfMemory("of the device", "driver", bytes, memory.total_bytes - memory.free_bytes,
                          memory.total_bytes, device);
}

}  // namespace moetune::kernels::cuda
