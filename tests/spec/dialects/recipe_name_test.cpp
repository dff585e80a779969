// The names of recipes: which model and which task they say, and which they only seem to say.
#include "engine/spec/dialects/recipe_name.h"

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <ostream>

#include "tests/spec/dialects/dialect_samples.h"

namespace moetune::spec::dialects {
BOOST_AUTO_TEST_SUITE(names_of_recipes)

namespace {

const std::vector<std::string> kShipped = {
    "deepseek-v2",   "deepseek-v3", "gpt-175b",        "gpt-oss-20b",    "kimi-k2",
    "llama3-405b",   "llama3-70b",  "llama3-8b",       "mixtral-8x7b",   "qwen2.5-32b",
    "qwen3-30b-a3b", "qwen3-8b",    "qwen3.5-35b-a3b", "quickstart-moe", "quickstart-moe-32",
};

struct Name {
  const char* recipe;
  const char* model;  ///< empty: none
};
std::ostream& operator<<(std::ostream& out, const Name& row) { return out << row.recipe; }

}  // namespace

const std::vector<Name> kNames = {
    {"qwen3_30b_a3b_pretrain_config", "qwen3-30b-a3b"},
    {"qwen3_30b_a3b_pretrain_8gpu_h100_bf16_config", "qwen3-30b-a3b"},
    {"qwen3_30b_a3b", "qwen3-30b-a3b"},
    {"Qwen3-30B-A3B-SFT", "qwen3-30b-a3b"},
    {"megatron.bridge.recipes.qwen.qwen3_8b_finetune_config", "qwen3-8b"},
    {"recipes/llama.py:llama3_70b_sft", "llama3-70b"},
    {"our_llama3_8b_lora", "llama3-8b"},
    {"deepseek_v3_pretrain_config", "deepseek-v3"},
    {"gpt_oss_20b_peft_1gpu_h100_fp8mx_config", "gpt-oss-20b"},
    {"kimi_k2_pretrain_512gpu_h100_bf16_config", "kimi-k2"},
    {"mixtral_8x7b_config", "mixtral-8x7b"},
    {"qwen25_32b_pretrain_config", "qwen2.5-32b"},
    {"qwen2.5_32b_pretrain_config", "qwen2.5-32b"},
    {"qwen3.5_35b_a3b_sft_config", "qwen3.5-35b-a3b"},
    // The longest.
    {"quickstart_moe_recipe", "quickstart-moe"},
    {"quickstart_moe_32_recipe", "quickstart-moe-32"},
    // Parts of other names.
    {"qwen3_80b_pretrain_config", ""},
    {"qwen3_8b0_pretrain_config", ""},
    {"myqwen3_8b_pretrain_config", ""},
    {"qwen3_vl_8b_pretrain_config", ""},
    {"qwen3_vl_30b_a3b_sft_config", ""},
    {"qwen3_30b_pretrain_config", ""},
    {"llama31_8b_pretrain_config", ""},
    {"llama31_405b_pretrain_config", ""},
    {"gpt3_175b_pretrain_config", ""},
    {"kimi_k25_vl_sft_config", ""},
    // Words behind a name that make another model of it.
    {"deepseek_v2_lite_pretrain_config", ""},
    {"qwen3_8b_vl_sft_config", ""},
    {"deepseek_v3_5_pretrain_config", ""},
    // Nothing, and several.
    {"pretrain_config", ""},
    {"", ""},
    {"___", ""},
    {"llama3_8b_sft_qwen3_8b_sft", ""},
};

BOOST_DATA_TEST_CASE(a_name_says_its_model, boost::unit_test::data::make(kNames), row) {
  BOOST_TEST(model_in_recipe(row.recipe, kShipped) == row.model);
}

BOOST_AUTO_TEST_CASE(a_name_says_its_task) {
  using enum TrainingTask;
  BOOST_TEST((task_in_recipe("llama3_70b_sft_32gpu_h100_bf16_config") == sft));
  BOOST_TEST((task_in_recipe("qwen3_8b_finetune_config") == sft));
  BOOST_TEST((task_in_recipe("llama3_70b_peft_8gpu_h100_bf16_config") == lora));
  BOOST_TEST((task_in_recipe("llama3_8b_LoRA_config") == lora));
  BOOST_TEST((task_in_recipe("deepseek_v3_pretrain_config") == pretrain));
  BOOST_TEST(!task_in_recipe("llama3_8b").has_value());
  BOOST_TEST(!task_in_recipe("softsft_8b").has_value());
}

// What a command says itself wins.
BOOST_AUTO_TEST_CASE(a_run_has_the_task_of_its_recipe) {
  using enum TrainingTask;
  const auto knobs_of = [](const std::string& words) {
    return import_run("run_recipe.py model.tensor_model_parallel_size=2 " + words,
                      Dialect::megatron_bridge)
        .knobs;
  };
  BOOST_TEST((knobs_of("--recipe llama3_8b_pretrain_config").task == pretrain));
  BOOST_TEST((knobs_of("--recipe llama3_8b_sft_config").task == sft));
  BOOST_TEST((knobs_of("--recipe llama3_8b_peft_config").task == lora));
  BOOST_TEST((knobs_of("--recipe llama3_8b_peft_config --peft none").task == sft));
  BOOST_TEST((knobs_of("--recipe llama3_8b_sft_config --peft lora").task == lora));
  BOOST_TEST((knobs_of("--recipe llama3_8b_peft_config peft.dim=8").lora_rank == 8));
  // Its name says it once more when it is written.
  const RunConfig run =
      import_run("run_recipe.py --recipe llama3_8b_sft_config model.tensor_model_parallel_size=2",
                 Dialect::megatron_bridge);
  const std::string text = export_run(run, Dialect::megatron_bridge);
  BOOST_TEST(!samples::contains(text, "task=sft"), text);
  BOOST_TEST((import_run(text, Dialect::megatron_bridge).knobs.task == sft));
  BOOST_TEST(samples::contains(export_run(run, Dialect::megatron_lm), "--sft"));
  // Of Megatron-LM a name of a file says nothing.
  const RunConfig other = import_run("--tensor-model-parallel-size 2 --recipe llama3_8b_sft_config",
                                     Dialect::megatron_lm);
  BOOST_TEST((other.knobs.task == pretrain));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec::dialects
