// Reads the result within limits: lists and texts are cut, numbers that are none become nothing.
#include "reports/hunt_result.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "profiler/store/untrusted_json.h"
#include "reports/format.h"
#include "reports/json_at.h"

namespace moetune::reports {
namespace {

using nlohmann::json;

// A posterior over a million commits fits; a text made to fill the memory does not.
constexpr store::JsonLimits kResultLimits{.bytes = 32 << 20, .depth = 12, .values = 4 << 20};
constexpr size_t kMostPositions = 1 << 20;
constexpr size_t kMostCulprits = 20;
constexpr size_t kMostMoved = 50;
constexpr size_t kMostSuspects = 1000;
constexpr size_t kMostWordBytes = 300;
constexpr size_t kMostSentenceBytes = 2000;
constexpr size_t kMostCommandBytes = 16 << 10;

std::optional<double> number_at(const json& object, const char* key) {
  const json& value = at(object, key);
  if (!value.is_number()) {
    return std::nullopt;
  }
  const auto number = value.get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::optional<double> probability_at(const json& object, const char* key) {
  const std::optional<double> number = number_at(object, key);
  return number && *number >= 0 && *number <= 1 ? number : std::nullopt;
}

std::optional<int64_t> whole_number(const json& value) {
  constexpr double kMost = 9e15;  // exact in a double
  if (!value.is_number()) {
    return std::nullopt;
  }
  const auto number = value.get<double>();
  return number >= 0 && number <= kMost ? std::optional(static_cast<int64_t>(number))
                                        : std::nullopt;
}

std::string text_at(const json& object, const char* key, size_t most_bytes = kMostWordBytes) {
  const json& value = at(object, key);
  return value.is_string() ? shortened(value.get_ref<const std::string&>(), most_bytes) : "";
}

Effect effect_from(const json& value) {
  return {number_at(value, "ratio"), number_at(value, "low"), number_at(value, "high")};
}

/// Calls `take` with the first entries of an array; anything else has none.
template <typename Take>
void for_each(const json& array, size_t most, Take take) {
  if (!array.is_array()) {
    return;
  }
  for (size_t i = 0; i < array.size() && i < most; ++i) {
    take(array[i]);
  }
}

/// What `make` makes of the objects among them.
template <typename Make>
auto list_of(const json& array, size_t most, Make make) {
  std::vector<decltype(make(array))> list;
  for_each(array, most, [&](const json& entry) {
    if (entry.is_object()) {
      list.push_back(make(entry));
    }
  });
  return list;
}

ConfigChange config_from(const json& value) {
  return {text_at(value, "name"), text_at(value, "before"), text_at(value, "after")};
}

MovedMetric moved_from(const json& value) {
  return {text_at(value, "name"), number_at(value, "before"), number_at(value, "after")};
}

Culprit culprit_from(const json& value) {
  Culprit culprit;
  culprit.position = whole_number(at(value, "position")).value_or(-1);
  culprit.commit = text_at(value, "commit");
  culprit.subject = text_at(value, "subject");
  culprit.author = text_at(value, "author");
  culprit.author_date = text_at(value, "author_date");
  culprit.effect = effect_from(at(value, "effect"));
  culprit.before = number_at(value, "before");
  culprit.after = number_at(value, "after");
  culprit.confidence = probability_at(value, "confidence");
  culprit.moved = list_of(at(value, "moved"), kMostMoved, moved_from);
  culprit.config = list_of(at(value, "config"), kMostMoved, config_from);
  return culprit;
}

}  // namespace

HuntResult read_hunt_result(const std::string& text) {
  HuntResult result;
  const json document = store::parse_untrusted(text, kResultLimits);
  if (!document.is_object()) {
    result.is_readable = false;
    return result;
  }
  result.verdict = text_at(document, "verdict");
  result.reason = text_at(document, "reason", kMostSentenceBytes);
  result.metric = text_at(document, "metric");
  result.hunted_metric = text_at(document, "hunted_metric");
  result.failure = text_at(document, "failure");
  result.note = text_at(document, "note", kMostSentenceBytes);
  result.unit = text_at(document, "unit");
  result.effect = effect_from(at(document, "effect"));
  result.noise_ratio = number_at(document, "noise_ratio");
  result.detectable_ratio = number_at(document, "detectable_ratio");
  result.detectable_with_more_ratio = number_at(document, "detectable_with_more_ratio");
  result.more_runs = whole_number(at(document, "more_runs"));
  result.interaction = effect_from(at(document, "interaction"));
  result.config = list_of(at(document, "config"), kMostMoved, config_from);
  result.moved = list_of(at(document, "moved"), kMostMoved, moved_from);
  result.confidence = probability_at(document, "confidence");
  result.min_effect_ratio = number_at(document, "min_effect_ratio");
  const json& drift = at(document, "has_drift");
  result.has_drift = drift.is_boolean() && drift.get<bool>();
  result.no_change = probability_at(document, "no_change");
  for_each(at(document, "posterior"), kMostPositions, [&](const json& entry) {
    const double p = entry.is_number() ? entry.get<double>() : 0;
    result.posterior.push_back(p >= 0 && p <= 1 ? p : 0);
  });
  result.culprits = list_of(at(document, "culprits"), kMostCulprits, culprit_from);
  for_each(at(document, "suspects"), kMostSuspects, [&](const json& entry) {
    if (const std::optional<int64_t> position = whole_number(entry)) {
      result.suspects.push_back(*position);
    }
  });
  result.runs = whole_number(at(document, "runs"));
  result.builds = whole_number(at(document, "builds"));
  result.seconds = number_at(document, "seconds");
  result.reproduce = text_at(document, "reproduce", kMostCommandBytes);
  return result;
}

}  // namespace moetune::reports
