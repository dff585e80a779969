// A real Megatron-LM, which trains on the CPU through megatron_on_cpu.py: its runs and failures
// diagnosed, and a whole sweep. MOETUNE_MEGATRON names a checkout, MOETUNE_MEGATRON_PYTHON a Python
// that has what the script asks for. Skipped with a message where one of them is not set.
#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <cstdlib>

#include "profiler/store/store.h"
#include "sweeps/adapters/shell_text.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(megatron, tests::Cli)

namespace {

using nlohmann::json;

/// Two layers with four experts, in bf16; dropout would make each layout another run.
constexpr const char* kModel =
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
    "--max-position-embeddings 128 --position-embedding-type rope --normalization RMSNorm "
    "--swiglu --disable-bias-linear --untie-embeddings-and-output-weights --num-experts 4 "
    "--moe-router-topk 2 --moe-aux-loss-coeff 1e-2 --moe-router-load-balancing-type aux_loss "
    "--moe-token-dispatcher-type alltoall --mock-data --tokenizer-type NullTokenizer "
    "--vocab-size 1023 --attention-dropout 0 --hidden-dropout 0 --bf16";
constexpr const char* kTraining =
    "--sequence-parallel --micro-batch-size 1 --global-batch-size 8 --train-iters 40 --lr 1e-3 "
    "--min-lr 1e-4 --lr-decay-style cosine --lr-warmup-iters 2 --eval-iters 0 "
    "--eval-interval 1000 --log-interval 1 --log-throughput";
constexpr const char* kOnCpu =
    "--transformer-impl local --distributed-backend gloo --no-gradient-accumulation-fusion "
    "--no-masked-softmax-fusion --no-bias-gelu-fusion --no-bias-swiglu-fusion --no-rope-fusion "
    "--no-persist-layer-norm --no-bias-dropout-fusion";

/// How two ranks are trained; empty, with a message, where nobody has said.
std::string two_ranks() {
  const char* checkout = std::getenv("MOETUNE_MEGATRON");
  const char* python = std::getenv("MOETUNE_MEGATRON_PYTHON");
  if (checkout == nullptr || python == nullptr || !std::filesystem::exists(checkout) ||
      !std::filesystem::exists(python)) {
    std::puts(
        "skipped: MOETUNE_MEGATRON and MOETUNE_MEGATRON_PYTHON name no Megatron-LM and no Python");
    return "";
  }
  return fmt::format(
      "env OMP_NUM_THREADS=1 CUDA_DEVICE_MAX_CONNECTIONS=1 {} -m torch.distributed.run "
      "--nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint localhost:0 {} {} {} {} {}",
      word_for_shell(python),
      word_for_shell(MOETUNE_SOURCE_DIR "/tests/engines/megatron_on_cpu.py"),
      word_for_shell(checkout), kModel, kTraining, kOnCpu);
}

/// What moetune says of a run with more flags.
json diagnosed(tests::Cli& cli, const std::string& flags) {
  const std::string log = cli.folder.file("train.log");
  const std::string command = fmt::format("{} {} > {} 2>&1", two_ranks(), flags, log);
  const bool is_good = std::system(command.c_str()) == 0;
  const tests::Answer answer = cli.run({"diagnose", log, "--format", "json"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err << tests::read_text(log));
  json run = json::parse(answer.out)["run"];
  BOOST_TEST((run["status"] == "ok") == is_good, run["status"] << run["reason"]);
  return run;
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_a_real_run_says_is_read) {
  if (two_ranks().empty()) return;
  const json run =
      diagnosed(*this, "--tensor-model-parallel-size 2 --exit-interval 6 --log-interval 1");
  BOOST_TEST(run["framework"] == "megatron-lm");
  BOOST_TEST(run["status"] == "ok");
  BOOST_TEST(run["num_steps"] == 6);
  BOOST_TEST(run["world_size"] == 2);
  BOOST_TEST(run["parallel"]["tp"] == 2);
  BOOST_TEST(run["parallel"]["dp"] == 1);
  BOOST_TEST(run["global_batch_size"] == 8);
  BOOST_TEST(run["loss"].get<double>() > 5);
  BOOST_TEST(run["loss"].get<double>() < 8);
  BOOST_TEST(run["memory_by_rank"].size() == 2);
  const std::string flags = run["configuration"]["flags"];
  BOOST_TEST((flags.find("--sequence-parallel") != std::string::npos), flags);
  BOOST_TEST((flags.find("--group-query-attention") == std::string::npos), flags);
}

BOOST_AUTO_TEST_CASE(what_a_real_failure_says_is_read) {
  if (two_ranks().empty()) return;
  const std::string reason =
      diagnosed(*this, "--pipeline-model-parallel-size 2 --num-layers 3")["reason"];
  BOOST_TEST((reason.find("Number of layers should be divisible") != std::string::npos), reason);
  const json nan = diagnosed(*this, "--lr 1e30 --min-lr 1e29 --clip-grad 0");
  BOOST_TEST(nan["status"] == "wrong");
  BOOST_TEST(nan["num_steps"] == 2);
}

BOOST_AUTO_TEST_CASE(a_real_engine_is_swept) {
  const std::string command = two_ranks();
  if (command.empty()) return;
  const json document = {
      {"name", "Megatron-LM on the CPU"},
      {"engine", {{"dialect", "megatron-lm"}, {"run", command + " {flags}"}, {"gpus", 2}}},
      {"space", {{"tp", {1, 2}}, {"pp", {1, 2}}, {"ep", {1, 2}}, {"cp", {1, 2}}}},
      {"num_steps", 6},
      {"num_warmup_steps", 2},
      {"validate_steps", 8},
      {"scale_trials", 8},
      {"budget", {{"max_trials", 12}, {"trial_timeout_s", 300}}}};
  tests::write_text(folder.file("sweep.json"), document.dump(2));
  const auto process = start({"sweep", folder.file("sweep.json"), "--db", db});
  const auto end = process->wait(std::chrono::minutes(25));
  BOOST_REQUIRE(end.has_value());
  const std::string said = tests::read_text(folder.file("err"));
  BOOST_TEST_MESSAGE(said);
  BOOST_TEST_REQUIRE(end->code == 0, said);
  const store::Store store = store::Store::open_read_only(db);
  int num_ok = 0;
  bool has_rule = false;
  for (const store::TrialRow& trial : store.list_trials()) {
    has_rule |= trial.reason.find("Context parallelism is only") != std::string::npos;
    if (trial.status != "ok") continue;
    ++num_ok;
    BOOST_TEST(trial.step_ns.value_or(0) > 1'000'000);
    BOOST_TEST(trial.loss_final.value_or(0) > 5);
    BOOST_TEST(trial.loss_final.value_or(0) < 8);
  }
  BOOST_TEST(num_ok >= 4);
  BOOST_TEST(has_rule);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
