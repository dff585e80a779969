// Communication in flight on the emulated cluster: what it takes from operations and from other
// communication, in the engine as in the cost model.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "tests/engine/recorded_layouts.h"
#include "tuner/cost_model.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(contention)

namespace {

using testing::knobs_of;

/// Long kernels, so that none of them waits for the host. Every token goes to every expert, so that
/// nobody has to know the routes.
spec::TrialSpec slow_trial(const char* knobs, double comm_sm_ratio) {
  spec::ModelSpec model = testing::with_layers(testing::tiny_model(), 4);
  model.experts_per_token = model.num_experts;
  spec::TrialSpec trial = testing::tiny_trial(model, knobs_of(knobs));
  trial.hardware.kernel_floor_ns = 10000;
  trial.hardware.comm_sm_ratio = comm_sm_ratio;
  return trial;
}

int64_t num_kernels_of(const testing::TrainingRun& run, int64_t duration_ns) {
  return std::ranges::count_if(run.traces.front().records, [&](const auto& record) {
    return record.kind == profiler::RecordKind::kernel &&
           record.end_ns - record.start_ns == duration_ns;
  });
}

constexpr const char* kApart = R"({"data_parallel_size": 2})";
constexpr const char* kOverlapped = R"({"data_parallel_size": 2, "overlap_grad_reduce": true})";

BOOST_AUTO_TEST_CASE(operations_beside_a_reduction_take_longer) {
  const testing::TrainingRun apart = testing::train(slow_trial(kApart, 0.2), 1);
  BOOST_TEST(num_kernels_of(apart, 12500) == 0);
  const testing::TrainingRun overlapped = testing::train(slow_trial(kOverlapped, 0.2), 1);
  BOOST_TEST(num_kernels_of(overlapped, 12500) > 0);
  BOOST_TEST(num_kernels_of(overlapped, 10000) > 0);
  const testing::TrainingRun free_of_charge = testing::train(slow_trial(kOverlapped, 0), 1);
  BOOST_TEST(num_kernels_of(free_of_charge, 12500) == 0);
  BOOST_TEST(overlapped.steps[0].step_ns > free_of_charge.steps[0].step_ns);
}

struct Predicted {
  const char* knobs;
  /// The cost model plays one rank of a stage, and the padding between parameters does not lie in
  /// all shards of the optimizer alike.
  double tolerance = 0;
};

const Predicted kPredicted[] = {
    {kApart},
    {kOverlapped},
    {R"({"pipeline_model_parallel_size": 3})"},
    {R"({"data_parallel_size": 2, "pipeline_model_parallel_size": 2,
         "overlap_grad_reduce": true})"},
    {R"({"tensor_model_parallel_size": 2})", 1e-4},
    {R"({"tensor_model_parallel_size": 2, "use_distributed_optimizer": false})"},
    {R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2, "overlap_grad_reduce": true})",
     1e-4},
    {R"({"context_parallel_size": 2, "cp_comm_type": "p2p"})"},
    {R"({"context_parallel_size": 4, "cp_comm_type": "p2p", "recompute": "core_attn"})", 1e-4},
    {R"({"context_parallel_size": 4, "cp_comm_type": "p2p", "use_distributed_optimizer": false})"},
    {R"({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2})"},
    {R"({"data_parallel_size": 2, "expert_tensor_parallel_size": 2})"},
    {R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2, "cp_comm_type": "p2p",
         "pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2,
         "expert_model_parallel_size": 2, "expert_tensor_parallel_size": 2})"},
};

BOOST_AUTO_TEST_CASE(the_cost_model_knows_it) {
  for (const Predicted& row : kPredicted) {
    // Kernels count with the one, transfers with the other.
    for (const double bytes_per_s : {1e10, 1e7}) {
      spec::TrialSpec trial = slow_trial(row.knobs, 0.2);
      trial.hardware.intra_node.bytes_per_s = bytes_per_s;
      testing::check_constraints_hold(trial);
      const auto predicted = static_cast<double>(tuner::play_step(trial, {}).step_ns);
      const auto found = static_cast<double>(testing::train(trial, 1).steps[0].step_ns);
      BOOST_TEST_CONTEXT(row.knobs << " " << bytes_per_s) {
        BOOST_TEST(predicted == found, boost::test_tools::tolerance(row.tolerance));
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
