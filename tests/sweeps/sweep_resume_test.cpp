// Sweeps that were stopped by a budget, a signal or a kill go on where they were.
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>

#include "kernels/base/error.h"
#include "sweeps/processes/interrupt.h"
#include "sweeps/session.h"
#include "sweeps/sweep.h"
#include "sweeps/sweep_view.h"
#include "tests/sweeps/loop_fixture.h"
#include "tests/sweeps/sweeps_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(sweep_resume, tests::LoopFixture)

namespace {

using tests::request_of;
using tests::ScriptedStrategy;
using tests::several;
using tests::with_seed;
using tuner::TrialRequest;

}  // namespace

BOOST_AUTO_TEST_CASE(budgets_stop_the_sweep_and_more_budget_resumes_it) {
  options.max_trials = 2;
  ScriptedStrategy first(several(4));
  const SweepSummary stopped = run(first);
  BOOST_TEST((stopped.status == store::SearchStatus::done));
  BOOST_TEST(stopped.stop_reason == "the budget of 2 trials is used up");
  BOOST_TEST(num_launches() == 2U);
  options.max_trials = 4;
  ScriptedStrategy second(several(4));
  BOOST_TEST(run(second).num_run == 2);
  BOOST_TEST(num_launches() == 4U);

  const tests::ScopedEnvironment slow("FAKE_RANK_STEP_MS", "300");
  options.max_trials = 0;
  options.max_seconds = 1;
  ScriptedStrategy third(several(8));
  BOOST_TEST(run(third).stop_reason.starts_with("the budget of 1 seconds is used up"));
}

BOOST_AUTO_TEST_CASE(the_seconds_end_a_running_trial_which_starts_again_with_more) {
  options.max_seconds = 4;
  {
    const tests::ScopedEnvironment slow("FAKE_RANK_STEP_MS", "1500");
    ScriptedStrategy strategy(several(2));
    const SweepSummary summary = run(strategy);
    BOOST_TEST(strategy.told.empty());
    BOOST_TEST(summary.stop_reason.starts_with(
        "the budget of 4 seconds is used up in the middle of 'seed' (step "));
    BOOST_TEST(summary.stop_reason.ends_with(" of 5), which starts anew with more seconds"));
  }
  BOOST_REQUIRE(trials().size() == 1U);
  BOOST_TEST(trials().at(0).status == "interrupted");
  BOOST_TEST(trials().at(0).reason.starts_with("ended with the time budget, after step "));
  BOOST_TEST_REQUIRE(!tests::launches_in(log).empty());
  BOOST_TEST(!tests::is_running(tests::launches_in(log).back().pid));
  options.max_seconds = 1000;
  ScriptedStrategy again(several(2));
  BOOST_TEST(run(again).num_run == 2);
  BOOST_TEST(trials().at(0).status == "ok");
}

/// Stopped at the deadline when it had come so far, whatever it told before.
class LateEngine : public TrialEngine {
 public:
  explicit LateEngine(std::string progress) : progress_(std::move(progress)) {}
  TrialRun run(ProcessRunner& /*processes*/, const TrialRequest& /*request*/,
               const RunnerOptions& options) override {
    if (options.on_tick) options.on_tick("step 4 of 5");
    TrialRun run{std::string()};
    run.result.status = "interrupted";
    run.is_out_of_time = true;
    run.last_progress = progress_;
    return run;
  }

 private:
  std::string progress_;
};

BOOST_AUTO_TEST_CASE(the_place_where_the_seconds_ended_is_that_of_the_last_step) {
  options.max_seconds = 1000;
  const auto stop_reason = [&](const std::string& progress) {
    LateEngine engine(progress);
    options.engine = &engine;
    ScriptedStrategy strategy(several(1));
    const SweepSummary summary = run(strategy);
    BOOST_TEST(summary.num_tried == 0);
    return summary.stop_reason;
  };
  BOOST_TEST(stop_reason("step 5 of 5") ==
             "the budget of 1000 seconds is used up at the end of 'seed' (all 5 steps were done, "
             "its result was not written), which starts anew with more seconds");
  BOOST_TEST(stop_reason("step 3 of 5") ==
             "the budget of 1000 seconds is used up in the middle of 'seed' (step 3 of 5), which "
             "starts anew with more seconds");
  // Who does not know more has the last that was told.
  BOOST_TEST(stop_reason("").find(" of 'seed' (step 4 of 5), which") != std::string::npos);
  options.engine = nullptr;
  ScriptedStrategy strategy(several(2));
  BOOST_TEST(run(strategy).num_tried == 2);
}

BOOST_AUTO_TEST_CASE(a_reference_run_that_was_ended_goes_on_where_it_was) {
  options.reference_folder = reference_folder(db);
  options.max_seconds = 2;
  std::vector<TrialRequest> requests = several(2);
  requests.front().is_reference = true;
  {
    const tests::ScopedEnvironment slow("FAKE_RANK_STEP_MS", "700");
    ScriptedStrategy strategy(requests);
    BOOST_TEST(run(strategy).stop_reason.ends_with(", which the next call goes on with"));
  }
  BOOST_TEST(std::filesystem::exists(options.reference_folder));
  options.max_seconds = 1000;
  ScriptedStrategy again(requests);
  BOOST_TEST(run(again).num_run == 2);
  // Of the trial that was no reference nothing was kept.
  BOOST_TEST(!std::filesystem::exists(options.reference_folder));
}

/// Concludes with a validation of its own when told to.
class HurriedStrategy : public ScriptedStrategy {
 public:
  using ScriptedStrategy::ScriptedStrategy;
  void finish_soon() override { is_finishing_ = true; }
  std::optional<TrialRequest> ask() override {
    if (!is_finishing_) return ScriptedStrategy::ask();
    if (is_validated_) return std::nullopt;
    if (num_searched == 0) num_searched = told.size();
    is_validated_ = true;
    return request_of(with_seed(99), "validation");
  }
  size_t num_searched = 0;

 private:
  bool is_finishing_ = false;
  bool is_validated_ = false;
};

BOOST_AUTO_TEST_CASE(a_sweep_that_runs_out_of_seconds_still_concludes) {
  const tests::ScopedEnvironment slow("FAKE_RANK_STEP_MS", "100");  // half a second per trial
  options.max_seconds = 8;
  HurriedStrategy strategy(several(80));
  const SweepSummary summary = run(strategy);
  BOOST_TEST((summary.status == store::SearchStatus::done));
  BOOST_TEST(summary.stop_reason == "");
  BOOST_TEST(strategy.num_searched > 0U);
  BOOST_TEST(strategy.num_searched < 80U);
  BOOST_TEST(strategy.told.size() == strategy.num_searched + 1);
  BOOST_TEST(tests::launches_in(log).back().hash == spec::spec_hash(with_seed(99)));

  // The same way again, although what is stored takes no time.
  HurriedStrategy again(several(40));
  BOOST_TEST(run(again).num_run == 0);
  BOOST_TEST(again.num_searched == strategy.num_searched);

  // With more time it goes on where it was.
  options.max_seconds = 1000;
  HurriedStrategy patient(several(static_cast<int>(strategy.num_searched) + 1));
  BOOST_TEST(run(patient).num_run == 1);
  BOOST_TEST(patient.num_searched == 0U);
}

BOOST_AUTO_TEST_CASE(kill_9_loses_only_the_running_trial) {
  pid_t killed_rank = 0;
  {
    const tests::ScopedEnvironment slow("FAKE_RANK_STEP_MS", "60");
    const tests::ScopedEnvironment stubborn("FAKE_RANK_IS_STUBBORN", "yes");
    const pid_t sweep = run_elsewhere(several(5));
    BOOST_REQUIRE(tests::eventually([&] { return num_launches() == 3; }));
    BOOST_REQUIRE(kill(sweep, SIGKILL) == 0);
    BOOST_REQUIRE(waitpid(sweep, nullptr, 0) == sweep);
    killed_rank = tests::launches_in(log).back().pid;
  }
  // The engine goes with the tuner.
  BOOST_TEST(tests::eventually([&] { return !tests::is_running(killed_rank); }));

  ScriptedStrategy strategy(several(5));
  const SweepSummary summary = run(strategy);
  BOOST_TEST((summary.status == store::SearchStatus::done));
  BOOST_TEST(summary.num_reused == 2);
  BOOST_TEST(summary.num_run == 3);
  std::map<std::string, int> launched;
  for (const tests::Launch& launch : tests::launches_in(log)) ++launched[launch.hash];
  BOOST_TEST(launched.size() == 5U);
  for (const TrialRequest& request : several(5)) {
    BOOST_TEST(launched[request.hash] == (request.hash == several(5)[2].hash ? 2 : 1));
  }
  for (const store::TrialRow& trial : trials()) BOOST_TEST(trial.status == "ok");
  const auto store = store::Store::open_read_only(db);
  BOOST_TEST(store.read_decisions(1).size() == 5U);
  BOOST_TEST(!std::filesystem::exists(options.runner.folder));
}

BOOST_AUTO_TEST_CASE(an_interrupted_trial_is_repeated_on_resume) {
  {
    const tests::ScopedEnvironment slow("FAKE_RANK_STEP_MS", "500");
    const pid_t sweep = run_elsewhere(several(2));
    BOOST_REQUIRE(tests::eventually([&] { return num_launches() == 1; }));
    BOOST_REQUIRE(kill(sweep, SIGINT) == 0);
    int status = 0;
    BOOST_REQUIRE(waitpid(sweep, &status, 0) == sweep);
    BOOST_TEST(WIFEXITED(status));
    BOOST_TEST(WEXITSTATUS(status) == 14);
  }
  BOOST_TEST(trials().at(0).status == "interrupted");
  BOOST_TEST(
      (store::Store::open_read_only(db).read_sweep(1)->status == store::SearchStatus::interrupted));
  BOOST_TEST(!tests::is_running(tests::launches_in(log).back().pid));
  ScriptedStrategy strategy(several(2));
  BOOST_TEST(run(strategy).num_run == 2);
  BOOST_TEST(trials().at(0).status == "ok");
  BOOST_TEST(trials().at(0).num_attempts == 2);
}

BOOST_AUTO_TEST_CASE(a_second_sweep_on_the_database_is_refused) {
  const Session session = open_session(db, row());
  const pid_t other = run_elsewhere(several(1));
  int status = 0;
  BOOST_REQUIRE(waitpid(other, &status, 0) == other);
  BOOST_TEST(WEXITSTATUS(status) == 1);
  BOOST_TEST(num_launches() == 0U);
  BOOST_CHECK_EXCEPTION(open_session(db, row()), base::Error,
                        tests::says(db, "another moetune", std::to_string(getpid())));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
