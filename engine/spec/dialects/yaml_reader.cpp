// YAML as configurations use it, and no more: what a reader of all of it does with hostile texts is
// a story of its own.
#include <utility>

#include "engine/spec/dialects/node.h"
#include "engine/spec/dialects/text_cursor.h"

namespace moetune::spec::dialects {
namespace {

class YamlReader {
 public:
  YamlReader(std::string_view text, const std::string& source) : in_(text, source) {}

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
    refuse_decoration();
    if (is_key()) return map(in_.column(), depth);
    return inline_value(least_column, depth, false);
  }

  Node map(size_t column, int depth) {
    Node node;
    node.kind = Node::Kind::map;
    node.line = in_.line();
    while (true) {
      skip_to_content();
      if (in_.at_end() || in_.column() < column || in_.starts_with("---")) return node;
      if (in_.column() > column || is_item()) {
        if (in_.column() == column) return node;
        in_.fail(fmt::format("'{}' stands deeper than its neighbours", rest()));
      }
      const int64_t line = in_.line();
      if (!is_key()) in_.fail(fmt::format("'{}' is no 'key: value'", rest()));
      std::string key = read_key();
      if (const Node* first = node.find(key)) {
        in_.fail(line, fmt::format("key '{}' stands here and on line {}", shown(key), first->line));
      }
      Node value = value_of_key(column, depth);
      value.line = line;
      add(node, std::move(key), std::move(value));
    }
  }

  void add(Node& node, std::string key, Node value) {
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
    if (key == "<<") in_.fail("merge keys ('<<') are not read");
    return key;
  }

  Node value_of_key(size_t column, int depth) {
    in_.skip_blanks();
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

  /// Anchors, tags and block scalars.
  void refuse_decoration() const {
    const char c = in_.peek();
    if (c == '&' || c == '*') in_.fail(fmt::format("'{}': anchors are not read", rest()));
    if (c == '!') in_.fail(fmt::format("'{}': tags are not read", rest()));
    if (c == '|' || c == '>') in_.fail("texts of several lines ('|', '>') are not read");
    if (c == '@' || c == '`' || c == '%') in_.fail(fmt::format("'{}' begins no value", c));
  }

  Node inline_value(size_t least_column, int depth, bool is_alone) {
    refuse_decoration();
    Node node;
    node.line = in_.line();
    if (in_.peek() == '[' || in_.peek() == '{') {
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
        if (node.find(key) != nullptr) in_.fail(fmt::format("key '{}' twice", shown(key)));
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
};

}  // namespace

Node read_yaml(std::string_view text, const std::string& source) {
  check_text(text, source);
  return YamlReader(text, source).document();
}

Node read_yaml_value(std::string_view text, const std::string& source) {
  return YamlReader(text, source).value();
}

}  // namespace moetune::spec::dialects
