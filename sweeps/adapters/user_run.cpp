#include "sweeps/adapters/user_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "engine/spec/dialects/dense_model.h"
#include "engine/spec/dialects/node.h"
#include "engine/spec/dialects/shell.h"
#include "engine/spec/plan_knobs.h"
#include "kernels/base/error.h"
#include "sweeps/adapters/shell_text.h"
#include "sweeps/config_files.h"
#include "sweeps/load.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;
namespace dialects = spec::dialects;

/// A script that the user's command starts.
struct JobScript {
  std::string word;  ///< as the command names it
  std::string path;
  std::string text;
  std::vector<std::string> arguments;
  bool gets_flags = false;
};

bool is_script(const fs::path& path) {
  if (dialects::is_script_name(path.filename().string())) return true;
  // Data that the command names may have no lines at all.
  constexpr size_t kLongestFirstLine = 256;
  std::string first(kLongestFirstLine, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(first.data(), static_cast<std::streamsize>(first.size()));
  first.resize(static_cast<size_t>(file.gcount()));
  first.resize(std::min(first.find('\n'), first.size()));
  if (!first.starts_with("#!")) return false;
  constexpr std::array<std::string_view, 4> kShells = {"sh", "bash", "dash", "zsh"};
  std::ranges::replace(first, '/', ' ');
  std::istringstream words(first.substr(2));
  return std::any_of(std::istream_iterator<std::string>(words), {}, [&](const std::string& word) {
    return std::ranges::find(kShells, word) != kShells.end();
  });
}

/// Where a command's word is found: beside the sweep file, where it runs, else in the working
/// folder.
std::string path_of_word(const std::string& word, const std::string& folder) {
  constexpr size_t kLongest = 4096;
  if (word.empty() || word.size() > kLongest) return {};
  std::error_code error;
  for (const fs::path& path : {fs::path(folder) / word, fs::path(word)}) {
    if (fs::is_regular_file(path, error)) return path;
  }
  return {};
}

bool takes_flags(const std::string& word) {
  return has_placeholder(word, "flags") || has_placeholder(word, "all_flags");
}

/// Whether settings are put into a command: what stands before it or behind it is no part of the
/// run.
bool takes_settings(const dialects::ShellCommand& command) {
  const auto takes = [](const std::string& word) {
    return takes_flags(word) || has_placeholder(word, "config");
  };
  return std::ranges::any_of(command.words, takes) ||
         std::ranges::any_of(command.environment,
                             [&](const auto& variable) { return takes(variable.second); });
}

/// Words of a command without the placeholders.
std::vector<std::string> plain_words(std::span<const std::string> words) {
  std::vector<std::string> plain;
  for (const std::string& word : words) {
    std::string text = without_placeholders(word);
    if (text != " ") plain.push_back(std::move(text));
  }
  return plain;
}

/// The first one that has settings, of commands that take some. `missing` gets the names of those
/// that are not there.
std::optional<JobScript> job_script(const UserRun& run, std::vector<std::string>& missing) {
  const spec::EngineSpec& engine = run.engine();
  const std::string text = without_placeholders(engine.run);
  for (const dialects::ShellCommand& command : dialects::read_shell(engine.run, "engine.run")) {
    if (!takes_settings(command)) continue;
    for (auto word = command.words.begin(); word != command.words.end(); ++word) {
      const std::string path = path_of_word(*word, engine.folder);
      const bool is_name = word->find_first_of(" \t\n") == std::string::npos;
      if (path.empty() && is_name && dialects::is_script_name(*word)) missing.push_back(*word);
      if (path.empty() || !is_script(path)) continue;
      const std::span<const std::string> behind(word + 1, command.words.end());
      JobScript script{*word, path, read_spec_file(path), plain_words(behind),
                       std::ranges::any_of(behind, takes_flags)};
      // One that only hands its arguments on says nothing of its own.
      try {
        if (dialects::has_settings(script.text, *run.dialect, {.source = path})) return script;
      } catch (const base::UsageError&) {
        if (!dialects::has_settings(text, *run.dialect, {.source = "engine.run"})) throw;
      }
    }
  }
  return std::nullopt;
}

/// Flags that a script does not hand on would change nothing.
void check_takes_arguments(const JobScript& script) {
  const bool takes_any = std::ranges::any_of(
      std::array{"$@", "$*", "${@", "${*", "$1", "${1", "$#"},
      [&](const char* part) { return script.text.find(part) != std::string::npos; });
  if (!script.gets_flags || takes_any) return;
  throw base::UsageError(
      fmt::format("key 'engine.run': {} takes no arguments, so {{flags}} would be lost: put \"$@\" "
                  "behind the flags in it",
                  script.word.substr(0, 200)));
}

/// The settings of the user's run as a text, and how it is read.
struct RunText {
  std::string text;
  dialects::ImportOptions how;
  bool is_shell = true;
  bool is_of_script = false;
  std::vector<std::string> missing;  ///< files that the command names
  std::string path;                  ///< empty: it is in no file
};

/// What the key 'config' names, else a script that the command starts, else the command.
RunText run_text_of(const UserRun& run) {
  const spec::EngineSpec& engine = run.engine();
  RunText found;
  found.how.world_size = engine.gpus;
  found.how.source = "engine.run";
  found.text = without_placeholders(engine.run);
  if (!engine.config.empty()) {
    found.how.source = "engine.config";
    found.text = engine.config;
    const fs::path path = fs::path(engine.folder) / engine.config;
    std::error_code error;
    if (engine.config.size() < 4096 && fs::is_regular_file(path, error)) {
      found.path = path;
      found.how.source = path;
      found.text = read_spec_file(path);
      found.is_shell = is_script(path);
    }
  } else if (run.dialect != dialects::Dialect::primus) {
    if (auto script = job_script(run, found.missing)) {
      check_takes_arguments(*script);
      found.how.source = script->path;
      found.how.arguments = std::move(script->arguments);
      found.text = std::move(script->text);
      found.is_of_script = true;
    }
  }
  return found;
}

/// Settings that stand nowhere can be named.
dialects::RunConfig config_of(const UserRun& run, const RunText& found) {
  try {
    return dialects::import_run(found.text, *run.dialect, found.how);
  } catch (const base::UsageError& error) {
    const bool lacks_file = !found.missing.empty() && found.how.files.empty();
    const bool may_be_elsewhere =
        run.engine().config.empty() && !found.is_of_script &&
        (lacks_file || !dialects::has_settings(found.text, *run.dialect, found.how));
    if (!may_be_elsewhere) throw;
    const std::string missing =
        found.missing.empty()
            ? ""
            : fmt::format("; {} is neither beside the sweep file nor in the working folder",
                          found.missing.front().substr(0, 200));
    throw base::UsageError(fmt::format("{}{}; the key 'engine.config' names the file that has them",
                                       error.what(), missing));
  }
}

int64_t world_of(const UserRun& run) {
  if (run.engine().gpus > 0) return run.engine().gpus;
  if (run.config.world_size > 0) return run.config.world_size;
  return run.hardware == nullptr ? 0 : run.hardware->num_devices();
}

/// Replicas are what the ranks leave; without a pipeline there are no virtual stages; experts are
/// split as attention is where nobody says otherwise.
void follow(const UserRun& run, spec::PlanKnobs& knobs) {
  if (knobs.pp == 1) knobs.vpp = 1;
  const bool is_dense =
      run.model != nullptr ? run.model->num_experts == 0 : dialects::says_dense_model(run.config);
  if (run.config.is_etp_derived && !run.is_axis("etp") && !is_dense) knobs.etp = knobs.tp;
  if (run.world_size > 0) spec::set_dp_for(run.world_size, knobs);
}

}  // namespace

UserRun user_run_of(const spec::SweepSpec& sweep) {
  UserRun run;
  run.sweep = sweep;
  const spec::EngineSpec& engine = sweep.engine;
  run.dialect = spec::dialect_of(engine.dialect);
  check_run_text(engine);
  if (sweep.has_model) run.model = std::make_shared<const spec::ModelSpec>(sweep.base.model);
  if (sweep.has_hardware) {
    run.hardware = std::make_shared<const spec::HardwareSpec>(sweep.base.hardware);
  }
  if (run.dialect) {
    RunText found = run_text_of(run);
    std::string all = found.text;
    if (found.is_shell) {
      NamedByCommand named =
          read_named_by_command(found.text, {engine.folder}, Reach::anywhere, found.how);
      all += named.all;
      found.missing.insert(found.missing.end(), named.missing.begin(), named.missing.end());
    }
    std::shared_ptr<ConfigFolder> files;
    if (!found.path.empty()) {
      const ConfigPlace place = {.path = found.path, .folder = engine.folder};
      files = find_named_files(place, *run.dialect, found.how);
    }
    run.config = config_of(run, found);
    if (files != nullptr) {
      for (const auto& [name, file] : files->files()) all += file.text;
    }
    run.config_text = std::move(all);
    run.is_of_script = found.is_of_script;
    run.config.dialect = *run.dialect;
  }
  run.world_size = world_of(run);
  run.config.world_size = run.world_size;
  follow(run, run.config.knobs);
  if (run.model == nullptr && !run.config.model.empty()) {
    try {
      run.model = std::make_shared<const spec::ModelSpec>(
          spec::model_from_json(run.config.model, spec::Source("the run's model")));
    } catch (const base::UsageError&) {
      // Sizes are missing, or nobody knows the family: then nothing is predicted.
    }
  }
  spec::TrainingSpec& training = run.sweep.base.training;
  const int64_t pass = int64_t{run.config.knobs.micro_batch_size} * run.config.knobs.dp;
  training.global_batch_size =
      run.config.global_batch_size > 0 ? run.config.global_batch_size : std::max<int64_t>(pass, 1);
  training.seq_length = std::max<int64_t>(run.config.seq_length, 1);
  return run;
}

tuner::Settings settings_of(const UserRun& run) {
  tuner::Settings settings;
  if (run.dialect) {
    for (const spec::PlanKnobRow& row : spec::plan_knob_table()) {
      settings[std::string(row.name)] = spec::get_plan_knob(run.config.knobs, row);
    }
  }
  for (const auto& [name, values] : run.sweep.space) {
    if (settings.contains(name)) continue;
    const auto said = std::ranges::find(run.config.unknown, name, &dialects::UnknownSetting::key);
    const auto variable = run.config.environment.find(name);
    settings[name] = variable != run.config.environment.end() ? variable->second
                     : said == run.config.unknown.end()       ? kAsItIs
                     : said->value.empty()                    ? "true"
                                                              : said->value;
  }
  return settings;
}

void put_setting(dialects::RunConfig& config, const dialects::UnknownSetting& setting,
                 std::optional<dialects::Dialect> dialect) {
  const auto same = std::ranges::find(config.unknown, setting.key, &dialects::UnknownSetting::key);
  const bool is_flag = setting.key.starts_with("-");
  if (is_flag && setting.value == "false") {
    if (same != config.unknown.end()) config.unknown.erase(same);
    return;
  }
  // In a command a switch is said by being there.
  const bool is_switch = is_flag && setting.value == "true" &&
                         (!dialect || *dialect == dialects::Dialect::megatron_lm);
  dialects::UnknownSetting put{setting.key, is_switch ? std::string() : setting.value};
  const bool is_bare = std::ranges::all_of(put.value, [](char c) {
    return (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '+' || c == 'e';
  });
  const bool has_form = put.value.starts_with('"') || put.value.starts_with('[');
  if (dialect == dialects::Dialect::torchtitan && !is_flag && !is_bare && !has_form &&
      put.value != "true" && put.value != "false") {
    put.value = dialects::toml_text(dialects::scalar_node(put.value, true));
  }
  // Values of flags are kept as a command has them.
  if (is_flag && !is_switch) put.value = dialects::shell_quoted(put.value);
  if (same != config.unknown.end()) {
    *same = put;
  } else {
    config.unknown.push_back(put);
  }
}

dialects::RunConfig config_with(const UserRun& run, const tuner::Settings& settings) {
  dialects::RunConfig config = run.config;
  for (const auto& [name, value] : settings) {
    const spec::PlanKnobRow* row = run.dialect ? spec::find_plan_knob(name) : nullptr;
    if (row != nullptr) {
      if (spec::get_plan_knob(config.knobs, *row) != value) {
        spec::set_plan_knob(config.knobs, *row, value);
      }
    } else if (value != kAsItIs) {
      if (spec::raw_form_of(name, run.engine().dialect) == spec::RawForm::variable) {
        config.environment[name] = value;
      } else {
        put_setting(config, {name, value}, run.dialect);
      }
    }
  }
  follow(run, config.knobs);
  return config;
}

}  // namespace moetune::sweeps
