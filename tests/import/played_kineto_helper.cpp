// Launches take the time that they took in the step; where an event is recorded behind one, or
// waited for before it, that call takes a part of this time.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <random>
#include <tuple>
#include <utility>

#include "profiler/export/chrome_json.h"
#include "profiler/import/own_steps.h"
#include "profiler/import/trace_files.h"
#include "tests/import/played_kineto.h"

namespace moetune::tests {
namespace {

using profiler::CallKind;
using profiler::Chunks;
using profiler::CommCall;
using profiler::HostCall;
using profiler::ImportedOp;
using profiler::ImportedTrace;
using profiler::kNoRow;
using profiler::RecordKind;
using profiler::StepTrace;
using profiler::TraceRecord;

constexpr int64_t kEventCallNs = 100;

struct GroupNameRow {
  const char* group;
  const char* description;  ///< as Megatron-LM and PyTorch call it
};
constexpr GroupNameRow kGroupNames[] = {
    {"world", "default_pg"},
    {"dp_cp", "DATA_PARALLEL_GROUP_WITH_CP"},
    {"cp", "CONTEXT_PARALLEL_GROUP"},
    {"ep", "EXPERT_MODEL_PARALLEL_GROUP"},
    {"edp", "EXPERT_DATA_PARALLEL_GROUP"},
    {"pp", "PIPELINE_MODEL_PARALLEL_GROUP"},
    {"embedding", "EMBEDDING_GROUP"},
    {"tp", "TENSOR_MODEL_PARALLEL_GROUP"},
    {"tp_cp", "TENSOR_AND_CONTEXT_PARALLEL_GROUP"},
};

struct CollectiveRow {
  const char* word;  ///< in the op's name
  const char* collective;
  const char* kernel;
};
constexpr const char* kSendRecv = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";
/// The first that fits; the last one fits all.
constexpr CollectiveRow kCollectives[] = {
    {"dispatch", "all_to_allv", kSendRecv},
    {"combine", "all_to_allv", kSendRecv},
    {"exchange", "all_to_allv", kSendRecv},
    {"kv_shift", "all_to_allv", kSendRecv},
    {"gather", "_allgather_base",
     "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"},
    {"scatter", "_reduce_scatter_base",
     "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"},
    {"", "allreduce", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"},
};

bool has(const TraceRecord& record, std::string_view word) {
  return record.name.text().find(word) != std::string::npos;
}

/// One rank's step.
class TorchRecorder {
 public:
  TorchRecorder(const StepTrace& step, const profiler::GroupInstances& communicators)
      : step_(step), communicators_(communicators) {}

  ImportedTrace record(int64_t world_size) {
    trace_.facts.format = "kineto";
    trace_.facts.rank = step_.rank;
    trace_.facts.world_size = world_size;
    trace_.facts.device_names = {"NVIDIA H100 80GB HBM3"};
    thread_ = trace_.thread_row({1000 + step_.rank, 1000 + step_.rank});
    // An event for the latest of what a record waits for: its calls do not say which they are of.
    StepTrace latest = step_;
    latest.further_waits.clear();
    for (const auto& [id, stream] : profiler::awaited_streams(latest)) producers_[id] = {stream, 0};
    received_ = profiler::received_bytes(step_);
    host_ns_ = step_.start_ns;
    for (const TraceRecord& one : step_.records) {
      if (one.stream == profiler::kHostStream) {
        add_host(one);
      } else {
        add_device(one);
      }
    }
    add_range("ProfilerStep#3", step_.start_ns, host_ns_);
    trace_.finish();
    trace_.steps = {{3, step_.start_ns, host_ns_}};
    return std::move(trace_);
  }

 private:
  uint32_t name(std::string_view text) { return trace_.names.intern(text); }

  uint16_t stream_of(int32_t stream) { return trace_.stream_row({0, 7 + 4 * int64_t{stream}}); }

  /// Returns the call's correlation.
  uint32_t add_call(const char* function, int64_t start_ns, int64_t end_ns) {
    const uint32_t correlation = ++num_calls_;
    trace_.calls.add(
        {start_ns, end_ns, name(function), correlation, thread_, profiler::call_kind_of(function)});
    host_ns_ = std::max(host_ns_, end_ns);
    return correlation;
  }

  void add_range(const char* text, int64_t start_ns, int64_t end_ns) {
    trace_.ranges.add({start_ns, end_ns, name(text), thread_});
  }

  /// Other work of the host is between the calls.
  void add_host(const TraceRecord& record) {
    host_ns_ = std::max(host_ns_, record.end_ns);
    if (record.kind == RecordKind::host_sync) {
      add_call("cudaStreamSynchronize", record.start_ns, record.end_ns);
    } else if (has(record, "Malloc")) {
      add_call("cudaMalloc", record.start_ns, record.end_ns);
    } else if (has(record, "load")) {
      add_range("load_batch", record.start_ns, record.end_ns);
    }
  }

  void add_device(const TraceRecord& record) {
    const bool is_copy = record.kind == RecordKind::memcpy;
    const bool is_graph = record.graph_id != 0;
    const bool is_same_launch = is_graph && record.launch_start_ns == graph_launch_ns_;
    if (!is_same_launch) {
      const int64_t part_ns =
          std::min(kEventCallNs, (record.launch_end_ns - record.launch_start_ns) / 4);
      int64_t start_ns = record.launch_start_ns;
      int64_t end_ns = record.launch_end_ns;
      const auto waited_for = producers_.find(record.producer_id);
      if (waited_for != producers_.end() && waited_for->second.correlation != 0 &&
          waited_for->second.stream != record.stream) {
        add_wait(record, waited_for->second, start_ns, start_ns + part_ns);
        start_ns += part_ns;
      }
      const auto own = producers_.find(record.id);
      if (own != producers_.end()) end_ns -= part_ns;
      launch_ = add_call(is_graph  ? "cudaGraphLaunch"
                         : is_copy ? "cudaMemcpyAsync"
                                   : "cudaLaunchKernel",
                         start_ns, end_ns);
      if (own != producers_.end()) {
        own->second.correlation = add_call("cudaEventRecord", end_ns, end_ns + part_ns);
      }
    }
    graph_launch_ns_ = is_graph ? record.launch_start_ns : -1;
    add_op(record);
  }

  struct Producer {
    int32_t stream = 0;
    uint32_t correlation = 0;  ///< of the call that recorded its event; 0: none yet
  };
  void add_wait(const TraceRecord& record, const Producer& producer, int64_t start_ns,
                int64_t end_ns) {
    profiler::ImportedSync sync;
    sync.start_ns = start_ns;
    sync.end_ns = end_ns;
    sync.kind = profiler::SyncKind::stream_wait;
    sync.stream = stream_of(record.stream);
    sync.producer_stream = stream_of(producer.stream);
    sync.correlation = add_call("cudaStreamWaitEvent", start_ns, end_ns);
    sync.record_correlation = producer.correlation;
    sync.event = producer.correlation;
    trace_.syncs.push_back(sync);
  }

  void add_op(const TraceRecord& record) {
    profiler::ImportedOp op;
    op.start_ns = record.start_ns;
    op.end_ns = std::max(record.start_ns, record.end_ns);
    op.correlation = launch_;
    op.stream = stream_of(record.stream);
    if (record.is_recompute && record.kind != RecordKind::memcpy) {
      trace_.recomputed.push_back(static_cast<uint32_t>(trace_.ops.size()));
    }
    if (record.kind == RecordKind::memcpy) {
      const bool is_to_host = has(record, "offload");
      op.kind = profiler::ActivityKind::copy;
      op.path = is_to_host ? profiler::CopyPath::to_host : profiler::CopyPath::to_device;
      op.detail = name(is_to_host ? "DtoH" : "HtoD");
      op.name =
          name(is_to_host ? "Memcpy DtoH (Device -> Pinned)" : "Memcpy HtoD (Pinned -> Device)");
      op.bytes = record.bytes;
    } else if (!record.group.empty()) {
      add_comm(record, op);
    } else {
      std::string words = record.name.text();
      std::ranges::replace(words, '.', '_');
      // Products of experts are one kernel for all experts of a rank.
      const char* kind = words.starts_with("expert_fc") ? "grouped_gemm_" : "";
      op.name = name(fmt::format("void {}{}_kernel<__nv_bfloat16>(Params)", kind, words));
      // Larger work has more blocks.
      const auto blocks = [](int64_t amount, int shift) {
        return 1 + static_cast<uint32_t>(std::min<int64_t>(amount >> shift, 1'000'000));
      };
      op.detail = trace_.shapes.row_of(
          {{blocks(record.bytes, 20), blocks(record.flops, 30), 1}, {256, 1, 1}, 0, 0});
    }
    trace_.ops.add(op);
  }

  void add_comm(const TraceRecord& record, profiler::ImportedOp& op) {
    constexpr int64_t kElementBytes = 2;
    const std::vector<int32_t> ranks = members_of(record);
    CommCall comm;
    comm.group = name(fmt::format("{}{}", record.group.text(), ranks.front()));
    for (const GroupNameRow& row : kGroupNames) {
      if (record.group == row.group) comm.description = name(row.description);
    }
    comm.members = name(fmt::format("[{}]", fmt::join(ranks, ", ")));
    comm.dtype = name("BFloat16");
    comm.group_size = static_cast<int32_t>(ranks.size());
    comm.in_nelems = comm.out_nelems = std::max<int64_t>(1, record.bytes / kElementBytes);
    comm.sequence = record.sequence;
    if (const auto received = received_.find(record.id); received != received_.end()) {
      comm.out_nelems = std::max<int64_t>(1, received->second / kElementBytes);
    }
    op.bytes = kElementBytes * std::max(comm.in_nelems, comm.out_nelems);
    if (record.kind == RecordKind::p2p) {
      const bool is_receive = has(record, "recv");
      comm.collective = name(is_receive ? "recv" : "send");
      comm.peer = peer_of(record, ranks, is_receive);
      op.name = name(kSendRecv);
    } else {
      const auto* row = std::ranges::find_if(
          kCollectives, [&](const CollectiveRow& one) { return has(record, one.word); });
      comm.collective = name(row->collective);
      op.name = name(row->kernel);
    }
    op.comm = static_cast<uint32_t>(trace_.comms.size());
    trace_.comms.push_back(comm);
  }

  [[nodiscard]] std::vector<int32_t> members_of(const TraceRecord& record) const {
    std::vector<int32_t> ranks;
    const auto own = communicators_.find({step_.rank, record.group.text()});
    if (own == communicators_.end()) return {step_.rank};
    for (const auto& [key, instance] : communicators_) {
      if (key.second == record.group.text() && instance == own->second) ranks.push_back(key.first);
    }
    return ranks;
  }

  /// Forward to the next stage, backward to the one before; the last one's next is the first.
  [[nodiscard]] int32_t peer_of(const TraceRecord& record, const std::vector<int32_t>& ranks,
                                bool is_receive) const {
    const auto own = static_cast<size_t>(std::ranges::find(ranks, step_.rank) - ranks.begin());
    const bool is_next = has(record, "backward") == is_receive;
    return ranks[(own + (is_next ? 1 : ranks.size() - 1)) % ranks.size()];
  }

  const StepTrace& step_;
  const profiler::GroupInstances& communicators_;
  ImportedTrace trace_;
  uint16_t thread_ = 0;
  uint32_t num_calls_ = 0;
  uint32_t launch_ = 0;  ///< of what is added next
  int64_t graph_launch_ns_ = -1;
  int64_t host_ns_ = 0;
  std::map<int64_t, Producer> producers_;  ///< by id of the record
  std::map<int64_t, int64_t> received_;    ///< bytes, by id of the exchange
};

}  // namespace

std::vector<ImportedTrace> as_recorded(const std::vector<StepTrace>& step,
                                       const profiler::GroupInstances& communicators) {
  std::vector<ImportedTrace> traces;
  for (const StepTrace& rank : step) {
    traces.push_back(TorchRecorder(rank, communicators).record(static_cast<int64_t>(step.size())));
  }
  return traces;
}

std::vector<ImportedTrace> through_kineto(const std::vector<StepTrace>& step,
                                          const profiler::GroupInstances& communicators,
                                          const std::string& folder) {
  std::vector<ImportedTrace> traces;
  for (const ImportedTrace& trace : as_recorded(step, communicators)) {
    const std::string path = fmt::format("{}/rank{}.json", folder, *trace.facts.rank);
    std::ofstream file(path, std::ios::binary);
    profiler::write_imported_chrome_json(file, std::span(&trace, 1), "step");
    file.close();
    traces.push_back(std::move(profiler::read_trace_file(path).at(0)));
  }
  return traces;
}

void forget_waits(std::vector<ImportedTrace>& traces) {
  for (ImportedTrace& trace : traces) trace.syncs.clear();
}

void forget_launches(std::vector<ImportedTrace>& traces, int percent) {
  std::minstd_rand random(11);
  for (ImportedTrace& trace : traces) {
    Chunks<HostCall> kept;
    std::vector<uint32_t> places;
    for (const HostCall& call : trace.calls) {
      const bool is_lost =
          call.kind == CallKind::launch && static_cast<int>(random() % 100) < percent;
      places.push_back(is_lost ? kNoRow : static_cast<uint32_t>(kept.size()));
      if (!is_lost) kept.add(call);
    }
    trace.calls = std::move(kept);
    for (ImportedOp& op : trace.ops) {
      if (op.call != kNoRow) op.call = places[op.call];
    }
  }
}

}  // namespace moetune::tests
