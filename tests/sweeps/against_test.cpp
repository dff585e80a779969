// Plans beside the run of today: that both train the same, are compared by the same measure, and
// that each change is told with whether it fits.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {

using nlohmann::json;
using tests::Answer;
using tests::Cli;

BOOST_AUTO_TEST_SUITE(plans_against)

namespace {

bool says(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

constexpr const char* kWithoutMtp =
    "multi-token prediction is off: the command does not ask for it";

/// Of 32 devices, at 128K: it fits without multi-token prediction only.
constexpr const char* kLongRun =
    "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --sequence-parallel "
    "--context-parallel-size 2 --pipeline-model-parallel-size 4 --expert-model-parallel-size 8 "
    "--expert-tensor-parallel-size 1 --micro-batch-size 1 --global-batch-size 64 "
    "--seq-length 131072 --bf16 --recompute-granularity full --recompute-method uniform "
    "--recompute-num-layers 1 --use-distributed-optimizer --overlap-grad-reduce "
    "--overlap-param-gather --moe-grouped-gemm --moe-token-dispatcher-type alltoall "
    "--cross-entropy-loss-fusion";

json estimate_of(Cli& cli, const std::string& command, const std::string& model) {
  const Answer answer = cli.run({"estimate", "--run", command, "--model", model, "--hardware",
                                 "h100-80g", "--gpus", "32", "--format", "json"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  return json::parse(answer.out)["rows"][0];
}

}  // namespace

// The file of this model has a layer of multi-token prediction. A run trains it if told.
BOOST_FIXTURE_TEST_CASE(a_run_trains_what_its_command_asks_for, Cli) {
  const std::string model = "qwen3.5-35b-a3b";
  const json unsaid = estimate_of(*this, kLongRun, model);
  BOOST_TEST(unsaid["verdict"] == "fits", unsaid.dump());
  BOOST_TEST(says(unsaid["assumed"].dump(), kWithoutMtp), unsaid["assumed"].dump());
  const json without = estimate_of(*this, std::string(kLongRun) + " --mtp-num-layers 0", model);
  BOOST_TEST(without["peak_allocated_bytes"] == unsaid["peak_allocated_bytes"]);
  BOOST_TEST(without["assumed"].empty());
  const json with = estimate_of(*this, std::string(kLongRun) + " --mtp-num-layers 1", model);
  BOOST_TEST(with["verdict"] != "fits");
  BOOST_TEST(with["assumed"].empty());
  const auto peak = [](const json& row) { return row["peak_allocated_bytes"].get<double>(); };
  BOOST_TEST(peak(with) > 1.3 * peak(without));
  // Where the file has none the command's is honoured as well.
  const std::string short_run =
      "pretrain_gpt.py --expert-model-parallel-size 8 --micro-batch-size 1 "
      "--global-batch-size 256 --seq-length 4096 --bf16 --use-distributed-optimizer";
  const json plain = estimate_of(*this, short_run, "qwen3-30b-a3b");
  BOOST_TEST(plain["assumed"].empty());
  BOOST_TEST(peak(estimate_of(*this, short_run + " --mtp-num-layers 1", "qwen3-30b-a3b")) >
             1.01 * peak(plain));
  const Answer text = run(
      {"estimate", "--run", kLongRun, "--model", model, "--hardware", "h100-80g", "--gpus", "32"});
  BOOST_TEST(says(text.out, std::string("assumed: ") + kWithoutMtp), text.out);
  check_refused({"estimate", "--run", std::string(kLongRun) + " --mtp-num-layers 65", "--model",
                 model, "--hardware", "h100-80g", "--gpus", "32"},
                2, {"multi-token prediction of 65 layers"});
}

// The plan trains what the command trains; without a command, what the model's file has.
BOOST_FIXTURE_TEST_CASE(both_sides_train_the_same, Cli) {
  const std::string command =
      "pretrain_gpt.py --expert-model-parallel-size 8 --micro-batch-size 1 "
      "--global-batch-size 256 --seq-length 4096 --bf16 --use-distributed-optimizer "
      "--moe-grouped-gemm";
  const auto plan_with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"plan",        "--model",  "qwen3.5-35b-a3b",
                                      "--hardware",  "h100-80g", "--gpus",
                                      "32",          "--fix",    "tp=1",
                                      "--fix",       "pp=1",     "--fix",
                                      "cp=1",        "--top",    "1",
                                      "--gbs",       "256",      "--export",
                                      "megatron-lm", "--format", "json"};
    words.insert(words.end(), more.begin(), more.end());
    const Answer answer = run(words);
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return json::parse(answer.out);
  };
  const json of_file = plan_with({});
  BOOST_TEST(says(of_file["exported"].get<std::string>(), "--mtp-num-layers 1"));
  const json unsaid = plan_with({"--against", command});
  BOOST_TEST(!says(unsaid["exported"].get<std::string>(), "--mtp-num-layers"));
  BOOST_TEST(says(unsaid["assumptions"].dump(), kWithoutMtp), unsaid["assumptions"].dump());
  const json said = plan_with({"--against", command + " --mtp-num-layers 1"});
  BOOST_TEST(says(said["exported"].get<std::string>(), "--mtp-num-layers 1"));
  BOOST_TEST(!says(said["assumptions"].dump(), kWithoutMtp));
  // A layer less, and a loss less.
  const auto speed = [](const json& document) {
    return document["plans"][0]["tokens_per_s_per_gpu"].get<double>();
  };
  BOOST_TEST(speed(unsaid) > 1.02 * speed(said));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
