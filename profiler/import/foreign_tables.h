// Reads tables of another program's SQLite file by the names of their columns. The file may be of
// any version, lack tables and columns, or be made to do harm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/store/db.h"

namespace moetune::profiler {

class ForeignTables;

/// Iterates over the rows of one table. Columns are numbered from 0, in the order in which they
/// were requested.
class TableRows {
 public:
  bool next();
  [[nodiscard]] bool has(int column) const { return has_[static_cast<size_t>(column)]; }
  /// Empty for NULL and for a column that the table lacks. Throws base::UsageError, which names
  /// file, table, row, column and value, for anything but a 64-bit integer.
  [[nodiscard]] std::optional<int64_t> whole(int column);
  [[nodiscard]] int64_t whole_or(int column, int64_t otherwise) {
    return whole(column).value_or(otherwise);
  }
  /// As whole(), for times in nanoseconds. Also throws for times whose differences could overflow.
  [[nodiscard]] std::optional<int64_t> time_ns(int column);
  /// The unchanged text; empty for NULL. Valid until the next row.
  [[nodiscard]] std::string_view text(int column);

 private:
  friend class ForeignTables;
  TableRows(ForeignTables& tables, std::string name, std::vector<std::string> columns,
            std::vector<bool> has, const std::string& sql);
  [[noreturn]] void refuse(int column, const char* expected);

  ForeignTables& tables_;
  std::string name_;
  std::vector<std::string> columns_;
  std::vector<bool> has_;
  store::Statement statement_;
  int64_t row_ = 0;
};

class ForeignTables {
 public:
  /// Throws base::UsageError if the file is not an SQLite file or cannot be read.
  explicit ForeignTables(const std::string& path);

  /// Only plain tables count: the rows of views and virtual tables are computed, not recorded.
  [[nodiscard]] bool has(std::string_view table) const { return tables_.contains(table); }
  [[nodiscard]] bool has_column(const std::string& table, const std::string& column) {
    return columns_of(table).contains(column);
  }
  /// The rows of a table; empty if the table or one of its first `num_needed` columns is missing.
  /// Adds a sentence to lacks() for anything that is missing. `condition`: SQL after "where", over
  /// needed columns only.
  std::optional<TableRows> rows(const std::string& table,
                                std::initializer_list<const char*> columns, size_t num_needed,
                                std::string_view condition = {});
  /// Calls take(id, text) with the columns `id` and `value` of each row whose id is_wanted()
  /// accepts; texts of other rows are not read. Does nothing if the table or one of the columns is
  /// missing.
  template <typename IsWanted, typename Take>
  void texts_by_id(const std::string& table, const char* id, const char* value,
                   const IsWanted& is_wanted, const Take& take);

  [[nodiscard]] const std::string& path() const { return database_.path(); }
  /// Sentences about requested tables and columns that are missing.
  [[nodiscard]] const std::vector<std::string>& lacks() const { return lacks_; }

 private:
  friend class TableRows;
  [[nodiscard]] std::set<std::string> columns_of(const std::string& table);
  /// Counts bytes of texts and throws if there are too many: a damaged file may link a text to many
  /// rows.
  void count_text(size_t bytes);

  store::Database database_;
  std::set<std::string, std::less<>> tables_;
  std::set<std::string, std::less<>> others_;  // views and the like, which may run for ever
  std::vector<std::string> lacks_;
  int64_t text_bytes_left_ = 0;
};

template <typename IsWanted, typename Take>
void ForeignTables::texts_by_id(const std::string& table, const char* id, const char* value,
                                const IsWanted& is_wanted, const Take& take) {
  if (!rows(table, {id, value}, 2)) return;
  // In two walks: the texts of rows that nobody wants may be megabytes, such as a process's output.
  std::vector<std::pair<int64_t, int64_t>> wanted;  // rowid, id
  {
    std::optional<TableRows> ids = rows(table, {id, "rowid"}, 1);
    while (ids->next()) {
      const std::optional<int64_t> number = ids->whole(0);
      if (number && is_wanted(*number)) wanted.emplace_back(ids->whole_or(1, 0), *number);
    }
  }
  store::Statement text(
      database_, "select \"" + std::string(value) + "\" from \"" + table + "\" where rowid = ?");
  for (const auto& [row, number] : wanted) {
    text.reset();
    text.bind(1, row);
    if (!text.step()) continue;
    const std::string_view view = text.text_view(0);
    count_text(view.size());
    take(number, view);
  }
}

}  // namespace moetune::profiler
