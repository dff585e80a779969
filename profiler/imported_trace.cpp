// Calls by name, the join of device work to its calls, and the order that analyses rely on.
#include "profiler/imported_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/fnv.h"

namespace moetune::profiler {
namespace {

/// First row that fits. A name fits a row where it begins so; an exact one up to its end, or to the
/// "_v3020" that Nsight Systems puts there.
struct CallRow {
  std::string_view begin;
  CallKind kind;
  bool is_exact = false;
};

// Names of CUDA's runtime without "cuda"; HIP has the same behind "hip".
constexpr CallRow kRuntimeCalls[] = {
    {"GraphLaunch", CallKind::graph_launch},
    {"LaunchHostFunc", CallKind::other},
    {"Launch", CallKind::launch},
    {"ExtLaunch", CallKind::launch},
    {"ExtModuleLaunch", CallKind::launch},
    {"ModuleLaunch", CallKind::launch},
    {"HccModuleLaunch", CallKind::launch},
    {"DeviceSynchronize", CallKind::sync},
    {"StreamSynchronize", CallKind::sync},
    {"EventSynchronize", CallKind::sync},
    {"CtxSynchronize", CallKind::sync},
    {"EventRecord", CallKind::event_record},
    {"StreamWaitEvent", CallKind::stream_wait},
    {"EventQuery", CallKind::query},
    {"StreamQuery", CallKind::query},
    {"Memcpy", CallKind::blocking_copy, true},
    {"MemcpyWithStream", CallKind::blocking_copy},
    {"Memcpy", CallKind::copy},
    {"Memset", CallKind::copy},
    {"Malloc", CallKind::allocation},
    {"ExtMalloc", CallKind::allocation},
    {"Free", CallKind::allocation},
    {"HostAlloc", CallKind::allocation},
    {"HostMalloc", CallKind::allocation},
    {"HostFree", CallKind::allocation},
    {"HostRegister", CallKind::allocation},
    {"MemPool", CallKind::allocation},
};

// Names of CUDA's driver without "cu".
constexpr CallRow kDriverCalls[] = {
    {"GraphLaunch", CallKind::graph_launch},
    {"LaunchHostFunc", CallKind::other},
    {"Launch", CallKind::launch},
    {"CtxSynchronize", CallKind::sync},
    {"StreamSynchronize", CallKind::sync},
    {"EventSynchronize", CallKind::sync},
    {"EventRecord", CallKind::event_record},
    {"StreamWaitEvent", CallKind::stream_wait},
    {"EventQuery", CallKind::query},
    {"StreamQuery", CallKind::query},
    {"Memcpy", CallKind::copy},
    {"Memset", CallKind::copy},
    {"MemAlloc", CallKind::allocation},
    {"MemFree", CallKind::allocation},
    {"MemHost", CallKind::allocation},
    {"MemCreate", CallKind::allocation},
    {"MemRelease", CallKind::allocation},
    {"MemMap", CallKind::allocation},
    {"MemUnmap", CallKind::allocation},
};

template <typename Rows>
CallKind find_kind(const Rows& rows, std::string_view name) {
  for (const CallRow& row : rows) {
    if (!name.starts_with(row.begin)) continue;
    if (row.is_exact && name.size() > row.begin.size() &&
        !name.substr(row.begin.size()).starts_with("_v")) {
      continue;
    }
    return row.kind;
  }
  return CallKind::other;
}

uint64_t hash_of(std::initializer_list<uint64_t> values) {
  uint64_t hash = base::kFnvStart;
  for (const uint64_t value : values) hash = base::fnv_with(hash ^ (hash >> 29U), value);
  return hash ^ (hash >> 32U);
}

/// Sorts rows by start, stably, and returns where each came to stand. Moves them in place, so that
/// a large trace is never there twice.
template <typename Row>
std::vector<uint32_t> sort_by_start(Chunks<Row>& rows) {
  std::vector<uint32_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto is_before = [&](uint32_t a, uint32_t b) {
    return std::pair(rows[a].start_ns, a) < std::pair(rows[b].start_ns, b);
  };
  if (std::is_sorted(order.begin(), order.end(), is_before)) return order;
  std::sort(order.begin(), order.end(), is_before);
  std::vector<uint32_t> place(rows.size());
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = static_cast<uint32_t>(i);
  for (size_t first = 0; first < order.size(); ++first) {
    // Fills the hole at `first` with what belongs there, and so on around the cycle.
    if (order[first] == kNoRow) continue;
    const Row held = rows[first];
    size_t hole = first;
    while (order[hole] != first) {
      rows[hole] = rows[order[hole]];
      hole = std::exchange(order[hole], kNoRow);
    }
    rows[hole] = held;
    order[hole] = kNoRow;
  }
  return place;
}

/// Rows with a correlation id, by it and then in their own order.
template <typename Row, typename Wants>
std::vector<std::pair<uint32_t, uint32_t>> by_correlation(const Chunks<Row>& rows,
                                                          const Wants& wants) {
  std::vector<std::pair<uint32_t, uint32_t>> keys;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].correlation != 0 && wants(rows[i])) {
      keys.emplace_back(rows[i].correlation, static_cast<uint32_t>(i));
    }
  }
  if (!std::is_sorted(keys.begin(), keys.end())) std::sort(keys.begin(), keys.end());
  return keys;
}

/// Leaves out steps that begin while kMostOpenSteps others are still open. Each window of a step
/// costs its device work, so a file of nested steps would cost their square.
void limit_open_steps(ImportedTrace& trace) {
  constexpr size_t kMostOpenSteps = 16;
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> open_until;
  const size_t num_read = trace.steps.size();
  std::erase_if(trace.steps, [&](const ImportedStep& step) {
    while (!open_until.empty() && open_until.top() <= step.start_ns) open_until.pop();
    if (open_until.size() == kMostOpenSteps) return true;
    open_until.push(step.end_ns);
    return false;
  });
  if (trace.steps.size() == num_read) return;
  trace.facts.notes.push_back(fmt::format(
      "{} of {} steps are left out: each begins while {} others still run, as no training does",
      num_read - trace.steps.size(), num_read, kMostOpenSteps));
}

}  // namespace

CallKind call_kind_of(std::string_view name) {
  for (const std::string_view runtime : {"cuda", "hip"}) {
    if (name.starts_with(runtime)) return find_kind(kRuntimeCalls, name.substr(runtime.size()));
  }
  return name.starts_with("cu") ? find_kind(kDriverCalls, name.substr(2)) : CallKind::other;
}

uint64_t ImportedStream::hash() const {
  return hash_of({static_cast<uint64_t>(device), static_cast<uint64_t>(id)});
}
uint64_t ImportedThread::hash() const {
  return hash_of({static_cast<uint64_t>(process), static_cast<uint64_t>(id)});
}
uint64_t LaunchShape::hash() const {
  return hash_of({grid[0], grid[1], grid[2], block[0], block[1], block[2], graph, graph_node});
}

uint16_t ImportedTrace::stream_row(const ImportedStream& stream) {
  const uint32_t row = streams.row_of(stream);
  if (row > std::numeric_limits<uint16_t>::max()) {
    throw base::UsageError(
        fmt::format("{}: has more than 65535 device streams, which no trace has", facts.file));
  }
  return static_cast<uint16_t>(row);
}

uint16_t ImportedTrace::thread_row(const ImportedThread& thread) {
  const uint32_t row = threads.row_of(thread);
  if (row > std::numeric_limits<uint16_t>::max()) {
    throw base::UsageError(
        fmt::format("{}: has more than 65535 host threads, which no trace has", facts.file));
  }
  return static_cast<uint16_t>(row);
}

void ImportedTrace::finish() {
  if (std::max(ops.size(), calls.size()) >= kNoRow) {
    throw base::UsageError(fmt::format("{}: has more than four billion events", facts.file));
  }
  {
    const auto keys = by_correlation(ops, [](const ImportedOp& op) { return op.call == kNoRow; });
    const auto call_keys = by_correlation(calls, [](const HostCall&) { return true; });
    auto call = call_keys.begin();
    for (const auto& [correlation, row] : keys) {
      while (call != call_keys.end() && call->first < correlation) ++call;
      if (call == call_keys.end()) break;
      if (call->first == correlation) ops[row].call = call->second;
    }
  }
  const std::vector<uint32_t> place = sort_by_start(calls);
  for (ImportedOp& op : ops) {
    if (op.call != kNoRow) op.call = place[op.call];
  }
  const std::vector<uint32_t> op_place = sort_by_start(ops);
  for (KernelWork& work : works) work.op = op_place[work.op];
  std::ranges::sort(works, {}, &KernelWork::op);
  for (uint32_t& row : recomputed) row = op_place[row];
  std::ranges::sort(recomputed);
  std::stable_sort(steps.begin(), steps.end(), [](const ImportedStep& a, const ImportedStep& b) {
    return a.start_ns < b.start_ns;
  });
  limit_open_steps(*this);
}

}  // namespace moetune::profiler
