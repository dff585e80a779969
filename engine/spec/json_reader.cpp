// Checked access to JSON objects: one place composes the messages for bad input.
#include "engine/spec/json_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/error.h"

namespace moetune::spec {

using base::UsageError;
using nlohmann::json;

namespace {

constexpr size_t kMaxShown = 80;
// Beyond this a document is no longer a configuration; deep nesting also costs stack in recursive
// code.
constexpr int kMaxDepth = 64;

std::string shortened(std::string text) {
  if (text.size() > kMaxShown) {
    text.resize(kMaxShown);
    text += "...";
  }
  return text;
}

bool is_whole(double value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53: every whole number below is exact
  return std::isfinite(value) && std::abs(value) <= kExact && std::floor(value) == value;
}

bool as_integer(const json& value, int64_t& out) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
    out = static_cast<int64_t>(number);
    return true;
  }
  if (value.is_number_integer()) {
    out = value.get<int64_t>();
    return true;
  }
  if (value.is_number_float() && is_whole(value.get<double>())) {
    out = static_cast<int64_t>(value.get<double>());
    return true;
  }
  return false;
}

std::string range_text(const char* kind, double min, double max) {
  return fmt::format("a{} from {:g} to {:g}", kind, min, max);
}

std::string range_text(int64_t min, int64_t max) {
  return fmt::format("an integer from {} to {}", min, max);
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

/// "line 2, column 7" of a byte, counted from 1, in characters.
std::string place_of(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const size_t line_start =
      before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const auto is_first_byte = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return fmt::format("line {}, column {}", std::count(before.begin(), before.end(), '\n') + 1,
                     std::count_if(before.begin() + static_cast<std::ptrdiff_t>(line_start),
                                   before.end(), is_first_byte) +
                         1);
}

/// Part of a document that is not valid, made printable: bytes that are no ASCII text become '?'.
std::string quoted(std::string_view token) {
  std::string text(token.substr(0, kMaxShown + 1));
  for (char& c : text) c = c < 0x20 || c > 0x7E ? '?' : c;
  if (token.size() == 1 && text == "?") {
    return fmt::format("byte 0x{:02X}", static_cast<unsigned char>(token.front()));
  }
  return fmt::format("'{}'", shortened(std::move(text)));
}

/// The part of a document that the parser stopped at, given where it stopped and what it says.
std::string_view offending(std::string_view text, size_t last, std::string_view complaint) {
  const auto is_word = [&](size_t at) {
    constexpr std::string_view kOthers = "+-._";
    const char c = text[at];
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kOthers.find(c) != std::string_view::npos;
  };
  const auto complains = [&](const char* part) {
    return complaint.find(part) != std::string_view::npos;
  };
  size_t first = last;
  size_t end = last + 1;
  if (text[last] == '"' && complains("unexpected string")) {
    first = text.rfind('"', std::max<size_t>(last, 1) - 1);
    if (first == std::string_view::npos) first = last;
  } else if (is_word(last) || complains("invalid literal") || complains("invalid number")) {
    while (first > 0 && is_word(first - 1)) --first;
    while (is_word(end - 1) && end < text.size() && is_word(end)) ++end;
  }
  return text.substr(first, end - first);
}

/// Reads a document without keeping it and throws for what parse_json refuses.
class Checker : public nlohmann::json_sax<json> {
 public:
  Checker(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool string(string_t& value) override {
    if (value.find('\0') != std::string::npos) {
      throw UsageError(
          fmt::format("{}: {}a text holds a NUL character (\\u0000)", source_, where()));
    }
    return true;
  }
  bool key(string_t& name) override {
    string(name);
    Level& level = levels_.back();
    level.key = name;
    if (!level.keys.insert(name).second) {
      throw UsageError(fmt::format("{}: key '{}' is there twice in the same object", source_,
                                   shortened(path())));
    }
    return true;
  }
  bool start_object(size_t /*size*/) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(size_t /*size*/) override { return enter(); }
  bool end_array() override { return leave(); }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const json::exception& error) override {
    constexpr int kNumberTooLarge = 406;
    if (position > text_.size()) {
      throw UsageError(fmt::format("{}: {}: not valid JSON (found the end of the file)", source_,
                                   place_of(text_, text_.size())));
    }
    const std::string_view found =
        offending(text_, std::max<size_t>(position, 1) - 1, error.what());
    throw UsageError(fmt::format("{}: {}: not valid JSON (found {}{})", source_,
                                 place_of(text_, static_cast<size_t>(found.data() - text_.data())),
                                 quoted(found),
                                 error.id == kNumberTooLarge ? ", a number too large" : ""));
  }

 private:
  /// An object or array that is open.
  struct Level {
    std::set<std::string> keys;
    std::string key;
  };

  bool enter() {
    levels_.emplace_back();
    if (levels_.size() <= static_cast<size_t>(kMaxDepth)) return true;
    throw UsageError(fmt::format("{}: JSON nested deeper than {} levels", source_, kMaxDepth));
  }
  bool leave() {
    levels_.pop_back();
    return true;
  }
  [[nodiscard]] std::string path() const {
    std::string path;
    for (const Level& level : levels_) {
      if (level.key.empty()) continue;
      path += (path.empty() ? "" : ".") + level.key;
    }
    return path;
  }
  [[nodiscard]] std::string where() const {
    const std::string at = shortened(path());
    return at.empty() ? "" : fmt::format("key '{}': ", at);
  }

  std::string_view text_;
  const std::string& source_;
  std::vector<Level> levels_;
};

}  // namespace

std::string describe(const json& value) {
  if (value.is_object()) return fmt::format("an object with {} keys", value.size());
  if (value.is_array()) return fmt::format("an array of {} values", value.size());
  return shortened(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  if (name.size() > kMaxShown) return {};
  std::string best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    const size_t allowed = 1 + std::max(name.size(), candidate.size()) / 4;
    if (distance <= allowed && distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

json parse_json(std::string_view text, const std::string& source) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw UsageError(fmt::format("{}: is empty, expected a JSON document", source));
  }
  // The parser would take a NUL for the end of the text and not look at what follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw UsageError(
        fmt::format("{}: {}: not valid JSON (found a NUL byte)", source, place_of(text, nul)));
  }
  Checker checker(text, source);
  json::sax_parse(text.begin(), text.end(), &checker);
  return json::parse(text.begin(), text.end());
}

JsonReader::JsonReader(const json& object, std::string source, std::string path, NullIs null_is)
    : object_(&object), source_(std::move(source)), path_(std::move(path)), null_is_(null_is) {
  if (object.is_object()) return;
  if (path_.empty()) {
    throw UsageError(
        fmt::format("{}: found {}, expected a JSON object", source_, describe(object)));
  }
  throw UsageError(
      fmt::format("{}: key '{}' is {}, expected an object", source_, path_, describe(object)));
}

std::string JsonReader::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

bool JsonReader::has(std::string_view key) const {
  const auto it = object_->find(key);
  return it != object_->end() && !(null_is_ == NullIs::absent && it->is_null());
}

bool JsonReader::is_null(std::string_view key) const {
  const auto it = object_->find(key);
  return it != object_->end() && it->is_null();
}

const json* JsonReader::find(std::string_view key) {
  known_.emplace(key);
  return has(key) ? &*object_->find(key) : nullptr;
}

void JsonReader::fail(std::string_view key, const std::string& expectation) const {
  const auto it = object_->find(key);
  if (it == object_->end()) {
    throw UsageError(
        fmt::format("{}: key '{}' is missing, expected {}", source_, path_of(key), expectation));
  }
  throw UsageError(fmt::format("{}: key '{}' is {}, expected {}", source_, path_of(key),
                               describe(*it), expectation));
}

const json& JsonReader::value(std::string_view key) {
  const json* found = find(key);
  if (found == nullptr) fail(key, "a value");
  return *found;
}

int64_t JsonReader::integer(std::string_view key, int64_t min, int64_t max) {
  const json* found = find(key);
  int64_t number = 0;
  if (found == nullptr || !as_integer(*found, number) || number < min || number > max) {
    fail(key, range_text(min, max));
  }
  return number;
}

uint64_t JsonReader::unsigned_integer(std::string_view key) {
  const json* found = find(key);
  if (found != nullptr && found->is_number_unsigned()) return found->get<uint64_t>();
  // Values made in code are signed unless somebody took care.
  if (found != nullptr && found->is_number_integer() && found->get<int64_t>() >= 0) {
    return static_cast<uint64_t>(found->get<int64_t>());
  }
  fail(key, "an integer from 0 to 2^64-1");
}

double JsonReader::number(std::string_view key, double min, double max) {
  const json* found = find(key);
  if (found == nullptr || !found->is_number()) fail(key, range_text(" number", min, max));
  const auto number = found->get<double>();
  if (!(number >= min && number <= max)) fail(key, range_text(" number", min, max));
  return number;
}

bool JsonReader::boolean(std::string_view key) {
  const json* found = find(key);
  if (found == nullptr || !found->is_boolean()) fail(key, "true or false");
  return found->get<bool>();
}

std::string JsonReader::text(std::string_view key) {
  const json* found = find(key);
  if (found == nullptr || !found->is_string()) fail(key, "a string");
  return found->get<std::string>();
}

std::string JsonReader::choice(std::string_view key, std::span<const std::string_view> allowed) {
  const json* found = find(key);
  if (found != nullptr && found->is_string()) {
    const auto& name = found->get_ref<const std::string&>();
    if (std::find(allowed.begin(), allowed.end(), name) != allowed.end()) return name;
  }
  fail(key, fmt::format("one of \"{}\"", fmt::join(allowed, "\", \"")));
}

std::string JsonReader::choice(std::string_view key,
                               std::initializer_list<std::string_view> allowed) {
  return choice(key, std::span(allowed.begin(), allowed.size()));
}

JsonReader JsonReader::object(std::string_view key) {
  const json* found = find(key);
  if (found == nullptr || !found->is_object()) fail(key, "an object");
  return {*found, source_, path_of(key), null_is_};
}

const json& JsonReader::array(std::string_view key) {
  const json* found = find(key);
  if (found == nullptr || !found->is_array()) fail(key, "an array");
  return *found;
}

std::vector<int64_t> JsonReader::integers(std::string_view key, int64_t min, int64_t max) {
  std::vector<int64_t> numbers;
  for (const json& item : array(key)) {
    int64_t number = 0;
    if (!as_integer(item, number) || number < min || number > max) {
      throw UsageError(fmt::format("{}: key '{}[{}]' is {}, expected {}", source_, path_of(key),
                                   numbers.size(), describe(item), range_text(min, max)));
    }
    numbers.push_back(number);
  }
  return numbers;
}

std::vector<double> JsonReader::numbers(std::string_view key, double min, double max) {
  std::vector<double> numbers;
  for (const json& item : array(key)) {
    const double number =
        item.is_number() ? item.get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!(number >= min && number <= max)) {
      throw UsageError(fmt::format("{}: key '{}[{}]' is {}, expected {}", source_, path_of(key),
                                   numbers.size(), describe(item),
                                   range_text(" number", min, max)));
    }
    numbers.push_back(number);
  }
  return numbers;
}

int64_t JsonReader::integer_or(std::string_view key, int64_t otherwise, int64_t min, int64_t max) {
  return find(key) == nullptr ? otherwise : integer(key, min, max);
}

double JsonReader::number_or(std::string_view key, double otherwise, double min, double max) {
  return find(key) == nullptr ? otherwise : number(key, min, max);
}

bool JsonReader::boolean_or(std::string_view key, bool otherwise) {
  return find(key) == nullptr ? otherwise : boolean(key);
}

std::string JsonReader::text_or(std::string_view key, std::string otherwise) {
  return find(key) == nullptr ? std::move(otherwise) : text(key);
}

void JsonReader::ignore(std::string_view key) { known_.emplace(key); }

void JsonReader::refuse_unknown_keys() const {
  for (const auto& [key, value] : object_->items()) {
    if (known_.contains(key)) continue;
    const std::vector<std::string> names(known_.begin(), known_.end());
    const std::string nearest = nearest_name(key, names);
    const std::string hint = nearest.empty() ? fmt::format("known keys: {}", fmt::join(names, ", "))
                                             : fmt::format("did you mean '{}'?", nearest);
    throw UsageError(fmt::format("{}: unknown key '{}' with value {}; {}", source_,
                                 path_of(shortened(key)), describe(value), hint));
  }
}

}  // namespace moetune::spec
