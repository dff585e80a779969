// Trials of the real engine in measured virtual time: what it has recorded of its steps plays them
// to the nanosecond, on every rank of a layout, and what is compared are the played steps.
#include <algorithm>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "engine/plan/layout.h"
#include "engine/spec/knobs.h"
#include "profiler/analysis/stats.h"
#include "sweeps/processes/process.h"
#include "sweeps/runner.h"
#include "tests/sweeps/sweeps_fixture.h"
#include "tuner/played_steps.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(played_trial)

namespace {

namespace data = boost::unit_test::data;

const char* const kLayouts[] = {
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "ep_chunks_forward": 2,
        "cuda_graph_modules": "moe_router"})",
    R"({"pipeline_model_parallel_size": 2, "data_parallel_size": 2, "recompute": "full",
        "expert_model_parallel_size": 2, "use_distributed_optimizer": true})",
    R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2, "expert_model_parallel_size": 4})",
    R"({"context_parallel_size": 2, "data_parallel_size": 1})",
    R"({"data_parallel_size": 1})",
};

spec::TrialSpec trial_of(const char* knobs, const std::string& text_path) {
  spec::TrialSpec trial = tests::small_trial();
  trial.knobs = spec::knobs_from_json(nlohmann::json::parse(knobs), "test");
  trial.model.vocab_size = 256;
  trial.clock = spec::ClockMode::virtual_measured;
  trial.data_path = text_path;
  trial.data_digest.clear();
  trial.reference_loss.clear();
  trial.hardware.memory_bytes = 0;
  trial.hardware.num_nodes = 1;
  trial.hardware.devices_per_node = plan::layout_of(trial.knobs).world_size();
  return trial;
}

TrialRun run_real(const spec::TrialSpec& trial, const tests::TempFolder& folder,
                  double usual_probe_ns) {
  SystemProcessRunner runner;
  RunnerOptions options;
  options.rank_program = tests::bin("moetune-rank");
  options.folder = folder.file("trial");
  options.usual_probe_ns = usual_probe_ns;
  return run_trial(runner, trial, options);
}

BOOST_DATA_TEST_CASE(what_was_recorded_plays_the_steps_that_ran, data::make(kLayouts), knobs) {
  const tests::TempFolder folder;
  tests::write_text(folder.file("text"), std::string(20'000, 'a') + "some more of it");
  const spec::TrialSpec trial = trial_of(knobs, folder.file("text"));
  const TrialRun run = run_real(trial, folder, 0);
  BOOST_TEST_REQUIRE(run.result.status == "ok", run.result.reason);
  std::vector<tuner::MeasuredStep> steps;
  for (const store::ShardWork& work : run.shard().work) {
    steps.push_back({work.step, work.rank, work.durations_ns, work.routed_rows, work.probe_ns});
  }
  const tuner::PlayedTrial played = tuner::play_trial(trial, steps, 0);
  std::vector<int64_t> timed;
  for (const store::ShardStep& step : run.shard().steps) {
    if (!step.is_warmup && !step.is_traced) timed.push_back(step.step_ns);
  }
  BOOST_TEST(timed.size() == 3U);
  BOOST_TEST(played.measured_ns == timed, boost::test_tools::per_element());
  BOOST_TEST(run.result.samples_ns == timed, boost::test_tools::per_element());
  BOOST_TEST(run.result.played_ns == played.played_ns, boost::test_tools::per_element());
  BOOST_TEST(run.result.step_ns.value() == played.step_ns);
  BOOST_TEST(run.result.step_ns_low.value() <= played.step_ns);
  BOOST_TEST(run.result.step_ns_high.value() >= played.step_ns);
  BOOST_TEST(run.result.probe_ns.value() > 0);
}

// On a machine where the probe usually takes a tenth, this one is slow, and steps count as shorter.
BOOST_AUTO_TEST_CASE(steps_are_put_on_the_usual_speed_of_the_machine) {
  const tests::TempFolder folder;
  tests::write_text(folder.file("text"), std::string(20'000, 'a'));
  const spec::TrialSpec trial = trial_of(kLayouts[0], folder.file("text"));
  const TrialRun first = run_real(trial, folder, 0);
  BOOST_TEST_REQUIRE(first.result.status == "ok", first.result.reason);
  const auto usual_ns = static_cast<double>(first.result.probe_ns.value()) / 10;
  const TrialRun slow = run_real(trial, folder, usual_ns);
  const double raw =
      profiler::median({slow.result.samples_ns.begin(), slow.result.samples_ns.end()});
  BOOST_TEST(static_cast<double>(slow.result.step_ns.value()) < 0.9 * raw);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
