// YAML as configurations use it, and no more: what a reader of all of it does with hostile texts is
// a story of its own.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/spec/dialects/node.h"
#include "engine/spec/dialects/text_cursor.h"

namespace moetune::spec::dialects {
namespace {

/// Of all that aliases repeat: what they stand for may hold others.
constexpr size_t kMostCopiedBytes = kMaxTextBytes;

size_t bytes_of_tree(const Node& node) {
  size_t bytes = sizeof(Node) + node.text.size();
  for (const Node& item : node.items) bytes += bytes_of_tree(item);
  for (const Field& field : node.fields) bytes += field.key.size() + bytes_of_tree(field.value);
  return bytes;
}

class YamlReader {
 public:
  /// `notes` gets keys that stand twice; without it they are refused.
  YamlReader(std::string_view text, const std::string& source, std::vector<std::string>* notes)
      : in_(text, source), notes_(notes) {}

  Node document() {
    skip_to_content();
    if (in_.starts_with("%")) in_.fail("directives are not read");
    if (in_.starts_with("---")) {
      in_.skip_line();
      skip_to_content();
    }
    Node root = block(0, 0);
    skip_to_content();
    if (in_.starts_with("...")) {
      in_.skip_line();
      skip_to_content();
    }
    if (in_.starts_with("---")) in_.fail("a second document begins, expected one");
    if (!in_.at_end()) in_.fail(fmt::format("'{}' stands at no level of what is above it", rest()));
    return root;
  }

  Node value() {
    skip_to_content();
    Node node = inline_value(0, 0, true);
    skip_to_content();
    if (!in_.at_end()) in_.fail(fmt::format("'{}' follows a value", rest()));
    return node;
  }

 private:
  [[nodiscard]] std::string rest() const {
    Cursor ahead = in_;
    const size_t first = ahead.at();
    ahead.skip_line();
    return shown(ahead.from(first));
  }

  /// Behind blank lines and comments.
  void skip_to_content() {
    while (!in_.at_end()) {
      const char c = in_.peek();
      if (c == '\t' && in_.column() == 0) in_.fail("a tab begins the line, expected blanks");
      if (c == '#') {
        in_.skip_line();
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        in_.next();
      } else {
        return;
      }
    }
  }

  [[nodiscard]] bool is_item() const {
    const char c = in_.peek(1);
    return in_.peek() == '-' && (c == ' ' || c == '\n' || c == '\r' || c == '\0');
  }

  /// A key and its colon follow on this line.
  [[nodiscard]] bool is_key() const {
    const char quote = in_.peek();
    size_t i = 0;
    if (quote == '"' || quote == '\'') {
      for (i = 1; in_.peek(i) != quote; ++i) {
        if (quote == '"' && in_.peek(i) == '\\') ++i;
        if (in_.peek(i) == '\0' || in_.peek(i) == '\n') return false;
      }
      ++i;
      while (in_.peek(i) == ' ') ++i;
      return in_.peek(i) == ':';
    }
    if (quote == '[' || quote == '{') return false;
    for (; in_.peek(i) != '\0' && in_.peek(i) != '\n'; ++i) {
      const char after = in_.peek(i + 1);
      if (in_.peek(i) == '#' && i > 0 && in_.peek(i - 1) == ' ') return false;
      if (in_.peek(i) == ':' && (after == ' ' || after == '\n' || after == '\r' || after == '\0')) {
        return true;
      }
    }
    return false;
  }

  Node block(size_t least_column, int depth) {
    skip_to_content();
    if (in_.at_end() || in_.column() < least_column) return {};
    if (depth > kMaxDepth) in_.fail(fmt::format("nested more than {} deep", kMaxDepth));
    if (is_item()) return list(in_.column(), depth);
    if (in_.peek() == '&') {
      const std::string name = read_name();
      Node node = block(least_column, depth + 1);
      keep(name, node);
      return node;
    }
    if (is_key()) return map(in_.column(), depth);
    return inline_value(least_column, depth, false);
  }

  /// Behind '&' or '*'.
  std::string read_name() {
    in_.next();
    const size_t first = in_.at();
    while (!in_.at_line_end() &&
           std::string_view(" \t,[]{}").find(in_.peek()) == std::string::npos) {
      in_.next();
    }
    std::string name(in_.from(first));
    if (name.empty()) in_.fail("an anchor has no name");
    in_.skip_blanks();
    return name;
  }

  void keep(const std::string& name, const Node& node) {
    spend(node);
    anchors_.insert_or_assign(name, node);
  }
  void spend(const Node& node) {
    copied_ += bytes_of_tree(node);
    if (copied_ > kMostCopiedBytes) {
      in_.fail(fmt::format("its anchors repeat more than {} bytes", kMostCopiedBytes));
    }
  }

  Node alias() {
    const int64_t line = in_.line();
    const std::string name = read_name();
    const auto found = anchors_.find(name);
    if (found == anchors_.end())
      in_.fail(line, fmt::format("no anchor '{}' stands above", shown(name)));
    spend(found->second);
    Node node = found->second;
    node.line = line;
    return node;
  }

  Node map(size_t column, int depth) {
    Node node;
    node.kind = Node::Kind::map;
    node.line = in_.line();
    std::vector<Node> merged;
    while (true) {
      skip_to_content();
      const bool ends = in_.at_end() || in_.column() < column || in_.starts_with("---") ||
                        (in_.column() == column && is_item());
      if (ends) {
        merge(node, merged);
        return node;
      }
      if (in_.column() > column) {
        in_.fail(fmt::format("'{}' stands deeper than its neighbours", rest()));
      }
      const int64_t line = in_.line();
      if (!is_key()) in_.fail(fmt::format("'{}' is no 'key: value'", rest()));
      std::string key = read_key();
      Node value = value_of_key(column, depth);
      value.line = line;
      if (key == "<<") {
        merged.push_back(std::move(value));
      } else {
        add(node, std::move(key), std::move(value));
      }
    }
  }

  /// What "<<" brings, where the map does not say it itself.
  void merge(Node& node, const std::vector<Node>& merged) {
    for (const Node& bases : merged) {
      const bool is_list = bases.kind == Node::Kind::list;
      for (const Node& base : is_list ? bases.items : std::vector<Node>{bases}) {
        if (base.kind != Node::Kind::map) in_.fail(bases.line, "'<<' has no map behind it");
        spend(base);
        for (const Field& field : base.fields) {
          if (node.find(field.key) == nullptr) add(node, field.key, field.value);
        }
      }
    }
  }

  void add(Node& node, std::string key, Node value) {
    const auto first = std::ranges::find(node.fields, key, &Field::key);
    if (first != node.fields.end()) {
      Node& old = first->value;
      if (notes_ == nullptr) {
        in_.fail(value.line,
                 fmt::format("key '{}' stands here and on line {}", shown(key), old.line));
      }
      if (yaml_text(old) != yaml_text(value)) {
        notes_->push_back(
            fmt::format("key '{}' stands on line {} and on line {}: the last one counts",
                        shown(key), old.line, value.line));
      }
      old = std::move(value);
      return;
    }
    if (node.fields.size() == kMaxFields) in_.fail(fmt::format("more than {} keys", kMaxFields));
    node.fields.push_back({std::move(key), std::move(value)});
  }

  std::string read_key() {
    refuse_decoration();
    if (in_.peek() == '?' && in_.peek(1) == ' ') in_.fail("keys with '?' are not read");
    std::string key;
    if (in_.peek() == '"' || in_.peek() == '\'') {
      key = quoted();
      in_.skip_blanks();
    } else {
      const size_t first = in_.at();
      while (in_.peek() != ':' || (in_.peek(1) != ' ' && in_.peek(1) != '\n' &&
                                   in_.peek(1) != '\r' && in_.peek(1) != '\0')) {
        in_.next();
      }
      key = in_.from(first);
      while (key.ends_with(' ')) key.pop_back();
    }
    if (!in_.take(':')) in_.fail("expected ':' behind the key");
    return key;
  }

  Node value_of_key(size_t column, int depth) {
    in_.skip_blanks();
    if (in_.peek() == '&') {
      if (depth > kMaxDepth) in_.fail(fmt::format("nested more than {} deep", kMaxDepth));
      const std::string name = read_name();
      Node node = value_of_key(column, depth + 1);
      keep(name, node);
      return node;
    }
    if (!in_.at_line_end() && in_.peek() != '#') return inline_value(column + 1, depth, false);
    skip_to_content();
    if (in_.at_end() || in_.column() < column) return {};
    if (in_.column() == column) return is_item() ? list(column, depth + 1) : Node{};
    return block(column + 1, depth + 1);
  }

  Node list(size_t column, int depth) {
    if (depth > kMaxDepth) in_.fail(fmt::format("nested more than {} deep", kMaxDepth));
    Node node;
    node.kind = Node::Kind::list;
    node.line = in_.line();
    while (true) {
      skip_to_content();
      if (in_.at_end() || in_.column() != column || !is_item()) return node;
      in_.next();
      in_.skip_blanks();
      const bool is_below = in_.at_line_end() || in_.peek() == '#';
      node.items.push_back(block(column + 1, depth + 1));
      if (is_below && node.items.back().line == 0) node.items.back().line = in_.line();
    }
  }

  /// Tags, and what stands where it has no meaning.
  void refuse_decoration() const {
    const char c = in_.peek();
    if (c == '&' || c == '*')
      in_.fail(fmt::format("'{}': anchors are read of values only", rest()));
    if (c == '!') in_.fail(fmt::format("'{}': tags are not read", rest()));
    if (c == '|' || c == '>') in_.fail("a text of several lines ('|', '>') begins no key");
    if (c == '@' || c == '`' || c == '%') in_.fail(fmt::format("'{}' begins no value", c));
  }

  Node inline_value(size_t least_column, int depth, bool is_alone) {
    const char opening = in_.peek();
    if ((opening == '|' || opening == '>') && !is_alone) return text_block(least_column);
    Node node;
    if (opening != '*') refuse_decoration();
    node.line = in_.line();
    if (opening == '*') {
      node = alias();
    } else if (in_.peek() == '[' || in_.peek() == '{') {
      node = flow(depth + 1);
    } else if (in_.peek() == '"' || in_.peek() == '\'') {
      node.text = quoted();
      node.is_quoted = true;
    } else {
      node.text = plain();
      if (!is_alone) fold(least_column, node.text);
      return node;
    }
    in_.skip_blanks();
    if (!in_.at_line_end() && in_.peek() != '#') {
      in_.fail(fmt::format("'{}' follows a value", rest()));
    }
    return node;
  }

  /// Lines below '|', as they are, or below '>', which go on as words of one.
  Node text_block(size_t least_column) {
    Node node;
    node.line = in_.line();
    node.is_quoted = true;
    const bool is_folded = in_.next() == '>';
    bool keeps_end = true;
    while (!in_.at_line_end() && in_.peek() != ' ' && in_.peek() != '#') {
      const char sign = in_.next();
      if (sign == '-') keeps_end = false;
      const bool is_known = sign == '-' || sign == '+' || (sign >= '1' && sign <= '9');
      if (!is_known) in_.fail(fmt::format("'{}' behind '|' or '>'", shown(std::string(1, sign))));
    }
    in_.skip_line();
    in_.next();
    std::optional<size_t> indent;
    while (!in_.at_end()) {
      size_t blanks = 0;
      while (in_.peek(blanks) == ' ') ++blanks;
      const char first = in_.peek(blanks);
      const bool is_empty = first == '\n' || first == '\r' || first == '\0';
      if (!is_empty) {
        if (!indent) indent = std::max<size_t>(blanks, 1);
        if (blanks < *indent || blanks < least_column) break;
      }
      for (size_t i = 0; i < std::min(blanks, indent.value_or(blanks)); ++i) in_.next();
      const size_t start = in_.at();
      in_.skip_line();
      std::string_view line = in_.from(start);
      if (line.ends_with('\r')) line.remove_suffix(1);
      in_.next();
      if (is_folded && !is_empty && node.text.ends_with('\n')) {
        // An empty line is the end of one.
        const bool has_gap = node.text.ends_with("\n\n");
        node.text.pop_back();
        if (!has_gap) node.text += ' ';
      }
      node.text += line;
      node.text += '\n';
    }
    while (node.text.ends_with("\n\n")) node.text.pop_back();
    if (node.text == "\n" || (!keeps_end && !node.text.empty())) node.text.pop_back();
    return node;
  }

  /// To the end of the line or a comment.
  std::string plain() {
    const size_t first = in_.at();
    while (!in_.at_line_end()) {
      if (in_.peek() == '#' && in_.at() > first && in_.from(first).back() == ' ') break;
      if (in_.peek() == ':' && in_.peek(1) == ' ') in_.fail("a second ':' on the line");
      in_.next();
    }
    std::string text(in_.from(first));
    while (text.ends_with(' ') || text.ends_with('\t')) text.pop_back();
    return text;
  }

  /// Lines that go on where a plain text ends, as writers of YAML break them.
  void fold(size_t least_column, std::string& text) {
    while (true) {
      const Cursor before = in_;
      skip_to_content();
      const bool goes_on = !in_.at_end() && in_.line() > before.line() &&
                           in_.column() >= std::max<size_t>(least_column, 1) && !text.empty();
      if (!goes_on) {
        in_ = before;
        return;
      }
      if (is_key() || is_item()) {
        in_.fail(fmt::format("'{}' stands deeper than its neighbours", rest()));
      }
      text += " " + plain();
    }
  }

  std::string quoted() {
    const char quote = in_.next();
    const int64_t line = in_.line();
    std::string text;
    while (true) {
      if (in_.at_end()) in_.fail(line, "a quote is not closed");
      const char c = in_.next();
      if (c == quote) {
        if (quote == '"' || !in_.take('\'')) return text;
        text += '\'';
      } else if (c == '\\' && quote == '"') {
        escape(text);
      } else if (c == '\n') {
        while (text.ends_with(' ') || text.ends_with('\r')) text.pop_back();
        in_.skip_blanks();
        text += ' ';
      } else {
        text += c;
      }
    }
  }

  void escape(std::string& text) {
    const char c = in_.next();
    switch (c) {
      case 'n':
        text += '\n';
        break;
      case 't':
        text += '\t';
        break;
      case 'u':
        if (!read_escaped_code(in_, text)) in_.fail("the escape '\\u' is read of ASCII only");
        break;
      case '\n':
        in_.skip_blanks();
        break;
      case '"':
      case '\\':
      case '/':
      case ' ':
        text += c;
        break;
      default:
        in_.fail(fmt::format("the escape '\\{}' is not read", shown(std::string(1, c))));
    }
  }

  Node flow(int depth) {
    if (depth > kMaxDepth) in_.fail(fmt::format("nested more than {} deep", kMaxDepth));
    Node node;
    node.line = in_.line();
    const bool is_map = in_.next() == '{';
    node.kind = is_map ? Node::Kind::map : Node::Kind::list;
    const char close = is_map ? '}' : ']';
    while (true) {
      skip_to_content();
      if (in_.at_end()) in_.fail(node.line, fmt::format("'{}' is missing", close));
      if (in_.take(close)) return node;
      std::string key;
      if (is_map) {
        key = in_.peek() == '"' || in_.peek() == '\'' ? quoted() : flow_plain();
        skip_to_content();
        if (!in_.take(':')) in_.fail("expected ':' behind the key");
        skip_to_content();
      }
      Node item = flow_item(depth);
      if (is_map) {
        add(node, std::move(key), std::move(item));
      } else {
        node.items.push_back(std::move(item));
      }
      skip_to_content();
      if (!in_.take(',') && in_.peek() != close) {
        in_.fail(fmt::format("expected ',' or '{}', found '{}'", close, rest()));
      }
    }
  }

  Node flow_item(int depth) {
    if (in_.peek() == '*') return alias();
    refuse_decoration();
    if (in_.peek() == '[' || in_.peek() == '{') return flow(depth + 1);
    Node item;
    item.line = in_.line();
    item.is_quoted = in_.peek() == '"' || in_.peek() == '\'';
    item.text = item.is_quoted ? quoted() : flow_plain();
    return item;
  }

  std::string flow_plain() {
    const size_t first = in_.at();
    while (!in_.at_line_end() && std::string_view(",[]{}").find(in_.peek()) == std::string::npos) {
      if (in_.peek() == ':' && (in_.peek(1) == ' ' || in_.peek(1) == '\n')) break;
      in_.next();
    }
    std::string text(in_.from(first));
    while (text.ends_with(' ')) text.pop_back();
    return text;
  }

  Cursor in_;
  std::vector<std::string>* notes_;
  std::map<std::string, Node, std::less<>> anchors_;
  size_t copied_ = 0;  ///< bytes that anchors have made of the text
};

}  // namespace

Node read_yaml(std::string_view text, const std::string& source, std::vector<std::string>* notes) {
  check_text(text, source);
  return YamlReader(text, source, notes).document();
}

Node read_yaml_value(std::string_view text, const std::string& source) {
  return YamlReader(text, source, nullptr).value();
}

}  // namespace moetune::spec::dialects
