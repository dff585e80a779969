// Read in scripts/performance/argument_parser.py, in utils/overrides.py of what is made of it, and
// in scripts/training/run_recipe.py, at the commit of the reference for this dialect (067f987d,
// 2026-08-22).
#include "engine/spec/dialects/bridge_options.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/recipe_name.h"
#include "engine/spec/dialects/texts.h"

namespace moetune::spec::dialects {
namespace {

using CommandWords = std::vector<std::string>;

/// An option of one word, which no other has.
struct ShortName {
  std::string_view letters;
  std::string_view name;
};
constexpr std::array kShortNames = {
    ShortName{"-m", "model_family_name"},
    ShortName{"-mr", "model_recipe_name"},
    ShortName{"-nh", "nemo_home"},
    ShortName{"-ng", "num_gpus"},
    ShortName{"-d", "dryrun"},
    ShortName{"-ms", "max_steps"},
    ShortName{"-gb", "global_batch_size"},
    ShortName{"-mb", "micro_batch_size"},
    ShortName{"-sl", "seq_length"},
    ShortName{"-hf", "hf_token"},
    ShortName{"-et", "expert_tensor_parallel_size"},
    ShortName{"-etp", "expert_tensor_parallel_size"},
    ShortName{"-a", "account"},
    ShortName{"-p", "partition"},
    ShortName{"-t", "time_limit"},
    ShortName{"-gn", "gpus_per_node"},
    ShortName{"-i", "container_image"},
    ShortName{"-cm", "custom_mounts"},
    ShortName{"-ce", "custom_env_vars"},
    ShortName{"-E", "env"},
    ShortName{"-cs", "custom_srun_args"},
    ShortName{"-cb", "custom_bash_cmds"},
    ShortName{"-g", "gpu"},
    ShortName{"-c", "compute_dtype"},
    ShortName{"-vb", "enable_vboost"},
    ShortName{"-lgc", "lock_gpu_freq"},
    ShortName{"-lmc", "peak_mem_clk"},
    ShortName{"-en", "enable_nsys"},
    ShortName{"-pyp", "pytorch_profiler"},
    ShortName{"-mh", "record_memory_history"},
    ShortName{"-rl", "recompute_num_layers"},
    ShortName{"-ol", "activation_offload_layers"},
    ShortName{"-wdk", "wandb_key"},
    ShortName{"-wdp", "wandb_project_name"},
    ShortName{"-wde", "wandb_entity_name"},
    ShortName{"-wdj", "wandb_experiment_name"},
    ShortName{"-wds", "wandb_save_dir"},
    ShortName{"-l", "log_dir"},
    ShortName{"-cv", "config_variant"},
};

/// Overrides that an option stands for; '*' is its value, "[*]" its list.
struct OptionOverrides {
  std::string_view name;
  std::array<std::string_view, 3> overrides;
  std::string_view value = {};  ///< only with this one; empty: with any
};
constexpr std::array kOverrides = {
    OptionOverrides{"pipeline_model_parallel_layout", {"model.pipeline_model_parallel_layout=*"}},
    OptionOverrides{"global_batch_size", {"train.global_batch_size=*"}},
    OptionOverrides{"micro_batch_size", {"train.micro_batch_size=*"}},
    OptionOverrides{"seq_length", {"model.seq_length=*"}},
    OptionOverrides{"max_steps", {"train.train_iters=*"}},
    OptionOverrides{"hidden_size", {"model.hidden_size=*"}},
    OptionOverrides{"num_layers", {"model.num_layers=*"}},
    OptionOverrides{"num_moe_experts", {"model.num_moe_experts=*"}},
    OptionOverrides{"compute_dtype", {"mixed_precision=bf16_mixed"}, "bf16"},
    OptionOverrides{
        "compute_dtype", {"mixed_precision=bf16_with_fp8_current_scaling_mixed"}, "fp8_cs"},
    OptionOverrides{"compute_dtype", {"mixed_precision=bf16_with_mxfp8_mixed"}, "fp8_mx"},
    OptionOverrides{
        "compute_dtype", {"mixed_precision=bf16_with_fp8_subchannel_scaling_mixed"}, "fp8_sc"},
    OptionOverrides{
        "compute_dtype", {"mixed_precision=bf16_with_fp8_delayed_scaling_mixed"}, "fp8_ds"},
    OptionOverrides{"compute_dtype", {"mixed_precision=bf16_with_nvfp4_mixed"}, "nvfp4"},
    OptionOverrides{
        "use_megatron_fsdp",
        {"ddp.use_megatron_fsdp=true", "ddp.data_parallel_sharding_strategy=optim_grads_params"},
        "true"},
    OptionOverrides{"use_megatron_fsdp", {}, "false"},
    OptionOverrides{
        "use_tokendrop",
        {"model.moe_expert_capacity_factor=1.0", "model.moe_pad_expert_input_to_capacity=true",
         "model.moe_router_force_load_balancing=false"},
        "true"},
    OptionOverrides{
        "use_tokendrop",
        {"model.moe_expert_capacity_factor=null", "model.moe_pad_expert_input_to_capacity=false",
         "model.moe_router_force_load_balancing=true"},
        "false"},
    OptionOverrides{"nccl_ub", {"ddp.nccl_ub=true"}, "true"},
    OptionOverrides{"nccl_ub", {}, "false"},
    OptionOverrides{
        "moe_a2a_overlap",
        {"comm_overlap.overlap_moe_expert_parallel_comm=true",
         "comm_overlap.delay_wgrad_compute=true", "model.moe_shared_expert_overlap=false"},
        "true"},
    OptionOverrides{"moe_a2a_overlap", {}, "false"},
    OptionOverrides{
        "moe_flex_dispatcher_backend", {"model.moe_token_dispatcher_type=alltoall"}, "None"},
    OptionOverrides{
        "moe_flex_dispatcher_backend",
        {"model.moe_token_dispatcher_type=flex", "model.moe_flex_dispatcher_backend=*"}},
    OptionOverrides{"cuda_graph_impl", {"model.cuda_graph_impl=*"}},
    OptionOverrides{"cuda_graph_scope", {"model.cuda_graph_scope=[*]"}},
    OptionOverrides{"recompute_modules",
                    {"model.recompute_granularity=selective", "model.recompute_modules=[*]"}},
    OptionOverrides{"recompute_num_layers",
                    {"model.recompute_granularity=full", "model.recompute_method=block",
                     "model.recompute_num_layers=*"}},
    OptionOverrides{"activation_offload_layers",
                    {"model.cpu_offloading=true", "model.cpu_offloading_weights=false",
                     "model.cpu_offloading_num_layers=*"}},
};

/// The same of the library's own script for recipes, which sets nothing along.
constexpr std::array kRunnerOverrides = {
    OptionOverrides{"max_steps", {"train.train_iters=*"}},
    OptionOverrides{"global_batch_size", {"train.global_batch_size=*"}},
    OptionOverrides{"micro_batch_size", {"train.micro_batch_size=*"}},
    OptionOverrides{"seq_length", {"dataset.seq_length=*"}},
    OptionOverrides{"lr", {"optimizer.lr=*"}},
    OptionOverrides{"min_lr", {"optimizer.min_lr=*"}},
    OptionOverrides{"warmup_iters", {"scheduler.lr_warmup_iters=*"}},
    OptionOverrides{"save_interval", {"checkpoint.save_interval=*"}},
};
/// Scripts that start it take its options, too.
constexpr std::array<std::string_view, 3> kRunners = {"run_recipe.py", "setup_experiment.py",
                                                      "train.sh"};

/// An option and what stands behind it.
struct Option {
  std::string name;  ///< the long one, without dashes; empty: words that belong to none
  CommandWords values;
};

/// Variables of the environment and Slurm's parameters are written alike, but without a point.
bool is_override(std::string_view word) {
  const std::string key = key_in_word(word, Dialect::megatron_bridge);
  return key.find('.') != std::string::npos || is_known(key, Dialect::megatron_bridge);
}

/// The setting of the model that an option of a parallel size has the name of; empty for others.
std::string parallel_size_key(std::string_view name) {
  const std::string key = "model." + std::string(name);
  return name.ends_with("_parallel_size") && is_known(key, Dialect::megatron_bridge) ? key : "";
}

/// "-tp" and the like: a letter of the size, and that of "parallel".
std::optional<std::string> parallel_size_of(std::string_view letters) {
  if (letters.size() != 3 || letters[0] != '-' || letters[2] != 'p') return std::nullopt;
  constexpr std::string_view kModel = "model.";
  for (const Row& row : knob_rows()) {
    const std::string key = key_of(row, Dialect::megatron_bridge);
    if (!key.starts_with(kModel)) continue;
    const std::string name = key.substr(kModel.size());
    // That of slices of experts has letters of its own.
    const bool is_size = !parallel_size_key(name).empty() && name.find("_tensor_") == name.npos;
    if (is_size && name.front() == letters[1]) return name;
  }
  return std::nullopt;
}

/// The long name that a word says without its value; none of words that are no option.
std::optional<std::string> option_of(std::string_view word) {
  word = word.substr(0, word.find('='));
  if (word.size() > 2 && word.starts_with("--")) return std::string(word.substr(2));
  if (auto size = parallel_size_of(word)) return size;
  const auto* found = std::ranges::find(kShortNames, word, &ShortName::letters);
  return found == kShortNames.end() ? std::nullopt : std::optional(std::string(found->name));
}

/// Overrides stand by themselves, wherever they are.
std::vector<Option> options_of(std::span<const std::string> words, CommandWords& overrides) {
  std::vector<Option> options;
  for (const std::string& word : words) {
    if (auto name = option_of(word)) {
      options.push_back({std::move(*name), {}});
      const size_t equals = word.find('=');
      if (equals != std::string::npos) options.back().values.push_back(word.substr(equals + 1));
    } else if (is_override(word)) {
      overrides.push_back(word);
    } else if (options.empty()) {
      options.push_back({"", {word}});
    } else {
      options.back().values.push_back(word);
    }
  }
  return options;
}

std::string value_of_option(const Option& option) {
  if (option.values.size() != 1) return "";
  const std::string& value = option.values.front();
  const bool is_switch = std::ranges::any_of(kOverrides, [&](const OptionOverrides& row) {
    return row.name == option.name && row.value == "true";
  });
  if (!is_switch || value.empty()) return value;
  // Of the words that it takes (true, t, yes, y, 1, and the contrary) the first letter tells.
  constexpr std::string_view kOn = "tTyY1";
  return kOn.find(value.front()) != std::string_view::npos ? "true" : "false";
}

std::string filled(std::string_view pattern, const std::string& value) {
  std::string text(pattern);
  const size_t star = text.find('*');
  if (star != std::string::npos) text.replace(star, 1, value);
  return text;
}

constexpr std::string_view kPrecision = "mixed_precision";

std::string key_of_override(const std::string& word) {
  return key_in_word(word, Dialect::megatron_bridge);
}

/// Of one key the last counts.
void set_override(CommandWords& words, std::string word) {
  const std::string key = key_of_override(word);
  std::erase_if(words, [&](const std::string& other) { return key_of_override(other) == key; });
  words.push_back(std::move(word));
}

/// Adds what an option stands for; false: it is none of these, or has another value.
bool add_overrides_of(const Option& option, const std::vector<Option>& all, CommandWords& words) {
  const std::string value = value_of_option(option);
  if (option.name == "expert_tensor_parallel_size" && option.values.empty()) return true;
  if (value.empty()) return false;
  // Modules are set behind layers.
  const bool has_modules = std::ranges::find(all, "recompute_modules", &Option::name) != all.end();
  if (option.name == "recompute_num_layers" && has_modules) return false;
  if (option.name == "tensor_model_parallel_size") {
    set_override(words, "model.tensor_model_parallel_size=" + value);
    set_override(words,
                 value == "1" ? "model.sequence_parallel=false" : "model.sequence_parallel=true");
    return true;
  }
  if (const std::string key = parallel_size_key(option.name); !key.empty()) {
    // -1 is the recipe's.
    if (value != "-1") set_override(words, key + "=" + (value == "None" ? "null" : value));
    return true;
  }
  for (const OptionOverrides& row : kOverrides) {
    if (row.name != option.name || (!row.value.empty() && row.value != value)) continue;
    for (const std::string_view pattern : row.overrides) {
      if (!pattern.empty()) set_override(words, filled(pattern, value));
    }
    return true;
  }
  return false;
}

/// The override that an option of the library's script stands for; empty for others.
std::string override_of_runner(const Option& option) {
  if (option.values.size() != 1) return "";
  const std::string& value = option.values.front();
  if (const std::string key = parallel_size_key(option.name); !key.empty()) {
    return key + "=" + value;
  }
  const auto* row = std::ranges::find(kRunnerOverrides, option.name, &OptionOverrides::name);
  return row == kRunnerOverrides.end() ? "" : filled(row->overrides.front(), value);
}

/// Not written again: what the recipe's name says, and options that say where and how a job is
/// started, which change nothing of the run.
constexpr std::string_view kLeftOut[] = {"model_recipe_name",
                                         "task",
                                         "model_family_name",
                                         "gpu",
                                         "domain",
                                         "account",
                                         "partition",
                                         "time_limit",
                                         "preempt_time",
                                         "gpus_per_node",
                                         "container_image",
                                         "custom_mounts",
                                         "custom_srun_args",
                                         "custom_bash_cmds",
                                         "gres",
                                         "additional_slurm_params",
                                         "packager",
                                         "nemo_home",
                                         "hf_token",
                                         "offline",
                                         "detach",
                                         "dryrun",
                                         "max_retries",
                                         "log_dir"};
constexpr std::array<std::string_view, 2> kLeftOutKinds = {"wandb_", "kubeflow_"};

bool is_left_out(const std::string& name) {
  return std::ranges::find(kLeftOut, name) != std::end(kLeftOut) ||
         std::ranges::any_of(kLeftOutKinds,
                             [&](std::string_view kind) { return name.starts_with(kind); });
}

/// "A=1,B=2" is set where the job runs.
void set_variables_of(const Option& option, ShellCommand& command) {
  for (std::string_view rest : option.values) {
    while (!rest.empty()) {
      const std::string_view one = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(one.size() + 1, rest.size()));
      const size_t equals = one.find('=');
      if (equals == std::string_view::npos) continue;
      command.environment[std::string(one.substr(0, equals))] = std::string(one.substr(equals + 1));
    }
  }
}

/// The library's recipe for that model and task: "qwen3_30b_a3b_pretrain_config".
std::string recipe_of(const std::string& model, const std::string& task) {
  if (task_in_recipe(model)) return model;
  return model + "_" + (task == "lora" ? "peft" : task) + "_config";
}

bool is_runner(std::string_view script) {
  script = script.substr(script.rfind('/') + 1);
  return std::ranges::find(kRunners, script) != kRunners.end();
}

/// Options of the library's script, behind which overrides are applied.
void spell_out_runner(const std::vector<Option>& options, const CommandWords& written, size_t first,
                      CommandWords& words) {
  CommandWords overrides;
  CommandWords others;
  for (const Option& option : options) {
    if (std::string word = override_of_runner(option); !word.empty()) {
      set_override(overrides, std::move(word));
      continue;
    }
    // As other launchers call it.
    const bool is_count = option.name == "gpus-per-node" || option.name == "gpus_per_node";
    if (!option.name.empty()) {
      others.push_back("--" + (is_count ? "nproc-per-node" : option.name));
    }
    others.insert(others.end(), option.values.begin(), option.values.end());
  }
  std::erase_if(overrides, [&](const std::string& word) {
    return std::ranges::find(written, key_of_override(word), key_of_override) != written.end();
  });
  words.resize(first);
  for (const CommandWords* part : {&std::as_const(overrides), &written, &std::as_const(others)}) {
    words.insert(words.end(), part->begin(), part->end());
  }
}

}  // namespace

void spell_out_options(ShellCommand& command) {
  CommandWords& words = command.words;
  // Its options stand behind a script.
  const auto script = std::ranges::find_if(
      words, [](const std::string& word) { return word.ends_with(".py") || is_runner(word); });
  if (script == words.end()) return;
  CommandWords written;
  const auto first = static_cast<size_t>(script - words.begin()) + 1;
  const std::vector<Option> options =
      options_of(std::span<const std::string>(words).subspan(first), written);
  const auto text_of = [&](std::string_view name, const char* fallback) {
    const auto found = std::ranges::find(options, name, &Option::name);
    const bool is_said = found != options.end() && found->values.size() == 1;
    return is_said ? found->values.front() : std::string(fallback);
  };
  const std::string model = text_of("model_recipe_name", "");
  if (model.empty()) {
    if (is_runner(*script)) spell_out_runner(options, written, first, words);
    return;
  }
  // What the parser has where it is not said.
  CommandWords overrides = {std::string(kPrecision) + "=bf16_mixed"};
  CommandWords others;
  for (const Option& option : options) {
    if (is_left_out(option.name)) continue;
    if (option.name == "custom_env_vars" || option.name == "env") {
      set_variables_of(option, command);
      continue;
    }
    if (add_overrides_of(option, options, overrides)) continue;
    if (!option.name.empty()) others.push_back("--" + option.name);
    others.insert(others.end(), option.values.begin(), option.values.end());
  }
  // Options are applied behind what is written as an override, but for the precision, by which the
  // recipe is chosen.
  for (std::string& word : written) {
    const std::string key = key_of_override(word);
    const bool is_set = std::ranges::find(overrides, key, key_of_override) != overrides.end();
    if (!is_set || key == kPrecision) set_override(overrides, std::move(word));
  }
  words.resize(first);
  words.insert(words.end(), overrides.begin(), overrides.end());
  words.emplace_back(kRecipeOption);
  words.push_back(recipe_of(model, text_of("task", "pretrain")));
  words.insert(words.end(), others.begin(), others.end());
}

}  // namespace moetune::spec::dialects
