// One step for each kind of word that a config.json has otherwise.
#include "sweeps/planning/row_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/spec/dialects/layer_pattern.h"
#include "engine/spec/hf_family.h"
#include "engine/spec/hf_keys.h"
#include "engine/spec/json_reader.h"
#include "kernels/base/error.h"
#include "sweeps/planning/row_words.h"

namespace moetune::sweeps {

namespace {

using nlohmann::json;
using spec::ExpertKeys;
using spec::Family;

bool has(const json& model, std::string_view key) {
  const auto found = model.find(key);
  return found != model.end() && !found->is_null();
}

/// A whole number that is there; none for anything else.
std::optional<int64_t> size_in(const json& model, std::string_view key) {
  if (!has(model, key) || !model.at(key).is_number_integer()) return std::nullopt;
  return model.at(key).get<int64_t>();
}

/// The family's own name of a key.
std::string_view own_name_of(const Family& family, std::string_view key) {
  for (const spec::Spelling& row : family.spellings) {
    if (row.ours == key) return row.theirs;
  }
  return key;
}

/// What the steps below count with.
constexpr std::array<std::string_view, 9> kSizes = {"num_hidden_layers",
                                                    "num_experts",
                                                    "intermediate_size",
                                                    "moe_intermediate_size",
                                                    "first_k_dense_replace",
                                                    "n_shared_experts",
                                                    "num_shared_experts",
                                                    "shared_expert_intermediate_size",
                                                    "moe_shared_expert_intermediate_size"};

/// Some families have a number for each layer here, which the model's own reader judges.
bool may_be_list(const Family& family, std::string_view key) {
  return key == "num_experts" || key == "intermediate_size" || key == "moe_intermediate_size" ||
         (key == "n_shared_experts" && family.shared == spec::SharedKeys::counted);
}

/// A text that is a whole number as that number.
void take_text_as_number(json& value) {
  const auto& text = value.get_ref<const std::string&>();
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec == std::errc() && read.ptr == end) value = number;
}

/// What is stated is a size, or is refused: without it the model would be another one.
void take_sizes(const Family& family, const spec::Source& source, json& model) {
  for (const std::string_view key : kSizes) {
    for (const std::string_view name : {key, own_name_of(family, key)}) {
      if (!has(model, name)) continue;
      json& value = model[std::string(name)];
      if (value.is_string() && is_unknown_word(value.get_ref<const std::string&>())) {
        model.erase(std::string(name));
        continue;
      }
      if (value.is_array() && may_be_list(family, key)) continue;
      if (value.is_string()) take_text_as_number(value);
      // None, where a family does not read it; what needs it is refused where it is read.
      if (value.is_number_integer() && value == 0) continue;
      value = spec::JsonReader(model, source, "", spec::NullIs::absent)
                  .integer(*spec::find_model_key(name));
    }
  }
}

/// By its name in any letters, which is then spelled as in config.json.
const Family* family_in(json& model) {
  if (!has(model, "model_type") || !model.at("model_type").is_string()) return nullptr;
  const auto name = model.at("model_type").get<std::string>();
  if (const Family* family = spec::find_family(name)) return family;
  for (const Family& family : spec::kFamilies) {
    if (plain_word(family.name) != plain_word(name)) continue;
    model["model_type"] = std::string(family.name);
    return &family;
  }
  return nullptr;
}

/// Without what only separates words: "LayerNorm1P" is "layernorm1p".
std::string joined_word(const json& text) {
  std::string word = plain_word(text.get<std::string>());
  std::erase(word, '_');
  return word;
}

void take_words(json& model) {
  if (has(model, "norm") && model.at("norm").is_string()) {
    const std::string norm = joined_word(model.at("norm"));
    // Its weights are stored less one.
    if (norm == "layernorm" || norm == "layernorm1p") model["norm"] = "layernorm";
    if (norm == "rmsnorm") model["norm"] = "rmsnorm";
  }
  for (const char* key : {"hidden_act", "mlp_hidden_act", "activation_function"}) {
    if (!has(model, key) || !model.at(key).is_string()) continue;
    const std::string word = joined_word(model.at(key));
    if (word == "squaredrelu") model[key] = "relu2";
    if (word != "swiglu" && word != "geglu") continue;
    model[key] = word == "swiglu" ? "silu" : "gelu";
    if (!has(model, "gated_mlp")) model["gated_mlp"] = true;
  }
}

/// Which layers moe_layer_freq says, where it says them as Megatron does: in a list, or with its
/// plain GPT by a number.
std::optional<std::vector<bool>> listed_moe_layers(const json& model, const Family& family) {
  constexpr const char* kKey = "moe_layer_freq";
  const auto layers = size_in(model, own_name_of(family, "num_hidden_layers"));
  const auto plain_layers = layers ? layers : size_in(model, "num_hidden_layers");
  if (!has(model, kKey) || !plain_layers) return std::nullopt;
  const json& stated = model.at(kKey);
  const std::string text = stated.is_string() ? stated.get<std::string>() : stated.dump();
  const bool is_number = text.find_first_not_of("0123456789. ") == std::string::npos;
  if ((is_number && !family.is_plain_gpt) || family.experts == ExpertKeys::pattern) {
    return std::nullopt;
  }
  return spec::dialects::moe_layers_of(text, *plain_layers);
}

void write_moe_layers(const std::vector<bool>& has_experts, const Family& family, json& model) {
  model.erase("moe_layer_freq");
  json types = json::array();
  json dense = json::array();
  json sparse = json::array();
  for (size_t layer = 0; layer < has_experts.size(); ++layer) {
    types.push_back(has_experts[layer] ? "sparse" : "dense");
    (has_experts[layer] ? sparse : dense).push_back(layer);
  }
  if (family.experts == ExpertKeys::deepseek) {
    model["mlp_layer_types"] = std::move(types);
  } else if (family.experts == ExpertKeys::qwen || family.experts == ExpertKeys::ranged) {
    model["mlp_only_layers"] = std::move(dense);
    if (family.is_plain_gpt) model["decoder_sparse_step"] = 1;
  } else if (family.experts == ExpertKeys::listed) {
    model["moe_layers"] = std::move(sparse);
  } else if (family.experts != ExpertKeys::none && !dense.empty()) {
    throw base::UsageError(
        fmt::format("moe_layer_freq has dense layers, which are not known of {}", family.name));
  }
}

/// The first so many are dense, whether or not the family has that key.
void take_first_dense(const Family& family, json& model) {
  const auto first = size_in(model, "first_k_dense_replace");
  if (family.experts != ExpertKeys::qwen && family.experts != ExpertKeys::ranged) return;
  if (!first || has(model, "mlp_only_layers") || has(model, "moe_layer_start_index")) return;
  json dense = json::array();
  const int64_t num_dense = std::min(*first, spec::dialects::kMostLayers);
  for (int64_t layer = 0; layer < num_dense; ++layer) dense.push_back(layer);
  model["mlp_only_layers"] = std::move(dense);
}

/// How wide one expert is: of a list, in which all are the same, the first.
std::optional<int64_t> expert_width(const json& model) {
  for (const char* key : {"moe_intermediate_size", "intermediate_size"}) {
    if (!has(model, key)) continue;
    const json& value = model.at(key);
    const json first = value.is_array() && !value.empty() ? value.front() : value;
    if (first.is_number_integer()) return first.get<int64_t>();
  }
  return std::nullopt;
}

/// The width of all shared experts, in the place of their number or by Megatron's name.
void take_shared_experts(const Family& family, json& model) {
  constexpr const char* kWidth = "shared_expert_intermediate_size";
  if (family.experts == ExpertKeys::none || family.shared != spec::SharedKeys::width) return;
  if (has(model, kWidth) || has(model, own_name_of(family, kWidth))) return;
  if (const auto width = size_in(model, "moe_shared_expert_intermediate_size")) {
    model[kWidth] = *width;
    return;
  }
  for (const char* key : {"n_shared_experts", "num_shared_experts"}) {
    const auto count = size_in(model, key);
    const auto width = expert_width(model);
    if (!count || !width) continue;
    // What overflows is refused by its own name.
    constexpr int64_t kMost = int64_t{1} << 30;
    model[kWidth] = *count * std::clamp<int64_t>(*width, 0, kMost);
    return;
  }
}

/// Megatron's plain GPT with latent attention has the keys of DeepSeek-V3, and its own defaults.
const Family* with_latent_attention(const Family& family, const spec::Source& source, json& model) {
  const Family& latent = *spec::find_family("deepseek_v3");
  model["model_type"] = std::string(latent.name);
  const auto take = [&](const char* key, const auto& otherwise) {
    if (!has(model, key)) model[key] = otherwise;
  };
  take("norm", "layernorm");
  take("gated_mlp", family.has_gated_mlp);
  take("hidden_act", std::string(family.activation));
  take("use_qk_norm", family.has_qk_norm);
  take("tie_word_embeddings", family.ties_embeddings);
  take("attention_dropout", family.dropout);
  take("hidden_dropout", family.dropout);
  constexpr std::pair<const char*, const char*> kOfMegatron[] = {
      {"qk_nope_head_dim", "qk_head_dim"}, {"qk_rope_head_dim", "qk_pos_emb_head_dim"}};
  for (const auto& [ours, theirs] : kOfMegatron) {
    if (has(model, theirs)) take(ours, json(model.at(theirs)));
  }
  const int64_t experts = size_in(model, "num_experts").value_or(0);
  take("n_routed_experts", experts);
  if (experts == 0) return &latent;
  const auto width = expert_width(model);
  if (width) take("moe_intermediate_size", *width);
  auto shared = size_in(model, "moe_shared_expert_intermediate_size");
  if (!shared) shared = size_in(model, "shared_expert_intermediate_size");
  if (shared && width && *width > 0 && *shared % *width != 0) {
    throw base::UsageError(fmt::format(
        "moe_shared_expert_intermediate_size {} is no multiple of an expert's {}, as latent "
        "attention is modelled with",
        *shared, *width));
  }
  take("n_shared_experts", shared && width && *width > 0 ? *shared / *width : 0);
  if (has(model, "mlp_only_layers")) {
    const int64_t layers = std::clamp<int64_t>(size_in(model, "num_hidden_layers").value_or(0), 0,
                                               spec::dialects::kMostLayers);
    json types(static_cast<size_t>(layers), "sparse");
    spec::JsonReader reader(model, source, "", spec::NullIs::absent);
    constexpr auto kMost = static_cast<int64_t>(spec::detail::kMaxPositions);
    for (const int64_t place : reader.integers("mlp_only_layers", 0, kMost)) {
      // As where such lists are the family's own.
      if (place < layers) types[static_cast<size_t>(place)] = "dense";
    }
    take("mlp_layer_types", types);
  }
  take("first_k_dense_replace", 0);
  return &latent;
}

/// Sizes that a row leaves out and its family has a default for. Dense layers that would leave no
/// layer for the experts are none: then the row has to say them.
void take_defaults(const Family& family, json& model, std::vector<std::string>& assumed) {
  const auto take = [&](std::string_view key, int64_t otherwise) {
    const std::string own(own_name_of(family, key));
    // null is a statement: there are none.
    if (otherwise < 0 || model.contains(own) || model.contains(key)) return;
    model[own] = otherwise;
    assumed.push_back(fmt::format("{} {}: the row's model does not say, the default of {}", own,
                                  otherwise, family.name));
  };
  const auto layers = size_in(model, own_name_of(family, "num_hidden_layers"));
  const bool has_room = !layers || *layers > family.default_dense_layers;
  if (!has(model, "mlp_layer_types") && has_room) {
    take("first_k_dense_replace", family.default_dense_layers);
  }
  take("n_shared_experts", family.default_shared_experts);
}

void complete(const spec::Source& source, json& model, std::vector<std::string>& assumed) {
  take_words(model);
  const Family* family = family_in(model);
  if (family == nullptr) return;
  take_sizes(*family, source, model);
  if (family->is_plain_gpt && has(model, "kv_lora_rank")) {
    if (const auto listed = listed_moe_layers(model, *family)) {
      write_moe_layers(*listed, *family, model);
    }
    family = with_latent_attention(*family, source, model);
  }
  if (const auto listed = listed_moe_layers(model, *family)) {
    write_moe_layers(*listed, *family, model);
  }
  take_first_dense(*family, model);
  take_shared_experts(*family, model);
  take_defaults(*family, model, assumed);
}

}  // namespace

json model_of_row(const json& stated, const spec::Source& source,
                  std::vector<std::string>& assumed) {
  json model = stated;
  const bool has_inner = has(model, "text_config") && model.at("text_config").is_object();
  complete(source, has_inner ? model["text_config"] : model, assumed);
  return model;
}

}  // namespace moetune::sweeps
