// The rows and the look-ups of a table that gives the values of an enum their names. Folders above
// engine/spec bind such a table to its enum (engine/spec/names.h); those that may not include it
// have one function in each direction.
#pragma once

#include <optional>
#include <string_view>

namespace moetune::base {

/// A row of the simplest such table. Others may have more columns beside `value` and `name`.
template <class E>
struct Named {
  E value;
  std::string_view name;  ///< in files, options, messages and the store
};

/// The name of a value; "?" for one without a row.
template <class Rows, class E>
constexpr std::string_view name_in(const Rows& rows, E value) {
  for (const auto& row : rows) {
    if (row.value == value) return row.name;
  }
  return "?";
}

/// The value of a name, if there is one.
template <class E, class Rows>
constexpr std::optional<E> find_in(const Rows& rows, std::string_view name) {
  for (const auto& row : rows) {
    if (row.name == name) return row.value;
  }
  return std::nullopt;
}

}  // namespace moetune::base
