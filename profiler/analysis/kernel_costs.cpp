#include "profiler/analysis/kernel_costs.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "profiler/analysis/intervals.h"

namespace moetune::profiler {
namespace {

constexpr size_t kNumKernelClasses = static_cast<size_t>(KernelClass::count);
constexpr size_t kOtherKernels = static_cast<size_t>(KernelClass::other);

/// Nanoseconds by class.
using ClassTimes = std::array<double, kNumKernelClasses>;

/// The class of device work; none of copies to and from the host and to other devices.
class OpClasses {
 public:
  OpClasses(const ImportedTrace& trace, const WorkClasses& wide)
      : trace_(trace), wide_(wide), by_name_(trace.names.size()) {}

  [[nodiscard]] std::optional<KernelClass> of(const ImportedOp& op) {
    switch (op.kind) {
      case ActivityKind::copy:
        if (op.path == CopyPath::to_device || op.path == CopyPath::to_host ||
            wide_.of(op) == WorkClass::communication) {
          return std::nullopt;
        }
        return KernelClass::copy_kernel;
      case ActivityKind::fill:
        return KernelClass::fill_kernel;
      case ActivityKind::graph:
        return KernelClass::other;
      case ActivityKind::kernel:
        break;
    }
    std::optional<KernelClass>& kernel = by_name_[op.name];
    if (!kernel) {
      kernel = trace_.has_name(op) ? kernel_class_of(trace_.names[op.name]) : KernelClass::other;
    }
    // The file calls it communication, whatever its name.
    const bool is_comm = wide_.of(op) == WorkClass::communication;
    return is_comm && row_of(*kernel).work != WorkClass::communication ? KernelClass::nccl
                                                                       : *kernel;
  }

 private:
  const ImportedTrace& trace_;
  const WorkClasses& wide_;
  std::vector<std::optional<KernelClass>> by_name_;
};

/// The union of each class that does not communicate, over all streams.
ClassTimes running_times(const ImportedTrace& trace, const TraceWindow& window,
                         OpClasses& classes) {
  ClassTimes times = {};
  std::array<int64_t, kNumKernelClasses> ends = {};
  ends.fill(std::numeric_limits<int64_t>::min());
  for (const uint32_t row : window.ops) {
    const ImportedOp& op = trace.ops[row];
    const auto kernel = classes.of(op);
    if (!kernel || row_of(*kernel).work == WorkClass::communication) continue;
    const auto at = static_cast<size_t>(*kernel);
    const int64_t start_ns = std::max({op.start_ns, window.time.start_ns, ends[at]});
    const int64_t end_ns = std::min(op.end_ns, window.time.end_ns);
    if (end_ns <= start_ns) continue;
    times[at] += static_cast<double>(end_ns - start_ns);
    ends[at] = end_ns;
  }
  return times;
}

/// What the host's threads did for launches of the window's work.
ClassTimes launching_times(const ImportedTrace& trace, const TraceWindow& window,
                           OpClasses& classes) {
  std::vector<std::optional<KernelClass>> launched(trace.calls.size());  // by row of the call
  for (const uint32_t row : window.ops) {
    const ImportedOp& op = trace.ops[row];
    if (op.call == kNoRow) continue;
    const auto kernel = classes.of(op);
    if (!kernel) continue;
    std::optional<KernelClass>& own = launched[op.call];
    // A graph launches kernels of several classes.
    own = own && *own != *kernel ? KernelClass::other : *kernel;
  }
  ClassTimes times = {};
  constexpr int64_t kNever = std::numeric_limits<int64_t>::min();
  std::vector<int64_t> done_ns(trace.threads.size(), kNever);  // by thread
  int64_t launched_ns = kNever;  // by any thread: one at a time runs the program
  for (size_t row = 0; row < trace.calls.size(); ++row) {
    const HostCall& call = trace.calls[row];
    int64_t& own_done_ns = done_ns[call.thread];
    switch (call.kind) {
      case CallKind::event_record:
      case CallKind::stream_wait:
      case CallKind::query:
        continue;  // they are of the next launch's time
      case CallKind::other:
        if (!launched[row]) continue;
        break;
      case CallKind::sync:
      case CallKind::allocation:
      case CallKind::blocking_copy:
        own_done_ns = call.end_ns;
        continue;
      case CallKind::launch:
      case CallKind::graph_launch:
      case CallKind::copy:
        break;
    }
    if (launched[row]) {
      const int64_t last_ns = std::max(own_done_ns, launched_ns);
      const int64_t from_ns = last_ns == kNever ? call.start_ns : std::min(last_ns, call.end_ns);
      times[static_cast<size_t>(*launched[row])] += static_cast<double>(call.end_ns - from_ns);
      launched_ns = std::max(launched_ns, call.end_ns);
    }
    own_done_ns = call.end_ns;
  }
  return times;
}

void take_largest(const ClassTimes& times, int64_t window_ns, KernelCosts::Ratios& ratios) {
  for (size_t i = 0; i < times.size(); ++i) {
    ratios[i] = std::max(ratios[i], times[i] / static_cast<double>(window_ns));
  }
}

}  // namespace

void KernelCosts::add(const ImportedTrace& trace, const TraceWindow& window,
                      const WorkClasses& wide) {
  const int64_t window_ns = window.time.length_ns();
  if (window_ns <= 0) return;
  OpClasses classes(trace, wide);
  take_largest(running_times(trace, window, classes), window_ns, run);
  take_largest(launching_times(trace, window, classes), window_ns, launch);
}

double ceiling_of_classes(std::span<const KernelClass> classes, const KernelCosts::Ratios& ratios,
                          double whole) {
  const double all = std::accumulate(ratios.begin(), ratios.end(), 0.0);
  if (all <= 0) return whole;
  double own = ratios[kOtherKernels];
  for (const KernelClass one : classes) own += ratios[static_cast<size_t>(one)];
  return std::min(whole, std::max(own, whole * own / all));
}

}  // namespace moetune::profiler
