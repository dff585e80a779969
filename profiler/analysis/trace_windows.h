// Where the device's time went in a window of an imported trace, by what ran. Other tools print
// these figures, too, so they can be compared. imported_wall.h judges what they mean for a step.
//
// Windows:
//  - the whole trace;
//  - the work whose launch call is in the trace, if that is not all work;
//  - each step as the host saw it, with all work clipped to it;
//  - each step by launch: the work that was launched in the step, from its first start to its last
//    end. A device may lag behind the host by more than a step, so only these windows show what a
//    step costs. Windows of neighbours may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
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
  int64_t exposed_comm_ns = 0;             ///< part of U(comm) not covered by any other class
  int64_t exposed_comm_vs_compute_ns = 0;  ///< part of U(comm) not covered by compute
  int64_t copy_busy_ns = 0;
  int64_t fill_busy_ns = 0;
  int64_t dispatcher_busy_ns = 0;
  /// Part of U(copies and fills) not covered by compute, dispatcher or communication.
  int64_t exposed_copy_ns = 0;
  int64_t num_kernels = 0;
  int64_t num_comm = 0;
  int64_t num_copies = 0;
  int64_t num_fills = 0;

  /// 100 (comm - exposed_comm_vs_compute) / comm; empty without communication.
  [[nodiscard]] std::optional<double> overlap_pct() const;
};

/// A figure of WindowBudget and the name under which it is printed. Times are printed in
/// microseconds.
struct BudgetKey {
  const char* name;
  int64_t WindowBudget::*value;
  bool is_time;
};
std::span<const BudgetKey> budget_keys();

/// Splits the gaps, that is the maximal intervals without device work, by the launch of the op that
/// ends each gap. If several ops start then, the one launched last counts.
struct IdleSplit {
  int64_t before_launch_ns = 0;  ///< before the launch call returned: the host was late
  int64_t after_launch_ns = 0;   ///< the rest: latency of the device, or a wait
  int64_t unknown_ns = 0;        ///< the launch is not in the trace, or no op follows
  int64_t num_gaps = 0;
};

/// First row of the trace's operations that starts at `moment_ns` or later.
size_t first_from(const ImportedTrace& trace, int64_t moment_ns);

enum class WindowKind : uint8_t { whole, launched, step_by_host, step_by_launch };

struct TraceWindow {
  std::string name;  ///< "step 5 by launch"
  WindowKind kind = WindowKind::whole;
  int64_t step = 0;  ///< number of the step; only for windows of steps
  Interval time;
  std::vector<uint32_t> ops;  ///< rows of ImportedTrace::ops that are counted, ascending
};

struct WindowFigures {
  WindowBudget nccl;  ///< by RuleSet::nccl
  WindowBudget wide;  ///< by RuleSet::wide
  IdleSplit idle;
};

enum class DeviceOps : uint8_t {
  /// As other tools count them, for figures that can be compared: without rocprofiler-sdk's copies,
  /// which run on no queue of the file.
  compared,
  /// For verdicts. What the file describes as communication is, whatever its name. Work whose
  /// launch
  /// is lost was launched with the work before it: else the device would count as idle meanwhile.
  all,
};

/// Finds and measures windows; computes what they share once. Refers to the trace.
class TraceWindows {
 public:
  explicit TraceWindows(const ImportedTrace& trace, DeviceOps ops = DeviceOps::compared);

  /// Calls visit(window) for each window, in the order above and steps in their order. The window
  /// is valid during the call only. A trace without device work has no windows.
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
  /// The window of that kind; empty if there is none. The kinds of steps need `step`.
  [[nodiscard]] std::optional<TraceWindow> make(WindowKind kind,
                                                const ImportedStep* step = nullptr) const;
  [[nodiscard]] WindowFigures measure(const TraceWindow& window) const;
  /// Of these figures only `wide`, which is half of the work.
  [[nodiscard]] WindowBudget measure_wide(const TraceWindow& window) const;

  [[nodiscard]] const WorkClasses& wide() const { return wide_; }

 private:
  [[nodiscard]] bool is_counted(const ImportedOp& op) const {
    return has_copies_ || op.kind != ActivityKind::copy;
  }
  void infer_launches();
  /// When the row's call began, or is taken to have begun.
  [[nodiscard]] int64_t launch_ns_of(uint32_t row) const;
  [[nodiscard]] std::vector<uint32_t> running_in(const Interval& time) const;
  [[nodiscard]] std::vector<uint32_t> launched_in(const Interval& time) const;
  void set_extent(TraceWindow& window) const;

  const ImportedTrace& trace_;
  bool has_copies_;
  size_t num_counted_ = 0;
  WorkClasses nccl_;
  WorkClasses wide_;
  std::vector<uint32_t> by_launch_;  // launched ops, by the start of their call
  std::vector<std::pair<uint32_t, int64_t>> inferred_launches_;  // of ops without a call, by row
  std::vector<int64_t> latest_end_block_;                        // of each block of ops
};

/// The window that verdicts are about: the work that was launched in steps, from the first to the
/// last; without such work what was launched in the trace, or else all work.
std::optional<TraceWindow> judged_window(const ImportedTrace& trace, const TraceWindows& windows);

}  // namespace moetune::profiler
