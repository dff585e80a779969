// Further measurements of a trial, and measurements on other machines or of other binaries.
#include <sys/wait.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>

#include "kernels/base/error.h"
#include "profiler/store/db.h"
#include "sweeps/processes/interrupt.h"
#include "sweeps/session.h"
#include "sweeps/sweep.h"
#include "sweeps/sweep_view.h"
#include "tests/sweeps/loop_fixture.h"
#include "tests/sweeps/sweeps_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(sweep_measurements, tests::LoopFixture)

namespace {

using tests::request_of;
using tests::ScriptedStrategy;
using tests::several;
using tests::with_fault;
using tuner::TrialRequest;

}  // namespace

const std::vector<store::NamedText> kHere = {{"host", "h"}, {"commit", "c"}, {"binary", "b"}};

BOOST_AUTO_TEST_CASE(another_host_commit_or_binary_means_a_new_measurement) {
  options.environment = kHere;
  ScriptedStrategy first(several(2));
  BOOST_TEST(run(first).num_run == 2);
  // What else is told of the machine does not matter.
  options.environment.push_back({"memory", "1 GiB"});
  ScriptedStrategy same(several(2));
  BOOST_TEST(run(same).num_run == 0);
  BOOST_TEST(same.told.at(1).samples_ns.size() == 3U);

  int num_changes = 0;
  for (const size_t changed : {0, 1, 2}) {
    options.environment[changed].value += "x";
    ++num_changes;
    ScriptedStrategy again(several(1));
    const SweepSummary summary = run(again);
    BOOST_TEST(summary.num_run == 1);
    BOOST_TEST(summary.num_reused == 0);
    BOOST_TEST((again.told.at(0).status == spec::TrialStatus::ok));
    ScriptedStrategy resumed(several(1));
    BOOST_TEST(run(resumed).num_run == 0);
  }
  const auto store = store::Store::open_read_only(db);
  // One row a configuration, all its measurements, all environments.
  BOOST_TEST(store.list_trials().size() == 2U);
  const std::vector<store::MeasurementRow> runs = store.read_measurements(1);
  BOOST_REQUIRE(runs.size() == 4U);
  for (const store::MeasurementRow& measured : runs) {
    BOOST_TEST(measured.is_counted == (measured.attempt == 4));
    BOOST_TEST(measured.samples_ns.size() == 3U);
  }
  BOOST_TEST(runs[0].commit == "c");
  BOOST_TEST(runs[3].commit == "cx");
  const std::vector<store::EnvironmentRow> environments = store.read_environments(1);
  BOOST_TEST(environments.size() == 5U);
  BOOST_TEST(runs[3].environment_id.value() == environments.back().id);
  // What was not asked for again is as it was.
  BOOST_TEST(store.read_measurements(2).size() == 1U);
  BOOST_TEST(store.read_measurements(2)[0].is_counted);
  // One that cannot be run anywhere is no other.
  options.environment = kHere;
  options.environment[2].value = "b2";
  ScriptedStrategy failing({request_of(with_fault(spec::FaultKind::error), "error")});
  run(failing);
  ScriptedStrategy still(std::vector{request_of(with_fault(spec::FaultKind::error), "error")});
  BOOST_TEST(run(still).num_run == 0);
  BOOST_TEST((still.told.at(0).status == spec::TrialStatus::failed));
  BOOST_TEST(still.told.at(0).reason == "a planned error");
}

BOOST_AUTO_TEST_CASE(the_environment_is_that_of_the_engine_that_runs) {
  const std::string copy = folder.file("engine");
  std::filesystem::copy(options.runner.rank_program, copy);
  options.runner.rank_program = copy;
  ScriptedStrategy first(several(1));
  run(first);
  ScriptedStrategy second(several(1));
  BOOST_TEST(run(second).num_run == 0);
  // Another build in its place.
  std::ofstream(copy, std::ios::app | std::ios::binary) << "x";
  ScriptedStrategy third(several(1));
  BOOST_TEST(run(third).num_run == 1);
  const auto store = store::Store::open_read_only(db);
  BOOST_TEST(store.read_environments(1).size() == 2U);
  BOOST_TEST(store.read_environments(1)[0].value("binary").size() == 16U);
  BOOST_TEST(store.read_environments(1)[0].value("binary") !=
             store.read_environments(1)[1].value("binary"));
}

/// The first request and three further measurements of it: again, longer, and in turns.
std::vector<TrialRequest> with_repeats() {
  std::vector<TrialRequest> requests = several(1);
  for (const auto& [purpose, num_steps] :
       {std::pair{tuner::Purpose::again, 0}, std::pair{tuner::Purpose::longer, 7},
        std::pair{tuner::Purpose::in_turns, 7}, std::pair{tuner::Purpose::in_turns, 7}}) {
    TrialRequest request = several(1).front();
    request.attempt = requests.back().attempt + 1;
    request.purpose = purpose;
    request.num_steps = num_steps;
    requests.push_back(request);
  }
  return requests;
}

BOOST_AUTO_TEST_CASE(further_measurements_are_stored_and_found_again) {
  ScriptedStrategy first(with_repeats());
  const SweepSummary summary = run(first);
  BOOST_TEST(summary.num_run == 5);
  {
    const auto store = store::Store::open_read_only(db);
    BOOST_REQUIRE(store.list_trials().size() == 1U);
    const std::vector<store::MeasurementRow> runs = store.read_measurements(1);
    BOOST_REQUIRE(runs.size() == 5U);
    const char* purposes[] = {"first", "again", "longer", "in_turns", "in_turns"};
    for (size_t i = 0; i < runs.size(); ++i) {
      const size_t num_steps = i < 2 ? 3 : 7;
      BOOST_TEST(runs[i].purpose == purposes[i]);
      BOOST_TEST(runs[i].num_steps == static_cast<int64_t>(num_steps));
      BOOST_TEST(runs[i].samples_ns.size() == num_steps);
      BOOST_TEST(runs[i].is_counted);
      BOOST_TEST(runs[i].window_end >= runs[i].window_start);
      if (i > 0) BOOST_TEST(runs[i].window_start >= runs[i - 1].window_end);
    }
    // Records are those of the first.
    BOOST_TEST(store.read_steps(1).size() == 5U);
    BOOST_TEST(store.get_trial(1)->num_attempts == 5);
    BOOST_TEST(store.get_trial(1)->step_ns.value() == 1'500'000);
  }
  BOOST_TEST(first.told.at(0).losses.size() == 5U);
  BOOST_TEST(first.told.at(1).losses.empty());
  BOOST_TEST(first.told.at(2).samples_ns.size() == 7U);
  BOOST_TEST(first.told.at(2).num_timed_steps == 7);
  BOOST_TEST(first.told.at(1).started_s > 1e9);
  BOOST_TEST(first.told.at(1).ended_s >= first.told.at(1).started_s);
  ScriptedStrategy second(with_repeats());
  const SweepSummary again = run(second);
  BOOST_TEST(again.num_run == 0);
  BOOST_TEST(again.num_reused == 5);
  for (size_t i = 0; i < 5; ++i) {
    BOOST_TEST(second.told[i].started_s == first.told[i].started_s);
    BOOST_TEST(second.told[i].step_ns == first.told[i].step_ns);
  }
  // A longer one of another length is another measurement, and one more in turns, too.
  std::vector<TrialRequest> more = with_repeats();
  more[2].num_steps = 9;
  more.push_back(more.back());
  more.back().attempt = 5;
  ScriptedStrategy third(more);
  BOOST_TEST(run(third).num_run == 2);
  ScriptedStrategy fourth(more);
  BOOST_TEST(run(fourth).num_run == 0);
}

BOOST_AUTO_TEST_CASE(further_measurements_use_up_the_budget) {
  options.max_trials = 3;
  ScriptedStrategy strategy(with_repeats());
  const SweepSummary summary = run(strategy);
  BOOST_TEST(summary.stop_reason == "the budget of 3 trials is used up");
  BOOST_TEST(num_launches() == 3U);
  const tests::ScopedEnvironment slow("FAKE_RANK_STEP_MS", "400");
  options.max_trials = 0;
  options.max_seconds = 1;
  ScriptedStrategy late(with_repeats());
  BOOST_TEST(run(late).stop_reason.starts_with("the budget of 1 seconds is used up"));
}

BOOST_AUTO_TEST_CASE(a_further_measurement_that_ends_badly_spoils_nothing) {
  ScriptedStrategy first(several(1));
  run(first);
  {
    const tests::ScopedEnvironment early("FAKE_RANK_STOPS_EARLY", "yes");
    std::vector<TrialRequest> requests = with_repeats();
    requests.resize(2);
    ScriptedStrategy strategy(requests);
    run(strategy);
    BOOST_TEST((strategy.told.at(1).status == spec::TrialStatus::failed));
  }
  BOOST_TEST(trials().at(0).status == "ok");
  BOOST_TEST(trials().at(0).step_ns.value() == 1'500'000);
  const auto runs = store::Store::open_read_only(db).read_measurements(1);
  BOOST_REQUIRE(runs.size() == 2U);
  BOOST_TEST(runs[1].status == "failed");
  BOOST_TEST(runs[1].reason == "the ranks ended without an error after 0 of 5 steps");
}

BOOST_AUTO_TEST_CASE(what_is_measured_anew_stays_until_it_has_been) {
  options.environment = kHere;
  ScriptedStrategy first(several(1));
  run(first);
  options.environment[2].value = "other";
  for (const int signal : {SIGKILL, SIGINT}) {
    const size_t num_before = num_launches();
    const tests::ScopedEnvironment slow("FAKE_RANK_STEP_MS", "300");
    const pid_t sweep = run_elsewhere(several(1));
    BOOST_REQUIRE(tests::eventually([&] { return num_launches() == num_before + 1; }));
    BOOST_REQUIRE(kill(sweep, signal) == 0);
    BOOST_REQUIRE(waitpid(sweep, nullptr, 0) == sweep);
    const auto store = store::Store::open_read_only(db);
    BOOST_TEST(store.get_trial(1)->status == "ok");
    BOOST_TEST(store.read_steps(1).size() == 5U);
    BOOST_TEST(store.read_measurements(1).size() == 1U);
  }
  ScriptedStrategy strategy(several(1));
  BOOST_TEST(run(strategy).num_run == 1);
  BOOST_TEST(store::Store::open_read_only(db).read_measurements(1).size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_foreign_hand_in_the_measurements_is_survived) {
  ScriptedStrategy first(with_repeats());
  run(first);
  for (const char* sql :
       {"UPDATE measurement SET samples = 'x', window_start = '', window_end = '9999-99-99', "
        "duration_ns = -5, step_ns_low = -9223372036854775808, step_ns_high = 9223372036854775807",
        "UPDATE measurement SET step_ns = -1", "UPDATE measurement SET step_ns = NULL",
        "UPDATE measurement SET num_steps = -1", "UPDATE measurement SET is_counted = 0",
        "UPDATE measurement SET environment_id = NULL",
        "UPDATE environment_value SET name = 'x', value = ''",
        "UPDATE environment SET ordinal = 9223372036854775806 WHERE id = (SELECT max(id) FROM "
        "environment)",
        "DELETE FROM environment", "DELETE FROM measurement",
        "UPDATE measurement SET purpose = 'longer'"}) {
    store::Store::open(db).database().execute(sql);
    ScriptedStrategy strategy(with_repeats());
    BOOST_TEST_CONTEXT(sql) {
      BOOST_TEST((run(strategy).status == store::SearchStatus::done));
      BOOST_TEST(strategy.told.size() == 5U);
      for (const tuner::TrialOutcome& told : strategy.told) {
        BOOST_TEST(told.step_low_ns <= told.step_ns);
        BOOST_TEST(told.step_high_ns >= told.step_ns);
        BOOST_TEST(told.step_low_ns >= 0);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
