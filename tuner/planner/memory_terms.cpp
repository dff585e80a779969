// The table of what a layer saves, in Megatron-Core with Transformer Engine.
#include <algorithm>

#include "tuner/planner/adapters.h"
#include "tuner/planner/memory_profile.h"

namespace moetune::tuner::planner {

namespace {

using spec::FeedForward;
using spec::Mixer;
using spec::Offload;
using spec::PlanKnobs;
using spec::PlanRecompute;
using spec::PlanRecomputeSet;
using S = const LayerSizes&;
using K = const PlanKnobs&;

bool is_gqa(S s, K) { return s.kind.mixer == Mixer::gqa; }
bool is_mla(S s, K) { return s.kind.mixer == Mixer::mla; }
bool is_attention(S s, K k) { return is_gqa(s, k) || is_mla(s, k); }
bool mixes(S s, K) { return s.kind.mixer != Mixer::none; }
/// Norm and projection are one module where the projection follows at once.
bool has_norm_in_projections(S s, K k) { return mixes(s, k) && !is_mla(s, k); }
bool is_moe(S s, K) { return s.kind.feed_forward == FeedForward::moe; }
bool is_dense(S s, K) { return s.kind.feed_forward == FeedForward::dense; }
bool has_feed_forward(S s, K) { return s.kind.feed_forward != FeedForward::none; }

double query_heads(S s) { return f64(s.model->num_heads) / s.tp; }
/// Key-value heads of a rank: at least one, where there are fewer than ranks.
double kv_heads(S s) { return std::max(1.0, f64(s.model->num_kv_heads) / s.tp); }
double head_dim(S s) { return f64(s.model->head_dim); }
/// Columns of attention's output on a rank.
double attention_cols(S s) {
  const bool is_latent = s.kind.mixer == Mixer::mla;
  return query_heads(s) * (is_latent ? f64(s.model->mla.v_head_dim) : head_dim(s));
}
/// Statistics of a norm: one number a row, two of LayerNorm.
double norm_stats(S s) { return s.model->has_layer_norm ? 2 * kWide : kWide; }
double experts_width(S s) {
  const int64_t latent = s.model->moe_latent_size;
  return latent > 0 ? f64(latent) : s.hidden;
}
double gate_factor(S s) { return s.model->has_gated_mlp ? 2 : 1; }

// A matrix keeps its input for the gradient of its weight. A frozen one keeps none, unless a norm
// is fused with it: that one's output stays. The adapter beside it keeps its input in 16 bits.
// Adapters have no dropout here, which is Megatron-Bridge's default.
double kept_operand(S s, K k) { return has_adapters(k) ? s.element : s.operand; }
/// Whether an adapter behind a fused norm has an input of its own: tensor-parallel ranks gather it,
/// or what the frozen matrix keeps is narrower.
bool has_own_input(S s, K k) { return has_adapters(k) && (s.is_narrow || s.own_tokens < s.tokens); }
double adapter_input(S s, K) { return s.tokens * s.hidden * s.element; }
/// Between the two halves of an adapter.
double half_adapted(S s, K k) { return k.lora_rank * s.element; }

double norm_input(S s, K) { return s.own_tokens * (s.hidden * s.element + norm_stats(s)); }
double mixer_input(S s, K) { return s.own_tokens * s.hidden * s.operand; }

double qkv(S s, K) {
  return s.tokens * s.element * head_dim(s) * (query_heads(s) + 2 * kv_heads(s));
}
/// Recomputed attention keeps what it is given: values are then a part of the fused product, which
/// stays as a whole, and no copy of them.
double undivided_qkv(S s, K) {
  return s.tokens * s.element * head_dim(s) * (query_heads(s) + kv_heads(s));
}
double qk_norm(S s, K) {
  return s.tokens * (s.element * head_dim(s) + kWide) * (query_heads(s) + kv_heads(s));
}
double attention_out(S s, K k) {
  // The output projection keeps a narrow copy of its own beside what attention keeps.
  const bool has_copy = s.is_narrow && !has_adapters(k);
  return s.tokens * attention_cols(s) * (s.element + (has_copy ? s.operand : 0));
}
double log_sum_exp(S s, K) { return s.tokens * query_heads(s) * kWide; }
double other_layout(S s, K) { return s.tokens * attention_cols(s) * s.element; }
double attention_scores(S s, K) {
  // Softmax; with dropout also the mask, one byte, and the result.
  const double each = s.element + (s.model->attention_dropout > 0 ? 1 + s.element : 0);
  return s.tokens * query_heads(s) * s.seq * each;
}
/// Plain attention repeats keys and values for each query head.
double repeated_kv(S s, K) { return s.tokens * s.element * 2 * query_heads(s) * head_dim(s); }
double output_gate(S s, K) { return s.tokens * 2 * attention_cols(s) * s.element; }

double query_latent(S s, K) {
  const double rank = f64(s.model->mla.q_lora_rank);
  return s.own_tokens * (rank * (s.element + s.operand) + kWide);
}
double query_latent_left(S s, K) {
  return s.own_tokens * f64(s.model->mla.q_lora_rank) * s.element;
}
double kv_latent(S s, K) {
  const spec::MlaSpec& mla = s.model->mla;
  return s.own_tokens * (s.element * f64(mla.kv_lora_rank + mla.qk_rope_head_dim) + kWide +
                         s.operand * f64(mla.kv_lora_rank));
}
double kv_latent_left(S s, K) {
  const spec::MlaSpec& mla = s.model->mla;
  return s.own_tokens * s.element * f64(mla.kv_lora_rank + mla.qk_rope_head_dim);
}
double latent_qkv(S s, K) {
  const spec::MlaSpec& mla = s.model->mla;
  // Keys are made for all heads.
  return s.tokens * s.element * query_heads(s) * f64(2 * mla.qk_head_dim() + mla.v_head_dim);
}

/// Gated DeltaNet of Megatron-Core around the kernels of flash-linear-attention, in columns of a
/// token: the input projection's whole output, of which the convolution's input is a part; queries
/// and keys behind their norm, and again repeated for each value head; values; the triangle of each
/// chunk of 64 tokens; the scan's output, behind its norm, and the gate; the input of the output
/// projection. Decay and strength of each head are wide.
double delta_net(S s, K) {
  const spec::GdnSpec& gdn = s.model->gdn;
  const double qk = f64(gdn.key_size());
  const double v = f64(gdn.value_size());
  const double heads = f64(gdn.num_value_heads);
  const double repeated = 2 * f64(gdn.key_head_dim) * heads;
  constexpr double kChunk = 64;
  const double projected = 2 * qk + 2 * v + 2 * heads;
  const double columns = projected + 2 * qk + repeated + v + kChunk * heads + 4 * v;
  return s.tokens / s.tp * (s.element * columns + 3 * kWide * heads);
}
double mamba(S s, K) {
  const spec::MambaSpec& m = s.model->mamba;
  const double inner = f64(m.inner_size());
  const double state = f64(m.num_groups * m.state_size);
  return s.tokens / s.tp *
         (s.element * (2 * inner + 2 * state + f64(m.num_heads)) + 3 * s.element * inner);
}

double dropout_mask(S s, K) { return s.own_tokens * s.hidden; }

double mlp_input(S s, K) { return s.own_tokens * s.hidden * s.operand; }
/// Router and shared expert read it in 16 bits.
double moe_input(S s, K) { return s.own_tokens * s.hidden * s.element; }
double dense_fc1(S s, K) {
  return s.tokens * gate_factor(s) * f64(s.model->ffn_size) / s.tp * s.element;
}
double dense_act(S s, K k) { return s.tokens * f64(s.model->ffn_size) / s.tp * kept_operand(s, k); }

double router(S s, K) {
  const double experts = f64(s.model->num_experts);
  // Logits, scores and probabilities, a map of one byte, and of each choice its number and its
  // weights.
  return s.own_tokens * (3 * kWide * experts + experts + 16 * f64(s.model->experts_per_token));
}
double row_map(S s, K) { return s.own_tokens * kWide * (2 * f64(s.model->num_experts) + 1); }
double expert_input(S s, K k) { return s.rows * experts_width(s) * kept_operand(s, k); }
double expert_probs(S s, K) { return s.rows * kWide; }
double expert_width(S s) { return f64(s.model->moe_ffn_size) / s.etp; }
double expert_fc1(S s, K) { return s.rows * gate_factor(s) * expert_width(s) * s.element; }
// Inputs and first products of all chunks stay until the weights' gradients, which come last.
double expert_act(S s, K k) { return s.chunk_rows * expert_width(s) * kept_operand(s, k); }
/// Megatron-Core fuses gated activations of experts with their rows' weights; of others squared
/// ReLU alone, by a switch that recipes of such models set.
bool is_expert_activation_fused(S s, K k) {
  return k.fused_activation && (s.model->has_gated_mlp || s.model->hidden_act == "relu2");
}
double unscaled_act(S s, K) { return s.chunk_rows * expert_width(s) * s.element; }
double latent_projections(S s, K) {
  return s.own_tokens * 2 * s.element * f64(s.model->moe_latent_size);
}
double shared_width(S s) { return f64(s.model->shared_ffn_size) / s.tp; }
double shared_fc1(S s, K) { return s.tokens * gate_factor(s) * shared_width(s) * s.element; }
double shared_act(S s, K k) { return s.tokens * shared_width(s) * kept_operand(s, k); }
bool has_shared_adapters(S s, K k) {
  return is_moe(s, k) && s.model->shared_ffn_size > 0 && has_adapters(k);
}

constexpr PlanRecomputeSet kFullOnly;
constexpr PlanRecomputeSet kNorm{PlanRecompute::layernorm};
constexpr PlanRecomputeSet kCore{PlanRecompute::core_attn};
constexpr PlanRecomputeSet kUpProjection{PlanRecompute::mla_up_proj};
constexpr PlanRecomputeSet kMlp{PlanRecompute::mlp};
constexpr PlanRecomputeSet kMoe{PlanRecompute::moe};
constexpr PlanRecomputeSet kMoeAct{PlanRecompute::moe_act, PlanRecompute::moe};
constexpr PlanRecomputeSet kShared{PlanRecompute::shared_experts, PlanRecompute::moe};
constexpr PlanRecomputeSet kMoeNorm{PlanRecompute::layernorm, PlanRecompute::moe};

constexpr auto kSource = Evidence::source;
constexpr auto kMeasured = Evidence::measured;
constexpr auto kAssumed = Evidence::assumed;

const SavedTerm kTerms[] = {
    // What is offloaded of a module is what it is given.
    {"input of the mixer's norm",
     kMeasured,
     is_mla,
     norm_input,
     kFullOnly,
     nullptr,
     {Offload::attn_norm}},
    {"input of the norm in the projections",
     kMeasured,
     has_norm_in_projections,
     norm_input,
     kFullOnly,
     nullptr,
     {Offload::qkv_linear}},
    {"input of the projections",
     kMeasured,
     has_norm_in_projections,
     mixer_input,
     kFullOnly,
     nullptr,
     {Offload::qkv_linear}},
    {"input of the projections' adapter", kMeasured,
     [](S s, K k) { return is_gqa(s, k) && has_own_input(s, k); }, adapter_input, kFullOnly},
    {"input of the down projections",
     kMeasured,
     [](S s, K k) { return is_mla(s, k) && !has_adapters(k); },
     mixer_input,
     kNorm,
     nullptr,
     {Offload::qkv_linear}},
    {"queries, keys, values", kMeasured, is_gqa, qkv, kFullOnly, nullptr, {Offload::core_attn}},
    {"rest of the fused product of queries, keys, values", kMeasured,
     [](S s, K k) { return is_gqa(s, k) && k.recompute.has(PlanRecompute::core_attn); },
     undivided_qkv, kFullOnly},
    {"inputs of the norms of queries and keys",
     kSource,
     [](S s, K k) { return is_gqa(s, k) && s.model->has_qk_norm; },
     qk_norm,
     kFullOnly,
     nullptr,
     {Offload::qkv_linear}},
    {"query latent", kSource, [](S s, K k) { return is_mla(s, k) && s.model->mla.q_lora_rank > 0; },
     query_latent, kUpProjection, query_latent_left},
    {"key-value latent", kSource, is_mla, kv_latent, kUpProjection, kv_latent_left},
    {"queries, keys, values of all heads",
     kMeasured,
     is_mla,
     latent_qkv,
     kUpProjection,
     nullptr,
     {Offload::core_attn}},
    {"attention's output",
     kMeasured,
     is_attention,
     attention_out,
     kFullOnly,
     nullptr,
     {Offload::attn_proj}},
    {"log-sum-exp", kMeasured, is_attention, log_sum_exp, kCore},
    // The exchange makes a second copy, split by heads.
    {"attention's output by heads", kMeasured,
     [](S s, K k) { return is_attention(s, k) && k.exchanges_heads(); }, other_layout, kFullOnly},
    {kScores,
     kMeasured,
     [](S s, K k) { return is_attention(s, k) && !k.fused_attention; },
     attention_scores,
     kCore,
     nullptr,
     {Offload::core_attn}},
    {"keys and values of all heads",
     kMeasured,
     [](S s, K k) { return is_gqa(s, k) && !k.fused_attention && kv_heads(s) < query_heads(s); },
     repeated_kv,
     kCore,
     nullptr,
     {Offload::core_attn}},
    {"output gate", kSource, [](S s, K k) { return is_gqa(s, k) && s.model->has_attention_gate; },
     output_gate, kFullOnly},
    {"between the halves of attention's adapters", kSource,
     [](S s, K k) { return is_attention(s, k) && has_adapters(k); },
     // Of latent attention only the output has one.
     [](S s, K k) { return (is_mla(s, k) ? 1 : 2) * s.tokens * half_adapted(s, k); }, kFullOnly},
    {"Gated DeltaNet", kSource, [](S s, K) { return s.kind.mixer == Mixer::gdn; }, delta_net,
     kFullOnly},
    {"Mamba-2", kAssumed, [](S s, K) { return s.kind.mixer == Mixer::mamba; }, mamba, kFullOnly},
    {"mask of dropout behind the mixer", kMeasured,
     [](S s, K k) { return mixes(s, k) && s.model->hidden_dropout > 0; }, dropout_mask, kFullOnly},
    {"input of the MLP's norm",
     kMeasured,
     has_feed_forward,
     norm_input,
     kFullOnly,
     nullptr,
     {Offload::mlp_norm}},
    {"input of the MLP", kMeasured, is_dense, mlp_input, kMlp},
    {"input of the MLP's adapter", kSource,
     [](S s, K k) { return is_dense(s, k) && has_own_input(s, k); }, adapter_input, kMlp},
    {"input of router and experts", kMeasured, is_moe, moe_input, kMoeNorm},
    {"first product of the MLP", kMeasured, is_dense, dense_fc1, kMlp},
    {"activation of the MLP", kMeasured, is_dense, dense_act, kMlp},
    {"between the halves of the MLP's adapters", kSource,
     [](S s, K k) { return is_dense(s, k) && has_adapters(k); },
     [](S s, K k) { return 2 * s.tokens * half_adapted(s, k); }, kMlp},
    {"router", kSource, is_moe, router, kMoe},
    {"map of rows", kSource, [](S s, K k) { return is_moe(s, k) && k.moe_permute_fusion; }, row_map,
     kMoe},
    {"input of the experts", kMeasured, is_moe, expert_input, kMoe, nullptr, {Offload::expert_fc1}},
    {"weights of the experts' rows", kSource, is_moe, expert_probs, kMoe},
    {"first product of the experts",
     kMeasured,
     is_moe,
     expert_fc1,
     kMoe,
     nullptr,
     {Offload::moe_act}},
    {"activation of the experts", kMeasured, is_moe, expert_act, kMoeAct},
    {"activation before its weight",
     kMeasured,
     [](S s, K k) { return is_moe(s, k) && !is_expert_activation_fused(s, k); },
     unscaled_act,
     kMoeAct,
     nullptr,
     {Offload::moe_act}},
    {"between the halves of the experts' adapters", kSource,
     [](S s, K k) { return is_moe(s, k) && has_adapters(k); },
     [](S s, K k) { return 2 * s.rows * half_adapted(s, k); }, kMoe},
    {"projections to and from the experts' width", kSource,
     [](S s, K k) { return is_moe(s, k) && s.model->moe_latent_size > 0; }, latent_projections,
     kMoe},
    {"first product of the shared expert", kSource,
     [](S s, K k) { return is_moe(s, k) && s.model->shared_ffn_size > 0; }, shared_fc1, kShared},
    {"activation of the shared expert", kSource,
     [](S s, K k) { return is_moe(s, k) && s.model->shared_ffn_size > 0; }, shared_act, kShared},
    {"gathered input of the shared expert's adapter", kSource,
     [](S s, K k) { return has_shared_adapters(s, k) && s.own_tokens < s.tokens; }, adapter_input,
     kShared},
    {"between the halves of the shared expert's adapters", kSource, has_shared_adapters,
     [](S s, K k) { return 2 * s.tokens * half_adapted(s, k); }, kShared},
    {"mask of dropout behind the MLP", kMeasured,
     [](S s, K k) { return has_feed_forward(s, k) && s.model->hidden_dropout > 0; }, dropout_mask,
     kFullOnly},
};

}  // namespace

std::span<const SavedTerm> saved_terms() { return kTerms; }

}  // namespace moetune::tuner::planner
