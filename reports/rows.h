// The answer of one of the report's own queries, in memory, with columns by name.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace moetune::store {
class Database;
}

namespace moetune::reports {

/// NULL, integer, real or text.
using Value = std::variant<std::monostate, int64_t, double, std::string>;

class Rows {
 public:
  Rows() = default;
  /// Runs `sql` with the named parameters (":sweep_id") that it has; the others are ignored.
  Rows(store::Database& database, std::string_view sql,
       const std::map<std::string, Value>& parameters);

  [[nodiscard]] size_t size() const { return rows_.size(); }
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  /// Column number; throws base::Error when the query has no such column.
  [[nodiscard]] size_t column(std::string_view name) const;

  [[nodiscard]] std::optional<int64_t> integer(size_t row, size_t column) const;
  [[nodiscard]] std::optional<double> real(size_t row, size_t column) const;
  [[nodiscard]] std::string text(size_t row, size_t column) const;
  [[nodiscard]] std::optional<int64_t> integer(size_t row, std::string_view name) const {
    return integer(row, column(name));
  }
  [[nodiscard]] std::optional<double> real(size_t row, std::string_view name) const {
    return real(row, column(name));
  }
  [[nodiscard]] std::string text(size_t row, std::string_view name) const {
    return text(row, column(name));
  }

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<Value>> rows_;
};

}  // namespace moetune::reports
