// What is said of experts to a model that has none: named, in a sentence.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {

using nlohmann::json;
using tests::Answer;
using tests::Cli;

BOOST_AUTO_TEST_SUITE(dense_models)

BOOST_FIXTURE_TEST_CASE(a_fixed_choice_about_experts_is_refused_by_name, Cli) {
  for (const std::string choice : {"dispatcher=deepep", "etp=2", "ep=2", "capacity_factor=1.5",
                                   "overlap_moe_expert_parallel_comm=true"}) {
    check_refused(
        {"plan", "--model", "llama3-8b", "--hardware", "h100-80g", "--gpus", "8", "--fix", choice},
        2, {"--fix " + choice + " is about experts, and the model has none"});
  }
  // What every dense run has is no such choice.
  const Answer usual = run({"plan", "--model", "llama3-8b", "--hardware", "h100-80g", "--gpus", "8",
                            "--fix", "etp=1", "--fix", "dispatcher=alltoall"});
  BOOST_TEST(usual.code == 0, usual.err);
}

BOOST_FIXTURE_TEST_CASE(flags_about_experts_are_named, Cli) {
  const std::string command =
      "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --sequence-parallel "
      "--micro-batch-size 1 --global-batch-size 64 --seq-length 4096 --bf16";
  const auto notes_of = [&](const std::string& flags, const std::string& model) {
    const Answer answer = run({"estimate", "--run", command + flags, "--model", model, "--hardware",
                               "h100-80g", "--gpus", "8", "--format", "json"});
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return json::parse(answer.out)["rows"][0]["notes"].dump();
  };
  const std::string flags = " --expert-tensor-parallel-size 2 --moe-token-dispatcher-type alltoall";
  const std::string sentence =
      "\"the model has no experts, and nothing follows from --expert-tensor-parallel-size, "
      "--moe-token-dispatcher-type\"";
  const std::string told = notes_of(flags, "llama3-8b");
  BOOST_TEST(told.find(sentence) != std::string::npos, told);
  BOOST_TEST(notes_of("", "llama3-8b").find("no experts") == std::string::npos);
  BOOST_TEST(notes_of(flags, "mixtral-8x7b").find("no experts") == std::string::npos);
  check_refused({"estimate", "--run", command + " --expert-model-parallel-size 4", "--model",
                 "llama3-8b", "--hardware", "h100-80g", "--gpus", "8"},
                2, {"ep 4, and the model has no experts"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
