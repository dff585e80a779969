// Each figure in one plain pass over the trace.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "profiler/analysis/intervals.h"
#include "profiler/analysis/trace_figures.h"
#include "tests/import/reference_figures.h"

namespace moetune::profiler {
namespace {

constexpr int64_t kKernelWaitNs = 30'000;

/// As HolisticTraceAnalysis counts: hipMemcpyWithStream, which also waits, is not among them.
bool is_host_sync(const ImportedTrace& trace, const HostCall& call) {
  if (call.kind == CallKind::sync) return true;
  if (call.kind != CallKind::blocking_copy) return false;
  const std::string& name = trace.names[call.name];
  return name == "cudaMemcpy" || name == "hipMemcpy";
}

IntervalSet host_syncs(const ImportedTrace& trace) {
  std::vector<Interval> syncs;
  for (const HostCall& call : trace.calls) {
    if (is_host_sync(trace, call)) syncs.push_back({call.start_ns, call.end_ns});
  }
  return IntervalSet(std::move(syncs));
}

/// By row.
std::vector<std::string> stream_names(const ImportedTrace& trace) {
  bool is_one_device = true;
  for (const ImportedStream& stream : trace.streams) {
    is_one_device = is_one_device && stream.device == trace.streams[0].device;
  }
  std::vector<std::string> names;
  for (const ImportedStream& stream : trace.streams) {
    names.push_back(is_one_device ? fmt::format("{}", stream.id)
                                  : fmt::format("{}:{}", stream.device, stream.id));
  }
  return names;
}

std::string text_of_name(const ImportedTrace& trace, uint32_t name) {
  return name == kNoRow ? std::string() : trace.names[name];
}

/// Launched ops by the row of their call, which is the order of the starts of calls.
std::vector<uint32_t> launched_ops(const ImportedTrace& trace) {
  std::vector<uint32_t> rows;
  for (size_t row = 0; row < trace.ops.size(); ++row) {
    if (trace.ops[row].call != kNoRow) rows.push_back(static_cast<uint32_t>(row));
  }
  std::ranges::stable_sort(rows, {}, [&](uint32_t row) { return trace.ops[row].call; });
  return rows;
}

}  // namespace

std::vector<StepFigures> step_figures(const ImportedTrace& trace) {
  const IntervalSet syncs = host_syncs(trace);
  const std::vector<uint32_t> launched = launched_ops(trace);
  const auto start_of = [&](uint32_t row) { return trace.launch_of(trace.ops[row])->start_ns; };
  std::vector<StepFigures> figures;
  for (size_t i = 0; i < trace.steps.size(); ++i) {
    const ImportedStep& step = trace.steps[i];
    StepFigures& one = figures.emplace_back();
    one.number = step.number;
    one.host_ns = step.end_ns - step.start_ns;
    if (i + 1 < trace.steps.size()) {
      one.start_to_start_ns = trace.steps[i + 1].start_ns - step.start_ns;
    }
    one.host_sync_ns = clip(syncs, {step.start_ns, step.end_ns}).total_ns();
    std::vector<int64_t> waits;
    int64_t last_end_ns = 0;
    auto at = std::ranges::lower_bound(launched, step.start_ns, {}, start_of);
    for (; at != launched.end() && start_of(*at) < step.end_ns; ++at) {
      const ImportedOp& op = trace.ops[*at];
      last_end_ns = waits.empty() ? op.end_ns : std::max(last_end_ns, op.end_ns);
      waits.push_back(op.start_ns - trace.launch_of(op)->end_ns);
    }
    one.num_launched = static_cast<int64_t>(waits.size());
    if (waits.empty()) continue;
    one.device_end_after_host_end_ns = last_end_ns - step.end_ns;
    std::ranges::sort(waits);
    one.launch_to_start_median_ns = waits[(waits.size() - 1) / 2];
    one.launch_to_start_max_ns = waits.back();
  }
  return figures;
}

int64_t host_sync_ns(const ImportedTrace& trace) { return host_syncs(trace).total_ns(); }

std::map<std::string, StreamIdle> stream_idle(const ImportedTrace& trace,
                                              std::span<const uint32_t> ops) {
  std::map<uint16_t, std::pair<StreamIdle, const ImportedOp*>> streams;
  for (const uint32_t row : ops) {
    const ImportedOp& op = trace.ops[row];
    auto& [idle, previous] = streams[op.stream];
    ++idle.num_ops;
    if (previous != nullptr) {
      const int64_t gap_ns = op.start_ns - previous->end_ns;
      const HostCall* call = trace.launch_of(op);
      if (call != nullptr && call->start_ns > previous->end_ns) {
        idle.host_wait_ns += gap_ns;
      } else if (gap_ns < kKernelWaitNs) {
        idle.kernel_wait_ns += gap_ns;
      } else {
        idle.other_ns += gap_ns;
      }
    }
    previous = &op;
  }
  const std::vector<std::string> names = stream_names(trace);
  std::map<std::string, StreamIdle> named;
  for (const auto& [row, idle] : streams) named[names[row]] = idle.first;
  return named;
}

std::map<std::string, QueueLength> queue_lengths(const ImportedTrace& trace,
                                                 std::span<const uint32_t> ops) {
  // A launch before the start of work at the same moment.
  std::map<uint16_t, std::vector<std::pair<int64_t, bool>>> points;
  for (const uint32_t row : ops) {
    const ImportedOp& op = trace.ops[row];
    const HostCall* call = trace.launch_of(op);
    if (call == nullptr) continue;
    points[op.stream].emplace_back(call->start_ns, false);
    points[op.stream].emplace_back(op.start_ns, true);
  }
  const std::vector<std::string> names = stream_names(trace);
  std::map<std::string, QueueLength> named;
  for (auto& [row, changes] : points) {
    std::ranges::sort(changes);
    QueueLength queue;
    int64_t length = 0;
    int64_t sum = 0;
    for (const auto& [moment_ns, is_start_of_work] : changes) {
      length += is_start_of_work ? -1 : 1;
      queue.max = queue.num_points == 0 ? length : std::max(queue.max, length);
      queue.min = queue.num_points == 0 ? length : std::min(queue.min, length);
      sum += length;
      ++queue.num_points;
    }
    queue.mean = static_cast<double>(sum) / static_cast<double>(queue.num_points);
    named[names[row]] = queue;
  }
  return named;
}

std::map<std::string, CopySum> copy_sums(const ImportedTrace& trace) {
  std::map<std::string, CopySum> sums;
  for (const ImportedOp& op : trace.ops) {
    if (op.kind != ActivityKind::copy) continue;
    CopySum& sum = sums[text_of_name(trace, op.detail)];
    ++sum.count;
    sum.bytes += op.bytes;
    sum.sum_ns += op.duration_ns();
  }
  return sums;
}

std::vector<CollectiveSum> collective_sums(const ImportedTrace& trace, const WorkClasses& wide) {
  // Names are compared by their numbers: the same text has one.
  using Key = std::tuple<std::string, uint32_t, uint32_t, uint32_t, int32_t>;
  std::map<Key, size_t> places;
  std::vector<CollectiveSum> sums;
  for (const ImportedOp& op : trace.ops) {
    if (wide.of(op) != WorkClass::communication) continue;
    const CommCall comm = op.comm == kNoRow ? CommCall() : trace.comms[op.comm];
    const std::string kernel = name_before_arguments(trace.names[op.name], 80);
    const Key key(kernel, comm.collective, comm.group, comm.dtype, comm.group_size);
    const auto [place, is_new] = places.try_emplace(key, sums.size());
    if (is_new) {
      sums.push_back({kernel, text_of_name(trace, comm.collective), text_of_name(trace, comm.group),
                      text_of_name(trace, comm.dtype), comm.group_size});
      sums.back().min_ns = op.duration_ns();
    }
    CollectiveSum& sum = sums[place->second];
    ++sum.count;
    sum.sum_ns += op.duration_ns();
    sum.min_ns = std::min(sum.min_ns, op.duration_ns());
    sum.max_ns = std::max(sum.max_ns, op.duration_ns());
    sum.in_nelems += comm.in_nelems;
    sum.out_nelems += comm.out_nelems;
  }
  return sums;
}

}  // namespace moetune::profiler
