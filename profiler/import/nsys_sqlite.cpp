#include "profiler/import/nsys_sqlite.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <unordered_map>
#include <utility>

#include "kernels/base/error.h"
#include "profiler/import/foreign_tables.h"
#include "profiler/import/nccl_ranges.h"
#include "profiler/import/nsys_facts.h"
#include "profiler/import/nsys_waits.h"
#include "profiler/import/rank_traces.h"

namespace moetune::profiler {
namespace {

constexpr std::string_view kSqliteMagic("SQLite format 3\0", 16);
struct DeviceTable {
  const char* name;
  ActivityKind kind;
};
/// In the order in which work that starts at the same moment is kept.
constexpr DeviceTable kDeviceTables[] = {
    {"CUPTI_ACTIVITY_KIND_KERNEL", ActivityKind::kernel},
    {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE", ActivityKind::graph},
    {"CUPTI_ACTIVITY_KIND_MEMCPY", ActivityKind::copy},
    {"CUPTI_ACTIVITY_KIND_MEMSET", ActivityKind::fill},
};
constexpr const char* kCallTable = "CUPTI_ACTIVITY_KIND_RUNTIME";
constexpr const char* kSyncTable = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";
constexpr const char* kEventTable = "CUPTI_ACTIVITY_KIND_CUDA_EVENT";
constexpr const char* kRangeTable = "NVTX_EVENTS";

/// By CUpti_ActivityMemcpyKind. Words as in Kineto's traces, so that one rule knows both.
struct CopyKindRow {
  const char* name;
  CopyPath path;
};
constexpr CopyKindRow kCopyKinds[] = {
    {"Unknown", CopyPath::other},    {"HtoD", CopyPath::to_device},
    {"DtoH", CopyPath::to_host},     {"HtoA", CopyPath::to_device},
    {"AtoH", CopyPath::to_host},     {"AtoA", CopyPath::on_device},
    {"AtoD", CopyPath::on_device},   {"DtoA", CopyPath::on_device},
    {"DtoD", CopyPath::on_device},   {"HtoH", CopyPath::on_host},
    {"PtoP", CopyPath::peer},        {"UVM_HtoD", CopyPath::to_device},
    {"UVM_DtoH", CopyPath::to_host}, {"UVM_DtoD", CopyPath::on_device},
};
/// By CUpti_ActivityMemoryKind as Nsight Systems numbers it.
constexpr const char* kMemoryKinds[] = {"Pageable", "Pinned",        "Device",        "Array",
                                        "Managed",  "Device Static", "Managed Static"};

template <typename Row, size_t kSize>
const Row* row_at(const Row (&rows)[kSize], std::optional<int64_t> index) {
  return index && *index >= 0 && static_cast<size_t>(*index) < kSize ? &rows[*index] : nullptr;
}

/// globalTid holds hardware, machine, process and thread: 8, 8, 24 and 24 bits.
constexpr int64_t process_of(int64_t global_tid) { return global_tid & ~int64_t{0xFFFFFF}; }
constexpr ImportedThread thread_of(int64_t global_tid) {
  return {(global_tid >> 24) & 0xFFFFFF, global_tid & 0xFFFFFF};
}

uint32_t id_of(std::optional<int64_t> id) {
  return id && *id > 0 && *id < kNoRow ? static_cast<uint32_t>(*id) : 0;
}

/// Without the version that CUDA's tables of callbacks put behind a name: "cudaMemcpy_v3020".
std::string_view without_version(std::string_view name) {
  const size_t at = name.rfind("_v");
  const bool is_version = at != std::string_view::npos && at + 2 < name.size() &&
                          name.find_first_not_of("0123456789", at + 2) == std::string_view::npos;
  return is_version ? name.substr(0, at) : name;
}

/// A range of PyTorch's emit_nvtx carries its numbers in its name: "aten::mm, op_id = 7".
struct RangeName {
  std::string_view name;
  bool is_operator = false;
  bool is_recorded = false;  ///< by autograd, or a gradient of what was
};
RangeName range_name_of(std::string_view text) {
  RangeName found;
  found.name = text;
  if (text.find(" = ") == std::string_view::npos) return found;
  const size_t op = text.find(", op_id = ");
  const size_t sequence = text.find(", seq = ");
  found.name = text.substr(0, std::min({op, sequence, text.find(", sizes = ")}));
  const bool is_known =
      sequence != std::string_view::npos || found.name.find("::") != std::string_view::npos;
  found.is_operator = is_known && op != std::string_view::npos && !text.starts_with("nccl:");
  found.is_recorded = sequence != std::string_view::npos;
  return found;
}

/// Whether a function computes a gradient, by the name that autograd gives it: "MmBackward0".
bool computes_gradient(std::string_view function) {
  const size_t last = function.find_last_not_of("0123456789");
  return last != std::string_view::npos && function.substr(0, last + 1).ends_with("Backward");
}

class NsysReader {
 public:
  explicit NsysReader(const std::string& path) : tables_(path), traces_(path) {
    facts_.file = path;
    facts_.format = "nsys";
  }

  std::vector<ImportedTrace> read() {
    read_device_work();
    read_calls();
    read_ranges();
    explain_names();
    traces_.resolve_names();
    NsysWaits waits(traces_);
    read_waits(waits);
    read_nsys_facts(tables_, facts_);
    count_rows();
    std::vector<ImportedTrace> traces = traces_.finish(facts_);
    count_ranks(traces);
    for (ImportedTrace& trace : traces) describe_messages(trace);
    return traces;
  }

 private:
  enum DeviceColumn : int { kStart, kEnd, kDevice, kStream, kCorrelation, kPid, kContext, kOwn };

  void read_device_work() {
    bool has_table = false;
    for (const DeviceTable& table : kDeviceTables) {
      const bool has = tables_.has(table.name);
      has_table = has_table || has;
      // Old exports, and those that somebody wrote himself, may lack the process: all is one then.
      if (has && !tables_.has_column(table.name, "globalPid")) uses_pids_ = false;
    }
    if (!has_table && tables_.has("trial") && tables_.has("sweep")) {
      throw base::UsageError(fmt::format(
          "{}: is a runs database of moetune, expected what a run of another framework has left; "
          "'moetune show' and 'moetune report' tell the walls of its trials, 'moetune trace' "
          "writes the trace of one",
          tables_.path()));
    }
    if (!has_table) {
      throw base::UsageError(fmt::format(
          "{}: is an SQLite file without {}, expected what 'nsys export --type sqlite' writes of a "
          "run that was recorded with --trace=cuda",
          tables_.path(), kDeviceTables[0].name));
    }
    for (const DeviceTable& table : kDeviceTables) {
      if (auto rows = open(table)) {
        read_device_table(table, *rows);
      } else if (table.kind == ActivityKind::kernel) {
        facts_.notes.push_back(fmt::format("has no kernels ({})", table.name));
      }
    }
    if (traces_.num_ranks() == 0) {
      throw base::UsageError(fmt::format(
          "{}: holds no device work: no kernel, copy or fill was recorded", tables_.path()));
    }
  }

  std::optional<TableRows> open(const DeviceTable& table) {
    switch (table.kind) {
      case ActivityKind::kernel:
        return tables_.rows(table.name,
                            {"start", "end", "deviceId", "streamId", "correlationId", "globalPid",
                             "contextId", "demangledName", "shortName", "gridX", "gridY", "gridZ",
                             "blockX", "blockY", "blockZ", "graphId", "graphNodeId"},
                            2);
      case ActivityKind::graph:
        return tables_.rows(table.name,
                            {"start", "end", "deviceId", "streamId", "correlationId", "globalPid",
                             "contextId", "graphId"},
                            2);
      case ActivityKind::copy:
        return tables_.rows(table.name,
                            {"start", "end", "deviceId", "streamId", "correlationId", "globalPid",
                             "contextId", "bytes", "copyKind", "srcKind", "dstKind"},
                            2);
      case ActivityKind::fill:
        return tables_.rows(table.name,
                            {"start", "end", "deviceId", "streamId", "correlationId", "globalPid",
                             "contextId", "bytes", "memKind"},
                            2);
    }
    return std::nullopt;
  }

  void read_device_table(const DeviceTable& table, TableRows& rows) {
    while (rows.next()) {
      const int64_t pid = uses_pids_ ? rows.whole_or(kPid, 0) : 0;
      RankTraces::Rank& rank = traces_.rank(pid, rows.whole_or(kDevice, 0));
      ImportedTrace& trace = rank.trace;
      ImportedOp op;
      op.kind = table.kind;
      if (!read_times(rows, trace.facts, op.start_ns, op.end_ns)) continue;
      if (op.start_ns == 0 && op.end_ns == 0) {  // CUPTI could not read the times
        ++trace.facts.num_incomplete;
        continue;
      }
      op.correlation = id_of(rows.whole(kCorrelation));
      op.stream = trace.stream_row({rank.device, rows.whole_or(kStream, -1)});
      note_context(pid, rows.whole(kContext), rank.device);
      switch (table.kind) {
        case ActivityKind::kernel:
          read_kernel(rows, trace, op);
          break;
        case ActivityKind::graph:
          read_graph(rows, trace, op);
          break;
        case ActivityKind::copy:
          read_copy(rows, op);
          break;
        case ActivityKind::fill:
          read_fill(rows, op);
          break;
      }
      trace.ops.add(op);
    }
  }

  /// False where it has no times.
  static bool read_times(TableRows& rows, TraceFacts& facts, int64_t& start_ns, int64_t& end_ns) {
    const std::optional<int64_t> start = rows.time_ns(0);
    const std::optional<int64_t> end = rows.time_ns(1);
    if (!start || !end) {
      ++facts.num_incomplete;
      return false;
    }
    facts.num_clipped += *end < *start;
    start_ns = *start;
    end_ns = std::max(*start, *end);
    return true;
  }

  void note_context(int64_t pid, std::optional<int64_t> context, int64_t device) {
    if (!context || last_context_ == std::tuple(pid, *context, device)) return;
    last_context_ = {pid, *context, device};
    devices_[{pid, *context}] = device;
  }

  void read_kernel(TableRows& rows, ImportedTrace& trace, ImportedOp& op) {
    std::optional<int64_t> name = rows.whole(kOwn);
    if (!name) name = rows.whole(kOwn + 1);
    op.name = name ? traces_.by_ref(*name) : unnamed();
    LaunchShape shape;
    for (size_t axis = 0; axis < 3; ++axis) {
      shape.grid[axis] = id_of(rows.whole(kOwn + 2 + static_cast<int>(axis)));
      shape.block[axis] = id_of(rows.whole(kOwn + 5 + static_cast<int>(axis)));
    }
    shape.graph = id_of(rows.whole(kOwn + 8));
    shape.graph_node = static_cast<uint64_t>(std::max<int64_t>(0, rows.whole_or(kOwn + 9, 0)));
    if (shape != LaunchShape()) op.detail = trace.shapes.row_of(shape);
  }

  void read_graph(TableRows& rows, ImportedTrace& trace, ImportedOp& op) {
    const std::optional<int64_t> graph = rows.whole(kOwn);
    op.name = traces_.names.intern(fmt::format("graph {}", graph.value_or(0)));
    LaunchShape shape;
    shape.graph = id_of(graph);
    op.detail = trace.shapes.row_of(shape);
  }

  void read_copy(TableRows& rows, ImportedOp& op) {
    op.bytes = std::max<int64_t>(0, rows.whole_or(kOwn, 0));
    const std::optional<int64_t> kind = rows.whole(kOwn + 1);
    const auto* source = row_at(kMemoryKinds, rows.whole(kOwn + 2));
    const auto* target = row_at(kMemoryKinds, rows.whole(kOwn + 3));
    const CopyKindRow* row = row_at(kCopyKinds, kind);
    if (row != nullptr) op.path = row->path;
    const std::string path = row != nullptr ? row->name : fmt::format("{}", kind.value_or(0));
    op.detail = traces_.names.intern(path);
    op.name =
        traces_.names.intern(source == nullptr || target == nullptr
                                 ? fmt::format("Memcpy {}", path)
                                 : fmt::format("Memcpy {} ({} -> {})", path, *source, *target));
  }

  void read_fill(TableRows& rows, ImportedOp& op) {
    op.bytes = std::max<int64_t>(0, rows.whole_or(kOwn, 0));
    const auto* memory = row_at(kMemoryKinds, rows.whole(kOwn + 1));
    op.name = traces_.names.intern(memory == nullptr ? std::string("Memset")
                                                     : fmt::format("Memset ({})", *memory));
  }

  uint32_t unnamed() {
    if (!unnamed_) unnamed_ = traces_.names.intern(fmt::format("{} kernel)", kUnnamed));
    return *unnamed_;
  }

  /// The process of a host thread, if it has device work.
  RankTraces::Process* process_with_work(int64_t global_tid) {
    return traces_.find_process(uses_pids_ ? process_of(global_tid) : 0);
  }

  void read_calls() {
    auto rows =
        tables_.rows(kCallTable, {"start", "end", "nameId", "globalTid", "correlationId"}, 3);
    if (!rows) {
      if (!tables_.has(kCallTable)) facts_.notes.emplace_back("calls of CUDA were not recorded");
      return;
    }
    while (rows->next()) {
      const int64_t tid = rows->whole_or(3, 0);
      RankTraces::Process* process = process_with_work(tid);
      if (process == nullptr) continue;
      HostCall call;
      if (!read_times(*rows, process->host.facts, call.start_ns, call.end_ns)) continue;
      call.name = traces_.call_by_ref(rows->whole_or(2, -1));
      call.correlation = id_of(rows->whole(4));
      call.thread = process->host.thread_row(thread_of(tid));
      process->host.calls.add(call);
    }
  }

  static void see_pass(const RangeName& name, const RecomputedWork::Range& range,
                       RecomputedWork& passes) {
    if (name.name.starts_with(kGradientRange)) {
      passes.add_gradient(range, name.name.substr(kGradientRange.size()));
    } else if (name.is_recorded && computes_gradient(name.name)) {
      passes.add_gradient(range, name.name);
    } else if (name.is_recorded) {
      passes.add_recorded(range, name.name);
    }
  }

  void read_ranges() {
    // Ranges by push and pop, and by start and end: each with names of two widths.
    auto rows =
        tables_.rows(kRangeTable, {"start", "end", "eventType", "globalTid", "text", "textId"}, 3,
                     "eventType in (59, 60, 70, 71)");
    if (!rows) return;
    while (rows->next()) {
      const int64_t tid = rows->whole_or(3, 0);
      RankTraces::Process* process = process_with_work(tid);
      if (process == nullptr) continue;
      const RangeName name = range_name_of(rows->text(4));
      const std::optional<int64_t> text_id = rows->whole(5);
      const std::optional<int64_t> start = rows->time_ns(0);
      const std::optional<int64_t> end = rows->time_ns(1);
      if (start && end) {
        see_pass(name, {thread_of(tid), *start, std::max(*start, *end)}, process->passes);
      }
      if (name.is_operator) {
        ++process->num_passed_over;
        continue;
      }
      HostRange range;
      if (!start || !end) continue;  // still open when the recording ended
      range.start_ns = *start;
      range.end_ns = std::max(*start, *end);
      range.name =
          name.name.empty() && text_id ? traces_.by_ref(*text_id) : traces_.names.intern(name.name);
      range.thread = process->host.thread_row(thread_of(tid));
      process->host.ranges.add(range);
    }
  }

  void explain_names() {
    if (!tables_.has("StringIds")) facts_.notes.emplace_back("names were not exported (StringIds)");
    const auto is_wanted = [&](int64_t id) {
      return traces_.refs.contains(id) || traces_.call_refs.contains(id);
    };
    tables_.texts_by_id(
        "StringIds", "id", "value", is_wanted, [&](int64_t id, std::string_view text) {
          if (traces_.refs.contains(id)) {
            traces_.refs.explain(id, traces_.names.intern(text));
          }
          if (traces_.call_refs.contains(id)) {
            traces_.call_refs.explain(id, traces_.names.intern(without_version(text)));
          }
        });
  }

  void read_waits(NsysWaits& waits) {
    if (auto rows = tables_.rows(
            kEventTable, {"eventId", "eventSyncId", "streamId", "correlationId", "globalPid"}, 1)) {
      while (rows->next()) {
        RecordedEvent event;
        event.process = uses_pids_ ? rows->whole_or(4, 0) : 0;
        event.event = rows->whole(0).value_or(-1);
        event.sync = rows->whole(1).value_or(-1);
        event.stream = rows->whole(2).value_or(-1);
        event.correlation = id_of(rows->whole(3));
        waits.add(event);
      }
    }
    auto rows = tables_.rows(kSyncTable,
                             {"start", "end", "syncType", "streamId", "correlationId", "globalPid",
                              "contextId", "eventId", "eventSyncId"},
                             2);
    if (!rows) return;
    while (rows->next()) {
      const int64_t pid = uses_pids_ ? rows->whole_or(5, 0) : 0;
      RankTraces::Rank* rank = rank_of_context(pid, rows->whole(6));
      if (rank == nullptr) continue;
      ImportedSync sync;
      if (!read_times(*rows, rank->trace.facts, sync.start_ns, sync.end_ns)) continue;
      sync.correlation = id_of(rows->whole(4));
      waits.add(*rank, sync, rows->whole_or(2, 0), rows->whole_or(3, -1), rows->whole_or(7, -1),
                rows->whole_or(8, -1));
    }
  }

  /// The device of these rows is 0 whatever the process; the context says it. Null: not known.
  RankTraces::Rank* rank_of_context(int64_t pid, std::optional<int64_t> context) {
    RankTraces::Process* process = traces_.find_process(pid);
    if (process == nullptr) return nullptr;
    if (process->ranks.size() == 1) return &traces_.rank_row(process->ranks.front());
    const auto at = devices_.find({pid, context.value_or(-1)});
    return at == devices_.end() ? nullptr : &traces_.rank(pid, at->second);
  }

  void count_rows() {
    for (auto& [id, process] : traces_.processes()) {
      auto& num_of = process.host.facts.num_of;
      num_of[kCallTable] = static_cast<int64_t>(process.host.calls.size());
      num_of[kRangeTable] =
          static_cast<int64_t>(process.host.ranges.size()) + process.num_passed_over;
      for (const size_t row : process.ranks) {
        ImportedTrace& trace = traces_.rank_row(row).trace;
        for (const ImportedOp& op : trace.ops) {
          ++num_of_kind_[static_cast<size_t>(op.kind)];
        }
        for (const DeviceTable& table : kDeviceTables) {
          const auto kind = static_cast<size_t>(table.kind);
          trace.facts.num_of[table.name] = std::exchange(num_of_kind_[kind], 0);
        }
        trace.facts.num_of[kSyncTable] = static_cast<int64_t>(trace.syncs.size());
      }
    }
  }

  ForeignTables tables_;
  RankTraces traces_;
  TraceFacts facts_;
  bool uses_pids_ = true;
  std::map<std::pair<int64_t, int64_t>, int64_t> devices_;  // by process and context
  std::tuple<int64_t, int64_t, int64_t> last_context_ = {-1, -1, -1};
  std::optional<uint32_t> unnamed_;
  std::array<int64_t, 4> num_of_kind_ = {};
};

}  // namespace

bool is_nsys_sqlite(std::string_view head) { return head.starts_with(kSqliteMagic); }

std::vector<ImportedTrace> read_nsys_sqlite(const std::string& path) {
  std::string magic(2, '\0');
  std::ifstream(path, std::ios::binary).read(magic.data(), 2);
  if (magic == "\x1f\x8b") {
    throw base::UsageError(
        fmt::format("{}: is an SQLite file packed by gzip; unpack it first (gunzip)", path));
  }
  return NsysReader(path).read();
}

}  // namespace moetune::profiler
