// On which ranks of which layouts the suites of recorded programs run.
#pragma once

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "tests/engine/parity_fixture.h"

namespace moetune::engine::testing {

/// Knobs, and of how many layers the model has to be for them.
struct RecordedLayout {
  std::string knobs;
  int64_t num_layers = 0;  ///< 0: as many as it has
};

/// Beside the layouts of the parity suite.
inline const RecordedLayout kRecordedLayouts[] = {
    {"{}"},
    {R"({"micro_batch_size": 2, "recompute": "full"})"},
    {R"({"recompute": "norm,core_attn,moe_act,experts"})"},
    {R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "ep_chunks_forward": 3,
        "ep_chunks_backward": 2})"},
    {R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "ep_chunks_forward": 2,
        "ep_chunks_backward": 3, "recompute": "full"})"},
    {R"({"data_parallel_size": 4, "expert_model_parallel_size": 4, "ep_chunks_backward": 4,
        "recompute": "norm,moe_act,experts", "linear_ce_chunk_tokens": 4})"},
    {R"({"context_parallel_size": 2, "recompute": "core_attn"})"},
    {R"({"context_parallel_size": 2, "expert_model_parallel_size": 2,
        "pipeline_model_parallel_size": 2, "recompute": "full"})"},
    {R"({"data_parallel_size": 2, "pipeline_model_parallel_size": 3, "overlap_grad_reduce": true})"},
    {R"({"linear_ce_chunk_tokens": 5, "use_distributed_optimizer": false})"},
    {R"({"data_parallel_size": 2, "exp_avg_dtype": "bf16"})"},
    {R"({"exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"})"},
    // Virtual stages; the first has only the embedding and the last only the head in one of them.
    {R"({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2,
         "recompute": "norm,experts"})",
     4},
    {R"({"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": "E|ttt|t|L",
         "tensor_model_parallel_size": 2, "expert_model_parallel_size": 2,
         "overlap_grad_reduce": true})",
     4},
    // All axes at once but data parallelism.
    {R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2, "cp_comm_type": "p2p",
         "expert_model_parallel_size": 2, "expert_tensor_parallel_size": 2,
         "pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2})",
     4},
};

inline std::vector<RecordedLayout> recorded_layouts() {
  std::vector<RecordedLayout> all(std::begin(kRecordedLayouts), std::end(kRecordedLayouts));
  for (const char* knobs : kLayouts) all.push_back({knobs});
  return all;
}

/// The model with its pattern of layers repeated, or cut, to `num_layers`.
inline spec::ModelSpec with_layers(const spec::ModelSpec& model, int64_t num_layers) {
  spec::ModelSpec made = model;
  made.num_layers = num_layers;
  made.is_moe_layer.clear();
  made.attention_window.clear();
  for (int64_t i = 0; i < num_layers; ++i) {
    const auto like = static_cast<size_t>(i % model.num_layers);
    made.is_moe_layer.push_back(model.is_moe_layer[like]);
    made.attention_window.push_back(model.attention_window[like]);
  }
  return made;
}

inline std::vector<spec::ModelSpec> recorded_models() {
  spec::ModelSpec tied = tiny_model();
  tied.ties_embeddings = true;
  return {tiny_model(), mixed_model(), tied};
}

inline spec::TrialSpec recorded_trial(const spec::ModelSpec& model, const RecordedLayout& layout,
                                      spec::DType dtype = spec::DType::f32) {
  const int64_t num_layers = layout.num_layers > 0 ? layout.num_layers : model.num_layers;
  spec::TrialSpec trial = tiny_trial(with_layers(model, num_layers), knobs_of(layout.knobs));
  trial.dtype = dtype;
  return trial;
}

/// body(trial, rank) for every rank of every layout, model and type.
template <typename Body>
void for_recorded_ranks(Body&& body) {
  for (const spec::ModelSpec& model : recorded_models()) {
    for (const RecordedLayout& layout : recorded_layouts()) {
      for (const spec::DType dtype : {spec::DType::f32, spec::DType::bf16}) {
        const spec::TrialSpec trial = recorded_trial(model, layout, dtype);
        for (int rank = 0; rank < plan::layout_of(trial.knobs).world_size(); ++rank) {
          BOOST_TEST_CONTEXT(layout.knobs << " " << spec::name_of(dtype) << " rank " << rank) {
            body(trial, rank);
          }
        }
      }
    }
  }
}

}  // namespace moetune::engine::testing
