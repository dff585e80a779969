// A training run as plans price it: model, machine, recipe and configuration, whoever's engine it
// is for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/spec/hardware_spec.h"
#include "engine/spec/model_spec.h"
#include "engine/spec/plan_knobs.h"

namespace moetune::tuner::planner {

/// Virtual stages in the order of the model, each as its letters (spec::pipeline_stages_of).
using Stages = std::vector<std::string>;

/// What is priced. Model and machine are somebody else's and outlive it: many runs share them.
struct PlanRun {
  const spec::ModelSpec* model = nullptr;
  /// With as many devices as the run has.
  const spec::HardwareSpec* hardware = nullptr;
  spec::PlanKnobs knobs;
  int64_t global_batch_size = 1;  ///< sequences
  int64_t seq_length = 1;         ///< tokens
  Stages stages;  ///< of a hand-written layout; empty: an even split, or as stage_layers says
  std::vector<int64_t> stage_layers;  ///< layers of each pipeline rank; empty: even
  /// Rows that the busiest rank's experts receive over their balanced share; 1 is balanced.
  double load = 1;
  /// Parts of a micro-batch whose rows are exchanged and computed one after the other within a
  /// layer (token-wise chunks; Megatron-LM has no flag for them).
  int64_t ep_chunks = 1;
  /// No backward comes before all forwards of a step, as in GPipe; else one follows the other.
  bool holds_all_micro_batches = false;
  /// Virtual stages take micro-batches in even rounds: all schedules but some of torch.
  bool has_rounds = true;
  /// There is a micro-batch for each virtual stage at least (DualPipeV of torch).
  bool fills_stages = false;
  /// 1F1B, or Interleaved1F1B of virtual stages; else one of torch that is priced as these.
  bool has_usual_schedule = true;
  /// Sequences of a replica that go through the pipeline before it drains (torchtitan's local
  /// batch); 0: all of a step.
  int64_t pass_sequences = 0;
  /// Its DeepEP sends rows that are padded to a capacity: Megatron-Core's does not.
  bool takes_padded_deepep = false;
  /// Whether the rules of Megatron-Core hold and its memory is priced: torchtitan has an engine of
  /// its own.
  bool is_of_megatron = true;
  /// Its modules are Megatron-Core's own (--transformer-impl local); see has_own_modules().
  bool states_own_modules = false;
  /// Shared experts compute beside the exchange of rows (--moe-shared-expert-overlap).
  bool overlaps_shared_experts = false;
  /// Experts are balanced in a way that takes no capacity, such as sinkhorn.
  bool balances_without_capacity = false;
  /// Attention drops some of its scores (--attention-dropout above 0).
  bool has_attention_dropout = false;
  /// Layers drop some of their output (--hidden-dropout above 0).
  bool has_hidden_dropout = false;
};

/// Whether linear modules and attention are Megatron-Core's own. Attention without scores is
/// Transformer Engine's, whatever the run said before.
inline bool has_own_modules(const PlanRun& run) {
  return run.states_own_modules && !run.knobs.fused_attention;
}

/// Whether all experts' products are one kernel. Megatron-Core's own modules multiply them one
/// after the other since core 0.17, whatever they are told.
inline bool has_grouped_products(const PlanRun& run) {
  return run.knobs.moe_grouped_gemm && !has_own_modules(run);
}

/// Whether 32-bit products of linear modules are done in TF32: Transformer Engine asks cuBLAS for
/// it, and PyTorch does not unless it is told to. ROCm's Transformer Engine does not, either.
inline bool has_tf32(const PlanRun& run) {
  return run.is_of_megatron && !has_own_modules(run) && !spec::is_of_amd(*run.hardware);
}

/// Micro-batches of a step that a replica runs one after the other, at least 1.
inline int64_t num_micro_batches(const PlanRun& run) {
  const int64_t per_pass = int64_t{run.knobs.micro_batch_size} * run.knobs.dp;
  return run.global_batch_size > per_pass ? run.global_batch_size / per_pass : 1;
}

/// Of them those that go through the pipeline before it drains, at least 1.
inline int64_t micro_batches_of_pass(const PlanRun& run) {
  const int64_t all = num_micro_batches(run);
  if (run.pass_sequences == 0) return all;
  return std::clamp<int64_t>(run.pass_sequences / run.knobs.micro_batch_size, 1, all);
}

/// Micro-batches that a virtual stage takes before the rank's next one has its turn: pp in
/// Megatron-Core; torch (ScheduleInterleaved1F1B) splits them evenly into rounds of at least pp,
/// and has one round of fewer.
inline int64_t micro_batches_of_round(const PlanRun& run) {
  const int64_t pp = run.knobs.pp;
  if (run.is_of_megatron) return pp;
  const int64_t all = micro_batches_of_pass(run);
  return all < pp ? all : all / (all / pp);
}

/// Tokens of a micro-batch on a context-parallel rank.
inline double context_tokens(const PlanRun& run) {
  const int64_t tokens = int64_t{run.knobs.micro_batch_size} * run.seq_length;
  return run.knobs.own_tokens(static_cast<double>(tokens));
}

/// Of them what tensor-parallel ranks with sequence parallelism keep between the matrices.
inline double sequence_tokens(const PlanRun& run) {
  return run.knobs.sequence_parallel ? context_tokens(run) / run.knobs.tp : context_tokens(run);
}

/// Whether any layer of the model mixes its tokens like that.
inline bool has_mixer(const spec::ModelSpec& model, spec::Mixer mixer) {
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    if (model.kind_of(layer).mixer == mixer) return true;
  }
  return false;
}

/// A virtual stage.
struct Chunk {
  int64_t first = 0;  ///< layer of the model
  int64_t count = 0;
  bool has_embedding = false;
  bool has_head = false;
  bool has_mtp = false;
};

/// The virtual stages in the order of the model: stage k is number k / pp of pipeline rank k % pp.
/// Where nothing is written, layers are split evenly, the remainder goes to the first stages;
/// multi-token prediction is beside the head.
std::vector<Chunk> chunks_of(const PlanRun& run);

/// Whether Megatron-Core takes the run's sizes without a written layout: its virtual stages have
/// the same number of layers, but for the first and the last rank's where these are counted
/// (first_stage_layers, last_stage_layers). What is written is not looked at.
bool splits_by_itself(const PlanRun& run);
/// The stages that the framework makes by itself, or, where it refuses to, chunks_of without what
/// is written.
Stages unwritten_stages(const PlanRun& run);
/// So many layers in each virtual stage; embedding, multi-token prediction and loss at the ends.
Stages stages_with(const spec::ModelSpec& model, const std::vector<int64_t>& layers);
/// The run's stages as Megatron-LM's layout. Empty where nothing has to be written.
std::string pipeline_layout_of(const PlanRun& run);

/// Whether the layers of some pipeline rank are said by their number.
inline bool counts_stage_layers(const PlanRun& run) {
  return !run.stage_layers.empty() || run.knobs.first_stage_layers > 0 ||
         run.knobs.last_stage_layers > 0;
}

/// Virtual stages of each pipeline rank.
int64_t num_virtual_stages(const PlanRun& run);

}  // namespace moetune::tuner::planner
