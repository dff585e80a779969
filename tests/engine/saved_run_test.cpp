// A run that was interrupted goes on to the same bits.
#include "engine/saved_run.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "profiler/store/store.h"
#include "tests/engine/training_fixture.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(saved_run)

namespace {

namespace fs = std::filesystem;

spec::TrialSpec trial_of(int64_t num_steps) {
  spec::ModelSpec model = testing::tiny_model();
  model.vocab_size = 256;
  spec::TrialSpec trial = testing::tiny_trial(model);
  trial.data_path = std::string(MOETUNE_SOURCE_DIR) + "/sweeps/data/quickstart.txt";
  trial.num_steps = num_steps;
  trial.num_traced_steps = 1;
  trial.records_routing = true;
  return trial;
}

struct Fixture {
  tests::TempFolder folder;
  std::string kept = folder.file("kept");
  int num_parts = 0;

  /// Steps up to `end`, from where the folder says, and saved there then.
  std::vector<StepResult> run_until(const spec::TrialSpec& trial, int64_t end,
                                    std::vector<int32_t>* counts = nullptr) {
    std::vector<StepResult> results;
    const std::string out = folder.file(fmt::format("part-{}", ++num_parts));
    fs::create_directories(out);
    RoutingRecorder routing(trial);
    SavedRun saved(trial, kept);
    if (saved.is_there()) saved.restore_shard(out + "/shard-0.db");
    using File = store::ShardWriter::File;
    TrialRecorder recorder(trial, out, {0}, saved.is_there() ? File::gone_on_with : File::created);
    TrainerHooks hooks;
    hooks.observers.routing = &routing;
    const testing::RandomTokens tokens(trial);
    run_ranks(trial, hooks, [&](RankTrainer& trainer, World&, int) {
      RunState state = saved.restore(trainer, routing);
      for (; state.next_step < end; ++state.next_step) {
        results.push_back(trainer.step(state.next_step, tokens, profiler::TraceLevel::none));
        recorder.add_step(state.next_step, results.back(), 1, 1);
      }
      state.num_updates = trainer.num_updates();
      saved.save(state, trainer, routing, recorder);
    });
    if (counts != nullptr) *counts = routing.profile().counts;
    return results;
  }
};

BOOST_FIXTURE_TEST_CASE(what_is_interrupted_goes_on_to_the_same_bits, Fixture) {
  // Narrow moments are rounded at random, by the number of the update.
  for (const auto moments : {spec::MomentType::fp32, spec::MomentType::bf16}) {
    spec::TrialSpec trial = trial_of(7);
    trial.knobs.exp_avg_dtype = trial.knobs.exp_avg_sq_dtype = moments;
    std::vector<int32_t> counts;
    const std::vector<StepResult> whole = run_until(trial, 6, &counts);
    fs::remove_all(kept);
    std::vector<StepResult> parts;
    std::vector<int32_t> counts_of_parts;
    for (const int64_t end : {2, 3, 6}) {
      const std::vector<StepResult> part = run_until(trial, end, &counts_of_parts);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    BOOST_TEST_REQUIRE(parts.size() == whole.size());
    for (size_t step = 0; step < whole.size(); ++step) {
      BOOST_TEST(parts[step].loss == whole[step].loss);
      BOOST_TEST(parts[step].grad_norm == whole[step].grad_norm);
      BOOST_TEST(parts[step].lr == whole[step].lr);
    }
    BOOST_TEST((counts_of_parts == counts));
    const auto shard = store::read_shard(folder.file(fmt::format("part-{}/shard-0.db", num_parts)));
    BOOST_TEST(shard.steps.size() == 6U);
    BOOST_TEST(std::distance(fs::directory_iterator(kept), fs::directory_iterator()) == 2);
    fs::remove_all(kept);
  }
}

BOOST_FIXTURE_TEST_CASE(what_is_not_this_run_counts_as_nothing, Fixture) {
  const spec::TrialSpec trial = trial_of(7);
  run_until(trial, 3);
  BOOST_TEST(SavedRun(trial, kept).is_there());
  spec::TrialSpec other = trial;
  other.training.seed = 8;
  BOOST_TEST(!SavedRun(other, kept).is_there());

  const std::string state = kept + "/state";
  const auto size = fs::file_size(state);
  fs::resize_file(state, size - 1);
  BOOST_TEST(!SavedRun(trial, kept).is_there());
  fs::resize_file(state, size);
  BOOST_TEST(SavedRun(trial, kept).is_there());
  fs::rename(kept + "/shard-3.db", kept + "/shard-2.db");
  BOOST_TEST(!SavedRun(trial, kept).is_there());
  fs::rename(kept + "/shard-2.db", kept + "/shard-3.db");
  for (const char* header : {"", "{}", "[1, 2", "\n", "{\"key\": 3}\n", "{\"next_step\": -1}\n"}) {
    std::ofstream(state) << header << std::string(200, 'x');
    BOOST_TEST(!SavedRun(trial, kept).is_there());
  }
  std::ofstream(state) << std::string(size_t{1} << 20, 'x');
  BOOST_TEST(!SavedRun(trial, kept).is_there());
}

BOOST_AUTO_TEST_CASE(several_ranks_and_compared_losses_are_refused) {
  spec::TrialSpec trial = trial_of(2);
  trial.reference_loss = {5.0};
  BOOST_CHECK_THROW(SavedRun(trial, "x"), base::UsageError);
  trial = trial_of(2);
  trial.knobs.data_parallel_size = 2;
  BOOST_CHECK_THROW(SavedRun(trial, "x"), base::UsageError);
}

BOOST_FIXTURE_TEST_CASE(the_program_goes_on_after_sigterm, Fixture) {
  const std::string path = folder.file("");
  std::ofstream(path + "/spec.json") << spec::to_json(trial_of(400)).dump();
  const std::string rank = std::string(MOETUNE_BIN_DIR) + "/moetune-rank";
  const auto run = [&](const std::string& out, const std::string& options,
                       const std::string& then) {
    const std::string command =
        fmt::format("cd {}; {} --spec spec.json --out {} {} >/dev/null & pid=$!; {} wait $pid",
                    path, rank, out, options, then);
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  const std::string end_it =
      "for i in $(seq 2000); do grep -q 'step ..' first/progress 2>/dev/null && break; sleep 0.01; "
      "done; kill -TERM $pid;";
  BOOST_TEST(run("whole", "", "") == 0);
  BOOST_TEST(run("first", "--saved-run kept", end_it) == 14);
  BOOST_TEST(fs::exists(kept + "/state"));
  const auto first = store::read_shard(path + "/first/shard-0.db");
  BOOST_TEST(run("second", "--saved-run kept", "") == 0);
  const auto whole = store::read_shard(path + "/whole/shard-0.db");
  const auto second = store::read_shard(path + "/second/shard-0.db");
  BOOST_TEST(first.steps.size() < whole.steps.size());
  BOOST_TEST_REQUIRE(second.steps.size() == whole.steps.size());
  for (size_t i = 0; i < whole.steps.size(); ++i) {
    BOOST_TEST(second.steps[i].loss == whole.steps[i].loss);
    BOOST_TEST(second.steps[i].lr == whole.steps[i].lr);
  }
  BOOST_TEST(second.text("routing_profile") == whole.text("routing_profile"));
  BOOST_TEST(second.traces.size() == whole.traces.size());
  BOOST_TEST(second.metrics.size() == whole.metrics.size());
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
