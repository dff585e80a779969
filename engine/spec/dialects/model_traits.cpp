// A config.json in Megatron's terms.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/spec/dialects/layer_pattern.h"
#include "engine/spec/dialects/model_pairs.h"
#include "engine/spec/dialects/model_sizes.h"
#include "engine/spec/dialects/text_cursor.h"
#include "engine/spec/dialects/values.h"
#include "engine/spec/hf_read.h"

namespace moetune::spec::dialects {
namespace {

/// What a family has where its config.json says nothing.
struct Family {
  std::string_view name;
  bool has_qk_norm = false;
  bool has_attention_bias = false;
  bool has_attention_gate = false;
  bool has_shared_gate = false;
  bool has_router_bias = false;
  bool has_linear_bias = false;  ///< of projections and experts
  bool has_quick_gelu = false;   ///< in its gated MLP
  bool is_ungated = false;       ///< two matrices and a squared ReLU
  bool has_no_positions = false;
  bool is_expert_width_plain = false;  ///< intermediate_size is that of an expert
  bool is_plain_gpt = false;  ///< LayerNorm, biases, learned positions, dropout, tied embeddings
};
constexpr std::array kFamilies = {
    Family{.name = "llama"},
    Family{.name = "mistral"},
    Family{.name = "mixtral", .is_expert_width_plain = true},
    Family{.name = "gpt_oss",
           .has_attention_bias = true,
           .has_linear_bias = true,
           .has_quick_gelu = true,
           .is_expert_width_plain = true},
    Family{.name = "nemotron_h",
           .has_router_bias = true,
           .is_ungated = true,
           .has_no_positions = true},
    Family{.name = "qwen2", .has_attention_bias = true},
    Family{.name = "qwen2_moe", .has_attention_bias = true, .has_shared_gate = true},
    Family{.name = "qwen3", .has_qk_norm = true},
    Family{.name = "qwen3_moe", .has_qk_norm = true},
    Family{.name = "qwen3_next",
           .has_qk_norm = true,
           .has_attention_gate = true,
           .has_shared_gate = true},
    Family{.name = "qwen3_5_moe",
           .has_qk_norm = true,
           .has_attention_gate = true,
           .has_shared_gate = true},
    Family{.name = "qwen3_5_moe_text",
           .has_qk_norm = true,
           .has_attention_gate = true,
           .has_shared_gate = true},
    Family{.name = "qwen3_5", .has_qk_norm = true, .has_attention_gate = true},
    Family{.name = "qwen3_5_text", .has_qk_norm = true, .has_attention_gate = true},
    Family{.name = "deepseek_v2", .has_qk_norm = true},
    Family{.name = "deepseek_v3", .has_qk_norm = true, .has_router_bias = true},
    Family{.name = "kimi_k2", .has_qk_norm = true, .has_router_bias = true},
    Family{.name = "gpt2", .is_plain_gpt = true},
    Family{.name = "megatron_gpt", .is_plain_gpt = true},
    Family{.name = "megatron_gpt_moe", .is_plain_gpt = true},
};
constexpr std::string_view kLinear = "linear_attention";
constexpr double kPlainDropout = 0.1;

void read_experts(const json& model, const Family& family, json& traits) {
  int64_t experts = 0;
  for (const char* key : {"num_experts", "n_routed_experts", "num_local_experts"}) {
    experts = std::max(experts, size_of(model, key));
  }
  if (experts == 0) return;
  const int64_t layers = size_of(model, "num_hidden_layers");
  const int64_t width =
      size_of(model, family.is_expert_width_plain ? "intermediate_size" : "moe_intermediate_size");
  traits["num_experts"] = experts;
  traits["moe_router_topk"] = size_of(model, "num_experts_per_tok", 2);
  traits["moe_ffn_hidden_size"] = width;
  const int64_t of_key = std::max(size_of(model, "shared_expert_intermediate_size"),
                                  size_of(model, "moe_shared_expert_intermediate_size"));
  const int64_t shared = of_key > 0 ? of_key : size_of(model, "n_shared_experts") * width;
  if (shared > 0) {
    traits["moe_shared_expert_intermediate_size"] = shared;
    traits["moe_shared_expert_gate"] = is_on(model, "shared_expert_gate", family.has_shared_gate);
  }
  if (!is_on(model, "norm_topk_prob", true)) traits["moe_router_pre_softmax"] = true;
  copy_back(kRouterPairs, model, traits);
  const std::string method = word_of(model, "topk_method");
  if (method.empty() ? family.has_router_bias : method == "noaux_tc") {
    traits["moe_router_enable_expert_bias"] = true;
  }
  if (layers < 1 || layers > kMostLayers) return;
  const int64_t first = size_of(model, "first_k_dense_replace");
  // Of deepseek, and of the others.
  const int64_t frequency = std::max<int64_t>(1, size_of(model, "moe_layer_freq", 1));
  const int64_t step = std::max<int64_t>(1, size_of(model, "decoder_sparse_step", 1));
  std::vector<bool> is_moe;
  for (int64_t i = 0; i < layers; ++i) {
    is_moe.push_back(i >= first && i % frequency == 0 && (i + 1) % step == 0);
  }
  for (const json& dense : model.value("mlp_only_layers", json::array())) {
    const int64_t layer = dense.is_number_integer() ? dense.get<int64_t>() : -1;
    if (layer >= 0 && layer < layers) is_moe[static_cast<size_t>(layer)] = false;
  }
  if (std::ranges::find(is_moe, false) != is_moe.end()) {
    traits["moe_layer_freq"] = pattern_of(is_moe);
  }
}

void read_attention(const json& model, const Family& family, json& traits) {
  if (model.contains("kv_lora_rank")) {
    traits["multi_latent_attention"] = true;
    copy_back(kLatentPairs, model, traits);
    if (size_of(traits, "q_lora_rank") == 0) traits.erase("q_lora_rank");
  } else {
    const int64_t heads = size_of(model, "num_attention_heads");
    const int64_t groups = size_of(model, "num_key_value_heads", heads);
    if (groups != heads) {
      traits["group_query_attention"] = true;
      traits["num_query_groups"] = groups;
    }
    if (model.contains("head_dim")) traits["kv_channels"] = model["head_dim"];
  }
  const auto set = [&](const char* trait, const char* key, bool otherwise) {
    if (is_on(model, key, otherwise)) traits[trait] = true;
  };
  set("qk_layernorm", "use_qk_norm", family.has_qk_norm);
  set("add_qkv_bias", "attention_bias", family.has_attention_bias);
  set("attention_output_gate", "attn_output_gate", family.has_attention_gate);
  if (is_on(model, "attention_sinks", find_family(family.name)->has_attention_sinks)) {
    traits["softmax_type"] = "learnable";
  }
  // Which layers are linear: every one but each n-th, or as a pattern.
  const json types = model.value("layer_types", json::array());
  std::vector<bool> is_linear;
  for (const json& type : types) {
    is_linear.push_back(type.is_string() && type.get_ref<const std::string&>() == kLinear);
  }
  if (std::ranges::find(is_linear, true) != is_linear.end()) {
    traits["linear_attention_freq"] = pattern_of(is_linear);
  } else if (model.contains("full_attention_interval")) {
    traits["linear_attention_freq"] = std::to_string(size_of(model, "full_attention_interval"));
  }
  if (traits.contains("linear_attention_freq")) {
    traits["experimental_attention_variant"] = "gated_delta_net";
  }
}

/// Which layers have a window, and how many keys before a token it has: Megatron does not count
/// the token itself.
void read_windows(const ModelSpec& layers, json& traits) {
  std::vector<bool> has_window;
  int64_t keys = 0;
  for (const int64_t window : layers.attention_window) {
    has_window.push_back(window > 0);
    keys = std::max(keys, window);
  }
  if (keys == 0) return;
  traits["window_size"] = fmt::format("{},0", keys - 1);
  if (std::ranges::find(has_window, false) != has_window.end()) {
    traits["window_attn_skip_freq"] = mixed_pattern_of(has_window);
  }
}

/// The letters of a hybrid; those of multi-token prediction also where the model has none, as a run
/// may train it.
void read_hybrid(const json& model, ModelSpec& layers, json& traits,
                 std::vector<std::string>& notes) {
  traits["num_layers"] = layers.num_layers;
  traits["hybrid_layer_pattern"] = letters_of(layers.layer_kinds);
  traits["is_hybrid_model"] = true;
  layers.num_experts = size_of(model, "n_routed_experts", size_of(model, "num_experts"));
  set_mtp_depth(layers, std::max<int64_t>(1, layers.mtp.depth));
  traits["mtp_hybrid_override_pattern"] = letters_of(layers.mtp.layers);
  copy_back(kMambaPairs, model, traits);
  const int64_t taps = size_of(model, "conv_kernel", kMambaTaps);
  if (taps != kMambaTaps) {
    notes.push_back(
        fmt::format("Mamba's convolution has {} taps in Megatron, here {}: no flag "
                    "says so",
                    kMambaTaps, taps));
  }
}

/// What differs from layer to layer, as the reader of such a file sees it.
void read_layers(const json& model, json& traits, std::vector<std::string>& notes) {
  try {
    JsonReader reader(model, Source("the model"), "", NullIs::absent);
    const spec::Family& family = *find_family(reader.text(model_key("model_type")));
    ModelSpec layers;
    if (family.mixer == MixerKeys::pattern) {
      spec::read_layers(reader, family, layers);
      read_mtp(reader, family, layers);
      read_hybrid(model, layers, traits, notes);
    }
    layers.num_layers = size_of(traits, "num_layers");
    if (layers.num_layers < 1 || layers.num_layers > kMostLayers) return;
    spec::read_windows(reader, family, layers);
    read_windows(layers, traits);
  } catch (const base::UsageError& error) {
    // Of a part of a model, or of a damaged one, the rest is written.
    notes.emplace_back(error.what());
  }
}

void read_traits(const json& model, const Family& family, json& traits) {
  const std::string norm = word_of(model, "norm");
  const bool has_layer_norm = norm.empty() ? family.is_plain_gpt : norm == "layernorm";
  traits["normalization"] = has_layer_norm ? "LayerNorm" : "RMSNorm";
  traits["swiglu"] = is_on(model, "gated_mlp", !family.is_plain_gpt && !family.is_ungated);
  const std::string of_mlp = word_of(model, "mlp_hidden_act");
  const std::string activation = of_mlp.empty() ? word_of(model, "hidden_act") : of_mlp;
  const auto epsilon = model.find("layer_norm_epsilon");
  if (epsilon != model.end() && epsilon->is_number() && !traits.contains("norm_epsilon")) {
    traits["norm_epsilon"] = *epsilon;
  }
  if (activation == "relu2") traits["squared_relu"] = true;
  if (family.has_quick_gelu) {
    traits["quick_geglu"] = true;
    traits["activation_func"] = "quick_gelu";
  } else if (!activation.empty()) {
    traits["activation_func"] = activation == "relu2" ? "squared_relu" : activation;
  }
  traits["add_bias_linear"] =
      is_on(model, "use_bias",
            family.has_linear_bias || (family.is_plain_gpt && family.name != "megatron_gpt_moe"));
  traits["untie_embeddings_and_output_weights"] =
      !is_on(model, "tie_word_embeddings", family.is_plain_gpt);
  const std::string position = word_of(model, "position_embedding");
  const bool is_learned = position.empty() ? family.is_plain_gpt : position == "learned";
  traits["position_embedding_type"] =
      is_learned ? "learned_absolute" : (position.empty() ? "rope" : position);
  if (family.has_no_positions) traits["position_embedding_type"] = "none";
  for (const char* key : {"hidden_dropout", "attention_dropout"}) {
    if (!traits.contains(key)) traits[key] = family.is_plain_gpt ? kPlainDropout : 0.0;
  }
}

/// What of a model no setting of the table says.
void note_what_is_left(const Family& family, std::vector<std::string>& notes) {
  if (family.name == "gpt_oss") {
    notes.emplace_back(
        "clamped activations, their offset and YaRN of gpt_oss have no flags here: add them by "
        "hand");
  } else if (family.name == "nemotron_h") {
    notes.emplace_back("a hybrid needs the framework's script for hybrid models");
  }
}

}  // namespace

json traits_of(const json& model, std::vector<std::string>& notes) {
  json traits = json::object();
  const std::string name = word_of(model, "model_type");
  if (name.empty()) return traits;
  const auto family = std::ranges::find(kFamilies, name, &Family::name);
  if (family == kFamilies.end()) {
    notes.push_back(fmt::format(
        "the sizes of a model of the family {} are not written: take those that you have", name));
    return traits;
  }
  copy_back(kPairs, model, traits);
  copy_back(kLinearPairs, model, traits);
  const json rope = model.value("rope_parameters", json::object());
  if (rope.contains("rope_theta")) traits["rotary_base"] = rope["rope_theta"];
  if (size_of(model, "intermediate_size") > 0) {
    traits["ffn_hidden_size"] = model["intermediate_size"];
  }
  read_attention(model, *family, traits);
  read_traits(model, *family, traits);
  read_experts(model, *family, traits);
  read_layers(model, traits, notes);
  const int64_t depth =
      std::max(size_of(model, "num_nextn_predict_layers"), size_of(model, "mtp_num_hidden_layers"));
  if (depth > 0) traits["mtp_num_layers"] = depth;
  if (is_on(model, "mtp_use_repeated_layer")) traits["mtp_use_repeated_layer"] = true;
  if (model.contains("make_vocab_size_divisible_by")) {
    traits["make_vocab_size_divisible_by"] = model["make_vocab_size_divisible_by"];
  }
  note_what_is_left(*family, notes);
  return traits;
}

}  // namespace moetune::spec::dialects
