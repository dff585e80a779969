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

using nlohmann::json;

/// A run in a dialect, before it has a form.
struct Written {
  Writing out;
  std::vector<Setting> settings;
};

/// Whether all that is to be written of the model stands among the run's own flags, whose words the
/// dialect has: a config.json has not words for all of them, and says the defaults, too.
bool says_own_model(const RunConfig& run, Dialect dialect) {
  if (run.dialect != dialect || run.model_flags.empty()) return false;
  // Another depth than it was read with may need layers that nobody said.
  const json depth = run.model_flags.value("mtp_num_layers", json());
  if (run.mtp_depth && depth != *run.mtp_depth) return false;
  return !run.model.contains("model_type") || run.model_flags.contains("num_layers");
}

/// The model with what the run itself says of it, which wins. What stands among the settings that
/// no word was found for is written there.
void put_model_together(Writing& out, std::vector<std::string>& notes) {
  const RunConfig& run = out.run;
  if (!says_own_model(run, out.dialect)) out.traits = traits_of(run.model, notes);
  for (const auto& [name, value] : run.model_defaults.items()) {
    if (out.traits.contains(name)) out.traits[name] = value;
  }
  out.traits.update(run.model_flags);
  if (run.mtp_depth) out.traits["mtp_num_layers"] = *run.mtp_depth;
  for (const UnknownSetting& setting : run.unknown) {
    const Row* row = find_row(setting.key, run.dialect);
    if (row != nullptr) out.traits.erase(std::string(row->name));
  }
}

/// Whether a knob has its default because nothing of ours is what the run says of it.
bool has_default_of_unknown(const PlanKnobs& knobs, const UnknownSetting& setting,
                            Dialect dialect) {
  const Row* row = find_row(setting.key, dialect);
  const auto* knob = row == nullptr ? nullptr : std::get_if<PlanKnobMember>(&row->target);
  return knob != nullptr && text_of(knobs, *knob) == fallback_of(*row, dialect);
}

/// What goes along as it is: what the settings of a run do not say. Takes out those that are there
/// for want of a word for what it says.
std::vector<UnknownSetting> unknown_beside(std::vector<Setting>& settings, const RunConfig& run) {
  std::vector<UnknownSetting> unknown;
  for (const UnknownSetting& setting : run.unknown) {
    const auto has_key = [&](const Setting& one) { return one.key == setting.key; };
    if (has_default_of_unknown(run.knobs, setting, run.dialect)) std::erase_if(settings, has_key);
    if (std::ranges::none_of(settings, has_key)) unknown.push_back(setting);
  }
  return unknown;
}

/// Flags of the model that no setting of the dialect says, by their keys in the run's own.
std::vector<std::string> unwritten_flags(const RunConfig& run, Dialect dialect) {
  std::vector<std::string> keys;
  for (const Row& row : trait_rows()) {
    const bool is_written = !row.keys[static_cast<size_t>(dialect)].empty();
    const std::string key = key_of(row, run.dialect);
    if (!is_written && !key.empty() && run.model_flags.contains(row.name)) keys.push_back(key);
  }
  return keys;
}

Written written(RunConfig& run, Dialect dialect) {
  const int32_t connections = run.knobs.cuda_device_max_connections;
  if (connections != PlanKnobs{}.cuda_device_max_connections) {
    run.environment[std::string(kConnections)] = fmt::format("{}", connections);
  }
  add_implied(run, dialect);
  Writing out(dialect, run);
  std::vector<std::string> notes;
  put_model_together(out, notes);
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
    unknown = unknown_beside(settings, run);
  } else {
    std::vector<std::string> lost = translate_unknown(run, dialect, settings);
    const std::vector<std::string> flags = unwritten_flags(run, dialect);
    lost.insert(lost.end(), flags.begin(), flags.end());
    if (!lost.empty()) {
      out.notes.push_back(fmt::format("{} settings of {} are not translated: {}", lost.size(),
                                      name_of(run.dialect), text_of_keys(lost)));
    }
  }
  return write_text(out, settings, unknown);
}

void take_model_flags(const RunConfig& from, bool has_own_model, RunConfig& to) {
  to.spellings = from.spellings;
  to.model_flags = from.model_flags;
  // Flags without sizes are changes to a model that is named elsewhere.
  if (!has_own_model || !from.model.contains("model_type")) return;
  std::vector<std::string> notes;
  const json said = traits_of(to.model, notes);
  for (const auto& [name, value] : said.items()) to.model_flags.erase(name);
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
  // What a run leaves to its framework is no change of the model.
  for (RunConfig* run : {&before_run, &after_run}) {
    run->model_flags.clear();
    run->model_defaults.clear();
  }
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
    changes.back().value_words = setting.words;
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
  // What the run itself sets: nobody has to unset what only followed.
  for (const auto& [name, value] : from.environment) {
    if (!variable(after_run, name)) changes.push_back({name, value, std::nullopt, true});
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
  auto [out, settings] = written(run, dialect);
  const std::vector<UnknownSetting> unknown = unknown_beside(settings, run);
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
  for (const UnknownSetting& setting : unknown) add(words_of(setting, dialect));
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
  if (!change.after) {
    return fmt::format("{} {}", change.is_variable ? "unset" : "without", shown_key(change.key));
  }
  if (change.is_variable) return fmt::format("{}={}", change.key, shell_quoted(*change.after));
  // Scripts have options of their own beside what configures a run.
  const bool is_flag =
      dialect == Dialect::megatron_lm || change.is_option || change.key.starts_with("--");
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
      return fmt::format("{} = {}", change.key, change.form.empty() ? *change.after : change.form);
    case Dialect::primus:
      break;
  }
  return fmt::format("{}: {}", shown_key(change.key),
                     change.form.empty() ? *change.after : change.form);
}

}  // namespace moetune::spec::dialects
