#include "profiler/analysis/launch_order.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

namespace moetune::profiler {

std::vector<uint32_t> by_call(const ImportedTrace& trace, std::vector<uint32_t> rows) {
  const auto call_of = [&](uint32_t row) { return trace.ops[row].call; };
  if (std::ranges::is_sorted(rows, {}, call_of)) return rows;
  // Calls are numbered: where the rows of each begin follows from how many there are.
  std::vector<uint32_t> first(trace.calls.size() + 1);
  for (const uint32_t row : rows) ++first[call_of(row) + 1];
  for (size_t call = 1; call < first.size(); ++call) first[call] += first[call - 1];
  std::vector<uint32_t> sorted(rows.size());
  for (const uint32_t row : rows) sorted[first[call_of(row)]++] = row;
  return sorted;
}

std::vector<LaunchedWork> launched_work_of(const ImportedTrace& trace) {
  std::vector<LaunchedWork> all;
  base::reserve_large(all, trace.ops.size());
  int64_t launch_ns = std::numeric_limits<int64_t>::min();
  for (const ImportedOp& op : trace.ops) {
    if (const HostCall* call = trace.launch_of(op)) launch_ns = call->start_ns;
    all.push_back({launch_ns, op.end_ns});
  }
  if (!std::ranges::is_sorted(all, {}, &LaunchedWork::launch_ns)) {
    std::ranges::stable_sort(all, {}, &LaunchedWork::launch_ns);
  }
  for (size_t i = 1; i < all.size(); ++i) {
    all[i].latest_end_ns = std::max(all[i].latest_end_ns, all[i - 1].latest_end_ns);
  }
  return all;
}

int64_t start_limit_ns(std::vector<int64_t> delays_ns) {
  if (delays_ns.empty()) return 0;
  const auto quick = delays_ns.begin() + static_cast<std::ptrdiff_t>(delays_ns.size() / 20);
  std::ranges::nth_element(delays_ns, quick);
  return std::clamp<int64_t>(2 * *quick, 0, kDeviceLatencyNs);
}

int64_t start_limit_of(const ImportedTrace& trace) {
  std::vector<int64_t> delays_ns;
  base::reserve_large(delays_ns, trace.ops.size());
  for (const ImportedOp& op : trace.ops) {
    const HostCall* call = trace.launch_of(op);
    if (op.kind != ActivityKind::kernel || call == nullptr) continue;
    delays_ns.push_back(op.start_ns - call->start_ns);
  }
  return start_limit_ns(std::move(delays_ns));
}

std::vector<int64_t> idle_launches_of(const ImportedTrace& trace) {
  std::vector<int64_t> idle;
  for (uint32_t name = 0; name < trace.names.size(); ++name) {
    if (trace.names[name].find("StreamBeginCapture") != std::string::npos) return idle;
  }
  std::vector<bool> has_work(trace.calls.size());
  for (const ImportedOp& op : trace.ops) {
    if (op.call != kNoRow) has_work[op.call] = true;
  }
  bool is_recorded = false;  // the device, from the first launch on that has work
  size_t num_followed = 0;   // by one that has
  for (size_t row = 0; row < has_work.size(); ++row) {
    if (trace.calls[row].kind != CallKind::launch) continue;
    is_recorded = is_recorded || has_work[row];
    if (has_work[row]) {
      num_followed = idle.size();
    } else if (is_recorded) {
      idle.push_back(trace.calls[row].start_ns);
    }
  }
  idle.resize(num_followed);
  return idle;
}

}  // namespace moetune::profiler
