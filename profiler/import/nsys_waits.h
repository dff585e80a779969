// Waits of Nsight Systems' exports: what each is, by the call that made it, and which recording of
// an event it waits for.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "profiler/import/rank_traces.h"

namespace moetune::profiler {

/// A row of CUPTI_ACTIVITY_KIND_CUDA_EVENT: an event was recorded on a stream. -1: not said.
struct RecordedEvent {
  int64_t process = 0;
  int64_t sync = -1;         ///< eventSyncId: of this recording
  int64_t event = -1;        ///< eventId: of the event, which is recorded again and again
  uint32_t correlation = 0;  ///< of the call
  int64_t stream = -1;
};

class NsysWaits {
 public:
  /// Calls of `traces` have their names and kinds already.
  explicit NsysWaits(RankTraces& traces);

  /// All events before the first wait.
  void add(const RecordedEvent& event);
  /// Completes a wait, which has its times and correlation, and adds it to the rank's. `type`,
  /// `stream`, `event` and `event_sync` as in its row. A query of an event is no wait.
  void add(RankTraces::Rank& rank, ImportedSync sync, int64_t type, int64_t stream, int64_t event,
           int64_t event_sync);

 private:
  struct Waiting {
    uint32_t correlation = 0;
    SyncKind kind = SyncKind::other;
    bool is_query = false;
  };
  [[nodiscard]] const Waiting* call_of(int64_t process, uint32_t correlation) const;
  [[nodiscard]] const RecordedEvent* recorded_by(int64_t process, int64_t event_sync) const;
  [[nodiscard]] const RecordedEvent* recorded_before(int64_t process, int64_t event,
                                                     uint32_t correlation) const;
  void sort();

  std::map<int64_t, std::vector<Waiting>> calls_;  // by process; by correlation
  std::vector<RecordedEvent> events_;              // by process, event and correlation
  std::vector<std::pair<std::pair<int64_t, int64_t>, uint32_t>> by_sync_;  // rows of events_
  bool is_sorted_ = false;
};

}  // namespace moetune::profiler
