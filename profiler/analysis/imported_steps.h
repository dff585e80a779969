// Steps of other tools' traces in the form of our own (record.h), so that the replay can judge them
// like ours. What a foreign trace has no field for becomes a record: a call that waits for the
// device a synchronisation, allocating and loading data work of the host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profiler/analysis/by_op.h"
#include "profiler/analysis/intervals.h"
#include "profiler/analysis/matched_collectives.h"
#include "profiler/analysis/overlap.h"
#include "profiler/analysis/trace_causes.h"
#include "profiler/analysis/trace_parts.h"
#include "profiler/analysis/trace_windows.h"
#include "profiler/imported_trace.h"
#include "profiler/record.h"

namespace moetune::profiler {

/// Traces that span more (115 days) have broken times: a trace lasts seconds. Sums of such times
/// would overflow, so callers neither replay the traces nor make steps of them.
inline constexpr double kMaxTraceNs = 1e16;

/// From the first to the last time of the operations, calls and steps of a trace. Without any, the
/// first is infinity and the last minus infinity.
struct TraceExtent {
  double first_ns = 0;
  double last_ns = 0;
};
TraceExtent extent_of(const ImportedTrace& trace);

enum class RecordNames : uint8_t {
  numbers,  ///< for the replay: names in files are long, and every record has one
  texts,  ///< for people: kernels and groups as the files call them, shortened; kernels also whole
};

/// Files have starts and lengths in microseconds with three decimals, each rounded by itself: what
/// waited for the end of other work may seem to start so long before it.
constexpr int64_t kRoundingNs = 3;

/// Cuts imported traces into steps. The index of a trace serves as its rank: files may not know
/// their rank. Rules:
///  - A step starts when the host starts it, or when all work that was launched earlier has ended,
///    if that is later. It ends with its last device work, or with the host's step, if that is
///    later.
///  - Only steps that all traces mark are used. If no trace marks any, the periods of their
///    kernels are (recurring_steps.h). Without those all launched work is one step, or where a
///    replay could not hold it, or some ranks were recorded for longer than others, parts of it are
///    (trace_parts.h). Of overlapping steps the first is kept.
///  - Waits of a stream are those that the file states. If it has only the calls, waits follow from
///    them: an event is recorded on the stream of its thread's previous launch, and the stream of
///    the thread's next launch waits for it; of several events for the one recorded last on another
///    stream. Such a wait is marked as inferred, and dropped if its producer ended too late, by
///    more than kRoundingNs. Of several waits the one for the latest end is the producer, and those
///    that the file states are kept. If nothing is known of a rank's waits, as its trace has
///    neither syncs nor the calls that record events and wait for them, the kernel that is launched
///    next after a matched receive, on another stream, waits for it, unless one such kernel of the
///    rank began before its message was there.
///  - One launching thread runs at a time. A sync during which another thread launches kernels is
///    ignored.
///  - Device work without a launch gets the launch of the work before it, but no thread.
///  - Kernels with the same name and number of threads count as the same kernel, "name/threads".
///  - A copy whose call returns after the copy has ended blocks the host. Where it had to wait for
///    work enqueued before it, so did the host: of the call no more than kUsualLaunchNs is
///    launching. Copies to and from the host are offload if both directions matter; else tensors
///    that go to the host in most steps are (Offloading), and what comes from there is input.
///  - Communicators are told apart by what files say of their purpose, name and members. Where they
///    do not say the members, those of unmatched communication are of no other rank.
///  - A message between stages that is matched is a send and a receive. The time of others is
///    waiting for a stage. A collective, and a message of another group, transfers from the arrival
///    of the last matched rank on; if unmatched, all the time.
///  - Ranks that matched messages connect are one pipeline. The peer of a message is the rank that
///    the file names, else the one that the file of its other end is of.
///  - Kernels between two exchanges of experts' rows (expert_exchanges.h) are of one layer. For
///    their size they have what their rank received. So have grouped products behind them, as of
///    weights' gradients that are left until then.
class ImportedSteps {
 public:
  /// Refers to the traces. `sizes`: of traces without steps; these are whole where it says nothing.
  ImportedSteps(std::span<const ImportedTrace> traces, const CollectiveMatching& matching,
                RecordNames names = RecordNames::numbers, const PartSizes& sizes = {});

  [[nodiscard]] size_t num_steps() const;
  /// Whether they are parts of traces without steps.
  [[nodiscard]] bool are_parts() const { return are_parts_; }
  /// Device work of a step in all traces.
  [[nodiscard]] size_t num_ops(size_t step) const;
  /// Launches of kernels in a step whose kernels are not in the traces, though earlier and later
  /// ones are (0 where graphs are captured: their launches have none), and work whose launch is
  /// not, though that of other work is.
  [[nodiscard]] int64_t num_lost(size_t step) const;
  /// One for each trace with device work, on one clock.
  [[nodiscard]] std::vector<StepTrace> make(size_t step) const;
  [[nodiscard]] const GroupInstances& communicators() const { return communicators_; }

 private:
  /// The part of a trace that is made into one step.
  struct StepSlice {
    std::vector<uint32_t> ops;  ///< rows, ascending
    Interval host;              ///< when calls of it began
    Interval time;
  };
  struct StreamWait {
    int64_t wait_ns = 0;    ///< when the waiting was enqueued
    int64_t record_ns = 0;  ///< what had been enqueued by then is waited for
    uint32_t stream = 0;
    uint32_t producer_stream = 0;
    bool is_inferred = false;  ///< from the order of calls
  };
  struct Launch {
    int64_t start_ns = 0;
    uint16_t thread = 0;
  };
  struct Rank {
    Rank(uint32_t index, const ImportedTrace& of) : trace(index), work(of) {}
    uint32_t trace = 0;
    WorkClasses work;
    // Indexed by name of the trace:
    std::vector<size_t> name_ids;              ///< one id per text, shared by all traces
    std::vector<base::InternedString> labels;  ///< shortened; empty with RecordNames::numbers

    std::vector<bool> is_message;  ///< by row of the trace's comms: between stages
    /// By row of the trace's comms, as far as the file says it; empty with RecordNames::numbers.
    std::vector<int64_t> communicators;
    std::vector<bool> is_of_experts;         ///< by row of the trace's ops
    std::vector<StepSlice> slices;           ///< by step
    std::optional<int64_t> first_launch_ns;  ///< of a kernel or graph
    std::vector<bool> is_launching;          ///< by thread: it launches device work
    std::vector<uint32_t> stops;  ///< rows of blocking calls: syncs and allocations, by start
    std::vector<int64_t> idle_launches_ns;  ///< when launches began that launched nothing
    std::vector<StreamWait> stream_waits;
    IntervalSet loading;
    IntervalSet program;
    Offloading offloading;
  };
  /// What the records of a matched collective or message have in common.
  struct Match {
    base::InternedString group;
    int64_t transfer_ns = 0;
    int64_t communicator = -1;  ///< of messages: that of their first part
    // Of expert exchanges (ExpertExchange):
    bool opens = false;
    bool closes = false;
  };
  /// What an operation's record gets from the match that it is a part of.
  struct MatchedOp {
    uint32_t match = 0;       ///< place in matches_, the sequence of its record
    int32_t peer = -1;        ///< of messages: rank of the other side
    bool is_receive = false;  ///< of messages between stages: it waits for one
  };
  class Writer;

  void add_rank(uint32_t trace);
  void find_stream_waits(Rank& rank) const;
  void infer_stream_waits(Rank& rank,
                          const std::unordered_map<uint32_t, uint32_t>& waiting_streams) const;
  void infer_message_waits(Rank& rank) const;
  void find_slices(const CollectiveMatching& matching, const PartSizes& sizes);
  /// False where `marked` has no step that all ranks have.
  bool take_slices(const std::vector<std::vector<ImportedStep>>& marked,
                   const std::vector<TraceWindows>& windows);
  [[nodiscard]] static std::map<int64_t, StepSlice> steps_of(
      const ImportedTrace& trace, const std::vector<ImportedStep>& marked,
      const TraceWindows& windows);
  [[nodiscard]] static StepSlice whole_trace_of(const Rank& rank, const TraceWindows& windows);
  /// Purpose, name and members of a communicator.
  using Identity = std::array<std::string, 3>;
  static Identity identity_of(const ImportedTrace& trace, const CommCall& comm);
  /// From 1 on, a new one where it is not known.
  int64_t id_of(const Identity& identity);
  void find_communicators(Rank& rank);
  using MatchedOps = std::vector<std::vector<ByOp<MatchedOp>::Entry>>;  ///< by trace
  void find_matched_ops(const CollectiveMatching& matching);
  void add_collectives(const CollectiveMatching& matching, MatchedOps& ops);
  void add_messages(const CollectiveMatching& matching, MatchedOps& ops);
  [[nodiscard]] int32_t peer_of(const MatchedCollective& message, size_t part) const;
  /// `launches`: of kernels and graphs, by start.
  [[nodiscard]] static bool holds_up(const Rank& rank, const std::vector<Launch>& launches,
                                     const HostCall& call);
  /// By name and launch shape, whole ones of kernels by name: of records that are made, each
  /// written once.
  using WorkNames = std::unordered_map<uint64_t, base::InternedString>;
  [[nodiscard]] TraceRecord record_of(const Rank& rank, uint32_t row, WorkNames& names) const;
  void set_launch(const Rank& rank, const ImportedOp& op, WorkNames& names,
                  TraceRecord& record) const;
  void set_partners(const Rank& rank, uint32_t row, TraceRecord& record) const;
  [[nodiscard]] base::InternedString name_of_work(const Rank& rank, const ImportedOp& op,
                                                  WorkNames& names) const;
  [[nodiscard]] base::InternedString name_of_kernel(const Rank& rank, const ImportedOp& op) const;

  std::span<const ImportedTrace> traces_;
  RecordNames names_;
  bool are_parts_ = false;
  std::vector<Rank> ranks_;                     ///< those with device work
  std::vector<Match> matches_;                  ///< collectives, then messages
  std::vector<ByOp<MatchedOp>> matched_ops_;    ///< by trace
  std::vector<ByOp<int64_t>> received_nelems_;  ///< by trace, of expert exchanges
  std::map<Identity, int64_t> communicator_ids_;
  GroupInstances communicators_;
  std::vector<std::optional<int64_t>> clock_offsets_ns_;  ///< by trace
  std::unordered_map<std::string_view, size_t> ids_;      ///< of names
};

}  // namespace moetune::profiler
