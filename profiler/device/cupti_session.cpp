// Subscribes, answers the callbacks, and says how each failure reads.
#include "profiler/device/cupti_session.h"

#include <cuda_runtime_api.h>
#include <cupti.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace moetune::profiler {
namespace {

// CUPTI advises 1 to 10 MB. Each thread fills a buffer of its own.
constexpr size_t kBufferBytes = 8 << 20;
constexpr size_t kMaxBuffers = 64;

/// What the user can do about it.
const char* advice_of(CUptiResult result) {
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return "; it needs root, CAP_PERFMON or the driver option "
             "NVreg_RestrictProfilingToAdminUsers=0";
    case CUPTI_ERROR_NOT_COMPATIBLE:
    case CUPTI_ERROR_CUDA_COMPILER_NOT_COMPATIBLE:
    case CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED:
      return "; the driver or another profiler in this process does not fit this CUPTI";
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
      return "; run without nsys, ncu, cuda-gdb or compute-sanitizer";
    default:
      return "";
  }
}

void CUPTIAPI request_buffer(uint8_t** buffer, size_t* size, size_t* max_num_records) {
  ActivityBuffers& buffers = CuptiSession::instance().buffers;
  *buffer = buffers.hand_out();
  *size = *buffer == nullptr ? 0 : buffers.buffer_bytes();
  *max_num_records = 0;
}

void CUPTIAPI complete_buffer(CUcontext /*context*/, uint32_t /*stream*/, uint8_t* buffer,
                              size_t /*size*/, size_t valid_size) {
  CuptiSession::instance().buffers.take_back(buffer, valid_size);
}

void give_up(const CUpti_StateData& state) {
  CuptiSession& session = CuptiSession::instance();
  const char* message = state.notification.message;
  const std::scoped_lock lock(session.mutex);
  session.is_recording = false;
  session.fatal_note =
      fmt::format("CUPTI gave up: {}{}{}", cupti_error_text(state.notification.result),
                  message == nullptr ? "" : ": ", message == nullptr ? "" : message);
}

/// 0 when it has none.
uint64_t id_of(CUgraphNode node) {
  uint64_t id = 0;
  return cuptiGetGraphNodeId(node, &id) == CUPTI_SUCCESS ? id : 0;
}

void CUPTIAPI call_back(void* /*data*/, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                        const void* details) {
  if (domain == CUPTI_CB_DOMAIN_STATE) {
    give_up(*static_cast<const CUpti_StateData*>(details));
    return;
  }
  if (domain != CUPTI_CB_DOMAIN_RESOURCE) return;
  const auto* resource = static_cast<const CUpti_ResourceData*>(details);
  const auto* graph = static_cast<const CUpti_GraphData*>(resource->resourceDescriptor);
  if (graph == nullptr) return;
  CuptiSession& session = CuptiSession::instance();
  switch (id) {
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED:
      session.add_node(id_of(graph->node));
      break;
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED:
      session.clone_node(id_of(graph->originalNode), id_of(graph->node));
      break;
    case CUPTI_CBID_RESOURCE_GRAPHNODE_DEPENDENCY_CREATED:
      session.add_edge(id_of(graph->node), id_of(graph->dependency));
      break;
    default:
      break;
  }
}

}  // namespace

uint64_t cupti_now() { return static_cast<uint64_t>(wall_ns()); }

std::vector<OpenOp>& open_ops() {
  thread_local std::vector<OpenOp> ops;
  return ops;
}

std::string cupti_error_text(int result) {
  const auto code = static_cast<CUptiResult>(result);
  const char* text = nullptr;
  if (cuptiGetResultString(code, &text) != CUPTI_SUCCESS || text == nullptr) text = "unknown";
  return fmt::format("{} ({}){}", text, result, advice_of(code));
}

CuptiSession& CuptiSession::instance() {
  static auto* session = new CuptiSession;
  return *session;
}

CuptiSession::CuptiSession() : buffers(kBufferBytes, kMaxBuffers) {}

std::string CuptiSession::attach() {
  if (is_attached_) return "it already has a recorder in this process";
  int driver_version = 0;
  int num_devices = 0;
  if (cudaDriverGetVersion(&driver_version) != cudaSuccess || driver_version == 0) {
    return "there is no NVIDIA driver";
  }
  if (cudaGetDeviceCount(&num_devices) != cudaSuccess || num_devices == 0) {
    const char* text = cudaGetErrorString(cudaGetLastError());
    return fmt::format("there is no usable GPU: {}", text);
  }
  uint32_t version = 0;
  if (cuptiGetVersion(&version) != CUPTI_SUCCESS || version < CUPTI_API_VERSION) {
    return fmt::format("libcupti has version {}, this build needs {} or newer", version,
                       CUPTI_API_VERSION);
  }
  std::array<char, CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN> holder{};
  CUpti_SubscriberParams params{};
  params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
  params.subscriberName = "moetune";
  params.oldSubscriberName = holder.data();
  params.oldSubscriberSize = holder.size();
  CUpti_SubscriberHandle subscriber = nullptr;
  const CUptiResult result = cuptiSubscribe_v2(&subscriber, &call_back, nullptr, &params);
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
    holder.back() = '\0';
    return fmt::format("another tool is attached{}{}{}", holder[0] == '\0' ? "" : ": ",
                       holder.data(), advice_of(result));
  }
  if (result != CUPTI_SUCCESS) {
    return fmt::format("subscribing failed: {}", cupti_error_text(result));
  }
  subscriber_ = subscriber;
  is_attached_ = true;
  std::string reason = set_up();
  if (!reason.empty()) detach();
  return reason;
}

std::string CuptiSession::set_up() {
  // The clock first: records of kinds enabled before it would be on another one.
  CUptiResult result = cuptiActivityRegisterTimestampCallback(&cupti_now);
  // Saves CUPTI from zeroing buffers in our threads; where it is refused nothing is wrong.
  uint8_t is_zeroed = 1;
  size_t flag_size = sizeof(is_zeroed);
  cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &flag_size, &is_zeroed);
  if (result == CUPTI_SUCCESS) {
    result = cuptiActivityRegisterCallbacks(&request_buffer, &complete_buffer);
  }
  constexpr std::array kGraphCallbacks = {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
                                          CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED,
                                          CUPTI_CBID_RESOURCE_GRAPHNODE_DEPENDENCY_CREATED};
  auto* const subscriber = static_cast<CUpti_SubscriberHandle>(subscriber_);
  for (const CUpti_CallbackIdResource id : kGraphCallbacks) {
    if (result != CUPTI_SUCCESS) break;
    result = cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, id);
  }
  if (result == CUPTI_SUCCESS) {
    result =
        cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR);
  }
  if (result == CUPTI_SUCCESS) return {};
  return fmt::format("setting up failed: {}", cupti_error_text(result));
}

void CuptiSession::detach() {
  if (!is_attached_) return;
  is_attached_ = false;
  cuptiUnsubscribe(static_cast<CUpti_SubscriberHandle>(subscriber_));
  const std::scoped_lock lock(mutex);
  labels = {};
  nodes_of_op_.clear();
  fatal_note.clear();
}

void CuptiSession::set_communication(OpId op, int64_t bytes, int64_t sequence) {
  const auto set = [&](DeviceOp& known) {
    known.tag.bytes = bytes;
    known.sequence = sequence;
  };
  const std::scoped_lock lock(mutex);
  if (op >= ops.first_id && op - ops.first_id < ops.ops.size()) set(ops.ops[op - ops.first_id]);
  const auto nodes = nodes_of_op_.find(op);
  if (nodes == nodes_of_op_.end()) return;
  for (const uint64_t node : nodes->second) set(labels.nodes[node].op);
}

// A node is created by the call that is captured, on the thread that makes it.
void CuptiSession::add_node(uint64_t id) {
  if (id == 0) return;
  GraphNode label;
  label.origin = id;
  if (!open_ops().empty()) {
    label.capture_op = open_ops().back().id;
    label.op = open_ops().back().op;
  }
  const std::scoped_lock lock(mutex);
  // The created callback may come for clones, too, and must not take their label away.
  const bool is_new = labels.nodes.try_emplace(id, label).second;
  if (is_new && label.capture_op != kNoOp) nodes_of_op_[label.capture_op].push_back(id);
}

void CuptiSession::clone_node(uint64_t original, uint64_t id) {
  if (original == 0 || id == 0) return;
  const std::scoped_lock lock(mutex);
  const auto label = labels.nodes.find(original);
  GraphNode copy = label == labels.nodes.end() ? GraphNode{original, kNoOp, {}} : label->second;
  labels.nodes.insert_or_assign(id, std::move(copy));
}

void CuptiSession::add_edge(uint64_t a, uint64_t b) {
  if (a == 0 || b == 0) return;
  const std::scoped_lock lock(mutex);
  const auto origin_of = [this](uint64_t id) {
    const auto label = labels.nodes.find(id);
    return label == labels.nodes.end() ? id : label->second.origin;
  };
  std::vector<uint64_t>& neighbours = labels.neighbours[origin_of(a)];
  const uint64_t other = origin_of(b);
  if (std::find(neighbours.begin(), neighbours.end(), other) == neighbours.end()) {
    neighbours.push_back(other);
  }
}

}  // namespace moetune::profiler
