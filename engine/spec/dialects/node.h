// What a YAML or TOML text says, as a tree of texts: numbers keep the digits that they were written
// with, so that what is passed on is not changed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::spec::dialects {

/// Beyond this a text is no configuration, and readers would use the stack up.
inline constexpr int kMaxDepth = 32;
/// Keys of one map: each is compared with all before it.
inline constexpr size_t kMaxFields = 10'000;

struct Field;

struct Node {
  enum class Kind : uint8_t { scalar, list, map };

  Kind kind = Kind::scalar;
  std::string text;           ///< scalars: without quotes and escapes
  bool is_quoted = false;     ///< what looks like a number or null is none
  std::vector<Node> items;    ///< lists
  std::vector<Field> fields;  ///< maps, in their order
  int64_t line = 0;           ///< on which it stands, from 1

  /// Null where the map has no such key.
  [[nodiscard]] const Node* find(std::string_view key) const;
  /// Nothing is said.
  [[nodiscard]] bool is_null() const;
};

struct Field {
  std::string key;
  Node value;
};

/// The subset of YAML that configurations use: maps, lists, flow lists and maps, scalars, texts of
/// several lines, anchors of values, merge keys, comments. Of a key that stands twice the last one
/// counts where `notes` is there to say so. Throws base::UsageError with the line for other such
/// keys, tags, several documents, and for what is no YAML.
Node read_yaml(std::string_view text, const std::string& source,
               std::vector<std::string>* notes = nullptr);
/// One value as YAML's flow style writes it: "[a, b]", "{k: 1}", a scalar.
Node read_yaml_value(std::string_view text, const std::string& source);

/// The subset of TOML: tables, dotted keys, strings of one line, numbers, booleans, lists, inline
/// tables. Throws base::UsageError with the line.
Node read_toml(std::string_view text, const std::string& source);

/// A value on one line, quoted where it has to be: flow style, which TOML takes for scalars and
/// lists, too.
std::string yaml_text(const Node& node);
std::string toml_text(const Node& node);

/// A node that stands for words of ours.
Node scalar_node(std::string text, bool is_quoted = false);

}  // namespace moetune::spec::dialects
