#include "profiler/analysis/recording_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "profiler/analysis/missing_ranks.h"

namespace moetune::profiler {
namespace {

/// How each tool is told to record something, by TraceFacts::format.
struct RecordingRow {
  std::string_view format;
  const char* calls;
  const char* syncs;
  const char* steps;
  const char* partners;   ///< of communication
  const char* sequences;  ///< of collectives
  const char* no_shapes;
  const char* stalls;  ///< what the host does in them
};
constexpr RecordingRow kRecordings[] = {
    {"kineto", "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
     "experimental_config=torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)",
     "profiler.step() behind each", "PyTorch since 2024 names them", "\"Seq\" of newer PyTorch",
     "the traces have no shapes of operators (record_shapes=True)",
     "with_stack=True, or a record_function range around each of these"},
    {"nsys", "nsys profile --trace=cuda,nvtx", "nsys profile --cuda-event-trace=true",
     "an NVTX range 'step 5' around each", "nsys profile --trace=cuda,nvtx", "",
     "Nsight Systems does not record shapes of operators, PyTorch's profiler does",
     "nsys profile --python-sampling=true, or an NVTX range around each of these"},
    {"rocprofiler-sdk", "rocprofv3 --hip-trace", "", "rocprofv3 --marker-trace, with a range each",
     "PyTorch's profiler names them", "",
     "rocprofv3 does not record shapes of operators, PyTorch's profiler does",
     "rocprofv3 --marker-trace, with a range around each of these"},
    {"moetune", "", "", "", "", "", "moetune's own steps are not set against a device here", ""},
};

/// Copies and fills alone show no step.
bool lacks_kernels(const ImportedTrace& trace) {
  return std::ranges::none_of(trace.ops, [](const ImportedOp& op) {
    return op.kind == ActivityKind::kernel || op.kind == ActivityKind::graph;
  });
}

bool lacks_launches(const ImportedTrace& trace) {
  constexpr size_t kUsual = 20;  // of so many one may come from before the recording
  size_t without = 0;
  for (const ImportedOp& op : trace.ops) without += op.call == kNoRow ? 1 : 0;
  return without * kUsual > trace.ops.size();
}

bool lacks_names(const ImportedTrace& trace) {
  return std::ranges::any_of(trace.ops, [&](const ImportedOp& op) { return !trace.has_name(op); });
}

bool lacks_syncs(const ImportedTrace& trace) {
  const bool has_wait = std::ranges::any_of(
      trace.syncs, [](const ImportedSync& sync) { return sync.kind == SyncKind::stream_wait; });
  return trace.streams.size() > 1 && !has_wait;
}

}  // namespace

std::string why_no_shapes(std::span<const ImportedTrace> traces) {
  for (const RecordingRow& row : kRecordings) {
    if (!traces.empty() && row.format == traces[0].facts.format) return row.no_shapes;
  }
  return "the traces have no shapes of operators";
}

std::string how_to_see_stalls(std::span<const ImportedTrace> traces) {
  for (const RecordingRow& row : kRecordings) {
    const bool is_of_tool = !traces.empty() && row.format == traces[0].facts.format;
    if (is_of_tool && *row.stalls != '\0') return row.stalls;
  }
  return "a range around each of these";
}

std::vector<std::string> what_to_record(std::span<const ImportedTrace> traces,
                                        const VerdictLack& lack) {
  std::vector<std::string> wanted;
  const auto how = [&](const char* RecordingRow::*option) {
    for (const RecordingRow& row : kRecordings) {
      if (!traces.empty() && row.format == traces[0].facts.format && *(row.*option) != '\0') {
        return fmt::format(" ({})", row.*option);
      }
    }
    return std::string();
  };
  if (std::ranges::all_of(traces, lacks_kernels)) {
    wanted.push_back("the device's kernels" + how(&RecordingRow::calls));
  }
  if (lack.is_too_little) {
    wanted.push_back(
        fmt::format("whole steps with at least {} operations of the device", kMinJudgedOps));
  }
  if (lack.are_ids_shared) {
    wanted.emplace_back("correlation ids as the recorder gives them, one for each launch");
  } else if (std::ranges::any_of(traces, lacks_launches)) {
    wanted.push_back("the host's calls over whole steps" + how(&RecordingRow::calls));
  }
  if (lack.lacks_records) {
    wanted.emplace_back("every record of the steps (of fewer steps, or with larger buffers)");
  }
  if (std::ranges::any_of(traces, lacks_names)) wanted.emplace_back("the kernels' names");
  if (lack.lacks_lengths) wanted.emplace_back("when each kernel ends");
  if (lack.lacks_parts) {
    wanted.push_back(
        "the same whole steps on all ranks, without lost records, and each collective's "
        "number in its group" +
        how(&RecordingRow::sequences));
  } else if (lack.is_unmatched) {
    wanted.push_back("which message or collective each kernel of communication is of" +
                     how(&RecordingRow::partners));
  }
  const int64_t ranks = known_ranks(traces);
  if (ranks > static_cast<int64_t>(traces.size())) {
    wanted.push_back(
        fmt::format("the other ranks, too (given are {} of {})", traces.size(), ranks));
  }
  if (std::ranges::any_of(traces, lacks_syncs)) {
    wanted.push_back("which stream waits for which event" + how(&RecordingRow::syncs));
  }
  if (std::ranges::any_of(traces, [](const auto& trace) { return trace.steps.empty(); })) {
    wanted.push_back("where steps begin and end" + how(&RecordingRow::steps));
  }
  if (wanted.empty()) wanted.emplace_back("more steps");
  return wanted;
}

}  // namespace moetune::profiler
