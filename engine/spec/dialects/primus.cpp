// Primus' YAML: an experiment names a preset and a model, which extend others, and overrides what
// they say. Variables of the environment stand in the values with a default.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/spec/dialects/text_cursor.h"
#include "engine/spec/dialects/texts.h"

namespace moetune::spec::dialects {
namespace {

constexpr int kDeepestChain = 8;

/// Figures that the preset for fine-tuning has otherwise than the one for training.
struct Preset {
  std::string_view key;
  std::string_view value;
};
/// What every model with experts has otherwise than their common base.
constexpr std::array kModels = {
    Preset{"moe_token_dispatcher_type", "alltoall"},
    Preset{"moe_grouped_gemm", "true"},
};
constexpr std::string_view kBaseModel = "language_model.yaml";
/// Files that hold the dialect's defaults, as what they extend does.
constexpr std::array kDefaults = {kBaseModel, std::string_view("pre_trainer.yaml"),
                                  std::string_view("trainer_base.yaml")};
constexpr std::array kFineTuning = {
    Preset{"global_batch_size", "128"},
    Preset{"micro_batch_size", "1"},
    Preset{"seq_length", "2048"},
};

/// "${NAME:default}" as if the variable were not set.
std::string substituted(std::string_view text, Reading& in) {
  std::string result;
  while (!text.empty()) {
    const size_t start = std::min(text.find("${"), text.size());
    result += text.substr(0, start);
    text.remove_prefix(start);
    if (text.empty()) break;
    const size_t end = text.find('}');
    if (end == std::string_view::npos) return result + std::string(text);
    const std::string_view inside = text.substr(2, end - 2);
    const size_t colon = inside.find(':');
    if (colon == std::string_view::npos) {
      in.note(fmt::format("the variable {} has no default and is not read", shown(inside)));
      result += text.substr(0, end + 1);
    } else {
      result += inside.substr(colon + 1);
    }
    text.remove_prefix(end + 1);
  }
  return result;
}

void substitute(Node& node, Reading& in) {
  if (node.text.find("${") != std::string::npos) node.text = substituted(node.text, in);
  for (Node& item : node.items) substitute(item, in);
  for (auto& [key, value] : node.fields) substitute(value, in);
}

/// What `over` says wins; maps are merged.
void merge(Node& base, const Node& over) {
  for (const Field& field : over.fields) {
    const auto at = std::ranges::find(base.fields, field.key, &Field::key);
    if (at == base.fields.end()) {
      base.fields.push_back(field);
    } else if (at->value.kind == Node::Kind::map && field.value.kind == Node::Kind::map) {
      merge(at->value, field.value);
    } else {
      at->value = field.value;
    }
  }
}

std::string file_name(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));
}

bool holds_defaults(std::string_view name) {
  return std::ranges::find(kDefaults, name) != kDefaults.end();
}

/// Where a file stands among those that extend each other.
struct Place {
  int depth = 0;
  bool is_behind_defaults = false;  ///< one of kDefaults extends it
};

/// Files that extend each other, each of which is read once, however many extend it.
class Chains {
 public:
  explicit Chains(Reading& in) : in_(in) {}

  /// What a file says, with all that it extends.
  Node with_bases(Node root, Place of_bases);
  /// A file with all that it extends; a map without fields where it was not given.
  const Node& read(const std::string& path, Place place);

 private:
  Node read_anew(const std::string& name, Place place);

  Reading& in_;
  /// By their names and Place::is_behind_defaults; empty while they are read.
  std::map<std::pair<std::string, bool>, Node> known_;
  std::set<std::string> open_;  ///< being read
};

/// The files that one extends. Of one that stands there twice the last counts: it says all again.
std::vector<std::string> bases_of(const Node& root) {
  std::vector<std::string> paths;
  const Node* bases = root.find("extends");
  if (bases == nullptr) return paths;
  if (bases->kind == Node::Kind::scalar && !bases->is_null()) paths.push_back(bases->text);
  std::set<std::string_view> names;
  for (auto base = bases->items.rbegin(); base != bases->items.rend(); ++base) {
    if (names.insert(base->text).second) paths.push_back(base->text);
  }
  std::ranges::reverse(paths);
  return paths;
}

Node Chains::with_bases(Node root, Place of_bases) {
  Node all;
  all.kind = Node::Kind::map;
  for (const std::string& path : bases_of(root)) merge(all, read(path, of_bases));
  std::erase_if(root.fields, [](const auto& field) { return field.key == "extends"; });
  merge(all, root);
  return all;
}

const Node& Chains::read(const std::string& path, Place place) {
  Node none;
  none.kind = Node::Kind::map;
  const std::string name = file_name(path);
  const auto [known, is_new] = known_.try_emplace({name, place.is_behind_defaults}, none);
  if (!is_new) {
    if (open_.contains(name)) in_.problem(fmt::format("'{}' extends itself", shown(name)));
    return known->second;
  }
  const bool is_first = open_.insert(name).second;
  known->second = read_anew(name, place);
  if (is_first) open_.erase(name);
  return known->second;
}

Node Chains::read_anew(const std::string& name, Place place) {
  Node none;
  none.kind = Node::Kind::map;
  Reading& in = in_;
  const auto file = in.options.files.find(name);
  if (file == in.options.files.end()) {
    if (!place.is_behind_defaults && !holds_defaults(name)) {
      in.run.is_partial = true;
      in.note(fmt::format("{} has settings of its own and was not given", shown(name)));
    }
    return none;
  }
  if (place.depth > kDeepestChain) {
    in.problem(fmt::format("'{}' extends more than {} files in a row", shown(name), kDeepestChain));
    return none;
  }
  Node root = read_noted_yaml(file->second, name, in);
  substitute(root, in);
  return with_bases(std::move(root),
                    {place.depth + 1, place.is_behind_defaults || holds_defaults(name)});
}

std::string text_at(const Node& node, std::string_view key) {
  const Node* value = node.find(key);
  return value == nullptr ? "" : value->text;
}

/// The trainer of the experiment. Its other modules do not train.
const Node* trainer_of(const Node& modules) {
  for (const std::string_view name : {"pre_trainer", "post_trainer", "sft_trainer"}) {
    if (const Node* module = modules.find(name)) return module;
  }
  return nullptr;
}

void read_module(const Node& module, Reading& in) {
  const std::string framework = text_at(module, "framework");
  if (!framework.empty() && framework != "megatron") {
    in.problem(fmt::format("'framework' is '{}', expected megatron: the others are not read",
                           shown(framework)));
  }
  const std::string model = text_at(module, "model");
  const std::string preset = text_at(module, "config");
  in.run.model_name = model.ends_with(".yaml") ? model.substr(0, model.size() - 5) : model;
  Node all;
  all.kind = Node::Kind::map;
  Chains chains(in);
  if (!preset.empty() && in.options.files.contains(file_name(preset))) {
    merge(all, chains.read(preset, {}));
  } else if (!preset.empty() && preset != "pre_trainer.yaml") {
    in.run.is_partial = true;
  }
  if (!model.empty()) merge(all, chains.read(model, {}));
  const bool is_unseen = !model.empty() && !in.options.files.contains(file_name(model));
  if (is_unseen && file_name(model) != kBaseModel) {
    in.note("its experts are taken as those of all of Primus' models: alltoall, grouped products");
    for (const Preset& row : kModels) {
      all.fields.push_back({std::string(row.key), scalar_node(std::string(row.value))});
    }
  }
  if (const Node* overrides = module.find("overrides")) merge(all, *overrides);
  flatten(all, "", yaml_text, in.settings, in.problems);
  if (preset != "sft_trainer.yaml") return;
  for (const Preset& row : kFineTuning) {
    if (in.settings.find(row.key) != nullptr) continue;
    in.settings.add({.key = std::string(row.key), .words = {std::string(row.value)}, .value = {}},
                    in.problems);
  }
  in.parts.say("stage", "sft");
}

}  // namespace

void read_primus(std::string_view text, Reading& in) {
  Node root = read_noted_yaml(text, in.source, in);
  if (root.kind != Node::Kind::map) {
    throw base::UsageError(fmt::format("{}: is no map of settings", in.source));
  }
  substitute(root, in);
  const Node* modules = root.find("modules");
  if (modules == nullptr) {
    // Only the overrides, or a model's file.
    flatten(Chains(in).with_bases(std::move(root), {}), "", yaml_text, in.settings, in.problems);
    settle_switches(in);
    return;
  }
  const Node* trainer = trainer_of(*modules);
  if (trainer == nullptr) {
    throw base::UsageError(
        fmt::format("{}: 'modules' has neither pre_trainer nor post_trainer", in.source));
  }
  read_module(*trainer, in);
  for (const auto& [key, value] : root.fields) {
    if (key == "modules") continue;
    flatten(value, std::string(1, kOutside) + key, yaml_text, in.settings, in.problems);
  }
  settle_switches(in);
}

}  // namespace moetune::spec::dialects
