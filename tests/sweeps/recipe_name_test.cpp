// A run of Megatron-Bridge that says its model by the name of its recipe alone.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

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
      {"--num-layers is 24", "qwen3-30b-a3b, which its recipe's name says, has 48", "--model"});
  check_refused(
      estimate_of(command_of("qwen3_30b_a3b_pretrain_config", "model.num_moe_experts=64")), 2,
      {"model.num_moe_experts is 64", "qwen3-30b-a3b", "has 128"});
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
