// What Megatron and Hugging Face call the same thing of a model, for both directions.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace moetune::spec::dialects {

using nlohmann::json;

/// A trait and what Hugging Face calls it in every family that has it.
struct Pair {
  const char* ours;
  const char* theirs;
};
inline constexpr std::array kPairs = {
    Pair{"num_layers", "num_hidden_layers"},
    Pair{"hidden_size", "hidden_size"},
    Pair{"num_attention_heads", "num_attention_heads"},
    Pair{"vocab_size", "vocab_size"},
    Pair{"max_position_embeddings", "max_position_embeddings"},
    Pair{"norm_epsilon", "rms_norm_eps"},
    Pair{"rotary_base", "rope_theta"},
    Pair{"hidden_dropout", "hidden_dropout"},
    Pair{"attention_dropout", "attention_dropout"},
    Pair{"moe_latent_size", "moe_latent_size"},
};
inline constexpr std::array kLinearPairs = {
    Pair{"linear_conv_kernel_dim", "linear_conv_kernel_dim"},
    Pair{"linear_key_head_dim", "linear_key_head_dim"},
    Pair{"linear_value_head_dim", "linear_value_head_dim"},
    Pair{"linear_num_key_heads", "linear_num_key_heads"},
    Pair{"linear_num_value_heads", "linear_num_value_heads"},
};
/// Of linear attention, where nobody says it.
struct LinearSize {
  const char* key;
  int64_t size;
};
inline constexpr std::array kLinearSizes = {
    LinearSize{"linear_conv_kernel_dim", 4},  LinearSize{"linear_key_head_dim", 128},
    LinearSize{"linear_value_head_dim", 128}, LinearSize{"linear_num_key_heads", 16},
    LinearSize{"linear_num_value_heads", 32},
};
inline constexpr std::array kMambaPairs = {
    Pair{"mamba_num_heads", "mamba_num_heads"},
    Pair{"mamba_head_dim", "mamba_head_dim"},
    Pair{"mamba_state_dim", "ssm_state_size"},
    Pair{"mamba_num_groups", "n_groups"},
};
/// Of the convolution in Megatron's mixer, which has no flag for it.
inline constexpr int64_t kMambaTaps = 4;
inline constexpr std::array kLatentPairs = {
    Pair{"q_lora_rank", "q_lora_rank"},      Pair{"kv_lora_rank", "kv_lora_rank"},
    Pair{"qk_head_dim", "qk_nope_head_dim"}, Pair{"qk_pos_emb_head_dim", "qk_rope_head_dim"},
    Pair{"v_head_dim", "v_head_dim"},
};
inline constexpr std::array kRouterPairs = {
    Pair{"moe_router_num_groups", "n_group"},
    Pair{"moe_router_group_topk", "topk_group"},
    Pair{"moe_router_score_function", "scoring_func"},
    Pair{"moe_router_topk_scaling_factor", "routed_scaling_factor"},
};

inline void copy(const auto& pairs, const json& traits, json& model) {
  for (const Pair& pair : pairs) {
    if (traits.contains(pair.ours)) model[pair.theirs] = traits[pair.ours];
  }
}
inline void copy_back(const auto& pairs, const json& model, json& traits) {
  for (const Pair& pair : pairs) {
    if (model.contains(pair.theirs) && !model[pair.theirs].is_null()) {
      traits[pair.ours] = model[pair.theirs];
    }
  }
}

inline int64_t size_of(const json& object, const char* key, int64_t otherwise = 0) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number_integer() ? at->get<int64_t>() : otherwise;
}
inline double number_of(const json& object, const char* key, double otherwise) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number() ? at->get<double>() : otherwise;
}
inline bool is_on(const json& object, const char* key, bool otherwise = false) {
  const auto at = object.find(key);
  return at != object.end() && at->is_boolean() ? at->get<bool>() : otherwise;
}
inline std::string word_of(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

}  // namespace moetune::spec::dialects
