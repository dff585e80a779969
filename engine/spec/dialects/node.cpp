// Nodes as text again.
#include "engine/spec/dialects/node.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace moetune::spec::dialects {

namespace {

std::string in_double_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      result += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      if (c == '"' || c == '\\') result += '\\';
      result += c;
    }
  }
  return result + "\"";
}

/// Stands in YAML without quotes and is not read as something else.
bool is_plain(std::string_view text) {
  constexpr std::string_view kInside = "_-./+*()$%@~^=<>| ";
  constexpr std::string_view kNotFirst = "-*%@~|> <=?!&";
  if (text.empty() || text.ends_with(' ')) return false;
  const bool is_first_wrong = kNotFirst.find(text[0]) != std::string_view::npos;
  const bool is_number = text.size() > 1 && text[0] == '-' && text[1] >= '0' && text[1] <= '9';
  if (is_first_wrong && !is_number && !text.starts_with("--")) return false;
  return std::ranges::all_of(text, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kInside.find(c) != std::string_view::npos;
  });
}

bool is_bare_in_toml(const Node& node) {
  if (node.is_quoted || node.text.empty()) return false;
  if (node.text == "true" || node.text == "false") return true;
  return std::ranges::all_of(node.text, [](char c) {
    return (c >= '0' && c <= '9') || std::string_view("+-.eE").find(c) != std::string_view::npos;
  });
}

using Printer = std::string (*)(const Node&);

std::string list_text(const Node& node, Printer print) {
  std::vector<std::string> parts;
  for (const Node& item : node.items) parts.push_back(print(item));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

}  // namespace

const Node* Node::find(std::string_view key) const {
  const auto at = std::ranges::find(fields, key, &Field::key);
  return at == fields.end() ? nullptr : &at->value;
}

bool Node::is_null() const {
  return kind == Kind::scalar && !is_quoted &&
         (text.empty() || text == "null" || text == "~" || text == "Null" || text == "NULL");
}

std::string yaml_text(const Node& node) {
  if (node.kind == Node::Kind::list) return list_text(node, yaml_text);
  if (node.kind == Node::Kind::scalar) {
    if (node.is_quoted || (!node.text.empty() && !is_plain(node.text))) {
      return in_double_quotes(node.text);
    }
    return node.text.empty() ? "null" : node.text;
  }
  std::vector<std::string> parts;
  for (const auto& [key, value] : node.fields) {
    parts.push_back(fmt::format("{}: {}", yaml_text(scalar_node(key)), yaml_text(value)));
  }
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

std::string toml_text(const Node& node) {
  if (node.kind == Node::Kind::list) return list_text(node, toml_text);
  if (node.kind == Node::Kind::scalar) {
    return is_bare_in_toml(node) ? node.text : in_double_quotes(node.text);
  }
  std::vector<std::string> parts;
  for (const auto& [key, value] : node.fields) {
    parts.push_back(fmt::format("{} = {}", in_double_quotes(key), toml_text(value)));
  }
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

Node scalar_node(std::string text, bool is_quoted) {
  Node node;
  node.text = std::move(text);
  node.is_quoted = is_quoted;
  return node;
}

}  // namespace moetune::spec::dialects
