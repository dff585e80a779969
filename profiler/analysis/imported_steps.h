// Steps of other tools' traces in the form of our own (record.h), so that the replay can judge them
// like ours. What a foreign trace has no field for becomes a record: a call that waits for the
// device a synchronisation, allocating and loading data work of the host.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profiler/analysis/intervals.h"
#include "profiler/analysis/matched_collectives.h"
#include "profiler/analysis/overlap.h"
#include "profiler/imported_trace.h"
#include "profiler/record.h"

namespace moetune::profiler {

/// A trace's place among them is its rank here, as files may not know theirs. Rules:
///  - A step begins with its host's step, or later, when all work that was launched before has
///  ended.
///    It ends with its last device work, or later, with its host's step. Without steps that all
///    traces have, all that was launched is one. Of steps that overlap the first counts.
///  - Host threads that launch take turns, as those of a framework do. A call that waits while
///    another thread launches kernels holds nobody up.
///  - Work without a launch in the trace has as its launch that of the work before it.
///  - Kernels are alike that have one name and one number of threads.
///  - A copy whose call returns after it has ended kept the host waiting. Copies to and from the
///  host
///    are offload where they go both ways, else the input.
///  - Messages have no partner: their time is waiting for a stage. Of a collective, the part after
///    the arrival of the last matched rank is transfer, all of it where nobody is matched.
/// A longer trace (months) has broken times: traces last seconds. It is neither replayed nor made
/// into steps, as sums of nanoseconds would not fit.
inline constexpr double kMostExtentNs = 1e16;

enum class RecordNames : uint8_t {
  numbers,  ///< for the replay: strangers' names are long, and stand in every record
  texts,    ///< for people: kernels and groups as the files call them, without what fills a screen
};

class ImportedSteps {
 public:
  /// Refers to the traces.
  ImportedSteps(std::span<const ImportedTrace> traces, const CollectiveMatching& matching,
                RecordNames names = RecordNames::numbers);

  [[nodiscard]] size_t num_steps() const;
  /// Device work of a step in all traces.
  [[nodiscard]] size_t num_ops(size_t step) const;
  /// One for each trace with device work, on one clock.
  [[nodiscard]] std::vector<StepTrace> make(size_t step) const;
  [[nodiscard]] const GroupInstances& communicators() const { return communicators_; }

 private:
  /// The part of a trace that is made into one step.
  struct Part {
    std::vector<uint32_t> ops;  ///< rows, ascending
    Interval host;              ///< when calls of it began
    Interval time;
  };
  struct StreamWait {
    int64_t wait_ns = 0;    ///< when the waiting was enqueued
    int64_t record_ns = 0;  ///< what had been enqueued by then is waited for
    uint32_t stream = 0;
    uint32_t producer_stream = 0;
  };
  struct Launch {
    int64_t start_ns = 0;
    uint16_t thread = 0;
  };
  struct Rank {
    uint32_t trace = 0;
    std::vector<WorkClass> work;       ///< by name of the trace
    std::vector<size_t> common_names;  ///< the same: one number in all traces
    std::vector<base::Name> shown;     ///< the same, for people; empty: numbers are asked for
    std::vector<Part> parts;           ///< by step
    std::vector<Launch> launches;      ///< by start
    std::vector<bool> launches_on;     ///< by thread
    std::vector<uint32_t> stops;       ///< rows of calls that wait or allocate, by start
    std::vector<StreamWait> stream_waits;
    IntervalSet loading;
    bool is_offloading = false;
  };
  struct Meeting {
    std::string group;
    int64_t sequence = 0;
    int64_t transfer_ns = 0;
  };
  class Writer;

  void add_rank(uint32_t trace);
  void find_stream_waits(Rank& rank) const;
  void find_parts();
  void find_meetings(const CollectiveMatching& matching);
  [[nodiscard]] bool holds_up(const Rank& rank, const HostCall& call) const;
  [[nodiscard]] TraceRecord record_of(const Rank& rank, uint32_t row) const;
  [[nodiscard]] base::Name name_of_kernel(const Rank& rank, const ImportedOp& op) const;

  std::span<const ImportedTrace> traces_;
  RecordNames names_;
  std::vector<Rank> ranks_;                            ///< those with device work
  std::vector<std::map<uint32_t, Meeting>> meetings_;  ///< by trace and row of its ops
  GroupInstances communicators_;
  std::vector<std::optional<int64_t>> clock_offsets_ns_;  ///< by trace
  std::unordered_map<std::string_view, size_t> numbers_;  ///< of names
};

}  // namespace moetune::profiler
