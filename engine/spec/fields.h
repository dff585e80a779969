// Field tables: the keys of a struct's JSON form, one row each. Reading, writing, the JSON Schema
// and the page of formats are derived from the rows.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/spec/json_reader.h"
#include "engine/spec/names.h"
#include "engine/spec/problems.h"

namespace moetune::spec {

enum class FieldKind : uint8_t {
  integer,
  number,
  boolean,
  text,
  choice,
  numbers,  ///< a list
  texts,    ///< a list
  object,   ///< with rows of its own
  model,    ///< a model: an object, a path or a name
  hardware,
  knobs,        ///< knob name -> value
  space,        ///< knob name -> list of values
  settings,     ///< names that another program knows -> list of values
  texts_by_key  ///< a key of the same file -> a text
};

/// One row: how T's value under a key is read and written.
template <class T>
struct Field {
  FieldInfo info;
  FieldKind kind;
  void (*read)(JsonReader&, const FieldInfo&, T&);
  nlohmann::json (*write)(const T&);
  /// Names of a choice; null for others.
  std::vector<std::string_view> (*choices)();
  /// Rows of an object, with the defaults that it has in a T; null for others.
  std::vector<struct FieldPage> (*children)(const T& defaults);
};

/// A row without its type: for the schema and the page.
struct FieldPage {
  FieldInfo info;
  FieldKind kind;
  nlohmann::json default_value;
  std::vector<std::string_view> choices;
  std::vector<FieldPage> children;
  std::string default_text{};  ///< where the default is no single value
};

namespace detail {

template <class>
struct MemberOf;
template <class Owner_, class Value_>
struct MemberOf<Value_ Owner_::*> {
  using Owner = Owner_;
  using Value = Value_;
};

template <class Value>
constexpr FieldKind kind_of() {
  if constexpr (std::is_same_v<Value, bool>) {
    return FieldKind::boolean;
  } else if constexpr (std::is_integral_v<Value>) {
    return FieldKind::integer;
  } else if constexpr (std::is_floating_point_v<Value>) {
    return FieldKind::number;
  } else if constexpr (HasNames<Value>) {
    return FieldKind::choice;
  } else if constexpr (std::is_same_v<Value, std::string>) {
    return FieldKind::text;
  } else {
    static_assert(std::is_same_v<Value, std::vector<double>>);
    return FieldKind::numbers;
  }
}

template <class Value>
void read_value(JsonReader& reader, const FieldInfo& info, Value& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    value = reader.boolean(info.key);
  } else if constexpr (std::is_same_v<Value, uint64_t>) {
    value = reader.unsigned_integer(info.key);
  } else if constexpr (std::is_integral_v<Value>) {
    value = reader.integer(info);
  } else if constexpr (std::is_floating_point_v<Value>) {
    value = reader.number(info);
  } else if constexpr (HasNames<Value>) {
    value = reader.choice(info.key, all_values<Value>());
  } else if constexpr (std::is_same_v<Value, std::string>) {
    value = reader.text(info.key);
  } else {
    value = reader.numbers(info.key, info.limits.min, info.limits.max);
  }
}

template <class Value>
nlohmann::json written(const Value& value) {
  if constexpr (HasNames<Value>) {
    return std::string(name_of(value));
  } else {
    return value;
  }
}

template <class Value>
std::vector<std::string_view> names_of() {
  std::vector<std::string_view> names;
  for (const Value value : all_values<Value>()) names.push_back(name_of(value));
  return names;
}

template <class Value>
constexpr auto choices_of() -> std::vector<std::string_view> (*)() {
  if constexpr (HasNames<Value>) {
    return &names_of<Value>;
  } else {
    return nullptr;
  }
}

}  // namespace detail

/// Reads the keys of `rows` into `value`; those that are absent leave it as it is. What cannot be
/// read is kept in `problems`. A required key that the file has with another unit, such as
/// latency_us, is left to refuse_unknown_keys, which tells what to write: it is one mistake.
template <class T>
void read_fields(JsonReader& reader, std::span<const Field<T>> rows, T& value, Problems& problems) {
  for (const Field<T>& row : rows) reader.ignore(row.info.key);
  for (const Field<T>& row : rows) {
    const bool is_left_out =
        row.info.presence != Presence::required || reader.has_in_other_unit(row.info.key);
    if (!reader.has(row.info.key) && is_left_out) continue;
    problems.attempt([&] { row.read(reader, row.info, value); });
  }
}

/// The JSON form: all rows but those that are written only where they differ from `defaults`.
template <class T>
nlohmann::json write_fields(std::span<const Field<T>> rows, const T& value,
                            const T& defaults = {}) {
  nlohmann::json document = nlohmann::json::object();
  for (const Field<T>& row : rows) {
    nlohmann::json written = row.write(value);
    if (row.info.presence == Presence::written_if_set && written == row.write(defaults)) continue;
    document[std::string(row.info.key)] = std::move(written);
  }
  return document;
}

template <class T>
std::vector<FieldPage> pages_of(std::span<const Field<T>> rows, const T& defaults) {
  std::vector<FieldPage> pages;
  for (const Field<T>& row : rows) {
    FieldPage page{row.info, row.kind, {}, {}, {}};
    if (row.info.presence != Presence::required) page.default_value = row.write(defaults);
    if (row.choices != nullptr) page.choices = row.choices();
    if (row.children != nullptr) page.children = row.children(defaults);
    pages.push_back(std::move(page));
  }
  return pages;
}

/// A member that is a number, a text, a choice or a list of numbers.
template <auto Member>
constexpr auto field(FieldInfo info) {
  using Owner = typename detail::MemberOf<decltype(Member)>::Owner;
  using Value = typename detail::MemberOf<decltype(Member)>::Value;
  return Field<Owner>{info,
                      detail::kind_of<Value>(),
                      [](JsonReader& reader, const FieldInfo& row, Owner& owner) {
                        detail::read_value(reader, row, owner.*Member);
                      },
                      [](const Owner& owner) { return detail::written(owner.*Member); },
                      detail::choices_of<Value>(),
                      nullptr};
}

/// An entry of an array, under a key of its own.
template <class Array, size_t Index>
constexpr Field<Array> element(FieldInfo info) {
  using Value = typename Array::value_type;
  return Field<Array>{info,
                      detail::kind_of<Value>(),
                      [](JsonReader& reader, const FieldInfo& row, Array& array) {
                        detail::read_value(reader, row, array[Index]);
                      },
                      [](const Array& array) { return detail::written(array[Index]); },
                      nullptr,
                      nullptr};
}

/// A member that is an object with the rows that `Rows()` gives.
template <auto Member, auto Rows>
constexpr auto object_field(FieldInfo info) {
  using Owner = typename detail::MemberOf<decltype(Member)>::Owner;
  return Field<Owner>{info,
                      FieldKind::object,
                      [](JsonReader& reader, const FieldInfo& row, Owner& owner) {
                        JsonReader object = reader.object(row.key);
                        Problems problems;
                        read_fields(object, Rows(), owner.*Member, problems);
                        problems.attempt([&] { object.refuse_unknown_keys(); });
                        problems.throw_if_any();
                      },
                      [](const Owner& owner) {
                        const Owner defaults{};
                        return write_fields(Rows(), owner.*Member, defaults.*Member);
                      },
                      nullptr,
                      [](const Owner& defaults) { return pages_of(Rows(), defaults.*Member); }};
}

/// Adds to `problems` the numbers that no real machine has, with what was likely meant. `written`
/// is the JSON form of what was read.
void check_plausible(const Source& source, const std::vector<FieldPage>& pages,
                     const nlohmann::json& written, Problems& problems,
                     const std::string& path = "");

/// The JSON Schema (draft 2020-12) of an object with these rows, without "$schema".
nlohmann::json schema_of(const std::vector<FieldPage>& pages);

/// A markdown table of the rows: key, type, default, range, meaning; objects' rows follow theirs,
/// their keys dotted.
std::string markdown_of(const std::vector<FieldPage>& pages);

}  // namespace moetune::spec
