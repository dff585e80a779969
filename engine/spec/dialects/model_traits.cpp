// A config.json in Megatron's terms, and the pattern of layers with experts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/spec/dialects/model_pairs.h"
#include "engine/spec/dialects/model_sizes.h"
#include "engine/spec/dialects/text_cursor.h"
#include "engine/spec/dialects/values.h"

namespace moetune::spec::dialects {
namespace {

constexpr int64_t kMostLayers = 10'000;

}  // namespace

std::vector<bool> moe_layers_of(const std::string& pattern, int64_t num_layers) {
  const auto fail = [&] {
    throw base::UsageError(fmt::format(
        "the pattern of layers with experts is '{}', expected one such as 2 or ([0]*3+[1]*58)",
        shown(pattern)));
  };
  if (num_layers < 0 || num_layers > kMostLayers) {
    throw base::UsageError(fmt::format("{} layers, expected at most {}", num_layers, kMostLayers));
  }
  std::vector<bool> layers;
  if (const auto step = parse_integer(pattern)) {
    if (*step < 1) fail();
    for (int64_t i = 0; i < num_layers; ++i) layers.push_back(i % *step == 0);
    return layers;
  }
  // Runs such as [0]*3, and lists of single layers.
  std::string text;
  for (const char c : pattern) {
    if (c != ' ' && c != '[' && c != ']' && c != '(' && c != ')') text += c == '+' ? ',' : c;
  }
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string run = text.substr(0, end);
    text.erase(0, std::min(end + 1, text.size()));
    const size_t star = run.find('*');
    const std::string kind = run.substr(0, star);
    const auto times = star == std::string::npos ? 1 : parse_integer(run.substr(star + 1));
    const int64_t room = kMostLayers - static_cast<int64_t>(layers.size());
    if ((kind != "0" && kind != "1") || !times || *times < 0 || *times > room) fail();
    layers.insert(layers.end(), static_cast<size_t>(*times), kind == "1");
  }
  if (static_cast<int64_t>(layers.size()) != num_layers) {
    throw base::UsageError(
        fmt::format("the pattern of layers with experts, '{}', has {} layers, "
                    "and the model {}",
                    shown(pattern), layers.size(), num_layers));
  }
  return layers;
}

std::string moe_pattern_of(const std::vector<bool>& is_moe) {
  std::string text;
  for (size_t first = 0; first < is_moe.size();) {
    size_t end = first;
    while (end < is_moe.size() && is_moe[end] == is_moe[first]) ++end;
    text += fmt::format("{}[{}]*{}", text.empty() ? "" : "+", is_moe[first] ? 1 : 0, end - first);
    first = end;
  }
  return "(" + text + ")";
}

namespace {

void read_experts(const json& model, json& traits) {
  int64_t experts = 0;
  for (const char* key : {"num_experts", "n_routed_experts", "num_local_experts"}) {
    experts = std::max(experts, size_of(model, key));
  }
  if (experts == 0) return;
  const int64_t layers = size_of(model, "num_hidden_layers");
  const bool is_mixtral = model.contains("num_local_experts");
  const int64_t width = size_of(model, is_mixtral ? "intermediate_size" : "moe_intermediate_size");
  traits["num_experts"] = experts;
  traits["moe_router_topk"] = size_of(model, "num_experts_per_tok", 2);
  traits["moe_ffn_hidden_size"] = width;
  const int64_t shared = std::max(size_of(model, "shared_expert_intermediate_size"),
                                  size_of(model, "n_shared_experts") * width);
  if (shared > 0) traits["moe_shared_expert_intermediate_size"] = shared;
  if (!is_on(model, "norm_topk_prob", true)) traits["moe_router_pre_softmax"] = true;
  if (is_on(model, "shared_expert_gate")) traits["moe_shared_expert_gate"] = true;
  copy_back(kRouterPairs, model, traits);
  const std::string method = word_of(model, "topk_method");
  const bool has_bias =
      method.empty() ? word_of(model, "model_type") == "deepseek_v3" : method == "noaux_tc";
  if (has_bias) traits["moe_router_enable_expert_bias"] = true;
  if (layers < 1 || layers > kMostLayers) return;
  const int64_t step = std::max<int64_t>(1, size_of(model, "decoder_sparse_step", 1));
  const int64_t first = size_of(model, "first_k_dense_replace");
  std::vector<bool> is_moe;
  for (int64_t i = 0; i < layers; ++i) is_moe.push_back(i >= first && (i + 1) % step == 0);
  for (const json& dense : model.value("mlp_only_layers", json::array())) {
    const int64_t layer = dense.is_number_integer() ? dense.get<int64_t>() : -1;
    if (layer >= 0 && layer < layers) is_moe[static_cast<size_t>(layer)] = false;
  }
  if (std::ranges::find(is_moe, false) != is_moe.end()) {
    traits["moe_layer_freq"] = moe_pattern_of(is_moe);
  }
}

}  // namespace

json traits_of(const json& model, std::vector<std::string>& notes) {
  json traits = json::object();
  if (!model.contains("model_type")) return traits;
  const std::string family = word_of(model, "model_type");
  constexpr std::array<std::string_view, 10> kKnown = {
      "llama",     "mixtral",    "qwen2",        "qwen2_moe",        "qwen3",
      "qwen3_moe", "qwen3_next", "megatron_gpt", "megatron_gpt_moe", "deepseek_v3"};
  if (std::ranges::find(kKnown, family) == kKnown.end()) {
    notes.push_back(fmt::format("of the model family {} only the sizes are written", family));
  }
  copy_back(kPairs, model, traits);
  const bool is_gpt = family.starts_with("megatron_gpt") || family == "gpt2";
  const bool is_latent = model.contains("kv_lora_rank");
  traits["ffn_hidden_size"] = size_of(model, "intermediate_size");
  if (size_of(model, "intermediate_size") == 0) traits.erase("ffn_hidden_size");
  if (is_latent) {
    traits["multi_latent_attention"] = true;
    copy_back(kLatentPairs, model, traits);
  } else {
    const int64_t heads = size_of(model, "num_attention_heads");
    const int64_t groups = size_of(model, "num_key_value_heads", heads);
    if (groups != heads) {
      traits["group_query_attention"] = true;
      traits["num_query_groups"] = groups;
    }
    if (model.contains("head_dim")) traits["kv_channels"] = model["head_dim"];
  }
  const bool has_layer_norm = word_of(model, "norm") == "layernorm" || family == "gpt2";
  traits["normalization"] = has_layer_norm ? "LayerNorm" : "RMSNorm";
  traits["swiglu"] = is_on(model, "gated_mlp", !is_gpt);
  const std::string activation = word_of(model, "hidden_act");
  if (activation == "relu2") traits["squared_relu"] = true;
  if (!activation.empty()) {
    traits["activation_func"] = activation == "relu2" ? "squared_relu" : activation;
  }
  traits["add_bias_linear"] = is_on(model, "use_bias");
  traits["untie_embeddings_and_output_weights"] = !is_on(model, "tie_word_embeddings");
  const bool has_qk_norm = family.starts_with("qwen3") && is_on(model, "use_qk_norm", true);
  if (has_qk_norm || is_on(model, "use_qk_norm")) traits["qk_layernorm"] = true;
  const std::string position = word_of(model, "position_embedding");
  traits["position_embedding_type"] =
      position == "learned" ? "learned_absolute" : (position.empty() ? "rope" : position);
  for (const char* key : {"hidden_dropout", "attention_dropout"}) {
    if (!traits.contains(key)) traits[key] = 0.0;
  }
  if (model.contains("full_attention_interval")) {
    traits["experimental_attention_variant"] = "gated_delta_net";
    traits["linear_attention_freq"] = std::to_string(size_of(model, "full_attention_interval"));
  }
  const int64_t depth =
      std::max(size_of(model, "num_nextn_predict_layers"), size_of(model, "mtp_num_hidden_layers"));
  if (depth > 0) traits["mtp_num_layers"] = depth;
  if (model.contains("make_vocab_size_divisible_by")) {
    traits["make_vocab_size_divisible_by"] = model["make_vocab_size_divisible_by"];
  }
  read_experts(model, traits);
  return traits;
}

}  // namespace moetune::spec::dialects
