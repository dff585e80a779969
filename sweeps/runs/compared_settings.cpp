#include "sweeps/runs/compared_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/values.h"

namespace moetune::sweeps {
namespace {

using spec::dialects::Dialect;
using spec::dialects::RunConfig;
using spec::dialects::SettingChange;
using spec::dialects::StatedSetting;
using spec::dialects::UnknownSetting;

using DifferingSettings = std::vector<ComparedSetting>;
using SettingKeys = std::set<std::string, std::less<>>;

/// As it stands in a run of the dialect; empty: it is not said there.
std::string line_of(const SettingChange& change, Dialect dialect) {
  return change.after ? spec::dialects::text_of(change, dialect) : std::string();
}

void add_differing(ComparedSetting setting, DifferingSettings& settings) {
  // A switch that is "true" and one that is just there are the same.
  if (setting.before != setting.after) settings.push_back(std::move(setting));
}

/// Whether two texts are one value: also numbers and switches that are spelled in two ways, as what
/// a log echoes often is.
bool is_said_alike(const std::string& a, const std::string& b) {
  if (a == b) return true;
  using spec::dialects::parse_integer;
  using spec::dialects::parse_number;
  using spec::dialects::parse_switch;
  // What a double holds to the last digit.
  constexpr size_t kMostDigits = 15;
  if (a.size() <= kMostDigits && b.size() <= kMostDigits && parse_number(a) && parse_number(b)) {
    return *parse_number(a) == *parse_number(b);
  }
  if (parse_integer(a) && parse_integer(b)) return *parse_integer(a) == *parse_integer(b);
  return parse_switch(a) && parse_switch(b) && *parse_switch(a) == *parse_switch(b);
}

/// What the sources of two runs of one dialect say of a key; null: nothing.
struct BothSay {
  const std::string* before = nullptr;
  const std::string* after = nullptr;
};
struct StatedByBoth {
  std::vector<std::string_view> keys;  ///< in the second's order, then those of the first alone
  std::map<std::string_view, BothSay> by_key;
};

StatedByBoth stated_by_both(const RunConfig& before, const RunConfig& after) {
  StatedByBoth all;
  for (const StatedSetting& setting : after.stated) {
    const auto [at, is_new] = all.by_key.try_emplace(setting.key);
    if (is_new) all.keys.push_back(setting.key);
    at->second.after = &setting.value;
  }
  for (const StatedSetting& setting : before.stated) {
    const auto [at, is_new] = all.by_key.try_emplace(setting.key);
    if (is_new) all.keys.push_back(setting.key);
    at->second.before = &setting.value;
  }
  return all;
}

/// What is said differently, of `known` keys and of others.
void add_stated(const StatedByBoth& all, bool is_said_by_both, Dialect dialect,
                DifferingSettings& known, DifferingSettings& others) {
  for (const std::string_view key : all.keys) {
    const BothSay& say = all.by_key.at(key);
    const bool has_both = say.before != nullptr && say.after != nullptr;
    if (has_both ? is_said_alike(*say.before, *say.after) : is_said_by_both) continue;
    const auto line = [&](const std::string* value) -> std::string {
      if (value == nullptr) return {};
      return spec::dialects::text_of({std::string(key), {}, *value}, dialect);
    };
    add_differing({std::string(key), line(say.before), line(say.after)},
                  spec::dialects::is_known(key, dialect) ? known : others);
  }
}

/// SettingKeys of the second's dialect whose values one of the runs has, but knobs do not.
SettingKeys unknown_of_both(const RunConfig& before, const RunConfig& after) {
  SettingKeys keys;
  for (const RunConfig* run : {&before, &after}) {
    for (const UnknownSetting& setting : run->unknown) {
      const auto* row = spec::dialects::find_row(setting.key, run->dialect);
      if (row != nullptr) keys.insert(spec::dialects::key_of(*row, after.dialect));
      if (run->dialect == after.dialect) keys.insert(setting.key);
    }
  }
  return keys;
}

/// What knobs and sizes say differently. Both directions are asked for, as each tells how the run
/// that it leads to writes a setting.
void add_known(const RunConfig& before, const RunConfig& after, const SettingKeys& left_out,
               DifferingSettings& settings) {
  const Dialect dialect = after.dialect;
  const auto changes = [&](const RunConfig& from, const RunConfig& to) {
    std::vector<SettingChange> found = spec::dialects::changed_settings(from, to, dialect);
    std::erase_if(found, [&](const SettingChange& change) {
      return change.is_variable || left_out.contains(change.key);
    });
    return found;
  };
  std::vector<SettingChange> back = changes(after, before);
  for (const SettingChange& change : changes(before, after)) {
    const auto same = std::ranges::find(back, change.key, &SettingChange::key);
    const bool is_in_first = same != back.end();
    add_differing(
        {change.key, is_in_first ? line_of(*same, dialect) : "", line_of(change, dialect)},
        settings);
    if (is_in_first) back.erase(same);
  }
  for (const SettingChange& change : back) {
    add_differing({change.key, line_of(change, dialect), ""}, settings);
  }
}

void add_variables(const RunConfig& before, const RunConfig& after, DifferingSettings& settings) {
  const auto line = [&](const RunConfig& run, const std::string& name) -> std::string {
    const auto found = run.environment.find(name);
    if (found == run.environment.end()) return {};
    return spec::dialects::text_of({name, {}, found->second, true}, after.dialect);
  };
  for (const auto& [name, value] : after.environment) {
    add_differing({name, line(before, name), line(after, name), true}, settings);
  }
  for (const auto& [name, value] : before.environment) {
    if (!after.environment.contains(name))
      add_differing({name, line(before, name), "", true}, settings);
  }
}

}  // namespace

std::vector<ComparedSetting> differing_settings(const RunConfig& before, const RunConfig& after) {
  DifferingSettings settings;
  DifferingSettings others;
  // What one source does not say may still be the same there.
  const bool are_of_one_kind = before.is_echo == after.is_echo && before.is_whole == after.is_whole;
  SettingKeys left_out = unknown_of_both(before, after);
  if (before.dialect == after.dialect) {
    const StatedByBoth stated = stated_by_both(before, after);
    add_stated(stated, !are_of_one_kind, after.dialect, settings, others);
    for (const auto& [key, say] : stated.by_key) {
      if (say.before != nullptr && say.after != nullptr) left_out.emplace(key);
    }
  }
  // Knobs are filled with defaults, whatever a source leaves out.
  if (before.dialect != after.dialect || !are_of_one_kind) {
    add_known(before, after, left_out, settings);
  }
  if (!before.is_echo && !after.is_echo) add_variables(before, after, settings);
  std::ranges::sort(others, {}, &ComparedSetting::key);
  settings.insert(settings.end(), others.begin(), others.end());
  return settings;
}

std::string text_of(const ComparedSetting& setting) {
  return setting.after.empty() ? fmt::format("without {}", setting.key) : setting.after;
}

}  // namespace moetune::sweeps
