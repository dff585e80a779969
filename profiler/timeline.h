// The clocks of one rank: its host thread and its streams. In virtual time each clock advances by
// the duration of the work put on it. So several ranks with several streams on one processor show
// the overlap, bubbles and launch gaps that they would have on a cluster. In wall time the clocks
// are those of the machine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/modes.h"
#include "profiler/record.h"

namespace moetune::profiler {

using base::ClockMode;
using base::TraceLevel;

/// What it costs the host to use the device; nanoseconds.
struct HostCosts {
  int64_t launch_ns = 0;        ///< one kernel or collective launch
  int64_t graph_launch_ns = 0;  ///< one replay of a captured graph
  int64_t sync_ns = 0;          ///< returning from a synchronisation
  /// In virtual time, the largest number of operations that are launched but have not begun.
  /// Another launch returns only when the first of them begins. 0: no limit.
  int launch_queue = 0;
};

/// A point on a stream that other streams or the host can wait for.
struct Event {
  int64_t time_ns = 0;
  int64_t record_id = kNoRecord;
  /// What else lies before the point, as a place in the timeline's list of such sets; 0: nothing.
  uint32_t further_set = 0;
};

/// With whom a rank communicates, as in TraceRecord.
struct Partners {
  int64_t communicator = -1;
  int32_t peer = -1;
};

/// Describes an operation for the trace. `name` must outlive the timeline (string literals or table
/// entries).
struct OpTag {
  const char* name = "";
  int32_t layer = -1;
  int32_t micro_batch = -1;
  int64_t flops = 0;
  int64_t bytes = 0;
  bool is_recompute = false;
};

/// Host clock and stream clocks of one rank. Not thread-safe.
class Timeline {
 public:
  /// `device`: of the rank's node, for the records.
  Timeline(ClockMode mode, int rank, int num_streams, const HostCosts& costs, int device = -1);

  /// Begins an op: the host pays for the launch. Returns the earliest time the stream can start it.
  /// `is_captured`: a graph can hold the op. Communication is not captured and cuts the graph.
  int64_t launch(int stream, bool is_captured = true);
  /// Ends the op that was launched last: it ran from `start_ns` (>= what launch returned) for
  /// `duration_ns`.
  Event finish(int stream, RecordKind kind, const OpTag& tag, int64_t start_ns,
               int64_t duration_ns);
  /// As finish(), for communication: from `start_ns`, when this rank was ready, to `end_ns`.
  Event finish_communication(int stream, RecordKind kind, const OpTag& tag,
                             const std::string& group, int64_t sequence, int64_t start_ns,
                             int64_t end_ns, int64_t transfer_ns, const Partners& partners = {});

  [[nodiscard]] Event record_event(int stream);
  /// In virtual time, when the last message of the stream got the buffer that it had to wait for.
  /// From then on the sender may overwrite its data, long before they have arrived. An empty event
  /// if the message did not have to wait.
  [[nodiscard]] Event record_slot(int stream) const;
  void wait_event(int stream, const Event& event);
  /// The host waits for the event; shows as a host_sync record.
  void synchronize(const Event& event, const OpTag& tag);

  /// The host works for `duration_ns` from the time that begin_host_work() returned; shows as a
  /// host_work record.
  int64_t begin_host_work();
  void finish_host_work(const OpTag& tag, int64_t start_ns, int64_t duration_ns);

  /// Ops launched until end_graph belong to one captured graph: one replay launch for each of its
  /// parts.
  void begin_graph();
  /// Cuts the graph, which happens where streams meet or ranks communicate: what comes next is a
  /// new part.
  void cut_graph();
  void end_graph();

  /// From now on appends the durations that are passed to finish() and finish_host_work() to
  /// `durations`. Null: stops that.
  void record_durations(std::vector<int64_t>* durations) { durations_ = durations; }

  /// From now on passes each complete record to `keeps` once, in program order, and leaves those
  /// for which it returns false out of the trace. So a long step can be read without being stored.
  void filter_records(std::function<bool(const TraceRecord&)> keeps) { keeps_ = std::move(keeps); }

  void begin_step(int step, TraceLevel level);
  /// Closes the step at `end_ns`, the latest end over all ranks, and sets all clocks to it. Returns
  /// the trace, without records at TraceLevel::none.
  StepTrace end_step(int64_t end_ns);

  /// The latest time on any clock of this rank.
  [[nodiscard]] int64_t latest_ns() const;
  [[nodiscard]] int64_t host_ns() const;
  [[nodiscard]] ClockMode mode() const { return mode_; }
  [[nodiscard]] int64_t num_launches() const { return num_launches_; }

 private:
  struct Stream {
    int64_t end_ns = 0;
    int64_t last_record = kNoRecord;
    int64_t producer_id = kNoRecord;
    int64_t producer_end_ns = 0;
    int64_t slot_ns = 0;  ///< when the last record, a message, got its buffer; 0: at once
    /// All records that it has been told to wait for since, while records are kept.
    std::vector<int64_t> awaited = {};
  };

  void wait_for_queue();
  TraceRecord& add_record(int stream, RecordKind kind, const OpTag& tag);
  void filter_last();
  /// Of the record that was added last; `awaited` may name its producer, and records twice.
  void add_further_waits(const TraceRecord& record, std::vector<int64_t>& awaited);
  [[nodiscard]] std::vector<int64_t> further_of(const Event& event) const;

  ClockMode mode_;
  int rank_;
  int device_;
  HostCosts costs_;
  std::vector<Stream> streams_;
  int64_t host_ns_ = 0;
  int64_t launch_start_ns_ = 0;
  int64_t launch_end_ns_ = 0;
  std::vector<int64_t>
      last_starts_;  ///< ring of start times, one for each place of the launch queue
  size_t num_started_ = 0;
  int32_t graph_id_ = 0;
  int32_t num_graphs_ = 0;
  bool in_graph_ = false;
  bool graph_launched_ = false;
  TraceLevel level_ = TraceLevel::none;
  StepTrace trace_;
  std::vector<std::vector<int64_t>> further_sets_;  ///< of events of this step
  int64_t next_id_ = 0;
  int64_t num_launches_ = 0;
  std::vector<int64_t>* durations_ = nullptr;
  std::function<bool(const TraceRecord&)> keeps_;
  bool is_last_new_ = false;  ///< the trace's last record has not been shown to keeps_
  TraceRecord scratch_record_;
};

/// CPU time of the calling thread.
int64_t thread_cpu_ns();
/// CLOCK_MONOTONIC.
int64_t wall_ns();

}  // namespace moetune::profiler
