#include "profiler/import/recomputed_work.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <tuple>

namespace moetune::profiler {
namespace {

/// Gradients of torch.utils.checkpoint, DeepSpeed and Megatron-Core, and of Transformer Engine.
constexpr std::string_view kCheckpoints[] = {"CheckpointFunctionBackward",
                                             "_CheckpointFunctionBackward"};

bool is_host_copy(const ImportedOp& op) {
  return op.kind == ActivityKind::copy &&
         (op.path == CopyPath::to_device || op.path == CopyPath::to_host);
}

}  // namespace

/// The ranges of one thread around a moment, which only grows.
class RecomputedWork::Nesting {
 public:
  void add(const Row& row) { rows_.push_back(row); }

  /// To be called behind the last add().
  void sort() {
    // An outer range before those in it.
    std::ranges::stable_sort(rows_, [](const Row& a, const Row& b) {
      return std::tuple(a.start_ns, -a.end_ns, a.kind) < std::tuple(b.start_ns, -b.end_ns, b.kind);
    });
  }

  /// Whether what the thread does at a moment is forward within backward.
  bool is_forward_again(int64_t moment_ns) {
    for (; next_ < rows_.size() && rows_[next_].start_ns <= moment_ns; ++next_) {
      leave_ended(rows_[next_].start_ns);
      enter(rows_[next_]);
    }
    leave_ended(moment_ns);
    return !open_.empty() && open_.back().is_forward_again;
  }

  [[nodiscard]] bool has_second_derivatives() const { return has_second_derivatives_; }

 private:
  /// A range that has begun, with what those around it tell.
  struct Open {
    int64_t end_ns = 0;
    bool is_in_gradient = false;
    bool is_forward_again = false;
    uint32_t gradient = 0;  ///< name of the innermost one
  };

  void leave_ended(int64_t moment_ns) {
    while (!open_.empty() && open_.back().end_ns <= moment_ns) open_.pop_back();
  }

  void enter(const Row& row) {
    Open open = open_.empty() ? Open{} : open_.back();
    open.end_ns = row.end_ns;
    switch (row.kind) {
      case Kind::gradient:
      case Kind::checkpoint:
        open.is_in_gradient = true;
        open.is_forward_again = row.kind == Kind::checkpoint;
        open.gradient = row.name;
        break;
      case Kind::recorded:
        // The gradient's own function stands in it by the same name.
        if (open.is_in_gradient && row.name != open.gradient) open.is_forward_again = true;
        break;
      case Kind::recorded_gradient:
        if (open.is_in_gradient && row.name != open.gradient) has_second_derivatives_ = true;
        break;
    }
    open_.push_back(open);
  }

  std::vector<Row> rows_;
  std::vector<Open> open_;
  size_t next_ = 0;
  bool has_second_derivatives_ = false;
};

void RecomputedWork::add_gradient(const Range& range, std::string_view function) {
  const bool is_checkpoint = std::ranges::find(kCheckpoints, function) != std::end(kCheckpoints);
  has_gradients_ = true;
  add(range, function, is_checkpoint ? Kind::checkpoint : Kind::gradient);
}

void RecomputedWork::add_recorded(const Range& range, std::string_view name) {
  // "aten::silu_backward"
  add(range, name, name.ends_with("_backward") ? Kind::recorded_gradient : Kind::recorded);
}

void RecomputedWork::add(const Range& range, std::string_view name, Kind kind) {
  rows_.push_back({range.start_ns, range.end_ns, threads_.row_of(range.thread),
                   static_cast<uint32_t>(std::hash<std::string_view>{}(name)), kind});
}

void RecomputedWork::give_to(ImportedTrace& trace) const {
  if (!has_gradients_) return;
  std::vector<bool> is_launch(trace.calls.size());
  for (const ImportedOp& op : trace.ops) {
    if (op.call != kNoRow) is_launch[op.call] = true;
  }
  std::vector<Nesting> threads(threads_.size());
  for (const Row& row : rows_) threads[row.thread].add(row);
  for (Nesting& thread : threads) thread.sort();
  RowTable<ImportedThread> rows = threads_;
  std::vector<uint32_t> row_of;  // by the trace's threads
  for (const ImportedThread& thread : trace.threads) row_of.push_back(rows.row_of(thread));
  std::vector<bool> is_again(trace.calls.size());
  for (size_t i = 0; i < trace.calls.size(); ++i) {
    const HostCall& call = trace.calls[i];
    if (!is_launch[i] || row_of[call.thread] >= threads.size()) continue;
    is_again[i] = threads[row_of[call.thread]].is_forward_again(call.start_ns);
  }
  if (std::ranges::any_of(threads, &Nesting::has_second_derivatives)) return;
  for (uint32_t row = 0; row < trace.ops.size(); ++row) {
    const ImportedOp& op = trace.ops[row];
    if (op.call != kNoRow && is_again[op.call] && !is_host_copy(op))
      trace.recomputed.push_back(row);
  }
}

}  // namespace moetune::profiler
