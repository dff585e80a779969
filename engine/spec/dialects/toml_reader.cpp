// TOML as torchtitan's configurations use it.
#include <cctype>
#include <utility>

#include "engine/spec/dialects/node.h"
#include "engine/spec/dialects/text_cursor.h"

namespace moetune::spec::dialects {
namespace {

class TomlReader {
 public:
  TomlReader(std::string_view text, const std::string& source) : in_(text, source) {}

  Node document() {
    Node root;
    root.kind = Node::Kind::map;
    Node* table = &root;
    while (true) {
      skip_lines();
      if (in_.at_end()) return root;
      if (in_.take('[')) {
        if (in_.peek() == '[') in_.fail("lists of tables ('[[') are not read");
        const std::vector<std::string> path = dotted_key();
        if (!in_.take(']')) in_.fail("expected ']' behind the table's name");
        table = &table_at(root, path);
      } else {
        read_pair(*table, 0);
      }
      end_line();
    }
  }

 private:
  void skip_lines() {
    while (!in_.at_end()) {
      const char c = in_.peek();
      if (c == '#') {
        in_.skip_line();
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        in_.next();
      } else {
        return;
      }
    }
  }

  void end_line() {
    in_.skip_blanks();
    if (in_.peek() == '#') in_.skip_line();
    if (!in_.at_line_end()) {
      in_.fail(fmt::format("'{}' follows a value, expected the end of the line",
                           shown(std::string(1, in_.peek()))));
    }
  }

  std::vector<std::string> dotted_key() {
    std::vector<std::string> path;
    do {
      in_.skip_blanks();
      if (in_.peek() == '"' || in_.peek() == '\'') {
        path.push_back(string());
      } else {
        const size_t first = in_.at();
        while (std::isalnum(static_cast<unsigned char>(in_.peek())) != 0 || in_.peek() == '_' ||
               in_.peek() == '-') {
          in_.next();
        }
        path.emplace_back(in_.from(first));
      }
      if (path.back().empty()) {
        in_.fail(fmt::format("expected a key, found '{}'", shown(std::string(1, in_.peek()))));
      }
      if (path.size() > static_cast<size_t>(kMaxDepth)) in_.fail("the key has too many parts");
      in_.skip_blanks();
    } while (in_.take('.'));
    return path;
  }

  Node& table_at(Node& root, const std::vector<std::string>& path) {
    Node* node = &root;
    for (const std::string& name : path) {
      Node* next = nullptr;
      for (auto& [key, value] : node->fields) {
        if (key == name) next = &value;
      }
      if (next == nullptr) {
        Node table;
        table.kind = Node::Kind::map;
        table.line = in_.line();
        next = &add(*node, name, std::move(table));
      }
      if (next->kind != Node::Kind::map) {
        in_.fail(fmt::format("'{}' is a value on line {}, not a table", shown(name), next->line));
      }
      node = next;
    }
    return *node;
  }

  void read_pair(Node& table, int depth) {
    const int64_t line = in_.line();
    std::vector<std::string> path = dotted_key();
    if (!in_.take('=')) in_.fail("expected '=' behind the key");
    in_.skip_blanks();
    const std::string key = std::move(path.back());
    path.pop_back();
    Node& owner = table_at(table, path);
    if (const Node* first = owner.find(key)) {
      in_.fail(line, fmt::format("key '{}' stands here and on line {}", shown(key), first->line));
    }
    Node node = value(depth);
    node.line = line;
    add(owner, key, std::move(node));
  }

  Node& add(Node& table, const std::string& key, Node node) {
    if (table.fields.size() == kMaxFields) in_.fail(fmt::format("more than {} keys", kMaxFields));
    table.fields.push_back({key, std::move(node)});
    return table.fields.back().value;
  }

  Node value(int depth) {
    if (depth > kMaxDepth) in_.fail(fmt::format("nested more than {} deep", kMaxDepth));
    Node node;
    node.line = in_.line();
    const char c = in_.peek();
    if (c == '"' || c == '\'') {
      node.text = string();
      node.is_quoted = true;
    } else if (c == '[') {
      list(node, depth);
    } else if (c == '{') {
      inline_table(node, depth);
    } else {
      number_or_word(node);
    }
    return node;
  }

  void list(Node& node, int depth) {
    node.kind = Node::Kind::list;
    in_.next();
    while (true) {
      skip_lines();
      if (in_.at_end()) in_.fail(node.line, "']' is missing");
      if (in_.take(']')) return;
      node.items.push_back(value(depth + 1));
      skip_lines();
      if (!in_.take(',') && in_.peek() != ']') in_.fail("expected ',' or ']' in a list");
    }
  }

  void inline_table(Node& node, int depth) {
    if (depth >= kMaxDepth) in_.fail(fmt::format("nested more than {} deep", kMaxDepth));
    node.kind = Node::Kind::map;
    in_.next();
    while (true) {
      skip_lines();
      if (in_.at_end()) in_.fail(node.line, "'}' is missing");
      if (in_.take('}')) return;
      read_pair(node, depth + 1);
      skip_lines();
      if (!in_.take(',') && in_.peek() != '}') in_.fail("expected ',' or '}' in a table");
    }
  }

  /// The underscores between digits are left out.
  void number_or_word(Node& node) {
    const size_t first = in_.at();
    while (
        std::isalnum(static_cast<unsigned char>(in_.peek())) != 0 ||
        (in_.peek() != '\0' && std::string_view("+-._:").find(in_.peek()) != std::string::npos)) {
      in_.next();
    }
    const std::string_view word = in_.from(first);
    const bool is_number =
        !word.empty() && std::string_view("+-.0123456789").find(word[0]) != std::string::npos;
    const bool is_word = word == "true" || word == "false" || word == "inf" || word == "nan";
    if (!is_number && !is_word) {
      in_.fail(fmt::format("'{}' is no value: texts stand in quotes",
                           shown(word.empty() ? std::string_view(" ") : word)));
    }
    for (const char c : word) {
      if (c != '_') node.text += c;
    }
  }

  std::string string() {
    const char quote = in_.peek();
    if (in_.peek(1) == quote && in_.peek(2) == quote) {
      in_.fail("texts of several lines are not read");
    }
    in_.next();
    std::string text;
    while (true) {
      if (in_.at_line_end()) in_.fail("a quote is not closed");
      const char c = in_.next();
      if (c == quote) return text;
      if (c != '\\' || quote == '\'') {
        text += c;
        continue;
      }
      const char escaped = in_.next();
      if (escaped == 'n') {
        text += '\n';
      } else if (escaped == 't') {
        text += '\t';
      } else if (escaped == 'u') {
        if (!read_escaped_code(in_, text)) in_.fail("the escape '\\u' is read of ASCII only");
      } else if (escaped == '"' || escaped == '\\') {
        text += escaped;
      } else {
        in_.fail(fmt::format("the escape '\\{}' is not read", shown(std::string(1, escaped))));
      }
    }
  }

  Cursor in_;
};

}  // namespace

Node read_toml(std::string_view text, const std::string& source) {
  check_text(text, source);
  return TomlReader(text, source).document();
}

}  // namespace moetune::spec::dialects
