// Which family a model is, and its config.json.
#include "engine/spec/dialects/model_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/spec/dialects/model_pairs.h"
#include "engine/spec/dialects/values.h"

namespace moetune::spec::dialects {

using nlohmann::json;

namespace {

/// How the traits are put into a config.json.
struct Shape {
  int64_t layers;
  int64_t width;
  int64_t heads;
  int64_t ffn;
  int64_t experts;
  int64_t expert_ffn;
  int64_t shared_ffn;
  bool is_gated;
  bool is_plain;  ///< RMSNorm, a gated MLP, no biases: as all newer families
  std::vector<bool> is_moe;

  [[nodiscard]] bool has_moe_everywhere() const {
    return std::ranges::all_of(is_moe, [](bool moe) { return moe; });
  }
};

Shape shape_of(const json& traits) {
  Shape shape;
  shape.layers = size_of(traits, "num_layers");
  shape.width = size_of(traits, "hidden_size");
  shape.heads = size_of(traits, "num_attention_heads");
  const std::string activation = word_of(traits, "activation_func");
  shape.is_gated = is_on(traits, "swiglu");
  // Megatron-LM's own defaults.
  const int64_t default_ffn = shape.is_gated ? shape.width * 4 * 2 / 3 / 64 * 64 : shape.width * 4;
  shape.ffn = size_of(traits, "ffn_hidden_size", default_ffn);
  shape.experts = size_of(traits, "num_experts");
  shape.expert_ffn = size_of(traits, "moe_ffn_hidden_size", shape.ffn);
  shape.shared_ffn = size_of(traits, "moe_shared_expert_intermediate_size");
  shape.is_plain = shape.is_gated && word_of(traits, "normalization") == "RMSNorm" &&
                   !is_on(traits, "add_bias_linear") &&
                   (activation.empty() || activation.find("silu") != std::string::npos);
  const std::string pattern = word_of(traits, "moe_layer_freq");
  shape.is_moe = shape.experts > 0 ? moe_layers_of(pattern.empty() ? "1" : pattern, shape.layers)
                                   : std::vector<bool>(static_cast<size_t>(shape.layers), false);
  return shape;
}

std::string activation_of(const json& traits) {
  const std::string named = word_of(traits, "activation_func");
  const auto names = [&](std::string_view part) { return named.find(part) != std::string::npos; };
  if (is_on(traits, "squared_relu") || names("squared_relu") || names("relu2")) return "relu2";
  if (is_on(traits, "swiglu") && !names("gelu")) return "silu";
  return "gelu";
}

void write_dense_layers(const Shape& shape, json& model) {
  model["decoder_sparse_step"] = 1;
  json dense = json::array();
  for (size_t layer = 0; layer < shape.is_moe.size(); ++layer) {
    if (!shape.is_moe[layer]) dense.push_back(layer);
  }
  model["mlp_only_layers"] = std::move(dense);
}

/// The heads of grouped attention.
void write_heads(const json& traits, const Shape& shape, json& model) {
  const bool is_grouped =
      traits.contains("num_query_groups") && is_on(traits, "group_query_attention", true);
  model["num_key_value_heads"] =
      is_grouped ? size_of(traits, "num_query_groups", shape.heads) : shape.heads;
  const int64_t head = shape.heads > 0 ? shape.width / shape.heads : 0;
  model["head_dim"] = size_of(traits, "kv_channels", head);
}

void write_deepseek(const json& traits, const Shape& shape, json& model,
                    std::vector<std::string>& notes) {
  model["model_type"] = "deepseek_v3";
  model["num_key_value_heads"] = shape.heads;
  model["use_qk_norm"] = is_on(traits, "qk_layernorm");
  copy(kLatentPairs, traits, model);
  if (shape.experts == 0) return;
  copy(kRouterPairs, traits, model);
  model["topk_method"] = is_on(traits, "moe_router_enable_expert_bias") ? "noaux_tc" : "greedy";
  model["n_routed_experts"] = shape.experts;
  const int64_t shared = shape.expert_ffn > 0 ? shape.shared_ffn / shape.expert_ffn : 0;
  model["n_shared_experts"] = shared;
  if (shared * shape.expert_ffn != shape.shared_ffn) {
    notes.emplace_back("the shared expert is no multiple of a routed one: rounded down");
  }
  const auto first = std::ranges::find(shape.is_moe, true) - shape.is_moe.begin();
  model["first_k_dense_replace"] = first;
  model["moe_layer_freq"] = 1;
  if (std::count(shape.is_moe.begin() + first, shape.is_moe.end(), false) > 0) {
    notes.emplace_back("dense layers stand between those with experts: taken as experts");
  }
}

/// A decoder of any kind, with every trait spelled out.
void write_plain_gpt(const json& traits, const Shape& shape, json& model) {
  model["model_type"] = shape.experts > 0 ? "megatron_gpt_moe" : "megatron_gpt";
  model["gated_mlp"] = shape.is_gated;
  model["norm"] = word_of(traits, "normalization") == "RMSNorm" ? "rmsnorm" : "layernorm";
  model["use_bias"] = is_on(traits, "add_bias_linear");
  model["use_qk_norm"] = is_on(traits, "qk_layernorm");
  const std::string position = word_of(traits, "position_embedding_type");
  model["position_embedding"] = position == "learned_absolute" ? "learned" : position;
  if (shape.experts > 0) {
    model["num_experts"] = shape.experts;
    write_dense_layers(shape, model);
    if (shape.shared_ffn > 0) model["shared_expert_intermediate_size"] = shape.shared_ffn;
  }
}

bool has_linear_attention(const json& traits) {
  return !word_of(traits, "experimental_attention_variant").empty() ||
         traits.contains("linear_attention_freq");
}

/// Which layers are linear: all but each n-th, or as a pattern says.
void write_linear_layers(const json& traits, const Shape& shape, json& model) {
  model["attn_output_gate"] = is_on(traits, "attention_output_gate");
  const std::string text = word_of(traits, "linear_attention_freq");
  if (const auto interval = parse_integer(text)) {
    model["full_attention_interval"] = *interval;
    return;
  }
  json types = json::array();
  for (const bool is_linear : moe_layers_of(text, shape.layers)) {
    types.push_back(is_linear ? "linear_attention" : "full_attention");
  }
  model["layer_types"] = std::move(types);
}

void write_family(const json& traits, const Shape& shape, json& model,
                  std::vector<std::string>& notes) {
  const bool has_qk_norm = is_on(traits, "qk_layernorm");
  const bool has_experts = shape.experts > 0;
  const bool has_linear = has_linear_attention(traits);
  if (is_on(traits, "multi_latent_attention")) {
    write_deepseek(traits, shape, model, notes);
    return;
  }
  write_heads(traits, shape, model);
  if (!shape.is_plain) {
    write_plain_gpt(traits, shape, model);
  } else if (!has_experts) {
    const bool has_bias = is_on(traits, "add_qkv_bias");
    model["model_type"] = has_qk_norm ? "qwen3" : (has_bias ? "qwen2" : "llama");
    if (has_qk_norm) model["use_qk_norm"] = true;
    if (has_bias) model["attention_bias"] = true;
  } else if (has_linear || has_qk_norm || shape.shared_ffn > 0) {
    model["model_type"] = has_linear ? "qwen3_next" : (has_qk_norm ? "qwen3_moe" : "qwen2_moe");
    model["num_experts"] = shape.experts;
    model["use_qk_norm"] = has_qk_norm;
    model["attention_bias"] = is_on(traits, "add_qkv_bias");
    // A softmax over the chosen experts only adds up to 1.
    model["norm_topk_prob"] = !is_on(traits, "moe_router_pre_softmax");
    write_dense_layers(shape, model);
    if (shape.shared_ffn > 0) {
      model["shared_expert_intermediate_size"] = shape.shared_ffn;
      model["shared_expert_gate"] = is_on(traits, "moe_shared_expert_gate");
    }
    if (has_linear) write_linear_layers(traits, shape, model);
  } else if (shape.has_moe_everywhere()) {
    model["model_type"] = "mixtral";
    model["num_local_experts"] = shape.experts;
  } else {
    write_plain_gpt(traits, shape, model);
  }
}

}  // namespace

json huggingface_of(const json& traits, std::vector<std::string>& notes) {
  json model = json::object();
  copy(kPairs, traits, model);
  copy(kLinearPairs, traits, model);
  const bool has_sizes = size_of(traits, "num_layers") > 0 && size_of(traits, "hidden_size") > 0 &&
                         size_of(traits, "num_attention_heads") > 0;
  if (!has_sizes) {
    // What is left are changes to a model that is named elsewhere; defaults are no news of it.
    for (const char* key : {"hidden_dropout", "attention_dropout"}) model.erase(key);
    if (size_of(traits, "num_experts") > 0) model["num_experts"] = traits["num_experts"];
    return model;
  }
  const Shape shape = shape_of(traits);
  write_family(traits, shape, model, notes);
  // What a parser prints of attention that is not there says nothing.
  if (!has_linear_attention(traits)) {
    for (const Pair& pair : kLinearPairs) model.erase(pair.theirs);
  }
  const bool is_mixtral = model["model_type"] == "mixtral";
  model["intermediate_size"] = is_mixtral ? shape.expert_ffn : shape.ffn;
  if (shape.experts > 0) {
    model["num_experts_per_tok"] = size_of(traits, "moe_router_topk", 2);
    if (!is_mixtral) model["moe_intermediate_size"] = shape.expert_ffn;
  }
  model["hidden_act"] = activation_of(traits);
  model["tie_word_embeddings"] = !is_on(traits, "untie_embeddings_and_output_weights");
  const int64_t depth = size_of(traits, "mtp_num_layers");
  if (depth > 0) model["num_nextn_predict_layers"] = depth;
  if (traits.contains("vocab_size") && traits.contains("make_vocab_size_divisible_by")) {
    model["make_vocab_size_divisible_by"] = traits["make_vocab_size_divisible_by"];
  }
  if (!traits.contains("vocab_size")) {
    notes.emplace_back("the vocabulary is not said: the tokenizer decides it");
  }
  return model;
}

}  // namespace moetune::spec::dialects
