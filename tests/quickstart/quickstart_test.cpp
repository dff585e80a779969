// The quick start as users run it: the real engine on its own text, to the end. Durations are not
// looked at beyond that the search has found something faster.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <set>

#include "profiler/store/store.h"
#include "sweeps/processes/process.h"
#include "tests/sweeps/sweeps_fixture.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(quickstart)

namespace {

constexpr int64_t kFewestRuns = 20;
constexpr double kSmallestGain = 1.05;
constexpr double kHighestLoss = 2.5;
constexpr size_t kJudgedSteps = 10;

BOOST_AUTO_TEST_CASE(the_sweep_walks_the_whole_workflow) {
  const tests::TempFolder folder;
  const std::string db = folder.file("quickstart.db");
  const Command command{
      {tests::bin("moetune"), "sweep",
       std::string(MOETUNE_SOURCE_DIR) + "/sweeps/configs/quickstart.json", "--db", db},
      {},
      folder.file("out"),
      folder.file("err")};
  SystemProcessRunner runner;
  const auto child = runner.start(command);
  const auto end = child->wait(std::chrono::minutes(10));
  BOOST_REQUIRE(end.has_value());
  BOOST_REQUIRE_MESSAGE(!end->is_signal && end->code == 0, tests::read_text(folder.file("err")));

  const store::Store store = store::Store::open_read_only(db);
  const std::vector<store::TrialRow> trials = store.list_trials();
  const auto count = [&](const std::string& status) {
    return std::ranges::count(trials, status, &store::TrialRow::status);
  };
  for (const char* status : {"ok", "invalid", "oom", "pruned"}) BOOST_TEST(count(status) > 0);
  for (const char* status : {"wrong", "failed", "crashed", "hung", "interrupted", "running"}) {
    BOOST_TEST(count(status) == 0);
  }
  BOOST_TEST(count("ok") >= kFewestRuns);

  std::set<std::string> phases;
  std::set<std::string> walls;
  for (const store::DecisionRow& decision : store.read_decisions(trials.front().sweep_id)) {
    phases.insert(decision.phase);
    walls.insert(decision.wall);
  }
  BOOST_TEST(phases.size() == 6U);
  // Whether the host holds a step up depends on how fast this machine computes.
  for (const char* wall : {"memory", "communication", "compute"}) {
    BOOST_TEST(walls.contains(wall), wall);
  }

  const store::SweepRow sweep = store.read_sweep(trials.front().sweep_id).value();
  BOOST_REQUIRE((sweep.winner_trial && sweep.first_fit_trial));
  const store::TrialRow winner = store.get_trial(*sweep.winner_trial).value();
  BOOST_TEST(winner.phase == "validate");
  const auto gain =
      store::gain_over_first_fit(store.read_decisions(trials.front().sweep_id), winner,
                                 store.get_trial(*sweep.first_fit_trial).value());
  BOOST_REQUIRE(gain.has_value());
  BOOST_TEST(gain->ratio + 1 >= kSmallestGain);
  // One batch's loss says little.
  const std::vector<store::StepRow> steps = store.read_steps(winner.id);
  BOOST_REQUIRE(steps.size() >= kJudgedSteps);
  double loss = 0;
  for (size_t i = steps.size() - kJudgedSteps; i < steps.size(); ++i) loss += steps[i].loss;
  BOOST_TEST(loss / kJudgedSteps < kHighestLoss);
  for (const store::TrialRow& trial : trials) {
    if (trial.status != "ok" || !trial.predicted_peak_bytes) continue;
    BOOST_TEST(static_cast<double>(*trial.predicted_peak_bytes) ==
                   static_cast<double>(trial.peak_bytes.value_or(0)),
               boost::test_tools::tolerance(0.005));
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
