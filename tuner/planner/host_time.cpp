// Counts of calls, by what makes them. Two kinds are left out, as runs that were not fitted are
// predicted better without: hooks of gradients that are reduced and of weights that are gathered
// meanwhile (2 and 15 of each tensor) look whether there is something to do, and the schedule that
// overlaps the exchange (870 of a layer) calls the same kernels in another order.
#include "tuner/planner/host_time.h"

#include "tuner/planner/titan_time.h"

namespace moetune::tuner::planner {

namespace {

using spec::FeedForward;
using spec::Mixer;
using spec::PlanGraph;
using spec::PlanKnobs;
using spec::PlanRecompute;

/// Calls of a part, forward and backward, of Megatron-Core d98e8a64 with Transformer Engine 2.16.1:
/// tests/engines/dry_run/host_calls.py. Differences of commands that differ in the part alone.
namespace calls {
constexpr double kAttention = 1136;  // and the layer around it
constexpr double kQueryKeyNorm = 304;
constexpr double kLatent = 375;     // beside attention with that norm
constexpr double kDeltaNet = 1540;  // the same
constexpr double kMlp = 554;
constexpr double kExperts = 1876;  // router and all-to-all, and what experts share
constexpr double kExpert = 59;     // products of each
constexpr double kShared = 481;
constexpr double kAllgather = -388;
constexpr double kDeepEp = -360;
constexpr double kHybridEp = -829;
constexpr double kAdapter = 440;  // assumed: two linear modules of some 200 each, a factor, a sum
// Frozen weights have no gradients.
constexpr double kFrozenLinear = -20;
constexpr double kFrozenExpert = -26;
constexpr double kTensor = 170;
constexpr double kRing = 709;
constexpr double kHeads = 1359;
// FP8: of a linear module and of an expert.
constexpr double kNarrowLinear = 91;
constexpr double kScaledExpert = 79;  // by a tensor's own values
constexpr double kNarrowExpert = 50;
// Forward once more, and the machinery of checkpoints.
constexpr double kAgainCore = 485;
constexpr double kAgainNorms = 273;
constexpr double kAgainAct = 276;
constexpr double kAgainMlp = 398;
constexpr double kAgainMoe = 1327;
constexpr double kAgainUp = 424;
constexpr double kAgainLayer = 480;
constexpr double kAgainShare = 0.55;
// What a graph leaves out.
constexpr double kGraphedShare = 0.72;
constexpr double kGraphedRouter = 475;
// Torchtitan's layers, whose experts are one product, over the reference; as fitted to Megatron's
// before these were counted.
constexpr double kTitanExperts = 0.82;
constexpr double kTitanDense = 0.29;
}  // namespace calls

double mixer_calls(const PlanRun& run, Mixer mixer) {
  if (mixer == Mixer::none) return 0;
  double sum = calls::kAttention;
  switch (mixer) {
    case Mixer::mla:
      sum += calls::kQueryKeyNorm + calls::kLatent;
      break;
    case Mixer::gdn:
      sum += calls::kQueryKeyNorm + calls::kDeltaNet;
      break;
    case Mixer::gqa:
      if (run.model->has_qk_norm) sum += calls::kQueryKeyNorm;
      break;
    default:  // Mamba-2 was not counted
      break;
  }
  const bool is_split = run.knobs.own_tokens(1.0) < 1;  // the sequence, between ranks
  if (is_split && mixer != Mixer::mamba) {
    sum += run.knobs.exchanges_heads() ? calls::kHeads : calls::kRing;
  }
  return sum;
}

double dispatcher_calls(spec::Dispatcher dispatcher) {
  switch (dispatcher) {
    case spec::Dispatcher::allgather:
      return calls::kAllgather;
    case spec::Dispatcher::deepep:
      return calls::kDeepEp;
    case spec::Dispatcher::hybridep:
      return calls::kHybridEp;
    default:
      return 0;
  }
}

double expert_calls(const PlanRun& run, double num_experts) {
  const PlanKnobs& k = run.knobs;
  double sum = calls::kExperts + dispatcher_calls(k.dispatcher) + calls::kExpert * num_experts;
  if (run.model->shared_ffn_size > 0) sum += calls::kShared;
  return sum;
}

/// Linear modules of a layer, beside router and experts.
double linear_modules(spec::LayerKind kind) {
  return (kind.mixer == Mixer::none ? 0 : 2) + (kind.feed_forward == FeedForward::dense ? 2 : 0);
}

double adapted_calls(spec::LayerKind kind, double num_experts, double num_adapters) {
  if (num_adapters == 0) return 0;
  const double frozen = linear_modules(kind) + (num_experts > 0 ? 1 : 0);
  return calls::kAdapter * num_adapters + calls::kFrozenLinear * frozen +
         calls::kFrozenExpert * num_experts;
}

double narrow_calls(const PlanRun& run, spec::LayerKind kind, double num_experts) {
  if (!spec::is_product_narrow(run.knobs.precision)) return 0;
  const bool is_scaled = run.knobs.precision == spec::PrecisionRecipe::fp8_current;
  return calls::kNarrowLinear * linear_modules(kind) +
         (is_scaled ? calls::kScaledExpert : calls::kNarrowExpert) * num_experts;
}

double recomputed_calls(const PlanRun& run, spec::LayerKind kind, double of_layer) {
  const spec::PlanRecomputeSet& again = run.knobs.recompute;
  if (again.has(PlanRecompute::full)) return calls::kAgainShare * of_layer + calls::kAgainLayer;
  double sum = 0;
  const bool has_scores = kind.mixer == Mixer::gqa || kind.mixer == Mixer::mla;
  const bool is_moe = kind.feed_forward == FeedForward::moe;
  if (has_scores && again.has(PlanRecompute::core_attn)) sum += calls::kAgainCore;
  if (again.has(PlanRecompute::layernorm)) sum += calls::kAgainNorms;
  if (kind.mixer == Mixer::mla && again.has(PlanRecompute::mla_up_proj)) sum += calls::kAgainUp;
  if (kind.mixer == Mixer::gdn && again.has(PlanRecompute::gdn_norm_out)) {
    sum += calls::kAgainNorms / 2;
  }
  if (kind.feed_forward == FeedForward::dense && again.has(PlanRecompute::mlp)) {
    sum += calls::kAgainMlp;
  }
  if (is_moe && again.has(PlanRecompute::moe)) return sum + calls::kAgainMoe;
  if (is_moe && again.has(PlanRecompute::moe_act)) sum += calls::kAgainAct;
  if (is_moe && run.model->shared_ffn_size > 0 && again.has(PlanRecompute::shared_experts)) {
    sum += calls::kAgainMlp;
  }
  return sum;
}

double graphed_calls(const PlanRun& run, spec::LayerKind kind, double of_mixer, double of_half) {
  const spec::PlanGraphSet& graphs = run.knobs.cuda_graphs;
  const bool has_mixer =
      graphs.has(kind.mixer == Mixer::mamba ? PlanGraph::mamba : PlanGraph::attn);
  double sum = has_mixer ? calls::kGraphedShare * of_mixer : 0;
  if (kind.feed_forward == FeedForward::dense && graphs.has(PlanGraph::mlp)) {
    sum += calls::kGraphedShare * of_half;
  } else if (kind.feed_forward == FeedForward::moe && graphs.has(PlanGraph::moe)) {
    sum += calls::kGraphedShare * of_half;
  } else if (kind.feed_forward == FeedForward::moe && graphs.has(PlanGraph::moe_router)) {
    sum += calls::kGraphedRouter;
  }
  return sum;
}

}  // namespace

double reference_host_calls() {
  constexpr double kReferenceExperts = 8;
  return calls::kAttention + calls::kQueryKeyNorm + calls::kExperts +
         kReferenceExperts * calls::kExpert;
}

double host_calls(const PlanRun& run, spec::LayerKind kind, double num_adapters) {
  const bool is_moe = kind.feed_forward == FeedForward::moe;
  if (!run.is_of_megatron) {
    return reference_host_calls() * (is_moe ? calls::kTitanExperts : calls::kTitanDense);
  }
  const double num_experts = is_moe ? launched_experts(run) : 0;
  const double mixer = mixer_calls(run, kind.mixer);
  const double half = is_moe                                    ? expert_calls(run, num_experts)
                      : kind.feed_forward == FeedForward::dense ? calls::kMlp
                                                                : 0;
  double sum = mixer + half + narrow_calls(run, kind, num_experts) +
               adapted_calls(kind, num_experts, num_adapters);
  if (run.knobs.tp > 1) sum += calls::kTensor;
  return sum + recomputed_calls(run, kind, sum) - graphed_calls(run, kind, mixer, half);
}

}  // namespace moetune::tuner::planner
