// The keys of a Hugging Face config.json that are read: one row each, for reading and for the page.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "engine/spec/fields.h"

namespace moetune::spec {

struct ModelKey {
  FieldInfo info;
  FieldKind kind;
  /// Of what is absent, where it is the same in every family; of true or false 1 or 0.
  std::optional<double> fallback{};

  [[nodiscard]] constexpr ModelKey or_else(double value) const { return {info, kind, value}; }
};

namespace detail {

// Far above any published model, and low enough that no product of sizes overflows before it is
// checked.
constexpr double kMaxVocab = int64_t{1} << 22;
constexpr double kMaxHidden = int64_t{1} << 20;
constexpr double kMaxFfn = int64_t{1} << 22;
constexpr double kMaxHeads = 1 << 14;
constexpr double kMaxHeadDim = 1 << 13;
constexpr double kMaxExperts = 1 << 14;
constexpr double kMaxPositions = int64_t{1} << 28;
constexpr double kMaxFactor = 1e6;
constexpr double kMaxLayers = 1024;
constexpr double kMaxMtpDepth = 64;
constexpr double kMaxKernel = 1024;

constexpr ModelKey size_key(std::string_view key, double min, double max, std::string_view help,
                            Presence presence = Presence::optional) {
  return {{.key = key, .limits = {min, max}, .help = help, .presence = presence},
          FieldKind::integer};
}
constexpr ModelKey number_key(std::string_view key, double min, double max, std::string_view help) {
  return {{.key = key, .limits = {min, max}, .help = help}, FieldKind::number};
}
constexpr ModelKey word_key(std::string_view key, FieldKind kind, std::string_view help,
                            Presence presence = Presence::optional) {
  return {{.key = key, .quantity = Quantity::text, .help = help, .presence = presence}, kind};
}

}  // namespace detail

/// Of the document. What is absent and not required has the default of the family in the reference
/// implementation (transformers 5), in megatron_gpt and megatron_gpt_moe that of Megatron-LM.
inline constexpr std::array kModelKeys = {
    detail::word_key(
        "model_type", FieldKind::text,
        "The family. The engine runs llama, mixtral and qwen3_moe. Plans also know "
        "mistral, qwen2, qwen3, qwen2_moe, qwen3_next, qwen3_5_text, qwen3_5_moe_text, "
        "qwen3_vl_text, qwen3_vl_moe_text, deepseek_v2, deepseek_v3, deepseek_v32, kimi_k2, "
        "glm4_moe, "
        "glm4_moe_lite, glm_moe_dsa, minimax_m2, ernie4_5_moe, bailing_moe, bailing_moe_v2, "
        "hunyuan_v1_moe, olmoe, llama4_text, phi3, phimoe, granitemoe, granitemoeshared, dbrx, "
        "gpt_oss, nemotron, nemotron_h, internlm2, Yi, baichuan, seed_oss, mimo, gemma, "
        "starcoder2, dots1, qwen3_omni_moe (flat, or its qwen3_omni_moe_text), gpt2, megatron_gpt "
        "and megatron_gpt_moe; qwen3_5, "
        "qwen3_5_moe, qwen3_vl, qwen3_vl_moe, llama4 and kimi_k25 are multimodal ones.",
        Presence::required),
    detail::word_key("text_config", FieldKind::object,
                     "The text part of multimodal families: read in place of the document, which "
                     "adds tie_word_embeddings. Ignored in others."),
    detail::word_key("vision_config", FieldKind::object,
                     "Ignored: a vision tower is neither planned nor counted."),
    detail::size_key("vocab_size", 1, detail::kMaxVocab, "Tokens of the vocabulary.",
                     Presence::required),
    detail::size_key("padded_vocab_size", 1, detail::kMaxVocab,
                     "Rows of the embedding and the head, at least vocab_size; absent: as many."),
    detail::size_key("hidden_size", 1, detail::kMaxHidden, "Width of the residual stream.",
                     Presence::required),
    detail::size_key("n_embd", 1, detail::kMaxHidden, "The same, gpt2's spelling."),
    detail::size_key(
        "d_model", 1, detail::kMaxHidden,
        "The same, dbrx's spelling. Keys within attn_config and ffn_config are read as "
        "if they stood here."),
    detail::size_key("num_hidden_layers", 1, detail::kMaxLayers,
                     "Layers; nemotron_h may leave it to its pattern.", Presence::required),
    detail::size_key("n_layer", 1, detail::kMaxLayers, "The same, gpt2's spelling."),
    detail::size_key("n_layers", 1, detail::kMaxLayers, "The same, dbrx's spelling."),
    detail::size_key("num_attention_heads", 1, detail::kMaxHeads, "Query heads.",
                     Presence::required),
    detail::size_key("n_head", 1, detail::kMaxHeads, "The same, gpt2's spelling."),
    detail::size_key("n_heads", 1, detail::kMaxHeads, "The same, dbrx's spelling."),
    detail::size_key("num_key_value_heads", 1, detail::kMaxHeads,
                     "Key and value heads; absent: as many as query heads. Ignored in families of "
                     "latent attention, which have as many."),
    detail::size_key("kv_n_heads", 1, detail::kMaxHeads, "The same, dbrx's spelling."),
    detail::size_key("head_dim", 1, detail::kMaxHeadDim,
                     "Width of a head; absent: hidden_size / num_attention_heads. Ignored where "
                     "the qk_ and v_ keys below say it."),
    detail::size_key(
        "q_lora_rank", 0, detail::kMaxHidden,
        "Width that queries are compressed to; null or 0: they are not. Of families of latent "
        "attention (deepseek_v2, deepseek_v3, deepseek_v32, kimi_k2, glm4_moe_lite, "
        "glm_moe_dsa), as the next four, which are required there."),
    detail::size_key("kv_lora_rank", 1, detail::kMaxHidden,
                     "Width that keys and values are compressed to."),
    detail::size_key("qk_nope_head_dim", 1, detail::kMaxHeadDim,
                     "Width of a query's and a key's part without positions."),
    detail::size_key("qk_rope_head_dim", 1, detail::kMaxHeadDim, "Of the part that is rotated."),
    detail::size_key("v_head_dim", 1, detail::kMaxHeadDim, "Width of a value head."),
    detail::size_key("index_n_heads", 1, detail::kMaxHeads,
                     "Heads of the indexer that chooses keys; deepseek_v32 and glm_moe_dsa, as the "
                     "next, both required there."),
    detail::size_key("index_head_dim", 1, detail::kMaxHeadDim, "Width of its heads."),
    detail::size_key("index_topk_freq", 1, detail::kMaxLayers,
                     "Every so many layers choose keys anew: only 1 is known.")
        .or_else(1),
    ModelKey{{.key = "indexer_types",
              .quantity = Quantity::text,
              .help = "The same as a list: only full is known."},
             FieldKind::texts},
    detail::word_key("use_cla", FieldKind::boolean,
                     "hunyuan_v1_moe: layers that share keys and values; only false is known."),
    detail::word_key("attn_output_gate", FieldKind::boolean,
                     "A gate on what attention puts out, as wide as the queries; absent: in "
                     "qwen3_next and qwen3_5."),
    detail::word_key("attention_sinks", FieldKind::boolean,
                     "A learned logit of each query head; absent: in gpt_oss."),
    detail::word_key("use_qk_norm", FieldKind::boolean,
                     "Norms on queries and keys (on what they are compressed to, where they are); "
                     "absent: as the family has them."),
    detail::size_key(
        "full_attention_interval", 1, detail::kMaxLayers,
        "Every so many layers attend, the others are Gated DeltaNet; layer_types wins. "
        "qwen3_next and qwen3_5, as the next five, which are required there. In llama4 every so "
        "many layers see all keys.")
        .or_else(4),
    detail::size_key("linear_conv_kernel_dim", 1, detail::kMaxKernel,
                     "Taps of Gated DeltaNet's convolution."),
    detail::size_key("linear_num_key_heads", 1, detail::kMaxHeads, "Its key heads."),
    detail::size_key("linear_num_value_heads", 1, detail::kMaxHeads,
                     "Its value heads, a multiple of the key heads."),
    detail::size_key("linear_key_head_dim", 1, detail::kMaxHeadDim, "Width of its key heads."),
    detail::size_key("linear_value_head_dim", 1, detail::kMaxHeadDim, "Width of its value heads."),
    detail::word_key("hybrid_override_pattern", FieldKind::text,
                     "nemotron_h: a letter for each layer. M Mamba-2, E experts, * attention, - "
                     "MLP. Required there, or layers_block_type."),
    ModelKey{{.key = "layers_block_type",
              .quantity = Quantity::text,
              .help = "The same as words: mamba or linear_attention, moe, attention or "
                      "full_attention, mlp."},
             FieldKind::texts},
    detail::size_key("mamba_num_heads", 1, detail::kMaxHeads,
                     "Heads of Mamba-2, a multiple of n_groups. nemotron_h, as the next four, all "
                     "required where there is an M."),
    detail::size_key("mamba_head_dim", 1, detail::kMaxHeadDim, "Width of its heads."),
    detail::size_key("ssm_state_size", 1, detail::kMaxHeadDim, "Its state, elements for each."),
    detail::size_key("n_groups", 1, detail::kMaxHeads, "Its groups of heads."),
    detail::size_key("conv_kernel", 1, detail::kMaxKernel, "Taps of its convolution."),
    detail::size_key(
        "intermediate_size", 1, detail::kMaxFfn,
        "Width of dense layers, and of the experts of families whose files have no "
        "moe_intermediate_size, such as mixtral. Required where the model has either; in gpt2, "
        "megatron_gpt and megatron_gpt_moe absent: 4 x hidden_size."),
    detail::size_key("n_inner", 1, detail::kMaxFfn, "The same, gpt2's spelling."),
    detail::size_key("ffn_hidden_size", 1, detail::kMaxFfn, "The same, dbrx's spelling."),
    detail::size_key("intermediate_size_mlp", 1, detail::kMaxFfn,
                     "Width of llama4's dense layers."),
    detail::word_key("gated_mlp", FieldKind::boolean,
                     "Three matrices in an MLP; false: two. Absent: two in nemotron, nemotron_h, "
                     "gpt2, megatron_gpt and megatron_gpt_moe."),
    detail::size_key("num_local_experts", 0, detail::kMaxExperts,
                     "Experts of a layer, the spelling of mixtral, gpt_oss, minimax_m2, phimoe, "
                     "granitemoe and llama4."),
    detail::size_key("num_experts", 0, detail::kMaxExperts,
                     "Experts of a layer. Families with experts need it in one of its spellings. "
                     "Where only plans know the family, this, how many are chosen or shared, and "
                     "their width may be lists of the same number for each layer."),
    detail::size_key("moe_num_experts", 0, detail::kMaxExperts,
                     "The same, the spelling of ernie4_5_moe and dbrx."),
    detail::size_key("n_routed_experts", 0, detail::kMaxExperts,
                     "Experts of a layer, the spelling of families of latent attention, glm4_moe "
                     "and nemotron_h."),
    detail::size_key("num_experts_per_tok", 1, detail::kMaxExperts,
                     "Experts that a token is sent to. Required where there are experts."),
    detail::size_key("moe_k", 1, detail::kMaxExperts, "The same, ernie4_5_moe's spelling."),
    detail::size_key("moe_topk", 1, detail::kMaxExperts, "The same, hunyuan_v1_moe's spelling."),
    detail::size_key("moe_top_k", 1, detail::kMaxExperts, "The same, dbrx's spelling."),
    detail::size_key("moe_intermediate_size", 1, detail::kMaxFfn,
                     "Width of an expert. Required where there are experts, but in mixtral, "
                     "gpt_oss, minimax_m2, olmoe, phimoe, granitemoe and dbrx, which do not read "
                     "it; in megatron_gpt_moe, hunyuan_v1_moe and llama4 absent: "
                     "intermediate_size."),
    detail::size_key("moe_latent_size", 0, detail::kMaxHidden,
                     "Width of what experts get and give; null or 0: hidden_size."),
    detail::size_key("shared_expert_intermediate_size", 0, detail::kMaxFfn,
                     "Width of the shared expert; 0: none. Required in qwen2_moe, qwen3_next and "
                     "qwen3_5_moe.")
        .or_else(0),
    detail::size_key("shared_intermediate_size", 0, detail::kMaxFfn,
                     "The same, granitemoeshared's spelling."),
    detail::size_key("moe_shared_expert_intermediate_size", 0, detail::kMaxFfn,
                     "The same in nemotron_h, required there where there are experts."),
    detail::size_key("n_shared_experts", 0, detail::kMaxExperts,
                     "Shared experts, each as wide as an expert; null or 0: none. Required in "
                     "families of latent attention, glm4_moe, ernie4_5_moe, bailing_moe and "
                     "hunyuan_v1_moe; 0 in nemotron_h: no shared expert. llama4 has one."),
    detail::size_key("moe_num_shared_experts", 0, detail::kMaxExperts,
                     "The same, ernie4_5_moe's spelling."),
    detail::size_key("num_shared_expert", 0, detail::kMaxExperts,
                     "The same, hunyuan_v1_moe's spelling."),
    detail::size_key("num_shared_experts", 0, detail::kMaxExperts,
                     "The same, bailing_moe's spelling."),
    detail::word_key("shared_expert_gate", FieldKind::boolean,
                     "A gate on the shared expert, one number a token; absent: in qwen2_moe, "
                     "qwen3_next and qwen3_5_moe."),
    detail::word_key("topk_method", FieldKind::text,
                     "noaux_tc: a bias on the scores that choose experts. Absent: as the family "
                     "has it."),
    detail::word_key("use_routing_bias", FieldKind::boolean,
                     "The same in words of minimax_m2; wins. Ignored in mixtral and qwen3_moe."),
    detail::word_key("moe_router_enable_expert_bias", FieldKind::boolean,
                     "The same, bailing_moe's spelling."),
    detail::word_key("norm_topk_prob", FieldKind::boolean,
                     "The chosen experts' weights add up to 1; always so in mixtral and others "
                     "that do not read it.")
        .or_else(0),
    detail::size_key("decoder_sparse_step", 1, detail::kMaxPositions,
                     "Layer i has experts where this divides i + 1; qwen2_moe, qwen3_moe, "
                     "qwen3_next, qwen3_5_moe, qwen3_vl_moe, hunyuan_v1_moe, ernie4_5_moe, llama4 "
                     "and megatron_gpt_moe.")
        .or_else(1),
    detail::size_key("moe_layer_interval", 1, detail::kMaxPositions,
                     "The same, ernie4_5_moe's spelling."),
    detail::size_key("interleave_moe_layer_step", 1, detail::kMaxPositions,
                     "The same, llama4's spelling."),
    detail::size_key("moe_layer_start_index", 0, detail::kMaxPositions,
                     "ernie4_5_moe: the first layer that may have experts.")
        .or_else(0),
    detail::size_key("moe_layer_end_index", -1, detail::kMaxPositions,
                     "ernie4_5_moe: the last one; -1: the last of all.")
        .or_else(-1),
    ModelKey{{.key = "moe_layers",
              .limits = {0, detail::kMaxPositions},
              .help = "llama4: the layers with experts, in place of the step."},
             FieldKind::numbers},
    ModelKey{{.key = "mlp_only_layers",
              .limits = {0, detail::kMaxPositions},
              .help = "Layers without experts; the same families."},
             FieldKind::numbers},
    detail::size_key("first_k_dense_replace", 0, detail::kMaxPositions,
                     "Layers before the first with experts; required in families of latent "
                     "attention, glm4_moe and bailing_moe, or mlp_layer_types."),
    ModelKey{{.key = "mlp_layer_types",
              .quantity = Quantity::text,
              .help = "The same families: dense or sparse (with experts) for each layer; wins."},
             FieldKind::texts},
    detail::size_key("moe_layer_freq", 1, detail::kMaxPositions,
                     "From there on layer i has experts where this divides i; the same families.")
        .or_else(1),
    detail::size_key("num_nextn_predict_layers", 0, detail::kMaxMtpDepth,
                     "Blocks of multi-token prediction, each with a layer like the last.")
        .or_else(0),
    detail::size_key("mtp_num_hidden_layers", 0, detail::kMaxMtpDepth,
                     "The same, the spelling of qwen3_next and qwen3_5.")
        .or_else(0),
    detail::word_key("mtp_hybrid_override_pattern", FieldKind::text,
                     "nemotron_h: the layers of such a block, in letters; absent: *E."),
    ModelKey{{.key = "mtp_layers_block_type",
              .quantity = Quantity::text,
              .help = "The same as words, as in layers_block_type."},
             FieldKind::texts},
    detail::word_key("mtp_use_repeated_layer", FieldKind::boolean,
                     "All such blocks are one, with the same weights.")
        .or_else(0),
    detail::word_key("attention_bias", FieldKind::boolean,
                     "Biases in attention; in qwen2, qwen2_moe, seed_oss, mimo, glm4_moe and "
                     "bailing_moe on queries, keys and values. Absent: in the first four, on all "
                     "in gpt_oss.")
        .or_else(0),
    detail::word_key("qkv_bias", FieldKind::boolean, "The same, the spelling of qwen2_moe."),
    detail::word_key("bias", FieldKind::boolean, "The same, internlm2's spelling."),
    detail::word_key("use_qkv_bias", FieldKind::boolean, "The same, bailing_moe's spelling."),
    detail::word_key("mlp_bias", FieldKind::boolean,
                     "Biases in dense layers; llama. Of experts and router in gpt_oss, absent: "
                     "true. Ignored in mixtral and qwen3_moe, refused elsewhere.")
        .or_else(0),
    detail::word_key("use_bias", FieldKind::boolean,
                     "Biases everywhere: gpt2, starcoder2 and megatron_gpt, absent: true. Refused "
                     "in other families."),
    detail::size_key("max_position_embeddings", 1, detail::kMaxPositions,
                     "Longest sequence that the model was made for."),
    detail::size_key("n_positions", 1, detail::kMaxPositions, "The same, gpt2's spelling."),
    detail::size_key("max_seq_len", 1, detail::kMaxPositions, "The same, dbrx's spelling."),
    detail::word_key("position_embedding", FieldKind::text,
                     "rope, learned (a row for each position) or none. Absent: none in nemotron_h, "
                     "learned in gpt2, megatron_gpt and megatron_gpt_moe, rope elsewhere."),
    detail::word_key("use_sliding_window", FieldKind::boolean,
                     "Whether sliding_window counts; qwen2, qwen3, qwen2_moe and qwen3_moe.")
        .or_else(0),
    detail::size_key("sliding_window", 1, detail::kMaxPositions,
                     "Keys that a query sees; null or none: all before it."),
    detail::size_key("attention_chunk_size", 1, detail::kMaxPositions,
                     "The same in llama4, whose keys come in chunks of so many: a query sees those "
                     "of its chunk."),
    detail::size_key("no_rope_layer_interval", 1, detail::kMaxLayers,
                     "llama4: every so many layers see all keys."),
    ModelKey{{.key = "no_rope_layers",
              .limits = {0, 1},
              .help = "llama4: the same as a list, 0 for such a layer and 1 for one with chunks. "
                      "layer_types wins."},
             FieldKind::numbers},
    detail::size_key("max_window_layers", 0, detail::kMaxPositions,
                     "qwen2 and qwen3: the first layer with a window. qwen2_moe: every other layer "
                     "before it has one.")
        .or_else(28),
    ModelKey{{.key = "layer_types",
              .quantity = Quantity::text,
              .help = "A list of full_attention or sliding_attention (in llama4 also "
                      "chunked_attention), one for each layer; in qwen3_next and qwen3_5 of "
                      "full_attention or linear_attention."},
             FieldKind::texts},
    detail::word_key("norm", FieldKind::text,
                     "rmsnorm or layernorm (with a bias). Absent: layernorm in phimoe, dbrx, "
                     "nemotron, starcoder2, gpt2, megatron_gpt and megatron_gpt_moe."),
    detail::number_key("rms_norm_eps", 0, 1, "Epsilon of the norms."),
    detail::number_key("layer_norm_epsilon", 0, 1,
                       "The same, the spelling of gpt2 and nemotron_h."),
    detail::number_key("norm_eps", 0, 1, "The same, nemotron's spelling."),
    detail::number_key("norm_epsilon", 0, 1, "The same, starcoder2's spelling."),
    detail::number_key("initializer_range", 0, 1, "Standard deviation of initial weights.")
        .or_else(0.02),
    detail::word_key("hidden_act", FieldKind::text,
                     "silu, swish, gelu, gelu_pytorch_tanh, gelu_new or relu; but in llama, "
                     "mixtral and qwen3_moe also relu2. Absent: relu2 in nemotron and nemotron_h, "
                     "gelu in megatron_gpt and megatron_gpt_moe, gelu_new in gpt2, "
                     "gelu_pytorch_tanh in gemma and starcoder2."),
    detail::word_key("mlp_hidden_act", FieldKind::text, "The same, nemotron_h's spelling."),
    detail::word_key("activation_function", FieldKind::text, "The same, gpt2's spelling."),
    detail::word_key("tie_word_embeddings", FieldKind::boolean,
                     "The head uses the embedding's weights. Absent: true in ernie4_5_moe, gemma, "
                     "starcoder2, gpt2, "
                     "megatron_gpt and megatron_gpt_moe.")
        .or_else(0),
    detail::number_key("rope_theta", 1.0001, 1e15, "Base of the rotary embedding."),
    detail::word_key("rope_scaling", FieldKind::object,
                     "Scaling of the rotary embedding, the older spelling."),
    detail::word_key("rope_parameters", FieldKind::object, "The same, the newer spelling."),
    detail::size_key("original_max_position_embeddings", 1, detail::kMaxPositions,
                     "Sequence length before scaling; wins over the one inside."),
    detail::number_key("partial_rotary_factor", 0, 1,
                       "Share of a head that is rotated; only 1 is supported in llama, mixtral and "
                       "qwen3_moe. Absent: 0.25 in qwen3_next and qwen3_5, 0.5 in glm4_moe, "
                       "minimax_m2 and nemotron.")
        .or_else(1),
    detail::number_key("attention_dropout", 0, 1,
                       "Only 0 is supported in llama, mixtral and qwen3_moe. Absent: 0.1 in gpt2, "
                       "megatron_gpt and megatron_gpt_moe.")
        .or_else(0),
    detail::number_key("attn_pdrop", 0, 1, "The same, the spelling of gpt2 and dbrx."),
    detail::number_key("hidden_dropout", 0, 1,
                       "Dropout behind attention and MLP, with the same defaults.")
        .or_else(0),
    detail::number_key("resid_pdrop", 0, 1, "The same, the spelling of gpt2, phi3 and dbrx."),
    detail::number_key("residual_dropout", 0, 1, "The same, starcoder2's spelling."),
    detail::number_key("output_dropout", 0, 1, "The same, bailing_moe's spelling."),
    detail::number_key("router_jitter_noise", 0, 1, "Only 0 is supported; in phimoe it is ignored.")
        .or_else(0),
    detail::word_key("quantization_config", FieldKind::object,
                     "Refused in llama, mixtral and qwen3_moe: quantized weights are not "
                     "supported. Ignored elsewhere: plans read no weights."),
};

/// Of rope_scaling and rope_parameters.
inline constexpr std::array kRopeKeys = {
    detail::word_key(
        "rope_type", FieldKind::text,
        "default, linear, dynamic, yarn or llama3; but in llama, mixtral and qwen3_moe "
        "also longrope, or su, whose factors are ignored."),
    detail::word_key("type", FieldKind::text, "The same, an older spelling."),
    detail::number_key("rope_theta", 1.0001, 1e15, "Base."),
    detail::number_key("partial_rotary_factor", 0, 1, "As outside, and wins over it.").or_else(1),
    detail::size_key("original_max_position_embeddings", 1, detail::kMaxPositions,
                     "Sequence length before scaling."),
    detail::number_key(
        "factor", 1e-6, detail::kMaxFactor,
        "By which positions are scaled; required but in default, yarn and longrope."),
    detail::number_key("low_freq_factor", 1e-6, detail::kMaxFactor, "llama3, required there."),
    detail::number_key("high_freq_factor", 1e-6, detail::kMaxFactor, "llama3, required there."),
    detail::number_key("beta_fast", 0, detail::kMaxFactor, "yarn; 0 is the default, too.")
        .or_else(32),
    detail::number_key("beta_slow", 0, detail::kMaxFactor, "yarn; 0 is the default, too.")
        .or_else(1),
    detail::number_key("attention_factor", 1e-6, detail::kMaxFactor,
                       "yarn; absent: from factor and mscale."),
    detail::number_key("mscale", 0, detail::kMaxFactor, "yarn.").or_else(0),
    detail::number_key("mscale_all_dim", 0, detail::kMaxFactor, "yarn.").or_else(0),
    detail::word_key("truncate", FieldKind::boolean, "yarn.").or_else(1),
};

namespace detail {

template <size_t Size>
consteval const ModelKey& row_of(const std::array<ModelKey, Size>& rows, std::string_view name) {
  for (const ModelKey& row : rows) {
    if (row.info.key == name) return row;
  }
  throw "no such row";
}

}  // namespace detail

/// For what is checked while it is compiled: there g++ with sanitizers takes no comparison of an
/// address with null.
constexpr bool is_model_key(std::string_view name) {
  return std::ranges::any_of(kModelKeys, [&](const ModelKey& row) { return row.info.key == name; });
}
/// Null for none.
constexpr const FieldInfo* find_model_key(std::string_view name) {
  for (const ModelKey& row : kModelKeys) {
    if (row.info.key == name) return &row.info;
  }
  return nullptr;
}

/// The row of a key, which must be there: otherwise it does not compile.
consteval const FieldInfo& model_key(std::string_view name) {
  return detail::row_of(kModelKeys, name).info;
}
consteval const FieldInfo& rope_key(std::string_view name) {
  return detail::row_of(kRopeKeys, name).info;
}
/// Its fallback, which must be there, too.
consteval double model_default(std::string_view name) {
  return detail::row_of(kModelKeys, name).fallback.value();
}
consteval double rope_default(std::string_view name) {
  return detail::row_of(kRopeKeys, name).fallback.value();
}

}  // namespace moetune::spec
