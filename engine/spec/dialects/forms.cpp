// Whose words a text has: each dialect leaves marks that the others do not.
#include "engine/spec/dialects/forms.h"

#include <algorithm>
#include <array>
#include <string>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/primus_files.h"
#include "engine/spec/dialects/run_config.h"
#include "engine/spec/dialects/texts.h"
#include "kernels/base/text.h"

namespace moetune::spec::dialects {
namespace {

bool is_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '"';
  });
}

/// "key:" or "key: value".
bool is_yaml_line(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_name(base::trimmed(line.substr(0, colon))))
    return false;
  return colon + 1 == line.size() || line[colon + 1] == ' ';
}

bool is_toml_table(std::string_view line) {
  const size_t comment = std::min(line.find('#'), line.size());
  line = base::trimmed(line.substr(0, comment));
  return line.starts_with('[') && line.ends_with(']') && is_name(line.substr(1, line.size() - 2));
}

/// Parts of words that only one dialect has.
struct Mark {
  std::string_view text;
  Dialect dialect;
};
constexpr std::array kMarks = {
    Mark{"torchtitan", Dialect::torchtitan},
    Mark{"--parallelism.", Dialect::torchtitan},
    Mark{"--training.", Dialect::torchtitan},
    Mark{"primus", Dialect::primus},
    Mark{"megatron.bridge", Dialect::megatron_bridge},
    Mark{"run_recipe", Dialect::megatron_bridge},
    Mark{"scripts/training/train.sh", Dialect::megatron_bridge},
    Mark{"--model_recipe_name", Dialect::megatron_bridge},
    Mark{"setup_experiment.py", Dialect::megatron_bridge},
};

/// How many of a text's words the table knows in a dialect; YAML's and TOML's keys count as words.
size_t num_known_words(std::string_view text, Dialect dialect) {
  size_t known = 0;
  for (size_t first = 0; first < text.size();) {
    const size_t end = std::min(text.find_first_of(" \t\r\n'\"", first), text.size());
    std::string_view word = text.substr(first, end - first);
    first = end + 1;
    if (word.ends_with(':')) {
      word.remove_suffix(1);
      known += is_known(word, dialect) ? 1 : 0;
    } else if (!word.empty()) {
      known += is_known(key_in_word(word, dialect), dialect) ? 1 : 0;
    }
  }
  return known;
}

/// The keys of a YAML text that stand at the left.
std::vector<std::string_view> sections_of(std::string_view text) {
  std::vector<std::string_view> sections;
  for (const std::string_view line : lines_of(text)) {
    if (line.empty() || line[0] == ' ' || line[0] == '#' || !is_yaml_line(line)) continue;
    sections.push_back(base::trimmed(line.substr(0, line.find(':'))));
  }
  return sections;
}

/// Whether the module of an experiment of Primus that trains runs torchtitan.
bool runs_torchtitan(std::string_view text) {
  constexpr size_t kNowhere = std::string_view::npos;
  size_t trainer_indent = kNowhere;
  for (const std::string_view whole : lines_of(text)) {
    const std::string_view line = base::trimmed(whole.substr(0, whole.find('#')));
    if (line.empty()) continue;
    const size_t indent = whole.find_first_not_of(' ');
    if (indent <= trainer_indent) trainer_indent = kNowhere;
    const std::string_view key = line.substr(0, line.find(':'));
    if (std::ranges::find(kTrainers, key) != kTrainers.end()) trainer_indent = indent;
    if (trainer_indent != kNowhere && key == "framework") {
      return line.find("torchtitan") != std::string_view::npos;
    }
  }
  return false;
}

/// What is looked at of a text, from its beginning.
constexpr size_t kEnough = size_t{256} << 10;

}  // namespace

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

Form form_of(std::string_view text) {
  bool is_first = true;
  for (const std::string_view line : lines_of(text)) {
    const std::string_view content = base::trimmed(line);
    if (content.empty() || content.starts_with('#')) continue;
    if (is_toml_table(content)) return Form::toml;
    if (is_first && (is_yaml_line(content) || content == "---")) return Form::yaml;
    is_first = false;
  }
  return Form::command;
}

bool has_unused_flags(std::string_view text, Dialect dialect) {
  if (form_of(text) != Form::command) return false;
  const std::vector<std::string_view> lines = lines_of(text.substr(0, kEnough));
  return std::ranges::any_of(lines, [&](std::string_view line) {
    return !base::trimmed(line).starts_with('#') && num_known_words(line, dialect) > 0;
  });
}

bool is_experiment(std::string_view text) {
  text = text.substr(0, kEnough);
  const std::vector<std::string_view> sections = sections_of(text);
  const auto has = [&](std::string_view name) {
    return std::ranges::find(sections, name) != sections.end();
  };
  return form_of(text) == Form::yaml && has("modules") && !has("MODEL_ARGS");
}

std::optional<Dialect> detect_dialect(std::string_view text) {
  text = text.substr(0, kEnough);
  const Form form = form_of(text);
  if (form == Form::toml) return Dialect::torchtitan;
  if (form == Form::yaml) {
    const std::vector<std::string_view> sections = sections_of(text);
    const auto has = [&](std::string_view name) {
      return std::ranges::find(sections, name) != sections.end();
    };
    if (has("MODEL_ARGS")) return Dialect::megatron_lm;
    if (is_experiment(text)) {
      return runs_torchtitan(text) ? Dialect::torchtitan : Dialect::primus;
    }
    if (has("model") && (has("train") || has("ddp") || has("optimizer"))) {
      return Dialect::megatron_bridge;
    }
  }
  std::optional<Dialect> best;
  size_t most = 0;
  for (const DialectRow& row : NameTable<Dialect>::kRows) {
    const size_t known = num_known_words(text, row.value);
    if (known <= most) continue;
    most = known;
    best = row.value;
  }
  if (best) return best;
  for (const Mark& mark : kMarks) {
    if (text.find(mark.text) != std::string_view::npos) return mark.dialect;
  }
  return std::nullopt;
}

}  // namespace moetune::spec::dialects
