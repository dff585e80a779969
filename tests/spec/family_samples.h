// Small configs of the families that only plans know; each test changes one thing in them.
#pragma once

#include <string>
#include <vector>

#include "tests/spec/spec_samples.h"

namespace moetune::spec::family_samples {

using samples::json;

inline json with(json config, const json& changes) {
  config.update(changes);
  return config;
}

inline json without(json config, const char* key) {
  config.erase(key);
  return config;
}

/// What every sample has.
inline json plain(const char* family) {
  return {{"model_type", family},    {"vocab_size", 64},       {"hidden_size", 32},
          {"intermediate_size", 48}, {"num_hidden_layers", 4}, {"num_attention_heads", 4}};
}

inline json qwen2_moe() {
  return with(plain("qwen2_moe"), {{"num_experts", 8},
                                   {"num_experts_per_tok", 2},
                                   {"moe_intermediate_size", 16},
                                   {"shared_expert_intermediate_size", 24}});
}

inline json qwen3_next() {
  return with(plain("qwen3_next"), {{"num_experts", 8},
                                    {"num_experts_per_tok", 2},
                                    {"moe_intermediate_size", 16},
                                    {"shared_expert_intermediate_size", 24},
                                    {"linear_conv_kernel_dim", 4},
                                    {"linear_num_key_heads", 2},
                                    {"linear_num_value_heads", 4},
                                    {"linear_key_head_dim", 8},
                                    {"linear_value_head_dim", 8}});
}

inline json deepseek_v3() {
  return with(plain("deepseek_v3"), {{"q_lora_rank", 16},
                                     {"kv_lora_rank", 8},
                                     {"qk_nope_head_dim", 8},
                                     {"qk_rope_head_dim", 4},
                                     {"v_head_dim", 6},
                                     {"n_routed_experts", 8},
                                     {"n_shared_experts", 2},
                                     {"num_experts_per_tok", 2},
                                     {"moe_intermediate_size", 16},
                                     {"first_k_dense_replace", 1}});
}

inline json gpt_oss() {
  return with(plain("gpt_oss"), {{"num_local_experts", 8}, {"num_experts_per_tok", 2}});
}

inline json nemotron_h() {
  return with(without(plain("nemotron_h"), "num_hidden_layers"),
              {{"hybrid_override_pattern", "ME*-M"},
               {"n_routed_experts", 8},
               {"num_experts_per_tok", 2},
               {"moe_intermediate_size", 16},
               {"moe_shared_expert_intermediate_size", 24},
               {"mamba_num_heads", 4},
               {"mamba_head_dim", 8},
               {"ssm_state_size", 16},
               {"n_groups", 2},
               {"conv_kernel", 4}});
}

inline json gpt2() { return plain("gpt2"); }

inline json megatron_moe() {
  return with(plain("megatron_gpt_moe"), {{"num_experts", 8}, {"num_experts_per_tok", 1}});
}

/// As Hugging Face spells it.
inline json gpt2_as_published() {
  return {{"model_type", "gpt2"},
          {"vocab_size", 64},
          {"n_embd", 32},
          {"n_layer", 2},
          {"n_head", 4},
          {"n_inner", nullptr},
          {"n_positions", 16},
          {"resid_pdrop", 0.2},
          {"attn_pdrop", 0.3},
          {"layer_norm_epsilon", 1e-4},
          {"activation_function", "gelu_new"}};
}

inline json glm4_moe() {
  return with(plain("glm4_moe"), {{"head_dim", 16},
                                  {"n_routed_experts", 8},
                                  {"n_shared_experts", 1},
                                  {"num_experts_per_tok", 2},
                                  {"moe_intermediate_size", 16},
                                  {"first_k_dense_replace", 1},
                                  {"num_nextn_predict_layers", 1}});
}

inline json deepseek_v32() {
  return with(deepseek_v3(),
              {{"model_type", "deepseek_v32"}, {"index_n_heads", 2}, {"index_head_dim", 8}});
}

inline json qwen3_vl_moe() {
  return with(plain("qwen3_vl_moe_text"),
              {{"num_experts", 8}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 16}});
}

/// As many experts in all layers, as wide as intermediate_size.
inline json with_local_experts(const char* family) {
  return with(plain(family), {{"num_local_experts", 8}, {"num_experts_per_tok", 2}});
}

inline json ernie() {
  return with(plain("ernie4_5_moe"), {{"moe_intermediate_size", 16},
                                      {"moe_num_experts", 8},
                                      {"moe_num_shared_experts", 2},
                                      {"moe_k", 2},
                                      {"moe_layer_start_index", 1},
                                      {"moe_layer_end_index", -1},
                                      {"moe_layer_interval", 1}});
}

inline json bailing() {
  return with(plain("bailing_moe"), {{"moe_intermediate_size", 16},
                                     {"num_experts", 8},
                                     {"num_experts_per_tok", 2},
                                     {"num_shared_experts", 1},
                                     {"first_k_dense_replace", 1}});
}

inline json hunyuan() {
  return with(plain("hunyuan_v1_moe"), {{"num_experts", 8},
                                        {"moe_topk", {2, 2, 2, 2}},
                                        {"moe_intermediate_size", {16, 16, 16, 16}},
                                        {"num_shared_expert", {1, 1, 1, 1}}});
}

inline json olmoe() {
  return with(plain("olmoe"), {{"num_experts", 8}, {"num_experts_per_tok", 2}});
}

inline json llama4() {
  return with(plain("llama4_text"), {{"num_local_experts", 8},
                                     {"num_experts_per_tok", 1},
                                     {"intermediate_size_mlp", 96},
                                     {"interleave_moe_layer_step", 2},
                                     {"attention_chunk_size", 8}});
}

inline json dbrx() {
  return {{"model_type", "dbrx"},
          {"d_model", 32},
          {"n_heads", 4},
          {"n_layers", 4},
          {"max_seq_len", 64},
          {"vocab_size", 64},
          {"attn_config", {{"kv_n_heads", 2}, {"clip_qkv", 8}}},
          {"ffn_config", {{"ffn_hidden_size", 48}, {"moe_num_experts", 8}, {"moe_top_k", 2}}}};
}

inline std::vector<json> all_samples() {
  return {plain("mistral"),
          plain("qwen2"),
          plain("qwen3"),
          qwen2_moe(),
          qwen3_next(),
          with(qwen3_next(), {{"model_type", "qwen3_5_moe_text"}}),
          with(qwen3_next(), {{"model_type", "qwen3_5_text"}}),
          deepseek_v3(),
          with(deepseek_v3(), {{"model_type", "deepseek_v2"}}),
          with(deepseek_v3(), {{"model_type", "kimi_k2"}}),
          gpt_oss(),
          nemotron_h(),
          gpt2(),
          plain("megatron_gpt"),
          megatron_moe(),
          glm4_moe(),
          deepseek_v32(),
          with(deepseek_v32(), {{"model_type", "glm_moe_dsa"}}),
          with(deepseek_v3(), {{"model_type", "glm4_moe_lite"}}),
          qwen3_vl_moe(),
          plain("qwen3_vl_text"),
          with_local_experts("minimax_m2"),
          ernie(),
          bailing(),
          with(bailing(), {{"model_type", "bailing_moe_v2"}}),
          hunyuan(),
          olmoe(),
          llama4(),
          plain("phi3"),
          with_local_experts("phimoe"),
          with_local_experts("granitemoe"),
          with(with_local_experts("granitemoeshared"), {{"shared_intermediate_size", 24}}),
          dbrx(),
          plain("nemotron")};
}

}  // namespace moetune::spec::family_samples
