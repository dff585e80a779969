#include "profiler/analysis/judged_work.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/base/units.h"
#include "profiler/analysis/recording_advice.h"
#include "profiler/analysis/wall_label.h"

namespace moetune::profiler {
namespace {

/// Recorders bring the device's times to the host's clock with about this error.
constexpr int64_t kClockErrorNs = 10'000;
/// One operation of so many before its launch is still an accident.
constexpr int64_t kFewestTooEarly = 100;

}  // namespace

void JudgedWork::add(const ImportedTrace& trace, const TraceWindow& window,
                     const WorkClasses& wide) {
  longest_ns_ = std::max(longest_ns_, window.time.length_ns());
  num_ops_ += static_cast<int64_t>(window.ops.size());
  for (const uint32_t row : window.ops) {
    const ImportedOp& op = trace.ops[row];
    const HostCall* call = trace.launch_of(op);
    if (call != nullptr && op.start_ns < call->start_ns - kClockErrorNs) ++num_too_early_;
    const auto op_ns = static_cast<double>(op.duration_ns());
    const bool is_comm = wide.of(op) == WorkClass::communication;
    if (is_comm) comm_volume_ns_ += op_ns;
    if (op.kind == ActivityKind::copy || op.kind == ActivityKind::fill) continue;
    ++num_kernels_;
    kernel_ns_ += op_ns;
    if (!trace.has_name(op) && !is_comm) unnamed_ns_ += op_ns;
  }
}

bool JudgedWork::is_too_little() const {
  return num_ops_ < kMinJudgedOps || longest_ns_ < kMinJudgedNs;
}

std::optional<NoVerdict> JudgedWork::why_unjudged() const {
  if (is_too_little()) {
    return NoVerdict{
        "too little",
        fmt::format("unknown: {} device operations in {} are not enough to judge a run", num_ops_,
                    base::format_ns(longest_ns_))};
  }
  if (num_too_early_ > num_ops_ / kFewestTooEarly) {
    return NoVerdict{"clocks",
                     fmt::format("unknown: clocks differ: {} of {} operations precede their launch",
                                 num_too_early_, num_ops_)};
  }
  if (num_kernels_ == 0) {
    return NoVerdict{"no kernels", "unknown: the traces hold no kernel, only copies and fills"};
  }
  // Whether they compute or communicate is not known.
  if (unnamed_ns_ >= base::kLeastBindingRatio * kernel_ns_ && unnamed_ns_ > 0) {
    return NoVerdict{"unnamed",
                     fmt::format("unknown: {} of the kernels' time is of kernels without a name",
                                 base::format_ratio(unnamed_ns_ / kernel_ns_))};
  }
  return std::nullopt;
}

}  // namespace moetune::profiler
