// What a trace says about one rank, in memory: the one target of all importers, whatever tool
// recorded it, and what the analysis of traces reads. Unlike StepTrace (record.h), which our engine
// fills with its own ops, it keeps what other tools' files have: kernel names, host calls and
// threads, devices and streams, process groups, ranges. At most 48 bytes a row of device work and
// 32 a row of anything else; names, launch shapes and the like stand in tables.
//
// An importer fills the columns in the order of its file and then calls finish(). Times are integer
// nanoseconds of the file's own clock; facts.base_time_ns makes them Unix time.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/activity_kinds.h"
#include "profiler/chunks.h"
#include "profiler/name_table.h"
#include "profiler/row_table.h"

namespace moetune::profiler {

/// No row of a table.
constexpr uint32_t kNoRow = std::numeric_limits<uint32_t>::max();

/// Device work: a kernel, a copy, a fill, or the replay of a whole graph.
struct ImportedOp {
  int64_t start_ns = 0;
  int64_t end_ns = 0;        ///< never before start_ns
  int64_t bytes = 0;         ///< copies and fills: moved; communication: the larger message
  uint32_t correlation = 0;  ///< of the call that enqueued it; 0: none
  uint32_t name = 0;         ///< full and demangled
  uint32_t call = kNoRow;    ///< row of `calls`: that call, where the file has it
  uint32_t detail = kNoRow;  ///< kernels: row of `shapes`; copies: name of the path, as "HtoD"
  uint32_t comm = kNoRow;    ///< row of `comms`, where the file says what is communicated
  uint16_t stream = 0;       ///< row of `streams`
  ActivityKind kind = ActivityKind::kernel;
  CopyPath path = CopyPath::other;

  [[nodiscard]] int64_t duration_ns() const { return end_ns - start_ns; }
};
static_assert(sizeof(ImportedOp) <= 48);

/// What a call of the runtime or driver is for, by its name.
enum class CallKind : uint8_t {
  other,
  launch,        ///< of a kernel
  graph_launch,  ///< of a graph
  copy,          ///< enqueues a copy or fill
  blocking_copy,
  sync,  ///< the host waits for the device
  event_record,
  stream_wait,  ///< a stream waits for an event; the host does not
  query,        ///< polls, and waits for nothing
  allocation,   ///< allocates or frees memory of the device, or pins memory of the host
};
/// Whatever version number a tool has put behind it ("cudaMalloc_v3020").
CallKind call_kind_of(std::string_view name);

/// A call of the runtime or the driver.
struct HostCall {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint32_t name = 0;
  uint32_t correlation = 0;
  uint16_t thread = 0;  ///< row of `threads`
  CallKind kind = CallKind::other;
};
static_assert(sizeof(HostCall) <= 32);

/// A range that somebody marked on a host thread: record_function of PyTorch, NVTX, rocTX.
struct HostRange {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint32_t name = 0;
  uint16_t thread = 0;
};
static_assert(sizeof(HostRange) <= 32);

/// What runs in its own order on a device. `id` is what the file calls it: a stream, or a queue.
struct ImportedStream {
  int64_t device = 0;
  int64_t id = 0;

  bool operator==(const ImportedStream&) const = default;
  [[nodiscard]] uint64_t hash() const;
};

struct ImportedThread {
  int64_t process = 0;
  int64_t id = 0;

  bool operator==(const ImportedThread&) const = default;
  [[nodiscard]] uint64_t hash() const;
};

/// How a kernel was launched. Numbers are 0 where the file does not say.
struct LaunchShape {
  std::array<uint32_t, 3> grid = {};   ///< blocks
  std::array<uint32_t, 3> block = {};  ///< threads
  uint32_t graph = 0;                  ///< the graph, of work that a graph replayed
  uint64_t graph_node = 0;             ///< and its node

  bool operator==(const LaunchShape&) const = default;
  [[nodiscard]] uint64_t hash() const;
};

/// How much one kernel has to do, as far as shapes in the file say.
struct KernelWork {
  int64_t flops = 0;
  int64_t bytes = 0;  ///< operands and result, each moved once
  uint32_t op = 0;    ///< row of `ops`
  bool is_eight_bit = false;
};

/// What the file says about one communication kernel. Names are kNoRow where it says nothing.
struct CommCall {
  uint32_t group = kNoRow;        ///< name of the process group (communicator): "0"
  uint32_t description = kNoRow;  ///< what it is for: "TENSOR_MODEL_PARALLEL_GROUP"
  uint32_t members = kNoRow;      ///< its ranks, as the file writes them; may be cut there
  uint32_t collective = kNoRow;   ///< "allreduce", "send"
  uint32_t dtype = kNoRow;        ///< "BFloat16"
  int32_t group_size = -1;
  int32_t peer = -1;  ///< the other rank of a message, -1: none or unknown
  int64_t in_nelems = 0;
  int64_t out_nelems = 0;
  int64_t sequence = -1;  ///< instance within the group, -1: unknown
};

/// A wait that the file records as such: of the host, or of `stream` for what had been enqueued on
/// `producer_stream` before the event was recorded.
struct ImportedSync {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  SyncKind kind = SyncKind::other;
  uint32_t stream = kNoRow;           ///< that waits; row of `streams`
  uint32_t producer_stream = kNoRow;  ///< where the event was recorded; row of `streams`
  uint32_t correlation = 0;           ///< of the waiting call; 0: none
  uint32_t record_correlation = 0;    ///< of the call that recorded the event; 0: unknown
  uint64_t event = 0;                 ///< id of the event or of its recording; 0: unknown
};

/// A step as the host saw it.
struct ImportedStep {
  int64_t number = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

struct TraceFacts {
  std::string file;     ///< as it was named to us
  std::string format;   ///< "kineto", "nsys", "rocprofiler-sdk"
  std::string version;  ///< of the format or the tool, empty: unknown
  std::optional<int64_t> rank;
  bool is_rank_guessed = false;  ///< from the file's name, or by counting
  bool is_rank_counted = false;  ///< by counting: other files may have it, too
  std::optional<int64_t> world_size;
  std::vector<std::string> device_names;  ///< of the host, in its order; traced or not
  int64_t base_time_ns = 0;               ///< Unix time of time 0; 0: unknown, or times are Unix
  int64_t num_events = 0;                 ///< in the file, of this rank and of any kind
  std::map<std::string, int64_t> num_of;  ///< events by the file's own category or table
  int64_t num_clipped = 0;                ///< events that ended before they began: now of length 0
  int64_t num_incomplete = 0;             ///< device work or calls without times: left out
  bool has_stacks = false;                ///< recording them slowed the host
  int64_t peak_allocated_bytes = 0;       ///< of the device's memory; 0: unknown
  int64_t peak_reserved_bytes = 0;        ///< by the framework's allocator; 0: unknown
  std::vector<std::string> notes = {};    ///< sentences a reader of figures should know
};

struct ImportedTrace {
  TraceFacts facts;
  NameTable names;
  RowTable<ImportedStream> streams;
  RowTable<ImportedThread> threads;
  RowTable<LaunchShape> shapes;
  std::vector<CommCall> comms;
  std::vector<KernelWork> works;  ///< by op, of kernels whose operator's shapes are known
  Chunks<ImportedOp> ops;         ///< after finish() by start, in the file's order where equal
  Chunks<HostCall> calls;         ///< the same
  Chunks<HostRange> ranges;
  std::vector<ImportedSync> syncs;
  std::vector<ImportedStep> steps;  ///< after finish() by start

  /// The call that enqueued it, or null.
  [[nodiscard]] const HostCall* launch_of(const ImportedOp& op) const {
    return op.call == kNoRow ? nullptr : &calls[op.call];
  }

  /// Rows for a stream or thread, new ones where there are none yet. Throws base::UsageError, which
  /// names the file, past 65,535 of them.
  uint16_t stream_row(const ImportedStream& stream);
  uint16_t thread_row(const ImportedThread& thread);

  /// Joins ops that have no call yet to the first call, in the order of the file, with the same
  /// correlation; then sorts.
  void finish();
};

}  // namespace moetune::profiler
