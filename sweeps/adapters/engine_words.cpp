#include "sweeps/adapters/engine_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/shell.h"
#include "engine/spec/dialects/values.h"
#include "kernels/base/error.h"
#include "kernels/base/shell_quotes.h"
#include "sweeps/adapters/trial_settings.h"

namespace moetune::sweeps {
namespace {

namespace dialects = spec::dialects;
using dialects::Dialect;
using dialects::UnknownSetting;

/// Settings in no table that differ from the user's, or are new.
std::vector<UnknownSetting> changed_unknown(const dialects::RunConfig& from,
                                            const dialects::RunConfig& to) {
  std::vector<UnknownSetting> changed;
  for (const UnknownSetting& setting : to.unknown) {
    if (std::ranges::find(from.unknown, setting) == from.unknown.end()) changed.push_back(setting);
  }
  return changed;
}

std::vector<std::string> gone_unknown(const dialects::RunConfig& from,
                                      const dialects::RunConfig& to) {
  std::vector<std::string> gone;
  for (const UnknownSetting& setting : from.unknown) {
    if (std::ranges::find(to.unknown, setting.key, &UnknownSetting::key) == to.unknown.end()) {
      gone.push_back(setting.key);
    }
  }
  return gone;
}

/// True if the command does not set the global batch and `config` would change the default.
bool changes_default_batch(const UserRun& run, const dialects::RunConfig& config) {
  const bool may_follow = run.dialect == Dialect::megatron_lm || run.dialect == Dialect::torchtitan;
  if (!may_follow) return false;
  if (run.config.global_batch_size > 0 && !run.config.is_batch_derived) return false;
  const spec::PlanKnobs& from = run.config.knobs;
  const spec::PlanKnobs& to = config.knobs;
  // Where nobody knows the ranks, other stages or slices are other replicas.
  const bool has_other_replicas =
      run.world_size > 0 ? to.dp != from.dp : to.replica_ranks() != from.replica_ranks();
  return has_other_replicas || to.micro_batch_size != from.micro_batch_size;
}

std::vector<dialects::SettingChange> table_changes(const UserRun& run,
                                                   const dialects::RunConfig& config) {
  if (run.dialect) {
    dialects::RunConfig from = run.config;
    // Set the batch explicitly: a smaller one would be faster by doing less work.
    if (changes_default_batch(run, config)) from.global_batch_size = 0;
    // That experts are split as attention is, is the framework's default, too.
    if (run.config.is_etp_derived && !run.is_axis("etp")) from.knobs.etp = config.knobs.etp;
    return dialects::changes_of_text(from, config);
  }
  std::vector<dialects::SettingChange> changes;
  for (const auto& [name, value] : config.environment) {
    changes.push_back({name, std::nullopt, value, true});
  }
  return changes;
}

std::vector<std::string> words_of_raw(const UserRun& run, const UnknownSetting& setting) {
  // Without a dialect, flags are written as for Megatron-LM.
  return dialects::words_of(setting, run.dialect.value_or(Dialect::megatron_lm));
}

void append(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

/// Where the value of a flag stands in a command, from and to: plain words, once, and nothing
/// between them and {flags} that quotes or that ends a command. None where it is not so simple.
std::optional<std::pair<size_t, size_t>> value_in(const std::string& text,
                                                  const std::string& flag) {
  const auto is_blank = [&](size_t at) { return at >= text.size() || text[at] == ' '; };
  const size_t at = text.find(flag);
  const size_t placeholder = text.find("{flags}");
  if (at == std::string::npos || placeholder == std::string::npos || at > placeholder) return {};
  const size_t behind = at + flag.size();
  const bool is_word = at > 0 && is_blank(at - 1) && (is_blank(behind) || text[behind] == '=');
  if (!is_word || text.find(flag, behind) != std::string::npos) return {};
  const size_t from = text.find_first_not_of(' ', behind + 1);
  if (from == std::string::npos || from >= placeholder) return {};
  const size_t to = std::min(text.find(' ', from), text.size());
  const size_t next = text.find_first_not_of(' ', to);
  const bool has_one = next != std::string::npos && (text[next] == '-' || next == placeholder);
  const std::string between = text.substr(from, placeholder - from);
  if (!has_one || !base::is_plain_shell_word(text.substr(from, to - from)) ||
      between.find_first_of("'\"`\\;&|()<>#\n") != std::string::npos) {
    return {};
  }
  return std::pair{from, to};
}

/// Puts a flag with its value in the place of the user's own, where that stands in the command.
bool replace_value(const std::vector<std::string>& words, std::string& text) {
  if (words.size() != 2 || !words[0].starts_with("--")) return false;
  const auto place = value_in(text, words[0]);
  if (!place) return false;
  text.replace(place->first, place->second - place->first, word_for_shell(words[1]));
  return true;
}

/// A trial's own setting. Of a flag's list each number is a word; of a user's value all is one.
void put_trial_setting(const UnknownSetting& setting, Dialect dialect,
                       dialects::RunConfig& config) {
  put_setting(config, setting, dialect);
  const bool is_list = setting.value.find(' ') != std::string::npos &&
                       setting.value.find_first_not_of("0123456789 ") == std::string::npos;
  if (!is_list || !setting.key.starts_with("-")) return;
  std::ranges::find(config.unknown, setting.key, &UnknownSetting::key)->value = setting.value;
}

/// The words of the key 'profile', split as a shell does.
std::vector<std::string> own_profile_words(const std::string& text) {
  std::vector<std::string> words;
  for (const dialects::ShellCommand& command : dialects::read_shell(text, "engine.profile")) {
    append(words, command.words);
  }
  return words;
}

/// The dialect's defaults. The text sets tp to 1, its default, because import_run refuses a text
/// without settings.
dialects::RunConfig defaults_of(const UserRun& run) {
  const UnknownSetting one{dialects::key_of(dialects::row_of("tp"), *run.dialect), "1"};
  return dialects::import_run(fmt::format("{}", fmt::join(words_of_raw(run, one), " ")),
                              *run.dialect, {.source = "defaults", .world_size = run.world_size});
}

/// From 1. Profilers of frameworks want a few steps of warm-up themselves.
int64_t first_traced_step(const tuner::TrialRequest& request) {
  constexpr int64_t kFewestBefore = 3;
  return std::max(request.spec.num_warmup_steps, kFewestBefore) + 1;
}

/// The setting of the global batch as a command takes it.
std::string global_batch_word(Dialect dialect) {
  const bool is_titan = dialect == Dialect::torchtitan;
  const dialects::Row& row =
      dialects::row_of(is_titan ? "sequences_per_step" : "global_batch_size");
  return (is_titan ? "--" : "") + dialects::key_of(row, dialect);
}

}  // namespace

std::vector<std::string> change_texts(const UserRun& run, const dialects::RunConfig& config) {
  const Dialect dialect = run.dialect.value_or(Dialect::megatron_lm);
  std::vector<std::string> texts;
  for (const dialects::SettingChange& change : table_changes(run, config)) {
    texts.push_back(dialects::text_of(change, dialect));
  }
  for (const UnknownSetting& setting : changed_unknown(run.config, config)) {
    dialects::SettingChange change{setting.key, std::nullopt, setting.value};
    change.is_option = dialect == Dialect::torchtitan && run.config.is_command;
    if (change.is_option) change.words = words_of_raw(run, setting);
    texts.push_back(dialects::text_of(change, dialect));
  }
  for (const std::string& key : gone_unknown(run.config, config)) {
    texts.push_back("without " + key);
  }
  return texts;
}

std::string unsayable(const UserRun& run, const dialects::RunConfig& config,
                      const tuner::Settings& settings) {
  const std::vector<dialects::SettingChange> changes = table_changes(run, config);
  if (run.dialect && !(config.knobs == run.config.knobs) && changes.empty()) {
    std::vector<std::string> names;
    const tuner::Settings was = settings_of(run);
    for (const auto& [name, values] : run.sweep.space) {
      if (was.at(name) != settings.at(name)) names.push_back(name);
    }
    return fmt::format("no_word: {} has no word for {}", spec::name_of(*run.dialect),
                       fmt::join(names, ", "));
  }
  if (changes_default_batch(run, config) && run.config.global_batch_size == 0) {
    return fmt::format(
        "global_batch_unsaid: the command leaves out its global batch, which changes with this; "
        "add {} to it, or say how many ranks it has with the key 'engine.gpus'",
        global_batch_word(run.dialect.value_or(Dialect::megatron_lm)));
  }
  for (const dialects::SettingChange& change : changes) {
    if (!change.is_variable || !run.config.environment.contains(change.key)) continue;
    return fmt::format(
        "set_in_command: the command sets {} itself, and what is put into its environment does not "
        "count then; take it out of the command",
        change.key);
  }
  const bool takes_all = !run.is_of_script && (has_placeholder(run.engine().run, "all_flags") ||
                                               has_placeholder(run.engine().run, "config"));
  if (takes_all) return {};
  std::vector<std::string> gone = gone_unknown(run.config, config);
  for (const dialects::SettingChange& change : changes) {
    if (!change.after && !change.is_variable) gone.push_back(change.key);
  }
  if (gone.empty()) return {};
  const bool has_all =
      run.dialect == Dialect::megatron_lm || run.dialect == Dialect::megatron_bridge;
  return fmt::format(
      "cannot_take_back: the command says {}, which {{flags}} behind it cannot take back{}",
      fmt::join(gone, ", "),
      run.is_of_script ? ": it stands in the script"
      : has_all        ? "; with {all_flags} in its place it can"
      : run.dialect    ? "; with {config} in its place it can"
                       : "");
}

int64_t launched_steps(const tuner::TrialRequest& request) {
  if (request.is_profiled) return first_traced_step(request) + 2;
  const int64_t timed = request.num_steps > 0 ? request.num_steps : request.spec.num_steps;
  return request.spec.num_warmup_steps + timed;
}

void check_total_steps(const UserRun& run, bool can_profile) {
  const std::string key = run.dialect ? total_steps_setting(*run.dialect) : "";
  const auto stated = std::ranges::find(run.config.stated, key, &dialects::StatedSetting::key);
  if (key.empty() || stated == run.config.stated.end() || run.is_axis(key)) return;
  const std::optional<int64_t> total = dialects::parse_integer(stated->value);
  if (!total || *total <= 0) return;
  struct Run {
    std::string_view what;
    int64_t num_steps;
  };
  tuner::TrialRequest request;
  request.spec = run.sweep.base;
  std::vector<Run> runs = {{"a trial (num_warmup_steps + num_steps)", launched_steps(request)}};
  request.num_steps = run.sweep.validate_steps;
  runs.push_back({"the validation (num_warmup_steps + validate_steps)", launched_steps(request)});
  request.is_profiled = true;
  if (can_profile) runs.push_back({"the run that is profiled", launched_steps(request)});
  const Run& longest = *std::ranges::max_element(runs, {}, &Run::num_steps);
  const auto cut = std::ranges::find_if(runs, [&](const Run& r) { return r.num_steps > *total; });
  if (cut == runs.end()) return;
  throw base::UsageError(
      fmt::format("key 'engine.{}': {} is {}, and {} makes {} steps: raise {} to at least {}",
                  run.engine().config.empty() ? "run" : "config", key, *total, cut->what,
                  cut->num_steps, key, longest.num_steps));
}

tuner::Settings settings_of(const tuner::TrialRequest& request) {
  return {request.settings.begin(), request.settings.end()};
}

EngineCommand engine_command(const UserRun& run, const tuner::TrialRequest& request,
                             const std::string& out) {
  const spec::EngineSpec& engine = run.engine();
  EngineCommand command;
  dialects::RunConfig config = config_with(run, settings_of(request));
  TrialLength length;
  length.num_steps = launched_steps(request);
  length.out = out;
  length.world_size = run.world_size;
  if (request.is_profiled) length.first_traced = first_traced_step(request);
  std::vector<std::string> flags;
  std::string text = engine.run;
  // Elsewhere the last of two values counts, as for the framework's parser.
  const auto add = [&](const std::vector<std::string>& words) {
    const bool is_of_command = run.dialect == Dialect::megatron_lm && !run.is_of_script;
    if (!is_of_command || !replace_value(words, text)) append(flags, words);
  };
  const std::vector<dialects::SettingChange> changes = table_changes(run, config);
  for (const dialects::SettingChange& change : changes) {
    if (change.is_variable && change.after) {
      command.environment.push_back(change.key + "=" + *change.after);
    }
    add(change.words);
  }
  std::vector<std::string> own_words;
  if (request.is_profiled && !engine.profile.empty()) {
    own_words = own_profile_words(filled_in(engine.profile, {{"out", {out}}}, "engine.profile"));
  }
  if (run.dialect) {
    // The user's own profiler flags replace the dialect's.
    std::vector<UnknownSetting> replaced;
    if (!own_words.empty()) replaced = profile_settings(*run.dialect, length);
    for (const UnknownSetting& setting : trial_settings(*run.dialect, length)) {
      if (std::ranges::find(replaced, setting) != replaced.end()) continue;
      put_trial_setting(setting, *run.dialect, config);
    }
  }
  for (const UnknownSetting& setting : changed_unknown(run.config, config)) {
    add(words_of_raw(run, setting));
  }
  append(flags, own_words);
  Placeholders& values = command.placeholders;
  values = {{"out", {out}},
            {"trial", {request.hash.substr(0, 8)}},
            {"steps", {std::to_string(length.num_steps)}},
            {"flags", flags}};
  if (run.dialect && has_placeholder(engine.run, "all_flags")) {
    dialects::RunConfig defaults = defaults_of(run);
    if (changes_default_batch(run, config)) defaults.global_batch_size = 0;
    std::vector<std::string> all =
        dialects::command_words(config, *run.dialect, defaults, run.config_text).value_or(flags);
    append(all, own_words);
    values["all_flags"] = std::move(all);
  }
  if (run.dialect && has_placeholder(engine.run, "config")) {
    const bool is_toml = run.dialect == Dialect::torchtitan;
    command.config_path = out + (is_toml ? "/config.toml" : "/config.yaml");
    command.config_text = dialects::export_run(config, *run.dialect);
    values["config"] = {command.config_path};
  }
  command.text = filled_in(text, values);
  return command;
}

std::string EngineCommand::shell_text() const {
  std::string all;
  for (const std::string& variable : environment) {
    const size_t equals = variable.find('=');
    all += "export " + variable.substr(0, equals + 1) +
           word_for_shell(variable.substr(equals + 1)) + "; ";
  }
  return all + text;
}

}  // namespace moetune::sweeps
