// Where a search starts: what is too large, the cheapest change that fits, starts that are kept or
// replaced.
#include <boost/test/unit_test.hpp>

#include "tests/tuner/strategies/three_walls_helper.h"
#include "tuner/strategies/three_walls.h"

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(three_walls_fit)

namespace {

using spec::Knobs;
using spec::TrialStatus;
using testing::check_manners;
using testing::drive;
using testing::narrow_sweep;
using testing::run_in_fake_world;
using testing::Story;

BOOST_AUTO_TEST_CASE(where_nothing_fits_memory_is_the_last_word) {
  spec::SweepSpec sweep = narrow_sweep();
  sweep.base.hardware.memory_bytes = 1000;
  const Story story = drive(sweep, run_in_fake_world);
  check_manners(sweep, story);
  BOOST_TEST(story.started().size() == 2U);  // the baseline runs all the same
  BOOST_REQUIRE(!story.decisions.empty());
  BOOST_TEST((story.decisions.back().phase == Phase::fit));
  BOOST_TEST(story.decisions.back().wall == "memory");
  BOOST_TEST(story.best_hash == "");
}

// Real devices: there is no run on one without a limit.
BOOST_AUTO_TEST_CASE(what_is_too_large_for_one_device_is_compared_with_what_fits_first) {
  spec::SweepSpec sweep = narrow_sweep();
  sweep.base.backend = spec::BackendKind::cuda;
  sweep.base.clock = spec::ClockMode::wall;
  sweep.base.communicator = spec::CommunicatorKind::nccl;
  const auto world = [](const TrialRequest& request) {
    if (!request.is_reference) return run_in_fake_world(request);
    TrialOutcome outcome;
    outcome.status = TrialStatus::oom;
    outcome.reason = "out of memory on rank 0";
    return outcome;
  };
  const Story story = drive(sweep, world);
  check_manners(sweep, story);
  BOOST_TEST(story.has_decision(Phase::validate, DecisionKind::kept));
  const std::vector<TrialRequest> started = story.started();
  const auto first_ok = std::ranges::find_if(started, [&](const TrialRequest& request) {
    return story.outcome_of(request.hash).status == TrialStatus::ok;
  });
  BOOST_REQUIRE(first_ok != started.end());
  const std::vector<double> expected = story.outcome_of(first_ok->hash).losses;
  BOOST_REQUIRE(!expected.empty());
  for (auto request = started.begin(); request != started.end(); ++request) {
    // One device would need as many times longer as there are.
    if (request->is_reference) BOOST_TEST(request->spec.num_steps == 3);
    // The first one that fits has none, nor when it is measured again.
    BOOST_TEST(request->spec.reference_loss ==
                   (request->hash == first_ok->hash || request < first_ok ? std::vector<double>()
                                                                          : expected),
               boost::test_tools::per_element());
  }
  // On a device of its own the reference run failed for another reason.
  const Story failed = drive(sweep, [](const TrialRequest&) {
    TrialOutcome outcome;
    outcome.status = TrialStatus::failed;
    outcome.reason = "no GPU";
    return outcome;
  });
  BOOST_TEST(failed.started().size() == 1U);
  // And where it is not memory that configurations lack, that is not what is said.
  const Story broken = drive(sweep, [&](const TrialRequest& request) {
    TrialOutcome outcome = world(request);
    if (!request.is_reference && request.action == Action::run) {
      outcome.status = TrialStatus::failed;
      outcome.reason = "no network";
    }
    return outcome;
  });
  BOOST_TEST(broken.best_hash == "");
  BOOST_TEST(broken.decisions.back().text ==
             "No configuration has run to its end; the last one ended as failed: no network.");
}

// Nobody knows where the router sends the tokens, and it loads one rank 15 % more than predicted.
BOOST_AUTO_TEST_CASE(a_trial_tells_whether_what_crosses_the_capacity_fits) {
  spec::SweepSpec sweep = testing::small_sweep({{"expert_model_parallel_size", {"1", "4", "8"}},
                                                {"recompute", {"none", "norm", "moe_act"}},
                                                {"use_distributed_optimizer", {"false", "true"}}});
  sweep.base.backend = spec::BackendKind::cuda;
  sweep.base.clock = spec::ClockMode::wall;
  sweep.base.communicator = spec::CommunicatorKind::nccl;
  const auto predicted = [&](int64_t expert_ranks, const char* recompute) {
    spec::TrialSpec spec = sweep.base;
    spec.knobs.use_distributed_optimizer = true;
    spec.knobs.expert_model_parallel_size = expert_ranks;
    spec.knobs.recompute = spec::RecomputeSet(recompute);
    return static_cast<double>(estimate_memory(spec, {}).peak_bytes);
  };
  constexpr double kUneven = 1.15;
  const double capacity = 1.12 * predicted(4, "norm");
  sweep.base.hardware.memory_bytes = static_cast<int64_t>(capacity);
  BOOST_TEST_REQUIRE(predicted(1, "norm") > capacity);
  BOOST_TEST_REQUIRE(predicted(4, "none") < capacity);
  BOOST_TEST_REQUIRE(predicted(4, "moe_act") > predicted(4, "norm"));
  BOOST_TEST_REQUIRE(predicted(8, "none") > predicted(4, "norm"));
  BOOST_TEST_REQUIRE(kUneven * predicted(8, "norm") < capacity);
  const Story story = drive(sweep, [&](const TrialRequest& request) {
    TrialOutcome outcome = run_in_fake_world(request);
    if (request.action != Action::run) return outcome;
    const bool is_uneven = request.spec.knobs.expert_model_parallel_size > 1;
    const double peak = (is_uneven ? kUneven : 1) *
                        static_cast<double>(estimate_memory(request.spec, {}).peak_bytes);
    if (request.is_reference || peak > capacity) {
      outcome = {};
      outcome.status = TrialStatus::oom;
      outcome.reason = "out of memory on rank 0";
    } else {
      outcome.peak_bytes = static_cast<int64_t>(peak);
    }
    return outcome;
  });
  check_manners(sweep, story);
  std::vector<std::string> tried;
  for (const TrialRequest& request : story.started()) {
    if (request.phase != Phase::fit) continue;
    const Knobs& knobs = request.spec.knobs;
    tried.push_back(std::to_string(knobs.expert_model_parallel_size) + " " +
                    knobs.recompute.text());
  }
  // What needs no less than one that failed is not tried: 4 with moe_act, 8 with none.
  BOOST_TEST((tried == std::vector<std::string>{"4 none", "4 norm", "8 norm"}));
  BOOST_TEST(std::ranges::any_of(story.requests, [](const TrialRequest& request) {
    return request.phase == Phase::fit && request.action == Action::pruned &&
           request.reason.find("one that was predicted to need no more") != std::string::npos;
  }));
  const auto kept = std::ranges::find_if(story.decisions, [](const Decision& decision) {
    return decision.phase == Phase::fit && decision.kind == DecisionKind::kept;
  });
  BOOST_REQUIRE((kept != story.decisions.end()));
  BOOST_TEST(kept->text.find("only a trial could tell") != std::string::npos, kept->text);
  BOOST_TEST(!kept->evidence.at("is_fit_certain").get<bool>());
  BOOST_TEST(kept->evidence.at("predicted_peak_low_bytes").get<double>() <= capacity);
  BOOST_TEST(kept->evidence.at("predicted_peak_high_bytes").get<double>() > capacity);
}

// Where the rows are known the peak is, too: nothing has to be tried.
BOOST_AUTO_TEST_CASE(what_is_known_to_fit_fits_without_a_trial_to_know) {
  const Story story = drive(narrow_sweep(), run_in_fake_world);
  const auto kept = std::ranges::find_if(story.decisions, [](const Decision& decision) {
    return decision.phase == Phase::fit && decision.kind == DecisionKind::kept;
  });
  BOOST_REQUIRE((kept != story.decisions.end()));
  BOOST_TEST(kept->evidence.at("is_fit_certain").get<bool>());
  BOOST_TEST(kept->evidence.at("predicted_peak_low_bytes") ==
             kept->evidence.at("predicted_peak_high_bytes"));
  BOOST_TEST(kept->text.find("only a trial could tell") == std::string::npos, kept->text);
}

// A learning rate that is off by orders of magnitude: no trial would reproduce such losses.
BOOST_AUTO_TEST_CASE(a_reference_that_diverges_ends_the_search) {
  for (const bool is_too_large_for_one : {false, true}) {
    spec::SweepSpec sweep = narrow_sweep();
    sweep.base.training.lr = 40;
    if (is_too_large_for_one) {
      sweep.base.backend = spec::BackendKind::cuda;
      sweep.base.clock = spec::ClockMode::wall;
      sweep.base.communicator = spec::CommunicatorKind::nccl;
    }
    const auto world = [&](const TrialRequest& request) {
      TrialOutcome outcome = run_in_fake_world(request);
      if (is_too_large_for_one && request.is_reference) {
        outcome = {};
        outcome.status = TrialStatus::oom;
        outcome.reason = "out of memory on rank 0";
      }
      for (size_t step = 0; step < outcome.losses.size(); ++step) {
        outcome.losses[step] = step == 0 ? 5.5 : 167.0 * static_cast<double>(step);
      }
      return outcome;
    };
    const Story story = drive(sweep, world);
    check_manners(sweep, story);
    BOOST_TEST(story.best_hash == "");
    // The first run that ended well is the last one, and nothing is refused on its behalf.
    BOOST_REQUIRE(!story.requests.empty());
    BOOST_TEST((story.outcomes.back().status == TrialStatus::ok));
    BOOST_TEST(story.requests.back().is_reference == !is_too_large_for_one);
    BOOST_REQUIRE(!story.decisions.empty());
    BOOST_TEST(story.decisions.back().text ==
               std::string("The ") +
                   (is_too_large_for_one ? "first configuration that fits" : "reference run") +
                   " diverged at step 1 (loss 167, at step 0 5.5): lower training.lr, which is "
                   "40.");
  }
}

// Neither expert parallelism nor pipeline stages alone are enough, and data parallelism, which has
// an axis of its own, has to give way to the stages.
BOOST_AUTO_TEST_CASE(what_fits_only_with_two_changes_is_found) {
  for (const bool has_dp_axis : {false, true}) {
    spec::SweepSpec sweep = testing::small_sweep(
        {{"expert_model_parallel_size", {"1", "4"}}, {"pipeline_model_parallel_size", {"1", "2"}}});
    if (has_dp_axis) sweep.space["data_parallel_size"] = {"1", "2", "4", "8"};
    const auto peak = [&](const char* ep, const char* pp) {
      const SearchSpace space(sweep);
      spec::TrialSpec spec = sweep.base;
      spec.knobs = space.with(spec.knobs, "expert_model_parallel_size", ep);
      spec.knobs = space.with(spec.knobs, "pipeline_model_parallel_size", pp);
      if (has_dp_axis) spec.knobs.data_parallel_size = 8 / spec.knobs.pipeline_model_parallel_size;
      spec.num_steps = std::max(spec.num_steps, sweep.validate_steps);
      return testing::peak_of(spec);
    };
    const int64_t limit = std::min(peak("4", "1"), peak("1", "2")) - 1;
    BOOST_REQUIRE(peak("4", "2") <= limit);
    sweep.base.hardware.memory_bytes = limit;
    const Story story = drive(sweep, run_in_fake_world);
    check_manners(sweep, story);
    BOOST_TEST(story.has_decision(Phase::validate, DecisionKind::kept));
    const spec::Knobs best = story.request_of(story.best_hash).spec.knobs;
    BOOST_TEST(best.expert_model_parallel_size == 4);
    BOOST_TEST(best.pipeline_model_parallel_size == 2);
    BOOST_TEST(best.data_parallel_size == 4);
  }
}

BOOST_AUTO_TEST_CASE(the_cheapest_change_that_fits_comes_first) {
  const std::pair<const char*, const char*> order[] = {
      {"expert_model_parallel_size", "2"},
      {"pipeline_model_parallel_size", "2"},
      {"context_parallel_size", "2"},
      {"micro_batch_size", "1"},
  };
  // Without those before it each is the first.
  for (size_t first = 0; first < std::size(order); ++first) {
    spec::SweepSpec sweep = testing::small_sweep({});
    const auto peak = [&](const spec::Knobs& knobs) {
      spec::TrialSpec spec = sweep.base;
      spec.knobs = knobs;
      spec.num_steps = std::max(spec.num_steps, sweep.validate_steps);
      return testing::peak_of(spec);
    };
    int64_t largest = 0;
    for (size_t i = first; i < std::size(order); ++i) {
      const auto& [knob, value] = order[i];
      const std::string start = spec::get_knob(sweep.base.knobs, *spec::find_knob(knob));
      sweep.space[knob] = {start, value};
      largest = std::max(largest, peak(SearchSpace(sweep).with(sweep.base.knobs, knob, value)));
    }
    BOOST_TEST_REQUIRE(largest < peak(sweep.base.knobs));
    sweep.base.hardware.memory_bytes = largest;
    const Story story = drive(sweep, run_in_fake_world);
    const auto kept = std::ranges::find_if(story.decisions, [](const Decision& decision) {
      return decision.phase == Phase::fit && decision.kind == DecisionKind::kept;
    });
    BOOST_REQUIRE((kept != story.decisions.end()));
    const auto& [knob, value] = order[first];
    const spec::Knobs knobs = story.request_of(kept->trial_hash).spec.knobs;
    BOOST_TEST(spec::get_knob(knobs, *spec::find_knob(knob)) == value, kept->text);
  }
}

BOOST_AUTO_TEST_CASE(a_start_that_fits_is_kept_and_one_that_is_illegal_is_replaced) {
  spec::SweepSpec roomy = narrow_sweep();
  roomy.base.hardware.memory_bytes *= 10;
  const Story story = drive(roomy, run_in_fake_world);
  check_manners(roomy, story);
  BOOST_TEST(story.has_decision(Phase::fit, DecisionKind::kept));
  BOOST_TEST((story.started().at(2).phase == Phase::scale));

  spec::SweepSpec illegal = narrow_sweep();
  illegal.base.knobs.micro_batch_size = 3;
  illegal.space["micro_batch_size"] = {"1", "2"};
  const Story repaired = drive(illegal, run_in_fake_world);
  check_manners(illegal, repaired);
  BOOST_TEST((repaired.requests.at(1).action == Action::invalid));
  BOOST_TEST(repaired.requests.at(1).is_baseline);
  BOOST_TEST(repaired.has_decision(Phase::validate, DecisionKind::kept));
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
