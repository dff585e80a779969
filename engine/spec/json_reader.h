// Checked access to one JSON object. Every file that a person writes is read through this, so that
// a wrong type, a number out of range, a missing or a misspelt key gives the same kind of message:
// file, key, value found, what would be right.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/names.h"

namespace moetune::spec {

/// Hugging Face configs write null for "not set"; our own formats do not, there null is a wrong
/// type.
enum class NullIs : uint8_t { wrong_type, absent };

/// Reads one object and remembers which keys were asked for. All members throw base::UsageError.
class JsonReader {
 public:
  /// `source` names the file; `path` is the dotted path of this object within it, empty for the
  /// root. Keeps a reference: `object` must outlive the reader. Throws when it is not an object.
  JsonReader(const nlohmann::json& object, std::string source, std::string path = "",
             NullIs null_is = NullIs::wrong_type);

  [[nodiscard]] bool has(std::string_view key) const;
  /// The key is there and its value is null.
  [[nodiscard]] bool is_null(std::string_view key) const;

  /// Required values; limits are inclusive. Whole numbers written as 4.0 are accepted as integers.
  int64_t integer(std::string_view key, int64_t min, int64_t max);
  double number(std::string_view key, double min, double max);
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
  bool boolean_or(std::string_view key, bool otherwise);
  std::string text_or(std::string_view key, std::string otherwise);
  template <HasNames E>
  E choice_or(std::string_view key, E otherwise, const std::vector<E>& allowed) {
    ignore(key);
    return has(key) ? choice(key, allowed) : otherwise;
  }

  /// Marks a key as known without reading it.
  void ignore(std::string_view key);
  /// Throws for the first key that nobody asked for, with the nearest known one.
  void refuse_unknown_keys() const;

  /// Throws "<source>: key '<path>' is <value found>, expected <expectation>".
  [[noreturn]] void fail(std::string_view key, const std::string& expectation) const;

  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] std::string path_of(std::string_view key) const;

 private:
  const nlohmann::json* find(std::string_view key);

  const nlohmann::json* object_;
  std::string source_;
  std::string path_;
  NullIs null_is_;
  std::set<std::string, std::less<>> known_;
};

/// Short text of a value for messages: at most a line, never a whole document.
std::string describe(const nlohmann::json& value);

/// The name most like `name`, for "did you mean"; empty when none is near.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

/// Parses a document. A syntax error becomes a base::UsageError with line and column (in
/// characters); also refused: a key twice in one object, NUL characters, deep nesting.
nlohmann::json parse_json(std::string_view text, const std::string& source);

}  // namespace moetune::spec
