// A cluster that exists as a formula: step times and peaks from the knobs alone, so that tests of a
// search know the answer it has to find.
#pragma once

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/spec/routing_profile.h"
#include "tests/spec/spec_samples.h"
#include "tuner/memory_model.h"
#include "tuner/search_space.h"
#include "tuner/strategy.h"

namespace moetune::tuner::testing {

/// Every expert gets equally many tokens of every piece.
inline spec::RoutingProfile balanced_profile(const spec::ModelSpec& model,
                                             const spec::TrainingSpec& training, int64_t steps) {
  spec::RoutingProfile profile;
  profile.num_steps = steps;
  profile.num_layers = model.num_moe_layers();
  profile.num_sequences = training.global_batch_size;
  profile.num_pieces = 4;
  profile.num_experts = model.num_experts;
  const int64_t rows =
      training.seq_length / profile.num_pieces * model.experts_per_token / profile.num_experts;
  profile.counts.assign(static_cast<size_t>(profile.index(steps, 0, 0, 0, 0)),
                        static_cast<int32_t>(rows));
  return profile;
}

/// Plain data parallelism on two nodes of four devices, as the starting point of a search.
inline spec::SweepSpec small_sweep(std::map<std::string, std::vector<std::string>> space) {
  spec::SweepSpec sweep;
  sweep.base = spec::samples::trial();
  sweep.base.knobs = {};
  sweep.base.knobs.data_parallel_size = 8;
  sweep.base.knobs.micro_batch_size = 2;
  sweep.base.knobs.linear_ce_chunk_tokens = 64;
  sweep.base.knobs.use_distributed_optimizer = false;
  sweep.base.training.global_batch_size = 16;
  sweep.base.training.seq_length = 32;
  sweep.base.hardware.peak_flops_per_s = 1e9;  // slow devices: the replay sees little but work
  sweep.base.hardware.memory_bytes_per_s = 1e12;
  sweep.base.num_steps = 2;
  sweep.space = std::move(space);
  sweep.budget.max_trials = 60;
  sweep.validate_steps = 5;
  sweep.validate_max_loss = 2.5;
  return sweep;
}

inline int64_t peak_of(const spec::TrialSpec& spec) {
  const ReceivedRows rows(balanced_profile(spec.model, spec.training, spec::total_steps(spec)),
                          spec.model, spec.training);
  return estimate_memory(spec, rows).peak_bytes;
}

/// Separable: every knob has its best value whatever the others are.
inline int64_t step_of(const spec::Knobs& k) {
  const auto at = [](const std::map<int64_t, double>& table, int64_t value) {
    const auto found = table.find(value);
    return found == table.end() ? 2.0 : found->second;
  };
  double ns = 1e7;
  ns *= at({{1, 1.0}, {2, 1.05}, {4, 1.2}}, k.pipeline_model_parallel_size);
  ns *= at({{1, 1.0}, {2, 1.05}}, k.context_parallel_size);
  ns *= at({{1, 1.2}, {2, 1.08}, {4, 1.0}, {8, 1.1}}, k.expert_model_parallel_size);
  ns *= at({{1, 1.08}, {2, 1.0}, {4, 0.96}}, k.micro_batch_size);
  ns *= at({{1, 1.0}, {2, 0.92}, {4, 0.95}}, k.ep_chunks_forward);
  ns *= at({{1, 1.0}, {2, 0.96}, {4, 0.91}}, k.ep_chunks_backward);
  ns *= 1.0 + 0.02 * std::min(recompute_weight(k.recompute), 15);
  ns *= k.cuda_graph_modules.empty() ? 1.0 : 0.94;
  ns *= k.overlap_grad_reduce ? 0.95 : 1.0;
  return static_cast<int64_t>(ns);
}

/// What a trial of `request` would have ended as.
inline TrialOutcome run_in_fake_world(const TrialRequest& request) {
  const spec::TrialSpec& spec = request.spec;
  TrialOutcome outcome;
  if (request.action != Action::run) {
    outcome.status =
        request.action == Action::invalid ? spec::TrialStatus::invalid : spec::TrialStatus::pruned;
    outcome.reason = request.reason;
    return outcome;
  }
  outcome.peak_bytes = peak_of(spec);
  if (spec.hardware.memory_bytes > 0 && outcome.peak_bytes > spec.hardware.memory_bytes) {
    outcome.status = spec::TrialStatus::oom;
    outcome.reason = "out of memory on rank 0: 'expert_fc1'";
    outcome.wall = base::Wall::memory;
    return outcome;
  }
  outcome.status = spec::TrialStatus::ok;
  outcome.step_ns = step_of(spec.knobs);
  outcome.step_low_ns = outcome.step_ns - outcome.step_ns / 500;
  outcome.step_high_ns = outcome.step_ns + outcome.step_ns / 500;
  outcome.wall = request.is_reference ? base::Wall::compute : base::Wall::communication;
  outcome.shares["launch_starved"] = 0.1;
  outcome.shares["blocking_dp_cp"] = 0.1;
  if (spec.knobs.expert_model_parallel_size > 1) outcome.shares["blocking_ep"] = 0.2;
  if (spec.knobs.pipeline_model_parallel_size > 1) outcome.shares["bubble"] = 0.1;
  if (spec.knobs.context_parallel_size > 1) outcome.shares["blocking_cp"] = 0.05;
  if (!spec.knobs.recompute.empty()) outcome.shares["recompute"] = 0.05;
  double rest = 1;
  for (const auto& [name, share] : outcome.shares) rest -= share;
  outcome.shares["compute"] = rest;
  for (int64_t i = 0; i < spec::total_steps(spec); ++i) {
    outcome.losses.push_back(3.0 - 0.3 * static_cast<double>(i));
  }
  if (spec.records_routing) {
    outcome.routing_profile =
        to_json(balanced_profile(spec.model, spec.training, spec::total_steps(spec))).dump();
  }
  return outcome;
}

}  // namespace moetune::tuner::testing
