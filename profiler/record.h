// The one trace schema. Every recorder (CPU in virtual time, CUPTI, importers of other tools'
// traces) produces these records; stores, exports and replays read them. Importers come to them by
// way of imported_trace.h, which holds files as they are. Times are nanoseconds on the rank's
// clock; ids are unique per rank and step.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/interned_string.h"
#include "kernels/base/utf8.h"

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
  bool is_recompute = false;
  /// An importer has inferred producer_id from the order of calls. Stores do not keep it: replays
  /// read it, and traces of other tools are replayed only when they are imported
  /// (analysis/imported_replay.h). Our own recorders never set it.
  bool is_producer_inferred = false;
  /// A kernel of another tool's trace that works on experts' rows (analysis/expert_kernels.h). Not
  /// stored either.
  bool is_of_experts = false;
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
  int64_t transfer_ns = 0;  ///< communication: the part after all participants had arrived
  int64_t sequence = -1;    ///< communication: instance number within the group
  int32_t graph_id = 0;     ///< graph scope that replayed it, 0 for a plain launch
  int32_t peer = -1;        ///< messages: rank of the other side; -1: none or unknown
  /// Latest-ending record that its stream had to wait for; others: StepTrace::further_waits.
  int64_t producer_id = kNoRecord;
  /// Host thread that launched it, counted from 0 within the process or file; -1: unknown.
  int32_t thread = -1;
  int32_t device = -1;  ///< number that its device has on its host; -1: unknown, or on the host
  /// Full name of the device function; empty: unknown, or as `name` (kernel_name_of).
  base::InternedString kernel;
  std::array<int32_t, 3> grid = {};   ///< kernels: blocks; 0: unknown
  std::array<int32_t, 3> block = {};  ///< kernels: threads of a block; 0: unknown
  /// Instance of the group: ranks with the same number communicate with each other; -1: unknown.
  int64_t communicator = -1;
};

// A replay holds all records of its step at once.
static_assert(sizeof(TraceRecord) <= 176);

/// What the stream of a record had to wait for beside the record's producer_id.
struct FurtherWait {
  int64_t record_id = kNoRecord;
  int64_t producer_id = kNoRecord;

  auto operator<=>(const FurtherWait&) const = default;
};

/// One traced step of one rank: its window and its records in program order.
struct StepTrace {
  int32_t rank = 0;
  int32_t step = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::vector<TraceRecord> records;
  /// By record, then producer. Few records wait for several others, so these are none of theirs.
  std::vector<FurtherWait> further_waits = {};
};

/// Those of one record.
inline std::span<const FurtherWait> further_waits_of(const StepTrace& trace, int64_t record_id) {
  const std::vector<FurtherWait>& waits = trace.further_waits;
  const auto first = std::ranges::lower_bound(waits, record_id, {}, &FurtherWait::record_id);
  auto last = first;
  while (last != waits.end() && last->record_id == record_id) ++last;
  return {first, last};
}

/// Puts them in order, each once.
inline void sort_further_waits(StepTrace& trace) {
  std::vector<FurtherWait>& waits = trace.further_waits;
  if (!std::ranges::is_sorted(waits)) std::ranges::sort(waits);
  waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
}

/// A rank's communicator of each group, by rank and group; the same map as the analysis takes.
using CommunicatorKeys = std::map<std::pair<int32_t, std::string>, int64_t>;

/// Sets the communicator of records that communicate and have none, as far as it is known.
inline void set_communicators(StepTrace& trace, const CommunicatorKeys& communicators) {
  for (TraceRecord& record : trace.records) {
    if (record.group.empty() || record.communicator >= 0) continue;
    const auto own = communicators.find({record.rank, record.group.text()});
    if (own != communicators.end()) record.communicator = own->second;
  }
}

/// Most bytes that a record keeps of a device function's name: in files they may be megabytes long.
inline constexpr size_t kMostKernelNameBytes = 1000;
/// TraceRecord::kernel of a function that is called `full_name`, in a record called `name`.
inline base::InternedString kernel_name_of(std::string_view full_name, base::InternedString name) {
  const base::InternedString kernel(base::cut_text(full_name, kMostKernelNameBytes));
  return kernel == name ? base::InternedString() : kernel;
}

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
