// Adds up counts while the reference run trains, and writes them as the profile's JSON.
#include "engine/routing_recorder.h"

#include "engine/plan/layout.h"
#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

// Fine enough for as many ranks that share a sequence: twice context times tensor parallelism.
constexpr int64_t kMaxPieces = 16;

}  // namespace

RoutingRecorder::RoutingRecorder(const spec::TrialSpec& trial) : trial_(trial) {
  if (!trial.records_routing) return;
  if (plan::layout_of(trial.knobs).world_size() != 1 || trial.knobs.micro_batch_size != 1) {
    throw base::UsageError(
        "records_routing needs one rank and micro_batch_size 1, so that a micro-batch is a "
        "sequence of the global batch");
  }
  profile_.num_steps = spec::total_steps(trial);
  profile_.num_layers = trial.model.num_moe_layers();
  profile_.num_sequences = trial.training.global_batch_size;
  profile_.num_pieces = kMaxPieces;
  while (trial.training.seq_length % profile_.num_pieces != 0) profile_.num_pieces /= 2;
  profile_.num_experts = trial.model.num_experts;
  profile_.counts.assign(
      static_cast<size_t>(profile_.num_steps * profile_.num_layers * profile_.num_sequences *
                          profile_.num_pieces * profile_.num_experts),
      0);
}

void RoutingRecorder::on_routing(int /*rank*/, int64_t layer, int64_t micro_batch,
                                 const int32_t* indices, int64_t num_tokens, int64_t topk) {
  const int64_t step = num_calls_++ / calls_per_step();
  int64_t moe_layer = 0;
  for (int64_t i = 0; i < layer; ++i) {
    moe_layer += trial_.model.is_moe_layer[static_cast<size_t>(i)] ? 1 : 0;
  }
  const int64_t piece_tokens = num_tokens / profile_.num_pieces;
  for (int64_t token = 0; token < num_tokens; ++token) {
    for (int64_t k = 0; k < topk; ++k) {
      const int64_t at = profile_.index(step, moe_layer, micro_batch, token / piece_tokens,
                                        indices[token * topk + k]);
      ++profile_.counts[static_cast<size_t>(at)];
    }
  }
}

}  // namespace moetune::engine
