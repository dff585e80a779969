// The text is made of what the command states, so that comments, paths and launchers are gone.
#include "sweeps/planning/edited_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/shell.h"
#include "kernels/base/error.h"

namespace moetune::sweeps {

namespace dialects = spec::dialects;
using dialects::Dialect;
using dialects::RunConfig;
using dialects::SettingChange;
using dialects::StatedSetting;

namespace {

/// What Transformer Engine needs beside offloaded activations.
constexpr std::string_view kOfOffload = "NVTE_CPU_OFFLOAD_V1";

/// Other keys of a text that mean what `key` does, among other things.
std::vector<std::string> other_spellings(const std::string& key, Dialect dialect) {
  std::vector<std::string> others;
  for (const dialects::OldSetting& old : dialects::old_settings()) {
    if (old.dialect != dialect) continue;
    const bool means_it =
        std::ranges::any_of(old.means, [&](const auto& meaning) { return meaning.key == key; });
    if (means_it) others.emplace_back(old.key);
  }
  const dialects::Row* row = dialects::find_row(key, dialect);
  for (const dialects::OtherKey& other : dialects::other_keys()) {
    const bool is_read = other.dialect == dialect && other.use == dialects::OtherKey::Use::read;
    if (row != nullptr && is_read && other.row == row->name) others.emplace_back(other.key);
  }
  return others;
}

}  // namespace

std::vector<SettingChange> changes_between(RunConfig before, RunConfig after) {
  // Slices of experts that nobody states are those of attention.
  const bool was_unsaid = before.is_etp_derived && before.knobs.etp == before.knobs.tp;
  if (was_unsaid) {
    const bool stays_unsaid = after.knobs.etp == after.knobs.tp;
    before.knobs.etp = stays_unsaid ? after.knobs.etp : after.knobs.tp;
  }
  return dialects::changed_settings(before, after, before.dialect);
}

void leave_out_variables_of_choices(const RunConfig& from, RunConfig& to) {
  if (!from.knobs.offload.empty() && to.knobs.offload.empty()) {
    to.environment.erase(std::string(kOfOffload));
  }
}

void leave_out_idle_sequence_parallelism(Dialect dialect, RunConfig& config) {
  const bool is_off_unasked =
      dialects::fallback_of(dialects::row_of("sequence_parallel"), dialect) == "false";
  if (config.knobs.tp == 1 && is_off_unasked) config.knobs.sequence_parallel = false;
}

EditedCommand::EditedCommand(const RunConfig& run, int64_t num_layers)
    : dialect_(run.dialect),
      world_size_(run.world_size),
      num_layers_(num_layers),
      settings_(run.stated),
      unknown_(run.unknown),
      environment_(run.environment) {}

std::optional<EditedCommand> EditedCommand::of(const RunConfig& run, int64_t num_layers) {
  const bool is_command =
      run.dialect == Dialect::megatron_lm || run.dialect == Dialect::megatron_bridge;
  if (!is_command || run.is_echo || run.is_whole || run.is_partial) return std::nullopt;
  EditedCommand command(run, num_layers);
  try {
    if (command.read().knobs != run.knobs) return std::nullopt;
  } catch (const base::UsageError&) {
    return std::nullopt;
  }
  return command;
}

std::string EditedCommand::text() const {
  std::string text;
  for (const auto& [name, value] : environment_) {
    text += fmt::format("{}={} ", name, dialects::shell_quoted(value));
  }
  text += dialect_ == Dialect::megatron_lm ? "pretrain_gpt.py" : "run_recipe.py";
  for (const auto& [key, value] : settings_) {
    const bool is_flag = key.starts_with("-");
    if (!is_flag) text += fmt::format(" {}={}", key, dialects::shell_quoted(value));
    if (is_flag) text += fmt::format(" {}{}{}", key, value.empty() ? "" : " ", value);
  }
  return text;
}

RunConfig EditedCommand::read() const {
  dialects::ImportOptions how;
  how.source = "the command";
  how.world_size = world_size_;
  how.num_layers = num_layers_;
  return dialects::import_run(text(), dialect_, how);
}

bool EditedCommand::take_out(const std::string& key, std::vector<Edit>& edits) {
  if (std::erase_if(settings_, [&](const StatedSetting& one) { return one.key == key; }) == 0) {
    return false;
  }
  edits.push_back({key, dialects::text_of({key, std::nullopt, std::nullopt}, dialect_)});
  return true;
}

bool EditedCommand::apply(const SettingChange& change, std::vector<Edit>& edits) {
  const auto forget = [&] {
    std::erase_if(edits, [&](const Edit& edit) { return edit.key == change.key; });
  };
  if (change.is_variable) {
    const auto set = environment_.find(change.key);
    const bool is_set = set != environment_.end();
    if (change.after ? is_set && set->second == *change.after : !is_set) return false;
    if (change.after) {
      environment_[change.key] = *change.after;
    } else {
      environment_.erase(set);
    }
    forget();
    edits.push_back({change.key, dialects::text_of(change, dialect_)});
    return true;
  }
  bool is_new = false;
  for (const std::string& other : other_spellings(change.key, dialect_)) {
    is_new = take_out(other, edits) || is_new;
  }
  if (!change.after) return take_out(change.key, edits) || is_new;
  std::string value = *change.after;
  if (change.key.starts_with("-")) {
    std::vector<std::string> words;
    for (size_t i = 1; i < change.words.size(); ++i) {
      words.push_back(dialects::shell_quoted(change.words[i]));
    }
    value = fmt::format("{}", fmt::join(words, " "));
  } else if (!change.words.empty()) {
    value = change.words.front().substr(change.key.size() + 1);
  }
  const auto stated = std::ranges::find(settings_, change.key, &StatedSetting::key);
  if (stated != settings_.end()) {
    if (stated->value == value) return is_new;
    stated->value = value;
  } else {
    settings_.push_back({change.key, value});
  }
  forget();
  edits.push_back({change.key, dialects::text_of(change, dialect_)});
  return true;
}

std::vector<SettingChange> EditedCommand::changes_to(const RunConfig& target) const {
  RunConfig now = read();
  if (now.is_batch_derived) now.global_batch_size = 0;
  // What is no word of the tables is the same on both sides.
  now.environment.try_emplace(std::string(dialects::kConnections),
                              std::to_string(now.knobs.cuda_device_max_connections));
  return changes_between(now, target);
}

std::optional<std::vector<std::string>> EditedCommand::change_to(const RunConfig& target) {
  constexpr int kMostRounds = 4;
  const EditedCommand before = *this;
  std::vector<Edit> edits;
  bool is_target = false;
  try {
    // What no knob stands for.
    for (const dialects::UnknownSetting& setting : unknown_) {
      if (std::ranges::find(target.unknown, setting) == target.unknown.end()) {
        take_out(setting.key, edits);
      }
    }
    bool has_changed = true;
    for (int round = 0; round < kMostRounds && has_changed; ++round) {
      has_changed = false;
      for (const SettingChange& change : changes_to(target)) {
        has_changed = apply(change, edits) || has_changed;
      }
    }
    is_target = changes_to(target).empty();
  } catch (const base::UsageError&) {
    is_target = false;
  }
  if (!is_target) {
    *this = before;
    return std::nullopt;
  }
  std::vector<std::string> flags;
  for (Edit& edit : edits) flags.push_back(std::move(edit.text));
  return flags;
}

}  // namespace moetune::sweeps
