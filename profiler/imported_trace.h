// One rank's whole file in memory, as all importers fill it and the figures of traces read it,
// whatever tool recorded it: besides device work also calls, ranges and what the file says of
// itself. What becomes a step is made into the one trace schema (record.h) by
// analysis/imported_steps.h, for the replay and for stores. A row of device work takes at most 48
// bytes, any other row 32; names, launch shapes and the like are rows of tables.
//
// An importer adds rows in the order of its file and then calls finish(). Times are integer
// nanoseconds on the file's own clock; with facts.base_time_ns added they are Unix time.
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

/// Importers refuse times and lengths beyond it, on either side of 0: sums and differences of two
/// fit into 64 bits.
constexpr int64_t kMostImportedNs = int64_t{1} << 61;

/// Begins the name of work and of calls that the file does not name.
inline constexpr std::string_view kUnnamed = "(unnamed";

/// Device work: a kernel, a copy, a fill, or the replay of a whole graph.
struct ImportedOp {
  int64_t start_ns = 0;
  int64_t end_ns = 0;        ///< never before start_ns
  int64_t bytes = 0;         ///< copies and fills: bytes moved; communication: the larger message
  uint32_t correlation = 0;  ///< id of the call that enqueued it; 0: none
  uint32_t name = 0;         ///< full and demangled
  uint32_t call = kNoRow;    ///< row of `calls`: the call that enqueued it, if the file has it
  uint32_t detail = kNoRow;  ///< kernels: row of `shapes`; copies: name of the path, such as "HtoD"
  uint32_t comm = kNoRow;    ///< row of `comms`, if the file describes the communication
  uint16_t stream = 0;       ///< row of `streams`
  ActivityKind kind = ActivityKind::kernel;
  CopyPath path = CopyPath::other;

  [[nodiscard]] int64_t duration_ns() const { return end_ns - start_ns; }
};
static_assert(sizeof(ImportedOp) <= 48);

/// What a call of the runtime or driver does, by its name.
enum class CallKind : uint8_t {
  other,
  launch,        ///< launches a kernel
  graph_launch,  ///< launches a graph
  copy,          ///< enqueues a copy or fill
  blocking_copy,
  sync,  ///< the host waits for the device
  event_record,
  stream_wait,  ///< a stream waits for an event; the host does not
  query,        ///< polls, and waits for nothing
  allocation,   ///< allocates or frees memory of the device, or pins memory of the host
};
/// Ignores a version number that a tool has appended ("cudaMalloc_v3020").
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

/// A stream or queue of a device, whose work runs in order. `id` is the file's number of it.
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

/// How a kernel was launched. A number is 0 if the file does not state it.
struct LaunchShape {
  std::array<uint32_t, 3> grid = {};   ///< blocks
  std::array<uint32_t, 3> block = {};  ///< threads
  uint32_t graph = 0;                  ///< the graph that replayed it; 0: none
  uint64_t graph_node = 0;             ///< its node in that graph

  bool operator==(const LaunchShape&) const = default;
  [[nodiscard]] uint64_t hash() const;
};

/// The work of one kernel, from the shapes in the file.
struct KernelWork {
  int64_t flops = 0;
  int64_t bytes = 0;  ///< operands and result, each moved once
  uint32_t op = 0;    ///< row of `ops`
  bool is_eight_bit = false;
};

/// What a kernel that sends one message and receives another is said to be (CommCall::collective).
inline constexpr std::string_view kSendAndReceive = "send_recv";

/// The file's description of one communication kernel. A name is kNoRow if the file lacks it.
struct CommCall {
  uint32_t group = kNoRow;        ///< name of the process group (communicator): "0"
  uint32_t description = kNoRow;  ///< its purpose: "TENSOR_MODEL_PARALLEL_GROUP"
  uint32_t members = kNoRow;      ///< its ranks as the file writes them, perhaps cut short
  uint32_t collective = kNoRow;   ///< "allreduce", "send"
  uint32_t dtype = kNoRow;        ///< "BFloat16"
  int32_t group_size = -1;
  int32_t peer = -1;  ///< the other rank of a message, -1: none or unknown
  int64_t in_nelems = 0;
  int64_t out_nelems = 0;
  int64_t sequence = -1;  ///< instance within the group, -1: unknown
};

/// A wait that the file states. Either the host waits, or `stream` waits for the work that was
/// enqueued on `producer_stream` before the event was recorded.
struct ImportedSync {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  SyncKind kind = SyncKind::other;
  uint32_t stream = kNoRow;           ///< the waiting stream; row of `streams`
  uint32_t producer_stream = kNoRow;  ///< where the event was recorded; row of `streams`
  uint32_t correlation = 0;           ///< id of the waiting call; 0: none
  uint32_t record_correlation = 0;    ///< id of the call that recorded the event; 0: unknown
  uint64_t event = 0;                 ///< id of the event or of its recording; 0: unknown
};

/// A step as the host saw it.
struct ImportedStep {
  int64_t number = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

struct TraceFacts {
  std::string file;     ///< as the user named it
  std::string format;   ///< "kineto", "nsys", "rocprofiler-sdk", "moetune"
  std::string version;  ///< version of the format or of the tool; empty: unknown
  std::optional<int64_t> rank;
  bool is_rank_guessed = false;  ///< `rank` comes from the file's name, or from counting
  bool is_rank_counted = false;  ///< `rank` comes from counting: other files may have the same
  std::optional<int64_t> world_size;
  std::vector<std::string> device_names;  ///< all devices of the host in its order, traced or not
  int64_t base_time_ns = 0;               ///< Unix time of time 0; 0: unknown, or times are Unix
  int64_t num_events = 0;                 ///< events of this rank in the file, of any kind
  std::map<std::string, int64_t> num_of;  ///< number of events, by the file's category or table
  int64_t num_clipped = 0;                ///< events that ended before they began: length set to 0
  int64_t num_incomplete = 0;             ///< device work or calls without times: left out
  bool has_stacks = false;                ///< stacks were recorded, which slowed the host
  int64_t peak_allocated_bytes = 0;       ///< peak of the device's memory; 0: unknown
  int64_t peak_reserved_bytes = 0;        ///< by the framework's allocator; 0: unknown
  std::vector<std::string> notes = {};    ///< sentences that readers of figures should know
};

struct ImportedTrace {
  TraceFacts facts;
  NameTable names;
  RowTable<ImportedStream> streams;
  RowTable<ImportedThread> threads;
  RowTable<LaunchShape> shapes;
  std::vector<CommCall> comms;
  /// After finish(): sorted by op. Only kernels whose operator's shapes are known.
  std::vector<KernelWork> works;
  /// After finish(): ascending rows of `ops` that computed activations a second time. Empty: none,
  /// or the file does not say it.
  std::vector<uint32_t> recomputed;
  Chunks<ImportedOp> ops;  ///< after finish(): by start; equal starts in the file's order
  Chunks<HostCall> calls;  ///< after finish(): sorted as `ops`
  Chunks<HostRange> ranges;
  std::vector<ImportedSync> syncs;
  std::vector<ImportedStep> steps;  ///< after finish(): by start

  /// The call that enqueued `op`, or null.
  [[nodiscard]] const HostCall* launch_of(const ImportedOp& op) const {
    return op.call == kNoRow ? nullptr : &calls[op.call];
  }

  /// Whether the file says what was run.
  [[nodiscard]] bool has_name(const ImportedOp& op) const {
    return !names[op.name].empty() && !names[op.name].starts_with(kUnnamed);
  }
  /// Of the device that its work ran on, or of the first one that is listed; empty: not known.
  [[nodiscard]] std::string device_name() const {
    const std::vector<std::string>& listed = facts.device_names;
    const int64_t device = streams.size() == 0 ? 0 : streams[0].device;
    const bool is_listed = device >= 0 && device < static_cast<int64_t>(listed.size());
    return listed.empty() ? std::string() : listed[is_listed ? static_cast<size_t>(device) : 0];
  }

  /// Row of a stream or thread, added if it is new. Throws base::UsageError, which names the file,
  /// beyond 65,535 rows.
  uint16_t stream_row(const ImportedStream& stream);
  uint16_t thread_row(const ImportedThread& thread);

  /// Gives each op without a call the first call in the file that has its correlation. Then sorts,
  /// and leaves out steps that begin while sixteen others run, with a note.
  void finish();
};

}  // namespace moetune::profiler
