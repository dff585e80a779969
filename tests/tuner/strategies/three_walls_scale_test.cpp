// Which layouts are measured: all choices of a layout together, and again after each trial.
#include <boost/test/unit_test.hpp>

#include "tests/tuner/played_world.h"
#include "tests/tuner/strategies/three_walls_helper.h"
#include "tuner/strategies/three_walls.h"

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(three_walls_scale)

namespace {

using spec::TrialStatus;
using testing::check_manners;
using testing::drive;
using testing::run_in_fake_world;
using testing::Story;

/// First measurements of the scale phase.
std::vector<spec::Knobs> scaled(const Story& story) {
  std::vector<spec::Knobs> knobs;
  for (const TrialRequest& request : story.started()) {
    if (request.phase == Phase::scale && request.purpose == Purpose::first) {
      knobs.push_back(request.spec.knobs);
    }
  }
  return knobs;
}

// Without stages the state of the optimizer does not fit unless it is sharded; then that is the
// best layout.
BOOST_AUTO_TEST_CASE(a_layout_that_fits_with_another_schedule_only_is_measured_with_that) {
  spec::SweepSpec sweep = testing::small_sweep({{"pipeline_model_parallel_size", {"1", "2"}},
                                                {"use_distributed_optimizer", {"false", "true"}}});
  sweep.base.knobs.pipeline_model_parallel_size = 2;
  sweep.base.knobs.data_parallel_size = 4;
  const auto peak = [&](const char* stages, const char* is_sharded) {
    const SearchSpace space(sweep);
    spec::TrialSpec spec = sweep.base;
    spec.knobs = space.with(spec.knobs, "pipeline_model_parallel_size", stages);
    spec.knobs = space.with(spec.knobs, "use_distributed_optimizer", is_sharded);
    spec.num_steps = std::max(spec.num_steps, sweep.validate_steps);
    return testing::peak_of(spec);
  };
  const int64_t capacity = std::max(peak("2", "false"), peak("1", "true"));
  BOOST_TEST_REQUIRE(peak("1", "false") > capacity);
  sweep.base.hardware.memory_bytes = capacity;
  const Story story = drive(sweep, run_in_fake_world);
  check_manners(sweep, story);
  const std::vector<spec::Knobs> measured = scaled(story);
  BOOST_TEST(std::ranges::any_of(measured, [](const spec::Knobs& knobs) {
    return knobs.pipeline_model_parallel_size == 1 && knobs.use_distributed_optimizer;
  }));
  BOOST_TEST(story.request_of(story.best_hash).spec.knobs.pipeline_model_parallel_size == 1);
  const auto ranking = std::ranges::find_if(story.decisions, [](const Decision& decision) {
    return decision.phase == Phase::scale && decision.evidence.contains("num_points");
  });
  BOOST_REQUIRE((ranking != story.decisions.end()));
  BOOST_TEST(ranking->evidence.at("num_points") == 4);  // two layouts, two schedules
}

// By the file links are what counts, so stages look best. The devices are far slower than that, and
// the first layout that is measured tells: those without stages, which were the last, come first.
BOOST_AUTO_TEST_CASE(after_each_trial_the_whole_space_is_ranked_again) {
  spec::SweepSpec sweep = testing::small_sweep({{"pipeline_model_parallel_size", {"1", "2", "4"}},
                                                {"expert_model_parallel_size", {"1", "2", "4"}},
                                                {"micro_batch_size", {"1", "2"}}});
  sweep.base.clock = spec::ClockMode::virtual_modelled;
  sweep.base.knobs.pipeline_model_parallel_size = 4;
  sweep.base.knobs.data_parallel_size = 2;
  sweep.base.hardware.memory_bytes = 0;
  sweep.base.hardware.peak_flops_per_s = 1e10;
  sweep.base.hardware.inter_node.bytes_per_s /= 48;
  sweep.base.hardware.intra_node.bytes_per_s /= 48;
  sweep.scale_trials = 2;
  const auto world = [&](const TrialRequest& request) {
    TrialOutcome outcome = run_in_fake_world(request);
    if (outcome.status != TrialStatus::ok || request.is_reference) return outcome;
    outcome.shares.clear();
    spec::TrialSpec truth = request.spec;
    truth.hardware.peak_flops_per_s = 1e7;
    testing::tell_played_step(truth, CompiledStep(truth), outcome);
    // The trace of the start tells nothing of operations.
    if (request.is_baseline) outcome.op_times.clear();
    return outcome;
  };
  const Story story = drive(sweep, world);
  check_manners(sweep, story);
  const std::vector<spec::Knobs> measured = scaled(story);
  BOOST_TEST_REQUIRE(measured.size() == 2U);
  BOOST_TEST(measured[0].pipeline_model_parallel_size > 1);
  BOOST_TEST(measured[1].pipeline_model_parallel_size == 1);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
