// Reads the record layouts of CUDA 13, each kind into its plain record.
#include "profiler/device/cupti_decode.h"

#include <cupti.h>

#include <cstdlib>
#include <unordered_map>
#include <utility>

namespace moetune::profiler {
namespace {

/// Sizes of the kinds that the recorder enables, 0 for others.
size_t size_of(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return sizeof(CUpti_ActivityMemcpyPtoP4);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      return sizeof(CUpti_ActivityGraphTrace2);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
      return sizeof(CUpti_ActivityExternalCorrelation);
    case CUPTI_ACTIVITY_KIND_CUDA_EVENT:
      return sizeof(CUpti_ActivityCudaEvent2);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return sizeof(CUpti_ActivitySynchronization2);
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      return sizeof(CUpti_ActivityOverhead3);
    default:
      return 0;
  }
}

CopyPath path_of(uint8_t copy_kind) {
  switch (copy_kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA:
      return CopyPath::to_device;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH:
      return CopyPath::to_host;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOA:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOA:
      return CopyPath::on_device;
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH:
      return CopyPath::on_host;
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return CopyPath::peer;
    default:
      return CopyPath::other;
  }
}

SyncKind kind_of(CUpti_ActivitySynchronizationType type) {
  switch (type) {
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE:
      return SyncKind::event;
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT:
      return SyncKind::stream_wait;
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE:
      return SyncKind::stream;
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE:
      return SyncKind::device;
    default:
      return SyncKind::other;
  }
}

const char* overhead_name(CUpti_ActivityOverheadKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER:
      return "driver compiler";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH:
      return "CUPTI buffer flush";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION:
      return "CUPTI instrumentation";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE:
      return "CUPTI resources";
    case CUPTI_ACTIVITY_OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING:
      return "module loading";
    case CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING:
      return "lazy function loading";
    case CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL:
      return "command buffer full";
    case CUPTI_ACTIVITY_OVERHEAD_ACTIVITY_BUFFER_REQUEST:
      return "CUPTI buffer request";
    case CUPTI_ACTIVITY_OVERHEAD_UVM_ACTIVITY_INIT:
      return "managed memory set-up";
    default:
      return "unknown overhead";
  }
}

int64_t to_ns(uint64_t timestamp) { return static_cast<int64_t>(timestamp); }

/// The fields that all kinds of device work share by name.
template <typename Record>
DeviceActivity work_of(const Record& record, ActivityKind kind) {
  DeviceActivity work;
  work.kind = kind;
  work.context = record.contextId;
  work.stream = record.streamId;
  work.correlation = record.correlationId;
  work.device = static_cast<int32_t>(record.deviceId);
  work.start_ns = to_ns(record.start);
  work.end_ns = to_ns(record.end);
  return work;
}

class Decoder {
 public:
  explicit Decoder(DeviceActivities& out) : out_(out) {}

  void add(const CUpti_Activity* record) {
    ++out_.num_records;
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_KERNEL:
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        add_kernel(*reinterpret_cast<const CUpti_ActivityKernel10*>(record));
        break;
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        add_copy(*reinterpret_cast<const CUpti_ActivityMemcpy6*>(record));
        break;
      case CUPTI_ACTIVITY_KIND_MEMCPY2: {
        const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpyPtoP4*>(record);
        DeviceActivity work = work_of(copy, ActivityKind::copy);
        work.path = CopyPath::peer;
        work.graph_node = copy.graphNodeId;
        work.bytes = static_cast<int64_t>(copy.bytes);
        out_.activities.push_back(work);
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto& fill = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
        DeviceActivity work = work_of(fill, ActivityKind::fill);
        work.graph_node = fill.graphNodeId;
        work.bytes = static_cast<int64_t>(fill.bytes);
        out_.activities.push_back(work);
        break;
      }
      case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
        out_.activities.push_back(work_of(
            *reinterpret_cast<const CUpti_ActivityGraphTrace2*>(record), ActivityKind::graph));
        break;
      case CUPTI_ACTIVITY_KIND_RUNTIME:
      case CUPTI_ACTIVITY_KIND_DRIVER: {
        const auto& call = *reinterpret_cast<const CUpti_ActivityAPI*>(record);
        out_.calls.push_back(
            {call.correlationId, call.threadId, to_ns(call.start), to_ns(call.end)});
        break;
      }
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const auto& link = *reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(record);
        // Other kinds are other libraries' ids.
        if (link.externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) {
          out_.op_links.push_back({link.correlationId, link.externalId});
        }
        break;
      }
      case CUPTI_ACTIVITY_KIND_CUDA_EVENT: {
        const auto& event = *reinterpret_cast<const CUpti_ActivityCudaEvent2*>(record);
        out_.events.push_back(
            {event.contextId, event.streamId, event.correlationId, event.cudaEventSyncId});
        break;
      }
      case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
        add_sync(*reinterpret_cast<const CUpti_ActivitySynchronization2*>(record));
        break;
      case CUPTI_ACTIVITY_KIND_OVERHEAD: {
        const auto& overhead = *reinterpret_cast<const CUpti_ActivityOverhead3*>(record);
        out_.overheads.push_back(
            {overhead_name(overhead.overheadKind), to_ns(overhead.start), to_ns(overhead.end)});
        break;
      }
      default:
        ++out_.num_unknown;
    }
  }

 private:
  void add_kernel(const CUpti_ActivityKernel10& kernel) {
    DeviceActivity work = work_of(kernel, ActivityKind::kernel);
    work.graph_node = kernel.graphNodeId;
    work.grid = {kernel.gridX, kernel.gridY, kernel.gridZ};
    work.block = {kernel.blockX, kernel.blockY, kernel.blockZ};
    // All records of a kernel point to the same text.
    const auto [known, is_new] =
        names_.try_emplace(kernel.name, static_cast<uint32_t>(out_.names.size()));
    if (is_new) out_.names.emplace_back(kernel.name == nullptr ? "" : kernel.name);
    work.name = known->second;
    out_.activities.push_back(work);
  }

  void add_copy(const CUpti_ActivityMemcpy6& copy) {
    DeviceActivity work = work_of(copy, ActivityKind::copy);
    work.path = path_of(copy.copyKind);
    // To memory that is not pinned a copy blocks, even if it is called asynchronous.
    const bool is_async = (copy.flags & CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC) != 0 &&
                          copy.dstKind != CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
    work.is_blocking = !is_async && copy.graphNodeId == 0 && work.path != CopyPath::on_device;
    work.runtime_correlation = copy.runtimeCorrelationId;
    work.graph_node = copy.graphNodeId;
    work.bytes = static_cast<int64_t>(copy.bytes);
    out_.activities.push_back(work);
  }

  void add_sync(const CUpti_ActivitySynchronization2& record) {
    if (record.returnValue != 0) return;  // a query that found work unfinished: nobody waited
    Synchronization sync;
    sync.kind = kind_of(record.type);
    sync.context = record.contextId;
    sync.stream = record.streamId;
    sync.correlation = record.correlationId;
    sync.start_ns = to_ns(record.start);
    sync.end_ns = to_ns(record.end);
    // The invalid value has 32 bits in a field of 64.
    sync.sync_id = record.cudaEventSyncId == CUPTI_SYNCHRONIZATION_INVALID_VALUE
                       ? kNoSyncId
                       : record.cudaEventSyncId;
    out_.syncs.push_back(sync);
  }

  DeviceActivities& out_;
  std::unordered_map<const char*, uint32_t> names_;
};

/// Calls `visit` for each whole record; false when the buffer does not end with the last of them.
template <typename Visit>
bool walk(uint8_t* buffer, size_t valid_bytes, Visit&& visit) {
  if (buffer == nullptr || valid_bytes == 0) return true;
  CUpti_Activity* record = nullptr;
  size_t end = 0;
  bool is_end_known = true;
  CUptiResult result;
  while ((result = cuptiActivityGetNextRecord(buffer, valid_bytes, &record)) == CUPTI_SUCCESS) {
    const auto begin = static_cast<size_t>(reinterpret_cast<uint8_t*>(record) - buffer);
    if (begin + sizeof(CUpti_Activity) > valid_bytes) return false;
    const size_t size = size_of(record->kind);
    end = begin + size;
    is_end_known = size > 0;
    if (end > valid_bytes) return false;
    visit(record);
  }
  return result == CUPTI_ERROR_MAX_LIMIT_REACHED && (!is_end_known || end == valid_bytes);
}

/// Newer libraries append fields to records, which moves the end of the last one.
bool is_own_version() {
  static const bool is_own = [] {
    uint32_t version = 0;
    return cuptiGetVersion(&version) == CUPTI_SUCCESS && version == CUPTI_API_VERSION;
  }();
  return is_own;
}

}  // namespace

void decode_cupti_buffer(uint8_t* buffer, size_t valid_bytes, DeviceActivities& out) {
  Decoder decoder(out);
  const bool is_whole =
      walk(buffer, valid_bytes, [&](const CUpti_Activity* record) { decoder.add(record); });
  if (!is_whole && is_own_version()) ++out.num_broken_buffers;
}

void free_cupti_attachments(uint8_t* buffer, size_t valid_bytes) {
  walk(buffer, valid_bytes, [](CUpti_Activity* record) {
    if (record->kind != CUPTI_ACTIVITY_KIND_OVERHEAD) return;
    auto& overhead = *reinterpret_cast<CUpti_ActivityOverhead3*>(record);
    std::free(overhead.overheadData);
    overhead.overheadData = nullptr;
  });
}

}  // namespace moetune::profiler
