// The architecture of a decoder with attention and dense or Mixture-of-Experts layers, as plain
// data.
#pragma once

#include <compare>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/spec/source.h"

namespace moetune::spec {

struct FieldPage;

/// Rotary position embedding. `type` is one of default, linear, dynamic, yarn, llama3, longrope
/// (Hugging Face's names), or none where nothing is rotated. Of longrope only plans know, and not
/// its factors.
struct RopeSpec {
  std::string type = "default";
  double theta = 10000.0;
  double rotary_ratio = 1.0;  ///< of a head's elements, those that are rotated
  double factor = 1.0;
  double low_freq_factor = 1.0;                  ///< llama3
  double high_freq_factor = 4.0;                 ///< llama3
  double beta_fast = 32.0;                       ///< yarn
  double beta_slow = 1.0;                        ///< yarn
  double attention_factor = 0.0;                 ///< yarn; 0: from factor and mscale
  double mscale = 0.0;                           ///< yarn
  double mscale_all_dim = 0.0;                   ///< yarn
  bool truncate = true;                          ///< yarn
  int64_t original_max_position_embeddings = 0;  ///< 0: max_position_embeddings
};

/// cos and sin tables, row-major [num_positions, dim/2], already scaled by the attention factor.
struct RopeTable {
  int64_t num_positions = 0;
  int64_t half_dim = 0;
  std::vector<double> cos;
  std::vector<double> sin;
};

/// What mixes the tokens in a layer.
enum class Mixer : uint8_t {
  gqa,    ///< attention with grouped queries
  mla,    ///< multi-head latent attention (DeepSeek-V2, arXiv 2405.04434)
  gdn,    ///< Gated DeltaNet (arXiv 2412.06464), linear in the sequence
  mamba,  ///< Mamba-2 (arXiv 2405.21060), linear in the sequence
  none,   ///< the layer has a feed-forward half only
};
/// What follows it in the layer.
enum class FeedForward : uint8_t { dense, moe, none };

/// Sizes of multi-head latent attention. num_kv_heads is num_heads and head_dim qk_head_dim() then.
struct MlaSpec {
  int64_t q_lora_rank = 0;  ///< 0: queries are projected in one step
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;
  /// Heads of the indexer that chooses the keys of each query (DeepSeek-V3.2, arXiv 2512.02556),
  /// and their width; 0: all keys are seen.
  int64_t index_heads = 0;
  int64_t index_head_dim = 0;

  [[nodiscard]] int64_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
};

/// Sizes of Gated DeltaNet.
struct GdnSpec {
  int64_t conv_kernel = 0;
  int64_t num_key_heads = 0;
  int64_t num_value_heads = 0;
  int64_t key_head_dim = 0;
  int64_t value_head_dim = 0;

  [[nodiscard]] int64_t key_size() const { return num_key_heads * key_head_dim; }
  [[nodiscard]] int64_t value_size() const { return num_value_heads * value_head_dim; }
};

/// Sizes of Mamba-2.
struct MambaSpec {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t state_size = 0;
  int64_t num_groups = 0;
  int64_t conv_kernel = 0;

  [[nodiscard]] int64_t inner_size() const { return num_heads * head_dim; }
};

/// The two halves of a layer.
struct LayerKind {
  Mixer mixer = Mixer::gqa;
  FeedForward feed_forward = FeedForward::dense;

  auto operator<=>(const LayerKind&) const = default;
};

/// Multi-token prediction (DeepSeek-V3, arXiv 2412.19437): behind the last layer `depth` blocks,
/// each of which joins the stream with the next token's embedding, runs `layers` and predicts one
/// token further with the model's own head.
struct MtpSpec {
  int64_t depth = 0;
  std::vector<LayerKind> layers;  ///< of one depth
  bool repeats_layer = false;     ///< all depths have the same parameters
};

/// All sizes are elements. Experts are absent (num_experts 0) in dense families.
struct ModelSpec {
  std::string family;  ///< model_type of the config, of a multimodal one that of its text part
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn_size = 0;  ///< dense layers
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  int64_t moe_ffn_size = 0;
  int64_t shared_ffn_size = 0;     ///< all shared experts together, 0: none
  std::vector<bool> is_moe_layer;  ///< one entry per layer
  int64_t max_position_embeddings = 0;
  /// Per layer: how many keys a query sees, 0: all before it.
  std::vector<int64_t> attention_window;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  std::string hidden_act = "silu";         ///< silu, gelu, gelu_tanh, relu, relu2
  bool has_qk_norm = false;                ///< of mla: on what queries and keys are compressed to
  bool has_attention_bias = false;         ///< on q, k, v
  bool has_attention_output_bias = false;  ///< on o
  bool has_mlp_bias = false;               ///< dense layers
  bool normalizes_topk = true;
  bool ties_embeddings = false;
  RopeSpec rope;

  // What plans know and the engine does not run yet (engine_gap says so).
  std::vector<LayerKind> layer_kinds;  ///< empty: gqa, and as is_moe_layer says
  MlaSpec mla;
  GdnSpec gdn;
  MambaSpec mamba;
  MtpSpec mtp;
  bool has_attention_gate = false;     ///< on the output of gqa, as wide as the queries
  bool has_attention_sinks = false;    ///< a learned logit of each query head
  bool has_chunked_windows = false;    ///< windows are chunks of keys that lie side by side
  bool has_gated_mlp = true;           ///< false: two matrices an MLP instead of three
  bool has_shared_gate = false;        ///< a scalar gate on the shared expert
  bool has_router_bias = false;        ///< added to the scores that choose experts; no gradient
  bool has_expert_bias = false;        ///< on both matrices of experts, and on the router
  bool has_layer_norm = false;         ///< LayerNorm with bias instead of RMSNorm
  bool has_learned_positions = false;  ///< a table of max_position_embeddings rows
  int64_t moe_latent_size = 0;         ///< experts work on vectors of this width, 0: hidden_size
  int64_t padded_vocab_size = 0;       ///< rows of embedding and head, 0: vocab_size
  double hidden_dropout = 0;           ///< costs masks in memory
  double attention_dropout = 0;

  [[nodiscard]] LayerKind kind_of(int64_t layer) const {
    const auto i = static_cast<size_t>(layer);
    if (!layer_kinds.empty()) return layer_kinds[i];
    return {Mixer::gqa, is_moe_layer[i] ? FeedForward::moe : FeedForward::dense};
  }
  [[nodiscard]] int64_t num_layers_with(FeedForward half) const;
  [[nodiscard]] int64_t vocab_rows() const {
    return padded_vocab_size > 0 ? padded_vocab_size : vocab_size;
  }
  [[nodiscard]] int64_t q_size() const { return num_heads * head_dim; }
  [[nodiscard]] int64_t kv_size() const { return num_kv_heads * head_dim; }
  [[nodiscard]] int64_t num_moe_layers() const;
  /// Published figures leave out multi-token prediction, and so do these two.
  [[nodiscard]] int64_t num_parameters() const;
  /// Parameters a token passes through (top-k experts only), embedding look-up included.
  [[nodiscard]] int64_t num_active_parameters() const;
  /// What multi-token prediction adds to num_parameters; embedding and head are the model's.
  [[nodiscard]] int64_t num_mtp_parameters() const;
  /// Training FLOPs per token (forward and backward, causal core halved, recompute not counted),
  /// Megatron's num_floating_point_operations; multi-token prediction included.
  [[nodiscard]] double training_flops_per_token(int64_t seq_length) const;
};

/// The text part of a multimodal config, with what stands outside of it; null for others.
nlohmann::json language_model_part(const nlohmann::json& document, const Source& source);

/// Reads a model description: a Hugging Face config.json as it is (older and newer spellings),
/// which is also moetune's own format with the additional key `shared_expert_intermediate_size` for
/// mixtral and qwen3_moe. `source` names the file in messages. Throws base::UsageError for anything
/// that cannot be trained or planned faithfully (unknown family, unknown activation or rope type,
/// sizes that do not fit together, dropout in a family that the engine runs).
ModelSpec model_from_json(const nlohmann::json& json, const Source& source);
/// Gives a model so many layers of multi-token prediction, of the kind that its file would give
/// them. Throws base::UsageError for a depth that no file may have.
void set_mtp_depth(ModelSpec& model, int64_t depth);
/// The first part of the model that only plans know so far, as a sentence; empty for a model that
/// the engine runs.
std::string engine_gap(const ModelSpec& model);
/// What plans take of the model's family otherwise than it is, as an assumption is told; empty:
/// nothing.
std::string model_assumption(const ModelSpec& model);
/// Throws base::UsageError with that sentence, if there is one. `source` names the model's file.
void refuse_engine_gap(const ModelSpec& model, const Source& source);
nlohmann::json to_json(const ModelSpec& model);
/// The keys of a config.json that are read.
std::vector<FieldPage> model_pages();

/// Frequencies as the Hugging Face reference computes them for each rope type, for positions
/// 0..num_positions-1.
RopeTable make_rope_table(const ModelSpec& model, int64_t num_positions);

}  // namespace moetune::spec
