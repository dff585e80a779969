// Primus' YAML: an experiment names a preset and a model, which extend others, and overrides what
// they say. Variables of the environment stand in the values with a default.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

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

Node read_chain(const std::string& path, Reading& in, Place place);

/// What a file says, with all that it extends.
Node with_bases(Node root, Reading& in, Place of_bases) {
  Node all;
  all.kind = Node::Kind::map;
  if (const Node* bases = root.find("extends")) {
    const bool is_one = bases->kind == Node::Kind::scalar && !bases->is_null();
    if (is_one) merge(all, read_chain(bases->text, in, of_bases));
    for (const Node& base : bases->items) merge(all, read_chain(base.text, in, of_bases));
  }
  std::erase_if(root.fields, [](const auto& field) { return field.key == "extends"; });
  merge(all, root);
  return all;
}

/// A file with all that it extends; a map without fields where it was not given.
Node read_chain(const std::string& path, Reading& in, Place place) {
  Node none;
  none.kind = Node::Kind::map;
  const std::string name = file_name(path);
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
  return with_bases(std::move(root), in,
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
  if (!preset.empty() && in.options.files.contains(file_name(preset))) {
    merge(all, read_chain(preset, in, {}));
  } else if (!preset.empty() && preset != "pre_trainer.yaml") {
    in.run.is_partial = true;
  }
  if (!model.empty()) merge(all, read_chain(model, in, {}));
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
    flatten(with_bases(std::move(root), in, {}), "", yaml_text, in.settings, in.problems);
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
