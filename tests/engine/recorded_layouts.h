// On which ranks of which layouts the suites of recorded programs run.
#pragma once

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "tests/engine/parity_fixture.h"

namespace moetune::engine::testing {

/// Beside the layouts of the parity suite.
inline constexpr const char* kRecordedLayouts[] = {
    "{}",
    R"({"micro_batch_size": 2, "recompute": "full"})",
    R"({"recompute": "norm,core_attn,moe_act,experts"})",
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "ep_chunks_forward": 3,
        "ep_chunks_backward": 2})",
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "ep_chunks_forward": 2,
        "ep_chunks_backward": 3, "recompute": "full"})",
    R"({"data_parallel_size": 4, "expert_model_parallel_size": 4, "ep_chunks_backward": 4,
        "recompute": "norm,moe_act,experts", "linear_ce_chunk_tokens": 4})",
    R"({"context_parallel_size": 2, "recompute": "core_attn"})",
    R"({"context_parallel_size": 2, "expert_model_parallel_size": 2,
        "pipeline_model_parallel_size": 2, "recompute": "full"})",
    R"({"data_parallel_size": 2, "pipeline_model_parallel_size": 3, "overlap_grad_reduce": true})",
    R"({"linear_ce_chunk_tokens": 5, "use_distributed_optimizer": false})",
    R"({"data_parallel_size": 2, "exp_avg_dtype": "bf16"})",
    R"({"exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"})"};

inline std::vector<std::string> recorded_layouts() {
  std::vector<std::string> all(std::begin(kRecordedLayouts), std::end(kRecordedLayouts));
  all.insert(all.end(), std::begin(kLayouts), std::end(kLayouts));
  return all;
}

inline std::vector<spec::ModelSpec> recorded_models() {
  spec::ModelSpec tied = tiny_model();
  tied.ties_embeddings = true;
  return {tiny_model(), mixed_model(), tied};
}

inline spec::TrialSpec recorded_trial(const spec::ModelSpec& model, const std::string& layout,
                                      spec::DType dtype = spec::DType::f32) {
  spec::TrialSpec trial = tiny_trial(model, knobs_of(layout));
  trial.dtype = dtype;
  return trial;
}

/// body(trial, rank) for every rank of every layout, model and type.
template <typename Body>
void for_recorded_ranks(Body&& body) {
  for (const spec::ModelSpec& model : recorded_models()) {
    for (const std::string& layout : recorded_layouts()) {
      for (const spec::DType dtype : {spec::DType::f32, spec::DType::bf16}) {
        const spec::TrialSpec trial = recorded_trial(model, layout, dtype);
        for (int rank = 0; rank < plan::layout_of(trial.knobs).world_size(); ++rank) {
          BOOST_TEST_CONTEXT(layout << " " << spec::name_of(dtype) << " rank " << rank) {
            body(trial, rank);
          }
        }
      }
    }
  }
}

}  // namespace moetune::engine::testing
