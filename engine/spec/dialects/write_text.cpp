// Settings to texts: commands, TOML and YAML, each with the release whose words they are.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "engine/spec/dialects/shell.h"
#include "engine/spec/dialects/texts.h"
#include "kernels/base/error.h"
#include "kernels/base/utf8.h"

namespace moetune::spec::dialects {
namespace {

constexpr size_t kMaxColumns = 100;
constexpr int64_t kRanksOfNode = 8;

std::string header(const Writing& out) {
  const DialectRow& row = dialect_row(out.dialect);
  return fmt::format("# Written by moetune in the words of {} {}.\n", row.title, row.release);
}

std::string notes_of(const Writing& out) {
  std::string text;
  for (const std::string& note : out.notes) {
    text += fmt::format("# {}\n", base::one_line(note));
  }
  return text;
}

/// What a file has no key for, in comments that read_text.cpp reads.
std::string own_comments(const Writing& out) {
  std::string text;
  if (out.run.world_size > 0) text += fmt::format("# moetune: world_size={}\n", out.run.world_size);
  for (const auto& [name, value] : out.run.environment) {
    // A break of the line would end the comment.
    text += base::one_line(value) == value
                ? fmt::format("# moetune: {}={}\n", name, value)
                : fmt::format("# {} is left out: its value has control characters\n", name);
  }
  return text;
}

/// The row of any table that has the key.
const Row* any_row(std::string_view key, Dialect dialect) {
  const Row* row = find_row(key, dialect);
  return row != nullptr ? row : find_carried(key, dialect);
}

/// Whether a value stands bare in TOML and YAML: numbers and switches do.
bool is_bare(const Setting& setting) {
  const Row* row = any_row(setting.key, Dialect::torchtitan);
  if (row == nullptr) row = any_row(setting.key, Dialect::primus);
  if (row == nullptr) return false;
  const Kind kind = kind_of(*row);
  return kind == Kind::flag || kind == Kind::integer || kind == Kind::number;
}

bool is_list(const Setting& setting, Dialect dialect) {
  const Row* row = find_row(setting.key, dialect);
  return row != nullptr && kind_of(*row) == Kind::list;
}

Node node_of(const Setting& setting, Dialect dialect) {
  if (setting.words.size() == 1 && !is_list(setting, dialect)) {
    const bool is_text = dialect == Dialect::torchtitan && !is_bare(setting);
    return scalar_node(setting.words[0], is_text);
  }
  Node node;
  node.kind = Node::Kind::list;
  for (const std::string& word : setting.words) {
    node.items.push_back(scalar_node(word, dialect == Dialect::torchtitan));
  }
  return node;
}

/// Pieces side by side in lines that end in a backslash.
std::string continued(const std::vector<std::string>& pieces) {
  std::vector<std::string> lines;
  for (const std::string& piece : pieces) {
    if (!lines.empty() && lines.back().size() + piece.size() + 3 <= kMaxColumns) {
      lines.back() += " " + piece;
    } else {
      lines.push_back((lines.empty() ? "" : "  ") + piece);
    }
  }
  return fmt::format("{}\n", fmt::join(lines, " \\\n"));
}

std::string launcher(const Writing& out, std::string_view script) {
  std::string text = "torchrun";
  if (const int64_t world = out.run.world_size; world > 0) {
    int64_t ranks = std::min(world, kRanksOfNode);
    while (world % ranks != 0) --ranks;
    text += fmt::format(" --nproc-per-node {} --nnodes {}", ranks, world / ranks);
  }
  return fmt::format("{} {}", text, script);
}

/// The value of a setting behind its flag. It is text of a shell already where a command said it;
/// what else it is, such as a text of YAML, is quoted, so that nothing of it runs.
std::string value_behind_flag(const UnknownSetting& setting) {
  if (setting.value.empty()) return "";
  std::string again;
  try {
    const std::vector<ShellCommand> commands = read_shell("- " + setting.value, setting.key);
    // The last is the whole one: before it stand those inside of `bash -c`.
    if (!commands.empty()) {
      for (const std::string& word : commands.back().words) again += " " + shell_quoted(word);
    }
  } catch (const base::UsageError&) {
    again.clear();
  }
  const bool is_of_shell = again == " - " + setting.value;
  return " " + (is_of_shell ? setting.value : shell_quoted(setting.value));
}

std::string command_text(const Writing& out, const std::vector<Setting>& settings,
                         const std::vector<UnknownSetting>& unknown) {
  const bool is_bridge = out.dialect == Dialect::megatron_bridge;
  std::vector<std::string> pieces;
  for (const auto& [name, value] : out.run.environment) {
    pieces.push_back(name + "=" + shell_quoted(value));
  }
  pieces.push_back(launcher(out, is_bridge ? "run_recipe.py" : "pretrain_gpt.py"));
  // Options of the script stand before its overrides.
  for (const UnknownSetting& setting : unknown) {
    if (is_bridge && setting.key.starts_with("--")) {
      pieces.push_back(shell_quoted(setting.key) + value_behind_flag(setting));
    }
  }
  const auto add = [&](const Setting& setting) {
    std::vector<std::string> words = words_of_setting(setting, out.dialect);
    for (std::string& word : words) word = shell_quoted(word);
    if (!words.empty()) pieces.push_back(fmt::format("{}", fmt::join(words, " ")));
  };
  const auto is_option = [&](const Setting& setting) {
    return is_bridge && setting.key.starts_with("--");
  };
  for (const Setting& setting : settings) {
    if (is_option(setting)) add(setting);
  }
  for (const Setting& setting : settings) {
    if (!is_option(setting)) add(setting);
  }
  for (const UnknownSetting& setting : unknown) {
    if (!is_bridge) {
      pieces.push_back(shell_quoted(setting.key) + value_behind_flag(setting));
    } else if (!setting.key.starts_with("--")) {
      pieces.push_back(shell_quoted(setting.key + "=" + setting.value));
    }
  }
  std::string text = header(out) + continued(pieces) + notes_of(out);
  const bool has_fields = std::ranges::any_of(
      settings, [](const Setting& setting) { return setting.key.starts_with("mixed_precision."); });
  if (has_fields) text += "# mixed_precision.* needs a recipe that has no preset's name there\n";
  const bool has_recipe = std::ranges::any_of(unknown, [](const UnknownSetting& setting) {
    return setting.key == kRecipeOption || setting.key == "--model";
  });
  if (is_bridge && !has_recipe)
    text += fmt::format("# the recipe that these change goes in with {} NAME\n", kRecipeOption);
  return text;
}

/// A tree of maps out of dotted keys.
void place(Node& root, std::string_view path, Node value) {
  Node* node = &root;
  while (true) {
    const size_t dot = path.find('.');
    const std::string key(path.substr(0, dot));
    auto at = std::ranges::find(node->fields, key, &Field::key);
    if (at == node->fields.end()) at = node->fields.insert(node->fields.end(), {key, Node{}});
    if (dot == std::string_view::npos) {
      at->value = std::move(value);
      return;
    }
    at->value.kind = Node::Kind::map;
    node = &at->value;
    path.remove_prefix(dot + 1);
  }
}

/// A value that is text in its dialect already.
Node raw(const std::string& text) {
  Node node = scalar_node(text);
  node.line = -1;
  return node;
}

/// A key as TOML takes it: bare, or in quotes.
std::string toml_key(const std::string& key) {
  const bool has_bare = !key.empty() && std::ranges::all_of(key, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
  return has_bare ? key : toml_text(scalar_node(key, true));
}

std::string yaml_key(const std::string& key) { return yaml_text(scalar_node(key, key.empty())); }

std::string toml_tables(const Node& node, const std::string& path) {
  std::string text;
  for (const auto& [key, value] : node.fields) {
    if (value.kind == Node::Kind::map) continue;
    text += fmt::format("{} = {}\n", toml_key(key), value.line < 0 ? value.text : toml_text(value));
  }
  if (!path.empty() && !text.empty()) text = fmt::format("\n[{}]\n{}", path, text);
  for (const auto& [key, value] : node.fields) {
    if (value.kind != Node::Kind::map) continue;
    text += toml_tables(value, path.empty() ? toml_key(key) : path + "." + toml_key(key));
  }
  return text;
}

std::string yaml_block(const Node& node, size_t indent) {
  std::string text;
  for (const auto& [key, value] : node.fields) {
    text += fmt::format("{}{}:", std::string(indent, ' '), yaml_key(key));
    if (value.kind == Node::Kind::map) {
      text += "\n" + yaml_block(value, indent + 2);
    } else {
      text += fmt::format(" {}\n", value.line < 0 ? value.text : yaml_text(value));
    }
  }
  return text;
}

std::string toml_file(const Writing& out, const std::vector<Setting>& settings,
                      const std::vector<UnknownSetting>& unknown) {
  Node root;
  root.kind = Node::Kind::map;
  std::string flags;
  for (const UnknownSetting& setting : unknown) {
    if (setting.key.starts_with("--")) {
      flags +=
          fmt::format("# and on the command line: {} {}\n",
                      base::one_line(shell_quoted(setting.key)), base::one_line(setting.value));
    } else {
      place(root, setting.key, raw(setting.value));
    }
  }
  for (const Setting& setting : settings) place(root, setting.key, node_of(setting, out.dialect));
  return header(out) + own_comments(out) + flags + notes_of(out) + toml_tables(root, "");
}

std::string primus_file(const Writing& out, const std::vector<Setting>& settings,
                        const std::vector<UnknownSetting>& unknown) {
  const bool is_sft = out.knobs().task != TrainingTask::pretrain;
  Node root;
  root.kind = Node::Kind::map;
  const std::string trainer = is_sft ? "modules.post_trainer" : "modules.pre_trainer";
  const auto name = [&](const UnknownSetting& setting) {
    return setting.key.starts_with(kOutside) ? setting.key.substr(1)
                                             : trainer + ".overrides." + setting.key;
  };
  for (const UnknownSetting& setting : unknown) {
    if (setting.key.starts_with(kOutside)) place(root, name(setting), raw(setting.value));
  }
  const bool has_name = out.run.dialect == Dialect::primus && !out.run.model_name.empty();
  place(root, trainer + ".framework", scalar_node("megatron"));
  place(root, trainer + ".config", scalar_node(is_sft ? "sft_trainer.yaml" : "pre_trainer.yaml"));
  place(root, trainer + ".model",
        scalar_node((has_name ? out.run.model_name : "language_model") + ".yaml"));
  for (const Setting& setting : settings) {
    place(root, trainer + ".overrides." + setting.key, node_of(setting, out.dialect));
  }
  for (const UnknownSetting& setting : unknown) {
    if (!setting.key.starts_with(kOutside)) place(root, name(setting), raw(setting.value));
  }
  return header(out) + own_comments(out) + notes_of(out) + yaml_block(root, 0);
}

}  // namespace

std::vector<std::string> words_of_setting(const Setting& setting, Dialect dialect) {
  const Row* row = any_row(setting.key, dialect);
  const bool is_flag = row != nullptr && kind_of(*row) == Kind::flag;
  const bool is_on = setting.words.empty() || setting.words[0] == "true";
  std::vector<std::string> words;
  switch (dialect) {
    case Dialect::megatron_lm:
      if (is_flag) return is_on ? std::vector{setting.key} : words;
      words.push_back(setting.key);
      break;
    case Dialect::megatron_bridge: {
      if (setting.key.starts_with("--")) {  // of the script
        words.push_back(setting.key);
        break;
      }
      const bool is_scalar = setting.words.size() == 1 && !is_list(setting, dialect);
      return {setting.key + "=" +
              (is_scalar ? setting.words[0] : yaml_text(node_of(setting, dialect)))};
    }
    case Dialect::torchtitan: {
      const size_t dot = setting.key.rfind('.');
      const bool is_word =
          setting.words.size() == 1 && (setting.words[0] == "true" || setting.words[0] == "false");
      const bool is_switch = is_flag || (row == nullptr && is_word);
      if (is_switch && !is_on && dot != std::string::npos) {
        return {"--" + setting.key.substr(0, dot) + ".no_" + setting.key.substr(dot + 1)};
      }
      words.push_back("--" + setting.key);
      if (is_switch) return words;
      break;
    }
    case Dialect::primus:
      return words;
  }
  words.insert(words.end(), setting.words.begin(), setting.words.end());
  return words;
}

std::string value_text(const Setting& setting, Dialect dialect) {
  const Node node = node_of(setting, dialect);
  return dialect == Dialect::torchtitan ? toml_text(node) : yaml_text(node);
}

std::string write_text(const Writing& writing, const std::vector<Setting>& settings,
                       const std::vector<UnknownSetting>& unknown) {
  if (writing.dialect == Dialect::torchtitan) return toml_file(writing, settings, unknown);
  if (writing.dialect == Dialect::primus) return primus_file(writing, settings, unknown);
  return command_text(writing, settings, unknown);
}

}  // namespace moetune::spec::dialects
