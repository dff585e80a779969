// The loop with the stand-in engine and a scripted search: every status, refusals, what is missing.
#include "sweeps/sweep.h"

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <filesystem>

#include "kernels/base/environment_failure.h"
#include "kernels/base/error.h"
#include "sweeps/processes/interrupt.h"
#include "sweeps/session.h"
#include "sweeps/sweep_view.h"
#include "tests/sweeps/loop_fixture.h"
#include "tests/sweeps/sweeps_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(sweep_loop, tests::LoopFixture)

namespace {

using spec::TrialSpec;
using tests::request_of;
using tests::ScriptedStrategy;
using tests::several;
using tests::small_trial;
using tests::with_fault;
using tests::with_seed;
using tuner::TrialRequest;

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
  BOOST_TEST((told.wall == base::Wall::communication));
  BOOST_TEST(told.ceilings.at("communication") == metrics.at("communication_wall_ratio"));
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
    BOOST_TEST((second.told[i].wall == first.told[i].wall));
  }
  const auto store = store::Store::open_read_only(db);
  BOOST_TEST(store.read_decisions(1).size() == 3U);
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
