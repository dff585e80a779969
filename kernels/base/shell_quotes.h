// Words of a shell's command line, quoted so that a shell reads them back as they are.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace moetune::base {

/// Whether no shell makes anything else of that character, wherever it stands.
inline bool is_plain_in_shell(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./:=,+@%").find(c) != std::string_view::npos;
}

/// Whether the word needs no quotes.
inline bool is_plain_shell_word(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, is_plain_in_shell);
}

/// The text in single quotes, whatever it holds.
inline std::string in_single_quotes(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// The word as it is, in single quotes if it needs some. No variable in it is replaced.
inline std::string shell_literal(const std::string& word) {
  return is_plain_shell_word(word) ? word : in_single_quotes(word);
}

}  // namespace moetune::base
