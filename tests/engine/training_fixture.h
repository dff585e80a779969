// A tiny model trained on made-up tokens, with everything a parity test compares: losses, gradient
// norms and gradients gathered from all ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/model/philox.h"
#include "engine/world_run.h"

namespace moetune::engine::testing {

inline spec::ModelSpec tiny_model() {
  spec::ModelSpec m;
  m.family = "qwen3_moe";
  m.vocab_size = 40;
  m.hidden_size = 16;
  m.num_layers = 3;
  m.num_heads = 4;
  m.num_kv_heads = 2;
  m.head_dim = 8;
  m.ffn_size = 24;
  m.num_experts = 4;
  m.experts_per_token = 2;
  m.moe_ffn_size = 12;
  m.is_moe_layer = {true, true, true};
  m.attention_window = {0, 0, 0};
  m.max_position_embeddings = 64;
  m.initializer_range = 0.2;
  m.has_qk_norm = true;
  return m;
}

inline spec::TrialSpec tiny_trial(const spec::ModelSpec& model, const spec::Knobs& knobs = {}) {
  spec::TrialSpec t;
  t.model = model;
  t.knobs = knobs;
  t.clock = spec::ClockMode::virtual_modelled;
  t.hardware.name = "test";
  t.hardware.num_nodes = 1;
  t.hardware.devices_per_node = plan::layout_of(knobs).world_size();
  t.hardware.peak_flops_per_s = 1e11;
  t.hardware.memory_bytes_per_s = 1e10;
  t.hardware.intra_node = {1000, 1e10};
  t.hardware.inter_node = {10000, 1e9};
  t.hardware.launch_ns = 2000;
  t.hardware.graph_launch_ns = 3000;
  t.hardware.sync_ns = 1000;
  t.hardware.kernel_floor_ns = 500;
  t.hardware.comm_sm_ratio = 0.15;
  t.training.global_batch_size = 4;
  t.training.seq_length = 16;
  t.training.lr = 5e-3;
  t.training.aux_loss_coeff = 0.02;
  t.training.z_loss_coeff = 0.01;
  return t;
}

/// Tokens drawn from a fixed sequence of random numbers.
class RandomTokens final : public TokenSource {
 public:
  explicit RandomTokens(const spec::TrialSpec& trial) : trial_(trial) {}
  [[nodiscard]] std::vector<int32_t> sequence(int64_t step, int64_t index) const override {
    std::vector<int32_t> tokens(static_cast<size_t>(trial_.training.seq_length) + 1);
    const uint64_t key = philox_key(7, "test tokens");
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto at = static_cast<uint64_t>(
          (step * trial_.training.global_batch_size + index) * 1000 + static_cast<int64_t>(i));
      tokens[i] = static_cast<int32_t>(
          philox_uniform(key, at, static_cast<uint64_t>(trial_.model.vocab_size)));
    }
    return tokens;
  }

 private:
  const spec::TrialSpec& trial_;
};

using GradientMap = std::map<std::string, std::vector<double>>;

/// Puts the shards of all ranks together: step -> name -> the whole parameter's gradient,
/// row-major.
class GradientGatherer {
 public:
  void add(int64_t step, const Parameters& params, kernels::Backend& backend) {
    const std::scoped_lock lock(mutex_);
    if (by_step.size() <= static_cast<size_t>(step)) by_step.resize(static_cast<size_t>(step) + 1);
    GradientMap& gradients = by_step[static_cast<size_t>(step)];
    for (const plan::ParamDesc& param : params.plan().params) {
      if (param.is_tied_copy) continue;
      const Bucket& bucket = params.buckets()[static_cast<size_t>(param.bucket)];
      std::vector<double>& whole = gradients[param.name];
      whole.resize(static_cast<size_t>(param.global_rows * param.global_cols));
      const int64_t begin = std::max(param.offset, bucket.desc.own_begin);
      const int64_t end =
          std::min(param.offset + param.numel(), bucket.desc.own_begin + bucket.desc.own_numel);
      const std::vector<double> values = values_of(backend, bucket.grad);
      param.for_stretches(begin - param.offset, end - param.offset,
                          [&](int64_t local, int64_t global, int64_t count) {
                            const auto from = values.begin() + param.offset + local;
                            std::copy(from, from + count, whole.begin() + global);
                          });
    }
  }

  std::vector<GradientMap> by_step;

 private:
  std::mutex mutex_;
};

struct TrainingRun {
  std::vector<StepResult> steps;
  std::vector<GradientMap> gradients;           ///< by step
  std::vector<profiler::StepTrace> traces;      ///< of the last step, by rank
  std::vector<profiler::MemoryLedger> ledgers;  ///< by rank
  std::vector<int64_t> num_graphs;              ///< captured, by rank
  std::vector<int64_t> num_replays;
};

inline TrainingRun train(const spec::TrialSpec& trial, int64_t num_steps, TrainerHooks hooks = {}) {
  TrainingRun run;
  const int world = plan::layout_of(trial.knobs).world_size();
  run.traces.resize(static_cast<size_t>(world));
  run.ledgers.assign(static_cast<size_t>(world), profiler::MemoryLedger(0, 0));
  run.num_graphs.resize(static_cast<size_t>(world));
  run.num_replays.resize(static_cast<size_t>(world));
  GradientGatherer gatherer;
  hooks.on_gradients = [&](int64_t step, const Parameters& params, kernels::Backend& backend) {
    gatherer.add(step, params, backend);
  };
  const RandomTokens tokens(trial);
  const int reporter = local_ranks(trial).front();
  run_ranks(trial, hooks, [&](RankTrainer& trainer, World&, int rank) {
    for (int64_t step = 0; step < num_steps; ++step) {
      const StepResult result = trainer.step(step, tokens, profiler::TraceLevel::ops);
      if (rank == reporter) run.steps.push_back(result);
    }
    run.traces[static_cast<size_t>(rank)] = trainer.take_trace();
    run.ledgers[static_cast<size_t>(rank)] = trainer.ledger();
    run.num_graphs[static_cast<size_t>(rank)] = trainer.graphs().num_graphs();
    run.num_replays[static_cast<size_t>(rank)] = trainer.graphs().num_replays();
  });
  run.gradients = std::move(gatherer.by_step);
  return run;
}

/// sqrt(sum (a-b)^2) / sqrt(sum b^2); 0 when both are zero.
inline double relative_l2(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  if (norm == 0) return difference == 0 ? 0 : 1e300;
  return std::sqrt(difference / norm);
}

}  // namespace moetune::engine::testing
