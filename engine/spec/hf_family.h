// What differs between the families of Hugging Face configs: one row each. Reading, writing and the
// page of formats ask it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace moetune::spec {

/// How a family names its experts and says which layers have them.
enum class ExpertKeys : uint8_t {
  none,      ///< a dense family
  mixtral,   ///< in all layers, as wide as intermediate_size
  qwen,      ///< decoder_sparse_step and mlp_only_layers
  deepseek,  ///< first_k_dense_replace and moe_layer_freq, or mlp_layer_types
  ranged,    ///< as qwen, from a first layer to a last one
  listed,    ///< as qwen, or in moe_layers
  pattern,   ///< where the pattern has an E
};

/// How it says how wide its shared experts are.
enum class SharedKeys : uint8_t {
  width,    ///< shared_expert_intermediate_size
  counted,  ///< n_shared_experts, each as wide as an expert
  one,      ///< one as wide as an expert, always
  pattern,  ///< moe_shared_expert_intermediate_size
};

/// What mixes the tokens.
enum class MixerKeys : uint8_t {
  gqa,
  mla,
  gdn,     ///< with gqa in every few layers
  pattern  ///< as the pattern says
};

/// Which layers have a sliding window where layer_types does not say it.
enum class WindowRule : uint8_t {
  none,
  all,              ///< where there is a window
  all_if_used,      ///< with use_sliding_window
  late_if_used,     ///< from max_window_layers on
  even_if_used,     ///< every other one before max_window_layers
  every_other_one,  ///< the first, the third, ...
  all_but_each_nth  ///< none in every so many layers (full_attention_interval)
};

/// Which keys say that attention has biases, and where.
enum class BiasRule : uint8_t {
  none,           ///< no key is read
  refused,        ///< only attention_bias false is known
  attention_key,  ///< attention_bias: on all four products
  qkv,            ///< attention_bias or qkv_bias, usually true: not on the output
  use_bias,       ///< the one key for all biases of the model
};

/// A key that a family calls otherwise. The family's own name counts where a file has both.
struct Spelling {
  std::string_view ours;
  std::string_view theirs;
};

/// A key that must be false, as what it turns on is no block.
struct Unknown {
  std::string_view key;
  std::string_view what;
};

/// What differs between the families: defaults of absent fields, and which fields mean something.
struct Family {
  std::string_view name;
  bool runs_in_engine = false;
  ExpertKeys experts = ExpertKeys::none;
  SharedKeys shared = SharedKeys::width;
  MixerKeys mixer = MixerKeys::gqa;
  WindowRule windows = WindowRule::none;
  BiasRule biases = BiasRule::attention_key;
  bool attention_bias = false;  ///< the default of the key
  bool has_qk_norm = false;
  bool has_attention_gate = false;
  bool has_attention_sinks = false;
  bool has_chunked_windows = false;     ///< windows are chunks that lie side by side
  bool has_indexer = false;             ///< latent attention to keys that an indexer chooses
  bool has_plain_expert_width = false;  ///< intermediate_size where moe_intermediate_size is absent
  bool has_expert_bias = false;         ///< mlp_bias means the experts'
  bool has_gated_mlp = true;
  bool has_shared_gate = false;
  bool may_jitter = false;  ///< noise on the router's input is left out
  bool has_router_bias = false;
  bool has_layer_norm = false;
  bool ties_embeddings = false;
  bool normalizes_topk = false;
  bool reads_norm_topk = true;   ///< false: always as normalizes_topk says
  bool has_inner_parts = false;  ///< keys stand in kInnerParts, too
  /// Megatron's plain GPT and GPT-2: other spellings, and an MLP of four hidden sizes.
  bool is_plain_gpt = false;
  std::string_view positions = "rope";
  std::string_view activation = "silu";  ///< config's name
  double rotary_ratio = 1;
  double dropout = 0;
  double theta = 1e4;
  double eps = 1e-6;
  int64_t max_positions = 32768;
  int64_t window = 0;  ///< 0: none
  /// Of sizes that a config.json has to say and a row of measured runs may leave out, as the
  /// reference has them; -1: none is taken.
  int64_t default_dense_layers = -1;    ///< first_k_dense_replace
  int64_t default_shared_experts = -1;  ///< n_shared_experts
  std::span<const Spelling> spellings{};
  std::span<const Unknown> unknown{};
  /// What plans take otherwise than it is, as it is told; empty: nothing.
  std::string_view assumed{};
};

namespace detail {

inline constexpr Spelling kGptSpellings[] = {{"hidden_size", "n_embd"},
                                             {"num_hidden_layers", "n_layer"},
                                             {"num_attention_heads", "n_head"},
                                             {"intermediate_size", "n_inner"},
                                             {"hidden_dropout", "resid_pdrop"},
                                             {"max_position_embeddings", "n_positions"},
                                             {"attention_dropout", "attn_pdrop"},
                                             {"rms_norm_eps", "layer_norm_epsilon"},
                                             {"hidden_act", "activation_function"}};
inline constexpr Spelling kNemotronHSpellings[] = {{"rms_norm_eps", "layer_norm_epsilon"},
                                                   {"hidden_act", "mlp_hidden_act"}};
inline constexpr Spelling kNemotronSpellings[] = {{"rms_norm_eps", "norm_eps"}};
inline constexpr Spelling kErnieSpellings[] = {{"num_experts", "moe_num_experts"},
                                               {"num_experts_per_tok", "moe_k"},
                                               {"n_shared_experts", "moe_num_shared_experts"},
                                               {"decoder_sparse_step", "moe_layer_interval"}};
inline constexpr Spelling kHunyuanSpellings[] = {{"num_experts_per_tok", "moe_topk"},
                                                 {"n_shared_experts", "num_shared_expert"}};
inline constexpr Unknown kHunyuanUnknown[] = {{"use_cla", "layers that share keys and values"}};
inline constexpr Spelling kBailingSpellings[] = {
    {"n_shared_experts", "num_shared_experts"},
    {"attention_bias", "use_qkv_bias"},
    {"hidden_dropout", "output_dropout"},
    {"use_routing_bias", "moe_router_enable_expert_bias"}};
inline constexpr Spelling kLlama4Spellings[] = {
    {"intermediate_size", "intermediate_size_mlp"},
    {"decoder_sparse_step", "interleave_moe_layer_step"},
    {"sliding_window", "attention_chunk_size"},
    {"full_attention_interval", "no_rope_layer_interval"}};
inline constexpr Spelling kPhi3Spellings[] = {{"hidden_dropout", "resid_pdrop"}};
inline constexpr Spelling kGraniteSpellings[] = {
    {"shared_expert_intermediate_size", "shared_intermediate_size"}};
inline constexpr Spelling kDbrxSpellings[] = {
    {"hidden_size", "d_model"},          {"num_hidden_layers", "n_layers"},
    {"num_attention_heads", "n_heads"},  {"num_key_value_heads", "kv_n_heads"},
    {"num_experts", "moe_num_experts"},  {"num_experts_per_tok", "moe_top_k"},
    {"attention_dropout", "attn_pdrop"}, {"intermediate_size", "ffn_hidden_size"},
    {"hidden_dropout", "resid_pdrop"},   {"max_position_embeddings", "max_seq_len"}};
inline constexpr Spelling kInternlmSpellings[] = {{"attention_bias", "bias"}};
inline constexpr Spelling kStarcoderSpellings[] = {{"rms_norm_eps", "norm_epsilon"},
                                                   {"hidden_dropout", "residual_dropout"}};
inline constexpr Spelling kQwen2Spellings[] = {{"attention_bias", "qkv_bias"}};

inline constexpr std::string_view kWideNorms =
    "norms of queries and keys go over all heads, priced as one of each head";

/// With the row's name, experts and activation.
constexpr Family plain_gpt(std::string_view name, ExpertKeys experts, std::string_view activation) {
  return {.name = name,
          .experts = experts,
          .windows = WindowRule::all,
          .biases = BiasRule::use_bias,
          .attention_bias = experts == ExpertKeys::none,
          .has_gated_mlp = false,
          .has_layer_norm = true,
          .ties_embeddings = true,
          .normalizes_topk = true,
          .reads_norm_topk = false,
          .is_plain_gpt = true,
          .positions = "learned",
          .activation = activation,
          .dropout = 0.1,
          .eps = 1e-5,
          .max_positions = 1024,
          .spellings = kGptSpellings};
}

constexpr Family deepseek(std::string_view name, bool has_router_bias, int64_t max_positions,
                          double eps = 1e-6) {
  return {.name = name,
          .experts = ExpertKeys::deepseek,
          .shared = SharedKeys::counted,
          .mixer = MixerKeys::mla,
          .biases = BiasRule::refused,
          .has_qk_norm = true,
          .has_router_bias = has_router_bias,
          .normalizes_topk = has_router_bias,
          .eps = eps,
          .max_positions = max_positions};
}

/// Of a row that leaves them out.
constexpr Family with_defaults(Family family, int64_t dense_layers, int64_t shared_experts) {
  family.default_dense_layers = dense_layers;
  family.default_shared_experts = shared_experts;
  return family;
}

/// DeepSeek-V3.2 and GLM-5.
constexpr Family deepseek_sparse(std::string_view name, int64_t max_positions, double eps) {
  Family family = deepseek(name, true, max_positions, eps);
  family.has_indexer = true;
  family.assumed =
      "attention to the keys that an indexer chooses is priced as attention to all keys; the "
      "indexer's weights are counted, its work is not";
  return family;
}

/// Qwen3-Next and Qwen3.5, with or without experts.
constexpr Family qwen_gdn(std::string_view name, ExpertKeys experts) {
  return {.name = name,
          .experts = experts,
          .mixer = MixerKeys::gdn,
          .has_qk_norm = true,
          .has_attention_gate = true,
          .has_shared_gate = true,
          .normalizes_topk = true,
          .rotary_ratio = 0.25};
}

/// The text part of Qwen3-VL, with or without experts.
constexpr Family qwen3_vl(std::string_view name, ExpertKeys experts) {
  return {.name = name,
          .experts = experts,
          .has_qk_norm = true,
          .normalizes_topk = true,
          .reads_norm_topk = false,
          .theta = 500000,
          .max_positions = 128000};
}

/// The text part of Qwen3-Omni's thinker.
constexpr Family qwen3_omni(std::string_view name) {
  return {.name = name,
          .experts = ExpertKeys::qwen,
          .has_qk_norm = true,
          .normalizes_topk = true,
          .assumed = "the encoders of images and sound and the talker are left out"};
}

/// Llama 4's text part: chunks of keys but in every fourth layer, whose positions are not turned.
constexpr Family llama4(std::string_view name) {
  return {.name = name,
          .experts = ExpertKeys::listed,
          .shared = SharedKeys::one,
          .windows = WindowRule::all_but_each_nth,
          .has_qk_norm = true,
          .has_chunked_windows = true,
          .has_plain_expert_width = true,
          .reads_norm_topk = false,
          .theta = 500000,
          .eps = 1e-5,
          .max_positions = 131072,
          .window = 8192,
          .spellings = kLlama4Spellings,
          .assumed = "queries and keys are normed with weights, and turned in all layers"};
}

/// Ling and Ring; `is_second`: of version 2, whose files may also name the first.
constexpr Family bailing(std::string_view name, bool is_second) {
  return {.name = name,
          .experts = ExpertKeys::deepseek,
          .shared = SharedKeys::counted,
          .biases = BiasRule::qkv,
          .has_qk_norm = is_second,
          .has_router_bias = is_second,
          .normalizes_topk = true,
          .max_positions = 16384,
          .spellings = kBailingSpellings};
}

constexpr Family granite_moe(std::string_view name) {
  return {
      .name = name,
      .experts = ExpertKeys::mixtral,
      .normalizes_topk = true,
      .reads_norm_topk = false,
      .max_positions = 2048,
      .spellings = kGraniteSpellings,
      .assumed = "what embedding, attention, residuals and logits are multiplied by costs nothing"};
}

}  // namespace detail

inline constexpr std::array kFamilies = {
    Family{.name = "llama", .runs_in_engine = true, .max_positions = 2048},
    Family{.name = "mixtral",
           .runs_in_engine = true,
           .experts = ExpertKeys::mixtral,
           .windows = WindowRule::all,
           .biases = BiasRule::none,
           .normalizes_topk = true,
           .reads_norm_topk = false,
           .theta = 1e6,
           .eps = 1e-5,
           .max_positions = 131072},
    Family{.name = "qwen3_moe",
           .runs_in_engine = true,
           .experts = ExpertKeys::qwen,
           .windows = WindowRule::all_if_used,
           .has_qk_norm = true,
           .window = 4096},
    Family{.name = "mistral",
           .windows = WindowRule::all,
           .biases = BiasRule::none,
           .max_positions = 131072,
           .window = 4096},
    Family{.name = "qwen2",
           .windows = WindowRule::late_if_used,
           .biases = BiasRule::qkv,
           .attention_bias = true,
           .window = 4096,
           .spellings = detail::kQwen2Spellings},
    Family{
        .name = "qwen3", .windows = WindowRule::late_if_used, .has_qk_norm = true, .window = 4096},
    Family{.name = "qwen2_moe",
           .experts = ExpertKeys::qwen,
           .windows = WindowRule::even_if_used,
           .biases = BiasRule::qkv,
           .attention_bias = true,
           .has_shared_gate = true,
           .window = 4096,
           .spellings = detail::kQwen2Spellings},
    detail::qwen_gdn("qwen3_next", ExpertKeys::qwen),
    detail::qwen_gdn("qwen3_5_moe", ExpertKeys::qwen),
    detail::qwen_gdn("qwen3_5_moe_text", ExpertKeys::qwen),
    detail::qwen_gdn("qwen3_5", ExpertKeys::none),
    detail::qwen_gdn("qwen3_5_text", ExpertKeys::none),
    detail::with_defaults(detail::deepseek("deepseek_v2", false, 2048), 0, 2),
    detail::with_defaults(detail::deepseek("deepseek_v3", true, 4096), 3, 1),
    detail::deepseek("kimi_k2", true, 4096),
    detail::deepseek("glm4_moe_lite", true, 202752, 1e-5),
    detail::deepseek_sparse("deepseek_v32", 163840, 1e-6),
    detail::deepseek_sparse("glm_moe_dsa", 202752, 1e-5),
    Family{.name = "gpt_oss",
           .experts = ExpertKeys::mixtral,
           .windows = WindowRule::every_other_one,
           .attention_bias = true,
           .has_attention_sinks = true,
           .has_expert_bias = true,
           .normalizes_topk = true,
           .reads_norm_topk = false,
           .theta = 150000,
           .eps = 1e-5,
           .max_positions = 131072,
           .window = 128},
    Family{.name = "nemotron_h",
           .experts = ExpertKeys::pattern,
           .shared = SharedKeys::pattern,
           .mixer = MixerKeys::pattern,
           .windows = WindowRule::all,
           .has_gated_mlp = false,
           .has_router_bias = true,
           .normalizes_topk = true,
           .positions = "none",
           .activation = "relu2",
           .eps = 1e-5,
           .max_positions = 4096,
           .spellings = detail::kNemotronHSpellings},
    Family{.name = "glm4_moe",
           .experts = ExpertKeys::deepseek,
           .shared = SharedKeys::counted,
           .biases = BiasRule::qkv,
           .has_router_bias = true,
           .normalizes_topk = true,
           .rotary_ratio = 0.5,
           .eps = 1e-5,
           .max_positions = 131072,
           .default_dense_layers = 1,
           .default_shared_experts = 1},
    detail::qwen3_vl("qwen3_vl_moe", ExpertKeys::qwen),
    detail::qwen3_vl("qwen3_vl_moe_text", ExpertKeys::qwen),
    detail::qwen3_vl("qwen3_vl", ExpertKeys::none),
    detail::qwen3_vl("qwen3_vl_text", ExpertKeys::none),
    Family{.name = "minimax_m2",
           .experts = ExpertKeys::mixtral,
           .biases = BiasRule::none,
           .has_qk_norm = true,
           .has_router_bias = true,
           .normalizes_topk = true,
           .reads_norm_topk = false,
           .rotary_ratio = 0.5,
           .theta = 5e6,
           .max_positions = 196608,
           .assumed = detail::kWideNorms},
    Family{.name = "ernie4_5_moe",
           .experts = ExpertKeys::ranged,
           .shared = SharedKeys::counted,
           .biases = BiasRule::none,
           .has_router_bias = true,
           .ties_embeddings = true,
           .normalizes_topk = true,
           .reads_norm_topk = false,
           .theta = 500000,
           .eps = 1e-5,
           .max_positions = 131072,
           .default_shared_experts = 2,
           .spellings = detail::kErnieSpellings},
    detail::bailing("bailing_moe", false),
    detail::bailing("bailing_moe_v2", true),
    Family{.name = "hunyuan_v1_moe",
           .experts = ExpertKeys::qwen,
           .shared = SharedKeys::counted,
           .has_qk_norm = true,
           .has_plain_expert_width = true,
           .normalizes_topk = true,
           .reads_norm_topk = false,
           .eps = 1e-5,
           .max_positions = 2048,
           .spellings = detail::kHunyuanSpellings,
           .unknown = detail::kHunyuanUnknown},
    Family{.name = "olmoe",
           .experts = ExpertKeys::mixtral,
           .has_qk_norm = true,
           .eps = 1e-5,
           .max_positions = 4096,
           .assumed = detail::kWideNorms},
    detail::llama4("llama4"),
    detail::llama4("llama4_text"),
    Family{.name = "phi3",
           .windows = WindowRule::all,
           .biases = BiasRule::refused,
           .eps = 1e-5,
           .max_positions = 4096,
           .spellings = detail::kPhi3Spellings},
    Family{.name = "phimoe",
           .experts = ExpertKeys::mixtral,
           .windows = WindowRule::all,
           .may_jitter = true,
           .has_layer_norm = true,
           .reads_norm_topk = false,
           .theta = 1e6,
           .eps = 1e-5,
           .max_positions = 131072,
           .assumed = "the head's bias and the noise on the router's input are left out"},
    detail::granite_moe("granitemoe"),
    detail::granite_moe("granitemoeshared"),
    Family{.name = "dbrx",
           .experts = ExpertKeys::mixtral,
           .biases = BiasRule::none,
           .has_layer_norm = true,
           .normalizes_topk = true,
           .reads_norm_topk = false,
           .has_inner_parts = true,
           .eps = 1e-5,
           .max_positions = 2048,
           .spellings = detail::kDbrxSpellings,
           .assumed = "each LayerNorm has a bias, and clipping queries, keys and values costs "
                      "nothing"},
    Family{.name = "nemotron",
           .has_gated_mlp = false,
           .has_layer_norm = true,
           .activation = "relu2",
           .rotary_ratio = 0.5,
           .eps = 1e-5,
           .max_positions = 4096,
           .spellings = detail::kNemotronSpellings},
    Family{.name = "internlm2", .theta = 1e6, .spellings = detail::kInternlmSpellings},
    Family{.name = "Yi", .eps = 1e-5, .max_positions = 4096},
    Family{.name = "baichuan",
           .biases = BiasRule::none,
           .max_positions = 4096,
           .assumed = "positions are turned, whatever the size: those of the larger ones are "
                      "biases of the scores"},
    Family{.name = "seed_oss",
           .biases = BiasRule::qkv,
           .attention_bias = true,
           .max_positions = 524288},
    Family{.name = "mimo", .biases = BiasRule::qkv, .attention_bias = true, .theta = 640000},
    Family{.name = "gemma",
           .ties_embeddings = true,
           .activation = "gelu_pytorch_tanh",
           .max_positions = 8192},
    Family{.name = "starcoder2",
           .windows = WindowRule::all,
           .biases = BiasRule::use_bias,
           .attention_bias = true,
           .has_gated_mlp = false,
           .has_layer_norm = true,
           .ties_embeddings = true,
           .activation = "gelu_pytorch_tanh",
           .eps = 1e-5,
           .max_positions = 4096,
           .spellings = detail::kStarcoderSpellings},
    Family{.name = "dots1",
           .experts = ExpertKeys::deepseek,
           .shared = SharedKeys::counted,
           .has_qk_norm = true,
           .has_router_bias = true,
           .normalizes_topk = true,
           .max_positions = 2048,
           .default_dense_layers = 0},
    detail::qwen3_omni("qwen3_omni_moe"),
    detail::qwen3_omni("qwen3_omni_moe_text"),
    detail::plain_gpt("gpt2", ExpertKeys::none, "gelu_new"),
    detail::plain_gpt("megatron_gpt", ExpertKeys::none, "gelu"),
    detail::plain_gpt("megatron_gpt_moe", ExpertKeys::qwen, "gelu"),
};

/// Null for none.
constexpr const Family* find_family(std::string_view name) {
  for (const Family& family : kFamilies) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

/// Multimodal configs, whose text part has a family of its own.
inline constexpr std::array<std::string_view, 6> kMultimodal = {
    "qwen3_5", "qwen3_5_moe", "kimi_k25", "qwen3_vl", "qwen3_vl_moe", "llama4"};

/// Objects within a config whose keys some families have as if they stood beside them.
inline constexpr std::array<std::string_view, 2> kInnerParts = {"attn_config", "ffn_config"};

/// Families that people ask for and no plan has blocks for.
struct UnplannedFamily {
  std::string_view name;
  std::string_view why;  ///< the end of a sentence
};
namespace detail {
inline constexpr std::string_view kOuterNorms =
    "its norms behind attention and behind the MLP, beside those before them, are not modelled";
inline constexpr std::string_view kSideBySide =
    "attention and MLP that stand side by side on one input are not modelled";
inline constexpr std::string_view kFactorized =
    "its attention with factorized queries (MFA) is not modelled";
}  // namespace detail
inline constexpr std::array kUnplannedFamilies = {
    UnplannedFamily{"deepseek_v4",
                    "its attention over compressed and indexed keys (compress_ratios, index_topk), "
                    "its grouped output product (o_groups), hashed routing (num_hash_layers) and "
                    "hyper-connections (hc_mult) are not modelled"},
    UnplannedFamily{"exaone4",
                    "its norms behind attention and behind the MLP, in the place of those before "
                    "them, are not modelled"},
    UnplannedFamily{"falcon", detail::kSideBySide},
    UnplannedFamily{"gemma2", detail::kOuterNorms},
    UnplannedFamily{"gemma3", detail::kOuterNorms},
    UnplannedFamily{"gemma3_text", detail::kOuterNorms},
    UnplannedFamily{"gpt_neox", detail::kSideBySide},
    UnplannedFamily{"grok-1", detail::kOuterNorms},
    UnplannedFamily{"jamba", "its Mamba layers are of the first version, only Mamba-2 is modelled"},
    UnplannedFamily{"mimo_v2_flash",
                    "its value heads are narrower than its key heads, which is modelled of latent "
                    "attention only"},
    UnplannedFamily{"step3", detail::kFactorized},
    UnplannedFamily{"step3_vl", detail::kFactorized},
    UnplannedFamily{"step3_text", detail::kFactorized},
};

}  // namespace moetune::spec
