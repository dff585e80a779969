#include "engine/spec/dialects/shell_words.h"

#include <algorithm>
#include <utility>

#include "engine/spec/dialects/node.h"
#include "engine/spec/dialects/shell_arithmetic.h"
#include "engine/spec/dialects/values.h"

namespace moetune::spec::dialects {
namespace {

bool is_decimal(char c) { return c >= '0' && c <= '9'; }

bool is_shell_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Takes the name that stands at the beginning off a text; "@", "*" and "#" are names, too.
std::string take_name(std::string_view& text) {
  size_t end = 0;
  if (text.starts_with('@') || text.starts_with('*') || text.starts_with('#')) {
    end = 1;
  } else {
    while (end < text.size() && is_name_part(text[end])) ++end;
  }
  const std::string name(text.substr(0, end));
  text.remove_prefix(end);
  return name;
}

}  // namespace

std::string joined(const ShellValues& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : " ") + value;
  return text;
}

void skip_parentheses(Cursor& in) {
  const int64_t line = in.line();
  int open = 0;
  do {
    if (in.at_end()) in.fail(line, "a parenthesis is not closed");
    const char c = in.next();
    open += c == '(' ? 1 : (c == ')' ? -1 : 0);
  } while (open > 0);
}

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_part(char c) { return is_name_start(c) || is_decimal(c); }

std::string_view unset_variable_in(std::string_view word) {
  if (!word.starts_with('$')) return {};
  word.remove_prefix(1);
  if (word.starts_with('{')) {
    if (!word.ends_with('}')) return {};
    word = word.substr(1, word.size() - 2);
    if (word.ends_with("[@]") || word.ends_with("[*]")) word.remove_suffix(3);
  }
  const bool is_name = !word.empty() && std::ranges::all_of(word, is_name_part) &&
                       (is_name_start(word[0]) || std::ranges::all_of(word, is_decimal));
  return is_name ? word : std::string_view();
}

bool matches_pattern(std::string_view text, std::string_view pattern) {
  // Of several stars only the last is tried again, which is enough.
  size_t star = std::string_view::npos;
  size_t behind = 0;
  size_t i = 0;
  size_t k = 0;
  while (i < text.size()) {
    if (k < pattern.size() && pattern[k] == '*') {
      star = k++;
      behind = i;
    } else if (k < pattern.size() && (pattern[k] == '?' || pattern[k] == text[i])) {
      ++i;
      ++k;
    } else if (star != std::string_view::npos) {
      k = star + 1;
      i = ++behind;
    } else {
      return false;
    }
  }
  while (k < pattern.size() && pattern[k] == '*') ++k;
  return k == pattern.size();
}

void ShellWords::spend(const ShellValues& values) {
  for (const std::string& value : values) spend(value.size() + 1);
}
void ShellWords::spend(size_t bytes) {
  if (bytes > budget_.bytes)
    in_.fail(fmt::format("its words have more than {} bytes", kMaxTextBytes));
  budget_.bytes -= bytes;
}

void ShellWords::step(size_t count) {
  if (count > budget_.steps) in_.fail("it is too long to be read as a script");
  budget_.steps -= count;
}

bool ShellWords::is_end(char c) const {
  return is_shell_blank(c) || (!is_part_ && (c == ';' || c == '&' || c == '|' || c == '<' ||
                                             c == '>' || c == ')' || c == '('));
}

ShellValues ShellWords::words() {
  ShellValues done;
  std::string word;
  bool is_word = false;  // also an empty one in quotes
  has_unset_ = false;
  has_computed_ = false;
  while (!in_.at_end()) {
    const char c = in_.peek();
    if (is_end(c)) break;
    if (c == '\'') {
      word += single_quoted();
      is_word = true;
    } else if (c == '"') {
      is_word = double_quoted(word, done) || is_word;
    } else if (c == '\\') {
      in_.next();
      if (in_.at_end()) break;
      const char escaped = in_.next();
      if (escaped != '\n') word += escaped;
      is_word = is_word || escaped != '\n';
      if (escaped == '\n') break;
    } else if (c == '$' && in_.peek(1) == '\'') {
      in_.next();
      word += single_quoted(true);
      is_word = true;
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

ShellOperand ShellWords::operand() {
  is_test_ = true;
  ShellOperand operand{joined(words())};
  is_test_ = false;
  operand.is_known = !has_computed_;
  operand.is_outside = has_unset_ && all_set_outside_;
  return operand;
}

ShellOperand ShellWords::filled(std::string_view text) {
  if (depth_ == kMaxDepth) in_.fail(fmt::format("nested more than {} deep", kMaxDepth));
  Cursor inside(text, in_.source());
  ShellWords part(inside, variables_, budget_, all_set_outside_, depth_ + 1);
  part.is_test_ = true;
  std::string word;
  ShellValues done;
  while (!inside.at_end()) part.quoted_part(word, done);
  done.push_back(std::move(word));
  spend(done);
  return {joined(done), !part.has_computed_};
}

std::vector<std::pair<std::string, std::string>> ShellWords::take_defaults() {
  return std::exchange(defaults_, {});
}

std::string ShellWords::single_quoted(bool has_escapes) {
  const int64_t line = in_.line();
  in_.next();
  const size_t first = in_.at();
  while (in_.peek() != '\'') {
    if (in_.at_end()) in_.fail(line, "a quote (') is not closed");
    if (has_escapes && in_.peek() == '\\') in_.next();
    in_.next();
  }
  std::string text(in_.from(first));
  in_.next();
  return text;
}

bool ShellWords::double_quoted(std::string& word, ShellValues& done) {
  const int64_t line = in_.line();
  in_.next();
  bool is_word = in_.peek() == '"';
  while (!in_.take('"')) {
    if (in_.at_end()) in_.fail(line, "a quote (\") is not closed");
    is_word = quoted_part(word, done) || is_word;
  }
  return is_word;
}

bool ShellWords::quoted_part(std::string& word, ShellValues& done) {
  const char c = in_.peek();
  if (c == '\\' && std::string_view("\"\\$`\n").find(in_.peek(1)) != std::string::npos) {
    in_.next();
    if (in_.peek() == '\n') {
      in_.next();
    } else {
      word += in_.next();
    }
  } else if (c == '$' || c == '`') {
    const Expansion expansion = settled_expansion();
    if (expansion.is_array && expansion.values.empty()) return false;
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
  return true;
}

void ShellWords::expand(std::string& word, ShellValues& done, bool& is_word) {
  const Expansion expansion = settled_expansion();
  if (!expansion.is_known) {
    word += joined(expansion.values);
    is_word = true;
    return;
  }
  bool is_first = true;
  for (const std::string& value : expansion.values) {
    if (!is_first && is_word) done.push_back(std::exchange(word, ""));
    is_first = false;
    is_word = is_word || expansion.is_split;  // "" counts, too
    int open = 0;              // parentheses of a command that the variable was set to
    bool is_in_ticks = false;  // the same in "`"
    for (size_t i = 0; i < value.size(); ++i) {
      const char c = value[i];
      if (c == '(' && (open > 0 || (i > 0 && value[i - 1] == '$'))) ++open;
      if (c == ')' && open > 0) --open;
      if (c == '`' && (is_in_ticks || value.find('`', i + 1) != std::string::npos)) {
        is_in_ticks = !is_in_ticks;
      }
      const bool is_in_command = open > 0 || is_in_ticks;
      const bool is_between =
          is_shell_blank(c) && !is_in_command && !is_test_ && !expansion.is_split;
      if (!is_between) word += c;
      if (is_between && is_word) done.push_back(std::exchange(word, ""));
      is_word = !is_between;
    }
  }
  spend(word.size());
}

ShellWords::Expansion ShellWords::settled_expansion() {
  Expansion expansion = expansion_here();
  if (is_test_ && expansion.is_unset && !all_set_outside_) {
    expansion = {};
  } else if (is_test_ && expansion.is_known &&
             joined(expansion.values).find_first_of("$`") != std::string::npos) {
    // What the variable was set to held others that were not set, or a command.
    const ShellVariables none;
    const std::string value = joined(expansion.values);
    Cursor inside(value, in_.source());
    expansion = Expansion::unknown(value);
    try {
      const ShellOperand settled =
          ShellWords(inside, none, budget_, all_set_outside_).filled(value);
      expansion = {.values = {settled.text}, .is_known = settled.is_known};
    } catch (const base::UsageError&) {
      // Its quotes are not closed: it is a part of something.
    }
  }
  has_unset_ = has_unset_ || expansion.is_unset;
  has_computed_ = has_computed_ || !(expansion.is_known || expansion.is_unset) ||
                  (expansion.is_unset && all_set_outside_);
  return expansion;
}

ShellWords::Expansion ShellWords::expansion_here() {
  const size_t first = in_.at();
  const int64_t line = in_.line();
  const char opening = in_.next();
  if (opening == '`') {
    const size_t inside = in_.at();
    while (in_.peek() != '`') {
      if (in_.at_end()) in_.fail(line, "a quote (`) is not closed");
      in_.next();
    }
    const std::string_view command = in_.from(inside);
    in_.next();
    // A comment between the lines of a command.
    const size_t start = command.find_first_not_of(" \t\n");
    if (start == std::string_view::npos || command[start] == '#') return {};
  } else if (in_.peek() == '(') {
    skip_parentheses(in_);
    const std::string text(in_.from(first));
    if (text.starts_with("$((") && text.ends_with("))")) {
      const ShellOperand inside = filled(std::string_view(text).substr(3, text.size() - 5));
      const auto value = arithmetic_value(inside.text, variables_);
      if (inside.is_known && value) return {{std::to_string(*value)}};
    }
    return Expansion::unknown(text);
  } else if (in_.peek() == '{') {
    in_.next();
    const std::string text = to_brace(line);
    in_.take('}');
    return parameter(text, std::string(in_.from(first)));
  } else if (is_name_start(in_.peek())) {
    const size_t start = in_.at();
    while (is_name_part(in_.peek())) in_.next();
    return parameter(in_.from(start), std::string(in_.from(first)));
  } else if (!in_.at_end() && !in_.at_line_end() && in_.peek() != ' ' && in_.peek() != '"') {
    const std::string name(1, in_.next());  // $1, $@
    if (is_decimal(name[0]) || name == "@" || name == "*" || name == "#") {
      return parameter(name, std::string(in_.from(first)));
    }
  }
  return Expansion::unknown(std::string(in_.from(first)));
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

const ShellValues* ShellWords::find(std::string_view name) const {
  const auto at = variables_.find(name);
  return at == variables_.end() ? nullptr : &at->second;
}

ShellWords::Expansion ShellWords::parameter(std::string_view text, const std::string& raw) {
  static const ShellValues kNone;
  const bool is_count = text.size() > 1 && text[0] == '#';
  if (is_count) text.remove_prefix(1);
  const std::string name = take_name(text);
  if (name.empty()) return Expansion::unknown(raw);
  const ShellValues* arguments = find("@");
  const ShellValues* values = find(name);
  ShellValues part;
  bool is_array = false;
  if (name == "#") return {{std::to_string(arguments == nullptr ? 0 : arguments->size())}};
  if (name == "@" || name == "*") {
    is_array = true;
    values = arguments == nullptr ? &kNone : arguments;
  } else if (is_decimal(name[0])) {
    const auto which = parse_integer(name);
    values = nullptr;
    if (which && arguments != nullptr && *which > 0 &&
        *which <= static_cast<int64_t>(arguments->size())) {
      part = {(*arguments)[static_cast<size_t>(*which - 1)]};
      values = &part;
    }
  } else if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return Expansion::unknown(raw);
    const std::string index(text.substr(1, close - 1));
    text.remove_prefix(close + 1);
    is_array = index == "@" || index == "*";
    if (!is_array && values != nullptr) {
      const ShellOperand which = filled(index);
      auto found = which.is_known ? at_index(*values, which.text) : std::nullopt;
      if (!found) return Expansion::unknown(raw);
      part = std::move(*found);
      values = &part;
    }
  }
  if (is_count) {
    if (values == nullptr) return Expansion::unset(raw);
    return {{std::to_string(is_array ? values->size() : joined(*values).size())}};
  }
  if (auto found = otherwise(name, values, is_array, text, raw)) return std::move(*found);
  if (values == nullptr) return Expansion::unset(raw);
  return text.empty() ? Expansion{*values, is_array}
                      : shortened(name, *values, is_array, text, raw);
}

ShellWords::Expansion ShellWords::shortened(const std::string& name, const ShellValues& values,
                                            bool is_array, std::string_view operation,
                                            const std::string& raw) {
  if (operation[0] == ':' && is_array) {
    // Arguments count from 1, elements from 0.
    const auto from = arithmetic_value(operation.substr(1), variables_);
    if (!from || *from < 0) return Expansion::unknown(raw);
    const auto skipped = std::min<int64_t>(name == "@" || name == "*" ? *from - 1 : *from,
                                           static_cast<int64_t>(values.size()));
    return {{values.begin() + std::max<int64_t>(skipped, 0), values.end()}, true};
  }
  ShellValues cuts;
  for (const std::string& value : is_array ? values : ShellValues{joined(values)}) {
    auto rest = cut(value, operation);
    if (!rest) return Expansion::unknown(raw);
    cuts.push_back(std::move(*rest));
  }
  return {cuts, is_array};
}

std::optional<ShellWords::Expansion> ShellWords::otherwise(const std::string& name,
                                                           const ShellValues* values, bool is_array,
                                                           std::string_view rest,
                                                           const std::string& raw) {
  const bool counts_empty = rest.starts_with(':');
  const std::string_view operation = rest.substr(counts_empty ? 1 : 0);
  if (operation.empty() || std::string_view("-=+?").find(operation[0]) == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string value = values == nullptr ? "" : joined(*values);
  // A variable that was set to another that is not set is not set either.
  const bool is_set =
      values != nullptr && unset_variable_in(value).empty() && !(counts_empty && value.empty());
  const std::string_view text = operation.substr(1);
  if (operation[0] == '+') return is_set || all_set_outside_ ? expanded(text) : Expansion{};
  if (is_set) return Expansion{*values, is_array};
  if (operation[0] == '?' || all_set_outside_) return Expansion::unset(raw);
  Expansion found = expanded(text);
  if (operation[0] == '=' && found.is_known && is_name_start(name[0])) {
    defaults_.emplace_back(name, joined(found.values));
  }
  return found;
}

std::optional<ShellValues> ShellWords::at_index(const ShellValues& values,
                                                const std::string& index) {
  const std::string key = "[" + index + "]=";
  for (const std::string& value : values) {
    if (value.starts_with(key)) return ShellValues{value.substr(key.size())};
  }
  const auto place = parse_integer(index);
  if (!place || *place < 0) return std::nullopt;
  if (*place >= static_cast<int64_t>(values.size())) return ShellValues{};
  return ShellValues{values[static_cast<size_t>(*place)]};
}

std::optional<std::string> ShellWords::cut(const std::string& value, std::string_view operation) {
  if (operation == "^^" || operation == ",,") {
    std::string changed = value;
    for (char& c : changed) {
      const bool is_letter = operation == "^^" ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z';
      if (is_letter) c = static_cast<char>(c ^ 0x20);
    }
    return changed;
  }
  const char side = operation[0];
  if (side != '%' && side != '#') return std::nullopt;
  const bool is_longest = operation.size() > 1 && operation[1] == side;
  const std::string_view pattern = operation.substr(is_longest ? 2 : 1);
  constexpr size_t kLongest = 256;  // each place is tried
  constexpr size_t kLongestPattern = 64;
  if (value.size() > kLongest || pattern.size() > kLongestPattern ||
      pattern.find_first_of("$`\"'\\[") != std::string_view::npos) {
    return std::nullopt;
  }
  step(value.size() * value.size() / kBytesPerStep);
  for (size_t i = 0; i <= value.size(); ++i) {
    const size_t size = is_longest ? value.size() - i : i;
    const std::string_view all = value;
    const bool is_end = side == '%';
    const std::string_view part = is_end ? all.substr(all.size() - size) : all.substr(0, size);
    if (!matches_pattern(part, pattern)) continue;
    return std::string(is_end ? all.substr(0, all.size() - size) : all.substr(size));
  }
  return value;
}

ShellWords::Expansion ShellWords::expanded(std::string_view text) {
  if (depth_ == kMaxDepth) in_.fail(fmt::format("nested more than {} deep", kMaxDepth));
  Cursor inside(text, in_.source());
  ShellWords part(inside, variables_, budget_, all_set_outside_, depth_ + 1);
  part.is_part_ = true;
  part.is_test_ = is_test_;
  Expansion found;
  bool has_unset = false;
  bool has_computed = false;
  while (!inside.at_end()) {
    if (is_shell_blank(inside.peek())) {
      inside.next();
      continue;
    }
    for (std::string& word : part.words()) found.values.push_back(std::move(word));
    has_unset = has_unset || part.has_unset_;
    has_computed = has_computed || part.has_computed_;
  }
  for (auto& assigned : part.defaults_) defaults_.push_back(std::move(assigned));
  found.is_split = true;
  found.is_known = !has_unset && !has_computed;
  found.is_unset = has_unset && !has_computed;
  return found;
}

}  // namespace moetune::spec::dialects
