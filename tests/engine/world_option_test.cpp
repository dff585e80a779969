// moetune-rank --world: which rank of which world a process runs, and what is refused.
#include <fmt/format.h>
#include <sys/wait.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "profiler/store/store.h"
#include "tests/engine/parity_fixture.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(world_option)

namespace {

struct Ended {
  int code = 0;
  std::string message;
};

Ended run(const std::string& folder, const std::string& options) {
  const std::string command = fmt::format(
      "rm -rf {0}/out; {1}/moetune-rank --spec {0}/spec.json --out {0}/out {2} 2>{0}/err", folder,
      MOETUNE_BIN_DIR, options);
  const int status = std::system(command.c_str());
  std::ifstream in(folder + "/err");
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          std::string(std::istreambuf_iterator<char>(in), {})};
}

spec::TrialSpec trial_of_64() {
  spec::ModelSpec model = testing::tiny_model();
  model.vocab_size = 256;
  model.num_layers = 4;
  model.is_moe_layer.assign(4, true);
  model.attention_window.assign(4, 0);
  spec::TrialSpec trial = testing::tiny_trial(model, testing::knobs_of(R"({"data_parallel_size": 16,
          "pipeline_model_parallel_size": 4, "expert_model_parallel_size": 4})"));
  trial.training.global_batch_size = 32;
  trial.data_path = std::string(MOETUNE_SOURCE_DIR) + "/sweeps/data/quickstart.txt";
  trial.num_steps = 2;
  return trial;
}

BOOST_AUTO_TEST_CASE(one_rank_of_64_runs_alone) {
  const tests::TempFolder folder;
  const std::string path = folder.file("");
  std::ofstream(path + "/spec.json") << spec::to_json(trial_of_64()).dump();
  const Ended ended = run(path, "--world fake:64 --rank 17");
  BOOST_TEST(ended.message == "");
  BOOST_TEST_REQUIRE(ended.code == 0);
  const store::ShardContents shard = store::read_shard(path + "/out/shard-0.db");
  BOOST_TEST_REQUIRE(shard.memory.size() == 1U);
  BOOST_TEST(shard.memory.front().rank == 17);
  BOOST_TEST_REQUIRE(!shard.traces.empty());
  for (const profiler::StepTrace& trace : shard.traces) BOOST_TEST(trace.rank == 17);
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_the_spec_is_refused) {
  const tests::TempFolder folder;
  const std::string path = folder.file("");
  std::ofstream(path + "/spec.json") << spec::to_json(trial_of_64()).dump();
  for (const auto& [options, part] :
       {std::pair{"--world fake:32", "the spec's layout has 64 ranks"},
        std::pair{"--world fake", "it would be right: threads, nccl, or fake:N"},
        std::pair{"--world threads:2", "it would be right"},
        std::pair{"--world bogus", "--world 'bogus'"},
        std::pair{"--world fake:64 --rank 64", "has 64 ranks counted from 0"},
        std::pair{"--world fake:64 --rank -1", "has 64 ranks counted from 0"},
        std::pair{"--world threads --rank 3", "--rank is for --world fake:N"},
        std::pair{"--world nccl", "needs the spec's backend to be cuda"},
        std::pair{"--step-timeout 0", "--step-timeout 0 must be"},
        std::pair{"--step-timeout nan", "--step-timeout"}}) {
    BOOST_TEST_CONTEXT(options) {
      const Ended ended = run(path, options);
      BOOST_TEST(ended.code == 2);
      BOOST_TEST_INFO(ended.message);
      BOOST_TEST(ended.message.find(part) != std::string::npos);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
