#include "kernels/cuda/runtime_check.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "kernels/base/environment_failure.h"
#include "kernels/base/error.h"
#include "kernels/base/units.h"
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

/// After an allocation that failed: nothing where the driver does not even tell that any more.
DeviceMemory device_memory_if_known() {
  static_cast<void>(cudaGetLastError());
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) return {};
  return {static_cast<int64_t>(free_bytes), static_cast<int64_t>(total_bytes)};
}

// More than a context takes on any card so far, so that a process alone is never told of others.
constexpr int64_t kMostContextBytes = int64_t{1} << 30;

struct UsesOfDevice {
  int count = 0;
  int64_t bytes_before = 0;
};

std::mutex g_uses_mutex;
std::map<int, UsesOfDevice>& uses() {
  static std::map<int, UsesOfDevice> by_device;
  return by_device;
}

int64_t bytes_of_others(int device) {
  const std::scoped_lock lock(g_uses_mutex);
  return std::max<int64_t>(0, uses()[device].bytes_before - kMostContextBytes);
}

/// What to say where there would be room for `bytes` more but for what other programs held; empty
/// where there would be none.
std::string blame_of_others(int device, int64_t bytes) {
  const DeviceMemory memory = device_memory_if_known();
  const int64_t of_others = bytes_of_others(device);
  const int64_t own = memory.total_bytes - memory.free_bytes - of_others;
  if (of_others <= 0 || own + bytes > memory.total_bytes) return {};
  return fmt::format(
      "other programs held {} of GPU {}'s {} when this began, and now there is no room for more: "
      "end them (nvidia-smi names them), or take another GPU (CUDA_VISIBLE_DEVICES)",
      base::format_bytes(of_others), device, base::format_bytes(memory.total_bytes));
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
    throw_allocation_failed(device, 0);
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
  if (is_out_of_memory) std::rethrow_exception(memory_failure(text));
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

DeviceUse::DeviceUse(int device) : device_(device) {
  check(cudaSetDevice(device), "making the device current");
  const cudaError_t status = cudaFree(nullptr);
  if (status == cudaErrorMemoryAllocation) {
    throw base::EnvironmentFailure(
        fmt::format("other programs have left no memory on GPU {}: nvidia-smi names them", device));
  }
  check(status, "making a context");
  const std::scoped_lock lock(g_uses_mutex);
  UsesOfDevice& all = uses()[device];
  if (all.count == 0) all.bytes_before = bytes_before_ = used_device_bytes();
  ++all.count;
}

DeviceUse::~DeviceUse() {
  const std::scoped_lock lock(g_uses_mutex);
  --uses()[device_].count;
}

void throw_allocation_failed(int device, int64_t bytes) {
  const std::string others = blame_of_others(device, bytes);
  if (!others.empty()) throw base::EnvironmentFailure(others);
  throw_out_of_memory(device, bytes);
}

std::exception_ptr memory_failure(int device, const std::string& text) {
  const std::string others = blame_of_others(device, 0);
  return others.empty() ? std::make_exception_ptr(base::OutOfMemory(text))
                        : std::make_exception_ptr(
                              base::EnvironmentFailure(fmt::format("{}: {}", text, others)));
}

std::exception_ptr memory_failure(const std::string& text) {
  int device = 0;
  static_cast<void>(cudaGetDevice(&device));
  return memory_failure(device, text);
}

void throw_out_of_memory(int device, int64_t bytes) {
  const DeviceMemory memory = device_memory_if_known();
  throw base::OutOfMemory("of the device", "driver", bytes, memory.total_bytes - memory.free_bytes,
                          memory.total_bytes, device);
}

}  // namespace moetune::kernels::cuda
