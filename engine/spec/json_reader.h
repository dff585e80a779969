// Checked access to one JSON object. Every file that a person writes is read through this, so that
// a wrong type, a number out of range, a missing or a misspelt key gives the same kind of message:
// file, key, value found, what would be right.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/document.h"
#include "engine/spec/names.h"
#include "engine/spec/quantity.h"

namespace moetune::spec {

/// Hugging Face configs write null for "not set"; our own formats do not, there null is a wrong
/// type.
enum class NullIs : uint8_t { wrong_type, absent };

/// A number with these limits is refused outside of them, both inclusive.
struct Limits {
  double min = 0;
  double max = 0;
};

enum class Presence : uint8_t {
  optional,
  required,
  written_if_set  ///< optional, and left out of what is written where it is the default
};

/// What one key of a file holds. Reading, the schema and the page of formats come from it.
struct FieldInfo {
  std::string_view key;
  Quantity quantity = Quantity::count;
  Limits limits{};  ///< of numbers
  std::string_view help;
  Presence presence = Presence::optional;
  /// Where any real machine's value lies; {0, 0}: anywhere within the limits.
  Limits plausible{};

  constexpr operator std::string_view() const {
    return key;
  }  // NOLINT(google-explicit-constructor)
};

/// What keys that nobody asked for may be, beside misspelt ones. Both may be null, and give an
/// empty text for a key of which they know nothing.
struct OtherKeys {
  std::string (*meant)(std::string_view key) = nullptr;   ///< the key that has another name here
  std::string (*reason)(std::string_view key) = nullptr;  ///< why a key of other files is none here
};

/// Reads one object and remembers which keys were asked for. All members throw base::UsageError.
class JsonReader {
 public:
  /// `source` names the file; `path` is the dotted path of this object within it, empty for the
  /// root. Keeps a reference: `object` must outlive the reader. Throws when it is not an object.
  JsonReader(const nlohmann::json& object, Source source, std::string path = "",
             NullIs null_is = NullIs::wrong_type);

  [[nodiscard]] bool has(std::string_view key) const;
  /// Of the keys that nobody asked for one is this in another unit: refuse_unknown_keys says so.
  [[nodiscard]] bool has_in_other_unit(std::string_view key) const;
  /// The key is there and its value is null.
  [[nodiscard]] bool is_null(std::string_view key) const;

  /// Required values; limits are inclusive. Whole numbers written as 4.0 are accepted as integers.
  int64_t integer(std::string_view key, int64_t min, int64_t max);
  double number(std::string_view key, double min, double max);
  /// The same by a row of a table, which may allow texts with a unit, such as "80GB".
  int64_t integer(const FieldInfo& field);
  double number(const FieldInfo& field);
  bool boolean(std::string_view key);
  std::string text(std::string_view key);
  std::string choice(std::string_view key, std::span<const std::string_view> allowed);
  std::string choice(std::string_view key, std::initializer_list<std::string_view> allowed);
  /// The value of which the key has the name; a message lists those of `allowed`.
  template <HasNames E>
  E choice(std::string_view key, const std::vector<E>& allowed) {
    std::vector<std::string_view> names;
    for (const E value : allowed) names.push_back(name_of(value));
    return *find_by_name<E>(choice(key, std::span<const std::string_view>(names)));
  }
  JsonReader object(std::string_view key);
  const nlohmann::json& array(std::string_view key);
  std::vector<int64_t> integers(std::string_view key, int64_t min, int64_t max);
  std::vector<double> numbers(std::string_view key, double min, double max);
  uint64_t unsigned_integer(std::string_view key);
  /// The raw value of a required key.
  const nlohmann::json& value(std::string_view key);

  /// Optional values: the default when the key is absent.
  int64_t integer_or(std::string_view key, int64_t otherwise, int64_t min, int64_t max);
  double number_or(std::string_view key, double otherwise, double min, double max);
  int64_t integer_or(const FieldInfo& field, int64_t otherwise);
  double number_or(const FieldInfo& field, double otherwise);
  bool boolean_or(std::string_view key, bool otherwise);
  std::string text_or(std::string_view key, std::string otherwise);
  template <HasNames E>
  E choice_or(std::string_view key, E otherwise, const std::vector<E>& allowed) {
    ignore(key);
    return has(key) ? choice(key, allowed) : otherwise;
  }

  /// Marks a key as known without reading it.
  void ignore(std::string_view key);
  /// Throws for the keys that nobody asked for, with the known one that each was likely meant for.
  void refuse_unknown_keys(const OtherKeys& others = {}) const;

  /// Throws "<source>: key '<path>' is <value found>, expected <expectation>".
  [[noreturn]] void fail(std::string_view key, const std::string& expectation) const;

  /// Throws "<source>: key '<path>': <message>".
  [[noreturn]] void refuse(std::string_view key, const std::string& message) const;

  [[nodiscard]] const std::string& source() const { return source_.name(); }
  /// Of the value under a key, for readers of its own.
  [[nodiscard]] Source source_of(std::string_view key) const {
    return source_.within(path_of(key));
  }
  [[nodiscard]] std::string path_of(std::string_view key) const;

 private:
  const nlohmann::json* find(std::string_view key);
  /// Of a number that may have a unit; none when it is neither.
  std::optional<double> quantity(const FieldInfo& field);
  [[noreturn]] void fail_quantity(const FieldInfo& field, std::string expectation) const;
  /// "FILE: line 3: key 'a.b'".
  [[nodiscard]] std::string place(std::string_view key) const;

  const nlohmann::json* object_;
  Source source_;
  std::string path_;
  NullIs null_is_;
  std::set<std::string, std::less<>> known_;
};

/// The name most like `name`, for "did you mean"; empty when none is near.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

}  // namespace moetune::spec
