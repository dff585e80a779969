// A run of Megatron-Bridge that says its model by the name of its recipe alone.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {

using nlohmann::json;
using tests::Answer;
using tests::Cli;

BOOST_AUTO_TEST_SUITE(recipes_by_name)

namespace {

std::string command_of(const std::string& recipe, const std::string& overrides = "") {
  return "torchrun run_recipe.py --recipe " + recipe +
         " model.expert_model_parallel_size=8 train.micro_batch_size=1 "
         "train.global_batch_size=64 model.seq_length=4096 " +
         overrides;
}

std::vector<std::string> estimate_of(const std::string& command,
                                     std::vector<std::string> others = {}) {
  std::vector<std::string> words = {"estimate", "--run",  command, "--hardware",
                                    "h100-80g", "--gpus", "16"};
  words.insert(words.end(), others.begin(), others.end());
  return words;
}

}  // namespace

BOOST_FIXTURE_TEST_CASE(the_model_is_taken_and_said, Cli) {
  const std::string command = command_of("qwen3_30b_a3b_pretrain_config");
  const auto row_of = [&](const std::vector<std::string>& words) {
    const Answer answer = run(words);
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return json::parse(answer.out)["rows"][0];
  };
  const json by_name = row_of(estimate_of(command, {"--format", "json"}));
  const json given = row_of(estimate_of(command, {"--format", "json", "--model", "qwen3-30b-a3b"}));
  BOOST_TEST(by_name["step_time_ns"] == given["step_time_ns"]);
  BOOST_TEST(by_name["peak_allocated_bytes"] == given["peak_allocated_bytes"]);
  const std::string assumed = by_name["assumed"].dump();
  for (const char* words : {"the model is qwen3-30b-a3b, by the name of the recipe",
                            "parallel sizes and batch, is not known"}) {
    BOOST_TEST(assumed.find(words) != std::string::npos, assumed);
  }
  BOOST_TEST(given["assumed"].dump().find("recipe;") == std::string::npos);
  const auto is_unknown = [](const json& row) {
    return row["unknown_settings"].dump().find("--recipe") != std::string::npos;
  };
  BOOST_TEST(!is_unknown(by_name));
  BOOST_TEST(is_unknown(given));
  const Answer text = run(estimate_of(command));
  BOOST_TEST(text.out.find("assumed: the model is qwen3-30b-a3b") != std::string::npos, text.out);
}

BOOST_FIXTURE_TEST_CASE(the_task_follows_from_the_name, Cli) {
  const Answer answer =
      run(estimate_of(command_of("qwen3_30b_a3b_sft_config"), {"--format", "json"}));
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  BOOST_TEST(json::parse(answer.out)["rows"][0]["knobs"]["task"] == "sft");
}

BOOST_FIXTURE_TEST_CASE(other_names_and_other_sizes_are_refused, Cli) {
  check_refused(estimate_of(command_of("qwen3_vl_30b_a3b_pretrain_config")), 2,
                {"the run does not say its model's sizes", "qwen3_vl_30b_a3b_pretrain_config",
                 "no shipped model", "name it with --model"});
  check_refused(
      estimate_of(command_of("qwen3_30b_a3b_pretrain_config", "model.num_layers=24")), 2,
      {"model.num_layers is 24", "qwen3-30b-a3b, which its recipe's name says, has 48", "--model"});
  check_refused(
      estimate_of(command_of("qwen3_30b_a3b_pretrain_config", "model.num_moe_experts=64")), 2,
      {"model.num_moe_experts is 64", "qwen3-30b-a3b", "has 128"});
}

// Its recipe may say what a rule asks for.
BOOST_FIXTURE_TEST_CASE(what_a_rule_asks_for_is_assumed_where_a_recipe_may_say_it, Cli) {
  const auto row_of = [&](const std::string& overrides) {
    const Answer answer = run(
        estimate_of(command_of("qwen3_30b_a3b_pretrain_config", overrides), {"--format", "json"}));
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return json::parse(answer.out)["rows"][0];
  };
  const json row = row_of("model.tensor_model_parallel_size=2");
  BOOST_TEST(row["knobs"]["sequence_parallel"] == true);
  BOOST_TEST(row["knobs"]["etp"] == 1);
  const std::string assumed = row["assumed"].dump();
  for (const char* words :
       {"model.sequence_parallel=true, which the run does not say: experts with tp need",
        "cp 1, pp 1, etp 1, precision bf16, dispatcher alltoall, recompute none, cuda_graphs none",
        "the run does not say, and no recipe is looked up"}) {
    BOOST_TEST(assumed.find(words) != std::string::npos, assumed);
  }
  const json said = row_of("model.tensor_model_parallel_size=2 model.sequence_parallel=true");
  BOOST_TEST(said["step_time_ns"] == row["step_time_ns"]);
  BOOST_TEST(said["assumed"].dump().find("model.sequence_parallel") == std::string::npos);
  // Two settings, where one alone breaks another rule.
  const json overlap = row_of(
      "model.pipeline_model_parallel_size=2 comm_overlap.overlap_moe_expert_parallel_comm=true");
  BOOST_TEST(overlap["knobs"]["vpp"] == 2);
}

BOOST_FIXTURE_TEST_CASE(what_is_said_or_cannot_be_guessed_is_refused_by_its_setting, Cli) {
  // It says the contrary itself.
  check_refused(estimate_of(command_of("qwen3_30b_a3b_pretrain_config",
                                       "model.tensor_model_parallel_size=2 "
                                       "model.sequence_parallel=false")),
                2, {"sequence_parallel_with_experts", "(model.sequence_parallel=true)"});
  // How many ranks the recipe has, nobody can tell.
  check_refused(
      estimate_of("run_recipe.py --recipe qwen3_30b_a3b_pretrain_config "
                  "model.moe_token_dispatcher_type=flex model.moe_flex_dispatcher_backend=deepep"),
      2, {"flex_dispatcher_needs_ep", "to its recipe", "model.expert_model_parallel_size"});
  // A whole command has no recipe that may say it.
  check_refused(
      estimate_of("pretrain_gpt.py --bf16 --tensor-model-parallel-size 2 "
                  "--expert-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 64 "
                  "--seq-length 4096",
                  {"--model", "qwen3-30b-a3b"}),
      2, {"sequence_parallel_with_experts", "(--sequence-parallel)"});
}

BOOST_FIXTURE_TEST_CASE(a_command_of_the_launcher_of_benchmarks_is_priced, Cli) {
  const Answer answer =
      run({"estimate", "--hardware", "h100-80g", "--format", "json", "--run",
           "python scripts/performance/setup_experiment.py --account x --gpu h100 "
           "-ng 256 --model_family_name qwen --model_recipe_name qwen3_235b_a22b "
           "--compute_dtype fp8_cs -tp 2 -pp 8 -vp 4 -ep 32 -mb 1 -gb 2048"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json row = json::parse(answer.out)["rows"][0];
  BOOST_TEST(row["assumed"].dump().find("the model is qwen3-235b-a22b") != std::string::npos);
  BOOST_TEST(row["knobs"]["precision"] == "fp8-current-scaling");
  BOOST_TEST(row["knobs"]["dp"] == 16);
}

BOOST_FIXTURE_TEST_CASE(torchtitan_says_its_model_by_name_and_flavor, Cli) {
  const auto titan = [](const std::string& name, const std::string& flavor) {
    return "[model]\nname = \"" + name + "\"\nflavor = \"" + flavor +
           "\"\n[training]\nlocal_batch_size = 1\nseq_len = 4096\n";
  };
  for (const auto& [name, flavor, ours] : {std::tuple{"deepseek_v3", "671B", "deepseek-v3"},
                                           {"qwen3", "30B-A3B", "qwen3-30b-a3b"},
                                           {"llama3", "8B", "llama3-8b"}}) {
    const Answer answer = run(estimate_of(titan(name, flavor)));
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    BOOST_TEST(answer.out.find(std::string("the model is ") + ours + ", by its name and flavor") !=
                   std::string::npos,
               answer.out);
    BOOST_TEST(answer.out.find("model.name") == std::string::npos, answer.out);
  }
  check_refused(estimate_of(titan("llama4", "17bx16e")), 2,
                {"its name and flavor (llama4/17bx16e) are those of no shipped model", "--model"});
}

BOOST_FIXTURE_TEST_CASE(short_names_are_taken_and_told, Cli) {
  const std::string command =
      "pretrain_gpt.py --bf16 --expert-model-parallel-size 8 --micro-batch-size 1 "
      "--global-batch-size 64 --seq-length 4096";
  const auto words = [&](const char* model, const char* hardware) {
    return std::vector<std::string>{"estimate",   "--run",  command,  "--model", model,
                                    "--hardware", hardware, "--gpus", "64"};
  };
  const Answer usual = run(words("deepseek-v3", "h100-80g"));
  const Answer brief = run(words("deepseekv3", "H100"));
  BOOST_TEST_REQUIRE(brief.code == 0, brief.err);
  BOOST_TEST(brief.out == usual.out);
  for (const char* said :
       {"hardware 'H100' is taken as h100-80g", "model 'deepseekv3' is taken as deepseek-v3"}) {
    BOOST_TEST(brief.err.find(said) != std::string::npos, brief.err);
  }
  check_refused(words("qwen3", "h100"), 2, {"--model is 'qwen3'", "qwen3-30b-a3b"});
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
