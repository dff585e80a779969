// Bytes of torchtitan's eager operations, counted by reads and writes of each.
#include "tuner/planner/titan_time.h"

#include <algorithm>

#include "tuner/planner/titan_memory.h"

namespace moetune::tuner::planner {

using plan::Op;
using spec::FeedForward;
using spec::Mixer;

namespace {

/// Reads 32 bits and writes 16, or the other way round.
constexpr double kCast = 6;
/// Of two operands of 32 bits: both read, one written.
constexpr double kSum = 12;

/// Casts of a matrix in the forward pass; backward, that of its gradient, which all micro-batches
/// but the first add to what there is.
EagerBytes of_matrices(const PlanRun& run, double elements) {
  const double added = 1 - 1 / f64(num_micro_batches(run));
  return {kCast * elements, (kCast + kSum * added) * elements};
}

}  // namespace

double parameter_tensors(const PlanRun& run, spec::LayerKind kind) {
  constexpr double kOfLayer = 8;
  if (kind.feed_forward != FeedForward::moe) return kOfLayer;
  constexpr double kStacked = 3;
  if (!run.is_of_megatron) return kOfLayer + kStacked;
  return kOfLayer + 2 * f64(run.model->num_experts) / run.knobs.ep;
}

double launched_experts(const PlanRun& run) {
  return run.is_of_megatron ? f64(run.model->num_experts) / run.knobs.ep : 0;
}

spec::PrecisionRecipe grouped_recipe(const PlanRun& run, spec::PrecisionRecipe recipe) {
  const bool is_cast = !run.is_of_megatron && recipe == spec::PrecisionRecipe::fp32;
  return is_cast ? spec::PrecisionRecipe::bf16 : recipe;
}

bool has_fixed_time(const PlanRun& run) { return !has_titan_autocast(run); }

double titan_recomputed_share(const PlanRun& run, Op op) {
  const spec::ModelSpec& model = *run.model;
  switch (op) {
    case Op::core_attn:
    case Op::mlp_fc2:
    case Op::shared_fc2:
    case Op::ffn_residual:
    case Op::final_norm:  // and what else is outside of layers
    case Op::cross_entropy_stats:
    case Op::cross_entropy:
      return 0;
    case Op::qkv_proj:  // keys
      return f64(model.num_kv_heads) / f64(model.num_heads + 2 * model.num_kv_heads);
    case Op::mlp_fc1:
    case Op::shared_fc1:
      return model.has_gated_mlp ? 0.5 : 0;
    case Op::mla_q_down:
    case Op::mla_q_up:
    case Op::mla_kv_down:
    case Op::mla_kv_up:
      return 0.5;
    default:
      return 1;
  }
}

EagerBytes eager_layer_bytes(const PlanRun& run, spec::LayerKind kind) {
  if (!has_titan_autocast(run)) return {};
  const LayerSizes sizes = sizes_of(run, kind, 0);
  EagerBytes bytes = of_matrices(run, layer_weights(run, kind).products);
  const double own = sizes.own_tokens * sizes.hidden;
  const double readers = titan_norm_readers(sizes);
  // A norm and a sum in the stream: two bytes more for each of four reads and writes.
  const double norms = (kind.mixer != Mixer::none ? 1.0 : 0.0) +
                       (kind.feed_forward != FeedForward::none ? 1.0 : 0.0);
  constexpr double kStreamForward = 8;
  // Three of the norm, and three of the sum of both gradients.
  constexpr double kStreamBackward = 12;
  bytes.forward += own * (kCast * readers + kStreamForward * norms);
  // The readers' gradients are cast and then summed up.
  bytes.backward += own * (kCast * readers + kSum * (readers - norms) + kStreamBackward * norms);
  if (kind.feed_forward == FeedForward::moe) {
    // Forward of an element: gathered by expert, a row of zeros appended, gathered with padding
    // (8 each), cast for each of two products, cast back, put back without padding, put back into
    // zeros in the order of tokens (12), cast, and read by the product with the weights; less the
    // two passes in 16 bits that are priced for every framework.
    constexpr double kRowsForward = 8 + 8 + 8 + 2 * kCast + kCast + 8 + 12 + kCast + 2 - 8;
    // Backward: the product with the weights, read and written, its cast, four gathers and copies
    // (8 each), four casts, a sum, and two scattered sums into zeros (16 and 12); less the same.
    constexpr double kRowsBackward = 4 + kCast + 4 * 8 + 4 * kCast + kSum + 16 + 12 - 8;
    const double rows = sizes.rows * sizes.hidden;
    bytes.forward += kRowsForward * rows;
    bytes.backward += kRowsBackward * rows;
  }
  return bytes;
}

EagerBytes eager_head_bytes(const PlanRun& run) {
  if (!has_titan_autocast(run)) return {};
  const spec::ModelSpec& model = *run.model;
  EagerBytes bytes = of_matrices(run, f64(model.hidden_size) * f64(model.vocab_rows()));
  if (run.knobs.cross_entropy == spec::CrossEntropy::native) return bytes;
  const double logits = context_tokens(run) * f64(model.vocab_rows());
  // A cast, and log-softmax: read and written.
  bytes.forward += (kCast + 8) * logits;
  // The gradient of what was picked is filled with zeros, the one of log-softmax reads it and the
  // result, and is cast; less the pass in 16 bits that is priced for every framework.
  bytes.backward += (4 + 12 + kCast - 4) * logits;
  return bytes;
}

}  // namespace moetune::tuner::planner
