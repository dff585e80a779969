// What has to be done to the text of a run, so that it says another one: a setting may stand there
// under another key than the table writes, or follow from an older one.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/texts.h"
#include "engine/spec/dialects/values.h"

namespace moetune::spec::dialects {
namespace {

using Changes = std::vector<SettingChange>;

const StatedSetting* find_stated(const RunConfig& run, std::string_view key) {
  const auto found = std::ranges::find(run.stated, key, &StatedSetting::key);
  return key.empty() || found == run.stated.end() ? nullptr : &*found;
}

bool is_stated(const RunConfig& run, std::string_view key) {
  return find_stated(run, key) != nullptr;
}

/// Whether a switch stands there and is not off.
bool is_on(const RunConfig& run, std::string_view key) {
  const StatedSetting* setting = find_stated(run, key);
  return setting != nullptr && setting->value != "null" &&
         parse_yaml_switch(setting->value).value_or(true);
}

SettingChange without(const RunConfig& run, std::string_view key) {
  const StatedSetting* setting = find_stated(run, key);
  return {std::string(key), setting == nullptr ? std::nullopt : std::optional(setting->value),
          std::nullopt};
}

SettingChange put(const RunConfig& run, const std::string& key, std::string value) {
  SettingChange change = change_to(run, key, std::move(value));
  if (const StatedSetting* setting = find_stated(run, key)) change.before = setting->value;
  return change;
}

/// Virtual stages by their layers, where the text says these: Megatron-LM takes one of the two.
/// How many layers there are follows from what was read.
void respell_stages(const RunConfig& from, const RunConfig& to, Changes& changes) {
  const std::string by_layers =
      key_of(row_of("num_layers_per_virtual_pipeline_stage"), from.dialect);
  const std::string by_stages =
      key_of(row_of("num_virtual_stages_per_pipeline_rank"), from.dialect);
  const StatedSetting* stated = find_stated(from, by_layers);
  if (stated == nullptr) return;
  const std::optional<int64_t> layers = parse_integer(stated->value);
  if (!layers) return;  // null in a file
  const PlanKnobs& was = from.knobs;
  const PlanKnobs& is = to.knobs;
  const bool has_layout = !to.pipeline_layout.empty();
  const bool has_ends = is.first_stage_layers > 0 || is.last_stage_layers > 0;
  if (is.pp == was.pp && is.vpp == was.vpp && !has_layout && !has_ends) return;
  // It stays there where nobody knows how many layers the model has.
  const bool is_read =
      std::ranges::find(from.unknown, by_layers, &UnknownSetting::key) == from.unknown.end();
  if (!is_read && is.vpp == was.vpp && !has_layout && !has_ends) return;
  const int64_t all = *layers * was.pp * was.vpp;
  const int64_t stages = int64_t{is.pp} * is.vpp;
  std::erase_if(changes, [&](const SettingChange& change) { return change.key == by_stages; });
  if (is_read && !has_layout && !has_ends && all % stages == 0) {
    if (all / stages == *layers) return;
    changes.push_back(put(from, by_layers, std::to_string(all / stages)));
    return;
  }
  if (is.vpp > 1 && !has_layout) changes.push_back(put(from, by_stages, std::to_string(is.vpp)));
  changes.push_back(without(from, by_layers));
}

/// Whether the text has a setting of an older release.
bool is_of_older_release(const RunConfig& run) {
  return std::ranges::any_of(old_settings(), [&](const OldSetting& old) {
    return old.is_of_release && old.dialect == run.dialect && is_stated(run, old.key);
  });
}

/// Another key with the same values, of the text or of its release; empty: none.
std::string_view renamed(const RunConfig& run, const std::string& key) {
  const Row* row = find_row(key, run.dialect);
  for (const OtherKey& other : other_keys()) {
    // Adapters have values of their own there.
    const bool is_same = row != nullptr && other.row == row->name && other.row != "peft" &&
                         other.use != OtherKey::Use::agrees;
    if (other.dialect != run.dialect || !is_same) continue;
    const bool is_release = other.use == OtherKey::Use::older && is_of_older_release(run);
    if (is_release || is_stated(run, other.key)) return other.key;
  }
  for (const OldSetting& old : old_settings()) {
    const bool is_same = std::ranges::any_of(old.means, [&](const OldSetting::Meaning& meaning) {
      return meaning.key == key && meaning.value.empty();
    });
    if (old.dialect == run.dialect && is_same && is_stated(run, old.key)) return old.key;
  }
  return {};
}

void rename(SettingChange& change, std::string_view key) {
  if (!change.words.empty()) {
    std::string& word = change.words.front();
    if (const size_t at = word.find(change.key); at != std::string::npos) {
      word.replace(at, change.key.size(), key);
    }
  }
  change.key = key;
}

/// Takes out an older setting that says otherwise, and says by today's what else it meant. False
/// where it may stay.
bool take_out_old(const RunConfig& run, const OldSetting& old, Changes& changes) {
  const auto change_of = [&](const OldSetting::Meaning& meaning) {
    return std::ranges::find(changes, meaning.key, &SettingChange::key);
  };
  const bool says_otherwise =
      std::ranges::any_of(old.means, [&](const OldSetting::Meaning& meaning) {
        const auto change = change_of(meaning);
        return !meaning.value.empty() && change != changes.end() && change->after != meaning.value;
      });
  if (!says_otherwise) return false;
  for (const OldSetting::Meaning& meaning : old.means) {
    const bool stays = !meaning.value.empty() && change_of(meaning) == changes.end();
    if (stays && !is_stated(run, meaning.key)) {
      changes.push_back(put(run, std::string(meaning.key), std::string(meaning.value)));
    }
  }
  changes.push_back(without(run, old.key));
  return true;
}

/// Whether a setting that the text leaves out follows from others, or says no more than a default.
bool only_follows(const RunConfig& run, const SettingChange& change) {
  if (find_carried(change.key, run.dialect) != nullptr) return true;
  const Row* row = find_row(change.key, run.dialect);
  return row != nullptr && row->is_always_said && change.before == fallback_of(*row, run.dialect);
}

/// As it stands in a text of the run's kind.
void put_in_form(const RunConfig& run, const std::vector<std::string>& words,
                 SettingChange& change) {
  const Dialect dialect = run.dialect;
  const bool is_file = dialect == Dialect::torchtitan || dialect == Dialect::primus;
  if (!is_file || !change.after || change.is_variable) return;
  change.is_option = dialect == Dialect::torchtitan && run.is_command;
  if (!change.is_option) change.form = value_text({.key = change.key, .words = words}, dialect);
}

}  // namespace

SettingChange change_to(const RunConfig& run, const std::string& key, std::string value) {
  const Setting setting{.key = key, .words = {value}};
  SettingChange change{key, std::nullopt, std::move(value)};
  change.words = words_of_setting(setting, run.dialect);
  put_in_form(run, setting.words, change);
  return change;
}

std::vector<SettingChange> changes_of_text(const RunConfig& from, const RunConfig& to) {
  Changes changes = changed_settings(from, to, from.dialect);
  for (SettingChange& change : changes) put_in_form(from, change.value_words, change);
  if (from.stated.empty()) return changes;
  respell_stages(from, to, changes);
  for (SettingChange& change : changes) {
    if (change.is_variable || is_stated(from, change.key)) continue;
    if (const std::string_view key = renamed(from, change.key); !key.empty()) rename(change, key);
  }
  bool is_old_gone = false;
  for (const OldSetting& old : old_settings()) {
    if (old.dialect != from.dialect || !is_on(from, old.key)) continue;
    is_old_gone = take_out_old(from, old, changes) || is_old_gone;
  }
  // What only followed from others goes with them.
  std::erase_if(changes, [&](const SettingChange& change) {
    const bool is_left_out = !change.after && !change.is_variable && !is_stated(from, change.key);
    return is_left_out && (is_old_gone || only_follows(from, change));
  });
  // Variables are the last.
  // Not of std::ranges: clang does not take libstdc++'s.
  std::stable_partition(changes.begin(), changes.end(),
                        [](const SettingChange& change) { return !change.is_variable; });
  return changes;
}

}  // namespace moetune::spec::dialects
