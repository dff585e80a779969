// Primus' YAML: an experiment names a preset and a model, which extend others, and overrides what
// they say. Variables of the environment stand in the values with a default.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/spec/dialects/primus_files.h"
#include "engine/spec/dialects/text_cursor.h"
#include "engine/spec/dialects/texts.h"

namespace moetune::spec::dialects {
namespace {

struct Preset {
  std::string_view key;
  std::string_view value;
};
/// What every model with experts has otherwise than their common base.
constexpr std::array kModels = {
    Preset{"moe_token_dispatcher_type", "alltoall"},
    Preset{"moe_grouped_gemm", "true"},
};
constexpr std::string_view kFineTuning = "sft_trainer.yaml";

std::string text_at(const Node& node, std::string_view key) {
  const Node* value = node.find(key);
  return value == nullptr ? "" : value->text;
}

/// The trainer of the experiment. Its other modules do not train.
const Node* trainer_of(const Node& modules) {
  for (const std::string_view name : kTrainers) {
    if (const Node* module = modules.find(name)) return module;
  }
  return nullptr;
}

/// The folder of the framework's presets.
std::string folder_of_framework(const std::string& framework) {
  const bool is_name = !framework.empty() && std::ranges::all_of(framework, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
  return is_name ? framework : "megatron";
}

/// What the model's file says. Where one of those that it extends was not given, what all of them
/// have.
Node settings_of_model(const std::string& framework, const std::string& name, Chains& chains,
                       Reading& in) {
  const size_t num_unknown = chains.num_unknown();
  const Node& said = chains.preset("models", framework, name);
  if (chains.num_unknown() == num_unknown) return said;
  in.note("its experts are taken as those of all of Primus' models: alltoall, grouped products");
  Node all = empty_map();
  for (const Preset& row : kModels) {
    all.fields.push_back({std::string(row.key), scalar_node(std::string(row.value))});
  }
  merge(all, said);
  return all;
}

std::string name_of_model(const Node& module) {
  const std::string model = text_at(module, "model");
  return model.ends_with(".yaml") ? model.substr(0, model.size() - 5) : model;
}

/// Throws base::UsageError where none trains.
const Node& trainer_in(const Node& modules, const std::string& source) {
  if (const Node* trainer = trainer_of(modules)) return *trainer;
  throw base::UsageError(
      fmt::format("{}: 'modules' has neither pre_trainer nor post_trainer", source));
}

void read_module(const Node& module, Chains& chains, Reading& in) {
  const std::string framework = text_at(module, "framework");
  if (!framework.empty() && framework != "megatron") {
    in.problem(fmt::format("'framework' is '{}', expected megatron: {}", shown(framework),
                           framework == "torchtitan" ? "settings of that are read as torchtitan's"
                                                     : "the others are not read"));
  }
  const std::string model = text_at(module, "model");
  const std::string preset = text_at(module, "config");
  in.run.model_name = name_of_model(module);
  const std::string folder = folder_of_framework(framework);
  Node all = empty_map();
  if (!preset.empty()) all = chains.preset("modules", folder, preset);
  // Of a key that both have the preset's counts, whole: so Primus merges them.
  if (!model.empty()) add_missing(all, settings_of_model(folder, model, chains, in));
  if (const Node* overrides = module.find("overrides")) override_settings(all, *overrides);
  flatten(all, "", yaml_text, in.settings, in.problems);
  if (!chains.misses(kFineTuning)) return;
  in.run.is_partial = true;
  in.parts.say("stage", "sft");
}

/// What the text says itself, whatever the files say that it names.
std::set<std::string, std::less<>> keys_of(const Node& root, const Reading& in) {
  Settings own(in.source);
  Problems told_elsewhere;
  const Node* modules = root.find("modules");
  const Node* trainer = modules == nullptr ? nullptr : trainer_of(*modules);
  const Node* overrides = trainer == nullptr ? nullptr : trainer->find("overrides");
  if (overrides != nullptr) flatten(*overrides, "", yaml_text, own, told_elsewhere);
  for (const auto& [key, value] : root.fields) {
    if (key == "modules") continue;
    const std::string path = modules == nullptr ? key : std::string(1, kOutside) + key;
    flatten(value, path, yaml_text, own, told_elsewhere);
  }
  std::set<std::string, std::less<>> keys;
  for (const Setting& setting : own.all()) keys.insert(setting.key);
  return keys;
}

/// The settings of a text with all that it extends.
Node read_experiment(std::string_view text, Chains& chains, Reading& in) {
  Node root = read_noted_yaml(text, in.source, in);
  if (root.kind != Node::Kind::map) {
    throw base::UsageError(fmt::format("{}: is no map of settings", in.source));
  }
  substitute(root, in);
  in.own_keys = keys_of(root, in);
  return chains.with_bases(std::move(root), in.options.place);
}

}  // namespace

void read_primus(std::string_view text, Reading& in) {
  Chains chains(in);
  const Node root = read_experiment(text, chains, in);
  const Node* modules = root.find("modules");
  if (modules == nullptr) {
    // Only the overrides, or a model's file.
    flatten(root, "", yaml_text, in.settings, in.problems);
    settle_switches(in);
    return;
  }
  read_module(trainer_in(*modules, in.source), chains, in);
  for (const auto& [key, value] : root.fields) {
    if (key == "modules") continue;
    flatten(value, std::string(1, kOutside) + key, yaml_text, in.settings, in.problems);
  }
  settle_switches(in);
}

void read_titan_experiment(std::string_view text, Reading& in) {
  Chains chains(in);
  const Node root = read_experiment(text, chains, in);
  const Node* modules = root.find("modules");
  if (modules == nullptr) throw base::UsageError(fmt::format("{}: has no modules", in.source));
  const Node& module = trainer_in(*modules, in.source);
  in.run.model_name = name_of_model(module);
  if (const Node* overrides = module.find("overrides")) {
    flatten(*overrides, "", yaml_text, in.settings, in.problems);
  }
  settle_switches(in);
  in.run.is_partial = true;
  in.note(
      "it runs torchtitan, whose settings stand in its 'overrides'; Primus' presets of torchtitan "
      "are not read");
}

}  // namespace moetune::spec::dialects
