#include "sweeps/adapters/shell_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <system_error>

#include "kernels/base/error.h"
#include "kernels/base/shell_quotes.h"
#include "sweeps/adapters/left_files.h"

namespace moetune::sweeps {
namespace {

constexpr std::array<std::string_view, 6> kPlaceholders = {"flags", "all_flags", "config",
                                                           "out",   "trial",     "steps"};

/// Plain characters and whole variables.
bool is_plain_with_variables(std::string_view word) {
  for (size_t i = 0; i < word.size(); ++i) {
    if (base::is_plain_in_shell(word[i])) continue;
    if (word[i] != '$') return false;
    const bool has_brace = i + 1 < word.size() && word[i + 1] == '{';
    size_t end = i + (has_brace ? 2 : 1);
    const size_t first = end;
    const auto is_name = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    while (end < word.size() && is_name(word[end])) ++end;
    if (end == first || (word[first] >= '0' && word[first] <= '9')) return false;
    if (has_brace && (end == word.size() || word[end] != '}')) return false;
    i = has_brace ? end : end - 1;
  }
  return !word.empty();
}

/// The placeholder that begins at `at`; none for other braces, as shells have them.
std::optional<std::string_view> placeholder_at(std::string_view text, size_t at) {
  if (text[at] != '{' || (at > 0 && text[at - 1] == '$')) return std::nullopt;
  const size_t end = text.find('}', at);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view name = text.substr(at + 1, end - at - 1);
  const bool is_known = std::ranges::find(kPlaceholders, name) != kPlaceholders.end();
  return is_known ? std::optional(name) : std::nullopt;
}

}  // namespace

bool has_placeholder(std::string_view text, std::string_view name) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (placeholder_at(text, i) == name) return true;
  }
  return false;
}

std::string without_placeholders(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (const auto name = placeholder_at(text, i)) {
      // Part of a word, as in "train-{trial}.out": the rest of it is no word of its own.
      const size_t behind = i + name->size() + 2;
      const auto is_blank = [&](size_t place) {
        return place >= text.size() || text[place] == ' ' || text[place] == '\t' ||
               text[place] == '\n';
      };
      const bool is_word = (i == 0 || is_blank(i - 1)) && is_blank(behind);
      result += is_word ? ' ' : 'x';
      i += name->size() + 1;
    } else {
      result += text[i];
    }
  }
  return result;
}

void check_run_text(const spec::EngineSpec& engine) {
  const auto fail = [](const std::string& text) {
    throw base::UsageError("key 'engine.run': " + text);
  };
  const auto dialect = spec::dialect_of(engine.dialect);
  using spec::dialects::Dialect;
  const bool has_flags = has_placeholder(engine.run, "flags");
  const bool has_all = has_placeholder(engine.run, "all_flags");
  const bool has_config = has_placeholder(engine.run, "config");
  if (!has_flags && !has_all && !has_config) {
    fail(fmt::format("says nowhere where settings go, expected {}",
                     dialect == Dialect::primus ? "{config}" : "{flags}"));
  }
  if (has_flags && dialect == Dialect::primus) {
    fail("{flags}: Primus takes settings in a file: write {config}");
  }
  // Text with settings has spaces or what stands between a name and its value.
  const bool may_be_path = engine.config.find_first_of(" \t\n=:") == std::string::npos;
  std::error_code error;
  if (dialect && !engine.config.empty() && may_be_path &&
      !std::filesystem::exists(std::filesystem::path(engine.folder) / engine.config, error)) {
    throw base::UsageError(fmt::format("key 'engine.config' is '{}': there is no such file in {}",
                                       engine.config.substr(0, 200), engine.folder));
  }
  if (engine.config.empty() && dialect == Dialect::primus) {
    fail("{config} is a file that is made of yours: name yours with the key 'engine.config'");
  }
  const bool writes_all = dialect == Dialect::megatron_lm || dialect == Dialect::megatron_bridge;
  if (has_all && !writes_all) {
    fail("{all_flags} is for megatron-lm and megatron-bridge: write {flags} or {config}");
  }
  const bool writes_file = dialect == Dialect::torchtitan || dialect == Dialect::primus;
  if (has_config && !writes_file) {
    fail("{config} is for torchtitan and primus: write {flags} or {all_flags}");
  }
}

std::string word_for_shell(const std::string& word) {
  if (base::is_plain_shell_word(word)) return word;
  if (is_plain_with_variables(word)) return "\"" + word + "\"";
  return base::in_single_quotes(word);
}

std::string filled_in(std::string_view text, const Placeholders& values, std::string_view key) {
  std::string result;
  char quote = '\0';
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (const auto name = placeholder_at(text, i)) {
      const auto found = values.find(*name);
      std::vector<std::string> words;
      for (const std::string& word : found == values.end() ? words : found->second) {
        const bool is_bare = quote == '\0' || base::is_plain_shell_word(word);
        if (!is_bare) {
          throw base::UsageError(
              fmt::format("key '{}': {{{}}} stands within quotes, where '{}' cannot be put: write "
                          "it outside of "
                          "quotes",
                          key, *name, word.substr(0, 80)));
        }
        words.push_back(quote == '\0' ? word_for_shell(word) : word);
      }
      result += fmt::format("{}", fmt::join(words, " "));
      i += name->size() + 1;
      continue;
    }
    result += c;
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      result += text[++i];
    } else if (quote == '\0' && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == quote) {
      quote = '\0';
    }
  }
  return result;
}

std::string path_with(std::string_view text, const Placeholders& values) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (const auto name = placeholder_at(text, i)) {
      const auto found = values.find(*name);
      // What is put in is a name, not a pattern.
      if (found != values.end() && found->second.size() == 1) {
        result += escaped_for_patterns(found->second.front());
      }
      i += name->size() + 1;
    } else {
      result += text[i];
    }
  }
  return result;
}

}  // namespace moetune::sweeps
