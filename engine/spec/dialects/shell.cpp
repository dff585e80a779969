#include "engine/spec/dialects/shell.h"

#include <utility>

#include "engine/spec/dialects/shell_words.h"
#include "engine/spec/dialects/text_cursor.h"
#include "kernels/base/shell_quotes.h"

namespace moetune::spec::dialects {
namespace {

using Values = ShellValues;
using Environment = std::map<std::string, std::string, std::less<>>;

constexpr int kDeepestShell = 4;

class ShellReader {
 public:
  ShellReader(std::string_view text, std::string source, ShellBudget& budget, int depth)
      : in_(text, source),
        source_(std::move(source)),
        budget_(budget),
        depth_(depth),
        words_here_(in_, variables_, budget) {}

  std::vector<ShellCommand> read(ShellVariables variables, Environment exported) {
    variables_ = std::move(variables);
    exported_ = std::move(exported);
    while (!in_.at_end()) step();
    end_command();
    return std::move(commands_);
  }

 private:
  void step() {
    const char c = in_.peek();
    if (c == ' ' || c == '\t' || c == '\r') {
      in_.next();
    } else if (c == '\\' && (in_.peek(1) == '\n' || (in_.peek(1) == '\r' && in_.peek(2) == '\n'))) {
      in_.next();
      in_.take('\r');
      in_.next();
    } else if (c == '#') {
      in_.skip_line();
    } else if (c == '\n' || c == ';' || c == '&' || c == '|' || c == '(' || c == ')') {
      in_.next();
      end_command();
    } else if (c == '<' || c == '>') {
      skip_redirection();
    } else {
      read_word();
    }
  }

  void skip_redirection() {
    while (std::string_view("<>&").find(in_.peek()) != std::string::npos && !in_.at_end()) {
      in_.next();
    }
    in_.skip_blanks();
    if (!in_.at_line_end() && in_.peek() != '|' && in_.peek() != ';') words_here_.words();
  }

  void read_word() {
    if (words_.empty() && is_assignment()) {
      assign();
      return;
    }
    // "2>" is a redirection, too.
    if ((in_.peek() == '1' || in_.peek() == '2') && in_.peek(1) == '>') {
      in_.next();
      skip_redirection();
      return;
    }
    for (std::string& word : words_here_.words()) add(std::move(word));
  }

  void add(std::string word) {
    if (budget_.words == 0) in_.fail("it has too many words");
    --budget_.words;
    words_.push_back(std::move(word));
  }

  /// NAME=, NAME+= before the first word of a command.
  [[nodiscard]] bool is_assignment() const {
    size_t i = 0;
    if (!is_name_start(in_.peek())) return false;
    while (is_name_part(in_.peek(i))) ++i;
    if (in_.peek(i) == '+') ++i;
    return in_.peek(i) == '=';
  }

  void assign() {
    const size_t first = in_.at();
    while (is_name_part(in_.peek())) in_.next();
    const std::string name(in_.from(first));
    const bool appends = in_.take('+');
    in_.next();
    Values values;
    if (in_.peek() == '(') {
      values = array();
    } else if (!in_.at_line_end() && in_.peek() != ' ' && in_.peek() != ';') {
      values = {joined(words_here_.words())};
    } else {
      values = {""};
    }
    if (appends) {
      Values& old = variables_[name];
      old.insert(old.end(), values.begin(), values.end());
      words_here_.spend(old);
    } else {
      variables_[name] = values;
    }
    assigned_[name] = joined(variables_[name]);
  }

  Values array() {
    const int64_t line = in_.line();
    in_.next();
    Values values;
    while (!in_.take(')')) {
      if (in_.at_end()) in_.fail(line, "a parenthesis is not closed");
      const char c = in_.peek();
      if (c == '#') {
        in_.skip_line();
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        in_.next();
      } else if (c == '\\' && in_.peek(1) == '\n') {
        in_.next();
        in_.next();
      } else if (std::string_view("(;&|<>").find(c) != std::string::npos) {
        in_.fail(fmt::format("'{}' in an array", c));
      } else {
        for (std::string& word : words_here_.words()) values.push_back(std::move(word));
      }
    }
    return values;
  }

  void end_command() {
    const Environment assigned = std::exchange(assigned_, {});
    Values words = std::exchange(words_, {});
    if (words.empty()) {
      for (const auto& [name, value] : assigned) set_[name] = value;
      return;
    }
    if (words.front() == "export") {
      for (size_t i = 1; i < words.size(); ++i) export_variable(words[i]);
      return;
    }
    ShellCommand command{std::move(words), exported_};
    for (const auto& [name, value] : set_) command.environment.emplace(name, value);
    for (const auto& [name, value] : assigned) command.environment[name] = value;
    look_inside(command);
    commands_.push_back(std::move(command));
  }

  void export_variable(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (equals != std::string::npos) variables_[name] = {word.substr(equals + 1)};
    exported_[name] = joined(variables_[name]);
  }

  /// `bash -c TEXT` holds commands of its own.
  void look_inside(const ShellCommand& command) {
    const auto& words = command.words;
    for (size_t i = 0; i + 2 < words.size(); ++i) {
      const bool is_shell = words[i] == "bash" || words[i] == "sh" || words[i].ends_with("/bash") ||
                            words[i].ends_with("/sh");
      const bool has_text = words[i + 1].starts_with('-') && words[i + 1].ends_with('c');
      if (!is_shell || !has_text) continue;
      if (depth_ == kDeepestShell) in_.fail(fmt::format("shells in shells, more than {}", depth_));
      ShellReader inner(words[i + 2], source_, budget_, depth_ + 1);
      for (ShellCommand& found : inner.read(variables_, command.environment)) {
        commands_.push_back(std::move(found));
      }
    }
  }

  Cursor in_;
  std::string source_;
  ShellBudget& budget_;
  int depth_;
  ShellVariables variables_;
  ShellWords words_here_;
  Environment exported_;
  Environment set_;       ///< set, but not exported: a person who pastes lines forgets it
  Environment assigned_;  ///< before the command that is read
  Values words_;
  std::vector<ShellCommand> commands_;
};

}  // namespace

std::vector<ShellCommand> read_shell(std::string_view text, const std::string& source) {
  check_text(text, source);
  ShellBudget budget;
  return ShellReader(text, source, budget, 0).read({}, {});
}

namespace {

/// Whether all that a shell would replace within double quotes are whole variables, at least one.
bool has_only_variables(std::string_view word) {
  if (word.find_first_of("\"\\`'!") != std::string_view::npos) return false;
  bool has_any = false;
  for (size_t i = word.find('$'); i != std::string_view::npos; i = word.find('$', i + 1)) {
    const bool has_brace = word.substr(i + 1).starts_with('{');
    const size_t first = i + (has_brace ? 2 : 1);
    size_t end = first;
    while (end < word.size() && is_name_part(word[end])) ++end;
    if (end == first || !is_name_start(word[first])) return false;
    if (has_brace && (end == word.size() || word[end] != '}')) return false;
    has_any = true;
  }
  return has_any;
}

}  // namespace

std::string shell_quoted(const std::string& word) {
  // Variables that were not set when it was read are set where it is run.
  if (has_only_variables(word)) return "\"" + word + "\"";
  return base::shell_literal(word);
}

}  // namespace moetune::spec::dialects
