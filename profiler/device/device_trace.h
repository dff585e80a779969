// Converts one step's records of a tracing interface into records of the one trace schema, per
// rank. Pure functions that do not depend on CUPTI.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "profiler/device/device_activity.h"
#include "profiler/record.h"

namespace moetune::profiler {

/// The step to convert. Records outside of its time are dropped. It ends when the last of the other
/// records ends, at the earliest at end_ns.
struct StepWindow {
  int32_t step = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::vector<int32_t> ranks = {0};  ///< ranks of this process
};

/// Time lost to one kind of overhead within the step, over all threads.
struct OverheadSum {
  std::string name;
  int64_t count = 0;
  int64_t ns = 0;
};

/// What a trace lacks.
struct RecordingCounts {
  int64_t num_records = 0;           ///< records read from buffers
  int64_t num_dropped = 0;           ///< records lost for lack of buffers
  int64_t num_unknown = 0;           ///< records of kinds that were not requested
  int64_t num_broken_buffers = 0;    ///< buffers whose end could not be read
  int64_t num_untimed = 0;           ///< device work without times
  int64_t num_outside = 0;           ///< records of other steps, or of other processes' ranks
  int64_t num_unlabelled = 0;        ///< device work of no op: kept under its own name
  int64_t num_without_launch = 0;    ///< device work whose call is unknown
  int64_t num_waits = 0;             ///< waits for events
  int64_t num_unresolved_waits = 0;  ///< waits for events with an unknown producer

  /// Events that waits are for may be among what is missing. With all records there, those that
  /// are unknown are of earlier steps, and what they stood for is done.
  [[nodiscard]] bool lacks_records() const { return num_dropped > 0 || num_broken_buffers > 0; }
  /// Those of another step, too; of its waits for unknown events those that may lack something.
  void operator+=(const RecordingCounts& other);
};

/// The same, and what tracing cost.
struct RecordingFacts : RecordingCounts {
  std::vector<OverheadSum> overheads;  ///< longest first
};

/// One sentence on what is missing; empty when the trace is complete.
std::string missing_text(const RecordingCounts& counts);

/// One rank's part of a step. details[i] describes what ran as trace.records[i]: the short name of
/// the (longest) kernel, "copy to_host", ...
struct RankStep {
  StepTrace trace;
  std::vector<std::string> details;
};

struct DeviceStep {
  std::vector<RankStep> ranks;  ///< in the order of StepWindow::ranks
  RecordingFacts facts;
};

/// Rules:
///  - Device work belongs to the op in which its call was made; a graph's node to the op in which
///    it was captured, with the micro-batch (and what else that op left open) of the op that
///    replays. Without one it keeps its own name and goes to the rank that its stream belongs to.
///  - All work of a communication op is one record, from its first start to its last end. Of other
///    ops each kernel, copy and fill is a record of its own under the op's name; flops and bytes
///    stand at the longest kernel. Copies and fills that stay on the device are that op's work;
///    other copies are memcpy records. Unlabelled kernels of NCCL are collectives.
///  - transfer_ns is the whole duration until resolve_transfers (across_ranks.h) has seen the other
///    ranks.
///  - Streams get the numbers that the ops give them; others follow. Ids are in program order.
///    Threads count in the order of their work. Kernel and launch shape are those of the (longest)
///    kernel.
///  - All that a stream was told to wait for, and that ran for the same rank, is a producer.
///  - Launch times are those of the call, for nodes of a graph those of the replay, but never later
///    than the start of the work, which may begin before the call returns.
///  - Synchronisations, and copies whose call returns when they are done, are host_sync records.
DeviceStep convert_step(const DeviceActivities& raw, const OpTable& ops, const GraphLabels& labels,
                        const StepWindow& window);

}  // namespace moetune::profiler
