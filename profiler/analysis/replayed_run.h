// A traced step of several ranks, replayed with other durations: what the step would take without
// some of its causes. Who waits for whom stays as the trace has it, across streams, hosts and
// ranks; so a delay of one rank reaches the others only as far as they wait for it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "profiler/analysis/overlap.h"
#include "profiler/record.h"

namespace moetune::profiler {

/// One record as it is replayed. Durations may be changed, the rest is the trace's.
struct ReplayOp {
  uint32_t trace = 0;       ///< which of the traces
  uint32_t row = 0;         ///< of its records
  int64_t gap_ns = 0;       ///< the host's program before the call; see ReplayOptions::long_gap_ns
  int64_t launch_ns = 0;    ///< the call, without waiting for room in the launch queue
  int64_t duration_ns = 0;  ///< communication: moving data; a synchronisation: returning from it
  int64_t slack_ns = 0;     ///< how much later it began than anything in the trace explains
  /// Of what waits for others: a synchronisation for the device, a receive for its message, a send
  /// for memory at the receiver. False: it does not.
  bool is_waiting = true;
  int64_t slot_wait_ns = 0;  ///< sends: what they waited for that memory
  /// Launches that waited for the device: from the start of what it was at. Without it they return
  /// as soon as that starts.
  int64_t queue_lag_ns = 0;
};

struct ReplayOptions {
  /// A device starts what waited within this time. Later than that after its launch, something else
  /// was waited for.
  int64_t start_latency_ns = 2'000;
  /// From the end of one operation to the start of the next on a stream, where that is enqueued.
  int64_t stream_gap_ns = 0;
  /// A launch that takes longer, while the device is busy and what is launched has to wait anyway,
  /// waited for room in the launch queue: the rest of it is the device's time, not the host's.
  int64_t usual_launch_ns = 5'000;
  /// The same of a gap of the host's program before a launch: then something that is not in the
  /// trace lets the host follow the device. 0: gaps are the host's, however long.
  int64_t long_gap_ns = 0;
};

/// The records of all ranks with what each of them waits for. Refers to the traces.
class ReplayedRun {
 public:
  /// Traces of one step on one clock, one a rank. Collectives are matched by communicator and
  /// sequence, receives with the send of their sequence by the neighbour in the pipeline's group
  /// (forward: the one before). Messages of no micro-batch are matched by their sequence alone; two
  /// ends that ran at one time waited for each other. Who has no partner in the traces takes as
  /// long as it took.
  ReplayedRun(std::span<const StepTrace> traces, const GroupInstances& communicators,
              const ReplayOptions& options = {});

  [[nodiscard]] const std::vector<ReplayOp>& ops() const { return ops_; }
  [[nodiscard]] const TraceRecord& record_of(const ReplayOp& op) const {
    return traces_[op.trace].records[op.row];
  }
  [[nodiscard]] std::span<const StepTrace> traces() const { return traces_; }
  /// Communication: which communicator of its group, by place; other records: -1.
  [[nodiscard]] int32_t instance_of(size_t op) const { return links_[op].instance; }
  [[nodiscard]] int32_t num_instances() const { return num_instances_; }

  /// The step with these operations in the place of ops(), whose order they keep. With ops() itself
  /// it is what was recorded.
  [[nodiscard]] int64_t step_ns(const std::vector<ReplayOp>& ops) const;

  /// Number of waits for another stream that were inferred: the trace does not state them, but
  /// another record ended within the latency before. num_edges() counts all. The rest is slack.
  [[nodiscard]] int64_t num_inferred_edges() const { return num_inferred_; }
  [[nodiscard]] int64_t num_edges() const { return num_edges_; }
  /// Time in all of these waits, and in the inferred ones: latencies of microseconds, of which
  /// there are most, count for little. Waits that were inferred before
  /// (TraceRecord::is_producer_inferred) are among these.
  [[nodiscard]] int64_t waited_ns() const { return waited_ns_; }
  [[nodiscard]] int64_t inferred_wait_ns() const { return inferred_wait_ns_; }

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  /// What an operation waits for, by place in ops_.
  struct Links {
    uint32_t before = kNone;    ///< on its stream
    uint32_t producer = kNone;  ///< on another stream; of a synchronisation what it waits for
    int64_t lag_ns = 0;         ///< from the producer's end; negative where less of it is needed
    int64_t latency_ns = 0;     ///< from its launch, where nothing else kept the device
    int64_t gap_ns = 0;         ///< from the end of the one before, likewise
    uint32_t meeting = kNone;   ///< collectives: of meetings_
    uint32_t sender = kNone;    ///< receives: the message
    int64_t receive_ns = 0;     ///< receives: from their start, where the message was there already
    /// Launches that waited for the device: what it was at when they returned.
    uint32_t queued_behind = kNone;
    /// Where that is a communication that what is launched waits for: how long before its end. So
    /// the launch follows it when others come sooner. 0: it follows the start.
    int64_t queue_lead_ns = 0;
    int32_t instance = -1;
  };
  struct RankRows {
    std::vector<uint32_t> ops;  ///< in program order, one behind the other in ops_
  };
  class Ordering;

  void add_rank(uint32_t trace);
  void match(const GroupInstances& communicators);
  void match_messages();
  void find_order();
  void match_numbered(const std::vector<uint32_t>& ends);
  void add_edge(const TraceRecord& record, bool is_inferred, int64_t earliest_ns,
                int64_t produced_ns);
  void find_queue_waits();
  /// When a launch returns that waited for the device, with these operations.
  [[nodiscard]] int64_t room_ns(const ReplayOp& op, const Links& links,
                                const std::vector<ReplayOp>& ops, int64_t begun_ns,
                                int64_t ended_ns) const;
  /// When the device could have begun, with what it takes to begin.
  int64_t add_latency(Links& links, int64_t launched_ns, int64_t begun_ns) const;
  void find_slack();

  std::span<const StepTrace> traces_;
  ReplayOptions options_;
  std::vector<ReplayOp> ops_;
  std::vector<Links> links_;
  std::vector<RankRows> ranks_;
  std::vector<uint32_t> meetings_;  ///< members of each
  /// Every operation behind all that it waits for: its place, shifted, with the bits of what
  /// happens then. The host goes on behind a launch, so that it and the operation may stand apart.
  std::vector<uint32_t> order_;
  int32_t num_instances_ = 0;
  int64_t num_inferred_ = 0;
  int64_t num_edges_ = 0;
  int64_t waited_ns_ = 0;
  int64_t inferred_wait_ns_ = 0;
  int64_t start_ns_ = 0;
  int64_t tail_ns_ = 0;  ///< from the last end to the end of the step
};

}  // namespace moetune::profiler
