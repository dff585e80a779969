#include "profiler/analysis/trace_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "profiler/analysis/launch_order.h"

namespace moetune::profiler {
namespace {

constexpr size_t kBlockOps = 1024;
constexpr size_t kNumWorkClasses = static_cast<size_t>(WorkClass::count);

constexpr BudgetKey kBudgetKeys[] = {
    {"window_us", &WindowBudget::window_ns, true},
    {"busy_us", &WindowBudget::busy_ns, true},
    {"idle_us", &WindowBudget::idle_ns, true},
    {"compute_busy_us", &WindowBudget::compute_busy_ns, true},
    {"comm_busy_us", &WindowBudget::comm_busy_ns, true},
    {"exposed_comm_us", &WindowBudget::exposed_comm_ns, true},
    {"exposed_comm_vs_compute_us", &WindowBudget::exposed_comm_vs_compute_ns, true},
    {"copy_busy_us", &WindowBudget::copy_busy_ns, true},
    {"fill_busy_us", &WindowBudget::fill_busy_ns, true},
    {"dispatcher_busy_us", &WindowBudget::dispatcher_busy_ns, true},
    {"exposed_copy_us", &WindowBudget::exposed_copy_ns, true},
    {"num_kernels", &WindowBudget::num_kernels, false},
    {"num_comm", &WindowBudget::num_comm, false},
    {"num_copies", &WindowBudget::num_copies, false},
    {"num_fills", &WindowBudget::num_fills, false},
};

constexpr unsigned bit_of(WorkClass work) { return 1U << static_cast<unsigned>(work); }

/// Goes through a window's ops by start and knows at every moment which classes run.
class ClassSweep {
 public:
  explicit ClassSweep(const Interval& window) : cursor_ns_(window.start_ns) {
    ends_.fill(std::numeric_limits<int64_t>::min());
  }

  /// Goes on to a moment. The time up to it without any work ends there: [idle_since(), moment).
  void advance(int64_t moment_ns) {
    idle_since_ns_ = moment_ns;
    while (cursor_ns_ < moment_ns) {
      unsigned running = 0;
      int64_t next_ns = moment_ns;
      for (size_t work = 0; work < kNumWorkClasses; ++work) {
        if (ends_[work] <= cursor_ns_) continue;
        running |= 1U << work;
        next_ns = std::min(next_ns, ends_[work]);
      }
      if (running == 0) idle_since_ns_ = cursor_ns_;
      ns_of_[running] += next_ns - cursor_ns_;
      cursor_ns_ = next_ns;
    }
  }
  void run(WorkClass work, int64_t end_ns) {
    int64_t& end = ends_[static_cast<size_t>(work)];
    end = std::max(end, end_ns);
  }
  [[nodiscard]] int64_t idle_since() const { return idle_since_ns_; }

  /// Time in which one of `any_of` ran and none of `none_of`.
  [[nodiscard]] int64_t ns(unsigned any_of, unsigned none_of = 0) const {
    int64_t sum = 0;
    for (unsigned running = 0; running < ns_of_.size(); ++running) {
      if ((running & any_of) != 0 && (running & none_of) == 0) sum += ns_of_[running];
    }
    return sum;
  }

 private:
  int64_t cursor_ns_;
  int64_t idle_since_ns_ = 0;
  std::array<int64_t, kNumWorkClasses> ends_;
  std::array<int64_t, size_t{1} << kNumWorkClasses> ns_of_ = {};  // by what ran
};

/// When the work that ends a gap had been enqueued: of all that starts at the same moment as the
/// window's op at `place`, the latest. Nothing where no call is known.
std::optional<int64_t> enqueued_ns(const ImportedTrace& trace, const std::vector<uint32_t>& ops,
                                   size_t place) {
  std::optional<int64_t> latest;
  const int64_t start_ns = trace.ops[ops[place]].start_ns;
  for (; place < ops.size() && trace.ops[ops[place]].start_ns == start_ns; ++place) {
    const ImportedOp& op = trace.ops[ops[place]];
    const HostCall* call = trace.launch_of(op);
    if (op.end_ns > start_ns && call != nullptr && (!latest || call->end_ns > *latest)) {
      latest = call->end_ns;
    }
  }
  return latest;
}

void add_gap(IdleSplit& idle, const Interval& gap, std::optional<int64_t> enqueued) {
  if (gap.length_ns() == 0) return;
  ++idle.num_gaps;
  if (!enqueued) {
    idle.unknown_ns += gap.length_ns();
    return;
  }
  const int64_t late_ns = std::clamp<int64_t>(*enqueued - gap.start_ns, 0, gap.length_ns());
  idle.before_launch_ns += late_ns;
  idle.after_launch_ns += gap.length_ns() - late_ns;
}

WindowBudget measure_classes(const ImportedTrace& trace, const TraceWindow& window,
                             const WorkClasses& classes, IdleSplit* idle) {
  WindowBudget budget;
  ClassSweep sweep(window.time);
  for (size_t place = 0; place < window.ops.size(); ++place) {
    const ImportedOp& op = trace.ops[window.ops[place]];
    const WorkClass work = classes.of(op);
    budget.num_kernels += op.kind == ActivityKind::kernel || op.kind == ActivityKind::graph;
    budget.num_comm += work == WorkClass::communication;
    budget.num_copies += work == WorkClass::copy;
    budget.num_fills += work == WorkClass::fill;
    const int64_t start_ns = std::max(op.start_ns, window.time.start_ns);
    const int64_t end_ns = std::min(op.end_ns, window.time.end_ns);
    if (end_ns <= start_ns) continue;
    sweep.advance(start_ns);
    if (idle != nullptr && sweep.idle_since() < start_ns) {
      add_gap(*idle, {sweep.idle_since(), start_ns}, enqueued_ns(trace, window.ops, place));
    }
    sweep.run(work, end_ns);
  }
  sweep.advance(window.time.end_ns);
  if (idle != nullptr) add_gap(*idle, {sweep.idle_since(), window.time.end_ns}, std::nullopt);

  constexpr unsigned kCompute = bit_of(WorkClass::compute);
  constexpr unsigned kComm = bit_of(WorkClass::communication);
  constexpr unsigned kDispatcher = bit_of(WorkClass::dispatcher);
  constexpr unsigned kCopy = bit_of(WorkClass::copy);
  constexpr unsigned kFill = bit_of(WorkClass::fill);
  constexpr unsigned kAll = kCompute | kComm | kDispatcher | kCopy | kFill;
  budget.window_ns = window.time.end_ns - window.time.start_ns;
  budget.busy_ns = sweep.ns(kAll);
  budget.idle_ns = budget.window_ns - budget.busy_ns;
  budget.compute_busy_ns = sweep.ns(kCompute);
  budget.comm_busy_ns = sweep.ns(kComm);
  budget.exposed_comm_ns = sweep.ns(kComm, kAll & ~kComm);
  budget.exposed_comm_vs_compute_ns = sweep.ns(kComm, kCompute);
  budget.copy_busy_ns = sweep.ns(kCopy);
  budget.fill_busy_ns = sweep.ns(kFill);
  budget.dispatcher_busy_ns = sweep.ns(kDispatcher);
  budget.exposed_copy_ns = sweep.ns(kCopy | kFill, kCompute | kComm | kDispatcher);
  return budget;
}

}  // namespace

size_t first_from(const ImportedTrace& trace, int64_t moment_ns) {
  size_t low = 0;
  size_t high = trace.ops.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (trace.ops[middle].start_ns < moment_ns) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

std::span<const BudgetKey> budget_keys() { return kBudgetKeys; }

std::optional<double> WindowBudget::overlap_pct() const {
  if (comm_busy_ns == 0) return std::nullopt;
  return 100.0 * static_cast<double>(comm_busy_ns - exposed_comm_vs_compute_ns) /
         static_cast<double>(comm_busy_ns);
}

TraceWindows::TraceWindows(const ImportedTrace& trace, DeviceOps ops)
    : trace_(trace),
      has_copies_(ops == DeviceOps::all || trace.facts.format != "rocprofiler-sdk"),
      nccl_(trace.names, RuleSet::nccl),
      // Of our own steps no other tool has figures, and their communication has no kernels' names.
      wide_(ops == DeviceOps::all || trace.facts.format == "moetune"
                ? WorkClasses(trace)
                : WorkClasses(trace.names, RuleSet::wide)) {
  const size_t num_ops = trace.ops.size();
  latest_end_block_.assign((num_ops + kBlockOps - 1) / kBlockOps,
                           std::numeric_limits<int64_t>::min());
  for (size_t row = 0; row < num_ops; ++row) {
    const ImportedOp& op = trace.ops[row];
    int64_t& latest = latest_end_block_[row / kBlockOps];
    latest = std::max(latest, op.end_ns);
    num_counted_ += is_counted(op) ? 1 : 0;
  }
  // Calls are sorted by start.
  by_launch_ = ops_by_call(trace, [&](const ImportedOp& op) { return is_counted(op); });
  if (ops == DeviceOps::all) infer_launches();
}

void TraceWindows::infer_launches() {
  std::optional<int64_t> launch_ns;  // of the work before
  for (uint32_t row = 0; row < trace_.ops.size(); ++row) {
    const ImportedOp& op = trace_.ops[row];
    if (const HostCall* call = trace_.launch_of(op)) {
      launch_ns = call->start_ns;
    } else if (launch_ns && is_counted(op)) {
      inferred_launches_.emplace_back(row, *launch_ns);
      by_launch_.push_back(row);
    }
  }
  if (inferred_launches_.empty()) return;
  std::ranges::stable_sort(by_launch_, {}, [&](uint32_t row) { return launch_ns_of(row); });
}

int64_t TraceWindows::launch_ns_of(uint32_t row) const {
  if (const HostCall* call = trace_.launch_of(trace_.ops[row])) return call->start_ns;
  return std::ranges::lower_bound(inferred_launches_, row, {}, &std::pair<uint32_t, int64_t>::first)
      ->second;
}

std::vector<uint32_t> TraceWindows::running_in(const Interval& time) const {
  std::vector<uint32_t> rows;
  const size_t end = first_from(trace_, time.end_ns);
  for (size_t row = 0; row < end; ++row) {
    if (row % kBlockOps == 0 && latest_end_block_[row / kBlockOps] <= time.start_ns) {
      row += kBlockOps - 1;
    } else if (trace_.ops[row].end_ns > time.start_ns && is_counted(trace_.ops[row])) {
      rows.push_back(static_cast<uint32_t>(row));
    }
  }
  return rows;
}

std::vector<uint32_t> TraceWindows::launched_in(const Interval& time) const {
  const auto start_of = [&](uint32_t row) { return launch_ns_of(row); };
  const auto first = std::ranges::lower_bound(by_launch_, time.start_ns, {}, start_of);
  const auto last = std::ranges::lower_bound(by_launch_, time.end_ns, {}, start_of);
  std::vector<uint32_t> rows;
  if (first < last) rows.assign(first, last);
  if (!std::ranges::is_sorted(rows)) std::ranges::sort(rows);
  return rows;
}

void TraceWindows::set_extent(TraceWindow& window) const {
  window.time = {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  for (const uint32_t row : window.ops) {
    window.time.start_ns = std::min(window.time.start_ns, trace_.ops[row].start_ns);
    window.time.end_ns = std::max(window.time.end_ns, trace_.ops[row].end_ns);
  }
}

std::optional<TraceWindow> TraceWindows::make(WindowKind kind, const ImportedStep* step) const {
  if (num_counted_ == 0) return std::nullopt;
  TraceWindow window;
  window.kind = kind;
  switch (kind) {
    case WindowKind::whole:
      window.name = "whole";
      window.ops.reserve(num_counted_);
      for (size_t row = 0; row < trace_.ops.size(); ++row) {
        if (is_counted(trace_.ops[row])) window.ops.push_back(static_cast<uint32_t>(row));
      }
      break;
    case WindowKind::launched:
      if (by_launch_.empty() || by_launch_.size() == num_counted_) return std::nullopt;
      window.name = "launched in the trace";
      window.ops = by_launch_;
      std::ranges::sort(window.ops);
      break;
    case WindowKind::step_by_host:
      window.name = fmt::format("step {} by host time", step->number);
      window.ops = running_in({step->start_ns, step->end_ns});
      break;
    case WindowKind::step_by_launch:
      window.name = fmt::format("step {} by launch", step->number);
      window.ops = launched_in({step->start_ns, step->end_ns});
      if (window.ops.empty()) return std::nullopt;
      break;
  }
  if (step != nullptr) window.step = step->number;
  if (kind == WindowKind::step_by_host) {
    window.time = {step->start_ns, step->end_ns};
  } else {
    set_extent(window);
  }
  return window;
}

WindowFigures TraceWindows::measure(const TraceWindow& window) const {
  WindowFigures figures;
  figures.nccl = measure_classes(trace_, window, nccl_, nullptr);
  figures.wide = measure_classes(trace_, window, wide_, &figures.idle);
  return figures;
}

WindowBudget TraceWindows::measure_wide(const TraceWindow& window) const {
  return measure_classes(trace_, window, wide_, nullptr);
}

std::optional<TraceWindow> judged_window(const ImportedTrace& trace, const TraceWindows& windows) {
  if (!trace.steps.empty()) {
    ImportedStep all = trace.steps.front();
    for (const ImportedStep& step : trace.steps) all.end_ns = std::max(all.end_ns, step.end_ns);
    if (auto window = windows.make(WindowKind::step_by_launch, &all)) return window;
  }
  if (auto window = windows.make(WindowKind::launched)) return window;
  return windows.make(WindowKind::whole);
}

}  // namespace moetune::profiler
