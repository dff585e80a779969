// One search from its first trial to its end, and checks of its manners.
#include "tests/tuner/strategies/three_walls_helper.h"

#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <utility>

namespace moetune::tuner::testing {

spec::SweepSpec wide_sweep() {
  spec::SweepSpec sweep = small_sweep({
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
  sweep.base.hardware.memory_bytes = peak_of(sweep.base) * 85 / 100;
  return sweep;
}

spec::SweepSpec narrow_sweep() {
  spec::SweepSpec sweep = small_sweep({{"expert_model_parallel_size", {"1", "4"}},
                                       {"recompute", {"none", "norm"}},
                                       {"ep_chunks_forward", {"1", "2"}},
                                       {"cuda_graph_modules", {"none", "moe_router"}},
                                       {"use_distributed_optimizer", {"false", "true"}}});
  sweep.base.hardware.memory_bytes = peak_of(sweep.base) * 85 / 100;
  sweep.validate_steps = 3;
  return sweep;
}

Story drive(const spec::SweepSpec& sweep, const World& world, size_t hurry_after) {
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
        BOOST_TEST((story.outcome_of(decision.trial_hash).status == spec::TrialStatus::ok));
      }
    }
  }
}

}  // namespace moetune::tuner::testing
