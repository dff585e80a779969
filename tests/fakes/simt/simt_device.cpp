// What the fake device says of itself, which of its calls fail, and what its errors are called. See
// simt_device.h.
#include "tests/fakes/simt/simt_device.h"

#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <utility>

#include "tests/fakes/simt/simt_streams.h"

namespace moetune::simt {
namespace {

constexpr int kNumSms = 132;
constexpr int kLowestPriority = 0;
constexpr int kHighestPriority = -5;

thread_local int thread_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
/// What the last failing call of this thread said of its error, if it did.
thread_local cudaError_t explained_error = cudaSuccess;
thread_local std::string explanation;
thread_local bool is_explained = false;

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorText* text_of(cudaError_t error) {
  const auto* found = std::find_if(std::begin(kErrors), std::end(kErrors),
                                   [&](const ErrorText& known) { return known.error == error; });
  return found == std::end(kErrors) ? nullptr : found;
}

/// Runs what is outstanding and changes the schedule; throws, once that is done, when a failure
/// would be lost by it.
void change_schedule(World& w, const Schedule& schedule) {
  if (!w.captures.empty()) {
    throw std::logic_error("simt: the schedule cannot change while a stream is captured");
  }
  std::set<int> devices;
  for (const CUstream_st* stream : w.streams) devices.insert(stream->device);
  for (const auto& [device, stream] : w.legacy_streams) devices.insert(device);
  for (const auto& [device, nodes] : w.orphans) devices.insert(device);
  for (const int device : devices) static_cast<void>(finish_device(device));
  w.schedule = schedule;
  w.random.seed(schedule.seed);
  const bool is_lost = std::exchange(w.failure, cudaSuccess) != cudaSuccess && !w.is_failure_known;
  const std::string text = std::exchange(w.failure_text, {});
  if (is_lost) throw std::runtime_error("simt: work that nobody waited for failed: " + text);
}

bool is_device(int device) { return device >= 0 && device < world().device_count; }

}  // namespace

World& world() {
  static auto* the_world = new World;
  return *the_world;
}

int current_device() { return thread_device; }

bool is_faulty(const char* function, cudaError_t& error) {
  auto& faults = world().faults;
  if (faults.empty()) return false;
  const auto found = faults.find(function);
  if (found == faults.end() || found->second.num_before-- > 0) return false;
  found->second.num_before = 0;
  error = found->second.error;
  return true;
}

cudaError_t enter(const char* function) {
  World& w = world();
  is_explained = false;
  cudaError_t error = cudaSuccess;
  if (w.is_executing) {
    return refuse(cudaErrorNotPermitted, fmt::format("{} by work that is on a stream", function));
  }
  if (is_faulty(function, error)) return error;
  if (w.device_count == 0) return cudaErrorNoDevice;
  if (w.failure != cudaSuccess) w.is_failure_known = true;
  return w.failure;
}

cudaError_t leave(cudaError_t status) {
  if (status == cudaSuccess) return status;
  World& w = world();
  last_error = status;
  if (status == w.failure) {
    w.is_failure_known = true;
    return refuse(status, w.failure_text);
  }
  if (!is_explained) explained_error = cudaSuccess;
  return status;
}

cudaError_t refuse(cudaError_t status, const std::string& text) {
  explained_error = status;
  explanation = text;
  is_explained = true;
  return status;
}

void set_schedule(const Schedule& schedule) {
  const std::lock_guard lock(world().mutex);
  change_schedule(world(), schedule);
}

void set_memory_capacity(int64_t bytes) {
  const std::lock_guard lock(world().mutex);
  world().capacity_bytes = bytes;
}

void set_memory_of_others(int64_t bytes) {
  const std::lock_guard lock(world().mutex);
  world().bytes_of_others = bytes;
}

void set_compute_capability(int major, int minor) {
  const std::lock_guard lock(world().mutex);
  world().major = major;
  world().minor = minor;
}

void set_device_count(int count) {
  const std::lock_guard lock(world().mutex);
  world().device_count = count;
}

void set_failure(const std::string& function, cudaError_t error, int num_before) {
  const std::lock_guard lock(world().mutex);
  if (error == cudaSuccess) {
    world().faults.erase(function);
  } else {
    world().faults[function] = {error, num_before};
  }
}

void reset() {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  const World fresh;
  w.faults.clear();
  w.device_count = fresh.device_count;
  w.capacity_bytes = fresh.capacity_bytes;
  w.bytes_of_others = fresh.bytes_of_others;
  w.major = fresh.major;
  w.minor = fresh.minor;
  thread_device = 0;
  last_error = cudaSuccess;
  change_schedule(w, fresh.schedule);
}

}  // namespace moetune::simt

using namespace moetune::simt;

extern "C" {

const char* cudaGetErrorString(cudaError_t error) {
  if (error == explained_error && error != cudaSuccess) return explanation.c_str();
  const ErrorText* known = text_of(error);
  return known == nullptr ? "unrecognized error code" : known->text;
}

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* known = text_of(error);
  return known == nullptr ? "unrecognized error code" : known->name;
}

// What ended the device stays.
cudaError_t cudaGetLastError() {
  const std::lock_guard lock(world().mutex);
  const cudaError_t error = std::exchange(last_error, cudaSuccess);
  return world().failure != cudaSuccess ? world().failure : error;
}

cudaError_t cudaPeekAtLastError() {
  const std::lock_guard lock(world().mutex);
  return world().failure != cudaSuccess ? world().failure : last_error;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return call("cudaGetDeviceCount", [&] {
    *count = world().device_count;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return call("cudaGetDevice", [&] {
    *device = current_device();
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", [&] {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    thread_device = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call("cudaGetDeviceProperties", [&] {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    *properties = {};
    std::strncpy(properties->name, "SIMT fake", sizeof(properties->name) - 1);
    properties->totalGlobalMem = static_cast<size_t>(world().capacity_bytes);
    properties->sharedMemPerBlock = 48 * 1024;
    properties->sharedMemPerBlockOptin = kMaxSharedBytes;
    properties->sharedMemPerMultiprocessor = kMaxSharedBytes + 1024;
    properties->regsPerBlock = 65536;
    properties->warpSize = kWarpLanes;
    properties->maxThreadsPerBlock = kMaxBlockThreads;
    properties->maxThreadsPerMultiProcessor = 2 * kMaxBlockThreads;
    properties->multiProcessorCount = kNumSms;
    properties->major = world().major;
    properties->minor = world().minor;
    properties->asyncEngineCount = 3;
    properties->unifiedAddressing = 1;
    properties->concurrentKernels = 1;
    properties->l2CacheSize = 50 << 20;
    properties->memoryBusWidth = 5120;
    properties->pciBusID = device + 1;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call("cudaDeviceGetAttribute", [&] {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    // Not an attribute in the runtime's list; the numbers are the driver's.
    if (static_cast<int>(attribute) == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) {
      *value = 1;
      return cudaSuccess;
    }
    switch (attribute) {
      case cudaDevAttrComputeCapabilityMajor:
        *value = world().major;
        break;
      case cudaDevAttrComputeCapabilityMinor:
        *value = world().minor;
        break;
      case cudaDevAttrMultiProcessorCount:
        *value = kNumSms;
        break;
      case cudaDevAttrMaxThreadsPerBlock:
        *value = kMaxBlockThreads;
        break;
      case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = 2 * kMaxBlockThreads;
        break;
      case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = 48 * 1024;
        break;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = kMaxSharedBytes;
        break;
      case cudaDevAttrWarpSize:
        *value = kWarpLanes;
        break;
      case cudaDevAttrAsyncEngineCount:
        *value = 3;
        break;
      case cudaDevAttrUnifiedAddressing:
      case cudaDevAttrConcurrentKernels:
      case cudaDevAttrStreamPrioritiesSupported:
        *value = 1;
        break;
      case cudaDevAttrL2CacheSize:
        *value = 50 << 20;
        break;
      case cudaDevAttrMemoryPoolsSupported:
      case cudaDevAttrCooperativeLaunch:
      case cudaDevAttrManagedMemory:
      case cudaDevAttrPageableMemoryAccess:
        *value = 0;
        break;
      default:
        return refuse(cudaErrorInvalidValue,
                      fmt::format("simt: attribute {} of the device", static_cast<int>(attribute)));
    }
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  return call("cudaDeviceGetStreamPriorityRange", [&] {
    *lowest = kLowestPriority;
    *highest = kHighestPriority;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  return call("cudaDeviceGetPCIBusId", [&] {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    const std::string text = fmt::format("0000:{:02x}:00.0", device + 1);
    if (length <= static_cast<int>(text.size())) return cudaErrorInvalidValue;
    std::strncpy(id, text.c_str(), static_cast<size_t>(length));
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// 0 is what the real one says without a driver.
cudaError_t cudaDriverGetVersion(int* version) {
  const std::lock_guard lock(world().mutex);
  *version = world().device_count == 0 ? 0 : CUDART_VERSION;
  return cudaSuccess;
}

}  // extern "C"
