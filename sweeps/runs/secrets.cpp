#include "sweeps/runs/secrets.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <vector>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/values.h"

namespace moetune::sweeps {
namespace {

using Words = std::vector<std::string>;

/// "--wandb-api-key", "WANDB_API_KEY": wandb, api, key.
Words words_of_name(std::string_view name) {
  Words words(1);
  for (const unsigned char c : name) {
    if (std::isalnum(c) != 0) {
      words.back() += static_cast<char>(std::tolower(c));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

bool is_one_of(std::string_view word, std::span<const std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

bool names_secret(const Words& words) {
  constexpr std::array<std::string_view, 7> kAlone = {
      "secret", "secrets", "password", "passwd", "passphrase", "apikey", "credentials"};
  constexpr std::array<std::string_view, 7> kOfKeys = {"api",     "access",     "private", "auth",
                                                       "account", "encryption", "wandb"};
  for (size_t i = 0; i < words.size(); ++i) {
    if (is_one_of(words[i], kAlone)) return true;
    if (i > 0 && words[i] == "key" && is_one_of(words[i - 1], kOfKeys)) return true;
  }
  return false;
}

/// That lets somebody in; those of a vocabulary do not.
bool names_token(const Words& words) {
  constexpr std::array<std::string_view, 16> kOfVocabulary = {
      "pad", "bos",  "eos",     "unk",   "mask",  "sep", "cls",   "eod",
      "end", "stop", "special", "start", "image", "img", "video", "audio"};
  if (words.empty() || words.back() != "token") return false;
  if (words.size() == 1) return true;
  const std::string& kind = words[words.size() - 2];
  return kind != "per" && !is_one_of(kind, kOfVocabulary);
}

bool is_choice(std::string_view value) {
  return value.empty() || spec::dialects::parse_switch(value) || value == "None" ||
         value == "none" || value == "null";
}

/// The next word of a shell's command, with the blanks in front of it left in `rest`.
size_t end_of_word(std::string_view rest) {
  char quote = 0;
  for (size_t i = 0; i < rest.size(); ++i) {
    const char c = rest[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == ';') {
      return i;
    }
  }
  return rest.size();
}

}  // namespace

bool is_secret(std::string_view key, std::string_view value,
               std::optional<spec::dialects::Dialect> dialect) {
  if (is_choice(value)) return false;
  if (dialect && spec::dialects::is_known(key, *dialect)) return false;
  const Words words = words_of_name(key);
  const bool is_number = spec::dialects::parse_number(value).has_value();
  return names_secret(words) || (names_token(words) && !is_number);
}

void hide_secrets(spec::dialects::RunConfig& config) {
  const auto hide = [&](std::string_view key, std::string& value) {
    if (is_secret(key, value, config.dialect)) value = kHidden;
  };
  for (auto& [name, value] : config.environment) hide(name, value);
  for (auto& setting : config.unknown) hide(setting.key, setting.value);
  for (auto& setting : config.stated) hide(setting.key, setting.value);
}

std::string without_secrets(std::string_view command) {
  std::string text;
  std::string_view flag;  // whose value may come next
  while (!command.empty()) {
    const size_t length = end_of_word(command);
    if (length == 0) {
      text += command.front();
      command.remove_prefix(1);
      continue;
    }
    const std::string_view word = command.substr(0, length);
    command.remove_prefix(length);
    const size_t sign = word.find('=');
    const bool has_value = sign != std::string_view::npos;
    if (!flag.empty() && !word.starts_with('-') && is_secret(flag, word)) {
      text += kHidden;
    } else if (has_value && is_secret(word.substr(0, sign), word.substr(sign + 1))) {
      text += word.substr(0, sign + 1);
      text += kHidden;
    } else {
      text += word;
    }
    flag = word.starts_with('-') && !has_value ? word : std::string_view();
  }
  return text;
}

}  // namespace moetune::sweeps
