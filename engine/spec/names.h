// Enums by name: one table each, which parsing, printing and messages share.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace moetune::spec {

/// A row of the simplest such table. Others may have more columns beside `value` and `name`.
template <class E>
struct Named {
  E value;
  std::string_view name;  ///< in files, options, messages and the store
};

/// Where the table of E is: specialised beside each enum, with the rows in `kRows`, in the order
/// in which messages list them.
template <class E>
struct NameTable;

template <class E>
concept HasNames = requires {
  NameTable<E>::kRows;
};

/// The name of a value; "?" for one without a row.
template <HasNames E>
constexpr std::string_view name_of(E value) {
  for (const auto& row : NameTable<E>::kRows) {
    if (row.value == value) return row.name;
  }
  return "?";
}

/// The value of a name, if there is one.
template <HasNames E>
constexpr std::optional<E> find_by_name(std::string_view name) {
  for (const auto& row : NameTable<E>::kRows) {
    if (row.name == name) return row.value;
  }
  return std::nullopt;
}

/// All values, in table order.
template <HasNames E>
std::vector<E> all_values() {
  std::vector<E> values;
  for (const auto& row : NameTable<E>::kRows) values.push_back(row.value);
  return values;
}

}  // namespace moetune::spec
