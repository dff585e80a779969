// Small models and machines for the planner's tests.
#pragma once

#include "tuner/planner/rates.h"
#include "tuner/planner/run.h"
#include "tuner/planner/search.h"

namespace moetune::tuner::planner::samples {

inline spec::ModelSpec dense_model() {
  spec::ModelSpec model;
  model.family = "llama";
  model.vocab_size = 32000;
  model.hidden_size = 1024;
  model.num_layers = 8;
  model.num_heads = 16;
  model.num_kv_heads = 4;
  model.head_dim = 64;
  model.ffn_size = 2816;
  model.is_moe_layer.assign(8, false);
  model.attention_window.assign(8, 0);
  model.max_position_embeddings = 1 << 20;
  return model;
}

inline spec::ModelSpec moe_model() {
  spec::ModelSpec model = dense_model();
  model.family = "qwen3_moe";
  model.num_experts = 16;
  model.experts_per_token = 4;
  model.moe_ffn_size = 512;
  model.ffn_size = 0;
  model.is_moe_layer.assign(8, true);
  return model;
}

/// Of `moe_model`, every `period`-th layer with attention, the others (with 1: all) with Gated
/// DeltaNet.
inline spec::ModelSpec hybrid_model(int64_t period) {
  spec::ModelSpec model = moe_model();
  model.gdn = {4, 8, 16, 64, 64};
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const bool attends = period > 1 && (layer + 1) % period == 0;
    model.layer_kinds.push_back(
        {attends ? spec::Mixer::gqa : spec::Mixer::gdn, spec::FeedForward::moe});
  }
  return model;
}

/// Eight devices a node.
inline spec::HardwareSpec machine(int64_t num_devices) {
  spec::HardwareSpec hardware;
  hardware.name = "test";
  hardware.devices_per_node = num_devices < 8 ? num_devices : 8;
  hardware.num_nodes = num_devices / hardware.devices_per_node;
  hardware.memory_bytes = int64_t{80} << 30;
  hardware.peak_flops_per_s = 989e12;
  hardware.fp8_flops_per_s = 1979e12;
  hardware.memory_bytes_per_s = 3.35e12;
  hardware.intra_node = {10000, 450e9};
  hardware.inter_node = {20000, 50e9};
  hardware.launch_ns = 4000;
  return hardware;
}

/// The device is waited for, and not the host.
inline Rates rates_of_devices() {
  Rates rates;
  rates.host_layer_ns = 0;
  return rates;
}

inline PlanRun run_of(const spec::ModelSpec& model, const spec::HardwareSpec& hardware) {
  PlanRun run;
  run.model = &model;
  run.hardware = &hardware;
  run.global_batch_size = 64;
  run.seq_length = 4096;
  return run;
}

inline PlanQuestion question_of(const spec::ModelSpec& model, const spec::HardwareSpec& hardware) {
  PlanQuestion question;
  question.model = &model;
  question.hardware = &hardware;
  question.global_batch_size = 64;
  question.seq_length = 4096;
  return question;
}

}  // namespace moetune::tuner::planner::samples
