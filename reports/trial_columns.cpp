// Packs what the page's scripts need to know of every trial.
#include "reports/trial_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profiler/store/verdict.h"
#include "reports/format.h"
#include "reports/trial_table.h"

namespace moetune::reports {
namespace {

using nlohmann::json;
using store::TrialRow;

constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
constexpr size_t kFewestTextBytes = 24;
constexpr size_t kMostTextBytes = 400;
/// Digits that are kept of a number, so that trials of a percent apart stay apart.
constexpr int kNumDigits = 6;

using Numbers = std::vector<std::optional<double>>;

json number_column(const Numbers& values) {
  double least = 0;
  for (const auto& value : values) {
    if (value && std::isfinite(*value) && *value > 0 && (least == 0 || *value < least)) {
      least = *value;
    }
  }
  const double unit = least > 0 ? std::pow(10, std::floor(std::log10(least)) + 1 - kNumDigits) : 1;
  json at = json::array();
  for (const auto& value : values) {
    const double scaled = value ? *value / unit : 0;
    at.push_back(std::isfinite(scaled) && scaled > 0 && scaled < 9e15 ? std::llround(scaled) : 0);
  }
  return {{"unit", unit}, {"at", std::move(at)}};
}

json name_column(const std::vector<std::string>& values) {
  std::unordered_map<std::string, size_t> known;
  json names = json::array();
  std::vector<size_t> at;
  for (const std::string& value : values) {
    const auto [found, is_new] = known.try_emplace(value, known.size());
    if (is_new) names.push_back(value);
    at.push_back(found->second);
  }
  if (names.size() > kDigits.size()) return {{"names", std::move(names)}, {"at", at}};
  std::string digits;
  for (const size_t position : at) digits += kDigits[position];
  return {{"names", std::move(names)}, {"at", digits}};
}

// The most bytes that each text may have, so that all of them together keep to the budget.
size_t text_bytes_each(const std::set<std::string>& texts) {
  size_t most = kMostTextBytes;
  const auto total = [&] {
    size_t bytes = 0;
    for (const std::string& text : texts) bytes += std::min(text.size(), most);
    return bytes;
  };
  while (most > kFewestTextBytes && total() > kMostColumnTextBytes) most -= most / 8;
  return std::max(most, kFewestTextBytes);
}

}  // namespace

json trial_columns(const Context& context) {
  const std::vector<size_t> chosen = context.most_telling(kMostColumnTrials);
  const std::set<int64_t> cleared = store::cleared_trials(context.decisions);
  const auto numbers = [&](const auto& value_of) {
    Numbers values;
    for (const size_t position : chosen) values.push_back(value_of(context.trials[position]));
    return number_column(values);
  };
  const auto names = [&](const auto& value_of) {
    std::vector<std::string> values;
    for (const size_t position : chosen) values.push_back(value_of(context.trials[position]));
    return name_column(values);
  };
  std::set<std::string> texts;
  for (const size_t position : chosen) {
    const TrialStory story = story_of(context, context.trials[position]);
    texts.insert({story.title, story.why});
  }
  const size_t most = text_bytes_each(texts);
  const auto whole = [&](auto member) {
    return numbers([member](const TrialRow& trial) { return as_double(trial.*member); });
  };
  std::string flags;
  std::string hashes;
  json ordinals = json::array();
  for (const size_t position : chosen) {
    const TrialRow& trial = context.trials[position];
    flags += kDigits[(context.kept.contains(trial.id) ? 1U : 0U) | (is_reference(trial) ? 2U : 0U) |
                     (context.has_won(trial) ? 4U : 0U) | (trial.is_baseline ? 8U : 0U) |
                     (cleared.contains(trial.id) ? 16U : 0U)];
    ordinals.push_back(trial.ordinal);
    std::string hash = trial.spec_hash.substr(0, kHashDigits);
    // One of a foreign hand: each trial has as many characters as any other.
    const bool is_plain =
        std::ranges::all_of(hash, [](char c) { return kDigits.find(c) != std::string_view::npos; });
    if (!is_plain) hash.clear();
    hash.resize(kHashDigits, ' ');
    hashes += hash;
  }
  json columns = {
      {"n", {{"unit", 1}, {"at", std::move(ordinals)}}},
      {"status", names([](const TrialRow& trial) { return trial.status; })},
      {"phase", names([](const TrialRow& trial) { return trial.phase; })},
      {"wall", names([](const TrialRow& trial) { return trial.wall; })},
      {"step", whole(&TrialRow::step_ns)},
      {"low", whole(&TrialRow::step_ns_low)},
      {"high", whole(&TrialRow::step_ns_high)},
      {"tokens", numbers([](const TrialRow& trial) { return trial.tokens_per_s; })},
      {"peak", whole(&TrialRow::peak_bytes)},
      {"predictedStep", whole(&TrialRow::predicted_step_ns)},
      {"predictedPeak", whole(&TrialRow::predicted_peak_bytes)},
      {"runs", names([&](const TrialRow& trial) { return runs_text(context, trial); })},
      {"title", names([&](const TrialRow& trial) {
         return shortened(story_of(context, trial).title, most);
       })},
      {"why",
       names([&](const TrialRow& trial) { return shortened(story_of(context, trial).why, most); })},
      {"flags", flags},
      {"spec", hashes},
  };
  json knobs = json::array();
  for (const std::string& name : context.varying_knobs) {
    knobs.push_back(
        {{"name", name},
         {"label", short_name_of(name)},
         {"values", names([&](const TrialRow& trial) { return knob_of(trial, name); })}});
  }
  const TrialRow* other = compared_with(context);
  return {{"num", context.trials.size()},
          {"columns", std::move(columns)},
          {"knobs", std::move(knobs)},
          {"comparedWith", other == nullptr ? json() : json(other->ordinal)}};
}

}  // namespace moetune::reports
