#include "engine/spec/dialects/shell_words.h"

#include <algorithm>
#include <utility>

#include "engine/spec/dialects/values.h"

namespace moetune::spec::dialects {

std::string joined(const ShellValues& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : " ") + value;
  return text;
}

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_part(char c) { return is_name_start(c) || (c >= '0' && c <= '9'); }

void ShellWords::spend(const ShellValues& values) {
  for (const std::string& value : values) spend(value.size() + 1);
}
void ShellWords::spend(size_t bytes) {
  if (bytes > budget_.bytes)
    in_.fail(fmt::format("its words have more than {} bytes", kMaxTextBytes));
  budget_.bytes -= bytes;
}

ShellValues ShellWords::words() {
  ShellValues done;
  std::string word;
  bool is_word = false;  // also an empty one in quotes
  while (!in_.at_end()) {
    const char c = in_.peek();
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ';' || c == '&' || c == '|' ||
        c == '<' || c == '>' || c == ')' || c == '(') {
      break;
    }
    if (c == '\'') {
      word += single_quoted();
      is_word = true;
    } else if (c == '"') {
      double_quoted(word, done);
      is_word = true;
    } else if (c == '\\') {
      in_.next();
      if (in_.at_end()) break;
      const char escaped = in_.next();
      if (escaped != '\n') word += escaped;
      is_word = is_word || escaped != '\n';
      if (escaped == '\n') break;
    } else if (c == '$' || c == '`') {
      expand(word, done, is_word);
    } else {
      word += in_.next();
      is_word = true;
    }
  }
  if (is_word) done.push_back(std::move(word));
  spend(done);
  return done;
}

std::string ShellWords::single_quoted() {
  const int64_t line = in_.line();
  in_.next();
  const size_t first = in_.at();
  while (in_.peek() != '\'') {
    if (in_.at_end()) in_.fail(line, "a quote (') is not closed");
    in_.next();
  }
  std::string text(in_.from(first));
  in_.next();
  return text;
}

void ShellWords::double_quoted(std::string& word, ShellValues& done) {
  const int64_t line = in_.line();
  in_.next();
  while (!in_.take('"')) {
    if (in_.at_end()) in_.fail(line, "a quote (\") is not closed");
    const char c = in_.peek();
    if (c == '\\' && std::string_view("\"\\$`\n").find(in_.peek(1)) != std::string::npos) {
      in_.next();
      if (in_.peek() == '\n') {
        in_.next();
      } else {
        word += in_.next();
      }
    } else if (c == '$' || c == '`') {
      const Expansion expansion = expansion_here();
      if (expansion.is_array) {
        for (size_t i = 0; i < expansion.values.size(); ++i) {
          word += expansion.values[i];
          if (i + 1 < expansion.values.size()) done.push_back(std::exchange(word, ""));
        }
      } else {
        word += joined(expansion.values);
      }
      spend(word.size());
    } else {
      word += in_.next();
    }
  }
}

void ShellWords::expand(std::string& word, ShellValues& done, bool& is_word) {
  const Expansion expansion = expansion_here();
  if (!expansion.is_known) {
    word += joined(expansion.values);
    is_word = true;
    return;
  }
  bool is_first = true;
  for (const std::string& value : expansion.values) {
    if (!is_first && is_word) done.push_back(std::exchange(word, ""));
    is_first = false;
    for (const char c : value) {
      const bool is_blank = c == ' ' || c == '\t' || c == '\n';
      if (!is_blank) word += c;
      if (is_blank && is_word) done.push_back(std::exchange(word, ""));
      is_word = !is_blank;
    }
  }
  spend(word.size());
}

ShellWords::Expansion ShellWords::expansion_here() {
  const size_t first = in_.at();
  const int64_t line = in_.line();
  const char opening = in_.next();
  if (opening == '`') {
    while (in_.next() != '`') {
      if (in_.at_end()) in_.fail(line, "a quote (`) is not closed");
    }
  } else if (in_.peek() == '(') {
    skip_parentheses(line);
    if (const auto product = product_of(in_.from(first))) return {{*product}};
  } else if (in_.peek() == '{') {
    return braces(first, line);
  } else if (is_name_start(in_.peek())) {
    const size_t start = in_.at();
    while (is_name_part(in_.peek())) in_.next();
    const auto at = variables_.find(in_.from(start));
    if (at != variables_.end()) return {at->second};
  } else if (!in_.at_end() && !in_.at_line_end() && in_.peek() != ' ' && in_.peek() != '"') {
    in_.next();  // $1, $@
  }
  return {{std::string(in_.from(first))}, false, false};
}

void ShellWords::skip_parentheses(int64_t line) {
  int open = 0;
  do {
    if (in_.at_end()) in_.fail(line, "a parenthesis is not closed");
    const char c = in_.next();
    open += c == '(' ? 1 : (c == ')' ? -1 : 0);
  } while (open > 0);
}

std::optional<std::string> ShellWords::product_of(std::string_view text) const {
  if (!text.starts_with("$((") || !text.ends_with("))")) return std::nullopt;
  text = text.substr(3, text.size() - 5);
  int64_t product = 1;
  while (!text.empty()) {
    const size_t end = std::min(text.find('*'), text.size());
    std::string factor;
    for (const char c : text.substr(0, end)) {
      if (c != ' ' && c != '$' && c != '{' && c != '}') factor += c;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
    if (const auto at = variables_.find(factor); at != variables_.end()) {
      factor = joined(at->second);
    }
    const auto value = parse_integer(factor);
    if (!value || *value < 0 || *value > 1'000'000 || product > 1'000'000) return std::nullopt;
    product *= *value;
  }
  return std::to_string(product);
}

std::string ShellWords::to_brace(int64_t line) {
  const size_t first = in_.at();
  int open = 1;
  while (true) {
    if (in_.at_end()) in_.fail(line, "'${' is not closed");
    const char c = in_.peek();
    open += c == '{' ? 1 : (c == '}' ? -1 : 0);
    if (open == 0) return std::string(in_.from(first));
    in_.next();
  }
}

ShellWords::Expansion ShellWords::braces(size_t first, int64_t line) {
  in_.next();
  const size_t start = in_.at();
  while (is_name_part(in_.peek())) in_.next();
  const std::string name(in_.from(start));
  const bool is_array = in_.starts_with("[@]") || in_.starts_with("[*]");
  if (is_array) {
    for (int i = 0; i < 3; ++i) in_.next();
  }
  in_.take(':');
  const bool has_otherwise = in_.peek() == '-' || in_.peek() == '=';
  if (has_otherwise) in_.next();
  std::string otherwise = to_brace(line);
  in_.take('}');
  const auto at = variables_.find(name);
  const bool is_set = at != variables_.end() && !(has_otherwise && joined(at->second).empty());
  if (is_set) return {at->second, is_array};
  if (has_otherwise && otherwise.find('$') == std::string::npos) {
    std::erase_if(otherwise, [](char c) { return c == '"' || c == '\''; });
    return {{otherwise}};
  }
  return {{std::string(in_.from(first))}, false, false};
}

}  // namespace moetune::spec::dialects
