// Trials of the real engine whose gradients are no numbers: what was skipped is counted, and a
// trial that never updated a weight is no result. The stand-in engine has no gradients.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/plan/layout.h"
#include "profiler/store/store.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
namespace {

constexpr int64_t kNumSteps = 5;

/// The program over the real engine.
struct RealCli : tests::Cli {
  tests::ScopedEnvironment real{"MOETUNE_RANK", tests::bin("moetune-rank")};

  /// How the program ends on a trial in which a gradient of rank 1 is NaN from `step` on.
  tests::Answer run_from(int64_t step) {
    spec::TrialSpec trial = tests::small_trial();
    trial.knobs = spec::Knobs{};
    trial.knobs.data_parallel_size = 2;
    trial.knobs.expert_model_parallel_size = 2;
    trial.model.vocab_size = 256;
    trial.clock = spec::ClockMode::virtual_modelled;
    trial.data_path = folder.file("corpus");
    trial.data_digest.clear();
    trial.hardware.memory_bytes = 0;
    trial.hardware.num_nodes = 1;
    trial.hardware.devices_per_node = 2;
    trial.fault = {spec::FaultKind::nan_gradient, step, 1};
    BOOST_TEST_REQUIRE(spec::total_steps(trial) == kNumSteps);
    tests::write_text(spec, spec::to_json(trial).dump());
    std::filesystem::remove(db);
    return run({"trial", spec, "--db", db});
  }

  [[nodiscard]] store::TrialRow stored() const {
    return store::Store::open_read_only(db).list_trials().at(0);
  }

  /// The metric of the whole run; none where it was not written.
  [[nodiscard]] std::optional<double> num_skipped() const {
    const store::Store store = store::Store::open_read_only(db);
    std::optional<double> found;
    for (const store::MetricRow& metric : store.read_metrics(stored().id)) {
      if (metric.name != "num_skipped_steps") continue;
      BOOST_TEST(metric.rank == -1);
      BOOST_TEST(!found.has_value());
      found = metric.value;
    }
    return found;
  }
};

BOOST_FIXTURE_TEST_SUITE(skipped_trial, RealCli)

BOOST_AUTO_TEST_CASE(a_trial_in_which_every_step_is_skipped_is_wrong) {
  const tests::Answer answer = run_from(0);
  BOOST_TEST(answer.code == 11, answer.err);
  BOOST_TEST(stored().status == "wrong");
  BOOST_TEST(stored().reason.find("all 5 steps were skipped") != std::string::npos,
             stored().reason);
}

BOOST_AUTO_TEST_CASE(steps_that_are_skipped_are_counted) {
  for (const int64_t first : {int64_t{1}, kNumSteps - 1}) {
    const tests::Answer answer = run_from(first);
    BOOST_TEST_CONTEXT("skipped from step " << first << ": " << answer.err) {
      BOOST_TEST(answer.code == 0);
      BOOST_TEST(stored().status == "ok");
      BOOST_TEST(num_skipped().value_or(0) == static_cast<double>(kNumSteps - first));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_trial_without_a_skipped_step_counts_none) {
  BOOST_TEST(run_from(kNumSteps).code == 0);
  BOOST_TEST(!num_skipped().has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::sweeps
