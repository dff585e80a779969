// The keys of a Hugging Face config.json that are read: one row each, for reading and for the page.
#pragma once

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
/// implementation (transformers 5).
inline constexpr std::array kModelKeys = {
    detail::word_key("model_type", FieldKind::text, "The family: llama, mixtral or qwen3_moe.",
                     Presence::required),
    detail::size_key("vocab_size", 1, detail::kMaxVocab, "Tokens of the vocabulary.",
                     Presence::required),
    detail::size_key("hidden_size", 1, detail::kMaxHidden, "Width of the residual stream.",
                     Presence::required),
    detail::size_key("num_hidden_layers", 1, 1024, "Layers.", Presence::required),
    detail::size_key("num_attention_heads", 1, detail::kMaxHeads, "Query heads.",
                     Presence::required),
    detail::size_key("num_key_value_heads", 1, detail::kMaxHeads,
                     "Key and value heads; absent: as many as query heads."),
    detail::size_key("head_dim", 1, detail::kMaxHeadDim,
                     "Width of a head; absent: hidden_size / num_attention_heads."),
    detail::size_key(
        "intermediate_size", 1, detail::kMaxFfn,
        "Width of dense layers, and of mixtral's experts. Required where the model has "
        "either."),
    detail::size_key("num_local_experts", 0, detail::kMaxExperts,
                     "Experts of a layer, mixtral's spelling."),
    detail::size_key("num_experts", 0, detail::kMaxExperts,
                     "Experts of a layer. mixtral and qwen3_moe need it in one of both spellings."),
    detail::size_key("num_experts_per_tok", 1, detail::kMaxExperts,
                     "Experts that a token is sent to. Required where there are experts."),
    detail::size_key("moe_intermediate_size", 1, detail::kMaxFfn,
                     "Width of an expert. Required in qwen3_moe where there are experts."),
    detail::size_key("shared_expert_intermediate_size", 0, detail::kMaxFfn,
                     "Width of the shared expert; 0: none.")
        .or_else(0),
    detail::word_key("norm_topk_prob", FieldKind::boolean,
                     "The chosen experts' weights add up to 1; always so in mixtral.")
        .or_else(0),
    detail::size_key("decoder_sparse_step", 1, detail::kMaxPositions,
                     "Layer i has experts where this divides i + 1; qwen3_moe.")
        .or_else(1),
    ModelKey{{.key = "mlp_only_layers",
              .limits = {0, detail::kMaxPositions},
              .help = "Layers without experts; qwen3_moe."},
             FieldKind::numbers},
    detail::word_key("attention_bias", FieldKind::boolean, "Biases in attention.").or_else(0),
    detail::word_key("mlp_bias", FieldKind::boolean, "Biases in dense layers; llama.").or_else(0),
    detail::size_key("max_position_embeddings", 1, detail::kMaxPositions,
                     "Longest sequence that the model was made for."),
    detail::word_key("use_sliding_window", FieldKind::boolean,
                     "Whether sliding_window counts; qwen3_moe.")
        .or_else(0),
    detail::size_key("sliding_window", 1, detail::kMaxPositions,
                     "Keys that a query sees; null or none: all before it."),
    ModelKey{{.key = "layer_types",
              .quantity = Quantity::text,
              .help = "A list of full_attention or sliding_attention, one for each layer."},
             FieldKind::texts},
    detail::number_key("rms_norm_eps", 0, 1, "Epsilon of the norms."),
    detail::number_key("initializer_range", 0, 1, "Standard deviation of initial weights.")
        .or_else(0.02),
    detail::word_key("hidden_act", FieldKind::text,
                     "silu, swish, gelu, gelu_pytorch_tanh, gelu_new or relu."),
    detail::word_key("tie_word_embeddings", FieldKind::boolean,
                     "The head uses the embedding's weights.")
        .or_else(0),
    detail::number_key("rope_theta", 1.0001, 1e15, "Base of the rotary embedding."),
    detail::word_key("rope_scaling", FieldKind::object,
                     "Scaling of the rotary embedding, the older spelling."),
    detail::word_key("rope_parameters", FieldKind::object, "The same, the newer spelling."),
    detail::size_key("original_max_position_embeddings", 1, detail::kMaxPositions,
                     "Sequence length before scaling; wins over the one inside."),
    detail::number_key("partial_rotary_factor", 0, 1, "Only 1 is supported.").or_else(1),
    detail::number_key("attention_dropout", 0, 1, "Only 0 is supported.").or_else(0),
    detail::number_key("router_jitter_noise", 0, 1, "Only 0 is supported.").or_else(0),
    detail::word_key("quantization_config", FieldKind::object,
                     "Refused: quantized weights are not supported."),
};

/// Of rope_scaling and rope_parameters.
inline constexpr std::array kRopeKeys = {
    detail::word_key("rope_type", FieldKind::text, "default, linear, dynamic, yarn or llama3."),
    detail::word_key("type", FieldKind::text, "The same, an older spelling."),
    detail::number_key("rope_theta", 1.0001, 1e15, "Base."),
    detail::number_key("partial_rotary_factor", 0, 1, "Only 1 is supported.").or_else(1),
    detail::size_key("original_max_position_embeddings", 1, detail::kMaxPositions,
                     "Sequence length before scaling."),
    detail::number_key("factor", 1e-6, detail::kMaxFactor,
                       "By which positions are scaled; required but in default and yarn."),
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
