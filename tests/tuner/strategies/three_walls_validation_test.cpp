// The long run at the end: winners that fail it or are slow in it, losses that differ by rounding.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <set>

#include "tests/tuner/strategies/three_walls_helper.h"
#include "tuner/strategies/three_walls.h"

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(three_walls_validation)

namespace {

using spec::TrialStatus;
using testing::check_manners;
using testing::drive;
using testing::narrow_sweep;
using testing::run_in_fake_world;
using testing::Story;
using testing::wide_sweep;
using testing::World;

BOOST_AUTO_TEST_CASE(a_winner_that_fails_its_validation_gives_way_to_the_runner_up) {
  for (const bool is_oom : {false, true}) {
    int num_validations = 0;
    const Story story = drive(wide_sweep(), [&](const TrialRequest& request) {
      TrialOutcome outcome = run_in_fake_world(request);
      if (!request.is_final || ++num_validations > 1) return outcome;
      if (is_oom) {
        outcome = {};
        outcome.status = TrialStatus::oom;
        outcome.reason = "later in the run";
      } else {
        std::ranges::fill(outcome.losses, 3.0);
      }
      return outcome;
    });
    check_manners(wide_sweep(), story);
    BOOST_TEST(num_validations == 2);
    const std::vector<TrialRequest> started = story.started();
    const TrialRequest& failed = started.at(started.size() - 2);
    BOOST_TEST(failed.is_final);
    BOOST_TEST(!(failed.spec.knobs == started.back().spec.knobs));
    BOOST_TEST(story.best_hash == started.back().hash);
    BOOST_TEST(story.has_decision(Phase::validate, DecisionKind::rejected));
  }
}

/// The long runs go off the reference's losses, and a second reference as far as `spread`.
World chaotic_world(double spread, std::vector<TrialRequest>& references, bool is_short = false) {
  return [spread, is_short, &references](const TrialRequest& request) {
    TrialOutcome outcome = run_in_fake_world(request);
    if (request.is_reference) {
      if (!references.empty()) {
        for (double& loss : outcome.losses) loss += spread;
      }
      references.push_back(request);
    }
    const bool is_concerned = request.is_final || (is_short && !request.is_reference);
    if (!is_concerned || request.spec.reference_tolerance > 0.5) return outcome;
    if (outcome.status != TrialStatus::ok) return outcome;
    TrialOutcome off;
    off.status = TrialStatus::wrong;
    off.reason = "off the reference run's losses";
    off.losses = {5.0, 4.0};
    return off;
  };
}

BOOST_AUTO_TEST_CASE(what_rounding_alone_does_is_not_wrong) {
  std::vector<TrialRequest> references;
  const Story story = drive(narrow_sweep(), chaotic_world(0.3, references));
  check_manners(narrow_sweep(), story);
  BOOST_REQUIRE(references.size() == 2U);
  spec::TrialSpec same = references[1].spec;
  BOOST_TEST(same.knobs.micro_batch_size == 2);
  same.knobs.micro_batch_size = 1;
  same.records_routing = references[0].spec.records_routing;
  BOOST_TEST(spec::spec_hash(same) == references[0].hash);
  const TrialRequest last = story.started().back();
  BOOST_TEST(last.is_final);
  BOOST_TEST(last.spec.reference_tolerance == 0.9, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(story.best_hash == last.hash);
  BOOST_TEST(story.has_decision(Phase::validate, DecisionKind::kept));
  BOOST_TEST(!story.has_decision(Phase::validate, DecisionKind::rejected));
}

/// What was said to be cleared, by hash.
std::set<std::string> cleared_of(const Story& story) {
  std::set<std::string> hashes;
  for (const Decision& decision : story.decisions) {
    if (decision.evidence.value("is_cleared", false)) hashes.insert(decision.trial_hash);
  }
  return hashes;
}

BOOST_AUTO_TEST_CASE(what_was_told_as_wrong_is_cleared_by_name) {
  std::vector<TrialRequest> references;
  const Story story = drive(narrow_sweep(), chaotic_world(0.3, references));
  const std::vector<TrialRequest> started = story.started();
  const TrialRequest& first = started.at(started.size() - 3);
  BOOST_TEST(first.is_final);
  BOOST_TEST((story.outcome_of(first.hash).status == TrialStatus::wrong));
  BOOST_TEST((cleared_of(story) == std::set<std::string>{first.hash}));
}

// The first that is off asks for the second reference; those after it have the wider band.
BOOST_AUTO_TEST_CASE(a_short_trial_that_is_off_by_rounding_is_cleared,
                     *boost::unit_test::timeout(60)) {
  std::vector<TrialRequest> references;
  const Story story = drive(narrow_sweep(), chaotic_world(0.3, references, true));
  check_manners(narrow_sweep(), story);
  BOOST_TEST(references.size() == 2U);
  BOOST_TEST((references.back().phase < Phase::validate));
  int num_wrong = 0;
  for (const TrialOutcome& outcome : story.outcomes) {
    num_wrong += outcome.status == TrialStatus::wrong ? 1 : 0;
  }
  BOOST_TEST(num_wrong == 1);
  BOOST_TEST(cleared_of(story).size() == 1U);
  BOOST_TEST(story.has_decision(Phase::validate, DecisionKind::kept));
  BOOST_TEST(story.request_of(story.best_hash).spec.reference_tolerance == 0.9,
             boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(a_short_trial_that_is_further_off_stays_wrong) {
  std::vector<TrialRequest> references;
  const Story story = drive(narrow_sweep(), chaotic_world(1e-6, references, true));
  check_manners(narrow_sweep(), story);
  BOOST_TEST(references.size() == 2U);
  BOOST_TEST(cleared_of(story).empty());
  BOOST_TEST(!story.has_decision(Phase::fit, DecisionKind::kept));
  BOOST_TEST(story.best_hash == "");
}

// Of four trials one is the validation's: reference, baseline, and no two more.
BOOST_AUTO_TEST_CASE(without_room_for_a_second_reference_what_is_off_is_wrong) {
  spec::SweepSpec sweep = narrow_sweep();
  sweep.budget.max_trials = 4;
  std::vector<TrialRequest> references;
  const Story story = drive(sweep, chaotic_world(0.3, references, true));
  check_manners(sweep, story);
  BOOST_TEST(references.size() == 1U);
  BOOST_TEST(cleared_of(story).empty());
}

BOOST_AUTO_TEST_CASE(what_is_further_off_than_rounding_stays_wrong) {
  std::vector<TrialRequest> references;
  const Story story = drive(narrow_sweep(), chaotic_world(1e-6, references));
  check_manners(narrow_sweep(), story);
  BOOST_TEST(references.size() == 2U);
  BOOST_TEST(story.has_decision(Phase::validate, DecisionKind::rejected));
  BOOST_TEST(!story.has_decision(Phase::validate, DecisionKind::kept));
}

BOOST_AUTO_TEST_CASE(where_rounding_takes_losses_far_apart_the_sweep_says_so) {
  std::vector<TrialRequest> references;
  const Story story = drive(narrow_sweep(), chaotic_world(0.6, references));
  BOOST_TEST(references.size() == 2U);
  BOOST_TEST(!story.has_decision(Phase::validate, DecisionKind::kept));
  BOOST_TEST(std::ranges::any_of(story.decisions, [](const Decision& decision) {
    return decision.text.find("losses do not tell whether a layout is right") != std::string::npos;
  }));
}

// One batch that is hard says nothing about what was learned.
BOOST_AUTO_TEST_CASE(the_loss_of_a_single_step_decides_nothing) {
  const Story story = drive(wide_sweep(), [](const TrialRequest& request) {
    TrialOutcome outcome = run_in_fake_world(request);
    if (request.is_final) outcome.losses.back() = 2.6;
    return outcome;
  });
  BOOST_TEST(story.has_decision(Phase::validate, DecisionKind::kept));
  BOOST_TEST(!story.has_decision(Phase::validate, DecisionKind::rejected));
}

// Five steps, the one before them and those that are traced: what an untrained model loses is not
// what a run has learned.
BOOST_AUTO_TEST_CASE(the_loss_at_the_end_is_a_mean_of_the_end_and_says_so) {
  const Story story = drive(wide_sweep(), [](const TrialRequest& request) {
    TrialOutcome outcome = run_in_fake_world(request);
    if (!request.is_final) return outcome;
    std::ranges::fill(outcome.losses, 5.0);
    outcome.losses.back() = 2.3;
    outcome.losses.at(outcome.losses.size() - 2) = 2.1;
    return outcome;
  });
  const auto told = std::ranges::find_if(story.decisions, [](const Decision& decision) {
    return decision.phase == Phase::validate && decision.kind == DecisionKind::kept;
  });
  BOOST_TEST_REQUIRE((told != story.decisions.end()));
  BOOST_TEST(told->text.find("loss 2.200, the mean of the last 2 steps (2.100 at the lowest") !=
                 std::string::npos,
             told->text);
  BOOST_TEST(told->evidence.at("loss_mean_at_end").get<double>() == 2.2,
             boost::test_tools::tolerance(1e-9));
  BOOST_TEST(told->evidence.at("num_steps_at_end") == 2);
}

BOOST_AUTO_TEST_CASE(a_winner_that_is_slow_over_its_long_run_gives_way) {
  for (const bool is_next_slower : {false, true}) {
    int num_validations = 0;
    const Story story = drive(wide_sweep(), [&](const TrialRequest& request) {
      TrialOutcome outcome = run_in_fake_world(request);
      if (!request.is_final) return outcome;
      const double factor = ++num_validations == 1 ? 1.6 : is_next_slower ? 2.0 : 1.0;
      for (int64_t* ns : {&outcome.step_ns, &outcome.step_low_ns, &outcome.step_high_ns}) {
        *ns = std::llround(static_cast<double>(*ns) * factor);
      }
      return outcome;
    });
    check_manners(wide_sweep(), story);
    BOOST_TEST(num_validations == 2);
    const std::vector<TrialRequest> started = story.started();
    const TrialRequest& first = started.at(started.size() - 2);
    BOOST_TEST(story.best_hash == (is_next_slower ? first.hash : started.back().hash));
    const auto told = std::ranges::find_if(story.decisions, [](const Decision& decision) {
      return decision.phase == Phase::validate && decision.kind == DecisionKind::rejected;
    });
    BOOST_REQUIRE((told != story.decisions.end()));
    BOOST_TEST(told->text.find("slower than the runner-up") != std::string::npos, told->text);
  }
}

// The step was known to 0.2 %: 12 % more are beyond both intervals, and 0.1 % are not.
BOOST_AUTO_TEST_CASE(a_long_run_that_is_slower_than_screening_is_said_to_be) {
  for (const double factor : {1.001, 1.12}) {
    const Story story = drive(wide_sweep(), [&](const TrialRequest& request) {
      TrialOutcome outcome = run_in_fake_world(request);
      if (!request.is_final) return outcome;
      for (int64_t* ns : {&outcome.step_ns, &outcome.step_low_ns, &outcome.step_high_ns}) {
        *ns = std::llround(static_cast<double>(*ns) * factor);
      }
      return outcome;
    });
    const auto told = std::ranges::find_if(story.decisions, [](const Decision& decision) {
      return decision.phase == Phase::validate && decision.evidence.contains("screening") &&
             decision.kind != DecisionKind::note;
    });
    BOOST_TEST_REQUIRE((told != story.decisions.end()));
    const bool is_slower = factor > 1.1;
    BOOST_TEST(told->evidence.at("is_slower_in_long_run") == is_slower);
    BOOST_TEST((told->text.find("slower in the long run") != std::string::npos) == is_slower,
               told->text);
  }
}

BOOST_AUTO_TEST_CASE(the_gain_is_that_of_runs_of_one_length) {
  const Story story = drive(wide_sweep(), [](const TrialRequest& request) {
    TrialOutcome outcome = run_in_fake_world(request);
    if (request.is_final) outcome.step_ns = outcome.step_ns * 12 / 10;
    return outcome;
  });
  const Decision& verdict = story.decisions.back();
  BOOST_TEST_REQUIRE((verdict.phase == Phase::validate));
  const auto step_of = [&](const std::string& hash) {
    return static_cast<double>(testing::step_of(story.request_of(hash).spec.knobs));
  };
  const double gain = step_of(verdict.baseline_hash) / step_of(verdict.trial_hash) - 1;
  BOOST_TEST(verdict.gain_ratio.value() == gain, boost::test_tools::tolerance(1e-3));
  const auto screening = [&](const char* which) {
    return verdict.evidence.at("screening").at(which).at("step_ns").get<double>();
  };
  BOOST_TEST(screening("after") == step_of(verdict.trial_hash), boost::test_tools::tolerance(1e-3));
  BOOST_TEST(screening("before") == step_of(verdict.baseline_hash),
             boost::test_tools::tolerance(1e-3));
  BOOST_TEST(gain > 0.1);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
