// What the parity suites share: layouts, and the comparison of two training runs in every number of
// every step.
#pragma once

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/training_fixture.h"

namespace moetune::engine::testing {

inline spec::Knobs knobs_of(const std::string& json) {
  return spec::knobs_from_json(nlohmann::json::parse(json), "test");
}

inline void check_constraints_hold(const spec::TrialSpec& trial) {
  for (const spec::Violation& violation : spec::check_constraints(spec::parts_of(trial))) {
    BOOST_FAIL(violation.rule << ": " << violation.message);
  }
}

/// What differs by a relative `tolerance` or more, in any step; 0 asks for the same bits.
inline std::vector<std::string> differences(const TrainingRun& run, const TrainingRun& expected,
                                            double tolerance) {
  std::vector<std::string> found;
  if (expected.steps.empty() || run.steps.size() != expected.steps.size() ||
      run.gradients.size() != run.steps.size() ||
      expected.gradients.size() != expected.steps.size()) {
    return {fmt::format("{} steps with gradients of {}, expected {} with gradients of {}",
                        run.steps.size(), run.gradients.size(), expected.steps.size(),
                        expected.gradients.size())};
  }
  for (size_t i = 0; i < expected.steps.size(); ++i) {
    const auto compare = [&](const char* name, double a, double b) {
      if (a == b || std::abs(a - b) < tolerance * std::abs(b)) return;
      found.push_back(fmt::format("step {}: {} {}, expected {}", i, name, a, b));
    };
    compare("loss", run.steps[i].loss, expected.steps[i].loss);
    compare("aux loss", run.steps[i].aux_loss, expected.steps[i].aux_loss);
    compare("z loss", run.steps[i].z_loss, expected.steps[i].z_loss);
    compare("gradient norm", run.steps[i].grad_norm, expected.steps[i].grad_norm);
    const GradientMap& gradients = run.gradients[i];
    if (expected.gradients[i].empty() || gradients.size() != expected.gradients[i].size()) {
      found.push_back(fmt::format("step {}: {} gradients, expected {}", i, gradients.size(),
                                  expected.gradients[i].size()));
    }
    for (const auto& [name, gradient] : expected.gradients[i]) {
      const auto own = gradients.find(name);
      if (own == gradients.end() || own->second.size() != gradient.size()) {
        found.push_back(
            fmt::format("step {}: gradient of {} is missing or of another size", i, name));
      } else if (own->second != gradient && !(relative_l2(own->second, gradient) < tolerance)) {
        found.push_back(fmt::format("step {}: gradient of {} is off by {}", i, name,
                                    relative_l2(own->second, gradient)));
      }
    }
  }
  return found;
}

inline void check_close(const TrainingRun& run, const TrainingRun& expected, double tolerance) {
  for (const std::string& text : differences(run, expected, tolerance)) BOOST_ERROR(text);
}

/// Near the f32 run `expected`, as mixed precision is that rounds every activation to 8 bits; and
/// not nearer: f32 arithmetic under another name does not pass.
inline void check_mixed_precision(const TrainingRun& run, const TrainingRun& expected) {
  BOOST_TEST_REQUIRE(run.steps.size() == expected.steps.size());
  for (size_t step = 0; step < run.steps.size(); ++step) {
    BOOST_TEST(run.steps[step].loss == expected.steps[step].loss,
               boost::test_tools::tolerance(0.01));
    BOOST_TEST(run.steps[step].grad_norm == expected.steps[step].grad_norm,
               boost::test_tools::tolerance(0.1));
  }
  double worst = 0;
  for (const auto& [name, gradient] : expected.gradients.front()) {
    worst = std::max(worst, relative_l2(run.gradients.front().at(name), gradient));
  }
  BOOST_TEST(worst < 0.2);
  BOOST_TEST(worst > 1e-4);
}

/// Dense layers between MoE layers, a shared expert, biases, a window: what tiny_model() has not.
inline spec::ModelSpec mixed_model() {
  spec::ModelSpec model = tiny_model();
  model.is_moe_layer = {true, false, true};
  model.shared_ffn_size = 8;
  model.has_attention_bias = true;
  model.has_attention_output_bias = true;
  model.has_mlp_bias = true;
  model.attention_window = {0, 5, 0};
  model.normalizes_topk = false;
  model.has_qk_norm = false;
  return model;
}

inline void check_identical(const TrainingRun& run, const TrainingRun& expected) {
  for (const std::string& text : differences(run, expected, 0)) BOOST_ERROR(text);
}

inline constexpr const char* kLayouts[] = {
    R"({"data_parallel_size": 2})",
    R"({"data_parallel_size": 4, "expert_model_parallel_size": 2})",
    R"({"data_parallel_size": 4, "expert_model_parallel_size": 4})",
    R"({"data_parallel_size": 2, "use_distributed_optimizer": false, "micro_batch_size": 2})",
    R"({"context_parallel_size": 2})",
    R"({"context_parallel_size": 4, "expert_model_parallel_size": 4})",
    R"({"context_parallel_size": 2, "expert_model_parallel_size": 2, "micro_batch_size": 2})",
    R"({"pipeline_model_parallel_size": 2})",
    R"({"pipeline_model_parallel_size": 3})",
    R"({"pipeline_model_parallel_size": 2, "decoder_first_pipeline_num_layers": 1})",
    R"({"pipeline_model_parallel_size": 2, "data_parallel_size": 2, "expert_model_parallel_size": 2})",
    R"({"data_parallel_size": 2, "context_parallel_size": 2, "expert_model_parallel_size": 2})",
    R"({"data_parallel_size": 2, "context_parallel_size": 2, "expert_model_parallel_size": 4,
        "pipeline_model_parallel_size": 2, "overlap_grad_reduce": true, "ep_chunks_forward": 2})",
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "overlap_grad_reduce": true,
        "use_distributed_optimizer": false})",
    R"({"tensor_model_parallel_size": 2})",
    R"({"tensor_model_parallel_size": 2, "micro_batch_size": 4, "expert_model_parallel_size": 2})",
    R"({"tensor_model_parallel_size": 2, "micro_batch_size": 2, "data_parallel_size": 2,
        "expert_model_parallel_size": 4, "overlap_grad_reduce": true})",
    R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2, "pipeline_model_parallel_size": 2,
        "expert_model_parallel_size": 4, "use_distributed_optimizer": false, "ep_chunks_forward": 2})",
    R"({"data_parallel_size": 2, "expert_tensor_parallel_size": 2})",
    R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2, "expert_tensor_parallel_size": 2,
        "expert_model_parallel_size": 2, "ep_chunks_backward": 2})",
    R"({"context_parallel_size": 4, "expert_tensor_parallel_size": 2, "cp_comm_type": "p2p"})",
    R"({"context_parallel_size": 2, "cp_comm_type": "p2p", "micro_batch_size": 2})",
    R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2, "cp_comm_type": "p2p",
        "pipeline_model_parallel_size": 2, "expert_tensor_parallel_size": 4,
        "recompute": "core_attn,experts"})",
};

}  // namespace moetune::engine::testing
