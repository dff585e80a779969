// CUPTI buffers made by hand from the toolkit's own structs: what a GPU would have written. Names
// of kernels must outlive the decoding.
#pragma once

#include <cupti.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "profiler/device/cupti_decode.h"
#include "profiler/device/device_trace.h"

namespace moetune::profiler::testing {

constexpr uint32_t kContext = 1;
constexpr uint32_t kThread = 42;
constexpr uint32_t kDevice = 2;

/// Records in the order of the calls; decode() reads them as one buffer.
class CannedBuffer {
 public:
  template <typename Record>
  void add(const Record& record) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&record);
    records_.emplace_back(bytes, bytes + sizeof(Record));
  }

  void kernel(uint32_t correlation, uint32_t stream, uint64_t start, uint64_t end,
              const char* name = "_Z4gemmPf", uint64_t node = 0) {
    CUpti_ActivityKernel10 record{};
    record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    set_work(record, correlation, stream, start, end);
    record.name = name;
    record.graphNodeId = node;
    record.gridX = 640;
    record.gridY = 2;
    record.gridZ = 1;
    record.blockX = 128;
    record.blockY = record.blockZ = 1;
    add(record);
  }
  void copy(uint32_t correlation, uint32_t stream, uint64_t start, uint64_t end,
            CUpti_ActivityMemcpyKind kind, uint64_t bytes, bool is_async = true,
            CUpti_ActivityMemoryKind to = CUPTI_ACTIVITY_MEMORY_KIND_PINNED) {
    CUpti_ActivityMemcpy6 record{};
    record.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
    set_work(record, correlation, stream, start, end);
    record.copyKind = static_cast<uint8_t>(kind);
    record.dstKind = static_cast<uint8_t>(to);
    record.flags = is_async ? CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC : 0;
    record.bytes = bytes;
    add(record);
  }
  void peer_copy(uint32_t correlation, uint32_t stream, uint64_t start, uint64_t end,
                 uint64_t bytes) {
    CUpti_ActivityMemcpyPtoP4 record{};
    record.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
    set_work(record, correlation, stream, start, end);
    record.bytes = bytes;
    add(record);
  }
  void fill(uint32_t correlation, uint32_t stream, uint64_t start, uint64_t end, uint64_t bytes) {
    CUpti_ActivityMemset4 record{};
    record.kind = CUPTI_ACTIVITY_KIND_MEMSET;
    set_work(record, correlation, stream, start, end);
    record.bytes = bytes;
    add(record);
  }
  void whole_graph(uint32_t correlation, uint32_t stream, uint64_t start, uint64_t end) {
    CUpti_ActivityGraphTrace2 record{};
    record.kind = CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
    set_work(record, correlation, stream, start, end);
    add(record);
  }
  /// A call within an op (0: none).
  void call(uint32_t correlation, uint64_t start, uint64_t end, OpId op = kNoOp,
            uint32_t thread = kThread, CUpti_ActivityKind kind = CUPTI_ACTIVITY_KIND_RUNTIME) {
    if (op != kNoOp) link(correlation, op);
    CUpti_ActivityAPI record{};
    record.kind = kind;
    record.correlationId = correlation;
    record.threadId = thread;
    record.start = start;
    record.end = end;
    add(record);
  }
  void link(uint32_t correlation, OpId op,
            CUpti_ExternalCorrelationKind kind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) {
    CUpti_ActivityExternalCorrelation record{};
    record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    record.externalKind = kind;
    record.externalId = op;
    record.correlationId = correlation;
    add(record);
  }
  void event(uint32_t correlation, uint32_t stream, uint64_t sync_id) {
    CUpti_ActivityCudaEvent2 record{};
    record.kind = CUPTI_ACTIVITY_KIND_CUDA_EVENT;
    record.contextId = kContext;
    record.streamId = stream;
    record.correlationId = correlation;
    record.eventId = 7;  // one event, used again and again
    record.cudaEventSyncId = sync_id;
    add(record);
  }
  void sync(CUpti_ActivitySynchronizationType type, uint32_t correlation, uint32_t stream,
            uint64_t start, uint64_t end, uint64_t sync_id = CUPTI_SYNCHRONIZATION_INVALID_VALUE,
            uint32_t result = 0) {
    CUpti_ActivitySynchronization2 record{};
    record.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
    record.type = type;
    record.start = start;
    record.end = end;
    record.correlationId = correlation;
    record.contextId = kContext;
    record.streamId = stream;
    record.cudaEventId = 7;
    record.cudaEventSyncId = sync_id;
    record.returnValue = result;
    add(record);
  }
  void wait(uint32_t correlation, uint32_t stream, uint64_t sync_id) {
    sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT, correlation, stream, 1, 2, sync_id);
  }
  void overhead(CUpti_ActivityOverheadKind kind, uint64_t start, uint64_t end,
                void* attachment = nullptr) {
    CUpti_ActivityOverhead3 record{};
    record.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
    record.overheadKind = kind;
    record.start = start;
    record.end = end;
    record.overheadData = attachment;
    add(record);
  }

  /// CUPTI promises no order.
  void shuffle(std::mt19937_64& random) { std::shuffle(records_.begin(), records_.end(), random); }

  /// 8-byte aligned, as CUPTI's buffers are.
  [[nodiscard]] std::vector<uint64_t> words() const {
    std::vector<uint64_t> words(num_bytes() / 8);
    auto* to = reinterpret_cast<uint8_t*>(words.data());
    for (const auto& record : records_) {
      std::memcpy(to, record.data(), record.size());
      to += record.size();
    }
    return words;
  }
  [[nodiscard]] size_t num_bytes() const {
    size_t bytes = 0;
    for (const auto& record : records_) bytes += record.size();
    return bytes;
  }
  [[nodiscard]] DeviceActivities decode() const {
    DeviceActivities raw;
    std::vector<uint64_t> buffer = words();
    decode_cupti_buffer(reinterpret_cast<uint8_t*>(buffer.data()), num_bytes(), raw);
    return raw;
  }

 private:
  template <typename Record>
  static void set_work(Record& record, uint32_t correlation, uint32_t stream, uint64_t start,
                       uint64_t end) {
    record.correlationId = correlation;
    record.deviceId = kDevice;
    record.contextId = kContext;
    record.streamId = stream;
    record.start = start;
    record.end = end;
  }

  std::vector<std::vector<uint8_t>> records_;
};

/// A step from 1000 to 2000 with a buffer, ops and labels.
struct CannedStep {
  CannedBuffer buffer;
  OpTable ops;
  GraphLabels labels;
  StepWindow window = {3, 1000, 2000, {0}};

  OpId op(const DeviceOp& op) {
    ops.ops.push_back(op);
    return ops.first_id + ops.ops.size() - 1;
  }
  OpId kernel_op(const char* name, int32_t stream = 0) {
    DeviceOp op_to_add;
    op_to_add.tag.name = name;
    op_to_add.stream = stream;
    return op(op_to_add);
  }
  OpId comm_op(const char* name, const char* group, int32_t stream, int64_t sequence = 0) {
    DeviceOp op_to_add;
    op_to_add.tag.name = name;
    op_to_add.kind = RecordKind::collective;
    op_to_add.stream = stream;
    op_to_add.group = group;
    op_to_add.sequence = sequence;
    return op(op_to_add);
  }
  [[nodiscard]] DeviceStep convert() const {
    return convert_step(buffer.decode(), ops, labels, window);
  }
  /// Of the one rank.
  [[nodiscard]] StepTrace trace() const { return convert().ranks.at(0).trace; }
};

}  // namespace moetune::profiler::testing
