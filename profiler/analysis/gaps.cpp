// Follows the dependencies of the kernel that ends a gap backwards in time, and cuts the gap where
// the cause changes.
#include "profiler/analysis/gaps.h"

#include <algorithm>

namespace moetune::profiler {
namespace {

class GapExplainer {
 public:
  explicit GapExplainer(const TraceIndex& index) : index_(index) {}

  std::vector<GapPart> explain(const Interval& gap, int64_t ending_kernel) {
    if (ending_kernel != kNoPosition) {
      push_before_start(ending_kernel, gap.start_ns, gap.end_ns);
    } else {
      explain_step_end(gap);
    }
    // A stack and not recursion: chains through one gap can be as long as the trace.
    while (!pending_.empty()) {
      const Pending next = pending_.back();
      pending_.pop_back();
      if (next.is_running) {
        explain_running(next.position, next.start_ns, next.end_ns);
      } else {
        explain_before_start(next.position, next.start_ns, next.end_ns);
      }
    }
    return std::move(parts_);
  }

 private:
  struct Pending {
    int64_t position;
    int64_t start_ns;
    int64_t end_ns;
    bool is_running;
  };

  void add(int64_t start_ns, int64_t end_ns, GapCause cause, int64_t position) {
    if (start_ns < end_ns) parts_.push_back({start_ns, end_ns, cause, position});
  }
  void push_before_start(int64_t position, int64_t start_ns, int64_t end_ns) {
    if (start_ns < end_ns) pending_.push_back({position, start_ns, end_ns, false});
  }
  void push_running(int64_t position, int64_t start_ns, int64_t end_ns) {
    if (start_ns < end_ns) pending_.push_back({position, start_ns, end_ns, true});
  }

  /// [start, end) in which `position` had not started. What it waits for comes first: until that
  /// has ended, an earlier launch would not have helped.
  void explain_before_start(int64_t position, int64_t start_ns, int64_t end_ns) {
    const int64_t predecessor = index_.binding_predecessor(position);
    const int64_t resolved_ns =
        predecessor == kNoPosition
            ? start_ns
            : std::clamp(index_.waited_until_ns(position, predecessor), start_ns, end_ns);
    push_running(predecessor, start_ns, resolved_ns);
    const int64_t enqueued_ns =
        std::clamp(index_.record(position).launch_end_ns, resolved_ns, end_ns);
    explain_host(position, resolved_ns, enqueued_ns);
    add(enqueued_ns, end_ns, GapCause::dependency_stalled, position);
  }

  /// [start, end) in which the host had not enqueued `position`; the record after the last counts
  /// as position size().
  void explain_host(int64_t position, int64_t start_ns, int64_t end_ns) {
    int64_t cursor = start_ns;
    const std::vector<int64_t>& syncs = index_.host_syncs();
    for (size_t i = index_.first_sync_after(start_ns); i < syncs.size(); ++i) {
      const TraceRecord& sync = index_.record(syncs[i]);
      if (sync.start_ns >= end_ns) break;
      const int64_t producer = index_.producer(syncs[i]);
      if (syncs[i] >= position || producer == kNoPosition) continue;
      const int64_t from = std::max(sync.start_ns, cursor);
      const int64_t to = std::min({end_ns, sync.end_ns, index_.record(producer).end_ns});
      if (from >= to) continue;
      add(cursor, from, GapCause::launch_starved, position);
      push_running(producer, from, to);
      cursor = to;
    }
    add(cursor, end_ns, GapCause::launch_starved, position);
  }

  /// [start, end), no later than the end of `position`, in which something waited for it.
  void explain_running(int64_t position, int64_t start_ns, int64_t end_ns) {
    const TraceRecord& record = index_.record(position);
    push_before_start(position, start_ns, std::min(end_ns, record.start_ns));
    const int64_t from = std::max(start_ns, record.start_ns);
    switch (index_.op_class(position)) {
      case OpClass::communication: {
        const int64_t transfer_ns =
            std::clamp<int64_t>(record.transfer_ns, 0, record.end_ns - record.start_ns);
        const int64_t all_arrived_ns = record.end_ns - transfer_ns;
        add(from, std::min(end_ns, all_arrived_ns), GapCause::wait, position);
        add(std::max(from, all_arrived_ns), end_ns, GapCause::transfer, position);
        break;
      }
      case OpClass::dispatcher:
      case OpClass::memcpy:
        add(from, end_ns, GapCause::transfer, position);
        break;
      case OpClass::host:
        add(from, end_ns, GapCause::launch_starved, position);
        break;
      case OpClass::compute:  // compute does not run in a gap
        add(from, end_ns, GapCause::dependency_stalled, position);
        break;
    }
  }

  void explain_step_end(const Interval& gap) {
    if (index_.size() == 0) {
      add(gap.start_ns, gap.end_ns, GapCause::dependency_stalled, kNoPosition);
      return;
    }
    int64_t cursor = gap.start_ns;
    const int64_t last = index_.last_device_record();
    if (last != kNoPosition) {
      const int64_t device_end = std::min(index_.record(last).end_ns, gap.end_ns);
      push_running(last, cursor, device_end);
      cursor = std::max(cursor, device_end);
    }
    const int64_t host_end = std::min(index_.last_host_ns(), gap.end_ns);
    if (host_end > cursor) {
      explain_host(index_.size(), cursor, host_end);
      cursor = host_end;
    }
    add(cursor, gap.end_ns, GapCause::wait, kNoPosition);
  }

  const TraceIndex& index_;
  std::vector<GapPart> parts_;
  std::vector<Pending> pending_;
};

}  // namespace

std::vector<GapPart> explain_gap(const TraceIndex& index, const Interval& gap,
                                 int64_t ending_kernel) {
  return GapExplainer(index).explain(gap, ending_kernel);
}

}  // namespace moetune::profiler
