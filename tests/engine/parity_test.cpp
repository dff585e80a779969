// Every layout trains like one rank, and choices that only change the schedule change no bit.
#include <boost/test/unit_test.hpp>
#include <functional>

#include "tests/engine/parity_fixture.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(parity)

namespace {

using testing::check_close;
using testing::check_constraints_hold;
using testing::check_identical;
using testing::differences;
using testing::kLayouts;
using testing::knobs_of;
using testing::tiny_model;
using testing::tiny_trial;
using testing::train;
using testing::TrainingRun;

constexpr int64_t kSteps = 5;

void check_layouts(const spec::ModelSpec& model) {
  const TrainingRun expected = train(tiny_trial(model), kSteps);
  BOOST_TEST(expected.steps.back().loss < expected.steps.front().loss + 1.0);
  for (const char* layout : kLayouts) {
    BOOST_TEST_CONTEXT(layout) {
      const spec::TrialSpec trial = tiny_trial(model, knobs_of(layout));
      check_constraints_hold(trial);
      check_close(train(trial, kSteps), expected, 1e-5);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_comparison_sees_a_difference_in_any_step_and_number) {
  const TrainingRun expected = train(tiny_trial(tiny_model()), 3);
  for (const double tolerance : {0.0, 1e-5}) {
    BOOST_TEST(differences(expected, expected, tolerance).empty());
    const auto num_found = [&](const std::function<void(TrainingRun&)>& change) {
      TrainingRun run = expected;
      change(run);
      return differences(run, expected, tolerance).size();
    };
    for (size_t step = 0; step < 3; ++step) {
      for (double StepResult::*number : {&StepResult::loss, &StepResult::aux_loss,
                                         &StepResult::z_loss, &StepResult::grad_norm}) {
        BOOST_TEST(num_found([&](TrainingRun& run) { run.steps[step].*number *= 1.0001; }) == 1U);
        BOOST_TEST(num_found([&](TrainingRun& run) { run.steps[step].*number = NAN; }) == 1U);
      }
      for (const auto& [name, gradient] : expected.gradients[step]) {
        const std::string& tensor = name;
        const auto change_all = [&](double factor) {
          return num_found([&](TrainingRun& run) {
            for (double& value : run.gradients[step].at(tensor)) value *= factor;
          });
        };
        BOOST_TEST(change_all(1.0001) == 1U, "step " << step << ", " << tensor);
        BOOST_TEST(change_all(NAN) == 1U, "step " << step << ", " << tensor);
      }
      BOOST_TEST(num_found([&](TrainingRun& run) { run.gradients[step].clear(); }) > 0U);
      BOOST_TEST(num_found([&](TrainingRun& run) { run.gradients[step]["more"] = {1}; }) == 1U);
      BOOST_TEST(num_found([&](TrainingRun& run) {
                   run.gradients[step].begin()->second.push_back(0);
                 }) == 1U);
    }
    BOOST_TEST(num_found([](TrainingRun& run) { run.steps.pop_back(); }) == 1U);
    BOOST_TEST(num_found([](TrainingRun& run) { run.gradients.pop_back(); }) == 1U);
    TrainingRun hollow = expected;
    for (testing::GradientMap& gradients : hollow.gradients) gradients.clear();
    BOOST_TEST(differences(hollow, hollow, tolerance).size() == 3U);
    BOOST_TEST(!differences({}, {}, tolerance).empty());
  }
}

BOOST_AUTO_TEST_CASE(every_layout_trains_like_one_rank) { check_layouts(tiny_model()); }

BOOST_AUTO_TEST_CASE(mixed_dense_and_moe_layers_shared_expert_biases_window) {
  check_layouts(testing::mixed_model());
}

BOOST_AUTO_TEST_CASE(tied_embeddings) {
  spec::ModelSpec model = tiny_model();
  model.ties_embeddings = true;
  check_layouts(model);
}

BOOST_AUTO_TEST_CASE(same_seed_same_bits) {
  const spec::TrialSpec trial =
      tiny_trial(tiny_model(), knobs_of(R"({"data_parallel_size": 2, "context_parallel_size": 2,
                                 "expert_model_parallel_size": 4})"));
  check_identical(train(trial, 3), train(trial, 3));
}

BOOST_AUTO_TEST_CASE(schedule_only_choices_change_no_bit) {
  // More tokens than one loss tile, odd chunk borders, several micro-batches.
  const std::string base = R"("data_parallel_size": 2, "expert_model_parallel_size": 2,
                              "micro_batch_size": 2)";
  const char* const kChoices[] = {
      R"("recompute": "norm")",
      R"("recompute": "core_attn")",
      R"("recompute": "moe_act")",
      R"("recompute": "experts")",
      R"("recompute": "norm,core_attn,moe_act,experts")",
      R"("recompute": "full")",
      R"("ep_chunks_forward": 2)",
      R"("ep_chunks_forward": 3, "ep_chunks_backward": 5)",
      R"("ep_chunks_backward": 4, "recompute": "full")",
      R"("linear_ce_chunk_tokens": 64)",
      R"("linear_ce_chunk_tokens": 128)",
      R"("cuda_graph_modules": "attn")",
      R"("cuda_graph_modules": "attn,moe_router,moe_preprocess")",
      R"("overlap_grad_reduce": true)",
  };
  for (const bool has_shared : {false, true}) {
    spec::ModelSpec model = tiny_model();
    if (has_shared) model.shared_ffn_size = 8;
    const auto make = [&](const std::string& choice) {
      spec::TrialSpec trial =
          tiny_trial(model, knobs_of("{" + base + (choice.empty() ? "" : "," + choice) + "}"));
      trial.training.global_batch_size = 8;
      trial.training.seq_length = 48;
      check_constraints_hold(trial);
      return trial;
    };
    const TrainingRun expected = train(make(""), 3);
    for (const char* choice : kChoices) {
      BOOST_TEST_CONTEXT(choice) { check_identical(train(make(choice), 3), expected); }
    }
  }
}

BOOST_AUTO_TEST_CASE(recompute_under_context_and_pipeline_parallelism_changes_no_bit) {
  const std::string base = R"("context_parallel_size": 2, "pipeline_model_parallel_size": 2,
                              "expert_model_parallel_size": 2)";
  const auto make = [&](const std::string& choice) {
    return tiny_trial(tiny_model(), knobs_of("{" + base + choice + "}"));
  };
  const TrainingRun expected = train(make(""), 3);
  for (const char* choice : {R"(, "recompute": "core_attn")", R"(, "recompute": "full")",
                             R"(, "recompute": "norm,core_attn,moe_act,experts")"}) {
    BOOST_TEST_CONTEXT(choice) { check_identical(train(make(choice), 3), expected); }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
