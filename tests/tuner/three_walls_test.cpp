// The workflow as a whole against a world whose best configuration is known, and its manners when
// things go wrong.
#include "tuner/strategies/three_walls.h"

#include <fmt/format.h>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "kernels/base/error.h"
#include "tests/tuner/fake_world.h"
#include "tests/tuner/played_world.h"
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
using testing::run_in_fake_world;

constexpr size_t kMaxAsks = 300;

spec::SweepSpec wide_sweep() {
  spec::SweepSpec sweep = testing::small_sweep({
      {"expert_model_parallel_size", {"1", "2", "3", "4", "8"}},  // 3: not legal
      {"pipeline_model_parallel_size", {"1", "2", "4"}},
      {"context_parallel_size", {"1", "2"}},
      {"micro_batch_size", {"1", "2", "4"}},
      {"recompute", {"none", "norm", "norm,moe_act", "full"}},
      {"ep_chunks_forward", {"1", "2", "4"}},
      {"ep_chunks_backward", {"1", "2", "4"}},
      {"cuda_graph_modules", {"none", "moe_router"}},
      {"overlap_grad_reduce", {"false", "true"}},
      {"use_distributed_optimizer", {"false", "true"}},
  });
  // The start lacks a few bytes.
  sweep.base.hardware.memory_bytes = testing::peak_of(sweep.base) * 85 / 100;
  return sweep;
}

spec::SweepSpec narrow_sweep() {
  spec::SweepSpec sweep = testing::small_sweep({{"expert_model_parallel_size", {"1", "4"}},
                                                {"recompute", {"none", "norm"}},
                                                {"ep_chunks_forward", {"1", "2"}},
                                                {"cuda_graph_modules", {"none", "moe_router"}},
                                                {"use_distributed_optimizer", {"false", "true"}}});
  sweep.base.hardware.memory_bytes = testing::peak_of(sweep.base) * 85 / 100;
  sweep.validate_steps = 3;
  return sweep;
}

using World = std::function<TrialOutcome(const TrialRequest&)>;

/// All that one search did.
struct Story {
  std::vector<TrialRequest> requests;
  std::vector<TrialOutcome> outcomes;
  std::vector<Decision> decisions;
  std::string best_hash;
  bool has_ended = false;

  [[nodiscard]] std::vector<TrialRequest> started() const {
    std::vector<TrialRequest> trials;
    for (const TrialRequest& request : requests) {
      if (request.action == Action::run) trials.push_back(request);
    }
    return trials;
  }
  [[nodiscard]] const TrialOutcome& outcome_of(const std::string& hash) const {
    for (size_t i = requests.size(); i-- > 0;) {
      if (requests[i].hash == hash) return outcomes[i];
    }
    BOOST_FAIL("nothing ran as " << hash);
    throw base::Error("unreachable");
  }
  [[nodiscard]] const TrialRequest& request_of(const std::string& hash) const {
    for (size_t i = requests.size(); i-- > 0;) {
      if (requests[i].hash == hash) return requests[i];
    }
    BOOST_FAIL("nothing was asked as " << hash);
    throw base::Error("unreachable");
  }
  [[nodiscard]] bool has_decision(Phase phase, DecisionKind kind) const {
    return std::any_of(decisions.begin(), decisions.end(),
                       [&](const Decision& d) { return d.phase == phase && d.kind == kind; });
  }
};

/// `hurry_after`: told to finish soon when so many trials have been started.
Story drive(const spec::SweepSpec& sweep, const World& world, size_t hurry_after = kMaxAsks) {
  const std::unique_ptr<Strategy> strategy = make_strategy("three_walls", sweep);
  Story story;
  const auto take = [&] {
    for (Decision& decision : strategy->take_decisions()) story.decisions.push_back(decision);
  };
  while (story.requests.size() < kMaxAsks) {
    if (story.started().size() >= hurry_after) strategy->finish_soon();
    const std::optional<TrialRequest> request = strategy->ask();
    take();
    story.best_hash = strategy->best_hash();
    if (!request) {
      story.has_ended = true;
      break;
    }
    story.requests.push_back(*request);
    story.outcomes.push_back(world(*request));
    strategy->tell(*request, story.outcomes.back());
    take();
  }
  return story;
}

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

/// What every search keeps to, however it went.
void check_manners(const spec::SweepSpec& sweep, const Story& story) {
  BOOST_TEST(story.has_ended);
  std::set<std::pair<std::string, int64_t>> started;
  for (const TrialRequest& request : story.requests) {
    BOOST_TEST(request.hash == spec::spec_hash(request.spec));
    BOOST_TEST(!request.title.empty());
    if (request.action == Action::run) {
      BOOST_TEST(started.insert({request.hash, request.attempt}).second,
                 request.title << " is asked for again");
      BOOST_TEST((request.attempt == 0) == (request.purpose == Purpose::first));
      BOOST_TEST(request.reason == "");
    } else {
      BOOST_TEST(request.reason.size() > 10U);
      BOOST_TEST(!request.is_reference);
    }
    const bool is_invalid = request.action == Action::invalid;
    const SearchSpace space(sweep);
    if (!request.is_reference) {
      BOOST_TEST(space.check(request.spec.knobs).empty() == !is_invalid);
    }
  }
  BOOST_TEST(static_cast<int64_t>(started.size()) <= sweep.budget.max_trials);
  Phase last = Phase::contract;
  for (const Decision& decision : story.decisions) {
    BOOST_TEST_CONTEXT(decision.text) {
      // Forward only, but for the profile between two turns of retuning.
      BOOST_TEST(
          (decision.phase >= last || (decision.phase == Phase::profile && last == Phase::retune)));
      last = decision.phase;
      BOOST_TEST(std::isfinite(decision.gain_ratio.value_or(0)));
      if (decision.kind != DecisionKind::note) BOOST_TEST(!decision.evidence.empty());
      BOOST_REQUIRE(!decision.text.empty());
      BOOST_TEST(decision.text.back() == '.');
      if (decision.kind == DecisionKind::kept && decision.phase == Phase::retune) {
        BOOST_REQUIRE(decision.gain_ratio.has_value());
        BOOST_REQUIRE(decision.noise_ratio.has_value());
        BOOST_TEST(*decision.gain_ratio > std::max(sweep.min_gain_ratio, *decision.noise_ratio));
        BOOST_TEST(decision.evidence.at("before").at("step_ns").is_number());
        BOOST_TEST(decision.evidence.at("after").at("step_ns").is_number());
        BOOST_TEST((story.outcome_of(decision.trial_hash).status == TrialStatus::ok));
      }
    }
  }
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

/// The fake world with noise between runs, one run a second.
World noisy_world(double noise, uint64_t seed) {
  return [noise, random = std::mt19937_64(seed), normal = std::normal_distribution<double>(),
          time = 1000.0](const TrialRequest& request) mutable {
    TrialOutcome outcome = run_in_fake_world(request);
    if (outcome.status != TrialStatus::ok) return outcome;
    const double factor = std::exp(noise * normal(random));
    for (int64_t* ns : {&outcome.step_ns, &outcome.step_low_ns, &outcome.step_high_ns}) {
      *ns = std::llround(static_cast<double>(*ns) * factor);
    }
    outcome.started_s = time;
    outcome.ended_s = time += 1;
    return outcome;
  };
}

BOOST_AUTO_TEST_CASE(what_the_noise_hides_is_told_as_undecided) {
  const spec::SweepSpec sweep = narrow_sweep();
  const Story story = drive(sweep, noisy_world(0.06, 3));
  check_manners(sweep, story);
  int num_undecided = 0;
  for (const Decision& decision : story.decisions) {
    if (decision.kind != DecisionKind::undecided) continue;
    ++num_undecided;
    BOOST_TEST_CONTEXT(decision.text) {
      BOOST_TEST(decision.text.find("undecided") != std::string::npos);
      BOOST_TEST(decision.gain_low_ratio.value() < sweep.min_gain_ratio);
      BOOST_TEST(decision.gain_high_ratio.value() > sweep.min_gain_ratio);
      BOOST_TEST(decision.evidence.at("judgement").at("run_noise_ratio").get<double>() > 0.01);
    }
  }
  BOOST_TEST(num_undecided > 0);
  std::set<Purpose> purposes;
  for (const TrialRequest& request : story.started()) purposes.insert(request.purpose);
  BOOST_TEST(purposes.size() == 4U);  // first, again, longer, in turns
  BOOST_TEST(story.has_decision(Phase::validate, DecisionKind::note));
}

BOOST_AUTO_TEST_CASE(a_noisy_machine_seldom_makes_a_worse_one_win) {
  const spec::SweepSpec sweep = narrow_sweep();
  const auto found = [&](const Story& story) {
    return static_cast<double>(testing::step_of(story.request_of(story.best_hash).spec.knobs));
  };
  const double quiet = found(drive(sweep, run_in_fake_world));
  constexpr int kSearches = 8;
  int num_good = 0;
  for (uint64_t seed = 0; seed < kSearches; ++seed) {
    num_good += found(drive(sweep, noisy_world(0.015, seed))) <= 1.05 * quiet;
  }
  BOOST_TEST(num_good >= kSearches - 1);
}

// Something else kept the machine busy during the first run of the best layout.
BOOST_AUTO_TEST_CASE(the_best_does_not_lose_by_one_unlucky_run) {
  const spec::SweepSpec sweep = narrow_sweep();
  int num_unlucky = 0;
  const Story story = drive(sweep, [&, world = noisy_world(0.001, 1)](const TrialRequest& request) {
    TrialOutcome outcome = world(request);
    if (request.spec.knobs.expert_model_parallel_size != 4 || num_unlucky > 0) return outcome;
    ++num_unlucky;
    for (int64_t* ns : {&outcome.step_ns, &outcome.step_low_ns, &outcome.step_high_ns}) {
      *ns = *ns * 13 / 10;
    }
    return outcome;
  });
  check_manners(sweep, story);
  BOOST_TEST(num_unlucky == 1);
  const auto again = std::ranges::find_if(story.requests, [](const TrialRequest& request) {
    return request.phase == Phase::scale && request.purpose == Purpose::again &&
           request.spec.knobs.expert_model_parallel_size == 4;
  });
  BOOST_TEST((again != story.requests.end()));
  BOOST_TEST(story.request_of(story.best_hash).spec.knobs.expert_model_parallel_size == 4);
}

BOOST_AUTO_TEST_CASE(of_layouts_that_the_noise_hides_the_likelier_one_is_kept) {
  const spec::SweepSpec sweep = narrow_sweep();
  int num_kept = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Story story = drive(sweep, noisy_world(0.06, seed));
    check_manners(sweep, story);
    for (const Decision& decision : story.decisions) {
      // A layout whose interval holds less than what counts: kept only where a layout is chosen.
      if (decision.kind != DecisionKind::kept || !decision.gain_low_ratio) continue;
      if (*decision.gain_low_ratio > sweep.min_gain_ratio) continue;
      ++num_kept;
      BOOST_TEST_CONTEXT(decision.text) {
        BOOST_TEST((decision.phase == Phase::scale));
        BOOST_TEST(decision.gain_ratio.value() > sweep.min_gain_ratio);
        BOOST_TEST(decision.evidence.at("judgement").at("num_runs_after").get<int>() >= 2);
        BOOST_TEST(decision.text.find("the one that is more likely faster is kept") !=
                   std::string::npos);
      }
    }
  }
  BOOST_TEST(num_kept > 0);
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
