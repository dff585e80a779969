#include "sweeps/runs/compared_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

namespace moetune::sweeps {
namespace {

using spec::dialects::Dialect;
using spec::dialects::RunConfig;
using spec::dialects::SettingChange;
using spec::dialects::UnknownSetting;

/// As it stands in the run that the change leads to; empty: it is not said there.
std::string line_of(const SettingChange& change, Dialect dialect) {
  return change.after ? spec::dialects::text_of(change, dialect) : std::string();
}

/// What knobs, sizes and variables say differently. Both directions are asked for, as each tells
/// how the run that it leads to writes a setting.
void add_known(const RunConfig& before, const RunConfig& after,
               std::vector<ComparedSetting>& settings) {
  const Dialect dialect = after.dialect;
  const std::vector<SettingChange> there = spec::dialects::changed_settings(before, after, dialect);
  std::vector<SettingChange> back = spec::dialects::changed_settings(after, before, dialect);
  const auto add = [&](ComparedSetting setting) {
    // A switch that is off and one that is not said are the same.
    if (setting.before != setting.after) settings.push_back(std::move(setting));
  };
  for (const SettingChange& change : there) {
    const auto same = std::ranges::find_if(back, [&](const SettingChange& other) {
      return other.key == change.key && other.is_variable == change.is_variable;
    });
    const bool is_in_first = same != back.end();
    add({change.key, is_in_first ? line_of(*same, dialect) : "", line_of(change, dialect)});
    if (is_in_first) back.erase(same);
  }
  for (const SettingChange& change : back) {
    add({change.key, line_of(change, dialect), ""});
  }
}

/// The settings of one key, which may be said more than once.
using ValuesByKey = std::map<std::string, std::vector<std::string>>;

ValuesByKey unknown_of(const RunConfig& config) {
  ValuesByKey values;
  for (const UnknownSetting& setting : config.unknown) {
    values[setting.key].push_back(setting.value);
  }
  return values;
}

void add_unknown(const RunConfig& before, const RunConfig& after,
                 std::vector<ComparedSetting>& settings) {
  if (before.dialect != after.dialect || before.unknown.empty() || after.unknown.empty()) return;
  const ValuesByKey a = unknown_of(before);
  ValuesByKey b = unknown_of(after);
  const auto line = [&](const ValuesByKey& values, const std::string& key) -> std::string {
    const auto found = values.find(key);
    if (found == values.end()) return {};
    const SettingChange change{key, {}, fmt::format("{}", fmt::join(found->second, " "))};
    return spec::dialects::text_of(change, after.dialect);
  };
  for (const auto& [key, values] : a) b.try_emplace(key);
  for (const auto& [key, values] : b) {
    ComparedSetting setting{key, line(a, key), values.empty() ? "" : line(b, key)};
    if (setting.before != setting.after) settings.push_back(std::move(setting));
  }
}

}  // namespace

std::vector<ComparedSetting> differing_settings(const RunConfig& before, const RunConfig& after) {
  std::vector<ComparedSetting> settings;
  add_known(before, after, settings);
  add_unknown(before, after, settings);
  return settings;
}

std::string text_of(const ComparedSetting& setting) {
  return setting.after.empty() ? fmt::format("without {}", setting.key) : setting.after;
}

}  // namespace moetune::sweeps
