// Settings that no knob stands for: told by name, and put into another dialect's words where the
// table has some.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/node.h"
#include "engine/spec/dialects/shell.h"
#include "engine/spec/dialects/text_cursor.h"
#include "engine/spec/dialects/texts.h"
#include "engine/spec/dialects/values.h"
#include "kernels/base/error.h"

namespace moetune::spec::dialects {
namespace {

/// What configuration files write for what is not set.
bool says_nothing(const UnknownSetting& setting) {
  return setting.value == "null" || setting.value == "None";
}

/// The value as words, whatever quotes and brackets its dialect has.
std::vector<std::string> words_of_value(const UnknownSetting& setting, Dialect dialect) {
  std::vector<std::string> words;
  if (setting.value.empty()) return words;
  if (dialect == Dialect::megatron_lm) {
    for (const ShellCommand& command : read_shell("- " + setting.value, setting.key)) {
      if (command.words.empty()) continue;  // only variables, behind a semicolon
      words.insert(words.end(), command.words.begin() + 1, command.words.end());
    }
    return words;
  }
  const char first = setting.value.front();
  const bool has_form = first == '[' || first == '{' || first == '"' || first == '\'';
  const Node node =
      has_form ? read_yaml_value(setting.value, setting.key) : scalar_node(setting.value);
  if (node.kind == Node::Kind::scalar) return {node.text};
  for (const Node& item : node.items) words.push_back(item.text);
  return words;
}

}  // namespace

std::optional<Setting> translated(const UnknownSetting& setting, Dialect from, Dialect to) {
  const Row* row = find_carried(setting.key, from);
  if (row == nullptr || key_of(*row, to).empty() || says_nothing(setting)) return std::nullopt;
  std::vector<std::string> words;
  try {
    words = words_of_value(setting, from);
  } catch (const base::UsageError&) {
    return std::nullopt;  // a value that no form of ours has
  }
  const Kind kind = kind_of(*row);
  if (kind == Kind::flag) {
    const std::optional<bool> is_said = words.empty() ? true : parse_switch(words.front());
    if (!is_said) return std::nullopt;
    const bool is_on = *is_said != is_inverted(*row, from);
    words = {is_on != is_inverted(*row, to) ? "true" : "false"};
  }
  if (words.empty() || (kind != Kind::list && words.size() > 1)) return std::nullopt;
  if (kind == Kind::integer && !parse_integer(words.front())) return std::nullopt;
  if (kind == Kind::number && !parse_number(words.front())) return std::nullopt;
  return Setting{.key = key_of(*row, to), .words = std::move(words)};
}

std::vector<std::string> translate_unknown(const RunConfig& run, Dialect to,
                                           std::vector<Setting>& settings) {
  std::vector<std::string> lost;
  for (const UnknownSetting& setting : run.unknown) {
    if (says_nothing(setting)) continue;
    if (auto theirs = translated(setting, run.dialect, to)) {
      const bool is_said =
          std::ranges::find(settings, theirs->key, &Setting::key) != settings.end();
      if (!is_said) settings.push_back(std::move(*theirs));
    } else {
      lost.push_back(shown_key(setting.key));
    }
  }
  return lost;
}

std::string shown_key(std::string_view key) {
  if (key.starts_with(kOutside)) key.remove_prefix(1);
  return std::string(key);
}

bool is_known_choice(const UnknownSetting& setting, Dialect dialect) {
  return find_carried(setting.key, dialect) != nullptr || find_row(setting.key, dialect) != nullptr;
}

namespace {

/// Primus' list of recomputed layers is a number of each stage by now.
bool is_priced_list(const RunConfig& run, const UnknownSetting& setting) {
  return run.dialect == Dialect::primus && setting.key == "recompute_layer_ids" &&
         run.knobs.recomputes_block();
}

}  // namespace

UnpricedSettings unpriced_settings(const RunConfig& run) {
  UnpricedSettings settings;
  for (const bool is_inherited : {false, true}) {
    for (const UnknownSetting& setting : run.unknown) {
      if (setting.is_inherited != is_inherited || says_nothing(setting)) continue;
      if (is_priced_list(run, setting)) continue;
      const bool is_choice = is_known_choice(setting, run.dialect);
      (is_choice ? settings.known : settings.unknown).push_back(shown_key(setting.key));
      if (is_inherited && !is_choice) ++settings.num_inherited;
    }
  }
  return settings;
}

bool forces_balance(const RunConfig& config) {
  return std::ranges::any_of(config.unknown, [](const UnknownSetting& setting) {
    std::string key = setting.key;
    std::ranges::replace(key, '-', '_');
    return key.find("force_load_balanc") != std::string::npos && setting.value != "false" &&
           setting.value != "False";
  });
}

bool follows_layout(const UnknownSetting& setting, Dialect dialect) {
  const Row* row = find_carried(setting.key, dialect);
  return row != nullptr && row->follows_layout && !says_nothing(setting);
}

bool have_same_layout(const RunConfig& a, const RunConfig& b) {
  const auto has_same = [&](auto... members) {
    return ((a.knobs.*members == b.knobs.*members) && ...);
  };
  using K = PlanKnobs;
  return a.pipeline_layout == b.pipeline_layout &&
         has_same(&K::tp, &K::cp, &K::pp, &K::dp, &K::vpp, &K::ep, &K::etp, &K::fsdp,
                  &K::optimizer_instances, &K::first_stage_layers, &K::last_stage_layers,
                  &K::micro_batch_size, &K::recompute, &K::recompute_method,
                  &K::recompute_num_layers, &K::offload);
}

namespace {

/// The key of a switch that the run's text sets; empty where it does not.
std::string key_that_is_on(const RunConfig& run, std::string_view row) {
  std::string key = key_of(row_of(row), run.dialect);
  const auto said = std::ranges::find(run.stated, key, &StatedSetting::key);
  if (key.empty() || said == run.stated.end()) return {};
  const bool is_on = said->value.empty() || parse_yaml_switch(said->value).value_or(false);
  return is_on ? key : std::string();
}

constexpr std::string_view kCountsEmbedding = "account_for_embedding_in_pipeline_split";
constexpr std::string_view kCountsLoss = "account_for_loss_in_pipeline_split";

}  // namespace

CountedEnds counted_ends(const RunConfig& run) {
  return {!key_that_is_on(run, kCountsEmbedding).empty(),
          !key_that_is_on(run, kCountsLoss).empty()};
}

std::vector<std::string> keys_of_counted_ends(const RunConfig& run) {
  std::vector<std::string> keys;
  for (const std::string_view row : {kCountsEmbedding, kCountsLoss}) {
    if (std::string key = key_that_is_on(run, row); !key.empty()) keys.push_back(std::move(key));
  }
  return keys;
}

std::string text_of_keys(const std::vector<std::string>& keys) {
  const size_t named = std::min(keys.size(), kMostNamed);
  std::vector<std::string> first;
  for (size_t i = 0; i < named; ++i) first.push_back(shown(keys[i]));
  std::string text = fmt::format("{}", fmt::join(first, ", "));
  if (keys.size() > named) text += fmt::format(" and {} more", keys.size() - named);
  return text;
}

}  // namespace moetune::spec::dialects
