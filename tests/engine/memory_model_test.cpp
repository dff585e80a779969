// The memory model against the ledger of real runs, on every rank and group: with the routing
// profile of a one-rank run the two agree to the byte.
#include "tuner/memory_model.h"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "tests/engine/memory_fixture.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(memory_model_against_ledger)

namespace {

// What is routed a second time, for the backward pass, is not counted again.
BOOST_AUTO_TEST_CASE(recomputation_leaves_the_profile_as_it_is) {
  const spec::ModelSpec model = testing::tiny_model();
  BOOST_TEST(testing::record_profile(model, "full").counts == testing::record_profile(model).counts,
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(peaks_agree_to_the_byte) {
  spec::ModelSpec mixed = testing::tiny_model();
  mixed.is_moe_layer = {true, false, true};
  mixed.shared_ffn_size = 8;
  mixed.ties_embeddings = true;
  const char* const kKnobs[] = {
      "{}",
      R"({"recompute": "full"})",
      R"({"data_parallel_size": 2, "use_distributed_optimizer": false, "micro_batch_size": 2})",
      R"({"data_parallel_size": 4, "expert_model_parallel_size": 4, "ep_chunks_forward": 2})",
      R"({"data_parallel_size": 4, "expert_model_parallel_size": 2, "recompute": "norm,experts"})",
      R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "recompute": "core_attn,moe_act"})",
      R"({"context_parallel_size": 4, "expert_model_parallel_size": 2})",
      R"({"context_parallel_size": 2, "expert_model_parallel_size": 2, "recompute": "full"})",
      R"({"pipeline_model_parallel_size": 3})",
      R"({"pipeline_model_parallel_size": 2, "data_parallel_size": 2, "context_parallel_size": 2,
          "expert_model_parallel_size": 4, "recompute": "norm,core_attn,moe_act,experts"})",
      R"({"pipeline_model_parallel_size": 2, "data_parallel_size": 2, "recompute": "full",
          "expert_model_parallel_size": 2, "linear_ce_chunk_tokens": 64})",
      R"({"tensor_model_parallel_size": 2, "recompute": "norm,core_attn,moe_act,experts"})",
      R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2, "micro_batch_size": 2,
          "expert_model_parallel_size": 4, "recompute": "full"})",
      R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2, "expert_model_parallel_size": 4,
          "pipeline_model_parallel_size": 2, "ep_chunks_forward": 2})",
      R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2, "expert_tensor_parallel_size": 2,
          "expert_model_parallel_size": 2, "ep_chunks_backward": 2})",
      R"({"context_parallel_size": 4, "cp_comm_type": "p2p", "recompute": "core_attn"})",
      R"({"data_parallel_size": 2, "exp_avg_dtype": "bf16"})",
      R"({"exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"})",
  };
  for (const spec::ModelSpec& model : {testing::tiny_model(), mixed}) {
    const spec::RoutingProfile profile = testing::record_profile(model);
    for (const char* text : kKnobs) {
      spec::TrialSpec trial = testing::tiny_trial(model, testing::knobs_of(text));
      BOOST_TEST_CONTEXT(text) { testing::check_memory(trial, profile); }
    }
  }
}

BOOST_AUTO_TEST_CASE(workspaces_of_kernels_count_on_a_real_device) {
  spec::TrialSpec trial = testing::tiny_trial(testing::tiny_model(), {});
  const int64_t without = tuner::estimate_memory(trial, {}).peak_bytes;
  trial.hardware.workspace_bytes = 1024;
  BOOST_TEST(tuner::estimate_memory(trial, {}).peak_bytes == without);
  trial.backend = spec::BackendKind::cuda;
  BOOST_TEST(tuner::estimate_memory(trial, {}).peak_bytes == without + 1024);
}

BOOST_AUTO_TEST_CASE(recompute_and_sharding_lower_the_peak) {
  const spec::ModelSpec model = testing::tiny_model();
  const auto peak = [&](const char* text) {
    const spec::Knobs knobs = spec::knobs_from_json(nlohmann::json::parse(text), "test");
    return tuner::estimate_memory(testing::tiny_trial(model, knobs), {}).peak_bytes;
  };
  BOOST_TEST(peak(R"({"recompute": "norm"})") < peak("{}"));
  BOOST_TEST(peak(R"({"recompute": "full"})") < peak(R"({"recompute": "norm"})"));
  BOOST_TEST(peak(R"({"data_parallel_size": 4})") <
             peak(R"({"data_parallel_size": 4, "use_distributed_optimizer": false})"));
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
