// Writes what the fake device reports as CUPTI's records, into the subscriber's buffers.
#include "tests/fakes/simt_cupti/fake_session.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>

namespace moetune::simt_cupti {
namespace {

constexpr unsigned kFirstStream = 7;            // CUPTI's number of the default stream
constexpr uint64_t kDeviceWriter = 1ULL << 32;  // above those of threads

/// From 1.
uint32_t thread_number() {
  static std::atomic<uint32_t> last{0};
  thread_local const uint32_t number = ++last;
  return number;
}

/// When the thread's current call began.
thread_local uint64_t call_start_ns = 0;

/// A runtime function and the driver's, which it calls and which has the same number.
struct Twin {
  std::string_view function;
  CUpti_CallbackId driver;
};
constexpr Twin kTwins[] = {
    {"enqueue", CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx},
    {"cudaLaunchKernelEx", CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx},
    {"cudaGraphLaunch", CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch},
    {"cudaMemcpyAsync", CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync},
    {"cudaMemsetAsync", CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async},
    {"cudaEventRecord", CUPTI_DRIVER_TRACE_CBID_cuEventRecord},
    {"cudaStreamWaitEvent", CUPTI_DRIVER_TRACE_CBID_cuStreamWaitEvent},
    {"cudaStreamSynchronize", CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize},
    {"cudaEventSynchronize", CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize},
};

CUpti_CallbackId driver_call(std::string_view function) {
  for (const Twin& twin : kTwins) {
    if (twin.function == function) return twin.driver;
  }
  return 0;
}

/// The real library's numbers by "cudaMemcpyAsync_v3020" without the version.
CUpti_CallbackId runtime_call(std::string_view function) {
  static const auto* const all = [] {
    auto* made = new std::map<std::string, CUpti_CallbackId, std::less<>>;
    for (uint32_t id = 1; id < CUPTI_RUNTIME_TRACE_CBID_SIZE; ++id) {
      const char* name = nullptr;
      if (cuptiGetCallbackName(CUPTI_CB_DOMAIN_RUNTIME_API, id, &name) != CUPTI_SUCCESS) continue;
      if (name == nullptr) continue;
      const std::string_view text = name;
      (*made)[std::string(text.substr(0, text.rfind("_v")))] = id;  // of several versions the last
    }
    return made;
  }();
  if (function == "cudaLaunchKernelEx") function = "cudaLaunchKernelExC";
  const auto found = all->find(function);
  return found == all->end() ? 0 : found->second;
}

/// A node's id names its graph, too. What is captured has no graph of its own yet.
constexpr uint64_t kCapturedGraph = 1;
uint32_t graph_of(uint64_t node) { return static_cast<uint32_t>(node >> 32); }

uint32_t context_of(int device) { return static_cast<uint32_t>(device) + 1; }

/// The fields that all kinds of work share by name.
template <typename Record>
Record work_record(CUpti_ActivityKind kind, const simt::Operation& operation, uint64_t start_ns,
                   uint64_t end_ns) {
  Record record{};
  record.kind = kind;
  record.start = start_ns;
  record.end = end_ns;
  record.deviceId = static_cast<uint32_t>(operation.device);
  record.contextId = context_of(operation.device);
  record.streamId = operation.stream + kFirstStream;
  record.correlationId = operation.call;
  return record;
}

uint8_t memory_kind(bool is_device, bool is_pinned) {
  if (is_device) return CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  return is_pinned ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED : CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
}

uint8_t copy_kind(cudaMemcpyKind direction) {
  switch (direction) {
    case cudaMemcpyHostToDevice:
      return CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
    case cudaMemcpyDeviceToHost:
      return CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
    case cudaMemcpyDeviceToDevice:
      return CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
    default:
      return CUPTI_ACTIVITY_MEMCPY_KIND_HTOH;
  }
}

CUgraphNode handle_of(const void* node) {
  return reinterpret_cast<CUgraphNode>(const_cast<void*>(node));
}

}  // namespace

Session& Session::instance() {
  static auto* session = new Session;
  return *session;
}

std::map<CUpti_ExternalCorrelationKind, std::vector<uint64_t>>& Session::external_ids() {
  thread_local std::map<CUpti_ExternalCorrelationKind, std::vector<uint64_t>> ids;
  return ids;
}

CUptiResult Session::wanted_failure(const char* function) {
  const std::scoped_lock lock(mutex);
  const auto found = behaviour.failures.find(function);
  return found == behaviour.failures.end() ? CUPTI_SUCCESS : found->second;
}

void Session::prepare_names() {
  static_cast<void>(name_of_function(nullptr));
  static_cast<void>(runtime_call(""));
}

// --- buffers ------------------------------------------------------------------------------------

void Session::hand_over(Buffer& buffer) {
  if (buffer.data == nullptr) return;
  complete(nullptr, 0, buffer.data, buffer.size, buffer.used);
  ++counts.num_buffers;
  --counts.num_buffers_out;
  buffer = {};
}

void Session::flush() {
  const std::scoped_lock lock(mutex);
  for (auto& [writer, buffer] : buffers_) hand_over(buffer);
}

void Session::write(uint64_t writer, const void* record, size_t bytes, CUpti_ActivityKind kind) {
  Buffer& buffer = buffers_[writer];
  size_t room = buffer.size;
  if (behaviour.buffer_bytes > 0) room = std::min(room, behaviour.buffer_bytes);
  if (buffer.data != nullptr && buffer.used + bytes > room) hand_over(buffer);
  if (buffer.data == nullptr) {
    size_t max_num_records = 0;
    request(&buffer.data, &buffer.size, &max_num_records);
    buffer.used = 0;
    if (buffer.data == nullptr) {
      ++counts.num_dropped;
      ++num_untold_drops;
      return;
    }
    ++counts.num_buffers_out;
  }
  std::memcpy(buffer.data + buffer.used, record, bytes);
  buffer.used += bytes;
  ++counts.records[kind];
}

// --- calls --------------------------------------------------------------------------------------

void Session::wait_until(uint64_t end_ns) {
  {
    const std::scoped_lock lock(mutex);
    if (!enabled.contains(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) return;
  }
  while (now_ns() < end_ns) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

uint32_t Session::begin_call(const char* function) {
  call_start_ns = now_ns();
  if (behaviour.call_ns) wait_until(call_start_ns + behaviour.call_ns(function));
  const std::scoped_lock lock(mutex);
  return ++last_call_;
}

void Session::end_call(const char* function, uint32_t call, cudaError_t status) {
  const uint64_t end_ns = now_ns();
  const CUpti_CallbackId runtime_id = runtime_call(function);
  const CUpti_CallbackId driver_id = driver_call(function);
  const std::scoped_lock lock(mutex);
  const bool has_runtime = runtime_id != 0 && enabled.contains(CUPTI_ACTIVITY_KIND_RUNTIME) &&
                           !disabled_runtime_calls.contains(runtime_id);
  // As on a card: a call that is switched on without the kind is not recorded.
  const bool has_driver = driver_id != 0 && enabled.contains(CUPTI_ACTIVITY_KIND_DRIVER) &&
                          !disabled_driver_calls.contains(driver_id);
  if (!has_runtime && !has_driver) return;
  if (enabled.contains(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)) {
    for (const auto& [kind, ids] : external_ids()) {
      if (ids.empty()) continue;
      CUpti_ActivityExternalCorrelation link{};
      link.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
      link.externalKind = kind;
      link.externalId = ids.back();
      link.correlationId = call;
      write(thread_number(), link);
    }
  }
  CUpti_ActivityAPI record{};
  record.start = call_start_ns;
  record.end = end_ns;
  record.processId = static_cast<uint32_t>(getpid());
  record.threadId = thread_number();
  record.correlationId = call;
  record.returnValue = static_cast<uint32_t>(status);
  if (has_driver) {  // it returns before the runtime's does
    record.kind = CUPTI_ACTIVITY_KIND_DRIVER;
    record.cbid = driver_id;
    write(thread_number(), record);
  }
  if (has_runtime) {
    record.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
    record.cbid = runtime_id;
    write(thread_number(), record);
  }
}

uint64_t Session::now_ns() {
  if (const CUpti_TimestampCallbackFunc function = clock; function != nullptr) return function();
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

// --- work ---------------------------------------------------------------------------------------

void Session::ran(const simt::Operation& operation, uint64_t start_ns) {
  if (operation.call == 0) return;  // enqueued before anybody watched
  if (behaviour.work_ns) wait_until(start_ns + behaviour.work_ns(operation));
  const uint64_t end_ns = now_ns();
  const std::scoped_lock lock(mutex);
  switch (operation.kind) {
    case simt::WorkKind::kernel:
    case simt::WorkKind::library_kernel:
      return write_kernel(operation, start_ns, end_ns);
    case simt::WorkKind::copy:
      return write_copy(operation, start_ns, end_ns);
    case simt::WorkKind::fill:
      return write_fill(operation, start_ns, end_ns);
    case simt::WorkKind::host:
      return;  // has records of another kind
  }
}

void Session::write_kernel(const simt::Operation& operation, uint64_t start_ns, uint64_t end_ns) {
  if (!enabled.contains(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) return;
  auto record = work_record<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                                    operation, start_ns, end_ns);
  record.completed = end_ns;
  record.gridX = static_cast<int32_t>(operation.grid.x);
  record.gridY = static_cast<int32_t>(operation.grid.y);
  record.gridZ = static_cast<int32_t>(operation.grid.z);
  record.blockX = static_cast<int32_t>(operation.block.x);
  record.blockY = static_cast<int32_t>(operation.block.y);
  record.blockZ = static_cast<int32_t>(operation.block.z);
  record.dynamicSharedMemory = static_cast<int32_t>(operation.shared_bytes);
  record.name = operation.kernel == nullptr ? "library_kernel" : name_of_function(operation.kernel);
  record.graphNodeId = id_of(operation.node);
  record.graphId = graph_of(record.graphNodeId);
  if (record.graphNodeId != 0) ++counts.num_graph_work;
  write(kDeviceWriter + record.deviceId, record);
}

void Session::write_copy(const simt::Operation& operation, uint64_t start_ns, uint64_t end_ns) {
  if (!enabled.contains(CUPTI_ACTIVITY_KIND_MEMCPY)) return;
  auto record =
      work_record<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY, operation, start_ns, end_ns);
  const cudaMemcpyKind way = operation.direction;
  record.copyKind = copy_kind(way);
  record.srcKind = memory_kind(way == cudaMemcpyDeviceToHost || way == cudaMemcpyDeviceToDevice,
                               operation.is_from_pinned);
  record.dstKind = memory_kind(way == cudaMemcpyHostToDevice || way == cudaMemcpyDeviceToDevice,
                               operation.is_to_pinned);
  record.flags = operation.is_async ? CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC : CUPTI_ACTIVITY_FLAG_NONE;
  record.bytes = operation.bytes;
  record.copyCount = 1;
  record.graphNodeId = id_of(operation.node);
  record.graphId = graph_of(record.graphNodeId);
  if (record.graphNodeId != 0) ++counts.num_graph_work;
  write(kDeviceWriter + record.deviceId, record);
}

void Session::write_fill(const simt::Operation& operation, uint64_t start_ns, uint64_t end_ns) {
  if (!enabled.contains(CUPTI_ACTIVITY_KIND_MEMSET)) return;
  auto record =
      work_record<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET, operation, start_ns, end_ns);
  record.flags = operation.is_async ? CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC : CUPTI_ACTIVITY_FLAG_NONE;
  record.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  record.bytes = operation.bytes;
  record.graphNodeId = id_of(operation.node);
  record.graphId = graph_of(record.graphNodeId);
  if (record.graphNodeId != 0) ++counts.num_graph_work;
  write(kDeviceWriter + record.deviceId, record);
}

// --- waits --------------------------------------------------------------------------------------

void Session::waited(const simt::WaitReport& wait, uint32_t call) {
  const uint64_t end_ns = now_ns();
  const std::scoped_lock lock(mutex);
  if (call == 0 || !enabled.contains(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION)) return;
  CUpti_ActivitySynchronization2 record{};
  record.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  record.start = wait.start_ns;
  record.end = end_ns;
  record.correlationId = call;
  record.contextId = context_of(wait.device);
  record.streamId = wait.stream + kFirstStream;
  record.cudaEventId = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
  record.cudaEventSyncId = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
  record.returnValue = static_cast<uint32_t>(wait.status);
  switch (wait.kind) {
    case simt::WaitKind::stream:
      record.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE;
      break;
    case simt::WaitKind::device:
      record.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE;
      record.streamId = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
      break;
    case simt::WaitKind::event:
    case simt::WaitKind::stream_for_event: {
      const bool is_host = wait.kind == simt::WaitKind::event;
      record.type = is_host ? CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE
                            : CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT;
      if (is_host) record.streamId = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
      if (wait.record != 0) {
        record.cudaEventId = static_cast<uint32_t>(wait.record);
        record.cudaEventSyncId = wait.record;
      }
      break;
    }
  }
  write(thread_number(), record);
}

void Session::recorded(int device, unsigned stream, uint64_t number, uint32_t call) {
  const uint64_t time_ns = now_ns();
  const std::scoped_lock lock(mutex);
  if (call == 0 || !enabled.contains(CUPTI_ACTIVITY_KIND_CUDA_EVENT)) return;
  CUpti_ActivityCudaEvent2 record{};
  record.kind = CUPTI_ACTIVITY_KIND_CUDA_EVENT;
  record.correlationId = call;
  record.contextId = context_of(device);
  record.streamId = stream + kFirstStream;
  record.eventId = static_cast<uint32_t>(number);
  record.deviceId = static_cast<uint32_t>(device);
  record.deviceTimestamp = time_ns;
  record.cudaEventSyncId = number;
  write(thread_number(), record);
}

// --- graphs -------------------------------------------------------------------------------------

uint64_t Session::id_of(const void* node) {
  if (node == nullptr) return 0;
  const std::scoped_lock lock(mutex);
  const auto found = node_ids_.find(node);
  return found == node_ids_.end() ? 0 : found->second;
}

void Session::tell(CUpti_CallbackIdResource id, const void* node, const void* other) {
  CUpti_CallbackFunc function = nullptr;
  void* data = nullptr;
  {
    const std::scoped_lock lock(mutex);
    if (callback == nullptr || !resource_callbacks.contains(id)) return;
    function = callback;
    data = callback_data;
  }
  CUpti_GraphData graph{};
  graph.node = handle_of(node);
  if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) graph.originalNode = handle_of(other);
  if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_DEPENDENCY_CREATED) graph.dependency = handle_of(other);
  CUpti_ResourceData resource{};
  resource.resourceDescriptor = &graph;
  function(data, CUPTI_CB_DOMAIN_RESOURCE, id, &resource);
}

void Session::name_node(const void* node, uint64_t graph) {
  const std::scoped_lock lock(mutex);
  node_ids_[node] = (graph << 32) + ++last_node_;
}

void Session::created_node(const void* node) {
  name_node(node, kCapturedGraph);
  tell(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, node, nullptr);
}

void Session::depends(const void* node, const void* dependency) {
  tell(CUPTI_CBID_RESOURCE_GRAPHNODE_DEPENDENCY_CREATED, node, dependency);
}

void Session::cloned_node(const void* original, const void* node, uint32_t instance) {
  bool tells_twice = false;
  {
    const std::scoped_lock lock(mutex);
    tells_twice = behaviour.tells_of_clones_twice;
  }
  name_node(node, kCapturedGraph + instance);
  if (tells_twice) tell(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, node, nullptr);
  tell(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, node, original);
}

}  // namespace moetune::simt_cupti
