// The workflow as a whole against a world whose best configuration is known, and its manners when
// things go wrong.
#include "tuner/strategies/three_walls.h"

#include <fmt/format.h>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <limits>

#include "kernels/base/error.h"
#include "tests/tuner/fake_world.h"
#include "tests/tuner/played_world.h"
#include "tests/tuner/strategies/three_walls_helper.h"
#include "tuner/cost_model.h"
#include "tuner/judgement.h"
#include "tuner/strategies/strategies.h"

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(three_walls)

namespace {

namespace data = boost::unit_test::data;
namespace samples = spec::samples;
using spec::Knobs;
using spec::TrialStatus;
using testing::check_manners;
using testing::drive;
using testing::narrow_sweep;
using testing::run_in_fake_world;
using testing::Story;
using testing::wide_sweep;

std::string text_of(const Decision& d) {
  return fmt::format("{}|{}|{}|{}|{}|{}|{}|{}->{}|{}|{}|{}|{}", name_of(d.phase), name_of(d.kind),
                     d.trial_hash, d.baseline_hash, d.wall, d.remedy, d.knob, d.value_before,
                     d.value_after, d.gain_ratio.value_or(-9), d.noise_ratio.value_or(-9), d.text,
                     d.evidence.dump());
}

std::string text_of(const TrialRequest& r) {
  return fmt::format("{}|{}|{}|{}|{}|{}|{}|{}{}{}|{}|{}", r.hash, r.attempt, name_of(r.phase),
                     static_cast<int>(r.action), r.reason, r.title, r.spec.reference_loss.size(),
                     r.is_reference, r.is_baseline, r.is_final, r.prediction.peak_bytes,
                     r.prediction.step_ns);
}

template <class Items>
std::vector<std::string> texts_of(const Items& items) {
  std::vector<std::string> texts;
  for (const auto& item : items) texts.push_back(text_of(item));
  return texts;
}

/// One long search that several tests look at.
const Story& wide_story() {
  static const Story story = drive(wide_sweep(), run_in_fake_world);
  return story;
}

BOOST_AUTO_TEST_CASE(the_phases_come_in_order_and_leave_their_decisions) {
  const Story& story = wide_story();
  check_manners(wide_sweep(), story);
  for (const Phase phase : {Phase::contract, Phase::fit, Phase::scale, Phase::profile,
                            Phase::retune, Phase::validate}) {
    BOOST_TEST_CONTEXT(name_of(phase)) {
      BOOST_TEST(std::any_of(story.decisions.begin(), story.decisions.end(),
                             [&](const Decision& d) { return d.phase == phase; }));
    }
  }
  for (size_t i = 1; i < story.requests.size(); ++i) {
    BOOST_TEST((story.requests[i].phase >= story.requests[i - 1].phase));
  }
  const std::vector<TrialRequest> started = story.started();
  BOOST_REQUIRE(started.size() > 10U);
  BOOST_TEST(started[0].is_reference);
  BOOST_TEST(started[0].spec.hardware.memory_bytes == 0);
  BOOST_TEST(started[0].spec.records_routing);
  BOOST_TEST(started[1].is_baseline);
  BOOST_TEST((started[1].spec.knobs == wide_sweep().base.knobs));
  BOOST_TEST(started[1].prediction.peak_bytes > wide_sweep().base.hardware.memory_bytes);
  BOOST_TEST((story.outcomes[1].status == TrialStatus::oom));
  BOOST_TEST(started.back().is_final);
  BOOST_TEST(story.best_hash == started.back().hash);
  int num_invalid = 0;
  int num_pruned = 0;
  for (const TrialRequest& request : story.requests) {
    num_invalid += request.action == Action::invalid ? 1 : 0;
    num_pruned += request.action == Action::pruned ? 1 : 0;
    if (request.action == Action::invalid) {
      BOOST_TEST(std::any_of(spec::constraint_table().begin(), spec::constraint_table().end(),
                             [&](const spec::ConstraintRow& row) {
                               return request.reason.starts_with(std::string(row.name) + ": ");
                             }),
                 request.reason);
    }
  }
  BOOST_TEST(num_invalid > 0);
  BOOST_TEST(num_pruned > 0);
}

BOOST_AUTO_TEST_CASE(predicted_peaks_keep_the_search_out_of_memory_trouble) {
  const Story& story = wide_story();
  for (size_t i = 0; i < story.requests.size(); ++i) {
    if (story.requests[i].action != Action::run || story.requests[i].is_baseline) continue;
    BOOST_TEST((story.outcomes[i].status == TrialStatus::ok), story.requests[i].title);
    if (story.requests[i].is_reference) continue;
    BOOST_TEST(story.requests[i].prediction.peak_bytes == story.outcomes[i].peak_bytes);
  }
}

BOOST_AUTO_TEST_CASE(it_ends_at_the_optimum) {
  const spec::SweepSpec sweep = wide_sweep();
  const SearchSpace space(sweep);
  const auto fits = [&](const Knobs& knobs) {
    spec::TrialSpec trial = sweep.base;
    trial.knobs = knobs;
    return testing::peak_of(trial) <= sweep.base.hardware.memory_bytes;
  };
  std::vector<Knobs> points = space.all();
  std::stable_sort(points.begin(), points.end(), [](const Knobs& a, const Knobs& b) {
    return testing::step_of(a) < testing::step_of(b);
  });
  const auto best = std::find_if(points.begin(), points.end(), [&](const Knobs& knobs) {
    return space.check(knobs).empty() && fits(knobs);
  });
  BOOST_REQUIRE((best != points.end()));
  const Knobs winner = wide_story().request_of(wide_story().best_hash).spec.knobs;
  BOOST_TEST_MESSAGE(describe(*best) << " / " << describe(winner));
  BOOST_TEST(static_cast<double>(testing::step_of(winner)) <=
             1.03 * static_cast<double>(testing::step_of(*best)));
  BOOST_TEST(testing::step_of(winner) < testing::step_of(sweep.base.knobs));
}

// Plain data parallelism is the best layout only when its gradients are reduced meanwhile.
BOOST_AUTO_TEST_CASE(a_layout_is_measured_with_the_schedule_that_suits_it) {
  spec::SweepSpec sweep = testing::small_sweep(
      {{"pipeline_model_parallel_size", {"1", "2"}}, {"overlap_grad_reduce", {"false", "true"}}});
  sweep.base.hardware.memory_bytes = 0;
  sweep.base.hardware.peak_flops_per_s = 1e10;
  sweep.scale_trials = 1;
  // A world that is as the cost model says.
  const auto step_of = [](const spec::TrialSpec& spec) { return play_step(spec, {}).step_ns; };
  const auto played = [&](int64_t stages, bool overlaps) {
    spec::TrialSpec spec = sweep.base;
    spec.knobs.pipeline_model_parallel_size = stages;
    spec.knobs.data_parallel_size = 8 / stages;
    spec.knobs.overlap_grad_reduce = overlaps;
    return step_of(spec);
  };
  BOOST_TEST_REQUIRE(played(2, false) < played(1, false));
  BOOST_TEST_REQUIRE(1.05 * static_cast<double>(played(1, true)) <
                     static_cast<double>(std::min(played(2, false), played(2, true))));
  const Story story = drive(sweep, [&](const TrialRequest& request) {
    TrialOutcome outcome = run_in_fake_world(request);
    if (outcome.step_ns > 0) outcome.step_ns = step_of(request.spec);
    return outcome;
  });
  for (const TrialRequest& request : story.started()) {
    if (request.phase != Phase::scale || request.purpose != Purpose::first) continue;
    BOOST_TEST(request.spec.knobs.pipeline_model_parallel_size == 1);
    BOOST_TEST(request.spec.knobs.overlap_grad_reduce);
    BOOST_TEST(request.title.find("overlap_grad_reduce true") != std::string::npos, request.title);
  }
  BOOST_TEST(story.request_of(story.best_hash).spec.knobs.overlap_grad_reduce);
  const auto kept = std::ranges::find_if(story.decisions, [](const Decision& decision) {
    return decision.phase == Phase::scale && decision.kind == DecisionKind::kept;
  });
  BOOST_REQUIRE((kept != story.decisions.end()));
  const nlohmann::json changed = {{"overlap_grad_reduce", {{"before", false}, {"after", true}}}};
  BOOST_TEST(kept->evidence.at("knobs") == changed);
}

// Products of few rows are slower than the file says, which trials of one size do not show. So the
// smaller micro-batch, with the smaller bubble, seems to suit the pipeline at first.
BOOST_AUTO_TEST_CASE(a_layout_is_measured_again_where_trials_teach_that_it_gains) {
  spec::SweepSpec sweep = testing::small_sweep({{"pipeline_model_parallel_size", {"1", "2"}},
                                                {"context_parallel_size", {"1", "2"}},
                                                {"micro_batch_size", {"2", "4"}}});
  sweep.base.hardware.memory_bytes = 0;
  sweep.base.hardware.peak_flops_per_s = 1e10;
  sweep.base.hardware.inter_node.bytes_per_s /= 48;
  sweep.base.hardware.intra_node.bytes_per_s /= 48;
  sweep.scale_trials = 5;
  const auto world = [&](const TrialRequest& request) {
    TrialOutcome outcome = run_in_fake_world(request);
    if (outcome.status != TrialStatus::ok || request.is_reference) return outcome;
    outcome.shares.clear();
    spec::TrialSpec truth = request.spec;
    for (const spec::Work work : {spec::Work::product, spec::Work::grouped}) {
      truth.hardware.half_rows[static_cast<size_t>(work)] = 500;
    }
    testing::tell_played_step(truth, CompiledStep(truth), outcome);
    return outcome;
  };
  const Story story = drive(sweep, world);
  std::vector<int64_t> batches;
  for (const TrialRequest& request : story.started()) {
    const Knobs& knobs = request.spec.knobs;
    if (request.phase != Phase::scale || request.purpose != Purpose::first) continue;
    if (knobs.pipeline_model_parallel_size == 2 && knobs.context_parallel_size == 1) {
      batches.push_back(knobs.micro_batch_size);
    }
  }
  BOOST_TEST((batches == std::vector<int64_t>{2, 4}));
  BOOST_TEST(story.request_of(story.best_hash).spec.knobs.micro_batch_size == 4);
}

// The two values make the same program.
BOOST_AUTO_TEST_CASE(without_a_least_gain_a_schedule_is_found, *boost::unit_test::timeout(60)) {
  spec::SweepSpec sweep = testing::small_sweep(
      {{"pipeline_model_parallel_size", {"1", "2"}}, {"linear_ce_chunk_tokens", {"128", "256"}}});
  sweep.base.knobs.linear_ce_chunk_tokens = 128;
  sweep.base.hardware.memory_bytes = 0;
  sweep.min_gain_ratio = 0;
  BOOST_TEST(drive(sweep, run_in_fake_world).has_ended);
}

BOOST_AUTO_TEST_CASE(retuning_changes_one_knob_and_what_it_frees_of_recomputation) {
  const Story& story = wide_story();
  int num_looked_at = 0;
  int num_kept = 0;
  for (const Decision& decision : story.decisions) {
    if (decision.phase != Phase::retune || decision.knob.empty()) continue;
    ++num_looked_at;
    num_kept += decision.kind == DecisionKind::kept ? 1 : 0;
    const Knobs before = story.request_of(decision.baseline_hash).spec.knobs;
    const Knobs after = story.request_of(decision.trial_hash).spec.knobs;
    BOOST_TEST_CONTEXT(decision.text) {
      BOOST_TEST(decision.value_before != decision.value_after);
      // The same point by that one change and, where it freed memory, less recomputation.
      Knobs changed = before;
      spec::set_knob(changed, *spec::find_knob(decision.knob), decision.value_after);
      if (after.recompute != changed.recompute) {
        BOOST_TEST(recompute_weight(after.recompute) < recompute_weight(changed.recompute));
        changed.recompute = after.recompute;
      }
      const spec::SweepSpec sweep = wide_sweep();
      BOOST_TEST((SearchSpace(sweep).completed(changed) == after));
      BOOST_REQUIRE(decision.gain_low_ratio.has_value());
      BOOST_REQUIRE(decision.gain_high_ratio.has_value());
      BOOST_TEST(*decision.gain_low_ratio <= decision.gain_ratio.value());
      BOOST_TEST(*decision.gain_high_ratio >= decision.gain_ratio.value());
      if (decision.kind == DecisionKind::kept)
        BOOST_TEST(*decision.gain_low_ratio > sweep.min_gain_ratio);
      if (decision.kind == DecisionKind::rejected)
        BOOST_TEST(*decision.gain_high_ratio < sweep.min_gain_ratio);
    }
  }
  BOOST_TEST(num_looked_at > 5);
  BOOST_TEST(num_kept > 2);
}

BOOST_AUTO_TEST_CASE(small_gains_are_not_kept_and_noisy_ones_are_undecided) {
  spec::SweepSpec sweep = narrow_sweep();
  // The largest gain that there is is one of 20 %.
  sweep.min_gain_ratio = 0.25;
  const Story small = drive(sweep, run_in_fake_world);
  check_manners(sweep, small);
  BOOST_TEST(!small.has_decision(Phase::retune, DecisionKind::kept));
  BOOST_TEST(!small.has_decision(Phase::retune, DecisionKind::undecided));
  BOOST_TEST(small.has_decision(Phase::retune, DecisionKind::rejected));
  sweep = narrow_sweep();
  const Story noisy = drive(sweep, [&](const TrialRequest& request) {
    TrialOutcome outcome = run_in_fake_world(request);
    outcome.step_low_ns = outcome.step_ns - outcome.step_ns / 3;
    return outcome;
  });
  check_manners(sweep, noisy);
  BOOST_TEST(noisy.has_decision(Phase::retune, DecisionKind::undecided));
  BOOST_TEST(
      drive(narrow_sweep(), run_in_fake_world).has_decision(Phase::retune, DecisionKind::kept));
}

// The larger micro-batch was chosen for its few launches, and fits only by recomputation.
BOOST_AUTO_TEST_CASE(a_smaller_micro_batch_is_judged_without_the_recomputation_of_the_larger) {
  spec::SweepSpec sweep = testing::small_sweep(
      {{"micro_batch_size", {"1", "2"}}, {"recompute", {"none", "norm,core_attn,moe_act"}}});
  sweep.base.knobs.data_parallel_size = 4;
  sweep.base.knobs.pipeline_model_parallel_size = 2;
  const auto peak = [&](int64_t micro_batch, const char* recompute) {
    spec::TrialSpec spec = sweep.base;
    spec.knobs.micro_batch_size = micro_batch;
    spec.knobs.recompute = spec::RecomputeSet(recompute);
    spec.num_steps = std::max(spec.num_steps, sweep.validate_steps);
    return testing::peak_of(spec);
  };
  sweep.base.hardware.memory_bytes = std::max(peak(1, "none"), peak(2, "norm,core_attn,moe_act"));
  BOOST_TEST_REQUIRE(peak(2, "none") > sweep.base.hardware.memory_bytes);
  sweep.base.hardware.peak_flops_per_s = 3e9;
  sweep.base.hardware.launch_ns = 20'000;
  const Story story = drive(sweep, [](const TrialRequest& request) {
    TrialOutcome outcome = run_in_fake_world(request);
    if (outcome.step_ns > 0) {
      outcome.step_ns = request.spec.knobs.recompute.empty() ? 10'000'000 : 12'000'000;
    }
    return outcome;
  });
  check_manners(sweep, story);
  const Knobs& best = story.request_of(story.best_hash).spec.knobs;
  BOOST_TEST(best.micro_batch_size == 1);
  BOOST_TEST(best.recompute.empty());
  for (const TrialRequest& request : story.started()) {
    const Knobs& knobs = request.spec.knobs;
    BOOST_TEST((request.is_reference || knobs.micro_batch_size == 2 || knobs.recompute.empty()));
  }
}

BOOST_AUTO_TEST_CASE(a_resumed_search_goes_the_same_way) {
  const Story& first = wide_story();
  size_t at = 0;
  const Story second = drive(wide_sweep(), [&](const TrialRequest& request) {
    // The next stored outcome and no other.
    BOOST_REQUIRE(at < first.requests.size());
    BOOST_REQUIRE(request.hash == first.requests[at].hash);
    return first.outcomes[at++];
  });
  BOOST_TEST(texts_of(second.requests) == texts_of(first.requests),
             boost::test_tools::per_element());
  BOOST_TEST(texts_of(second.decisions) == texts_of(first.decisions),
             boost::test_tools::per_element());
  BOOST_TEST(second.best_hash == first.best_hash);
}

BOOST_AUTO_TEST_CASE(decisions_taken_step_by_step_are_those_of_one_look_back) {
  // All outcomes known beforehand: one ask() walks the whole way.
  const Story& story = wide_story();
  ThreeWalls strategy(wide_sweep());
  for (size_t i = 0; i < story.requests.size(); ++i) {
    strategy.tell(story.requests[i], story.outcomes[i]);
  }
  BOOST_TEST(!strategy.ask().has_value());
  BOOST_TEST(texts_of(strategy.take_decisions()) == texts_of(story.decisions),
             boost::test_tools::per_element());
  const Progress progress = strategy.progress();
  BOOST_TEST(progress.num_asked == static_cast<int64_t>(story.started().size()));
  BOOST_TEST(progress.num_expected == progress.num_asked);
}

const TrialStatus kBadEnds[] = {TrialStatus::oom, TrialStatus::wrong, TrialStatus::failed,
                                TrialStatus::crashed, TrialStatus::hung};

BOOST_DATA_TEST_CASE(any_trial_may_end_badly, data::xrange(std::size(kBadEnds)), index) {
  const TrialStatus status = kBadEnds[index];
  const spec::SweepSpec sweep = narrow_sweep();
  const size_t num_started = drive(sweep, run_in_fake_world).started().size();
  BOOST_REQUIRE(num_started > 6U);
  for (size_t position = 0; position < num_started; ++position) {
    BOOST_TEST_CONTEXT(spec::name_of(status) << " at trial " << position) {
      size_t count = 0;
      const Story story = drive(sweep, [&](const TrialRequest& request) {
        if (request.action != Action::run || count++ != position) return run_in_fake_world(request);
        TrialOutcome bad;
        bad.status = status;
        bad.reason = "on purpose";
        return bad;
      });
      check_manners(sweep, story);
      if (position == 0) {
        BOOST_TEST(story.started().size() == 1U);
        BOOST_TEST(story.best_hash == "");
      } else {
        // Something else is found, and it is validated.
        BOOST_TEST(story.has_decision(Phase::validate, DecisionKind::kept));
        BOOST_TEST((story.outcome_of(story.best_hash).status == TrialStatus::ok));
      }
    }
  }
}

BOOST_DATA_TEST_CASE(all_trials_may_end_badly, data::xrange(std::size(kBadEnds)), index) {
  const spec::SweepSpec sweep = narrow_sweep();
  const Story story = drive(sweep, [&](const TrialRequest& request) {
    TrialOutcome outcome = run_in_fake_world(request);
    if (request.action != Action::run || request.is_reference) return outcome;
    outcome = {};
    outcome.status = kBadEnds[index];
    outcome.reason = "on purpose";
    return outcome;
  });
  check_manners(sweep, story);
  BOOST_TEST(story.best_hash == "");
  BOOST_TEST(story.has_decision(Phase::fit, DecisionKind::note));
}

BOOST_DATA_TEST_CASE(trials_are_limited_and_one_is_kept_for_the_validation,
                     data::make({1, 2, 3, 4, 5, 7, 10}), max_trials) {
  spec::SweepSpec sweep = wide_sweep();
  sweep.budget.max_trials = max_trials;
  const Story story = drive(sweep, run_in_fake_world);
  check_manners(sweep, story);
  const std::vector<TrialRequest> started = story.started();
  if (max_trials < 4) {  // reference, baseline, the first that fits, its validation
    BOOST_TEST(started.size() < static_cast<size_t>(max_trials));
    BOOST_TEST(story.best_hash == "");
  } else {
    BOOST_TEST(started.size() == static_cast<size_t>(max_trials));
    BOOST_TEST(started.back().is_final);
    BOOST_TEST(story.best_hash == started.back().hash);
  }
}

BOOST_AUTO_TEST_CASE(a_budget_without_room_for_the_runner_up_is_kept_to) {
  spec::SweepSpec sweep = wide_sweep();
  sweep.budget.max_trials = 8;
  const Story story = drive(sweep, [](const TrialRequest& request) {
    TrialOutcome outcome = run_in_fake_world(request);
    if (request.is_final) std::ranges::fill(outcome.losses, 9.0);
    return outcome;
  });
  check_manners(sweep, story);
  BOOST_TEST(story.started().size() == 8U);
  BOOST_TEST(!story.has_decision(Phase::validate, DecisionKind::kept));
}

BOOST_DATA_TEST_CASE(told_to_finish_it_only_validates, data::xrange(size_t{0}, size_t{14}), after) {
  const spec::SweepSpec sweep = wide_sweep();
  const Story story = drive(sweep, run_in_fake_world, after);
  check_manners(sweep, story);
  const std::vector<TrialRequest> started = story.started();
  if (after < 3) {  // nothing fits yet
    BOOST_TEST(started.size() == after);
    BOOST_TEST(story.best_hash == "");
  } else {
    BOOST_TEST(started.size() == after + 1);
    BOOST_TEST(started.back().is_final);
    BOOST_TEST(story.best_hash == started.back().hash);
    // The same way as without hurry until then.
    for (size_t i = 0; i < after; ++i) {
      BOOST_TEST(started[i].hash == wide_story().started()[i].hash);
    }
  }
  BOOST_TEST(
      texts_of(drive(sweep, run_in_fake_world, after).decisions) == texts_of(story.decisions),
      boost::test_tools::per_element());
}

// Two nodes whose kernels and links are slower than the file says, each by another factor.
spec::HardwareSpec slower_cluster(spec::HardwareSpec hardware) {
  hardware.peak_flops_per_s *= 0.7;
  hardware.memory_bytes_per_s *= 0.8;
  hardware.intra_node.bytes_per_s *= 0.8;
  hardware.inter_node.bytes_per_s *= 0.6;
  hardware.launch_ns = hardware.launch_ns * 3 / 2;
  return hardware;
}

TrialOutcome run_in_played_world(const TrialRequest& request) {
  TrialOutcome outcome = run_in_fake_world(request);
  if (outcome.status != TrialStatus::ok || request.is_reference) return outcome;
  outcome.shares.clear();
  spec::TrialSpec truth = request.spec;
  truth.hardware = slower_cluster(truth.hardware);
  testing::tell_played_step(truth, CompiledStep(truth), outcome);
  return outcome;
}

spec::SweepSpec played_sweep() {
  spec::SweepSpec sweep = testing::small_sweep({
      {"expert_model_parallel_size", {"1", "2", "4", "8"}},
      {"pipeline_model_parallel_size", {"1", "2", "4"}},
      {"micro_batch_size", {"1", "2"}},
      {"recompute", {"none", "moe_act", "full"}},
      {"ep_chunks_forward", {"1", "2"}},
      {"overlap_grad_reduce", {"false", "true"}},
      {"use_distributed_optimizer", {"false", "true"}},
  });
  sweep.base.clock = spec::ClockMode::virtual_modelled;
  sweep.base.hardware.memory_bytes = testing::peak_of(sweep.base) * 85 / 100;
  sweep.base.hardware.peak_flops_per_s = 5e10;
  sweep.base.hardware.memory_bytes_per_s = 2e10;
  sweep.scale_trials = 12;
  return sweep;
}

// The best of all points is found, by a part of the trials that a fixed number of layouts takes.
BOOST_AUTO_TEST_CASE(the_search_stops_where_nothing_promises_enough) {
  const spec::SweepSpec sweep = played_sweep();
  const Story story = drive(sweep, run_in_played_world);
  check_manners(sweep, story);
  int64_t best_ns = std::numeric_limits<int64_t>::max();
  const SearchSpace space(sweep);
  for (const Knobs& knobs : space.all()) {
    if (!space.check(knobs).empty()) continue;
    TrialRequest request;
    request.spec = sweep.base;
    request.spec.knobs = knobs;
    request.spec.num_steps = sweep.validate_steps;
    const TrialOutcome outcome = run_in_played_world(request);
    if (outcome.status == TrialStatus::ok) best_ns = std::min(best_ns, outcome.step_ns);
  }
  BOOST_TEST(static_cast<double>(story.outcome_of(story.best_hash).step_ns) <=
             1.01 * static_cast<double>(best_ns));
  const auto note = std::ranges::find_if(story.decisions, [](const Decision& decision) {
    return decision.phase == Phase::scale && decision.text.starts_with("No more layouts: ");
  });
  BOOST_TEST_REQUIRE((note != story.decisions.end()));
  BOOST_TEST(note->evidence.at("optimism").get<double>() <= 1.0);
  // As many as are asked for all the same, as far as there are any.
  spec::SweepSpec more = sweep;
  more.budget.min_trials = static_cast<int64_t>(story.started().size()) + 4;
  const Story longer = drive(more, run_in_played_world);
  BOOST_TEST(static_cast<int64_t>(longer.started().size()) >= more.budget.min_trials);
}

// Without a model of time nothing is hopeless, and nothing promises more than the playbook says.
BOOST_AUTO_TEST_CASE(without_a_prediction_of_time_nothing_is_left_out) {
  const spec::SweepSpec sweep = played_sweep();
  ThreeWalls strategy(sweep, TimePredictor::none);
  size_t num_started = 0;
  while (const std::optional<TrialRequest> request = strategy.ask()) {
    num_started += request->action == Action::run;
    strategy.tell(*request, run_in_played_world(*request));
    for (const Decision& decision : strategy.take_decisions()) {
      BOOST_TEST(!decision.text.starts_with("No more layouts: "));
      BOOST_TEST(!decision.remedy.starts_with("predicted"));
    }
  }
  BOOST_TEST(num_started > drive(sweep, run_in_played_world).started().size());
}

BOOST_AUTO_TEST_CASE(strategies_are_known_by_name) {
  const spec::SweepSpec sweep = narrow_sweep();
  BOOST_TEST((make_strategy("three_walls", sweep) != nullptr));
  const std::string error = samples::usage_error([&] { (void)make_strategy("guess", sweep); });
  BOOST_TEST(samples::contains(error, "'guess'"), error);
  BOOST_TEST(samples::contains(error, "three_walls"), error);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
