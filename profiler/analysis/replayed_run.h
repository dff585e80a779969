// Replays a traced step of several ranks with other durations: how long would it take without some
// causes? Dependencies across streams, hosts and ranks stay as in the trace. So a delay of one rank
// reaches the others only as far as they wait for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "profiler/analysis/device_work.h"
#include "profiler/analysis/overlap.h"
#include "profiler/record.h"

namespace moetune::profiler {

/// One record as it is replayed. Durations and `is_waiting` may be changed.
struct ReplayOp {
  uint32_t trace = 0;       ///< index of the trace
  uint32_t row = 0;         ///< row of the trace's records
  int64_t gap_ns = 0;       ///< time of the host's program before the call (long_gap_ns)
  int64_t launch_ns = 0;    ///< the call, without waiting for room in the launch queue
  int64_t duration_ns = 0;  ///< communication: transfer; synchronisation: returning from it
  int64_t slack_ns = 0;     ///< delay of the start that nothing in the trace explains
  /// Delay of the start while other ranks were at work on the same device. It stays as it was,
  /// however long their work takes in the replay.
  int64_t shared_ns = 0;
  /// False: it no longer waits for others. Otherwise a collective waits for the other ranks, a
  /// synchronisation for the device, a receive for its message, a send for a buffer at the
  /// receiver.
  bool is_waiting = true;
  bool is_on_host = false;
  /// For a launch that waited for the device: from the start of the op that ran then to the
  /// launch's return. 0: the launch returns as soon as that op starts.
  int64_t queue_lag_ns = 0;

  bool operator==(const ReplayOp&) const = default;
};

/// Room for the times of a replay. It is large, so callers that replay a run often keep it.
struct ReplayRoom {
  std::vector<int64_t> begins;
  std::vector<int64_t> ends;
};

struct ReplayOptions {
  /// Longest time a device takes to start an op that is ready. An op that starts later after its
  /// launch has waited for something else.
  int32_t start_latency_ns = 2'000;
  /// From the end of an operation to the start of the next one on its stream, if that is enqueued
  /// by then.
  int64_t stream_gap_ns = 0;
  /// Usual time of a launch. A launch that takes longer has waited for room in the launch queue, if
  /// the device was busy and the launched op had to wait anyway. The excess is the device's time
  /// then, not the host's.
  int64_t usual_launch_ns = 5'000;
  /// The same limit for the gap of the host's program before a launch: a longer gap means that the
  /// host waits for the device in a way that the trace does not show. 0: all gaps are the host's.
  int64_t long_gap_ns = 0;
  /// So much may work start before the end of what it waited for, as times are rounded.
  int64_t rounding_ns = 0;
  /// Work that begins longer after its stream was free, and as soon after its launch as it can
  /// (start_limit_ns), waited for the launch: a launch takes its time to reach the device. 0: work
  /// waits for its launch only where the stream was free when that returned.
  int64_t least_launch_gap_ns = 0;
};

/// The records of all ranks and their dependencies. A record waits for all producers that its trace
/// states and that ended before it began. Refers to the traces.
class ReplayedRun {
 public:
  /// `traces`: of one step on one clock, one per rank. Collectives are matched by communicator and
  /// sequence. A receive is matched with the send of the same sequence on the neighbour in the
  /// pipeline's group (forward: the one before). Messages without a micro-batch are matched by
  /// sequence alone; if both ends ran at the same time, they waited for each other. Communication
  /// without a partner in the traces keeps its duration. `others`: where the ranks share a device,
  /// for each trace what the others did there (work_of_others).
  ReplayedRun(std::span<const StepTrace> traces, const GroupInstances& communicators,
              const ReplayOptions& options = {}, std::span<const DeviceWork> others = {});

  [[nodiscard]] const std::vector<ReplayOp>& ops() const { return ops_; }
  [[nodiscard]] const TraceRecord& record_of(const ReplayOp& op) const {
    return traces_[op.trace].records[op.row];
  }
  [[nodiscard]] std::span<const StepTrace> traces() const { return traces_; }
  /// Places of one rank's operations, in program order.
  struct RankOps {
    uint32_t begin = 0;
    uint32_t end = 0;
    [[nodiscard]] bool empty() const { return begin == end; }
  };
  /// In the order of the traces.
  [[nodiscard]] const std::vector<RankOps>& ranks() const { return ranks_; }

  /// Communication: index of its communicator; other records: -1.
  [[nodiscard]] int32_t instance_of(size_t op) const {
    return links_[op].exchange == kNone ? -1 : exchange_of(op).instance;
  }
  [[nodiscard]] int32_t num_instances() const { return num_instances_; }
  [[nodiscard]] const ReplayOptions& options() const { return options_; }

  /// What an operation waits for on another stream of its rank, as the trace says it or as it was
  /// inferred: a place of ops(). None: nothing.
  [[nodiscard]] std::optional<size_t> producer_of(size_t op) const {
    const uint32_t producer = links_[op].producer;
    return producer == kNone ? std::nullopt : std::optional<size_t>(producer);
  }

  static constexpr uint32_t kNoPlace = 0xFFFFFFFF;
  /// What each operation waited for on another rank, by place: of a collective its last participant
  /// if that is another, of a receive its send; kNoPlace: nothing.
  [[nodiscard]] std::vector<uint32_t> awaited_elsewhere() const;

  /// Operations that communicate, in the order of ops().
  [[nodiscard]] const std::vector<uint32_t>& communication() const { return communication_; }

  /// Changes a copy of the operation at a place of ops(), always in the same way.
  using Change = std::function<void(size_t place, ReplayOp& op)>;
  /// Length of the step with changed operations. Without a change this is the recorded length.
  [[nodiscard]] int64_t step_ns(const Change& change, ReplayRoom& room) const;
  /// The same with `ops`, a changed copy of ops() in the same order.
  [[nodiscard]] int64_t step_ns(const std::vector<ReplayOp>& ops) const;

  /// Waits for another stream that are not in the trace but inferred, as a record ended there
  /// within the latency before, or while the synchronisation lasted. Delays without a stated or
  /// inferred wait are slack.
  [[nodiscard]] int64_t num_inferred_edges() const { return num_inferred_; }
  /// All waits for another stream.
  [[nodiscard]] int64_t num_edges() const { return num_edges_; }
  /// Time in all of these waits, and in the inferred ones. The many waits of microseconds count for
  /// little in it. Includes waits that an importer has inferred
  /// (TraceRecord::is_producer_inferred).
  [[nodiscard]] int64_t waited_ns() const { return waited_ns_; }
  [[nodiscard]] int64_t inferred_wait_ns() const { return inferred_wait_ns_; }

 private:
  static constexpr uint32_t kNone = kNoPlace;
  /// What an operation waits for. Operations are indices of ops_.
  struct Links {
    uint32_t before = kNone;    ///< the operation before it on its stream
    uint32_t producer = kNone;  ///< awaited on another stream; synchronisation: what it waits for
    int64_t lag_ns = 0;         ///< start minus the producer's end; negative: part of it suffices
    int64_t gap_ns = 0;  ///< from the end of `before` to its start, if nothing else delayed it
    uint32_t exchange = kNone;  ///< communication: index of exchanges_
    uint32_t further = kNone;   ///< first of its further waits
    int32_t latency_ns = 0;     ///< from its launch to its start, if nothing else delayed it
    /// For a launch that waited for the device: the op that ran when it returned.
    uint32_t queued_behind = kNone;
    /// If that op is a communication that the launched op waits for: how long before its end the
    /// launch returned. The launch then follows the end, which comes earlier when other ranks do.
    /// 0: it follows the start.
    int64_t queue_lead_ns = 0;
  };
  /// What only communication has, which is a small part of the operations.
  struct Exchange {
    uint32_t meeting = kNone;  ///< collectives: index of meetings_
    uint32_t sender = kNone;   ///< receives: the send of the message
    int64_t receive_ns = 0;    ///< receives: their time if the message has arrived before
    int64_t slot_wait_ns = 0;  ///< sends: time of waiting for a buffer at the receiver
    int32_t instance = -1;
  };
  // A replay holds one of both for each record of its step, beside the record.
  static_assert(sizeof(ReplayOp) + sizeof(Links) <= 112);
  /// What an operation waits for beside its producer. Those of one are next to each other.
  struct FurtherLink {
    uint32_t op = kNone;
    uint32_t producer = kNone;
    int64_t lag_ns = 0;  ///< as of the producer
  };
  class Ordering;

  [[nodiscard]] Exchange& exchange_of(size_t op) { return exchanges_[links_[op].exchange]; }
  [[nodiscard]] const Exchange& exchange_of(size_t op) const {
    return exchanges_[links_[op].exchange];
  }
  /// kNone: none.
  [[nodiscard]] uint32_t meeting_of(const Links& links) const {
    return links.exchange == kNone ? kNone : exchanges_[links.exchange].meeting;
  }
  [[nodiscard]] uint32_t sender_of(const Links& links) const {
    return links.exchange == kNone ? kNone : exchanges_[links.exchange].sender;
  }
  /// Returns the last time of its records.
  int64_t add_rank(uint32_t trace);
  /// `find`: the row of an id.
  template <typename Find>
  void add_further(uint32_t place, uint32_t first, const Find& find);
  /// Calls `visit(link)` for each of an operation's further waits.
  template <typename Visit>
  void for_each_further(uint32_t place, const Visit& visit) const {
    for (size_t i = links_[place].further; i < further_.size() && further_[i].op == place; ++i) {
      visit(further_[i]);
    }
  }
  void match(const GroupInstances& communicators);
  void match_messages();
  void find_order();
  void match_numbered(const std::vector<uint32_t>& ends);
  void add_edge(const TraceRecord& record, bool is_inferred, int64_t earliest_ns,
                int64_t produced_ns);
  void find_queue_waits();
  /// When a launch that waited for the device returns.
  [[nodiscard]] int64_t room_ns(const ReplayOp& op, const Links& links, const Change& change,
                                int64_t begun_ns, int64_t ended_ns) const;
  [[nodiscard]] ReplayOp changed(size_t place, const Change& change) const {
    ReplayOp op = ops_[place];
    change(place, op);
    return op;
  }
  /// When the device could have begun, its time to begin included.
  int64_t add_latency(uint32_t place, int64_t launched_ns, int64_t begun_ns, int64_t limit_ns);
  /// Of a rank's kernels (start_limit_ns).
  [[nodiscard]] int64_t start_limit_of(const RankOps& rank) const;
  void find_slack(std::span<const DeviceWork> others);

  std::span<const StepTrace> traces_;
  ReplayOptions options_;
  std::vector<ReplayOp> ops_;
  std::vector<Links> links_;
  std::vector<FurtherLink> further_;  ///< by operation
  std::vector<uint32_t> communication_;
  std::vector<Exchange> exchanges_;  ///< as communication_
  std::vector<RankOps> ranks_;
  std::vector<uint32_t> meetings_;  ///< number of members of each
  /// Launches and operations in an order in which each follows all that it waits for. An entry is
  /// the operation's index, shifted, with bits for what happens then: the host goes on after a
  /// launch, so a launch and its operation may have separate entries.
  std::vector<uint32_t> order_;
  /// Some operation waits for one that may come behind it in ops_.
  bool waits_for_later_ = false;
  int32_t num_instances_ = 0;
  int64_t num_inferred_ = 0;
  int64_t num_edges_ = 0;
  int64_t waited_ns_ = 0;
  int64_t inferred_wait_ns_ = 0;
  int64_t start_ns_ = 0;
  int64_t tail_ns_ = 0;  ///< from the last end to the end of the step
};

}  // namespace moetune::profiler
