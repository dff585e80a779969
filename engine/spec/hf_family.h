// What differs between the families of Hugging Face configs: one row each. Reading, writing and the
// page of formats ask it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace moetune::spec {

/// How a family names its experts and says which layers have them.
enum class ExpertKeys : uint8_t {
  none,      ///< a dense family
  mixtral,   ///< in all layers, as wide as intermediate_size
  qwen,      ///< decoder_sparse_step and mlp_only_layers
  deepseek,  ///< first_k_dense_replace and moe_layer_freq
  pattern,   ///< where the pattern has an E
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
};

/// Which keys say that attention has biases, and where.
enum class BiasRule : uint8_t {
  none,           ///< no key is read
  refused,        ///< only attention_bias false is known
  attention_key,  ///< attention_bias: on all four products
  qkv,            ///< attention_bias or qkv_bias, usually true: not on the output
  use_bias,       ///< the one key for all biases of the model
};

/// What differs between the families: defaults of absent fields, and which fields mean something.
struct Family {
  std::string_view name;
  bool runs_in_engine = false;
  ExpertKeys experts = ExpertKeys::none;
  MixerKeys mixer = MixerKeys::gqa;
  WindowRule windows = WindowRule::none;
  BiasRule biases = BiasRule::attention_key;
  bool attention_bias = false;  ///< the default of the key
  bool has_qk_norm = false;
  bool has_attention_gate = false;
  bool has_attention_sinks = false;
  bool has_expert_bias = false;  ///< mlp_bias means the experts'
  bool has_gated_mlp = true;
  bool has_shared_gate = false;
  bool has_router_bias = false;
  bool has_layer_norm = false;
  bool ties_embeddings = false;
  bool normalizes_topk = false;
  bool reads_norm_topk = true;  ///< false: always as normalizes_topk says
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
};

namespace detail {

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
          .max_positions = 1024};
}

constexpr Family deepseek(std::string_view name, bool has_router_bias, int64_t max_positions) {
  return {.name = name,
          .experts = ExpertKeys::deepseek,
          .mixer = MixerKeys::mla,
          .biases = BiasRule::refused,
          .has_qk_norm = true,
          .has_router_bias = has_router_bias,
          .normalizes_topk = has_router_bias,
          .max_positions = max_positions};
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
           .window = 4096},
    Family{
        .name = "qwen3", .windows = WindowRule::late_if_used, .has_qk_norm = true, .window = 4096},
    Family{.name = "qwen2_moe",
           .experts = ExpertKeys::qwen,
           .windows = WindowRule::even_if_used,
           .biases = BiasRule::qkv,
           .attention_bias = true,
           .has_shared_gate = true,
           .window = 4096},
    detail::qwen_gdn("qwen3_next", ExpertKeys::qwen),
    detail::qwen_gdn("qwen3_5_moe", ExpertKeys::qwen),
    detail::qwen_gdn("qwen3_5_moe_text", ExpertKeys::qwen),
    detail::qwen_gdn("qwen3_5", ExpertKeys::none),
    detail::qwen_gdn("qwen3_5_text", ExpertKeys::none),
    detail::deepseek("deepseek_v2", false, 2048),
    detail::deepseek("deepseek_v3", true, 4096),
    detail::deepseek("kimi_k2", true, 4096),
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
           .mixer = MixerKeys::pattern,
           .windows = WindowRule::all,
           .has_gated_mlp = false,
           .has_router_bias = true,
           .normalizes_topk = true,
           .positions = "none",
           .activation = "relu2",
           .eps = 1e-5,
           .max_positions = 4096},
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
inline constexpr std::array<std::string_view, 3> kMultimodal = {"qwen3_5", "qwen3_5_moe",
                                                                "kimi_k25"};

}  // namespace moetune::spec
