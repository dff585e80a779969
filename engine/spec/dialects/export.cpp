// A run to a text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "engine/spec/dialects/model_sizes.h"
#include "engine/spec/dialects/shell.h"
#include "engine/spec/dialects/text_cursor.h"
#include "engine/spec/dialects/texts.h"
#include "engine/spec/dialects/values.h"

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
  add_implied(run, dialect);
  Writing out(dialect, run);
  std::vector<std::string> notes;
  out.traits = traits_of(run.model, notes);
  if (run.mtp_depth) out.traits["mtp_num_layers"] = *run.mtp_depth;
  // Torchtitan's models are its own.
  if (dialect != Dialect::torchtitan) {
    out.notes = std::move(notes);
  } else if (!run.model.empty()) {
    out.notes.emplace_back("the model's sizes go by its name here: add [model] name and flavor");
  }
  if (dialect == Dialect::torchtitan) {
    write_parts_of_titan(out);
  } else {
    write_layer_flags(out, run);
    write_parts_of_megatron(out);
    if (!run.pipeline_schedule.empty() && run.knobs.pp > 1) {
      out.cannot_say("pipeline_schedule=" + shown(run.pipeline_schedule),
                     "its stages have a schedule of its own");
    }
  }
  std::vector<Setting> settings = write_rows(out);
  write_implied(out, settings);
  return {std::move(out), std::move(settings)};
}

/// Whether a text has the key as a whole word.
bool is_word_of(std::string_view text, std::string_view key) {
  const auto goes_on = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  for (size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    const size_t end = at + key.size();
    const bool begins = at == 0 || !goes_on(text[at - 1]);
    if (begins && (end == text.size() || !goes_on(text[end]))) return true;
  }
  return false;
}

std::string value_of(const Setting& setting) {
  return setting.value.empty() ? fmt::format("{}", fmt::join(setting.words, " ")) : setting.value;
}

}  // namespace

std::string export_run(const RunConfig& given, Dialect dialect) {
  RunConfig run = given;
  run.has_lighter_ends = false;  // what is priced is written
  std::vector<std::string> left_out;
  leave_out_excluded(run, dialect, left_out);
  auto [out, settings] = written(run, dialect);
  out.notes.insert(out.notes.end(), left_out.begin(), left_out.end());
  std::vector<UnknownSetting> unknown;
  if (run.dialect == dialect) {
    for (const UnknownSetting& setting : run.unknown) {
      const bool is_said =
          std::ranges::find(settings, setting.key, &Setting::key) != settings.end();
      if (!is_said) unknown.push_back(setting);
    }
  } else if (const std::vector<std::string> lost = translate_unknown(run, dialect, settings);
             !lost.empty()) {
    out.notes.push_back(fmt::format("{} settings of {} are not translated: {}", lost.size(),
                                    name_of(run.dialect), text_of_keys(lost)));
  }
  return write_text(out, settings, unknown);
}

bool can_say(const RunConfig& given, std::string_view knob, Dialect dialect) {
  RunConfig run = given;
  const Written written_run = written(run, dialect);
  return std::ranges::find(written_run.out.unsaid, knob) == written_run.out.unsaid.end();
}

void follow_defaults(PlanKnobs& knobs, Dialect dialect) {
  for (const Row& row : knob_rows()) {
    const auto* member = std::get_if<PlanKnobMember>(&row.target);
    const std::string_view fallback = fallback_of(row, dialect);
    const bool has_setting = !row.keys[static_cast<size_t>(dialect)].empty();
    if (member != nullptr && !has_setting && !fallback.empty()) set_text(knobs, *member, fallback);
  }
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
    if (old == value_of(setting)) continue;
    changes.push_back({setting.key, old, value_of(setting)});
    changes.back().words = words_of_setting(setting, dialect);
    // A switch that is off is left out where there is no word for that.
    const bool has_words = dialect != Dialect::primus;
    if (has_words && changes.back().words.empty()) changes.back().after.reset();
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

std::vector<std::string> words_of(const UnknownSetting& setting, Dialect dialect) {
  const bool is_switch = setting.value.empty() || setting.value == "true";
  const bool is_off = setting.value == "false";
  const bool is_flag = setting.key.starts_with("-");
  if (dialect == Dialect::primus) return {};
  if (!is_flag && dialect == Dialect::megatron_bridge) return {setting.key + "=" + setting.value};
  const std::string flag = is_flag ? setting.key : "--" + setting.key;
  if (is_off && !is_flag)
    return words_of_setting({.key = setting.key, .words = {"false"}}, dialect);
  if (is_off) return {};
  if (is_switch) return {flag};
  std::vector<std::string> words = {flag};
  for (const ShellCommand& command : read_shell("- " + setting.value, setting.key)) {
    if (command.words.empty()) continue;  // only variables, behind a semicolon
    words.insert(words.end(), command.words.begin() + 1, command.words.end());
  }
  return words;
}

std::optional<std::vector<std::string>> command_words(const RunConfig& given, Dialect dialect,
                                                      const RunConfig& defaults,
                                                      std::string_view said) {
  if (dialect == Dialect::torchtitan || dialect == Dialect::primus) return std::nullopt;
  RunConfig run = given;
  const auto [out, settings] = written(run, dialect);
  std::vector<std::string> words;
  const auto add = [&](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  const std::vector<SettingChange> changes = changed_settings(defaults, given, dialect);
  for (const Setting& setting : settings) {
    const bool is_wanted =
        is_word_of(said, setting.key) ||
        std::ranges::find(changes, setting.key, &SettingChange::key) != changes.end();
    if (is_wanted) add(words_of_setting(setting, dialect));
  }
  for (const UnknownSetting& setting : run.unknown) {
    if (std::ranges::find(settings, setting.key, &Setting::key) == settings.end()) {
      add(words_of(setting, dialect));
    }
  }
  return words;
}

namespace {

/// Values of the table are words; others are texts that a shell reads back as they are.
std::string flag_text(const SettingChange& change) {
  if (change.words.empty()) {
    // A switch is said by being there.
    const bool is_switch = change.after->empty() || *change.after == "true";
    const std::string key = shell_quoted(change.key);
    return is_switch ? key : fmt::format("{} {}", key, *change.after);
  }
  std::vector<std::string> words;
  for (const std::string& word : change.words) words.push_back(shell_quoted(word));
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace

std::string text_of(const SettingChange& change, Dialect dialect) {
  if (!change.after) return fmt::format("without {}", shown_key(change.key));
  if (change.is_variable) return fmt::format("{}={}", change.key, shell_quoted(*change.after));
  // Scripts have options of their own beside what configures a run.
  const bool is_flag = dialect == Dialect::megatron_lm || change.key.starts_with("--");
  if (is_flag) return flag_text(change);
  switch (dialect) {
    case Dialect::megatron_lm:
      break;
    case Dialect::megatron_bridge: {
      // Of a list only the words have the form.
      const std::string value =
          change.words.empty() ? *change.after : change.words.front().substr(change.key.size() + 1);
      return fmt::format("{}={}", shell_quoted(change.key), shell_quoted(value));
    }
    case Dialect::torchtitan:
      return fmt::format("{} = {}", change.key, *change.after);
    case Dialect::primus:
      break;
  }
  return fmt::format("{}: {}", shown_key(change.key), *change.after);
}

}  // namespace moetune::spec::dialects
