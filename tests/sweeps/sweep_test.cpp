// The loop with the stand-in engine and a scripted search: every status, resuming, being killed,
// being interrupted.
#include "sweeps/sweep.h"

#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <filesystem>

#include "kernels/base/environment_failure.h"
#include "kernels/base/error.h"
#include "profiler/store/db.h"
#include "sweeps/processes/interrupt.h"
#include "sweeps/session.h"
#include "sweeps/sweep_view.h"
#include "tests/sweeps/sweeps_fixture.h"

namespace moetune::sweeps {
namespace {

using spec::TrialSpec;
using tests::request_of;
using tests::ScriptedStrategy;
using tests::small_trial;
using tuner::TrialRequest;

TrialSpec with_fault(spec::FaultKind kind) {
  TrialSpec spec = small_trial();
  spec.fault.kind = kind;
  spec.fault.step = 2;
  return spec;
}

TrialSpec with_seed(uint64_t seed) {
  TrialSpec spec = small_trial();
  spec.training.seed = seed;
  return spec;
}

std::vector<TrialRequest> several(int count) {
  std::vector<TrialRequest> requests;
  for (int i = 0; i < count; ++i) {
    requests.push_back(request_of(with_seed(static_cast<uint64_t>(i + 1)), "seed"));
  }
  return requests;
}

struct LoopFixture {
  tests::TempFolder folder;
  std::string db = folder.file("runs.db");
  std::string log = folder.file("launches");
  tests::ScopedEnvironment launch_log{"FAKE_RANK_LOG", log};
  LoopOptions options;

  LoopFixture() {
    options.runner.rank_program = tests::bin("fake_rank");
    options.runner.folder = running_folder(db);
    options.runner.grace = std::chrono::milliseconds(200);
  }

  [[nodiscard]] store::SweepRow row() const { return single_trials_row(small_trial()); }

  SweepSummary run(tuner::Strategy& strategy) const {
    Session session = open_session(db, row());
    Progress progress(stderr, Progress::Mode::quiet);
    SystemProcessRunner processes;
    SweepLoop loop(session.store, session.sweep_id, processes, options, progress);
    return loop.run(strategy);
  }

  /// The whole loop in a process of its own, which may be killed.
  [[nodiscard]] pid_t run_elsewhere(const std::vector<TrialRequest>& requests) const {
    const pid_t pid = fork();
    BOOST_REQUIRE(pid >= 0);
    if (pid == 0) {
      int code = 1;
      try {
        const InterruptGuard guard;
        ScriptedStrategy strategy(requests);
        code = run(strategy).status == store::SearchStatus::interrupted ? 14 : 0;
      } catch (...) {
      }
      _exit(code);
    }
    return pid;
  }

  [[nodiscard]] std::vector<store::TrialRow> trials() const {
    return store::Store::open_read_only(db).list_trials();
  }
  [[nodiscard]] size_t num_launches() const { return tests::launches_in(log).size(); }
};

struct EndCase {
  spec::FaultKind fault;
  const char* status;
  const char* reason;
};
std::ostream& operator<<(std::ostream& out, const EndCase& c) { return out << c.status; }
const std::vector<EndCase> kEnds = {
    {spec::FaultKind::none, "ok", ""},
    {spec::FaultKind::crash, "crashed", "killed by signal 11"},
    {spec::FaultKind::kill, "crashed",
     "killed by signal 9 (Killed), likely the kernel's out-of-memory killer"},
    {spec::FaultKind::hang, "hung", "no new step within 3.00 s, after step 2 of 5"},
    {spec::FaultKind::nan, "wrong", "loss is NaN in step 2"},
    {spec::FaultKind::error, "failed", "a planned error"},
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(sweep_loop, LoopFixture)

BOOST_DATA_TEST_CASE(every_end_is_a_row_and_the_sweep_goes_on, boost::unit_test::data::make(kEnds),
                     c) {
  // Starting takes a while, too, on a busy machine and under sanitizers.
  options.runner.step_limit = std::chrono::seconds(c.fault == spec::FaultKind::hang ? 3 : 60);
  ScriptedStrategy strategy(
      {request_of(with_fault(c.fault), "first"), request_of(with_seed(7), "second")});
  const SweepSummary summary = run(strategy);
  BOOST_TEST((summary.status == store::SearchStatus::done));
  BOOST_TEST(summary.num_run == 2);
  const auto rows = trials();
  BOOST_REQUIRE(rows.size() == 2U);
  BOOST_TEST(rows[0].status == c.status);
  BOOST_TEST_CONTEXT(rows[0].reason) {
    BOOST_TEST(rows[0].reason.find(c.reason) != std::string::npos);
  }
  BOOST_TEST(rows[1].status == "ok");
  BOOST_TEST(std::string(spec::name_of(strategy.told.at(0).status)) == c.status);
  BOOST_TEST(!std::filesystem::exists(options.runner.folder));
}

BOOST_AUTO_TEST_CASE(a_measured_trial_is_stored_with_its_numbers) {
  TrialSpec spec = small_trial();
  spec.records_routing = true;
  const TrialRequest request = request_of(spec, "the title");
  ScriptedStrategy strategy({request});
  run(strategy);
  const auto store = store::Store::open_read_only(db);
  const store::TrialRow trial = trials().at(0);
  BOOST_TEST(trial.step_ns.value_or(0) == 1'500'000);
  BOOST_TEST(trial.peak_bytes.value_or(0) == 300'000);
  BOOST_TEST(trial.predicted_peak_bytes.value_or(0) == 300'000);
  BOOST_TEST(
      trial.tokens_per_s.value_or(0) ==
          static_cast<double>(spec.training.global_batch_size * spec.training.seq_length) / 1.5e-3,
      boost::test_tools::tolerance(1e-9));
  BOOST_TEST(trial.wall == "communication");
  std::map<std::string, double> metrics;
  for (const store::MetricRow& metric : store.read_metrics(trial.id)) {
    if (metric.rank == -1) metrics[metric.name] = metric.value;
  }
  BOOST_TEST(metrics.at("tracing_overhead_ratio") == 0.1, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(metrics.at("residual_ns") == 0);
  BOOST_TEST(metrics.at("memory_error_ratio") == 0);
  BOOST_TEST(metrics.at("model_flops_per_step") > 0);
  BOOST_TEST(metrics.contains("blocking_transfer_ns.ep"));

  const tuner::TrialOutcome& told = strategy.told.at(0);
  BOOST_TEST(told.dominant_group == "ep");
  BOOST_TEST(told.losses.size() == 5U);
  BOOST_TEST(told.routing_profile == "{\"a\": 1}");
  BOOST_TEST(told.op_times.at("expert_fc1.forward").count == 8);
  double sum = 0;
  for (const auto& [name, share] : told.shares) sum += share;
  BOOST_TEST(sum == 1.0, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(told.shares.at("blocking_ep") > 0.4);
}

BOOST_AUTO_TEST_CASE(out_of_memory_is_the_memory_wall) {
  TrialSpec spec = small_trial();
  spec.knobs.micro_batch_size = 4;
  ScriptedStrategy strategy({request_of(spec, "large")});
  run(strategy);
  BOOST_TEST(trials().at(0).status == "oom");
  BOOST_TEST(trials().at(0).wall == "memory");
  BOOST_TEST(trials().at(0).reason == "out of memory on rank 0: 'qkv'");
  BOOST_TEST(!trials().at(0).step_ns.has_value());
}

BOOST_AUTO_TEST_CASE(refused_requests_are_rows_and_launch_nothing) {
  TrialRequest invalid = request_of(with_seed(1), "a");
  invalid.action = tuner::Action::invalid;
  invalid.reason = "rule: why";
  TrialRequest pruned = request_of(with_seed(2), "b");
  pruned.action = tuner::Action::pruned;
  pruned.reason = "does not fit";
  // Later it is run after all.
  ScriptedStrategy strategy({invalid, pruned, request_of(with_seed(2), "b")});
  run(strategy);
  const auto rows = trials();
  BOOST_REQUIRE(rows.size() == 2U);
  BOOST_TEST(rows[0].status == "invalid");
  BOOST_TEST(rows[0].reason == "rule: why");
  BOOST_TEST(rows[1].status == "ok");
  BOOST_TEST((strategy.told[1].status == spec::TrialStatus::pruned));
  BOOST_TEST(num_launches() == 1U);

  ScriptedStrategy again({invalid, pruned, request_of(with_seed(2), "b")});
  const SweepSummary summary = run(again);
  BOOST_TEST((again.told[1].status == spec::TrialStatus::pruned));
  BOOST_TEST((again.told[2].status == spec::TrialStatus::ok));
  BOOST_TEST(summary.num_reused == 1);
  BOOST_TEST(num_launches() == 1U);
}

BOOST_AUTO_TEST_CASE(after_each_trial_somebody_may_look_at_the_store) {
  std::vector<size_t> seen;
  options.on_trial = [&] { seen.push_back(trials().size()); };
  ScriptedStrategy strategy(several(3));
  run(strategy);
  const std::vector<size_t> expected = {1, 2, 3};
  BOOST_TEST(seen == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_second_call_runs_nothing_and_tells_the_same) {
  ScriptedStrategy first(several(3));
  run(first);
  ScriptedStrategy second(several(3));
  const SweepSummary summary = run(second);
  BOOST_TEST(summary.num_run == 0);
  BOOST_TEST(summary.num_reused == 3);
  BOOST_TEST(num_launches() == 3U);
  for (size_t i = 0; i < 3; ++i) {
    BOOST_TEST(second.told[i].step_ns == first.told[i].step_ns);
    BOOST_TEST(second.told[i].losses == first.told[i].losses, boost::test_tools::per_element());
    BOOST_TEST((second.told[i].shares == first.told[i].shares));
    BOOST_TEST(second.told[i].wall == first.told[i].wall);
  }
  const auto store = store::Store::open_read_only(db);
  BOOST_TEST(store.read_decisions(1).size() == 3U);
}

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

BOOST_AUTO_TEST_CASE(the_sweep_says_which_trials_matter) {
  std::vector<TrialRequest> requests = several(3);
  requests[1].is_baseline = true;
  ScriptedStrategy strategy(requests);
  run(strategy);
  const auto sweep = store::Store::open_read_only(db).read_sweep(1);
  BOOST_TEST(sweep->winner_trial.value() == 1);
  BOOST_TEST(sweep->baseline_trial.value() == 2);
  BOOST_TEST(!sweep->first_fit_trial.has_value());  // this strategy names none
  // One that failed is no winner.
  ScriptedStrategy failing({request_of(with_fault(spec::FaultKind::error), "error")});
  run(failing);
  BOOST_TEST(!store::Store::open_read_only(db).read_sweep(1)->winner_trial.has_value());
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

/// Finds nothing.
class LosingStrategy : public ScriptedStrategy {
 public:
  using ScriptedStrategy::ScriptedStrategy;
  [[nodiscard]] std::string best_hash() const override { return ""; }
};

BOOST_AUTO_TEST_CASE(a_sweep_without_a_best_trial_has_failed_and_says_why) {
  options.max_trials = 1;
  LosingStrategy first(several(2));
  SweepSummary summary = run(first);
  BOOST_TEST((summary.status == store::SearchStatus::failed));
  BOOST_TEST(summary.failure == "the budget of 1 trials is used up");
  BOOST_TEST((store::Store::open_read_only(db).read_sweeps().back().status ==
              store::SearchStatus::failed));
  options.max_trials = 0;
  LosingStrategy second(several(2));
  summary = run(second);
  BOOST_TEST((summary.status == store::SearchStatus::failed));
  BOOST_TEST(summary.failure == "seed");  // the last decision
  BOOST_TEST(summary.num_reused == 1);
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

BOOST_AUTO_TEST_CASE(an_engine_that_cannot_be_started_fails_the_sweep_and_not_the_spec) {
  options.runner.rank_program = "/no/such/engine";
  ScriptedStrategy strategy(several(1));
  BOOST_CHECK_EXCEPTION(run(strategy), base::Error, tests::says("/no/such/engine"));
  BOOST_TEST(
      (store::Store::open_read_only(db).read_sweep(1)->status == store::SearchStatus::failed));
  options.runner.rank_program = tests::bin("fake_rank");
  ScriptedStrategy again(several(1));
  BOOST_TEST(run(again).num_run == 1);
  BOOST_TEST(trials().at(0).status == "ok");
}

// What is missing around a trial ends the sweep at once, and nothing of it is found next time.
BOOST_AUTO_TEST_CASE(what_a_trial_needs_and_is_not_there_is_no_result) {
  for (const char* code : {"15", "20", "21", "22"}) {
    BOOST_TEST_CONTEXT(code) {
      const size_t num_before = num_launches();
      const tests::ScopedEnvironment missing("FAKE_RANK_EXIT", code);
      ScriptedStrategy strategy(several(3));
      BOOST_CHECK_EXCEPTION(
          run(strategy), base::EnvironmentFailure,
          tests::says("moetune-rank cannot run here: what it needs is not there"));
      BOOST_TEST(num_launches() == num_before + 1);
      BOOST_TEST(strategy.told.empty());
      BOOST_REQUIRE(trials().size() == 1U);
      BOOST_TEST(trials().at(0).status == "interrupted");
    }
  }
  ScriptedStrategy again(several(3));
  const SweepSummary summary = run(again);
  BOOST_TEST(summary.num_run == 3);
  BOOST_TEST(summary.num_reused == 0);
}

BOOST_AUTO_TEST_CASE(ranks_for_which_the_host_has_no_room_are_not_started) {
  options.runner.host_root = folder.file("host");
  std::filesystem::create_directories(options.runner.host_root + "/proc");
  const std::string meminfo = options.runner.host_root + "/proc/meminfo";
  tests::write_text(meminfo, "MemTotal: 20000000 kB\nMemAvailable: 30000 kB\n");
  ScriptedStrategy strategy(several(1));
  BOOST_CHECK_EXCEPTION(run(strategy), base::EnvironmentFailure,
                        tests::says("this machine has 29.3 MiB of memory left", "ranks"));
  // One that nothing was predicted for is looked at, too.
  std::vector<TrialRequest> unknown = several(1);
  unknown.front().prediction = {};
  ScriptedStrategy reference(unknown);
  BOOST_CHECK_THROW(run(reference), base::EnvironmentFailure);
  BOOST_TEST(num_launches() == 0U);
  BOOST_TEST(trials().at(0).status == "interrupted");
  tests::write_text(meminfo, "MemTotal: 20000000 kB\nMemAvailable: 3000000 kB\n");
  ScriptedStrategy again(several(1));
  BOOST_TEST(run(again).num_run == 1);
}

BOOST_AUTO_TEST_CASE(a_failed_trial_is_nobodys_winner) {
  ScriptedStrategy strategy({request_of(with_fault(spec::FaultKind::error), "error")});
  run(strategy);
  store::Store store = store::Store::open(db);
  // As it is when the winner was measured anew elsewhere and failed there.
  store.set_landmarks(1, {1, std::nullopt, 1});
  BOOST_TEST(
      SweepView(store, 1).marks_of(*store.get_trial(1)) == std::vector<std::string>{"first_fit"},
      boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(success_is_believed_only_with_all_its_steps) {
  const tests::ScopedEnvironment early("FAKE_RANK_STOPS_EARLY", "yes");
  ScriptedStrategy strategy(several(1));
  run(strategy);
  BOOST_TEST(trials().at(0).status == "failed");
  BOOST_TEST(trials().at(0).reason == "the ranks ended without an error after 0 of 5 steps");
}

BOOST_AUTO_TEST_CASE(an_unreadable_shard_is_a_failure_that_names_it) {
  const tests::ScopedEnvironment broken("FAKE_RANK_BREAKS_SHARD", "yes");
  ScriptedStrategy strategy(several(1));
  run(strategy);
  BOOST_TEST(trials().at(0).status == "failed");
  BOOST_TEST(trials().at(0).reason.find("shard-0.db") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_replay_that_takes_another_way_leaves_no_old_decisions) {
  ScriptedStrategy first(several(3));
  run(first);
  ScriptedStrategy shorter(several(1));
  run(shorter);
  BOOST_TEST(store::Store::open_read_only(db).read_decisions(1).size() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
