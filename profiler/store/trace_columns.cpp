#include "profiler/store/trace_columns.h"

#include <fmt/format.h>

namespace moetune::store {
namespace {

/// The columns by `name_of` (column, whether it is a text), with commas.
template <ColumnSet kSet = ColumnSet::all, typename Name>
std::string columns(const Name& name_of) {
  std::string list;
  const profiler::TraceRecord record;
  for_each_column<kSet>(record, [&](const char* column, const auto& field) {
    constexpr bool kIsText = std::is_same_v<std::decay_t<decltype(field)>, base::InternedString>;
    list += (list.empty() ? "" : ", ") + name_of(column, kIsText);
  });
  return list;
}

std::string in_shard(const char* column, bool /*is_text*/) {
  return std::string_view(column) == "group" ? "group_name" : column;
}

std::string declared_in_shard(const char* column, bool is_text) {
  return fmt::format("{} {} NOT NULL", in_shard(column, is_text), is_text ? "TEXT" : "INTEGER");
}

std::string parameter(const char* /*column*/, bool /*is_text*/) { return "?"; }

}  // namespace

std::string create_in_shard() {
  return fmt::format(
      "CREATE TABLE trace_record (step INTEGER NOT NULL, rank INTEGER NOT NULL, {}) STRICT",
      columns(declared_in_shard));
}

std::string insert_into_shard() {
  return fmt::format("INSERT INTO trace_record (step, rank, {}) VALUES (?, ?, {})",
                     columns(in_shard), columns(parameter));
}

std::string select_from_shard() {
  return fmt::format("SELECT step, rank, {} FROM trace_record ORDER BY rowid", columns(in_shard));
}

std::string create_unpacked() {
  return fmt::format("CREATE TEMP TABLE IF NOT EXISTS trace_record (step, rank, {})",
                     columns(in_shard));
}

std::string insert_into_unpacked() {
  return fmt::format("INSERT INTO temp.trace_record (step, rank, {}) VALUES (?, ?, {})",
                     columns(in_shard), columns(parameter));
}

std::string select_from_version_4() {
  // A text's table is joined under its column's name.
  const std::string texts = columns<ColumnSet::first>([](const char* column, bool is_text) {
    return is_text ? fmt::format("{0}_text.value", column) : std::string(column);
  });
  return fmt::format(
      "SELECT {} FROM main.trace_record JOIN StringIds name_text ON name_text.id = nameId "
      "JOIN StringIds group_text ON group_text.id = groupId "
      "WHERE trial_id = ? AND step = ? AND rank = ? ORDER BY correlationId",
      texts);
}

}  // namespace moetune::store
