#include "sweeps/planning/row_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "kernels/base/error.h"
#include "sweeps/planning/row_words.h"

namespace moetune::sweeps {

using nlohmann::json;

namespace {

/// Whether it is a way to write that nothing is stated. A list is a statement, also without
/// members, but for one within an object of which nothing else is one.
bool says_nothing(const json& value) {
  if (value.is_null()) return true;
  if (value.is_string()) return is_unknown_word(value.get_ref<const std::string&>());
  return value.is_object() && std::ranges::all_of(value, [](const json& part) {
           return says_nothing(part) || (part.is_array() && part.empty());
         });
}

/// Of a text that is nothing else; -1 for other values.
int64_t whole_number_in(const json& value) {
  if (!value.is_string()) return -1;
  const auto& text = value.get_ref<const std::string&>();
  int64_t number = -1;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  return read.ec == std::errc() && read.ptr == end ? number : -1;
}

[[noreturn]] void fail_in_row(const char* key, const std::string& expected) {
  throw base::UsageError(fmt::format("'{}' is not {}", key, expected));
}

}  // namespace

bool RowReader::has(const char* key) const {
  if (asked_ != nullptr) asked_->insert(path_ + key);
  const auto found = row_.find(key);
  return found != row_.end() && !says_nothing(*found);
}

std::string RowReader::text(const char* key, std::string otherwise) const {
  if (!has(key)) return otherwise;
  if (!at(key).is_string()) fail_in_row(key, "a text");
  return at(key).get<std::string>();
}

int64_t RowReader::integer(const char* key, int64_t otherwise, int64_t min) const {
  if (!has(key)) return otherwise;
  constexpr int64_t kMost = int64_t{1} << 28;
  const json& value = at(key);
  const double number =
      value.is_number() ? value.get<double>() : static_cast<double>(whole_number_in(value));
  if (number < static_cast<double>(min) || number > static_cast<double>(kMost) ||
      number != static_cast<double>(static_cast<int64_t>(number))) {
    fail_in_row(key, fmt::format("a whole number from {} to {}", min, kMost));
  }
  return static_cast<int64_t>(number);
}

int32_t RowReader::size(const char* key, int32_t otherwise) const {
  const int64_t value = integer(key, otherwise);
  constexpr int64_t kMost = 1 << 20;
  if (value > kMost) fail_in_row(key, fmt::format("at most {}", kMost));
  return static_cast<int32_t>(value);
}

std::optional<double> RowReader::number(const char* key) const {
  if (!has(key)) return std::nullopt;
  const json& value = at(key);
  if (!value.is_number() || !(value.get<double>() >= 0) || value.get<double>() > 1e18) {
    fail_in_row(key, "a number from 0 to 1e18");
  }
  return value.get<double>();
}

std::string RowReader::word(const char* key) const {
  if (!has(key)) return {};
  return at(key).is_string() ? at(key).get<std::string>() : at(key).dump();
}

std::vector<std::string> RowReader::words(const char* key) const {
  if (!has(key) || !at(key).is_string()) return texts(key);
  constexpr std::string_view kBetween = ", +;\t";
  const std::string text = at(key).get<std::string>();
  std::vector<std::string> parts;
  for (size_t first = text.find_first_not_of(kBetween); first != std::string::npos;) {
    const size_t last = text.find_first_of(kBetween, first);
    parts.push_back(text.substr(first, last - first));
    first = last == std::string::npos ? last : text.find_first_not_of(kBetween, last);
  }
  return parts;
}

bool RowReader::is_true(const char* key) const {
  return has(key) && at(key).is_boolean() && at(key).get<bool>();
}

RowReader RowReader::object(const char* key) const {
  static const json kNothing = json::object();
  const json& found = has(key) && at(key).is_object() ? at(key) : kNothing;
  return RowReader(found, asked_, fmt::format("{}{}.", path_, key));
}

std::vector<RowReader> RowReader::objects(const char* key) const {
  std::vector<RowReader> result;
  if (!has(key) || !at(key).is_array()) return result;
  for (const json& value : at(key)) {
    if (value.is_object()) result.emplace_back(value, asked_, fmt::format("{}{}[].", path_, key));
  }
  return result;
}

std::vector<std::string> RowReader::texts(const char* key) const {
  std::vector<std::string> result;
  if (!has(key) || !at(key).is_array()) return result;
  for (const json& value : at(key)) {
    if (value.is_string()) result.push_back(value.get<std::string>());
  }
  return result;
}

}  // namespace moetune::sweeps
