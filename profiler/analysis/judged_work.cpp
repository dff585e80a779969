#include "profiler/analysis/judged_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/base/units.h"
#include "profiler/analysis/recording_advice.h"
#include "profiler/analysis/wall_label.h"

namespace moetune::profiler {
namespace {

/// Recorders bring the device's times to the host's clock with about this error.
constexpr int64_t kClockErrorNs = 10'000;
/// One operation of so many before its launch is still an accident.
constexpr int64_t kFewestTooEarly = 100;

bool is_device_kernel(const ImportedOp& op) {
  return op.kind != ActivityKind::copy && op.kind != ActivityKind::fill;
}

bool is_large_part(int64_t part, int64_t whole) {
  return part > 0 &&
         static_cast<double>(part) >= base::kLeastBindingRatio * static_cast<double>(whole);
}

/// Kernels that have their correlation id in common with others, at most as many as there are
/// launches that launched nothing: one launch of a graph, whether it was recorded or not, runs many
/// kernels.
int64_t num_with_shared_ids(const ImportedTrace& trace) {
  std::vector<uint32_t> num_launched(trace.calls.size());
  std::vector<uint32_t> without_call;  // their ids
  for (const ImportedOp& op : trace.ops) {
    if (!is_device_kernel(op)) continue;
    if (op.call != kNoRow) {
      ++num_launched[op.call];
    } else if (op.correlation != 0) {
      without_call.push_back(op.correlation);
    }
  }
  int64_t num_idle_launches = 0;
  int64_t num_shared = 0;
  for (size_t row = 0; row < num_launched.size(); ++row) {
    const CallKind kind = trace.calls[row].kind;
    if (kind == CallKind::launch && num_launched[row] == 0) ++num_idle_launches;
    if (kind != CallKind::graph_launch && num_launched[row] > 1) num_shared += num_launched[row];
  }
  if (num_idle_launches == 0) return 0;
  std::ranges::sort(without_call);
  for (size_t i = 0; i < without_call.size(); ++i) {
    const bool has_same_before = i > 0 && without_call[i - 1] == without_call[i];
    const bool has_same_behind =
        i + 1 < without_call.size() && without_call[i + 1] == without_call[i];
    num_shared += has_same_before || has_same_behind ? 1 : 0;
  }
  return std::min(num_shared, num_idle_launches);
}

}  // namespace

void JudgedWork::add(const ImportedTrace& trace, const TraceWindow& window,
                     const WorkClasses& wide) {
  longest_ns_ = std::max(longest_ns_, window.time.length_ns());
  num_ops_ += static_cast<int64_t>(window.ops.size());
  num_traced_kernels_ += std::ranges::count_if(trace.ops, is_device_kernel);
  num_mixed_up_ += num_with_shared_ids(trace);
  for (const uint32_t row : window.ops) {
    const ImportedOp& op = trace.ops[row];
    const HostCall* call = trace.launch_of(op);
    if (call != nullptr && op.start_ns < call->start_ns - kClockErrorNs) ++num_too_early_;
    if (call != nullptr) ++(is_device_kernel(op) ? num_launched_kernels_ : num_launched_copies_);
    const auto op_ns = static_cast<double>(op.duration_ns());
    const bool is_comm = wide.of(op) == WorkClass::communication;
    if (is_comm) comm_volume_ns_ += op_ns;
    if (!is_device_kernel(op)) continue;
    ++num_kernels_;
    if (op.duration_ns() <= 0) ++num_without_length_;
    kernel_ns_ += op_ns;
    if (!trace.has_name(op) && !is_comm) unnamed_ns_ += op_ns;
  }
}

bool JudgedWork::is_too_little() const {
  return num_ops_ < kMinJudgedOps || longest_ns_ < kMinJudgedNs;
}

bool JudgedWork::are_ids_shared() const {
  return is_large_part(num_mixed_up_, num_traced_kernels_);
}

bool JudgedWork::lacks_lengths() const { return is_large_part(num_without_length_, num_kernels_); }

std::optional<NoVerdict> JudgedWork::why_unjudged() const {
  if (are_ids_shared()) {
    return NoVerdict{
        "ids", fmt::format("unknown: correlation ids are not unique, so kernels and the calls that "
                           "launched them cannot be joined: {} of {} kernels are affected",
                           num_mixed_up_, num_traced_kernels_)};
  }
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
  if (num_launched_kernels_ == 0 && num_launched_copies_ > 0 && num_traced_kernels_ > 0) {
    return NoVerdict{"no kernels",
                     fmt::format("unknown: none of the {} kernels has its launch in the traces, "
                                 "only copies and fills have",
                                 num_traced_kernels_)};
  }
  if (num_kernels_ == 0) {
    return NoVerdict{"no kernels", "unknown: the traces hold no kernel, only copies and fills"};
  }
  if (lacks_lengths()) {
    return NoVerdict{"no durations",
                     fmt::format("unknown: {} of {} kernels ({}) have no positive duration",
                                 num_without_length_, num_kernels_,
                                 base::format_ratio(static_cast<double>(num_without_length_) /
                                                    static_cast<double>(num_kernels_)))};
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
