// Looks up what options name; completes a run with the devices that it has.
#include "sweeps/planning/named_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/recipe_name.h"
#include "engine/spec/dialects/values.h"
#include "engine/spec/document.h"
#include "engine/spec/library.h"
#include "engine/spec/pipeline_layout.h"
#include "kernels/base/error.h"
#include "sweeps/config_files.h"
#include "sweeps/load.h"
#include "sweeps/planning/run_stages.h"
#include "sweeps/planning/token_limit.h"
#include "sweeps/planning/unsaid_settings.h"
#include "tuner/planner/rules.h"

namespace moetune::sweeps {

namespace dialects = spec::dialects;

NamedModel model_and_config(const std::string& name_or_path) {
  const auto read = [](const spec::Document& document) {
    refuse_other_kind_of_file(document, "model");
    nlohmann::json part = spec::language_model_part(document.json, document.source);
    return NamedModel{std::make_shared<const spec::ModelSpec>(
                          spec::model_from_json(document.json, document.source)),
                      part.is_null() ? document.json : std::move(part)};
  };
  if (name_or_path == "-") {
    return read(spec::read_document(read_standard_input(), kStandardInput));
  }
  std::string path = spec::find_file(spec::Shelf::model, name_or_path, ".");
  if (path.empty()) {
    path = spec::likely_in_library(spec::Shelf::model, name_or_path);
    if (!path.empty()) {
      std::cerr << fmt::format("moetune: model '{}' is taken as {}\n", name_or_path,
                               spec::library_name(path));
    }
  }
  if (path.empty()) {
    throw base::UsageError(fmt::format("--model is '{}', expected a file or a name; {}",
                                       name_or_path.substr(0, 200),
                                       spec::library_hint(spec::Shelf::model, name_or_path)));
  }
  return read(spec::read_document(read_spec_file(path), path));
}

namespace {

/// The integer that the text itself says for a row of the dialects' table; none where it says none.
/// Defaults of a dialect, such as two experts a token, are no statement.
std::optional<int64_t> stated_size(const dialects::RunConfig& config, const char* row) {
  const std::string key = dialects::key_of(dialects::row_of(row), config.dialect);
  if (key.empty()) return std::nullopt;
  const auto found = std::ranges::find(config.stated, key, &dialects::StatedSetting::key);
  return found == config.stated.end() ? std::nullopt : dialects::parse_integer(found->value);
}

constexpr std::string_view kTitanName = "model.name";
constexpr std::string_view kTitanFlavor = "model.flavor";
/// What names a model, or the recipe of one: no setting of the run is lost with it.
constexpr std::array kNames = {dialects::kRecipeOption, kTitanName, kTitanFlavor,
                               std::string_view("--module"), std::string_view("--config")};

/// Where a model comes from that the text does not say.
struct SizesOf {
  std::string recipe;   ///< the shipped model that its name says; empty: --model
  std::string_view by;  ///< what says its name

  [[noreturn]] void refuse(std::string_view flag, int64_t stated, int64_t size) const {
    if (recipe.empty()) {
      throw base::UsageError(
          fmt::format("the run's {} is {}, but the model of --model has {}: leave one of them out",
                      flag, stated, size));
    }
    throw base::UsageError(fmt::format(
        "the run's {} is {}, but {}, which {} says, has {}: give the changed model with --model",
        flag, stated, recipe, by, size));
  }
};

/// Of experts: what the text says has to be the model's, too.
void check_experts_agree(const dialects::RunConfig& config, const spec::ModelSpec& model,
                         const SizesOf& sizes) {
  for (const auto& [row, size] : {std::pair{"num_experts", model.num_experts},
                                  {"moe_router_topk", model.experts_per_token},
                                  {"moe_ffn_hidden_size", model.moe_ffn_size}}) {
    const std::optional<int64_t> stated = stated_size(config, row);
    // A dense model of a script for both may say 0, or how it would route.
    const bool says_nothing = !stated || *stated == 0 ||
                              (model.num_experts == 0 && std::string_view(row) != "num_experts");
    if (says_nothing || *stated == size) continue;
    sizes.refuse(dialects::key_of(dialects::row_of(row), config.dialect), *stated, size);
  }
}

/// The same of sizes that not every model has. An echo has a parser's defaults, too, and so have
/// presets: a size counts where the model and the run have what it is of.
void check_parts_agree(const dialects::RunConfig& config, const spec::ModelSpec& model,
                       const SizesOf& sizes) {
  if (config.is_echo) return;
  const auto is_on = [&](const char* trait) { return config.model_flags.value(trait, false); };
  const bool has_switch = config.dialect != dialects::Dialect::megatron_bridge;
  const bool has_groups = !has_switch || is_on("group_query_attention");
  const bool is_latent = model.mla.kv_lora_rank > 0;
  const bool is_plain = !is_latent && !is_on("multi_latent_attention");
  const bool has_both = is_latent && is_on("multi_latent_attention");
  const bool has_dense = model.num_layers_with(spec::FeedForward::dense) > 0;
  const struct {
    const char* row;
    int64_t size;
    bool counts;
  } rows[] = {
      {"moe_shared_expert_intermediate_size", model.shared_ffn_size, model.num_experts > 0},
      {"ffn_hidden_size", model.ffn_size, has_dense},
      // Experts have it where nothing says their own.
      {"ffn_hidden_size", model.moe_ffn_size,
       model.num_experts > 0 && !has_dense && !stated_size(config, "moe_ffn_hidden_size")},
      {"num_query_groups", model.num_kv_heads, is_plain && has_groups},
      {"kv_channels", model.head_dim, is_plain},
      {"q_lora_rank", model.mla.q_lora_rank, has_both},
      {"kv_lora_rank", model.mla.kv_lora_rank, has_both},
      {"qk_head_dim", model.mla.qk_nope_head_dim, has_both},
      {"qk_pos_emb_head_dim", model.mla.qk_rope_head_dim, has_both},
      {"v_head_dim", model.mla.v_head_dim, has_both},
  };
  for (const auto& [row, size, counts] : rows) {
    const std::optional<int64_t> stated = stated_size(config, row);
    if (!counts || !stated || *stated == 0 || *stated == size) continue;
    sizes.refuse(dialects::key_of(dialects::row_of(row), config.dialect), *stated, size);
  }
}

/// Where the text says how many ranks or which sizes, these have to be those that are asked for.
void check_agrees(const dialects::RunConfig& config, const spec::ModelSpec& model,
                  const SizesOf& sizes, int64_t num_devices) {
  if (config.stated_world_size > 0 && config.stated_world_size != num_devices) {
    throw base::UsageError(fmt::format(
        "the run starts {} ranks, but {} devices are asked for: they have to be the same",
        config.stated_world_size, num_devices));
  }
  // What goes by one name in all families, and is there only where the text says it.
  for (const auto& [key, row, size] :
       {std::tuple{"num_hidden_layers", "num_layers", model.num_layers},
        {"hidden_size", "hidden_size", model.hidden_size},
        {"num_attention_heads", "num_attention_heads", model.num_heads}}) {
    const auto stated = config.model.find(key);
    if (stated == config.model.end() || !stated->is_number_integer() || size == 0) continue;
    if (stated->get<int64_t>() == size) continue;
    // Where the dialect has no word for it, its text was a model's file.
    const std::string said = dialects::key_of(dialects::row_of(row), config.dialect);
    sizes.refuse(said.empty() ? key : said, stated->get<int64_t>(), size);
  }
}

/// Models of torchtitan that shipped ones are not called like.
constexpr std::pair<std::string_view, std::string_view> kTitanFlavors[] = {
    {"deepseek_v3/671B", "deepseek-v3"}, {"dsv3_671b", "deepseek-v3"}};

/// torchtitan's name of a model: "qwen3/30B-A3B", on main "qwen3/qwen3_30b_a3b".
std::string titan_model_of(const dialects::RunConfig& config) {
  const auto said = [&](std::string_view key) {
    const auto found = std::ranges::find(config.stated, key, &dialects::StatedSetting::key);
    std::string value = found == config.stated.end() ? std::string() : found->value;
    std::erase(value, '"');  // of a file
    return value;
  };
  const std::string flavor = said(kTitanFlavor);
  return flavor.empty() ? config.model_name : fmt::format("{}/{}", said(kTitanName), flavor);
}

/// Of a run that says no sizes, or only changes to a model that nobody knows.
void refuse_without_sizes(const dialects::RunConfig& config) {
  if (config.model.contains("model_type")) return;
  std::string why;
  if (config.dialect == dialects::Dialect::megatron_bridge && !config.model_name.empty()) {
    why = fmt::format(", and the name of its recipe ({}) is that of no shipped model",
                      config.model_name.substr(0, 100));
  }
  if (config.dialect == dialects::Dialect::torchtitan) {
    const std::string name = titan_model_of(config);
    if (!name.empty()) {
      why = fmt::format(", and its name and flavor ({}) are those of no shipped model",
                        name.substr(0, 100));
    }
  }
  throw base::UsageError(
      fmt::format("the run does not say its model's sizes{}: name it with --model", why));
}

/// The other sizes are there, and the tokenizer's file is not.
void refuse_without_vocabulary(const dialects::RunConfig& config) {
  if (config.model.contains("vocab_size")) return;
  throw base::UsageError(fmt::format(
      "the run does not say its vocabulary: add {} to it, or name the model with --model",
      dialects::key_of(dialects::row_of("vocab_size"), config.dialect)));
}

/// No model with experts that is known has biases on all of its products. Megatron adds them
/// unasked.
void refuse_biases(const dialects::RunConfig& config) {
  const auto is = [&](const char* key, const nlohmann::json& value) {
    const auto found = config.model.find(key);
    return found != config.model.end() && *found == value;
  };
  if (!is("model_type", "megatron_gpt_moe") || !is("use_bias", true)) return;
  const dialects::Row& row = dialects::row_of("add_bias_linear");
  const dialects::SettingChange without = {
      dialects::key_of(row, config.dialect), std::nullopt,
      dialects::is_inverted(row, config.dialect) ? "true" : "false"};
  throw base::UsageError(
      fmt::format("the run's experts and all of its other products have biases, which are not "
                  "priced: add '{}', or name the model with --model",
                  dialects::text_of(without, config.dialect)));
}

/// Layers of multi-token prediction that a run asks for, also by the stages that it writes.
int64_t mtp_depth_of(const dialects::RunConfig& config, const tuner::planner::Stages& stages) {
  if (config.mtp_depth) return *config.mtp_depth;
  int64_t depth = 0;
  for (const std::string& letters : stages) depth += std::ranges::count(letters, 'm');
  return depth;
}

/// What was taken where a run does not ask for the layers that its model's file has.
std::string without_mtp(const dialects::RunConfig& config) {
  std::string text = "multi-token prediction is off: the command does not ask for it";
  const std::string key = dialects::key_of(dialects::row_of("mtp_num_layers"), config.dialect);
  const bool may_be_in_recipe = config.dialect == dialects::Dialect::megatron_bridge ||
                                config.dialect == dialects::Dialect::primus;
  if (may_be_in_recipe && !config.model_name.empty()) {
    text += fmt::format(" (where its recipe or model file does, say {} beside it)", key);
  }
  return text;
}

}  // namespace

std::string model_of_recipe(const dialects::RunConfig& config) {
  if (config.model.contains("model_type")) return {};
  const std::vector<std::string> names = spec::library_names(spec::Shelf::model);
  if (config.dialect == dialects::Dialect::megatron_bridge) {
    return dialects::model_in_recipe(config.model_name, names);
  }
  if (config.dialect != dialects::Dialect::torchtitan) return {};
  const std::string titan = titan_model_of(config);
  for (const auto& [theirs, ours] : kTitanFlavors) {
    const bool is_it = !dialects::model_in_recipe(titan, std::array{std::string(theirs)}).empty();
    if (is_it && std::ranges::find(names, ours) != names.end()) return std::string(ours);
  }
  return dialects::model_in_recipe(titan, names);
}

nlohmann::json with_mtp_depth(nlohmann::json config, int64_t depth) {
  for (const char* key : {"num_nextn_predict_layers", "mtp_num_hidden_layers"}) config.erase(key);
  if (depth > 0) config["num_nextn_predict_layers"] = depth;
  return config;
}

std::string dialect_names() {
  const auto& rows = spec::NameTable<dialects::Dialect>::kRows;
  std::string names;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i > 0) names += i + 1 == rows.size() ? " or " : ", ";
    names += rows[i].name;
  }
  return names;
}

dialects::Dialect dialect_named(const CommandOptions& options, const char* option) {
  const std::string name = options.text(option);
  const auto dialect = spec::find_by_name<dialects::Dialect>(name);
  if (dialect) return *dialect;
  throw base::UsageError(
      fmt::format("--{} is '{}', expected {}", option, name.substr(0, 40), dialect_names()));
}

dialects::RunConfig run_config_of(const NamedRunText& run, int64_t otherwise) {
  dialects::RunConfig config = dialects::import_run(run.text, run.dialect, run.how);
  if (config.world_size > 0 || otherwise == 0) return config;
  const spec::PlanKnobs& k = config.knobs;
  const int64_t least = std::max(k.replica_ranks(), int64_t{k.etp} * k.ep * k.pp);
  if (least > otherwise) {
    throw base::UsageError(
        fmt::format("{}: does not say how many ranks it has, and needs {} at least: --gpus tells",
                    run.how.source, least));
  }
  dialects::ImportOptions how = run.how;
  how.world_size = otherwise;
  return dialects::import_run(run.text, run.dialect, how);
}

void check_is_no_command(const std::string& word) {
  std::error_code error;
  const bool is_one_word = word.find_first_of(" \t\n") == std::string::npos;
  if (is_one_word || std::filesystem::exists(word, error)) return;
  if (!dialects::detect_dialect(word)) return;
  throw base::UsageError(
      fmt::format("'{}' is a command of a run and no file: put it behind --run", shown_path(word)));
}

NamedRunText named_run_text(const CommandOptions& options, const char* option, int64_t world_size,
                            const spec::ModelSpec* model) {
  NamedRunText run;
  run.text = options.text(option);
  run.how.world_size = world_size;
  if (model != nullptr) run.how.num_layers = model->num_layers;
  run.how.source = fmt::format("--{}", option);
  std::error_code error;
  std::string path;
  if (run.text == "-") {
    run.text = read_standard_input();
    run.how.source = kStandardInput;
  } else if (run.text.size() < 4096 && std::filesystem::is_regular_file(run.text, error)) {
    path = run.text;
    run.how.source = path;
    run.text = read_spec_file(path);
  } else if (!run.text.empty() && run.text.find_first_of(" \t\n=:") == std::string::npos) {
    throw base::UsageError(
        fmt::format("'{}' is neither a file nor a command of a run", shown_path(run.text)));
  }
  if (options.has("dialect")) {
    run.dialect = dialect_named(options, "dialect");
  } else if (const auto dialect = dialects::detect_dialect(run.text)) {
    run.dialect = *dialect;
  } else {
    throw base::UsageError(
        fmt::format("{}: looks like no command or configuration of Megatron-LM, Megatron-Bridge, "
                    "torchtitan or Primus; --dialect says whose it is",
                    run.how.source));
  }
  if (!path.empty()) read_named_files({.path = path}, run.text, run.dialect, run.how);
  return run;
}

dialects::RunConfig run_config_of(const CommandOptions& options, const char* option,
                                  int64_t world_size, const spec::ModelSpec* model,
                                  int64_t otherwise) {
  return run_config_of(named_run_text(options, option, world_size, model), otherwise);
}

void add_settings(const dialects::UnpricedSettings& settings, nlohmann::json& document) {
  const auto put = [&](const std::string& name, const std::vector<std::string>& keys) {
    const size_t named = std::min(keys.size(), dialects::kMostNamed);
    document[name] = std::vector(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(named));
    document["num_" + name] = keys.size();
  };
  put("not_priced_settings", settings.known);
  put("unknown_settings", settings.unknown);
}

std::string settings_text(const dialects::UnpricedSettings& settings) {
  std::string text;
  if (!settings.known.empty()) {
    text += fmt::format("known, but not priced: {}\n", dialects::text_of_keys(settings.known));
  }
  if (settings.unknown.empty()) return text;
  // What the run itself says would drown in what the files say that it names.
  std::vector<std::string> own = settings.unknown;
  own.resize(own.size() - std::min(own.size(), settings.num_inherited));
  std::string keys = dialects::text_of_keys(own);
  if (settings.num_inherited > 0) {
    keys += own.empty() ? fmt::format("{} from presets", settings.num_inherited)
                        : fmt::format(" and {} more from presets", settings.num_inherited);
  }
  return text + fmt::format("not known, and not priced: {}\n", keys);
}

namespace {

/// What a run's own words say of experts. An echo has a parser's defaults, too.
std::vector<std::string> keys_of_experts(const dialects::RunConfig& config) {
  std::vector<std::string> keys;
  if (config.is_echo || config.is_whole) return keys;
  for (const dialects::StatedSetting& setting : config.stated) {
    const std::string_view key = setting.key;
    const std::string_view name = key.substr(key.rfind('.') == key.npos ? 0 : key.rfind('.') + 1);
    const bool is_of_experts = name.find("moe") != name.npos || name.find("expert") != name.npos;
    if (is_of_experts && std::ranges::find(keys, key) == keys.end()) keys.emplace_back(key);
  }
  return keys;
}

}  // namespace

bool take_vocabulary(const spec::ModelSpec& model, dialects::RunConfig& config) {
  const auto layers = config.model.find("num_hidden_layers");
  const bool has_other_sizes = config.model.contains("model_type") &&
                               layers != config.model.end() && *layers != model.num_layers;
  if (!has_other_sizes || config.model.contains("vocab_size")) return false;
  config.model["vocab_size"] = model.vocab_size;
  // As Megatron pads it.
  constexpr int64_t kDefaultMultiple = 128;
  const int64_t multiple =
      config.model_flags.value("make_vocab_size_divisible_by", kDefaultMultiple) * config.knobs.tp;
  if (multiple > 0) {
    config.model["padded_vocab_size"] = (model.vocab_size + multiple - 1) / multiple * multiple;
  }
  return true;
}

OwnedRun owned_run(const dialects::RunConfig& config, std::shared_ptr<const spec::ModelSpec> model,
                   std::shared_ptr<const spec::HardwareSpec> hardware) {
  OwnedRun owned;
  SizesOf sizes;
  if (model == nullptr) sizes.recipe = model_of_recipe(config);
  if (!sizes.recipe.empty()) {
    // Not a file of that name in the folder where the program runs.
    model = model_named(spec::find_in_library(spec::Shelf::model, sizes.recipe));
    const bool is_of_titan = config.dialect == dialects::Dialect::torchtitan;
    sizes.by = is_of_titan ? "its flavor" : "its recipe's name";
    owned.assumed.push_back(
        is_of_titan
            ? fmt::format("the model is {}, by its name and flavor", sizes.recipe)
            : fmt::format("the model is {}, by the name of the recipe; what else the recipe has, "
                          "such as parallel sizes and batch, is not known",
                          sizes.recipe));
    check_experts_agree(config, *model, sizes);
  } else if (model == nullptr) {
    refuse_without_sizes(config);
    refuse_without_vocabulary(config);
    refuse_biases(config);
    model = std::make_shared<const spec::ModelSpec>(
        spec::model_from_json(config.model, spec::Source("the run's model")));
  } else {
    check_experts_agree(config, *model, sizes);
    check_parts_agree(config, *model, sizes);
  }
  check_agrees(config, *model, sizes, hardware->num_devices());
  tuner::planner::Stages stages;
  if (!config.pipeline_layout.empty()) {
    stages = spec::pipeline_stages_for(config.pipeline_layout, config.knobs.pp, model->num_layers);
  }
  const int64_t mtp_depth = mtp_depth_of(config, stages);
  if (mtp_depth != model->mtp.depth) {
    if (!config.mtp_depth && mtp_depth == 0) owned.assumed.push_back(without_mtp(config));
    spec::ModelSpec trained = *model;
    spec::set_mtp_depth(trained, mtp_depth);
    model = std::make_shared<const spec::ModelSpec>(std::move(trained));
  }
  const std::string assumption = spec::model_assumption(*model);
  if (!assumption.empty()) owned.assumed.push_back(assumption);
  owned.model = std::move(model);
  owned.hardware = std::move(hardware);
  owned.notes = config.notes;
  // It is the model's.
  std::erase(owned.notes, dialects::kUnsaidVocabulary);
  if (owned.model->num_experts == 0) {
    const std::vector<std::string> keys = keys_of_experts(config);
    if (!keys.empty()) {
      owned.notes.push_back(fmt::format("the model has no experts, and nothing follows from {}",
                                        dialects::text_of_keys(keys)));
    }
  }
  owned.settings = dialects::unpriced_settings(config);
  // The name has said the model.
  if (!sizes.recipe.empty()) {
    std::erase_if(owned.settings.unknown, [](const std::string& key) {
      return std::ranges::find(kNames, key) != kNames.end();
    });
  }
  tuner::planner::PlanRun& run = owned.run;
  run.model = owned.model.get();
  run.hardware = owned.hardware.get();
  run.knobs = config.knobs;
  // Where nothing is said, Megatron slices experts like all else. A dense model has none.
  if (run.model->num_experts == 0) run.knobs.etp = 1;
  const int64_t devices = owned.hardware->num_devices();
  if (!spec::set_dp_for(devices, run.knobs)) {
    throw base::UsageError(fmt::format("tp {} x cp {} x pp {} do not divide the {} devices",
                                       run.knobs.tp, run.knobs.cp, run.knobs.pp, devices));
  }
  run.seq_length = config.seq_length > 0 ? config.seq_length : 4096;
  run.global_batch_size =
      config.global_batch_size > 0
          ? config.global_batch_size
          : std::max<int64_t>(run.knobs.micro_batch_size, config.pass_sequences) * run.knobs.dp;
  check_tokens(run);
  run.stages = std::move(stages);
  run.is_of_megatron = config.dialect != dialects::Dialect::torchtitan;
  run.states_own_modules = config.has_own_modules;
  run.holds_all_micro_batches = dialects::holds_all_micro_batches(config, run.knobs);
  run.has_rounds = dialects::has_rounds(config, run.knobs);
  run.fills_stages = dialects::fills_stages(config, run.knobs);
  run.has_usual_schedule = dialects::has_usual_schedule(config, run.knobs);
  run.pass_sequences = config.pass_sequences;
  run.takes_padded_deepep = dialects::takes_padded_deepep(config);
  keep_rules(config, run, owned.assumed);
  if (run.stages.empty()) {
    run.stages = stages_of_command(config, run, owned.assumed);
    // Stages have been made of these, but of a hybrid's layers.
    if (!tuner::planner::has_mixer(*run.model, spec::Mixer::mamba)) {
      for (const std::string& key : dialects::keys_of_counted_ends(config)) {
        std::erase(owned.settings.known, key);
      }
    }
  }
  if (std::string text = left_to_recipe(config, run); !text.empty()) {
    owned.assumed.push_back(std::move(text));
  }
  return owned;
}

}  // namespace moetune::sweeps
