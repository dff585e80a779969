// A step's records in program order with their classes and predecessors: what the budget and the
// critical path follow.
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/analysis/classify.h"
#include "profiler/analysis/intervals.h"
#include "profiler/record.h"

namespace moetune::profiler {

/// No predecessor, in positions.
constexpr int64_t kNoPosition = -1;

/// Refers to the trace, which must outlive it. Positions count records in program order; every
/// predecessor has a lower position, so following predecessors always ends, whatever the trace
/// says.
class TraceIndex {
 public:
  /// Throws base::Error when an id is there twice or a record or the step ends before it starts.
  TraceIndex(const StepTrace& trace, const ClassificationRules& rules);

  [[nodiscard]] const StepTrace& trace() const { return trace_; }
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(records_.size()); }
  [[nodiscard]] const TraceRecord& record(int64_t position) const { return *at(position).record; }
  [[nodiscard]] OpClass op_class(int64_t position) const { return at(position).op_class; }
  /// Latest-ending record its stream or host had to wait for.
  [[nodiscard]] int64_t producer(int64_t position) const { return at(position).producer; }
  /// The record before it on the same stream.
  [[nodiscard]] int64_t stream_predecessor(int64_t position) const {
    return at(position).stream_predecessor;
  }
  /// The one of the two above that is waited for longer, the producer when equal.
  [[nodiscard]] int64_t binding_predecessor(int64_t position) const;
  /// Until when `position` waits for a predecessor: until its end. For a message that is still on
  /// its way, only until its data began to move, when it had found its memory free.
  [[nodiscard]] int64_t waited_until_ns(int64_t position, int64_t predecessor) const;

  [[nodiscard]] const Interval& window() const { return window_; }
  /// The device record that ends last (the latest in program order when equal), or kNoPosition.
  [[nodiscard]] int64_t last_device_record() const { return last_device_record_; }
  /// When the host was last seen busy: end of its last launch or synchronisation.
  [[nodiscard]] int64_t last_host_ns() const { return last_host_ns_; }

  /// Host synchronisations by start.
  [[nodiscard]] const std::vector<int64_t>& host_syncs() const { return host_syncs_; }
  /// Index in host_syncs() of the first that can end after `time_ns`.
  [[nodiscard]] size_t first_sync_after(int64_t time_ns) const;

 private:
  struct Entry {
    const TraceRecord* record = nullptr;
    OpClass op_class = OpClass::compute;
    int64_t producer = kNoPosition;
    int64_t stream_predecessor = kNoPosition;
  };

  [[nodiscard]] const Entry& at(int64_t position) const {
    return records_[static_cast<size_t>(position)];
  }
  [[nodiscard]] int64_t position_of(int64_t id, int64_t before) const;

  const StepTrace& trace_;
  Interval window_;
  std::vector<Entry> records_;
  std::vector<int64_t> host_syncs_;
  std::vector<int64_t> latest_sync_end_;  // running maximum over host_syncs_
  int64_t last_device_record_ = kNoPosition;
  int64_t last_host_ns_ = 0;
};

}  // namespace moetune::profiler
