// Streams run as far apart as events allow: whatever order the device takes, training gives the
// same bits. A dependency that the engine forgets to state shows as another number.
#include "tests/engine/parity_fixture.h"
#include "tests/fakes/simt/simt_device.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(device_schedule)

namespace {

using testing::check_identical;
using testing::kLayouts;
using testing::knobs_of;
using testing::tiny_model;
using testing::tiny_trial;
using testing::train;
using testing::TrainingRun;

struct AdversarialSchedule {
  explicit AdversarialSchedule(uint64_t seed) { simt::set_schedule(simt::adversarial(seed)); }
  ~AdversarialSchedule() { simt::set_schedule(simt::in_order()); }
  AdversarialSchedule(const AdversarialSchedule&) = delete;
  AdversarialSchedule& operator=(const AdversarialSchedule&) = delete;
};

spec::TrialSpec on_device(const spec::ModelSpec& model, const std::string& knobs) {
  spec::TrialSpec trial = tiny_trial(model, knobs_of(knobs));
  trial.backend = spec::BackendKind::cuda;
  trial.clock = spec::ClockMode::wall;
  return trial;
}

void check_schedules(const spec::TrialSpec& trial, int64_t num_steps) {
  const TrainingRun expected = train(trial, num_steps);
  for (const uint64_t seed : {1, 2, 3}) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      const AdversarialSchedule schedule(seed);
      check_identical(train(trial, num_steps), expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(every_layout_states_its_dependencies) {
  for (const char* layout : kLayouts) {
    BOOST_TEST_CONTEXT(layout) { check_schedules(on_device(tiny_model(), layout), 2); }
  }
}

BOOST_AUTO_TEST_CASE(so_do_chunks_recomputation_graphs_and_shared_experts) {
  spec::ModelSpec model = tiny_model();
  model.shared_ffn_size = 8;
  for (const char* knobs :
       {R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "ep_chunks_forward": 3,
            "ep_chunks_backward": 2, "recompute": "norm,core_attn,moe_act,experts"})",
        R"({"context_parallel_size": 2, "expert_model_parallel_size": 2, "recompute": "full",
            "pipeline_model_parallel_size": 2})",
        R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "overlap_grad_reduce": true,
            "cuda_graph_modules": "attn,moe_router,moe_preprocess"})",
        R"({"context_parallel_size": 2, "pipeline_model_parallel_size": 2,
            "cuda_graph_modules": "attn,moe_router,moe_preprocess"})",
        R"({"data_parallel_size": 2, "overlap_grad_reduce": true,
            "cuda_graph_modules": "full_iteration"})"}) {
    BOOST_TEST_CONTEXT(knobs) { check_schedules(on_device(model, knobs), 5); }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
