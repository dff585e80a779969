#include "profiler/import/foreign_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "kernels/base/error.h"
#include "profiler/import/shown_text.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {
namespace {

constexpr int64_t kFreeTextBytes = int64_t{64} << 20;
constexpr std::string_view kRowid = "rowid";

/// Of a table whose definition a person or program wrote in the usual way.
bool is_plain_table(std::string_view definition) {
  constexpr std::string_view kCreate = "create table";
  if (definition.size() < kCreate.size()) return false;
  for (size_t i = 0; i < kCreate.size(); ++i) {
    if ((definition[i] | 0x20) != kCreate[i]) return false;
  }
  return true;
}

}  // namespace

TableRows::TableRows(ForeignTables& tables, std::string name, std::vector<std::string> columns,
                     std::vector<bool> has, const std::string& sql)
    : tables_(tables),
      name_(std::move(name)),
      columns_(std::move(columns)),
      has_(std::move(has)),
      statement_(tables.database_, sql) {}

bool TableRows::next() {
  ++row_;
  return statement_.step();
}

void TableRows::refuse(int column, const char* expected) {
  throw base::UsageError(fmt::format("{}: {}, row {}: {} is '{}', expected {}", tables_.path(),
                                     name_, row_, columns_[static_cast<size_t>(column)],
                                     shown_text(statement_.text_view(column), 40), expected));
}

std::optional<int64_t> TableRows::whole(int column) {
  switch (statement_.type(column)) {
    case store::ValueType::integer:
      return statement_.get_int(column);
    case store::ValueType::null:
      return std::nullopt;
    case store::ValueType::real:
    case store::ValueType::text:
    case store::ValueType::blob:
      break;
  }
  refuse(column, "a whole number of 64 bits");
}

std::optional<int64_t> TableRows::time_ns(int column) {
  const std::optional<int64_t> ns = whole(column);
  if (ns && (*ns > kMostImportedNs || *ns < -kMostImportedNs))
    refuse(column, "nanoseconds below 2^61");
  return ns;
}

std::string_view TableRows::text(int column) {
  const std::string_view text = statement_.text_view(column);
  tables_.count_text(text.size());
  return text;
}

ForeignTables::ForeignTables(const std::string& path)
    : database_(path, store::OpenMode::foreign),
      // Every text is read once, or twice.
      text_bytes_left_(2 * database_.file_bytes() + kFreeTextBytes) {
  store::Statement list(database_, "select name, sql from sqlite_master");
  while (list.step()) {
    (is_plain_table(list.text_view(1)) ? tables_ : others_).insert(list.get_text(0));
  }
}

std::set<std::string> ForeignTables::columns_of(const std::string& table) {
  std::set<std::string> columns;
  store::Statement list(database_, "select name from pragma_table_info(?)");
  list.bind(1, table);
  while (list.step()) columns.insert(list.get_text(0));
  return columns;
}

std::optional<TableRows> ForeignTables::rows(const std::string& table,
                                             std::initializer_list<const char*> columns,
                                             size_t num_needed, std::string_view condition) {
  if (!has(table)) {
    if (others_.contains(table)) lacks_.push_back(table + " is no plain table, so it was not read");
    return std::nullopt;
  }
  const std::set<std::string> known = columns_of(table);
  std::vector<std::string> names;
  std::vector<bool> is_there;
  std::vector<std::string> missing;
  std::string list;
  bool is_usable = true;
  for (const std::string column : columns) {
    const bool has = known.contains(column) || column == kRowid;
    if (!has) missing.push_back(column);
    is_usable = is_usable && (has || names.size() >= num_needed);
    list += fmt::format("{}{}", list.empty() ? "" : ", ",
                        !has               ? "NULL"
                        : column == kRowid ? column
                                           : '"' + column + '"');
    names.push_back(column);
    is_there.push_back(has);
  }
  if (!missing.empty()) {
    lacks_.push_back(fmt::format("{} has no column {}{}", table, fmt::join(missing, ", "),
                                 is_usable ? "" : ", so it was not read"));
  }
  if (!is_usable) return std::nullopt;
  return TableRows(*this, table, std::move(names), std::move(is_there),
                   fmt::format("select {} from \"{}\"{}{}", list, table,
                               condition.empty() ? "" : " where ", condition));
}

void ForeignTables::count_text(size_t bytes) {
  text_bytes_left_ -= static_cast<int64_t>(bytes);
  if (text_bytes_left_ < 0) {
    throw base::UsageError(
        fmt::format("{}: is damaged: its texts are longer than the file", path()));
  }
}

}  // namespace moetune::profiler
