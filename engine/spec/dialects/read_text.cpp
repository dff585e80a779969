// Texts to settings: which form a text has, and the trees of YAML and TOML.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/spec/dialects/forms.h"
#include "engine/spec/dialects/shell.h"
#include "engine/spec/dialects/text_cursor.h"
#include "engine/spec/dialects/texts.h"
#include "engine/spec/dialects/values.h"
#include "kernels/base/text.h"

namespace moetune::spec::dialects {
namespace {

constexpr std::string_view kComment = "# moetune: ";

/// What moetune's own comments say for forms that have no place for it.
void read_comments(std::string_view text, Reading& in) {
  for (const std::string_view line : lines_of(text)) {
    if (!line.starts_with(kComment)) continue;
    const std::string_view rest = line.substr(kComment.size());
    const size_t equals = rest.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string name(rest.substr(0, equals));
    const std::string value(rest.substr(equals + 1));
    if (name == "world_size") {
      const auto ranks = parse_integer(value);
      if (ranks && *ranks > 0 && *ranks <= kMostRanks) in.run.world_size = *ranks;
    } else {
      set_environment(in, name, value);
    }
  }
}

void read_environment(const Node* node, Reading& in) {
  if (node == nullptr) return;
  for (const auto& [name, value] : node->fields) {
    if (value.kind == Node::Kind::scalar) set_environment(in, name, value.text);
  }
}

std::vector<std::string> split_at_blanks(const std::string& text) {
  std::vector<std::string> words;
  for (size_t first = 0; first < text.size();) {
    const size_t end = std::min(text.find(' ', first), text.size());
    if (end > first) words.push_back(text.substr(first, end - first));
    first = end + 1;
  }
  return words;
}

/// The words of a list that stands in brackets, which the runner of Megatron-LM's tests takes off;
/// none of another text.
std::optional<std::vector<std::string>> words_in_brackets(const std::string& text) {
  if (text.size() < 3 || text.front() != '[' || text.find(']') != text.size() - 1) return {};
  return split_at_blanks(text.substr(1, text.size() - 2));
}

void add_words(const std::vector<std::string>& words, Setting& setting) {
  for (const std::string& word : words) {
    setting.words.push_back(word);
    setting.value += (setting.value.empty() ? "" : " ") + shell_quoted(word);
  }
}

/// The YAML of Megatron-LM's tests and recipes: MODEL_ARGS with flags for keys, and ENV_VARS.
void read_model_args(std::string_view text, Reading& in) {
  const Node root = read_noted_yaml(text, in.source, in);
  read_environment(root.find("ENV_VARS"), in);
  const Node* args = root.find("MODEL_ARGS");
  if (args == nullptr || args->kind != Node::Kind::map) {
    throw base::UsageError(fmt::format("{}: 'MODEL_ARGS' is no map of flags", in.source));
  }
  for (const auto& [key, value] : args->fields) {
    if (value.text == "false" && !value.is_quoted) continue;
    Setting setting{.key = key};
    const bool is_switch = value.is_null() || (value.text == "true" && !value.is_quoted);
    const Row* row = find_row(key, in.dialect);
    const bool is_list = row != nullptr && kind_of(*row) == Kind::list;
    if (value.kind == Node::Kind::list) {
      for (const Node& item : value.items) {
        add_words(is_list ? split_at_blanks(item.text) : std::vector<std::string>{item.text},
                  setting);
      }
    } else if (const auto words = words_in_brackets(value.text)) {
      add_words(*words, setting);
    } else if (!is_switch) {
      setting.words = is_list ? split_at_blanks(value.text) : std::vector<std::string>{value.text};
      setting.value = value.text;
    }
    in.settings.add(std::move(setting), in.problems);
  }
}

/// What stands for a value of Python: enums by their name, types and functions by theirs.
void collapse(Node& node) {
  for (auto& [key, value] : node.fields) collapse(value);
  for (Node& item : node.items) collapse(item);
  const Node* target = node.find("_target_");
  if (target == nullptr) return;
  const Node* name = node.find("_name_");
  const bool is_plain = node.fields.size() == 2 && node.find("_call_") != nullptr;
  if (name != nullptr) {
    node = scalar_node(name->text);
  } else if (is_plain) {
    node = scalar_node(target->text);
  }
}

void read_bridge_yaml(std::string_view text, Reading& in) {
  Node root = read_yaml(text, in.source);
  read_environment(root.find("env_vars"), in);
  collapse(root);
  in.run.is_whole = true;
  flatten(root, "", yaml_text, in.settings, in.problems);
  for (const auto& [name, value] : in.run.environment) in.settings.remove("env_vars." + name);
  settle_switches(in);
  if (const Setting* provider = in.settings.find("model._target_")) {
    const std::string& name = provider->value;
    in.run.model_name = name.substr(name.rfind('.') + 1);
  }
}

void read_titan_toml(std::string_view text, Reading& in) {
  flatten(read_toml(text, in.source), "", toml_text, in.settings, in.problems);
  const Setting* name = in.settings.find("model.name");
  const Setting* flavor = in.settings.find("model.flavor");
  if (name != nullptr && !name->words.empty()) in.run.model_name = name->words[0];
  if (flavor != nullptr && !flavor->words.empty()) in.run.model_name += "/" + flavor->words[0];
}

/// Its launchers take a file with the settings, and flags that change them.
void refuse_command_of_primus(std::string_view text, Form form, const Reading& in) {
  if (form != Form::command) return;
  // A map in braces is YAML, too; so is nothing at all.
  for (const std::string_view line : lines_of(text)) {
    const std::string_view content = base::trimmed(line);
    if (content.empty() || (content.starts_with('#') && !content.starts_with("#!"))) continue;
    if (content.starts_with('{')) return;
    throw base::UsageError(fmt::format(
        "{}: scripts and commands of Primus are not read: give the YAML of --config or EXP",
        in.source));
  }
}

}  // namespace

Node read_noted_yaml(std::string_view text, const std::string& source, Reading& reading) {
  std::vector<std::string> notes;
  Node root = read_yaml(text, source, &notes);
  for (size_t i = 0; i < std::min(notes.size(), kMostNamed); ++i) reading.note(notes[i]);
  return root;
}

void settle_switches(Reading& reading) {
  const std::vector<Setting> all = reading.settings.all();
  for (const Setting& setting : all) {
    const Row* row = find_row(setting.key, reading.dialect);
    if (row == nullptr) row = find_carried(setting.key, reading.dialect);
    if (row == nullptr || kind_of(*row) != Kind::flag || setting.words.size() != 1) continue;
    const auto is_on = parse_yaml_switch(setting.words.front());
    if (!is_on) continue;
    const std::string word = *is_on ? "true" : "false";
    reading.settings.replace({.key = setting.key, .words = {word}, .value = word});
  }
}

void read_text(std::string_view text, Reading& reading) {
  check_text(text, reading.source);
  read_comments(text, reading);
  const Form form = form_of(text);
  switch (reading.dialect) {
    case Dialect::megatron_lm:
      return form == Form::yaml ? read_model_args(text, reading) : read_command(text, reading);
    case Dialect::megatron_bridge:
      return form == Form::yaml ? read_bridge_yaml(text, reading) : read_command(text, reading);
    case Dialect::torchtitan:
      if (is_experiment(text)) return read_titan_experiment(text, reading);
      return form == Form::toml ? read_titan_toml(text, reading) : read_command(text, reading);
    case Dialect::primus:
      refuse_command_of_primus(text, form, reading);
      return read_primus(text, reading);
  }
}

}  // namespace moetune::spec::dialects
