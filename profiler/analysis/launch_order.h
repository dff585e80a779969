// The device work of an imported trace in the order in which the host launched it. Traces have
// millions of operations and most are nearly in this order already, so nothing is sorted that
// need not be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/base/large_memory.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// A device starts enqueued work within this time, when nothing keeps it.
constexpr int64_t kDeviceLatencyNs = 20'000;
/// A call that launches returns within this time, when it waits for nothing.
constexpr int64_t kUsualLaunchNs = 5'000;

/// Rows of operations with a launch in the trace, by the row of their call, which is by its start.
/// Rows of one call stay as they are; `rows` ascend otherwise.
std::vector<uint32_t> by_call(const ImportedTrace& trace, std::vector<uint32_t> rows);

/// The same of all operations with a launch that `counts(op)` is true for.
template <typename Counts>
std::vector<uint32_t> ops_by_call(const ImportedTrace& trace, const Counts& counts) {
  std::vector<uint32_t> rows;
  base::reserve_large(rows, trace.ops.size());
  for (size_t row = 0; row < trace.ops.size(); ++row) {
    const ImportedOp& op = trace.ops[row];
    if (op.call != kNoRow && counts(op)) rows.push_back(static_cast<uint32_t>(row));
  }
  return by_call(trace, std::move(rows));
}

/// When all work had ended that was launched up to a moment.
struct LaunchedWork {
  int64_t launch_ns = 0;
  int64_t latest_end_ns = 0;  ///< of this work and all that was launched before
};

/// By launch. Work without one was launched with that before it, or before the trace began.
std::vector<LaunchedWork> launched_work_of(const ImportedTrace& trace);

/// A stream that was free for longer before its next work began did not merely change over to it.
constexpr int64_t kLeastLaunchGapNs = 1'500;
/// How soon after the end of its launch work begins where only the launch kept it: twice what the
/// quickest twentieth takes from the start of the launch on, kDeviceLatencyNs at most. `delays_ns`:
/// of all kernels, from there to their start; empty: 0.
int64_t start_limit_ns(std::vector<int64_t> delays_ns);
/// The same of a trace.
int64_t start_limit_of(const ImportedTrace& trace);

/// When launches of kernels began whose kernels are not in the trace, though earlier and later ones
/// are. Ascending. None where graphs are captured: what is launched meanwhile has no work.
std::vector<int64_t> idle_launches_of(const ImportedTrace& trace);

}  // namespace moetune::profiler
