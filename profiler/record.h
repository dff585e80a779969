// The one trace schema. Every recorder (CPU in virtual time, CUPTI, importers of other tools'
// traces) produces these records and every analysis reads them. Times are nanoseconds on the rank's
// clock; ids are unique per rank and step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/interned_string.h"

namespace moetune::profiler {

enum class RecordKind : uint8_t {
  kernel,      ///< device computation
  collective,  ///< several ranks of a group move data together; `sequence` matches the participants
  p2p,         ///< a send or a receive
  memcpy,      ///< a copy between memories
  host_sync,   ///< the host waits for the device; stream is kHostStream
  host_work,   ///< the host computes something that the device needs; stream is kHostStream
};

constexpr int kHostStream = -1;
constexpr int64_t kNoRecord = -1;

/// One operation on one stream of one rank.
struct TraceRecord {
  int64_t id = 0;  ///< position in the rank's program order within the step
  int32_t rank = 0;
  int32_t step = 0;
  RecordKind kind = RecordKind::kernel;
  int32_t stream = 0;
  base::InternedString name;  ///< op and pass, such as "core_attn.backward"
  int32_t layer = -1;
  int32_t micro_batch = -1;
  int64_t launch_start_ns = 0;  ///< host: when the enqueueing call began
  int64_t launch_end_ns = 0;    ///< host: when it returned; the device cannot start earlier
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  base::InternedString group;  ///< communication: of base::group_rows; else empty
  int64_t bytes = 0;           ///< communication: bytes this rank sent; else bytes read and written
  int64_t flops = 0;
  int64_t transfer_ns = 0;          ///< communication: the part after all participants had arrived
  int64_t sequence = -1;            ///< communication: instance number within the group
  int32_t graph_id = 0;             ///< graph scope that replayed it, 0 for a plain launch
  int64_t producer_id = kNoRecord;  ///< latest-ending record that its stream had to wait for
  bool is_recompute = false;
  /// An importer has inferred producer_id from the order of calls. Stores do not keep it: replays
  /// read it, and traces of other tools are replayed only when they are imported
  /// (analysis/imported_replay.h). Our own recorders never set it.
  bool is_producer_inferred = false;
  /// A kernel of another tool's trace that works on experts' rows (analysis/expert_kernels.h). Not
  /// stored either.
  bool is_of_experts = false;
};

/// One traced step of one rank: its window and its records in program order.
struct StepTrace {
  int32_t rank = 0;
  int32_t step = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::vector<TraceRecord> records;
};

/// A rank's communicator of each group, by rank and group; the same map as the analysis takes.
using CommunicatorKeys = std::map<std::pair<int32_t, std::string>, int64_t>;

const char* name_of(RecordKind kind);

/// To a clock that is so far ahead.
inline void shift(StepTrace& trace, int64_t ns) {
  if (ns == 0) return;
  trace.start_ns += ns;
  trace.end_ns += ns;
  for (TraceRecord& record : trace.records) {
    record.launch_start_ns += ns;
    record.launch_end_ns += ns;
    record.start_ns += ns;
    record.end_ns += ns;
  }
}

}  // namespace moetune::profiler
