// Checked access to JSON objects: one place composes the messages for bad input.
#include "engine/spec/json_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/spec/problems.h"
#include "kernels/base/error.h"
#include "kernels/base/utf8.h"

namespace moetune::spec {

using base::UsageError;
using nlohmann::json;

namespace {

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

/// What is counted, in small letters and without the word for it that the unit says as well:
/// "memory" of "Memory_bandwidth" in GB/s.
std::string counted(const UnitSuffix& suffix) {
  std::string stem(suffix.stem);
  for (char& c : stem) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (suffix.quantity != Quantity::bytes_per_s) return stem;
  for (const std::string_view word : {"bandwidth", "bw"}) {
    if (!stem.ends_with(word)) continue;
    stem.resize(stem.size() - word.size());
    if (stem.ends_with('_')) stem.pop_back();
    break;
  }
  return stem;
}

bool is_same_kind(Quantity a, Quantity b) {
  const auto is_time = [](Quantity q) {
    return q == Quantity::nanoseconds || q == Quantity::seconds;
  };
  return a == b || (is_time(a) && is_time(b));
}

/// The value as it would be written under a key of this quantity; empty when it has no unit that
/// the quantity can be written in.
std::string with_unit(const json& value, std::string_view unit, Quantity quantity) {
  if (value.is_string()) {
    const auto& written = value.get_ref<const std::string&>();
    return parse_quantity(quantity, written).value_or(0) > 0 ? value.dump() : std::string();
  }
  if (!value.is_number() || unit.empty()) return {};
  const std::string text = value.dump() + std::string(unit);
  const std::optional<double> meant = parse_quantity(quantity, text);
  if (!meant || !(*meant > 0)) return {};
  // 98e9 under peak_tflops is no number of TF: it was counted as this program counts.
  constexpr double kNoMachine = 6;
  const double distance = distance_from_usual(quantity, *meant);
  const bool is_counted_as_here =
      distance > kNoMachine && distance_from_usual(quantity, value.get<double>()) < distance;
  return is_counted_as_here ? value.dump() : fmt::format("\"{}\"", text);
}

/// What to write for a key that is known with another unit, such as latency_us for latency_ns, or
/// that names no unit, such as bandwidth. Empty when that is not what is wrong.
std::string hint_of_unit(const std::string& key, const json& value,
                         const std::vector<std::string>& names) {
  if (key.empty()) return {};
  const std::optional<UnitSuffix> written = split_unit_suffix(key);
  for (const std::string& name : names) {
    const std::optional<UnitSuffix> known = split_unit_suffix(name);
    if (!known) continue;
    const UnitSuffix asked = written.value_or(UnitSuffix{key, {}, known->quantity});
    if (!is_same_kind(known->quantity, asked.quantity)) continue;
    if (counted(*known) != counted(asked)) continue;
    const std::string text = with_unit(value, asked.unit, known->quantity);
    return fmt::format("{} '{}', in {}{}", written ? "the key is" : "did you mean", name,
                       unit_name(known->quantity),
                       text.empty() ? "" : fmt::format("; write \"{}\": {}", name, text));
  }
  return {};
}

/// What a number that a field cannot have most likely means, as it would be written; empty when
/// nothing is likely.
std::string meant_by_number(const FieldInfo& field, double value) {
  const Limits& limits = field.limits;
  // What is above 0 and at most 1 is a share, too.
  const bool is_share = field.quantity == Quantity::ratio || (limits.min > 0 && limits.max == 1);
  constexpr double kPercent = 100;
  if (is_share && value > 1 && value / kPercent >= limits.min && value / kPercent <= limits.max) {
    return fmt::format("{:g}", value / kPercent);
  }
  const Limits& plausible = field.plausible;
  if (plausible.max <= plausible.min) return {};
  const std::string meant = likely_meaning(field.quantity, value, plausible.min, plausible.max);
  return meant.empty() ? meant : fmt::format("\"{}\"", meant);
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  constexpr size_t kLongestName = 80;
  if (name.size() > kLongestName) return {};
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

JsonReader::JsonReader(const json& object, Source source, std::string path, NullIs null_is)
    : object_(&object), source_(std::move(source)), path_(std::move(path)), null_is_(null_is) {
  if (object.is_object()) return;
  if (path_.empty()) {
    throw UsageError(
        fmt::format("{}found {}, expected a JSON object", source_.prefix(""), describe(object)));
  }
  throw UsageError(fmt::format("{}key '{}' is {}, expected an object", source_.prefix(path_), path_,
                               describe(object)));
}

std::string JsonReader::place(std::string_view key) const {
  const std::string path = path_of(key);
  return fmt::format("{}key '{}", source_.prefix(path), path);
}

std::string JsonReader::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

bool JsonReader::has(std::string_view key) const {
  const auto it = object_->find(key);
  return it != object_->end() && !(null_is_ == NullIs::absent && it->is_null());
}

bool JsonReader::has_in_other_unit(std::string_view key) const {
  const std::vector<std::string> names = {std::string(key)};
  return std::ranges::any_of(object_->items(), [&](const auto& item) {
    return !known_.contains(item.key()) && !hint_of_unit(item.key(), item.value(), names).empty();
  });
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
    throw UsageError(fmt::format("{}' is missing, expected {}", place(key), expectation));
  }
  throw UsageError(fmt::format("{}' is {}, expected {}", place(key), describe(*it), expectation));
}

void JsonReader::refuse(std::string_view key, const std::string& message) const {
  throw UsageError(fmt::format("{}': {}", place(key), message));
}

void JsonReader::fail_quantity(const FieldInfo& field, std::string expectation) const {
  const std::string_view example = unit_example(field.quantity);
  if (!example.empty())
    expectation += fmt::format(", or a text with a unit such as \"{}\"", example);
  const auto it = object_->find(field.key);
  const std::string meant =
      it != object_->end() && it->is_number() ? meant_by_number(field, it->get<double>()) : "";
  if (!meant.empty()) expectation += fmt::format("; did you mean {}?", meant);
  fail(field.key, expectation);
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

std::optional<double> JsonReader::quantity(const FieldInfo& field) {
  const json* found = find(field.key);
  if (found == nullptr) return std::nullopt;
  if (found->is_number()) return found->get<double>();
  if (!found->is_string()) return std::nullopt;
  return parse_quantity(field.quantity, found->get_ref<const std::string&>());
}

int64_t JsonReader::integer(const FieldInfo& field) {
  const auto min = static_cast<int64_t>(field.limits.min);
  const auto max = static_cast<int64_t>(field.limits.max);
  const json* found = find(field.key);
  int64_t number = 0;
  if (found != nullptr && found->is_number()) {
    if (as_integer(*found, number) && number >= min && number <= max) return number;
  } else if (const std::optional<double> value = quantity(field)) {
    if (*value >= field.limits.min && *value <= field.limits.max) return std::llround(*value);
  }
  fail_quantity(field, range_text(min, max));
}

double JsonReader::number(const FieldInfo& field) {
  const std::optional<double> value = quantity(field);
  if (!value || !(*value >= field.limits.min && *value <= field.limits.max)) {
    fail_quantity(field, range_text(" number", field.limits.min, field.limits.max));
  }
  return *value;
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
  // Short names are near each other by chance, as gpu and cpu are.
  constexpr size_t kShortest = 5;
  std::string nearest;
  if (found != nullptr && found->is_string() &&
      found->get_ref<const std::string&>().size() >= kShortest) {
    nearest = nearest_name(found->get_ref<const std::string&>(),
                           std::vector<std::string>(allowed.begin(), allowed.end()));
  }
  fail(key, fmt::format("one of \"{}\"{}", fmt::join(allowed, "\", \""),
                        nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
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
      throw UsageError(fmt::format("{}[{}]' is {}, expected {}", place(key), numbers.size(),
                                   describe(item), range_text(min, max)));
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
      throw UsageError(fmt::format("{}[{}]' is {}, expected {}", place(key), numbers.size(),
                                   describe(item), range_text(" number", min, max)));
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

int64_t JsonReader::integer_or(const FieldInfo& field, int64_t otherwise) {
  return find(field.key) == nullptr ? otherwise : integer(field);
}

double JsonReader::number_or(const FieldInfo& field, double otherwise) {
  return find(field.key) == nullptr ? otherwise : number(field);
}

bool JsonReader::boolean_or(std::string_view key, bool otherwise) {
  return find(key) == nullptr ? otherwise : boolean(key);
}

std::string JsonReader::text_or(std::string_view key, std::string otherwise) {
  return find(key) == nullptr ? std::move(otherwise) : text(key);
}

void JsonReader::ignore(std::string_view key) { known_.emplace(key); }

void JsonReader::refuse_unknown_keys(const OtherKeys& others) const {
  Problems problems;
  const std::vector<std::string> names(known_.begin(), known_.end());
  for (const auto& [key, value] : object_->items()) {
    // What editors find a file's schema by.
    if (known_.contains(key) || (path_.empty() && key == "$schema")) continue;
    if (const std::string reason = others.reason == nullptr ? "" : others.reason(key);
        !reason.empty()) {
      problems.add(fmt::format("{}key '{}' is {}: {}", source_.prefix(path_of(key)),
                               path_of(base::shortened(key, kMostShownBytes)), describe(value),
                               reason));
      continue;
    }
    std::string hint = hint_of_unit(key, value, names);
    if (hint.empty()) {
      std::string nearest = others.meant == nullptr ? "" : others.meant(key);
      if (nearest.empty()) nearest = nearest_name(key, names);
      hint = nearest.empty() ? fmt::format("known keys: {}", fmt::join(names, ", "))
                             : fmt::format("did you mean '{}'?", nearest);
    }
    problems.add(fmt::format("{}unknown key '{}' with value {}; {}", source_.prefix(path_of(key)),
                             path_of(base::shortened(key, kMostShownBytes)), describe(value),
                             hint));
  }
  problems.throw_if_any();
}

}  // namespace moetune::spec
