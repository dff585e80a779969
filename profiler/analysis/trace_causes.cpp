#include "profiler/analysis/trace_causes.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <queue>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace moetune::profiler {
namespace {

/// In the order in which they hide one another.
enum class Lane : uint8_t { compute, unnamed, communication, host_copy, count };
constexpr size_t kNumLanes = static_cast<size_t>(Lane::count);

Lane lane_of(const ImportedTrace& trace, const ImportedOp& op, const WorkClasses& wide) {
  switch (wide.of(op)) {
    case WorkClass::communication:
      return Lane::communication;
    case WorkClass::copy:
      return op.path == CopyPath::to_device || op.path == CopyPath::to_host ? Lane::host_copy
                                                                            : Lane::compute;
    case WorkClass::fill:
      return Lane::compute;
    default:
      return trace.has_name(op) ? Lane::compute : Lane::unnamed;
  }
}

class CauseSweep {
 public:
  CauseSweep(const ImportedTrace& trace, const TraceWindow& window, const WorkClasses& wide)
      : trace_(trace),
        window_(window),
        wide_(wide),
        offloading_(offloading_of(trace)),
        start_limit_ns_(start_limit_of(trace)),
        cursor_ns_(window.time.start_ns) {
    ends_.fill(std::numeric_limits<int64_t>::min());
    ops_.fill(kNoRow);
    segments_.reserve(3 * window.ops.size());
  }

  CauseSegments run() {
    for (size_t place = 0; place < window_.ops.size(); ++place) {
      const uint32_t row = window_.ops[place];
      const ImportedOp& op = trace_.ops[row];
      const int64_t start_ns = std::max(op.start_ns, window_.time.start_ns);
      const int64_t end_ns = std::min(op.end_ns, window_.time.end_ns);
      if (end_ns <= start_ns) continue;
      const Lane lane = lane_of(trace_, op, wide_);
      if (cursor_ns_ < start_ns) advance(start_ns, last_enqueued(place));
      const auto at = static_cast<size_t>(lane);
      if (end_ns > ends_[at]) {
        ends_[at] = end_ns;
        ops_[at] = row;
      }
      if (lane == Lane::communication) running_comm_.push(end_ns);
    }
    advance(window_.time.end_ns, kNoRow);
    return std::move(segments_);
  }

 private:
  /// Of what starts together with the op at `place`, the one that was launched last.
  [[nodiscard]] uint32_t last_enqueued(size_t place) const {
    uint32_t latest = window_.ops[place];
    const int64_t start_ns = trace_.ops[latest].start_ns;
    for (; place < window_.ops.size(); ++place) {
      const ImportedOp& op = trace_.ops[window_.ops[place]];
      if (op.start_ns != start_ns) break;
      const HostCall* best = trace_.launch_of(trace_.ops[latest]);
      const HostCall* call = trace_.launch_of(op);
      if (call != nullptr && (best == nullptr || call->end_ns > best->end_ns)) {
        latest = window_.ops[place];
      }
    }
    return latest;
  }

  void add(int64_t start_ns, int64_t end_ns, IdleCause cause, uint32_t op) {
    if (end_ns <= start_ns) return;
    const CauseSegment last = segments_.empty() ? CauseSegment() : segments_[segments_.size() - 1];
    if (!segments_.empty() && last.cause == cause && last.op == op) {
      segments_.extend(end_ns);
    } else {
      segments_.add({start_ns, end_ns, cause, op});
    }
  }

  /// Explains the time up to `moment_ns`, when `next` starts.
  void advance(int64_t moment_ns, uint32_t next) {
    while (cursor_ns_ < moment_ns) {
      size_t lane = 0;
      while (lane < kNumLanes && ends_[lane] <= cursor_ns_) ++lane;
      if (lane == kNumLanes) {
        explain_idle({cursor_ns_, moment_ns}, next);
        cursor_ns_ = moment_ns;
        return;
      }
      const int64_t until_ns = std::min(moment_ns, ends_[lane]);
      switch (static_cast<Lane>(lane)) {
        case Lane::compute:
          // One cause, whichever kernel.
          add(cursor_ns_, until_ns, IdleCause::compute, kNoRow);
          break;
        case Lane::unnamed:
          add(cursor_ns_, until_ns, IdleCause::unknown, kNoRow);
          break;
        case Lane::communication:
          explain_comm({cursor_ns_, until_ns}, ops_[lane], next);
          break;
        case Lane::host_copy:
        case Lane::count:
          add(cursor_ns_, until_ns,
              is_offload(trace_.ops[ops_[lane]], offloading_) ? IdleCause::offload
                                                              : IdleCause::host_copy,
              ops_[lane]);
          break;
      }
      cursor_ns_ = until_ns;
    }
  }

  void explain_idle(const Interval& gap, uint32_t next) {
    const HostCall* call = next == kNoRow ? nullptr : trace_.launch_of(trace_.ops[next]);
    if (call == nullptr) return add(gap.start_ns, gap.end_ns, IdleCause::unknown, next);
    // What begins as soon after its launch as a device can waited for the launch alone.
    const bool is_launch =
        gap.length_ns() > kLeastLaunchGapNs && gap.end_ns - call->end_ns <= start_limit_ns_;
    const int64_t enqueued_ns =
        is_launch ? gap.end_ns : std::clamp(call->end_ns, gap.start_ns, gap.end_ns);
    add(gap.start_ns, enqueued_ns, IdleCause::host, next);
    const int64_t started_ns = std::max(enqueued_ns, gap.end_ns - kDeviceLatencyNs);
    add(enqueued_ns, started_ns, IdleCause::unknown, next);
    add(started_ns, gap.end_ns, IdleCause::latency, next);
  }

  void explain_comm(const Interval& time, uint32_t comm, uint32_t next) {
    int64_t host_until_ns = time.start_ns;
    const bool goes_on = ends_[static_cast<size_t>(Lane::communication)] > time.end_ns;
    const HostCall* call = next == kNoRow ? nullptr : trace_.launch_of(trace_.ops[next]);
    if (goes_on && call != nullptr &&
        lane_of(trace_, trace_.ops[next], wide_) < Lane::communication &&
        !has_comm_ended_before(time.end_ns)) {
      host_until_ns = std::clamp(call->end_ns, time.start_ns, time.end_ns);
    }
    add(time.start_ns, host_until_ns, IdleCause::host, next);
    add(host_until_ns, time.end_ns, IdleCause::communication, comm);
  }

  /// Whether a collective ended shortly before: what starts now may have waited for that one.
  bool has_comm_ended_before(int64_t moment_ns) {
    while (!running_comm_.empty() && running_comm_.top() <= moment_ns) {
      last_comm_end_ns_ = running_comm_.top();
      running_comm_.pop();
    }
    return last_comm_end_ns_ >= moment_ns - kDeviceLatencyNs;
  }

  const ImportedTrace& trace_;
  const TraceWindow& window_;
  const WorkClasses& wide_;
  Offloading offloading_;
  int64_t start_limit_ns_;
  int64_t cursor_ns_;
  std::array<int64_t, kNumLanes> ends_;
  std::array<uint32_t, kNumLanes> ops_;  // that ends last
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> running_comm_;  // ends
  int64_t last_comm_end_ns_ = std::numeric_limits<int64_t>::min() / 2;
  CauseSegments segments_;
};

/// Names of ranges in which programs load data, in small letters.
constexpr std::string_view kLoaderWords[] = {"dataloader", "data_loader", "get_batch",
                                             "next_batch", "load_batch",  "data loading"};

bool is_loader(std::string_view name) {
  std::string small(name);
  std::ranges::transform(small, small.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  });
  return std::ranges::any_of(
      kLoaderWords, [&](std::string_view word) { return small.find(word) != std::string::npos; });
}

}  // namespace

CauseSegments explain_window(const ImportedTrace& trace, const TraceWindow& window,
                             const WorkClasses& wide) {
  return CauseSweep(trace, window, wide).run();
}

CauseSegments explain_steps(const ImportedTrace& trace, TraceWindow& window,
                            const WorkClasses& wide) {
  if (window.kind != WindowKind::step_by_launch) return explain_window(trace, window, wide);
  Interval host = {trace.steps.front().start_ns, trace.steps.front().end_ns};
  for (const ImportedStep& step : trace.steps) host.end_ns = std::max(host.end_ns, step.end_ns);
  return explain_steps(trace, host, window, wide);
}

CauseSegments explain_steps(const ImportedTrace& trace, const Interval& host, TraceWindow& window,
                            const WorkClasses& wide) {
  int64_t start_ns = host.start_ns;
  for (const ImportedOp& op : trace.ops) {
    if (op.start_ns >= window.time.start_ns) break;
    start_ns = std::max(start_ns, op.end_ns);
  }
  window.time.start_ns = std::min(window.time.start_ns, start_ns);
  CauseSegments segments = explain_window(trace, window, wide);
  if (host.end_ns > window.time.end_ns) {
    // Of the thread that launched what was launched last.
    const uint32_t last = *std::ranges::max_element(window.ops, {}, [&](uint32_t row) {
      const uint32_t call = trace.ops[row].call;
      return call == kNoRow ? int64_t{-1} : int64_t{call};
    });
    segments.add({window.time.end_ns, host.end_ns, IdleCause::host, last});
    window.time.end_ns = host.end_ns;
  }
  return segments;
}

CauseSums causes_in(const CauseSegments& segments, const Interval& time) {
  CauseSums sums = {};
  for (size_t at = segments.first_after(time.start_ns); at < segments.size(); ++at) {
    const CauseSegment segment = segments[at];
    if (segment.start_ns >= time.end_ns) break;
    sums[static_cast<size_t>(segment.cause)] +=
        overlap_ns({segment.start_ns, segment.end_ns}, time);
  }
  return sums;
}

IntervalSet loading_of(const ImportedTrace& trace) {
  std::vector<Interval> loading;
  for (const HostRange& range : trace.ranges) {
    if (is_loader(trace.names[range.name])) loading.push_back({range.start_ns, range.end_ns});
  }
  return IntervalSet(std::move(loading));
}

IntervalSet program_of(const ImportedTrace& trace) {
  std::vector<bool> is_launching(trace.threads.size());
  for (const ImportedOp& op : trace.ops) {
    if (const HostCall* call = trace.launch_of(op)) is_launching[call->thread] = true;
  }
  std::vector<Interval> seen;
  for (const HostCall& call : trace.calls) {
    // Shorter ones are many, and make no half of a stall.
    if (call.end_ns - call.start_ns < kStallNs / 10 || !is_launching[call.thread]) continue;
    seen.push_back({call.start_ns, call.end_ns});
  }
  std::set<std::pair<int64_t, int64_t>> steps;  // a range around all of a step says nothing
  for (const ImportedStep& step : trace.steps) steps.emplace(step.start_ns, step.end_ns);
  for (const HostRange& range : trace.ranges) {
    if (!is_launching[range.thread] || is_loader(trace.names[range.name]) ||
        steps.contains({range.start_ns, range.end_ns})) {
      continue;
    }
    seen.push_back({range.start_ns, range.end_ns});
  }
  return IntervalSet(std::move(seen));
}

bool is_in_program(const IntervalSet& program, const Interval& gap) {
  return 2 * covered_ns(program, gap) > gap.length_ns();
}

bool is_value(const ImportedOp& op) {
  constexpr int64_t kLeastTensorBytes = 64 * 1024;
  return op.kind == ActivityKind::copy && op.bytes > 0 && op.bytes < kLeastTensorBytes;
}

Offloading offloading_of(const ImportedTrace& trace) {
  double to_host_ns = 0;
  double to_device_ns = 0;
  std::vector<int64_t> starts_ns;
  for (const ImportedStep& step : trace.steps) starts_ns.push_back(step.start_ns);
  std::ranges::sort(starts_ns);
  std::vector<bool> sends(starts_ns.size());  // by step
  for (const ImportedOp& op : trace.ops) {
    if (op.kind != ActivityKind::copy || is_value(op)) continue;
    const auto ns = static_cast<double>(op.duration_ns());
    if (op.path == CopyPath::to_device) to_device_ns += ns;
    if (op.path != CopyPath::to_host) continue;
    to_host_ns += ns;
    const HostCall* call = trace.launch_of(op);
    const auto behind =
        std::ranges::upper_bound(starts_ns, call == nullptr ? op.start_ns : call->start_ns);
    if (behind != starts_ns.begin())
      sends[static_cast<size_t>(behind - starts_ns.begin()) - 1] = true;
  }
  return {5 * std::min(to_host_ns, to_device_ns) > to_host_ns + to_device_ns,
          sends.empty() || 2 * std::ranges::count(sends, true) > std::ssize(sends)};
}

bool is_offload(const ImportedOp& op, const Offloading& offloading) {
  if (op.kind != ActivityKind::copy) return false;
  if (op.path == CopyPath::to_device) return offloading.is_both_ways;
  if (op.path != CopyPath::to_host) return false;
  return offloading.is_both_ways || (offloading.is_steady && !is_value(op));
}

std::array<HostPart, 6> parts_of(const HostTime& host) {
  return {{
      {"sync", host.sync_ns, "went to calls that wait for the device"},
      {"allocator", host.allocation_ns, "went to calls that allocate or free memory"},
      {"copy", host.copy_ns, "went to copies that the host waits for"},
      {"loader", host.loader_ns, "went to loading data"},
      {"stall", host.stall_ns, "went to long stalls, of which the traces do not say the cause"},
      {"launch", host.launch_ns + host.between_ns,
       "went to launching and to the program between launches"},
  }};
}

LoaderParts loader_parts_of(const HostTime& host, double input_ns) {
  const double all_ns = host.loader_ns + host.stall_ns + input_ns;
  if (all_ns <= 0) return {};
  return {host.loader_ns / all_ns, input_ns / all_ns, host.stall_ns / all_ns};
}

void split_host_share(const HostTime& host, double input_ns, double share,
                      std::array<double, kNumSubCauses>& ratios) {
  const double all_ns = host.total_ns() + input_ns;
  if (all_ns <= 0) return;
  const auto set = [&](SubCause cause, double ns) {
    ratios[static_cast<size_t>(cause)] = share * ns / all_ns;
  };
  set(SubCause::launch, host.launch_ns + host.between_ns);
  set(SubCause::sync, host.sync_ns + host.copy_ns);
  set(SubCause::allocator, host.allocation_ns);
  set(SubCause::loader, host.loader_ns + host.stall_ns + input_ns);
}

HostTime explain_host(const ImportedTrace& trace, const CauseSegments& segments) {
  const auto is_late = [](const CauseSegment& segment) { return segment.cause == IdleCause::host; };
  if (std::ranges::none_of(segments, is_late)) return {};
  // Calls of each thread by start; those of a thread do not overlap.
  std::vector<std::vector<uint32_t>> by_thread(trace.threads.size());
  for (size_t row = 0; row < trace.calls.size(); ++row) {
    by_thread[trace.calls[row].thread].push_back(static_cast<uint32_t>(row));
  }
  const IntervalSet loader = loading_of(trace);
  const IntervalSet program = program_of(trace);
  HostTime host;
  for (const CauseSegment& segment : segments) {
    if (!is_late(segment)) continue;
    const Interval time = {segment.start_ns, segment.end_ns};
    const HostCall& launch = *trace.launch_of(trace.ops[segment.op]);
    const std::vector<uint32_t>& calls = by_thread[launch.thread];
    auto at = std::ranges::lower_bound(calls, time.start_ns, {},
                                       [&](uint32_t row) { return trace.calls[row].start_ns; });
    if (at != calls.begin()) --at;  // it may still run
    double in_calls_ns = 0;
    for (; at != calls.end() && trace.calls[*at].start_ns < time.end_ns; ++at) {
      const HostCall& call = trace.calls[*at];
      const int64_t ns = overlap_ns(time, {call.start_ns, call.end_ns});
      in_calls_ns += static_cast<double>(ns);
      switch (call.kind) {
        case CallKind::sync:
          host.sync_ns += static_cast<double>(ns);
          break;
        case CallKind::allocation:
          host.allocation_ns += static_cast<double>(ns);
          break;
        case CallKind::blocking_copy:
          host.copy_ns += static_cast<double>(ns);
          break;
        default:
          host.launch_ns += static_cast<double>(ns);
      }
    }
    const double rest_ns = std::max(0.0, static_cast<double>(time.length_ns()) - in_calls_ns);
    const double loading_ns = std::min(rest_ns, static_cast<double>(covered_ns(loader, time)));
    host.loader_ns += loading_ns;
    const bool is_stall =
        rest_ns - loading_ns > static_cast<double>(kStallNs) && !is_in_program(program, time);
    (is_stall ? host.stall_ns : host.between_ns) += rest_ns - loading_ns;
  }
  return host;
}

}  // namespace moetune::profiler
