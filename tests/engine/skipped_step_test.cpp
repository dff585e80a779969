// A step whose gradients are no numbers on one rank changes nothing on any.
#include <boost/test/unit_test.hpp>
#include <limits>

#include "tests/engine/parity_fixture.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(skipped_steps)

namespace {

struct Outcome {
  std::vector<StepResult> steps;
  /// Everything that an update can change, at the end of the run.
  std::map<int, std::vector<std::vector<double>>> state_of_rank;
};

/// Runs `steps`; at the step `bad` a gradient of rank 1 starts as `number`.
Outcome run(const spec::TrialSpec& trial, const std::vector<int64_t>& steps, int64_t bad = -1,
            double number = 0) {
  Outcome outcome;
  std::mutex mutex;
  TrainerHooks hooks;
  hooks.on_zeroed = [&](int64_t step, int rank, const Parameters& params,
                        kernels::Backend& backend) {
    if (step != bad || rank != 1) return;
    const auto narrow = static_cast<float>(number);
    backend.copy_to_device(params.buckets().front().grad.data, &narrow, sizeof(narrow));
  };
  const testing::RandomTokens tokens(trial);
  run_ranks(trial, hooks, [&](RankTrainer& trainer, World&, int rank) {
    std::vector<StepResult> results;
    for (const int64_t step : steps) {
      results.push_back(trainer.step(step, tokens, profiler::TraceLevel::none));
    }
    const std::scoped_lock lock(mutex);
    for (const Bucket& bucket : trainer.params().buckets()) {
      for (const Tensor& tensor : {bucket.weight, bucket.master, bucket.m, bucket.v}) {
        outcome.state_of_rank[rank].push_back(values_of(trainer.backend(), tensor));
      }
    }
    if (rank == 0) outcome.steps = results;
  });
  return outcome;
}

BOOST_AUTO_TEST_CASE(a_skipped_step_changes_no_weight_moment_or_count) {
  for (const char* layout : {R"({"data_parallel_size": 2})",
                             R"({"data_parallel_size": 2, "use_distributed_optimizer": false})",
                             R"({"data_parallel_size": 2, "expert_model_parallel_size": 2,
            "pipeline_model_parallel_size": 2})"}) {
    spec::TrialSpec trial = testing::tiny_trial(testing::tiny_model(), testing::knobs_of(layout));
    trial.training.lr_warmup_steps = 4;  // the rate shows how many updates were counted
    // The batch of step 1 is skipped in one run and left out in the other.
    const Outcome expected = run(trial, {0, 2, 3});
    for (const double number :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      const Outcome skipped = run(trial, {0, 1, 2, 3}, 1, number);
      BOOST_TEST_CONTEXT(layout << " " << number) {
        BOOST_TEST(skipped.steps.at(1).is_skipped);
        BOOST_TEST(!skipped.steps.at(2).is_skipped);
        BOOST_TEST(skipped.steps.at(3).lr == expected.steps.at(2).lr);
        BOOST_TEST(skipped.steps.at(3).loss == expected.steps.at(2).loss);
        for (const auto& [rank, state] : expected.state_of_rank) {
          BOOST_TEST((skipped.state_of_rank.at(rank) == state));
        }
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
