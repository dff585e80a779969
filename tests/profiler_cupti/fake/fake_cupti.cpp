// The functions that cupti_recorder.cpp calls. Reading records stays the real library's work.
#include "tests/profiler_cupti/fake/fake_cupti.h"

#include <cuda_runtime_api.h>

#include <algorithm>

namespace fake {

Machine machine;

namespace {

CUpti_CallbackFunc callback = nullptr;
CUpti_TimestampCallbackFunc clock_callback = nullptr;
CUpti_BuffersCallbackRequestFunc request = nullptr;
CUpti_BuffersCallbackCompleteFunc complete = nullptr;
std::set<CUpti_CallbackId> resource_callbacks;
uint8_t* buffer = nullptr;
size_t buffer_size = 0;
size_t used = 0;
thread_local std::vector<uint64_t> op_ids;
CUpti_SubscriberHandle const kHandle = reinterpret_cast<CUpti_SubscriberHandle>(0x10);

void hand_over() {
  if (buffer == nullptr) return;
  complete(nullptr, 0, buffer, buffer_size, used);
  --machine.num_buffers_out;
  buffer = nullptr;
}

CUgraphNode handle_of(uint64_t node) {
  return reinterpret_cast<CUgraphNode>(static_cast<uintptr_t>(node));
}

void tell(CUpti_CallbackIdResource id, const CUpti_GraphData& data) {
  if (!machine.is_subscribed || !resource_callbacks.contains(id)) return;
  CUpti_GraphData copy = data;
  CUpti_ResourceData resource{};
  resource.resourceDescriptor = &copy;
  callback(nullptr, CUPTI_CB_DOMAIN_RESOURCE, id, &resource);
}

}  // namespace

void write(const void* record, size_t bytes) {
  if (buffer != nullptr && used + bytes > buffer_size) hand_over();
  if (buffer == nullptr) {
    size_t max_num_records = 1;
    request(&buffer, &buffer_size, &max_num_records);
    used = 0;
    if (buffer == nullptr) {
      ++machine.num_refused;
      return;
    }
    ++machine.num_buffers_out;
  }
  std::memcpy(buffer + used, record, bytes);
  used += bytes;
}

uint64_t current_op() { return op_ids.empty() ? 0 : op_ids.back(); }
uint64_t now() { return clock_callback == nullptr ? 0 : clock_callback(); }

void create_node(uint64_t node) {
  CUpti_GraphData data{};
  data.node = handle_of(node);
  tell(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, data);
}
void clone_node(uint64_t original, uint64_t node) {
  CUpti_GraphData data{};
  data.originalNode = handle_of(original);
  data.node = handle_of(node);
  tell(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, data);
}
void depend(uint64_t node, uint64_t dependency) {
  CUpti_GraphData data{};
  data.node = handle_of(node);
  data.dependency = handle_of(dependency);
  tell(CUPTI_CBID_RESOURCE_GRAPHNODE_DEPENDENCY_CREATED, data);
}
void fail_fatally(const char* message) {
  CUpti_StateData state{};
  state.notification.result = CUPTI_ERROR_HARDWARE;
  state.notification.message = message;
  callback(nullptr, CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR, &state);
}

void reset() {
  machine = Machine{};
  callback = nullptr;
  clock_callback = nullptr;
  resource_callbacks.clear();
  op_ids.clear();
}

}  // namespace fake

using fake::machine;

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) {
  *version = machine.driver_version;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = machine.num_devices;
  return machine.num_devices > 0 ? cudaSuccess : cudaErrorInsufficientDriver;
}
cudaError_t cudaGetLastError() { return cudaErrorInsufficientDriver; }
const char* cudaGetErrorString(cudaError_t) { return "driver version is insufficient"; }
cudaError_t cudaDeviceSynchronize() {
  ++machine.num_synchronisations;
  return cudaSuccess;
}

CUptiResult cuptiGetVersion(uint32_t* version) {
  *version = machine.cupti_version;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc function,
                              void*, CUpti_SubscriberParams* params) {
  if (machine.subscribe_result != CUPTI_SUCCESS) {
    std::snprintf(params->oldSubscriberName, params->oldSubscriberSize, "%s",
                  machine.subscriber.c_str());
    return machine.subscribe_result;
  }
  machine.is_subscribed = true;
  fake::callback = function;
  *subscriber = fake::kHandle;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  machine.is_subscribed = false;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle,
                                CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  if (enable != 0 && domain == CUPTI_CB_DOMAIN_RESOURCE) fake::resource_callbacks.insert(id);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc function) {
  if (machine.clock_result != CUPTI_SUCCESS) return machine.clock_result;
  machine.has_clock = true;
  fake::clock_callback = function;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  fake::request = request;
  fake::complete = complete;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (kind == machine.failing_kind) return machine.enable_result;
  if (!machine.has_clock) machine.was_enabled_before_clock = true;
  machine.enabled.insert(kind);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  machine.enabled.erase(kind);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId id, uint8_t enable) {
  if (enable != 0) {
    machine.driver_calls_off.erase(id);
  } else {
    machine.driver_calls_off.insert(id);
  }
  return machine.driver_api_result;
}
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId, uint8_t) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute, size_t*, void*) {
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetAttribute(CUpti_ActivityAttribute attribute, size_t*, void* value) {
  const size_t bytes = attribute == CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE ? 3200000 : 3;
  std::memcpy(value, &bytes, sizeof(bytes));
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind, uint64_t id) {
  fake::op_ids.push_back(id);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind, uint64_t*) {
  if (fake::op_ids.empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  fake::op_ids.pop_back();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(uint32_t flag) {
  ++machine.num_flushes;
  if (flag != CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) machine.was_flushed_softly = true;
  if (machine.num_synchronisations == 0) machine.was_flushed_unsynchronised = true;
  fake::hand_over();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  *dropped = machine.num_dropped;
  machine.num_dropped = 0;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t* id) {
  *id = reinterpret_cast<uintptr_t>(node);
  return node == nullptr ? CUPTI_ERROR_INVALID_PARAMETER : CUPTI_SUCCESS;
}

}  // extern "C"
