// A configuration as a flat list: keys as the dialect spells them, values as texts. Every form of
// every dialect is read into this and written from it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/spec/dialects/node.h"
#include "engine/spec/dialects/run_config.h"
#include "engine/spec/problems.h"

namespace moetune::spec::dialects {

struct Setting {
  std::string key;                 ///< "--tensor-model-parallel-size", "parallelism.tensor_..."
  std::vector<std::string> words;  ///< one of a scalar, each of a list; none of a switch or null
  bool is_null = false;            ///< "null": what is not set
  std::string value;               ///< as it is written in the dialect
};

class Settings {
 public:
  /// `source` names the text in messages.
  explicit Settings(std::string source) : source_(std::move(source)) {}

  /// A key twice with the same value counts once; with another it is a mistake that is told with
  /// both values.
  void add(Setting setting, Problems& problems);
  /// Null where the key is not said.
  [[nodiscard]] const Setting* find(std::string_view key) const;
  [[nodiscard]] const std::vector<Setting>& all() const { return settings_; }
  /// In the place of the one with its key, which is there.
  void replace(Setting setting);
  /// What is left when a word of ours was found for it.
  void remove(std::string_view key);

 private:
  std::string source_;
  std::vector<Setting> settings_;
};

/// The scalars and lists of a tree under their dotted paths, values written by `print`.
void flatten(const Node& node, const std::string& prefix, std::string (*print)(const Node&),
             Settings& settings, Problems& problems);

}  // namespace moetune::spec::dialects
