// Names of arguments are those that import/kineto_event.cpp reads.
#include "profiler/export/imported_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <string_view>

#include "profiler/export/rate_counter.h"

namespace moetune::profiler {
namespace {

const char* category_of(ActivityKind kind) {
  switch (kind) {
    case ActivityKind::copy:
      return "gpu_memcpy";
    case ActivityKind::fill:
      return "gpu_memset";
    case ActivityKind::kernel:
    case ActivityKind::graph:
      break;
  }
  return "kernel";
}

const char* category_of_call(std::string_view name) {
  if (name.starts_with("hip")) return "hip_runtime";
  return name.starts_with("cu") && !name.starts_with("cuda") ? "cuda_driver" : "cuda_runtime";
}

/// As PyTorch's profiler calls it; null: it has no name for it.
const char* name_of_wait(SyncKind kind) {
  switch (kind) {
    case SyncKind::stream_wait:
      return "Stream Wait Event";
    case SyncKind::event:
      return "Event Sync";
    case SyncKind::stream:
      return "Stream Sync";
    case SyncKind::device:
      return "Context Sync";
    case SyncKind::other:
      break;
  }
  return nullptr;
}

/// Tells the events of one trace.
class ImportedTeller {
 public:
  /// `num_slices` counts what was told before, of all traces.
  ImportedTeller(const ImportedTrace& trace, int32_t rank, size_t& num_slices, TimelineSink& sink)
      : trace_(trace), rank_(rank), num_slices_(num_slices), sink_(sink) {}

  void tell_rows() {
    const TraceFacts& facts = trace_.facts;
    const std::string_view file = std::string_view(facts.file).substr(facts.file.rfind('/') + 1);
    sink_.rank(rank_, facts.rank ? fmt::format("rank {}", *facts.rank) : std::string(file));
    std::set<int64_t> processes;
    for (const ImportedThread& thread : trace_.threads) processes.insert(thread.process);
    for (size_t i = 0; i < trace_.threads.size(); ++i) {
      const ImportedThread& thread = trace_.threads[i];
      sink_.row(rank_, row_of_thread(i),
                processes.size() > 1
                    ? fmt::format("process {}, thread {}", thread.process, thread.id)
                    : fmt::format("thread {}", thread.id));
    }
    std::set<int64_t> devices;
    for (const ImportedStream& stream : trace_.streams) devices.insert(stream.device);
    for (size_t i = 0; i < trace_.streams.size(); ++i) {
      const ImportedStream& stream = trace_.streams[i];
      const std::string name =
          stream.id < 0 ? std::string("copies") : fmt::format("stream {}", stream.id);
      sink_.row(rank_, row_of_stream(i),
                devices.size() > 1 ? fmt::format("device {}, {}", stream.device, name) : name);
    }
    if (std::ranges::any_of(trace_.syncs, is_of_stream)) {
      sink_.row(rank_, row_of_waits(true), "waits of streams");
    }
    if (!std::ranges::all_of(trace_.syncs, is_of_stream)) {
      sink_.row(rank_, row_of_waits(false), "waits of the host");
    }
  }

  void tell() {
    tell_calls();
    for (const HostRange& range : trace_.ranges) {
      slice(row_of_thread(range.thread), trace_.names[range.name], "user_annotation", range, {});
    }
    tell_ops();
    for (const ImportedSync& sync : trace_.syncs) tell_sync(sync);
    tell_counters();
  }

 private:
  static bool is_of_stream(const ImportedSync& sync) { return sync.kind == SyncKind::stream_wait; }
  static int64_t row_of_thread(size_t thread) { return static_cast<int64_t>(thread); }
  [[nodiscard]] int64_t row_of_stream(size_t stream) const {
    return static_cast<int64_t>(trace_.threads.size() + stream);
  }
  /// They have rows of their own, as they are told when they are enqueued: the stream may be busy.
  [[nodiscard]] int64_t row_of_waits(bool of_streams) const {
    return row_of_stream(trace_.streams.size() + (of_streams ? 0 : 1));
  }

  template <typename Timed>
  size_t slice(int64_t row, std::string name, const char* category, const Timed& timed,
               std::vector<TimelineArg> args) {
    sink_.slice({rank_, row, std::move(name), category, timed.start_ns,
                 std::max(timed.start_ns, timed.end_ns), std::move(args)});
    return num_slices_++;
  }

  /// Those that launched something first: whoever joins device work to the first call with its
  /// correlation finds them.
  void tell_calls() {
    std::vector<bool> is_launch(trace_.calls.size());
    for (const ImportedOp& op : trace_.ops) {
      if (op.call != kNoRow) is_launch[op.call] = true;
    }
    slices_of_calls_.resize(trace_.calls.size());
    for (const bool launches : {true, false}) {
      for (size_t i = 0; i < trace_.calls.size(); ++i) {
        if (is_launch[i] != launches) continue;
        const HostCall& call = trace_.calls[i];
        const std::string& name = trace_.names[call.name];
        std::vector<TimelineArg> args;
        if (call.correlation != 0) args.push_back({"correlation", int64_t{call.correlation}});
        slices_of_calls_[i] =
            slice(row_of_thread(call.thread), name, category_of_call(name), call, std::move(args));
      }
    }
  }

  void tell_ops() {
    size_t next_work = 0;
    auto again = trace_.recomputed.begin();
    for (size_t i = 0; i < trace_.ops.size(); ++i) {
      const ImportedOp& op = trace_.ops[i];
      while (next_work < trace_.works.size() && trace_.works[next_work].op < i) ++next_work;
      const bool has_work = next_work < trace_.works.size() && trace_.works[next_work].op == i;
      std::vector<TimelineArg> args =
          arguments_of(op, has_work ? &trace_.works[next_work] : nullptr);
      while (again != trace_.recomputed.end() && *again < i) ++again;
      if (again != trace_.recomputed.end() && *again == i) args.push_back({"recomputed", true});
      const size_t own = slice(row_of_stream(op.stream), name_of_op(op), category_of(op.kind), op,
                               std::move(args));
      const HostCall* call = trace_.launch_of(op);
      if (call == nullptr) continue;
      sink_.flow({"launches",
                  {slices_of_calls_[op.call], rank_, row_of_thread(call->thread), call->start_ns},
                  {own, rank_, row_of_stream(op.stream), op.start_ns}});
    }
  }

  /// Of copies, only the name says the path.
  [[nodiscard]] std::string name_of_op(const ImportedOp& op) const {
    const std::string& name = trace_.names[op.name];
    if (op.kind != ActivityKind::copy || op.path == CopyPath::other || op.detail == kNoRow) {
      return name;
    }
    const std::string& path = trace_.names[op.detail];
    const bool says_path = name.starts_with(path) || name.starts_with("Memcpy " + path);
    return says_path ? name : fmt::format("Memcpy {} ({})", path, name);
  }

  [[nodiscard]] std::vector<TimelineArg> arguments_of(const ImportedOp& op,
                                                      const KernelWork* work) const {
    std::vector<TimelineArg> args;
    const HostCall* call = trace_.launch_of(op);
    const uint32_t correlation =
        call == nullptr || call->correlation == 0 ? op.correlation : call->correlation;
    if (correlation != 0) args.push_back({"correlation", int64_t{correlation}});
    const ImportedStream& stream = trace_.streams[op.stream];
    args.push_back({"device", stream.device});
    args.push_back({"stream", stream.id});
    if (op.bytes > 0) args.push_back({"bytes", op.bytes});
    if (op.kind != ActivityKind::copy && op.kind != ActivityKind::fill && op.detail != kNoRow) {
      add_shape(trace_.shapes[op.detail], args);
    }
    if (op.comm != kNoRow) add_comm(trace_.comms[op.comm], args);
    if (work != nullptr) {
      args.push_back({"flops", work->flops});
      args.push_back({"least bytes", work->bytes});
      if (work->is_eight_bit) args.push_back({"eight bit", true});
    }
    return args;
  }

  static void add_shape(const LaunchShape& shape, std::vector<TimelineArg>& args) {
    const auto add = [&](const char* key, const std::array<uint32_t, 3>& extents) {
      if (extents == std::array<uint32_t, 3>{}) return;
      args.push_back({key, std::vector<int64_t>(extents.begin(), extents.end())});
    };
    add("grid", shape.grid);
    add("block", shape.block);
    if (shape.graph != 0) args.push_back({"graph id", int64_t{shape.graph}});
    if (shape.graph_node != 0) {
      args.push_back({"graph node id", static_cast<int64_t>(shape.graph_node)});
    }
  }

  void add_comm(const CommCall& comm, std::vector<TimelineArg>& args) const {
    const auto add = [&](const char* key, uint32_t name) {
      if (name != kNoRow) args.push_back({key, trace_.names[name]});
    };
    const auto add_from = [&](const char* key, int64_t value, int64_t least) {
      if (value >= least) args.push_back({key, value});
    };
    add("Collective name", comm.collective);
    add("Process Group Name", comm.group);
    add("Process Group Description", comm.description);
    add("Process Group Ranks", comm.members);
    add("dtype", comm.dtype);
    add_from("Group size", comm.group_size, 0);
    add_from("In msg nelems", comm.in_nelems, 1);
    add_from("Out msg nelems", comm.out_nelems, 1);
    add_from("Seq", comm.sequence, 0);
    const bool is_receive = comm.collective != kNoRow && trace_.names[comm.collective] == "recv";
    add_from(is_receive ? "Src Rank" : "Dst Rank", comm.peer, 0);
  }

  void tell_sync(const ImportedSync& sync) {
    std::vector<TimelineArg> args;
    const char* kind = name_of_wait(sync.kind);
    if (kind != nullptr) args.push_back({"cuda_sync_kind", std::string(kind)});
    const auto add = [&](const char* key, uint64_t number) {
      if (number != 0 && number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        args.push_back({key, static_cast<int64_t>(number)});
      }
    };
    add("correlation", sync.correlation);
    if (sync.stream != kNoRow || sync.producer_stream != kNoRow) {
      const uint32_t known = sync.stream != kNoRow ? sync.stream : sync.producer_stream;
      args.push_back({"device", trace_.streams[known].device});
    }
    if (sync.stream != kNoRow) args.push_back({"stream", trace_.streams[sync.stream].id});
    if (sync.producer_stream != kNoRow) {
      args.push_back({"wait_on_stream", trace_.streams[sync.producer_stream].id});
    }
    add("wait_on_cuda_event_record_corr_id", sync.record_correlation);
    add("wait_on_cuda_event_id", sync.event);
    slice(row_of_waits(is_of_stream(sync)), kind == nullptr ? "wait" : kind, "cuda_sync", sync,
          std::move(args));
  }

  void tell_counters() {
    RateCounter flops;
    RateCounter sent;
    RateCounter copied;
    for (const KernelWork& work : trace_.works) {
      const ImportedOp& op = trace_.ops[work.op];
      flops.add(op.start_ns, op.end_ns, work.flops);
    }
    for (const ImportedOp& op : trace_.ops) {
      if (op.comm != kNoRow) sent.add(op.start_ns, op.end_ns, op.bytes);
      if (op.kind == ActivityKind::copy) copied.add(op.start_ns, op.end_ns, op.bytes);
    }
    flops.tell(sink_, rank_, "FLOP/s");
    sent.tell(sink_, rank_, "communication B/s");
    copied.tell(sink_, rank_, "copied B/s");
  }

  const ImportedTrace& trace_;
  int32_t rank_;
  size_t& num_slices_;
  TimelineSink& sink_;
  std::vector<size_t> slices_of_calls_;
};

}  // namespace

int64_t start_of_imported(std::span<const ImportedTrace> traces) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  int64_t start_ns = kNever;
  const auto see = [&](const auto& rows) {
    for (const auto& row : rows) start_ns = std::min(start_ns, row.start_ns);
  };
  for (const ImportedTrace& trace : traces) {
    see(trace.ops);
    see(trace.calls);
    see(trace.ranges);
    see(trace.syncs);
  }
  return start_ns == kNever ? 0 : start_ns;
}

bool has_events(std::span<const ImportedTrace> traces) {
  return std::ranges::any_of(traces, [](const ImportedTrace& trace) {
    return !trace.ops.empty() || !trace.calls.empty() || !trace.ranges.empty();
  });
}

bool can_be_read_back(std::span<const ImportedTrace> traces) {
  const int64_t origin_ns = start_of_imported(traces);
  const auto fits = [&](const auto& rows) {
    return std::ranges::all_of(rows, [&](const auto& row) {
      return row.start_ns - origin_ns <= kMostImportedNs &&
             row.end_ns - row.start_ns <= kMostImportedNs;
    });
  };
  return std::ranges::all_of(traces, [&](const ImportedTrace& trace) {
    return fits(trace.ops) && fits(trace.calls) && fits(trace.ranges) && fits(trace.syncs);
  });
}

std::vector<int32_t> shown_ranks(std::span<const ImportedTrace> traces) {
  constexpr int64_t kMost = int64_t{1} << 30;
  std::vector<int32_t> ranks;
  std::set<int64_t> seen;
  for (const ImportedTrace& trace : traces) {
    const int64_t rank = trace.facts.rank.value_or(-1);
    if (rank < 0 || rank > kMost || !seen.insert(rank).second) break;
    ranks.push_back(static_cast<int32_t>(rank));
  }
  if (ranks.size() == traces.size()) return ranks;
  ranks.clear();
  for (size_t i = 0; i < traces.size(); ++i) ranks.push_back(static_cast<int32_t>(i));
  return ranks;
}

void tell_imported(std::span<const ImportedTrace> traces, TimelineSink& sink) {
  const std::vector<int32_t> ranks = shown_ranks(traces);
  size_t num_slices = 0;
  std::vector<ImportedTeller> tellers;
  for (size_t i = 0; i < traces.size(); ++i) {
    tellers.emplace_back(traces[i], ranks[i], num_slices, sink).tell_rows();
  }
  for (ImportedTeller& teller : tellers) teller.tell();
}

}  // namespace moetune::profiler
