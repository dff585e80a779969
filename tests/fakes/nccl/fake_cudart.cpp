// The few calls of the CUDA runtime that transports make, on the host: a stream is a thread, device
// memory is host memory that is known as such, an event is a flag that the stream sets.
#include "tests/fakes/nccl/fake_cudart.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/fakes/nccl/fake_nccl.h"

struct CUstream_st {
  CUstream_st();
  ~CUstream_st();

  void end() {
    {
      const std::scoped_lock lock(mutex);
      is_ending = true;
    }
    changed.notify_all();
    thread.join();
  }

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return is_ending || !queue.empty(); });
      if (queue.empty()) return;
      const std::function<void()> work = std::move(queue.front());
      queue.pop_front();
      is_busy = true;
      lock.unlock();
      work();
      lock.lock();
      is_busy = false;
      changed.notify_all();
    }
  }

  void wait_idle() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return queue.empty() && !is_busy; });
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool is_ending = false;
  bool is_busy = false;
  bool is_capturing = false;
  std::thread thread;
};

namespace {

struct Flag {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_set = false;

  void set() {
    const std::scoped_lock lock(mutex);
    is_set = true;
    changed.notify_all();
  }
};

}  // namespace

struct CUevent_st {
  std::shared_ptr<Flag> flag;  ///< of the last recording
};

namespace moetune::fakes {
namespace {

struct Memory {
  std::mutex mutex;
  std::map<const char*, size_t> device;
  std::set<void*> pinned;
  std::map<std::string, int> faults;
  std::multimap<int, CUstream_st*> streams;  ///< by device
};

Memory& memory() {
  static Memory instance;
  return instance;
}

std::atomic<size_t> g_free_bytes{size_t{1} << 36};
std::atomic<size_t> g_total_bytes{size_t{1} << 36};
std::atomic<int> g_num_devices{0};
thread_local int t_device = -1;

int device_of_thread() {
  if (t_device < 0) t_device = g_num_devices++;
  return t_device;
}

cudaError_t fault_of(const char* call) {
  const std::scoped_lock lock(memory().mutex);
  const auto at = memory().faults.find(call);
  if (at == memory().faults.end()) return cudaSuccess;
  return static_cast<cudaError_t>(at->second);
}

CUstream_st& resolve(CUstream_st* stream) {
  thread_local std::unique_ptr<CUstream_st> own;
  if (stream != nullptr) return *stream;
  if (!own) own = std::make_unique<CUstream_st>();
  return *own;
}

}  // namespace

void enqueue(CUstream_st* stream, std::function<void()> work) {
  CUstream_st& target = resolve(stream);
  {
    const std::scoped_lock lock(target.mutex);
    if (target.is_capturing) return;
    target.queue.push_back(std::move(work));
  }
  target.changed.notify_all();
}

void inject_cuda(const std::string& call, int error) {
  const std::scoped_lock lock(memory().mutex);
  memory().faults[call] = error;
}

void reset_cuda() {
  const std::scoped_lock lock(memory().mutex);
  memory().faults.clear();
}

void set_device_memory(size_t free_bytes, size_t total_bytes) {
  g_free_bytes = free_bytes;
  g_total_bytes = total_bytes;
}

void use_device(int device) { t_device = device; }

int num_live_allocations() {
  const std::scoped_lock lock(memory().mutex);
  return static_cast<int>(memory().device.size() + memory().pinned.size());
}

void set_capturing(void* stream, bool is_capturing) {
  CUstream_st& target = resolve(static_cast<CUstream_st*>(stream));
  const std::scoped_lock lock(target.mutex);
  target.is_capturing = is_capturing;
}

std::shared_ptr<char> device_memory(size_t bytes) {
  void* pointer = nullptr;
  (void)cudaMalloc(&pointer, bytes);
  return {static_cast<char*>(pointer), [](char* memory) { (void)cudaFree(memory); }};
}

// As the real one does before it frees memory.
void wait_for_device() {
  std::vector<CUstream_st*> streams;
  {
    const std::scoped_lock lock(memory().mutex);
    const auto [begin, end] = memory().streams.equal_range(device_of_thread());
    for (auto at = begin; at != end; ++at) streams.push_back(at->second);
  }
  for (CUstream_st* stream : streams) stream->wait_idle();
}

std::shared_ptr<CUstream_st> make_stream() { return std::make_shared<CUstream_st>(); }

}  // namespace moetune::fakes

using namespace moetune::fakes;

CUstream_st::CUstream_st() : thread([this] { run(); }) {
  const std::scoped_lock lock(memory().mutex);
  memory().streams.emplace(device_of_thread(), this);
}

CUstream_st::~CUstream_st() {
  end();
  const std::scoped_lock lock(memory().mutex);
  std::erase_if(memory().streams, [this](const auto& entry) { return entry.second == this; });
}

extern "C" {

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "some CUDA error";
}

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorUnknown";
}

cudaError_t cudaGetDevice(int* device) {
  *device = device_of_thread();
  return fault_of("cudaGetDevice");
}
cudaError_t cudaSetDevice(int device) {
  t_device = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  std::snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", static_cast<unsigned>(device));
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = g_free_bytes;
  *total_bytes = g_total_bytes;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  const cudaError_t error = fault_of("cudaMalloc");
  if (error != cudaSuccess) return error;
  *pointer = std::malloc(std::max<size_t>(bytes, 1));
  std::memset(*pointer, 0xFF, bytes);
  const std::scoped_lock lock(memory().mutex);
  memory().device[static_cast<char*>(*pointer)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
  wait_for_device();
  {
    const std::scoped_lock lock(memory().mutex);
    memory().device.erase(static_cast<char*>(pointer));
  }
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  *pointer = std::malloc(bytes);
  const std::scoped_lock lock(memory().mutex);
  memory().pinned.insert(*pointer);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* pointer) {
  {
    const std::scoped_lock lock(memory().mutex);
    memory().pinned.erase(pointer);
  }
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const std::scoped_lock lock(memory().mutex);
  const auto* address = static_cast<const char*>(pointer);
  auto next = memory().device.upper_bound(address);
  const bool is_device =
      next != memory().device.begin() && address < std::prev(next)->first + std::prev(next)->second;
  attributes->type = is_device ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}

cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
  std::memset(pointer, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
  enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  return fault_of("cudaMemcpyAsync");
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int /*flags*/) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  CUstream_st& target = resolve(stream);
  const std::scoped_lock lock(target.mutex);
  *status = target.is_capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int /*flags*/) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->flag = std::make_shared<Flag>();
  enqueue(stream, [flag = event->flag] { flag->set(); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::scoped_lock lock(event->flag->mutex);
  if (!event->flag->is_set) return cudaErrorNotReady;
  return fault_of("cudaEventQuery");
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int /*flags*/) {
  enqueue(stream, [flag = event->flag] {
    std::unique_lock lock(flag->mutex);
    flag->changed.wait(lock, [&] { return flag->is_set; });
  });
  return cudaSuccess;
}

}  // extern "C"
