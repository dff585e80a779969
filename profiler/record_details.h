// The names that exported traces give to what they tell of a record, spelled once for those who
// write them (export/) and who read them back (import/step_traces.h).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "profiler/record.h"

namespace moetune::profiler {

/// Nothing for what is no name of a kind.
std::optional<RecordKind> record_kind_of(std::string_view name);

/// What is told beside a record's rank, kind, stream, name, start and end: calls
/// visit(name, field, absent) for each; a number that is `absent`, an empty text and false are left
/// out.
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
}

/// The name of a record's end where it lies before its start, which no slice can show.
inline constexpr const char* kDetailOfEnd = "end_ns";
/// What our exports say of who wrote them: other writers' records have other names.
inline constexpr const char* kOwnTraceWriter = "moetune 1";
/// The same of traces of other tools that we have written anew.
inline constexpr const char* kImportedTraceWriter = "moetune import 1";

}  // namespace moetune::profiler
