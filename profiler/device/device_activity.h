// Uninterpreted records of a GPU's tracing interface: device work, calls of the host, their links
// to our ops, events and synchronisations. cupti_decode fills them from CUPTI's buffers,
// device_trace makes a StepTrace of them; the two do not depend on each other. Correlation ids
// number the calls of the process in their order.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/activity_kinds.h"
#include "profiler/record.h"
#include "profiler/timeline.h"

namespace moetune::profiler {

/// One run of one op in this process. 0: none.
using OpId = uint64_t;
constexpr OpId kNoOp = 0;
/// Marks calls of the recorder itself, which are not part of a trace.
constexpr OpId kRecorderOp = std::numeric_limits<OpId>::max();

/// Describes an op for the trace. `tag.name` and `group` must outlive the recorder (string literals
/// or table entries).
struct DeviceOp {
  OpTag tag;
  RecordKind kind = RecordKind::kernel;
  int32_t rank = 0;
  int32_t stream = 0;      ///< the engine's number of the stream that it is launched on
  const char* group = "";  ///< communication only
  int64_t sequence = -1;   ///< communication only
  Partners partners = {};  ///< communication only
};

/// The ops of one step; ids are consecutive.
struct OpTable {
  OpId first_id = 1;
  std::deque<DeviceOp> ops;  // addresses stay valid while it grows

  [[nodiscard]] const DeviceOp* find(OpId id) const {
    return id >= first_id && id - first_id < ops.size() ? &ops[id - first_id] : nullptr;
  }
};

/// A node of a captured graph or of its executable clone.
struct GraphNode {
  uint64_t origin = 0;      ///< the captured node that it was cloned from; itself if not cloned
  OpId capture_op = kNoOp;  ///< the op that was open when the node was captured
  DeviceOp op;              ///< a copy of that op: graphs outlive steps
};

/// Labels of graph nodes by the node ids that device records carry.
struct GraphLabels {
  std::unordered_map<uint64_t, GraphNode> nodes;
  /// By origin: the nodes with which it shares an edge. Edges have no direction here: the times of
  /// the nodes show which of the two comes first.
  std::unordered_map<uint64_t, std::vector<uint64_t>> neighbours;
};

/// Device work. If start and end are 0, the times are unknown.
struct DeviceActivity {
  ActivityKind kind = ActivityKind::kernel;
  CopyPath path = CopyPath::other;
  bool is_blocking = false;  ///< a copy whose call returns only when the copy is done
  uint32_t context = 0;
  uint32_t stream = 0;
  uint32_t correlation = 0;
  uint32_t runtime_correlation = 0;  ///< a second id that its call may have; 0: none
  uint64_t graph_node = 0;           ///< 0: not part of a graph
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t bytes = 0;
  uint32_t name = 0;                  ///< kernels: index in DeviceActivities::names
  int32_t device = -1;                ///< as the tracing interface numbers the host's devices
  std::array<int32_t, 3> grid = {};   ///< kernels: blocks
  std::array<int32_t, 3> block = {};  ///< kernels: threads of a block
};

/// A call of the runtime or the driver.
struct ApiCall {
  uint32_t correlation = 0;
  uint32_t thread = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

/// States that a call was made within an op.
struct OpLink {
  uint32_t correlation = 0;
  OpId op = kNoOp;
};

/// States that an event was recorded on a stream. Events are reused, sync ids are not.
struct EventRecord {
  uint32_t context = 0;
  uint32_t stream = 0;
  uint32_t correlation = 0;
  uint64_t sync_id = 0;
};

constexpr uint64_t kNoSyncId = std::numeric_limits<uint64_t>::max();

/// A wait of the host, or of a stream (SyncKind::stream_wait).
struct Synchronization {
  SyncKind kind = SyncKind::other;
  uint32_t context = 0;
  uint32_t stream = 0;
  uint32_t correlation = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint64_t sync_id = kNoSyncId;  ///< sync id of the event that is waited for
};

/// Time that tracing or the driver took from the program.
struct OverheadSpan {
  const char* name = "";
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

/// All records of one step, in any order.
struct DeviceActivities {
  std::vector<DeviceActivity> activities;
  std::vector<ApiCall> calls;
  std::vector<OpLink> op_links;
  std::vector<EventRecord> events;
  std::vector<Synchronization> syncs;
  std::vector<OverheadSpan> overheads;
  std::vector<std::string> names;  ///< mangled names of kernels
  int64_t num_records = 0;         ///< records read
  int64_t num_dropped = 0;         ///< records that the tracing interface had no room for
  int64_t num_unknown = 0;         ///< records of kinds that were not requested
  int64_t num_broken_buffers = 0;  ///< buffers whose end could not be read
};

}  // namespace moetune::profiler
