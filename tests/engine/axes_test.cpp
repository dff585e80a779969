// Parallel axes beyond those of the parity suite: each layout trains like one rank, has the memory
// that the model predicts, and plays to the nanosecond.
#include <boost/test/unit_test.hpp>

#include "tests/engine/memory_fixture.h"
#include "tests/engine/played_fixture.h"

namespace moetune::engine {
namespace {

/// Six layers, so that stages can be uneven.
spec::ModelSpec deep_model() {
  spec::ModelSpec model = testing::tiny_model();
  model.num_layers = 6;
  model.is_moe_layer = {true, false, true, true, false, true};
  model.attention_window = {0, 0, 5, 0, 0, 0};
  model.shared_ffn_size = 8;
  model.ties_embeddings = true;
  return model;
}

spec::TrialSpec trial_of(const std::string& layout) {
  spec::TrialSpec trial = testing::tiny_trial(deep_model(), testing::knobs_of(layout));
  trial.training.global_batch_size = 12;
  testing::check_constraints_hold(trial);
  return trial;
}

const char* const kVirtualStages[] = {
    R"({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2})",
    R"({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 3,
        "recompute": "full"})",
    R"({"pipeline_model_parallel_size": 3, "virtual_pipeline_model_parallel_size": 2,
        "data_parallel_size": 2, "expert_model_parallel_size": 2, "overlap_grad_reduce": true})",
    R"({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2,
        "decoder_first_pipeline_num_layers": 2, "context_parallel_size": 2,
        "expert_model_parallel_size": 2, "recompute": "norm,experts"})",
    R"({"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": "Et|ttt|t|tL"})",
    R"({"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": "E|(tt|)*2ttL"})",
    R"({"pipeline_model_parallel_size": 3, "pipeline_model_parallel_layout": "Et|tttt|tL"})",
};

BOOST_AUTO_TEST_SUITE(axes)

BOOST_AUTO_TEST_CASE(virtual_stages) {
  const testing::TrainingRun expected = testing::train(trial_of("{}"), 3);
  const spec::RoutingProfile profile = testing::record_profile(trial_of("{}"));
  for (const char* layout : kVirtualStages) {
    BOOST_TEST_CONTEXT(layout) {
      const spec::TrialSpec trial = trial_of(layout);
      testing::check_close(testing::train(trial, 3), expected, 1e-5);
      testing::check_memory(trial, profile);
      testing::check_played(trial);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::engine
