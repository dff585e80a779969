// One word of a shell's text after the other: quotes, escapes, and variables filled in.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/dialects/text_cursor.h"

namespace moetune::spec::dialects {

using ShellValues = std::vector<std::string>;
using ShellVariables = std::map<std::string, ShellValues, std::less<>>;

/// Bounds what a text makes, which variables in variables could let grow.
struct ShellBudget {
  size_t bytes = kMaxTextBytes;
  size_t words = 100'000;
};

/// With a blank between.
std::string joined(const ShellValues& values);
bool is_name_start(char c);
bool is_name_part(char c);

class ShellWords {
 public:
  ShellWords(Cursor& in, const ShellVariables& variables, ShellBudget& budget)
      : in_(in), variables_(variables), budget_(budget) {}

  /// One word as it is written, which variables can make none or several of.
  ShellValues words();
  /// Throws when all is used up.
  void spend(size_t bytes);
  void spend(const ShellValues& values);

 private:
  struct Expansion {
    ShellValues values;
    bool is_array = false;
    bool is_known = true;  ///< otherwise the value is what was written
  };

  std::string single_quoted();
  void double_quoted(std::string& word, ShellValues& done);
  /// Outside of quotes, where blanks in a value make words of it.
  void expand(std::string& word, ShellValues& done, bool& is_word);
  /// A '$' or '`' and what belongs to it.
  Expansion expansion_here();
  void skip_parentheses(int64_t line);
  /// Of "$(($A*8))", as scripts compute the number of ranks.
  [[nodiscard]] std::optional<std::string> product_of(std::string_view text) const;
  /// ${NAME}, ${NAME[@]}, ${NAME:-default}.
  Expansion braces(size_t first, int64_t line);
  /// Up to the brace that closes.
  std::string to_brace(int64_t line);

  Cursor& in_;
  const ShellVariables& variables_;
  ShellBudget& budget_;
};

}  // namespace moetune::spec::dialects
