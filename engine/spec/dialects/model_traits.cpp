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

/// The one family whose experts have biases is also the one whose gated MLP has quick GELU.
bool has_quick_gelu(const Family& family) { return family.has_expert_bias; }

/// Whether files of a family have keys, or leave keys out, that are not read here.
bool has_own_keys(const Family& family) {
  const bool has_own_spelling = std::ranges::any_of(family.spellings, [](const Spelling& row) {
    return row.ours != "attention_bias" && row.ours != "rms_norm_eps";
  });
  const bool is_read_here = family.is_plain_gpt || family.mixer == MixerKeys::pattern;
  return !is_read_here && (has_own_spelling || family.has_plain_expert_width);
}

/// A file with the keys that families share.
json with_shared_keys(const json& model, const Family& family, std::vector<std::string>& notes) {
  if (has_own_keys(family)) {
    try {
      json read = model;
      read.update(to_json(model_from_json(model, Source("the model"))));
      return read;
    } catch (const base::UsageError& error) {
      // Of a part of a model, or of a damaged one, the rest is written.
      notes.emplace_back(error.what());
    }
  }
  json spelled = model;
  for (const Spelling& row : family.spellings) {
    const auto theirs = model.find(std::string(row.theirs));
    if (theirs != model.end() && !theirs->is_null()) spelled[std::string(row.ours)] = *theirs;
  }
  return spelled;
}

constexpr std::string_view kLinear = "linear_attention";

void read_experts(const json& model, const Family& family, json& traits,
                  std::vector<std::string>& notes) {
  int64_t experts = 0;
  for (const char* key : {"num_experts", "n_routed_experts", "num_local_experts"}) {
    experts = std::max(experts, size_of(model, key));
  }
  if (experts == 0 || family.experts == ExpertKeys::none) return;
  const int64_t layers = size_of(model, "num_hidden_layers");
  const int64_t plain_width = size_of(model, "intermediate_size");
  const int64_t width =
      family.experts == ExpertKeys::mixtral
          ? plain_width
          : size_of(model, "moe_intermediate_size", family.is_plain_gpt ? plain_width : 0);
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
  const bool is_normalized = family.reads_norm_topk
                                 ? is_on(model, "norm_topk_prob", family.normalizes_topk)
                                 : family.normalizes_topk;
  if (!is_normalized) traits["moe_router_pre_softmax"] = true;
  copy_back(kRouterPairs, model, traits);
  const std::string method = word_of(model, "topk_method");
  const bool has_bias = method.empty() ? family.has_router_bias : method == "noaux_tc";
  if (is_on(model, "use_routing_bias", has_bias)) {
    traits["moe_router_enable_expert_bias"] = true;
    // Megatron has the bias beside such scores only.
    if (!traits.contains("moe_router_score_function")) {
      traits["moe_router_score_function"] = "sigmoid";
      notes.emplace_back("the model's file does not say its router's scores: taken as sigmoid");
    }
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
  const json types = model.value("mlp_layer_types", json::array());
  for (size_t i = 0; i < std::min(types.size(), is_moe.size()); ++i) {
    is_moe[i] = types[i] == "sparse";
  }
  if (std::ranges::find(is_moe, false) != is_moe.end()) {
    traits["moe_layer_freq"] = pattern_of(is_moe);
  }
}

void read_attention(const json& model, const Family& family, json& traits,
                    std::vector<std::string>& notes) {
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
  const bool has_bias = family.attention_bias && !family.is_plain_gpt;
  set("add_qkv_bias", "attention_bias", has_bias);
  const bool is_of_output = family.biases == BiasRule::attention_key && !family.has_expert_bias;
  if (is_of_output && is_on(traits, "add_qkv_bias")) {
    notes.emplace_back("the bias of attention's output product has no flag: it is left out");
  }
  set("attention_output_gate", "attn_output_gate", family.has_attention_gate);
  if (is_on(model, "attention_sinks", family.has_attention_sinks)) {
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
  } else if (family.mixer == MixerKeys::gdn && types.empty()) {
    const auto otherwise = static_cast<int64_t>(model_default("full_attention_interval"));
    traits["linear_attention_freq"] =
        std::to_string(size_of(model, "full_attention_interval", otherwise));
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
void read_layers(const json& model, const Family& family, json& traits,
                 std::vector<std::string>& notes) {
  try {
    JsonReader reader(model, Source("the model"), "", NullIs::absent);
    ModelSpec layers;
    if (family.mixer == MixerKeys::pattern) {
      spec::read_layers(reader, family, layers);
      read_mtp(reader, family, layers);
      read_hybrid(model, layers, traits, notes);
    }
    layers.num_layers = size_of(traits, "num_layers");
    const bool has_windows = !family.has_chunked_windows;
    if (layers.num_layers < 1 || layers.num_layers > kMostLayers || !has_windows) return;
    spec::read_windows(reader, family, layers);
    read_windows(layers, traits);
  } catch (const base::UsageError& error) {
    // Of a part of a model, or of a damaged one, the rest is written.
    notes.emplace_back(error.what());
  }
}

/// Which share of a head is turned by its position, and how.
void read_rotation(const json& model, const Family& family, json& traits,
                   std::vector<std::string>& notes) {
  double share = number_of(model, "partial_rotary_factor", family.rotary_ratio);
  std::string type;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto rope = model.find(key);
    if (rope == model.end() || !rope->is_object() || rope->empty()) continue;
    if (rope->contains("rope_theta")) traits["rotary_base"] = (*rope)["rope_theta"];
    share = number_of(*rope, "partial_rotary_factor", share);
    type = word_of(*rope, rope->contains("rope_type") ? "rope_type" : "type");
  }
  if (share != 1) traits["rotary_percent"] = share;
  if (type.empty() || type == "default" || has_quick_gelu(family)) return;
  notes.push_back(
      fmt::format("positions of the type {} have no flags here: add them by hand", shown(type)));
}

void read_traits(const json& model, const Family& family, json& traits) {
  const std::string norm = word_of(model, "norm");
  const bool has_layer_norm = norm.empty() ? family.has_layer_norm : norm == "layernorm";
  traits["normalization"] = has_layer_norm ? "LayerNorm" : "RMSNorm";
  traits["swiglu"] = is_on(model, "gated_mlp", family.has_gated_mlp);
  const std::string of_mlp = word_of(model, "mlp_hidden_act");
  std::string activation = of_mlp.empty() ? word_of(model, "hidden_act") : of_mlp;
  if (activation.empty() && family.activation == "relu2") activation = family.activation;
  if (activation == "relu2") traits["squared_relu"] = true;
  if (has_quick_gelu(family)) {
    traits["quick_geglu"] = true;
    traits["activation_func"] = "quick_gelu";
  } else if (!activation.empty()) {
    traits["activation_func"] = activation == "relu2" ? "squared_relu" : activation;
  }
  const bool has_biases = family.is_plain_gpt ? family.attention_bias : family.has_expert_bias;
  traits["add_bias_linear"] = is_on(model, "use_bias", has_biases);
  traits["untie_embeddings_and_output_weights"] =
      !is_on(model, "tie_word_embeddings", family.ties_embeddings);
  const std::string said = word_of(model, "position_embedding");
  const std::string position = said.empty() ? std::string(family.positions) : said;
  traits["position_embedding_type"] = position == "learned" ? "learned_absolute" : position;
  for (const char* key : {"hidden_dropout", "attention_dropout"}) {
    if (!traits.contains(key)) traits[key] = family.dropout;
  }
}

/// What of a model no setting of the table says.
void note_what_is_left(const Family& family, std::vector<std::string>& notes) {
  if (has_quick_gelu(family)) {
    notes.push_back(
        fmt::format("clamped activations, their offset and YaRN of {} have no flags here: add them "
                    "by hand",
                    family.name));
  } else if (family.mixer == MixerKeys::pattern) {
    notes.emplace_back("a hybrid needs the framework's script for hybrid models");
  }
  if (family.has_indexer) {
    notes.emplace_back("the indexer that chooses keys has no flags here: add them by hand");
  }
  if (family.has_chunked_windows) {
    notes.emplace_back("chunks of keys have no flag: attention is written as that to all keys");
  }
  if (!family.assumed.empty()) {
    notes.push_back(fmt::format("{} is written as it is planned: {}", family.name, family.assumed));
  }
}

}  // namespace

json traits_of(const json& document, std::vector<std::string>& notes) {
  json traits = json::object();
  const std::string name = word_of(document, "model_type");
  if (name.empty()) return traits;
  const Family* family = find_family(name);
  if (family == nullptr) {
    notes.push_back(fmt::format(
        "the sizes of a model of the family {} are not written: take those that you have",
        shown(name)));
    return traits;
  }
  const json model = with_shared_keys(document, *family, notes);
  copy_back(kPairs, model, traits);
  copy_back(kLinearPairs, model, traits);
  read_rotation(model, *family, traits, notes);
  if (size_of(model, "intermediate_size") > 0) {
    traits["ffn_hidden_size"] = model["intermediate_size"];
  }
  read_attention(model, *family, traits, notes);
  read_traits(model, *family, traits);
  read_experts(model, *family, traits, notes);
  read_layers(model, *family, traits, notes);
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
