// Enums by name: one table each, which parsing, printing and messages share.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "kernels/base/names.h"

namespace moetune::spec {

using base::Named;

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
  return base::name_in(NameTable<E>::kRows, value);
}

/// The value of a name, if there is one.
template <HasNames E>
constexpr std::optional<E> find_by_name(std::string_view name) {
  return base::find_in<E>(NameTable<E>::kRows, name);
}

/// All values, in table order.
template <HasNames E>
std::vector<E> all_values() {
  std::vector<E> values;
  for (const auto& row : NameTable<E>::kRows) values.push_back(row.value);
  return values;
}

}  // namespace moetune::spec
