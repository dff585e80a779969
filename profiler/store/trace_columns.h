// The one list of the columns of trace_record. It is used for the shard that ranks write, for the
// blobs of the database (trace_blob.h), and for the temporary table that reports query.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "kernels/base/error.h"
#include "profiler/record.h"
#include "profiler/store/db.h"

namespace moetune::store {

/// All columns, or the first ones, which are all that tables up to version 4 and the first blobs
/// have.
enum class ColumnSet : uint8_t { first, all };

/// Calls visit(column, field) for each column after those of the step, in the table's order.
template <ColumnSet kSet = ColumnSet::all, typename Record, typename Visit>
void for_each_column(Record& record, const Visit& visit) {
  visit("correlationId", record.id);
  visit("kind", record.kind);
  visit("streamId", record.stream);
  visit("name", record.name);
  visit("layer", record.layer);
  visit("micro_batch", record.micro_batch);
  visit("launch_start", record.launch_start_ns);
  visit("launch_end", record.launch_end_ns);
  visit("start", record.start_ns);
  visit("\"end\"", record.end_ns);
  visit("group", record.group);
  visit("bytes", record.bytes);
  visit("flops", record.flops);
  visit("transfer_ns", record.transfer_ns);
  visit("sequence", record.sequence);
  visit("graphId", record.graph_id);
  visit("producer_id", record.producer_id);
  visit("is_recompute", record.is_recompute);
  if constexpr (kSet == ColumnSet::all) {
    visit("thread", record.thread);
    visit("deviceId", record.device);
    visit("demangledName", record.kernel);
    visit("gridX", record.grid[0]);
    visit("gridY", record.grid[1]);
    visit("gridZ", record.grid[2]);
    visit("blockX", record.block[0]);
    visit("blockY", record.block[1]);
    visit("blockZ", record.block[2]);
    visit("communicator", record.communicator);
    visit("peer", record.peer);
  }
}

/// SQL that creates the shard's table trace_record.
std::string create_in_shard();
/// SQL that inserts into the shard's table; parameters: step, rank, the columns.
std::string insert_into_shard();
/// SQL that selects step, rank and the columns of all records, in the order of writing.
std::string select_from_shard();
/// SQL that creates the temporary table trace_record of a connection.
std::string create_unpacked();
/// SQL that inserts into the temporary table; parameters as for the shard's table.
std::string insert_into_unpacked();
/// SQL that selects from the table of databases up to version 4, for their upgrade: the columns of
/// one trial's step on one rank, in program order; texts as ids.
std::string select_from_version_4();

/// Converts a stored kind. Throws base::Error for an unknown one; `where` is the file.
inline profiler::RecordKind checked_kind(int64_t kind, std::string_view where) {
  MOETUNE_CHECK(kind >= 0 && kind <= static_cast<int64_t>(profiler::RecordKind::host_work),
                "{}: the trace is damaged: record kind {}", where, kind);
  return static_cast<profiler::RecordKind>(kind);
}

/// Binds the columns from parameter `first` on. text(field) converts a text to the table's value.
template <ColumnSet kSet = ColumnSet::all, typename Text>
void bind_columns(Statement& statement, int first, const profiler::TraceRecord& record,
                  const Text& text) {
  int index = first;
  for_each_column<kSet>(record, [&](const char*, const auto& field) {
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, base::InternedString>) {
      statement.bind(index++, text(field));
    } else if constexpr (std::is_enum_v<Field>) {
      statement.bind(index++, static_cast<int>(field));
    } else {
      statement.bind(index++, field);
    }
  });
}

/// Reads the columns from `row`, which returns one after another. Throws base::Error for an unknown
/// kind; `where` is the file.
template <ColumnSet kSet = ColumnSet::all, typename Row>
void read_columns(Row& row, std::string_view where, profiler::TraceRecord& record) {
  for_each_column<kSet>(record, [&](const char*, auto& field) {
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, base::InternedString>) {
      field = row.text();
    } else if constexpr (std::is_same_v<Field, profiler::RecordKind>) {
      field = checked_kind(row.integer(), where);
    } else if constexpr (std::is_same_v<Field, bool>) {
      field = row.boolean();
    } else if constexpr (std::is_same_v<Field, int32_t>) {
      field = row.small();
    } else {
      field = row.integer();
    }
  });
}

}  // namespace moetune::store
