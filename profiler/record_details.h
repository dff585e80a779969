// The names of a record's values in exported traces. Used by those that write traces (export/) and
// by the one that reads them back (import/step_traces.h).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "profiler/record.h"

namespace moetune::profiler {

/// The kind of that name; empty if there is none.
std::optional<RecordKind> record_kind_of(std::string_view name);

/// Calls visit(name, field, absent) for each value of a record that is written besides rank, kind,
/// stream, name, start and end. Not written are numbers equal to `absent`, extents that are all 0,
/// empty texts and false.
template <typename Record, typename Visit>
void for_each_detail(Record& record, const Visit& visit) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::min();
  visit("id", record.id, kNever);
  visit("step", record.step, kNever);
  visit("layer", record.layer, int64_t{-1});
  visit("micro_batch", record.micro_batch, int64_t{-1});
  visit("flops", record.flops, int64_t{0});
  visit("bytes", record.bytes, int64_t{0});
  visit("transfer_ns", record.transfer_ns, int64_t{0});
  visit("sequence", record.sequence, int64_t{-1});
  visit("graph_id", record.graph_id, int64_t{0});
  visit("producer_id", record.producer_id, kNoRecord);
  visit("group", record.group, int64_t{0});
  visit("is_recompute", record.is_recompute, int64_t{0});
  visit("launch_start_ns", record.launch_start_ns, int64_t{0});
  visit("launch_end_ns", record.launch_end_ns, int64_t{0});
  visit("thread", record.thread, int64_t{-1});
  visit("device", record.device, int64_t{-1});
  visit("kernel", record.kernel, int64_t{0});
  visit("grid", record.grid, int64_t{0});
  visit("block", record.block, int64_t{0});
  visit("communicator", record.communicator, int64_t{-1});
  visit("peer", record.peer, int64_t{-1});
}

/// The name of a record's end where it lies before its start, which no slice can show.
inline constexpr const char* kDetailOfEnd = "end_ns";
/// Ids of what a record waited for beside its producer_id (StepTrace::further_waits).
inline constexpr const char* kDetailOfFurtherProducers = "further_producer_ids";
/// What our exports say of who wrote them: other writers' records have other names.
inline constexpr const char* kOwnTraceWriter = "moetune 1";
/// The same of traces of other tools that we have written anew.
inline constexpr const char* kImportedTraceWriter = "moetune import 1";
/// Peaks of the device's memory beside that, in bytes: such files have no events of an allocator.
inline constexpr const char* kPeakAllocatedKey = "peak_allocated_bytes";
inline constexpr const char* kPeakReservedKey = "peak_reserved_bytes";
/// Beside the events, by row: process and id of each host thread, one behind the other.
inline constexpr const char* kHostThreadsKey = "hostThreads";

}  // namespace moetune::profiler
