// Models and runs that a command line names.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/spec/dialects/run_config.h"
#include "sweeps/commands/options.h"
#include "tuner/planner/run.h"

namespace moetune::sweeps {

/// A model as the planner uses it, and its config.json. Of a multimodal model only the text part.
struct NamedModel {
  std::shared_ptr<const spec::ModelSpec> spec;
  nlohmann::json config;
};
/// The value of --model: a config.json, the name of a shipped model, or - for standard input.
NamedModel model_and_config(const std::string& name_or_path);
inline std::shared_ptr<const spec::ModelSpec> model_named(const std::string& name_or_path) {
  return model_and_config(name_or_path).spec;
}

/// All names, for messages: "megatron-lm, megatron-bridge, torchtitan or primus".
std::string dialect_names();
/// The dialect that an option names. Throws base::UsageError, with all names, for another text.
spec::dialects::Dialect dialect_named(const CommandOptions& options, const char* option);

/// Throws base::UsageError for a command of a run where a file is expected: --run takes one.
void check_is_no_command(const std::string& word);

/// A run in another framework's settings, as an option names it.
struct NamedRunText {
  std::string text;
  spec::dialects::Dialect dialect = spec::dialects::Dialect::megatron_lm;
  spec::dialects::ImportOptions how;
};
/// Throws base::UsageError where there is no such file, or nobody's settings are in it.
NamedRunText named_run_text(const CommandOptions& options, const char* option, int64_t world_size,
                            const spec::ModelSpec* model);
/// What the text says; see run_config_of.
spec::dialects::RunConfig run_config_of(const NamedRunText& run, int64_t otherwise);

/// Reads a run in another framework's settings. The option holds a path, else the text itself; - is
/// standard input. The dialect is recognized by the content, or given by --dialect. `model` is that
/// of --model, or null: stages that a text counts in layers follow from it. Ranks are `world_size`,
/// or, where that is 0, those that the text says; where it says none, `otherwise`, which may be 0.
spec::dialects::RunConfig run_config_of(const CommandOptions& options, const char* option,
                                        int64_t world_size, const spec::ModelSpec* model,
                                        int64_t otherwise = 0);

/// The shipped model that the name of a run's recipe, or torchtitan's name and flavor, says, where
/// the run says no sizes of its own; empty: none. What else a recipe has is not looked up.
std::string model_of_recipe(const spec::dialects::RunConfig& config);

/// A run together with the model and machine to which it refers.
struct OwnedRun {
  std::shared_ptr<const spec::ModelSpec> model;
  std::shared_ptr<const spec::HardwareSpec> hardware;
  tuner::planner::PlanRun run;
  std::vector<std::string> notes;
  std::vector<std::string> assumed;           ///< what the run leaves open, and what was taken
  spec::dialects::UnpricedSettings settings;  ///< that no figure follows from
};
/// A config.json with another depth of multi-token prediction.
nlohmann::json with_mtp_depth(nlohmann::json config, int64_t depth);
/// In JSON their first keys, and how many they are; for people a line each, none of an empty list.
void add_settings(const spec::dialects::UnpricedSettings& settings, nlohmann::json& document);
std::string settings_text(const spec::dialects::UnpricedSettings& settings);
/// A run with sizes of its own and another number of layers than `model` gets its vocabulary, where
/// the tokenizer alone would tell it. False where the run is not one.
bool take_vocabulary(const spec::ModelSpec& model, spec::dialects::RunConfig& config);
/// `model` may be null: then the text has to say its sizes, or a name of the model (see
/// model_of_recipe).
/// Multi-token prediction is what the text asks for, whatever `model` has: a checkpoint comes with
/// it, a run trains it only if told. Throws base::UsageError where the run lacks a size or breaks a
/// rule of the engine that it is for.
OwnedRun owned_run(const spec::dialects::RunConfig& config,
                   std::shared_ptr<const spec::ModelSpec> model,
                   std::shared_ptr<const spec::HardwareSpec> hardware);

}  // namespace moetune::sweeps
