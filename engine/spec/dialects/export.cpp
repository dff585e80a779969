// A run to a text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "engine/spec/dialects/model_sizes.h"
#include "engine/spec/dialects/texts.h"

namespace moetune::spec::dialects {

namespace {

/// A run in a dialect, before it has a form.
struct Written {
  Writing out;
  std::vector<Setting> settings;
};

Written written(RunConfig& run, Dialect dialect) {
  const int32_t connections = run.knobs.cuda_device_max_connections;
  if (connections != PlanKnobs{}.cuda_device_max_connections) {
    run.environment[std::string(kConnections)] = fmt::format("{}", connections);
  }
  Writing out(dialect, run);
  out.traits = traits_of(run.model, out.notes);
  if (dialect == Dialect::torchtitan) {
    write_parts_of_titan(out);
  } else {
    write_parts_of_megatron(out);
  }
  std::vector<Setting> settings = write_rows(out);
  return {std::move(out), std::move(settings)};
}

std::string value_of(const Setting& setting) {
  return setting.value.empty() ? fmt::format("{}", fmt::join(setting.words, " ")) : setting.value;
}

}  // namespace

std::string export_run(const RunConfig& given, Dialect dialect) {
  RunConfig run = given;
  auto [out, settings] = written(run, dialect);
  std::vector<UnknownSetting> unknown;
  if (run.dialect == dialect) {
    for (const UnknownSetting& setting : run.unknown) {
      const bool is_said =
          std::ranges::find(settings, setting.key, &Setting::key) != settings.end();
      if (!is_said) unknown.push_back(setting);
    }
  } else if (!run.unknown.empty()) {
    out.notes.push_back(fmt::format("{} settings of {} are not translated, such as {}",
                                    run.unknown.size(), name_of(run.dialect),
                                    run.unknown.front().key));
  }
  return write_text(out, settings, unknown);
}

std::vector<SettingChange> changed_settings(const RunConfig& from, const RunConfig& to,
                                            Dialect dialect) {
  RunConfig before_run = from;
  RunConfig after_run = to;
  const Written before = written(before_run, dialect);
  const Written after = written(after_run, dialect);
  std::vector<SettingChange> changes;
  const auto find = [](const std::vector<Setting>& settings, const std::string& key) {
    const auto found = std::ranges::find(settings, key, &Setting::key);
    return found == settings.end() ? std::nullopt : std::optional(value_of(*found));
  };
  for (const Setting& setting : after.settings) {
    const std::optional<std::string> old = find(before.settings, setting.key);
    if (old != value_of(setting)) changes.push_back({setting.key, old, value_of(setting)});
  }
  for (const Setting& setting : before.settings) {
    if (!find(after.settings, setting.key)) {
      changes.push_back({setting.key, value_of(setting), std::nullopt});
    }
  }
  const auto variable = [](const RunConfig& run, const std::string& name) {
    const auto found = run.environment.find(name);
    return found == run.environment.end() ? std::nullopt : std::optional(found->second);
  };
  for (const auto& [name, value] : after_run.environment) {
    const std::optional<std::string> old = variable(before_run, name);
    if (old != value) changes.push_back({name, old, value, true});
  }
  return changes;
}

std::string text_of(const SettingChange& change, Dialect dialect) {
  if (!change.after) return fmt::format("without {}", change.key);
  if (change.is_variable) return fmt::format("{}={}", change.key, *change.after);
  switch (dialect) {
    case Dialect::megatron_lm:
      // A switch is said by being there.
      return change.after->empty() || *change.after == "true"
                 ? change.key
                 : fmt::format("{} {}", change.key, *change.after);
    case Dialect::megatron_bridge:
      return fmt::format("{}={}", change.key, *change.after);
    case Dialect::torchtitan:
      return fmt::format("{} = {}", change.key, *change.after);
    case Dialect::primus:
      break;
  }
  return fmt::format("{}: {}", change.key, *change.after);
}

}  // namespace moetune::spec::dialects
