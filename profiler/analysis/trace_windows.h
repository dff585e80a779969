// Where the device's time went in a window of an imported trace, by what ran: the figures that
// other tools print, too, so that they can be compared. What they mean for a step, that is what
// would be gained, is the verdict's business (imported_wall.h).
//
// Windows: the whole trace; the same over the work whose launch call is in it, where that is not
// all; each step as the host saw it, with all work clipped to it; each step by launch: the work
// that was launched in it, from its first start to its last end. A device may lag behind the host
// by more than a step, so that only the last says what a step costs; windows of neighbours may
// overlap.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "profiler/analysis/intervals.h"
#include "profiler/analysis/kernel_classes.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// U(x) is the length of the union of the intervals of class x over all streams, clipped to the
/// window.
struct WindowBudget {
  int64_t window_ns = 0;
  int64_t busy_ns = 0;  ///< U(all device work)
  int64_t idle_ns = 0;  ///< window - busy
  int64_t compute_busy_ns = 0;
  int64_t comm_busy_ns = 0;
  int64_t exposed_comm_ns = 0;             ///< of U(comm), not covered by any other class
  int64_t exposed_comm_vs_compute_ns = 0;  ///< of U(comm), not covered by compute
  int64_t copy_busy_ns = 0;
  int64_t fill_busy_ns = 0;
  int64_t dispatcher_busy_ns = 0;
  /// Of U(copies and fills), not covered by compute, dispatcher or communication.
  int64_t exposed_copy_ns = 0;
  int64_t num_kernels = 0;
  int64_t num_comm = 0;
  int64_t num_copies = 0;
  int64_t num_fills = 0;

  /// 100 (comm - exposed_comm_vs_compute) / comm; nothing without communication.
  [[nodiscard]] std::optional<double> overlap_pct() const;
};

/// One row a figure of WindowBudget, by the name under which it is printed. Times are printed as
/// microseconds.
struct BudgetKey {
  const char* name;
  int64_t WindowBudget::*value;
  bool is_time;
};
std::span<const BudgetKey> budget_keys();

/// Every maximal interval without device work, by the op that ends it (of several that start then,
/// the one launched last).
struct IdleSplit {
  int64_t before_launch_ns = 0;  ///< before its launch call returned: the host was late
  int64_t after_launch_ns = 0;   ///< the rest: latency of the device, or a wait
  int64_t unknown_ns = 0;        ///< its launch is not in the trace, or no op follows
  int64_t num_gaps = 0;
};

enum class WindowKind : uint8_t { whole, launched, step_by_host, step_by_launch };

struct TraceWindow {
  std::string name;  ///< "step 5 by launch"
  WindowKind kind = WindowKind::whole;
  int64_t step = 0;  ///< number of the step, of windows of steps
  Interval time;
  std::vector<uint32_t> ops;  ///< rows of ImportedTrace::ops, ascending: those that are counted
};

struct WindowFigures {
  WindowBudget nccl;  ///< by rule set
  WindowBudget wide;
  IdleSplit idle;
};

enum class DeviceOps : uint8_t {
  /// As other tools count them, for figures that can be compared: rocprofiler-sdk's copies are not
  /// among them, which run on no queue that the file knows.
  compared,
  all,  ///< for verdicts
};

/// Finds and measures windows; what they share is made once. Refers to the trace.
class TraceWindows {
 public:
  explicit TraceWindows(const ImportedTrace& trace, DeviceOps ops = DeviceOps::compared);

  /// Each window in the order above, steps in their order. `visit` gets the window only for the
  /// call. None for a trace without device work.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (const WindowKind kind : {WindowKind::whole, WindowKind::launched}) {
      if (const auto window = make(kind)) visit(*window);
    }
    for (const ImportedStep& step : trace_.steps) {
      for (const WindowKind kind : {WindowKind::step_by_host, WindowKind::step_by_launch}) {
        if (const auto window = make(kind, &step)) visit(*window);
      }
    }
  }
  /// Nothing where there is none of that kind. `step` for the kinds of steps.
  [[nodiscard]] std::optional<TraceWindow> make(WindowKind kind,
                                                const ImportedStep* step = nullptr) const;
  [[nodiscard]] WindowFigures measure(const TraceWindow& window) const;

  [[nodiscard]] const WorkClasses& wide() const { return wide_; }

 private:
  [[nodiscard]] bool is_counted(const ImportedOp& op) const {
    return has_copies_ || op.kind != ActivityKind::copy;
  }
  [[nodiscard]] std::vector<uint32_t> running_in(const Interval& time) const;
  [[nodiscard]] std::vector<uint32_t> launched_in(const Interval& time) const;
  void set_extent(TraceWindow& window) const;

  const ImportedTrace& trace_;
  bool has_copies_;
  size_t num_counted_ = 0;
  WorkClasses nccl_;
  WorkClasses wide_;
  std::vector<uint32_t> by_launch_;        // launched ops, by the start of their call
  std::vector<int64_t> latest_end_block_;  // of each block of ops
};

}  // namespace moetune::profiler
