#include "sweeps/runs/echoed_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/shell.h"
#include "kernels/base/error.h"

namespace moetune::sweeps {
namespace {

using spec::dialects::Dialect;
using spec::dialects::Kind;
using spec::dialects::Row;

/// What Python prints for members of enums: "AttnBackend.auto", "<CudaGraphModule.attn: 1>".
std::string_view member_name(std::string_view text) {
  if (text.starts_with('<')) {
    text.remove_prefix(1);
    text = text.substr(0, std::min(text.find_first_of(":>"), text.size()));
  }
  const size_t dot = text.rfind('.');
  const bool is_member = dot != std::string_view::npos && !text.empty() &&
                         std::isupper(static_cast<unsigned char>(text[0])) != 0 &&
                         dot + 1 < text.size() &&
                         std::isdigit(static_cast<unsigned char>(text[dot + 1])) == 0;
  return is_member ? text.substr(dot + 1) : text;
}

std::string_view without_quotes(std::string_view text) {
  if (text.size() >= 2 && (text[0] == '\'' || text[0] == '"') && text.back() == text[0]) {
    return text.substr(1, text.size() - 2);
  }
  return text;
}

/// The words of a value: "['core_attn', 'moe']", "(1, 2)", "3", "torch.bfloat16". Values that do
/// not look like words of a command have none.
std::vector<std::string> words_of_value(std::string_view value) {
  std::vector<std::string> words;
  const bool is_list = value.size() >= 2 &&
                       (value[0] == '[' || value[0] == '(' || value[0] == '{') &&
                       (value.back() == ']' || value.back() == ')' || value.back() == '}');
  std::string_view rest = is_list ? value.substr(1, value.size() - 2) : value;
  do {
    const size_t end = is_list ? std::min(rest.find(','), rest.size()) : rest.size();
    std::string_view word = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    word = member_name(without_quotes(word));
    const bool is_word = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
      return std::isalnum(c) != 0 ||
             std::string_view("_-+.|*/(),").find(static_cast<char>(c)) != std::string_view::npos;
    });
    if (is_word) words.emplace_back(word);
  } while (!rest.empty());
  return words;
}

struct TypeWord {
  std::string_view echoed;
  std::string_view flag;
};
/// Types that Megatron-LM's parser takes by a short name and keeps as PyTorch's own.
constexpr std::array kTypeWords = {
    TypeWord{"torch.float32", "fp32"},
    TypeWord{"torch.bfloat16", "bf16"},
    TypeWord{"torch.float16", "fp16"},
    TypeWord{"torch.uint8", "fp8"},
};

/// The same as the parser takes them.
std::vector<std::string> words_of_flag(std::string_view value) {
  std::vector<std::string> words = words_of_value(value);
  for (std::string& word : words) {
    const auto* const row = std::ranges::find(kTypeWords, word, &TypeWord::echoed);
    if (row != kTypeWords.end()) word = row->flag;
  }
  return words;
}

bool is_false(std::string_view value) { return value == "False" || value == "false"; }
bool is_true(std::string_view value) { return value == "True" || value == "true"; }

/// Names in an argument dump are those of the parser's results: the flag with underscores, or what
/// Primus' YAML calls it.
const Row* row_of_argument(std::string_view name) {
  // Megatron-LM works it out, whatever it is told, so a dump has what holds.
  if (name == "virtual_pipeline_model_parallel_size") {
    return &spec::dialects::row_of("num_virtual_stages_per_pipeline_rank");
  }
  std::string flag = "--" + std::string(name);
  std::ranges::replace(flag, '_', '-');
  if (const Row* row = spec::dialects::find_row(flag, Dialect::megatron_lm)) return row;
  const Row* row = spec::dialects::find_row(name, Dialect::primus);
  const bool has_flag = row != nullptr && !key_of(*row, Dialect::megatron_lm).empty();
  return has_flag ? row : nullptr;
}

std::string megatron_text(const std::vector<EchoedSetting>& settings) {
  std::map<std::string, bool> said;  // two names of one row: the first counts
  std::string text;
  for (const EchoedSetting& setting : settings) {
    const Row* row = row_of_argument(setting.key);
    if (row == nullptr || is_absent(setting.value)) continue;
    const std::string key = key_of(*row, Dialect::megatron_lm);
    if (kind_of(*row) == Kind::flag) {
      // A switch is said where it is not as the parser has it.
      const bool is_on = is_true(setting.value);
      if (is_on == is_inverted(*row, Dialect::megatron_lm)) continue;
      if (said.emplace(key, true).second) text += key + " \\\n";
      continue;
    }
    if (is_false(setting.value)) continue;
    const auto words = words_of_flag(setting.value);
    if (words.empty() || !said.emplace(key, true).second) continue;
    text += key;
    for (const std::string& word : words) text += " " + spec::dialects::shell_quoted(word);
    text += " \\\n";
  }
  return text;
}

std::string primus_text(const std::vector<EchoedSetting>& settings) {
  std::string text;
  for (const EchoedSetting& setting : settings) {
    if (!spec::dialects::is_known(setting.key, Dialect::primus)) continue;
    const auto words = words_of_flag(setting.value);
    const bool is_list = setting.value.starts_with('[') || setting.value.starts_with('(');
    if (is_absent(setting.value)) {
      text += fmt::format("      {}: null\n", setting.key);
    } else if (is_true(setting.value) || is_false(setting.value)) {
      text += fmt::format("      {}: {}\n", setting.key, is_true(setting.value));
    } else if (is_list) {
      text += fmt::format("      {}: [{}]\n", setting.key, fmt::join(words, ", "));
    } else if (!words.empty()) {
      text += fmt::format("      {}: {}\n", setting.key, words.front());
    }
  }
  if (text.empty()) return text;
  return "modules:\n  pre_trainer:\n    framework: megatron\n    overrides:\n" + text;
}

/// "key=value" of Megatron-Bridge, "--key value" of torchtitan.
std::string pairs_text(const std::vector<EchoedSetting>& settings, Dialect dialect) {
  const bool is_bridge = dialect == Dialect::megatron_bridge;
  std::string text;
  for (const EchoedSetting& setting : settings) {
    if (!spec::dialects::is_known(setting.key, dialect) || is_absent(setting.value)) continue;
    std::vector<std::string> words = words_of_value(setting.value);
    if (words.empty()) continue;
    if (is_true(words.front())) words = {"true"};
    if (is_false(words.front())) words = {"false"};
    const bool is_list = setting.value.starts_with('[') || setting.value.starts_with('(');
    const std::string value = is_list && is_bridge
                                  ? fmt::format("[{}]", fmt::join(words, ","))
                                  : fmt::format("{}", fmt::join(words, is_bridge ? "," : " "));
    text += is_bridge
                ? fmt::format("{} \\\n", spec::dialects::shell_quoted(setting.key + "=" + value))
                : fmt::format("--{} {} \\\n", setting.key, value);
  }
  return text;
}

struct FrameworkDialect {
  Framework framework;
  Dialect dialect;
};
constexpr std::array kDialects = {
    FrameworkDialect{Framework::megatron_lm, Dialect::megatron_lm},
    FrameworkDialect{Framework::megatron_bridge, Dialect::megatron_bridge},
    FrameworkDialect{Framework::torchtitan, Dialect::torchtitan},
    FrameworkDialect{Framework::primus, Dialect::primus},
};

}  // namespace

bool is_absent(std::string_view value) {
  return value.empty() || value == "None" || value == "null" || value == "[]" || value == "()";
}

std::optional<Dialect> dialect_of(Framework framework) {
  for (const FrameworkDialect& row : kDialects) {
    if (row.framework == framework) return row.dialect;
  }
  return std::nullopt;
}

const Row* row_of_echoed(const std::string& key, EchoedConfig::Form form, Dialect dialect) {
  return form == EchoedConfig::Form::argument_dump ? row_of_argument(key)
                                                   : spec::dialects::find_row(key, dialect);
}

std::string import_text(const std::vector<EchoedSetting>& settings, Dialect dialect) {
  if (dialect == Dialect::megatron_lm) return megatron_text(settings);
  if (dialect == Dialect::primus) return primus_text(settings);
  return pairs_text(settings, dialect);
}

void read_echoed_config(RunFacts& facts) {
  const auto dialect = dialect_of(facts.framework);
  if (!dialect) return;
  const auto import_from = [&](const std::string& text, const std::string& source, bool is_echo) {
    if (text.empty() || facts.config) return;
    try {
      facts.config = spec::dialects::import_run(
          text, *dialect,
          {.source = source, .world_size = facts.world_size.value_or(0), .is_echo = is_echo});
      facts.config->is_echo = is_echo;
    } catch (const base::UsageError& error) {
      facts.notes.emplace_back(error.what());
    }
  };
  const EchoedConfig& echoed = facts.echoed;
  if (!facts.world_size) {
    for (const EchoedSetting& setting : echoed.settings) {
      if (setting.key == "world_size") {
        const auto words = words_of_value(setting.value);
        int64_t size = 0;
        for (const char c : words.empty() ? std::string() : words.front()) {
          if (std::isdigit(static_cast<unsigned char>(c)) == 0 || size > 1'000'000) break;
          size = size * 10 + (c - '0');
        }
        if (size > 0 && size <= 1'000'000) facts.world_size = size;
      }
    }
  }
  import_from(import_text(echoed.settings, *dialect),
              fmt::format("{}:{}", echoed.place.file, echoed.place.line), true);
  import_from(facts.command, "the command in the log", false);
}

}  // namespace moetune::sweeps
