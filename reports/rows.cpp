// Runs a query, and keeps its answer under the names of its columns.
#include "reports/rows.h"

#include <cmath>

#include "kernels/base/error.h"
#include "profiler/store/db.h"

namespace moetune::reports {
namespace {

void bind_value(store::Statement& statement, int index, const Value& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) {
    statement.bind(index, *number);
  } else if (const auto* real = std::get_if<double>(&value)) {
    statement.bind(index, *real);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    statement.bind(index, *text);
  } else {
    statement.bind_null(index);
  }
}

}  // namespace

Rows::Rows(store::Database& database, std::string_view sql,
           const std::map<std::string, Value>& parameters) {
  store::Statement statement(database, sql);
  for (const auto& [name, value] : parameters) {
    if (const int index = statement.parameter_index(name); index > 0) {
      bind_value(statement, index, value);
    }
  }
  const int num_columns = statement.num_columns();
  for (int c = 0; c < num_columns; ++c) {
    columns_.push_back(statement.column_name(c));
  }
  while (statement.step()) {
    std::vector<Value>& row = rows_.emplace_back();
    for (int c = 0; c < num_columns; ++c) {
      switch (statement.type(c)) {
        case store::ValueType::integer:
          row.emplace_back(statement.get_int(c));
          break;
        case store::ValueType::real:
          row.emplace_back(statement.get_double(c));
          break;
        case store::ValueType::text:
        case store::ValueType::blob:
          row.emplace_back(statement.get_text(c));
          break;
        case store::ValueType::null:
          row.emplace_back();
          break;
      }
    }
  }
}

size_t Rows::column(std::string_view name) const {
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c] == name) {
      return c;
    }
  }
  throw base::Error(fmt::format("a query of the report has no column '{}'", name));
}

std::optional<int64_t> Rows::integer(size_t row, size_t column) const {
  const Value& value = rows_.at(row).at(column);
  if (const auto* number = std::get_if<int64_t>(&value)) {
    return *number;
  }
  if (const auto* number = std::get_if<double>(&value);
      number != nullptr && std::abs(*number) < 9e18) {
    return std::llround(*number);
  }
  return std::nullopt;
}

std::optional<double> Rows::real(size_t row, size_t column) const {
  const Value& value = rows_.at(row).at(column);
  if (const auto* number = std::get_if<double>(&value);
      number != nullptr && std::isfinite(*number)) {
    return *number;
  }
  if (const auto* number = std::get_if<int64_t>(&value)) {
    return static_cast<double>(*number);
  }
  return std::nullopt;
}

std::string Rows::text(size_t row, size_t column) const {
  const auto* text = std::get_if<std::string>(&rows_.at(row).at(column));
  return text == nullptr ? std::string() : *text;
}

}  // namespace moetune::reports
