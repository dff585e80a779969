// Which family a model is, and its config.json.
#include "engine/spec/dialects/model_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/spec/dialects/layer_pattern.h"
#include "engine/spec/dialects/model_pairs.h"
#include "engine/spec/dialects/run_config.h"
#include "engine/spec/dialects/values.h"
#include "engine/spec/hf_family.h"

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
  /// The same with biases on all products, and sinks.
  bool has_sinks_and_biases;
  std::vector<bool> is_moe;

  [[nodiscard]] bool has_moe_everywhere() const {
    return std::ranges::all_of(is_moe, [](bool moe) { return moe; });
  }
};

/// Quick GELU is SiLU of 1.702 x: it costs the same.
bool is_silu(std::string_view activation) {
  return activation.find("silu") != std::string_view::npos ||
         activation.find("quick_gelu") != std::string_view::npos;
}

bool has_sinks(const json& traits) { return word_of(traits, "softmax_type") == "learnable"; }

Shape shape_of(const json& traits) {
  Shape shape;
  shape.layers = size_of(traits, "num_layers");
  shape.width = size_of(traits, "hidden_size");
  shape.heads = size_of(traits, "num_attention_heads");
  const std::string activation = word_of(traits, "activation_func");
  const bool has_swiglu = is_on(traits, "swiglu");
  shape.is_gated = has_swiglu || is_on(traits, "quick_geglu");
  // Megatron-LM's own defaults.
  const int64_t default_ffn = has_swiglu ? shape.width * 4 * 2 / 3 / 64 * 64 : shape.width * 4;
  shape.ffn = size_of(traits, "ffn_hidden_size", default_ffn);
  shape.experts = size_of(traits, "num_experts");
  shape.expert_ffn = size_of(traits, "moe_ffn_hidden_size", shape.ffn);
  shape.shared_ffn = size_of(traits, "moe_shared_expert_intermediate_size");
  const bool is_newer = shape.is_gated && word_of(traits, "normalization") == "RMSNorm" &&
                        (activation.empty() || is_silu(activation));
  const bool has_biases = is_on(traits, "add_bias_linear");
  shape.is_plain = is_newer && !has_biases;
  shape.has_sinks_and_biases = is_newer && has_biases && has_sinks(traits);
  const std::string pattern = word_of(traits, "moe_layer_freq");
  const bool has_pattern = shape.experts > 0 && !pattern.empty();
  shape.is_moe = moe_layers_of(has_pattern ? pattern : "1", shape.layers);
  if (shape.experts == 0) std::fill(shape.is_moe.begin(), shape.is_moe.end(), false);
  return shape;
}

std::string activation_of(const json& traits) {
  const std::string named = word_of(traits, "activation_func");
  const auto names = [&](std::string_view part) { return named.find(part) != std::string::npos; };
  if (is_on(traits, "squared_relu") || names("squared_relu") || names("relu2")) return "relu2";
  if (is_on(traits, "quick_geglu") || is_silu(named)) return "silu";
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
  // Where neither is known, they are those of the family.
  if (traits.contains("swiglu") && !shape.is_gated) model["gated_mlp"] = false;
  if (word_of(traits, "normalization") == "LayerNorm") model["norm"] = "layernorm";
  copy(kLatentPairs, traits, model);
  model["n_routed_experts"] = shape.experts;
  if (shape.experts == 0) return;
  copy(kRouterPairs, traits, model);
  model["topk_method"] = is_on(traits, "moe_router_enable_expert_bias") ? "noaux_tc" : "greedy";
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

void write_norm_and_positions(const json& traits, json& model) {
  model["norm"] = word_of(traits, "normalization") == "RMSNorm" ? "rmsnorm" : "layernorm";
  std::string position = word_of(traits, "position_embedding_type");
  if (position == "learned_absolute") position = "learned";
  // They rotate as well, by other angles.
  if (position == "yarn" || position == "mrope") position = "rope";
  model["position_embedding"] = position;
}

/// A decoder of any kind, with every trait spelled out.
void write_plain_gpt(const json& traits, const Shape& shape, json& model) {
  model["model_type"] = shape.experts > 0 ? "megatron_gpt_moe" : "megatron_gpt";
  model["gated_mlp"] = shape.is_gated;
  model["use_bias"] = is_on(traits, "add_bias_linear");
  model["use_qk_norm"] = is_on(traits, "qk_layernorm");
  write_norm_and_positions(traits, model);
  if (shape.experts > 0) {
    model["num_experts"] = shape.experts;
    write_dense_layers(shape, model);
    if (shape.shared_ffn > 0) model["shared_expert_intermediate_size"] = shape.shared_ffn;
  }
}

/// Gated DeltaNet, under any of its names; not sparse attention.
bool has_linear_attention(const json& traits) {
  const std::string variant = word_of(traits, "experimental_attention_variant");
  return variant.empty() ? traits.contains("linear_attention_freq") : variant != "dsa";
}

/// A hybrid with Mamba-2: a letter for each layer.
void write_hybrid(const json& traits, const Shape& shape, json& model,
                  std::vector<std::string>& notes) {
  const std::string letters = word_of(traits, "hybrid_layer_pattern");
  const auto has = [&](char letter) { return letters.find(letter) != std::string::npos; };
  model["model_type"] = "nemotron_h";
  model["hybrid_override_pattern"] = letters;
  const std::string of_mtp = word_of(traits, "mtp_hybrid_override_pattern");
  if (!of_mtp.empty() && size_of(traits, "mtp_num_layers") > 0) {
    model["mtp_hybrid_override_pattern"] = of_mtp;
  }
  write_heads(traits, shape, model);
  model["use_qk_norm"] = is_on(traits, "qk_layernorm");
  model["gated_mlp"] = shape.is_gated;
  write_norm_and_positions(traits, model);
  const bool has_biases = is_on(traits, "add_bias_linear");
  model["attention_bias"] = has_biases || is_on(traits, "add_qkv_bias");
  if (has_biases) {
    notes.emplace_back("of a hybrid's biases those of attention are counted, the others are not");
  }
  if (has('M')) {
    copy(kMambaPairs, traits, model);
    model["conv_kernel"] = kMambaTaps;
  }
  if (shape.experts == 0) return;
  copy(kRouterPairs, traits, model);
  model["n_routed_experts"] = shape.experts;
  model["n_shared_experts"] = shape.shared_ffn > 0 ? 1 : 0;
  model["moe_shared_expert_intermediate_size"] = shape.shared_ffn;
  model["shared_expert_gate"] = is_on(traits, "moe_shared_expert_gate");
  model["topk_method"] = is_on(traits, "moe_router_enable_expert_bias") ? "noaux_tc" : "greedy";
  model["norm_topk_prob"] = !is_on(traits, "moe_router_pre_softmax");
}

/// Which layers are linear: all but each n-th, or as a pattern says.
void write_linear_layers(const json& traits, const Shape& shape, json& model) {
  for (const auto& [key, size] : kLinearSizes) {
    if (!model.contains(key)) model[key] = size;
  }
  const std::string text = word_of(traits, "linear_attention_freq");
  if (const auto interval = parse_integer(text)) {
    model["full_attention_interval"] = *interval;
    return;
  }
  json types = json::array();
  for (const bool is_linear : mixed_layers_of(text, shape.layers, "layers with linear attention")) {
    types.push_back(is_linear ? "linear_attention" : "full_attention");
  }
  model["layer_types"] = std::move(types);
}

/// What grouped attention has beside its heads.
void write_gate_and_sinks(const json& traits, json& model) {
  const bool has_gate = is_on(traits, "attention_output_gate");
  if (has_gate || has_linear_attention(traits)) model["attn_output_gate"] = has_gate;
  if (has_sinks(traits)) model["attention_sinks"] = true;
}

/// Which layers have a window, and how many keys it has.
void write_windows(const json& traits, const Shape& shape, json& model,
                   std::vector<std::string>& notes) {
  const std::string pattern = word_of(traits, "window_attn_skip_freq");
  const int64_t keys = size_of(traits, "window_keys");
  std::vector<bool> has_window(static_cast<size_t>(shape.layers), keys > 0);
  if (keys > 0 && !pattern.empty()) {
    has_window = mixed_layers_of(pattern, shape.layers, "layers with a window");
  }
  // Of a hybrid only some layers attend.
  const std::string letters = word_of(traits, "hybrid_layer_pattern");
  for (size_t i = 0; i < letters.size(); ++i) {
    if (letters[i] != '*') has_window[i] = false;
  }
  const bool has_any = std::ranges::find(has_window, true) != has_window.end();
  // The family of dense models without windows has a sister with them.
  if (has_any && model["model_type"] == "llama") model["model_type"] = "mistral";
  const std::string type = word_of(model, "model_type");
  const spec::Family* family = spec::find_family(type);
  if (!has_any) {
    if (type == "gpt_oss") model["sliding_window"] = nullptr;
    return;
  }
  if (family == nullptr || family->windows == WindowRule::none) {
    notes.push_back(fmt::format(
        "sliding windows beside {} are not known: tokens are taken to see all before them",
        is_on(traits, "multi_latent_attention") ? "multi-head latent attention"
                                                : "linear attention"));
    return;
  }
  model["sliding_window"] = keys;
  model["use_sliding_window"] = true;
  json types = json::array();
  for (const bool is_sliding : has_window) {
    types.push_back(is_sliding ? "sliding_attention" : "full_attention");
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
    if (has_sinks(traits)) {
      notes.emplace_back("sinks of multi-head latent attention are not counted");
    }
    if (word_of(traits, "experimental_attention_variant") == "dsa") {
      notes.emplace_back(
          "sparse attention is taken as attention to all keys, and its indexer is not counted");
    }
    return;
  }
  write_gate_and_sinks(traits, model);
  if (!word_of(traits, "hybrid_layer_pattern").empty()) {
    write_hybrid(traits, shape, model, notes);
    return;
  }
  write_heads(traits, shape, model);
  if (!shape.is_plain && has_linear) {
    notes.emplace_back(
        "linear attention is known beside RMSNorm, SwiGLU and no biases only: left out");
  }
  if (shape.has_sinks_and_biases && has_experts && shape.has_moe_everywhere() &&
      shape.shared_ffn == 0) {
    model["model_type"] = "gpt_oss";
    model["num_local_experts"] = shape.experts;
    model["attention_bias"] = true;
    model["use_qk_norm"] = has_qk_norm;
  } else if (!shape.is_plain) {
    write_plain_gpt(traits, shape, model);
  } else if (!has_experts && has_linear) {
    model["model_type"] = "qwen3_5_text";
    model["use_qk_norm"] = has_qk_norm;
    model["attention_bias"] = is_on(traits, "add_qkv_bias");
    write_linear_layers(traits, shape, model);
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
    // The family with linear attention says it also where there is none.
    if (shape.shared_ffn > 0 || has_linear) {
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
  const spec::Family* family = spec::find_family(word_of(model, "model_type"));
  // The engine's families rotate whole heads.
  const json share = traits.value("rotary_percent", json());
  const bool has_share = family != nullptr && !family->runs_in_engine && share.is_number();
  if (has_share && share != family->rotary_ratio) model["partial_rotary_factor"] = share;
  const bool is_plain_width = family != nullptr && family->experts == ExpertKeys::mixtral;
  model["intermediate_size"] = is_plain_width ? shape.expert_ffn : shape.ffn;
  if (shape.experts > 0) {
    model["num_experts_per_tok"] = size_of(traits, "moe_router_topk", 2);
    if (!is_plain_width) model["moe_intermediate_size"] = shape.expert_ffn;
  }
  const bool is_hybrid = family != nullptr && family->mixer == MixerKeys::pattern;
  model[is_hybrid ? "mlp_hidden_act" : "hidden_act"] = activation_of(traits);
  write_windows(traits, shape, model, notes);
  model["tie_word_embeddings"] = !is_on(traits, "untie_embeddings_and_output_weights");
  const int64_t depth = size_of(traits, "mtp_num_layers");
  if (depth > 0) model["num_nextn_predict_layers"] = depth;
  if (depth > 0 && is_on(traits, "mtp_use_repeated_layer")) model["mtp_use_repeated_layer"] = true;
  if (traits.contains("vocab_size") && traits.contains("make_vocab_size_divisible_by")) {
    model["make_vocab_size_divisible_by"] = traits["make_vocab_size_divisible_by"];
  }
  if (!traits.contains("vocab_size")) {
    notes.emplace_back(kUnsaidVocabulary);
  }
  return model;
}

}  // namespace moetune::spec::dialects
