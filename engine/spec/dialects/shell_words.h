// One word of a shell's text after the other: quotes, escapes, and variables filled in.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/spec/dialects/text_cursor.h"

namespace moetune::spec::dialects {

using ShellValues = std::vector<std::string>;
/// By name; "@" are the arguments of the script or of the function that runs.
using ShellVariables = std::map<std::string, ShellValues, std::less<>>;

/// Bounds what a text makes, which variables in variables and loops could let grow.
struct ShellBudget {
  size_t bytes = kMaxTextBytes;
  size_t words = 100'000;
  size_t steps = 2'000'000;  ///< of copying and of reading again
  size_t rounds = 256;       ///< of loops that count
};

/// Bytes that are copied or read again as fast as anything else is done.
inline constexpr size_t kBytesPerStep = 16;

/// With a blank between.
std::string joined(const ShellValues& values);
/// Behind the parenthesis that closes the one that stands here; where none does, it throws
/// base::UsageError.
void skip_parentheses(Cursor& in);
bool is_name_start(char c);
bool is_name_part(char c);
/// The variable that a word is and nothing else, as it is kept where the text does not set it:
/// "NAME" of "$NAME", "${NAME}" and "${NAME[@]}". Empty for all others.
std::string_view unset_variable_in(std::string_view word);
/// Whether a text matches a pattern with '*' and '?'.
bool matches_pattern(std::string_view text, std::string_view pattern);

/// A word of a test.
struct ShellOperand {
  std::string text;
  bool is_known = true;     ///< otherwise a command would have to be run to know it
  bool is_outside = false;  ///< set from outside to nobody knows what, but to something
};

class ShellWords {
 public:
  /// `all_set_outside`: as in ShellView.
  ShellWords(Cursor& in, const ShellVariables& variables, ShellBudget& budget, bool all_set_outside,
             int depth = 0)
      : in_(in),
        variables_(variables),
        budget_(budget),
        all_set_outside_(all_set_outside),
        depth_(depth) {}

  /// One word as it is written, which variables can make none or several of. What is not known
  /// stays as it is written.
  ShellValues words();
  /// The same as a test takes it: one text, and variables that are not set are empty.
  ShellOperand operand();
  /// A text as it is within double quotes.
  ShellOperand filled(std::string_view text);
  /// What "${NAME:=VALUE}" has set since the last call.
  std::vector<std::pair<std::string, std::string>> take_defaults();
  /// Throws when all is used up.
  void spend(size_t bytes);
  void spend(const ShellValues& values);
  /// The same of what takes time.
  void step(size_t count = 1);

 private:
  struct Expansion {
    ShellValues values;
    bool is_array = false;
    bool is_known = true;  ///< otherwise the value is what was written
    bool is_unset = false;
    bool is_split = false;  ///< blanks in the values are no more of them

    /// What only a command, or what sets a variable outside, could tell stays as it is written.
    static Expansion unknown(std::string written) { return {{std::move(written)}, false, false}; }
    static Expansion unset(std::string written) {
      return {{std::move(written)}, false, false, true};
    }
  };

  [[nodiscard]] bool is_end(char c) const;
  /// $'it\'s' has escapes, which stay as they are written.
  std::string single_quoted(bool has_escapes = false);
  /// False for quotes around an empty array, which are no word.
  bool double_quoted(std::string& word, ShellValues& done);
  /// A character within double quotes, or what is put in its place; false for an empty array.
  bool quoted_part(std::string& word, ShellValues& done);
  /// Outside of quotes, where blanks in a value make words of it.
  void expand(std::string& word, ShellValues& done, bool& is_word);
  /// A '$' or '`' and what belongs to it.
  Expansion expansion_here();
  /// The same, as a test takes it where one is read.
  Expansion settled_expansion();
  /// What stands within "${" and "}"; `raw` is all of it.
  Expansion parameter(std::string_view text, const std::string& raw);
  /// "${NAME:-VALUE}" and its kin. None where `rest` is no such operation.
  std::optional<Expansion> otherwise(const std::string& name, const ShellValues* values,
                                     bool is_array, std::string_view rest, const std::string& raw);
  /// The values that an index asks for; none: it is not known which.
  static std::optional<ShellValues> at_index(const ShellValues& values, const std::string& index);
  /// The rest of the values, as "${@:2}" and "${NAME%.*}" have it.
  Expansion shortened(const std::string& name, const ShellValues& values, bool is_array,
                      std::string_view operation, const std::string& raw);
  /// The same of one value; none for operations that are not read.
  std::optional<std::string> cut(const std::string& value, std::string_view operation);
  /// The words that a part of a word stands for.
  Expansion expanded(std::string_view text);
  /// Up to the brace that closes.
  std::string to_brace(int64_t line);
  /// Null where the text does not set it.
  [[nodiscard]] const ShellValues* find(std::string_view name) const;

  Cursor& in_;
  const ShellVariables& variables_;
  ShellBudget& budget_;
  bool all_set_outside_;
  int depth_;
  bool is_part_ = false;  ///< of a word: only blanks end words
  bool is_test_ = false;
  bool has_unset_ = false;     ///< of the word that is read
  bool has_computed_ = false;  ///< the same of what only a command could tell
  std::vector<std::pair<std::string, std::string>> defaults_;
};

}  // namespace moetune::spec::dialects
