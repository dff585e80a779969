// Hugging Face config.json to ModelSpec and back, for the families llama, mixtral and qwen3_moe.
// The meaning of each field, its default when absent, and which fields a family ignores follow the
// reference implementation (transformers 5).
#include <algorithm>
#include <array>
#include <utility>

#include "engine/spec/hf_keys.h"
#include "engine/spec/model_spec.h"
#include "kernels/base/error.h"

namespace moetune::spec {

using base::UsageError;
using nlohmann::json;

namespace {

constexpr double kMaxParameters = 1e15;

/// What differs between the families: defaults of absent fields, and which fields mean something.
struct Family {
  std::string_view name;
  bool has_experts;
  bool has_qk_norm;
  bool reads_attention_bias;
  bool reads_mlp_bias;
  double default_theta;
  double default_eps;
  int64_t default_max_positions;
  int64_t default_window;  ///< 0: none
};
constexpr std::array kFamilies = {
    Family{"llama", false, false, true, true, 1e4, 1e-6, 2048, 0},
    Family{"mixtral", true, false, false, false, 1e6, 1e-5, 131072, 0},
    Family{"qwen3_moe", true, true, true, false, 1e4, 1e-6, 32768, 4096},
};

/// The row with a lower bound from above, which another key sets.
FieldInfo at_most(FieldInfo row, int64_t max) {
  row.limits.max = static_cast<double>(max);
  return row;
}

struct Activation {
  std::string_view config_name;
  std::string_view name;
};
// The first row of each name is the one that to_json writes.
constexpr std::array kActivations = {
    Activation{"silu", "silu"},          Activation{"swish", "silu"},
    Activation{"gelu", "gelu"},          Activation{"gelu_pytorch_tanh", "gelu_tanh"},
    Activation{"gelu_new", "gelu_tanh"}, Activation{"relu", "relu"},
};

bool boolean_of(JsonReader& reader, const FieldInfo& key, double otherwise) {
  return reader.boolean_or(key, otherwise != 0);
}

const Family& family_of(JsonReader& reader) {
  const std::string name = reader.text(model_key("model_type"));
  std::vector<std::string_view> supported;
  for (const Family& family : kFamilies) {
    if (family.name == name) return family;
    supported.push_back(family.name);
  }
  reader.refuse("model_type", fmt::format("model family '{}' is not supported yet (supported: {})",
                                          name.substr(0, 60), fmt::join(supported, ", ")));
}

std::string read_activation(JsonReader& reader) {
  const std::string name =
      reader.text_or(model_key("hidden_act"), std::string(kActivations.front().config_name));
  std::vector<std::string_view> supported;
  for (const Activation& row : kActivations) {
    if (row.config_name == name) return std::string(row.name);
    supported.push_back(row.config_name);
  }
  reader.fail("hidden_act", fmt::format("one of {}", fmt::join(supported, ", ")));
}

/// Fields that would make the reference compute something else than this engine.
void refuse_what_is_not_computed(JsonReader& reader) {
  for (const std::string_view key : {"attention_dropout", "router_jitter_noise"}) {
    if (reader.number_or(key, 0.0, 0.0, 1.0) != 0.0) {
      reader.fail(key, "0 (not supported in training)");
    }
  }
  if (reader.has("quantization_config")) {
    reader.fail("quantization_config", "none: quantized weights are not supported");
  }
}

/// Reads the scaling parameters of `reader`: the object rope_parameters (newer spelling) or
/// rope_scaling (older).
void read_rope_fields(JsonReader reader, RopeSpec& rope, const ModelSpec& model) {
  const char* type_key = reader.has("rope_type") || !reader.has("type") ? "rope_type" : "type";
  if (reader.has(type_key)) {
    rope.type = reader.choice(type_key, {"default", "linear", "dynamic", "yarn", "llama3"});
  }
  rope.theta = reader.number_or(rope_key("rope_theta"), rope.theta);
  if (reader.number_or(rope_key("partial_rotary_factor"), rope_default("partial_rotary_factor")) !=
      1.0) {
    reader.fail("partial_rotary_factor", "1.0 (partial rotation is not supported)");
  }
  if (rope.type == "default") return;
  if (rope.type == "dynamic" && model.head_dim <= 2) {
    reader.fail(type_key, "another rope type: dynamic needs a head_dim above 2");
  }
  rope.original_max_position_embeddings = reader.integer_or(
      rope_key("original_max_position_embeddings"), rope.original_max_position_embeddings);
  if (rope.type == "yarn" && !reader.has("factor") && rope.original_max_position_embeddings > 0) {
    rope.factor = static_cast<double>(model.max_position_embeddings) /
                  static_cast<double>(rope.original_max_position_embeddings);
  } else {
    rope.factor = reader.number(rope_key("factor"));
  }
  if (rope.type == "llama3") {
    rope.low_freq_factor = reader.number(rope_key("low_freq_factor"));
    rope.high_freq_factor = reader.number(rope_key("high_freq_factor"));
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      reader.fail("high_freq_factor",
                  fmt::format("more than low_freq_factor ({:g})", rope.low_freq_factor));
    }
  }
  if (rope.type == "yarn") {
    // Zero means "not set" for all of these.
    const auto set_number = [&](const FieldInfo& key, double otherwise) {
      const double value = reader.number_or(key, 0.0);
      return value == 0.0 ? otherwise : value;
    };
    rope.beta_fast = set_number(rope_key("beta_fast"), rope_default("beta_fast"));
    rope.beta_slow = set_number(rope_key("beta_slow"), rope_default("beta_slow"));
    rope.attention_factor = reader.number_or(rope_key("attention_factor"), 0.0);
    rope.mscale = set_number(rope_key("mscale"), rope_default("mscale"));
    rope.mscale_all_dim = set_number(rope_key("mscale_all_dim"), rope_default("mscale_all_dim"));
    rope.truncate = boolean_of(reader, rope_key("truncate"), rope_default("truncate"));
  }
}

RopeSpec read_rope(JsonReader& reader, const Family& family, const ModelSpec& model) {
  RopeSpec rope;
  rope.theta = reader.number_or(model_key("rope_theta"), family.default_theta);
  if (reader.number_or(model_key("partial_rotary_factor"),
                       model_default("partial_rotary_factor")) != 1.0) {
    reader.fail("partial_rotary_factor", "1.0 (partial rotation is not supported)");
  }
  // Both spellings at once: the older one wins as a whole, as in the reference.
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    if (!reader.has(key) || reader.value(key).empty()) continue;
    read_rope_fields(reader.object(key), rope, model);
    break;
  }
  // A length outside of the rope object has priority over the one inside.
  if (rope.type == "llama3" || rope.type == "yarn") {
    rope.original_max_position_embeddings = reader.integer_or(
        model_key("original_max_position_embeddings"), rope.original_max_position_embeddings);
    if (rope.original_max_position_embeddings == 0) {
      rope.original_max_position_embeddings = model.max_position_embeddings;
    }
  } else {
    rope.original_max_position_embeddings = 0;
  }
  return rope;
}

void read_attention(JsonReader& reader, const Family& family, ModelSpec& model) {
  model.num_heads = reader.integer(model_key("num_attention_heads"));
  model.num_kv_heads = reader.integer_or(at_most(model_key("num_key_value_heads"), model.num_heads),
                                         model.num_heads);
  if (model.num_heads % model.num_kv_heads != 0) {
    reader.fail("num_key_value_heads",
                fmt::format("a divisor of num_attention_heads ({})", model.num_heads));
  }
  if (!reader.has("head_dim") && model.hidden_size % model.num_heads != 0) {
    reader.fail("num_attention_heads",
                fmt::format("a divisor of hidden_size ({}), or a head_dim", model.hidden_size));
  }
  model.head_dim = reader.integer_or(model_key("head_dim"), model.hidden_size / model.num_heads);
  // Also of a head_dim that was derived.
  constexpr auto kMost = static_cast<int64_t>(detail::kMaxHeadDim);
  if (model.head_dim % 2 != 0 || model.head_dim > kMost) {
    const std::string_view key = reader.has("head_dim") ? "head_dim" : "hidden_size";
    reader.fail(key, fmt::format("an even head_dim of at most {}, not {}", detail::kMaxHeadDim,
                                 model.head_dim));
  }
  model.has_qk_norm = family.has_qk_norm;
  model.has_attention_bias =
      family.reads_attention_bias &&
      boolean_of(reader, model_key("attention_bias"), model_default("attention_bias"));
  model.has_attention_output_bias = model.has_attention_bias;
}

/// Experts, and which layers have them: layer i is MoE when it is not listed in mlp_only_layers and
/// decoder_sparse_step divides i + 1.
void read_experts(JsonReader& reader, ModelSpec& model) {
  const std::string_view key =
      reader.has("num_local_experts") ? "num_local_experts" : "num_experts";
  const bool is_mixtral = model.family == "mixtral";
  model.num_experts =
      reader.integer(key, is_mixtral ? 1 : 0, static_cast<int64_t>(detail::kMaxExperts));
  if (reader.has("num_experts") && reader.integer(model_key("num_experts")) != model.num_experts) {
    reader.fail("num_experts",
                fmt::format("the same as num_local_experts ({})", model.num_experts));
  }
  if (model.num_experts > 0) {
    const int64_t step =
        is_mixtral ? 1
                   : reader.integer_or(model_key("decoder_sparse_step"),
                                       static_cast<int64_t>(model_default("decoder_sparse_step")));
    std::vector<int64_t> dense_layers;
    if (!is_mixtral && reader.has("mlp_only_layers")) {
      dense_layers = reader.integers(model_key("mlp_only_layers"), 0,
                                     static_cast<int64_t>(detail::kMaxPositions));
    }
    for (int64_t layer = 0; layer < model.num_layers; ++layer) {
      const bool is_listed =
          std::find(dense_layers.begin(), dense_layers.end(), layer) != dense_layers.end();
      model.is_moe_layer[static_cast<size_t>(layer)] = !is_listed && (layer + 1) % step == 0;
    }
  }
  if (model.num_moe_layers() == 0) {
    model.num_experts = 0;
    return;
  }
  model.experts_per_token =
      reader.integer(at_most(model_key("num_experts_per_tok"), model.num_experts));
  model.moe_ffn_size = reader.integer(is_mixtral ? model_key("intermediate_size")
                                                 : model_key("moe_intermediate_size"));
  model.shared_ffn_size =
      reader.integer_or(model_key("shared_expert_intermediate_size"),
                        static_cast<int64_t>(model_default("shared_expert_intermediate_size")));
  model.normalizes_topk = is_mixtral || boolean_of(reader, model_key("norm_topk_prob"),
                                                   model_default("norm_topk_prob"));
}

/// Sliding windows. mixtral: sliding_window, when set, on all layers; qwen3_moe: only with
/// use_sliding_window, also on all layers (max_window_layers has no effect in the reference since
/// version 5); llama: none. An explicit layer_types decides per layer.
void read_windows(JsonReader& reader, const Family& family, ModelSpec& model) {
  model.attention_window.assign(static_cast<size_t>(model.num_layers), 0);
  if (model.family == "llama") return;
  const bool is_qwen = model.family == "qwen3_moe";
  if (is_qwen &&
      !boolean_of(reader, model_key("use_sliding_window"), model_default("use_sliding_window"))) {
    return;
  }
  // Absent and null differ here: an absent window may have a default.
  int64_t window = 0;
  if (reader.has("sliding_window")) {
    window = reader.integer(model_key("sliding_window"));
  } else if (!reader.is_null("sliding_window")) {
    window = family.default_window;
  }
  std::fill(model.attention_window.begin(), model.attention_window.end(), window);
  if (!reader.has("layer_types")) return;
  const json& types = reader.array(model_key("layer_types"));
  if (types.size() != model.attention_window.size()) {
    reader.fail("layer_types", fmt::format("{} entries, one per layer", model.num_layers));
  }
  for (size_t layer = 0; layer < types.size(); ++layer) {
    if (types[layer] == "full_attention") {
      model.attention_window[layer] = 0;
    } else if (types[layer] != "sliding_attention") {
      reader.refuse(fmt::format("layer_types[{}]", layer),
                    fmt::format("is {}, expected \"full_attention\" or \"sliding_attention\"",
                                describe(types[layer])));
    } else if (window == 0) {
      reader.fail("sliding_window", "a window, because layer_types has sliding_attention layers");
    }
  }
}

void read_details(JsonReader& reader, const Family& family, ModelSpec& model) {
  model.rms_norm_eps = reader.number_or(model_key("rms_norm_eps"), family.default_eps);
  model.initializer_range =
      reader.number_or(model_key("initializer_range"), model_default("initializer_range"));
  model.hidden_act = read_activation(reader);
  model.has_mlp_bias =
      family.reads_mlp_bias && boolean_of(reader, model_key("mlp_bias"), model_default("mlp_bias"));
  model.ties_embeddings =
      boolean_of(reader, model_key("tie_word_embeddings"), model_default("tie_word_embeddings"));
}

/// In double, because the product of hostile sizes does not fit into 64 bits.
void check_total_size(const JsonReader& reader, const ModelSpec& model) {
  const auto h = static_cast<double>(model.hidden_size);
  const auto layers = static_cast<double>(model.num_layers);
  const double per_layer =
      2 * h * static_cast<double>(model.q_size() + model.kv_size()) +
      3 * h * static_cast<double>(model.ffn_size + model.shared_ffn_size) +
      3 * h * static_cast<double>(model.num_experts) * static_cast<double>(model.moe_ffn_size);
  if (layers * per_layer > kMaxParameters) {
    throw UsageError(
        fmt::format("{}: the sizes make a model of about {:.1e} parameters, expected "
                    "at most {:.0e}",
                    reader.source(), layers * per_layer, kMaxParameters));
  }
}

}  // namespace

ModelSpec model_from_json(const json& document, const Source& source) {
  JsonReader reader(document, source, "", NullIs::absent);
  const Family& family = family_of(reader);
  ModelSpec model;
  model.family = family.name;
  Problems problems;
  problems.attempt([&] { refuse_what_is_not_computed(reader); });
  problems.attempt([&] { model.vocab_size = reader.integer(model_key("vocab_size")); });
  problems.attempt([&] { model.hidden_size = reader.integer(model_key("hidden_size")); });
  problems.attempt([&] { model.num_layers = reader.integer(model_key("num_hidden_layers")); });
  // What follows is judged by these.
  problems.throw_if_any();
  problems.attempt([&] {
    model.max_position_embeddings =
        reader.integer_or(model_key("max_position_embeddings"), family.default_max_positions);
  });
  problems.attempt([&] { read_attention(reader, family, model); });
  model.is_moe_layer.assign(static_cast<size_t>(model.num_layers), false);
  problems.attempt([&] {
    if (family.has_experts) read_experts(reader, model);
  });
  problems.attempt([&] {
    if (model.num_moe_layers() == model.num_layers) return;
    model.ffn_size = reader.integer(model_key("intermediate_size"));
  });
  problems.attempt([&] { read_windows(reader, family, model); });
  problems.attempt([&] { read_details(reader, family, model); });
  problems.throw_if_any();
  // The rotary tables need the heads.
  model.rope = read_rope(reader, family, model);
  check_total_size(reader, model);
  return model;
}

namespace {

json default_of(const ModelKey& row) {
  if (row.info.key == "hidden_act") return kActivations.front().config_name;
  if (!row.fallback) return {};
  if (row.kind == FieldKind::boolean) return *row.fallback != 0;
  if (row.kind == FieldKind::integer) return static_cast<int64_t>(*row.fallback);
  return *row.fallback;
}

/// Of a key whose default is the family's: "llama 2048, mixtral 131072, qwen3_moe 32768"; a family
/// without one has "none".
template <typename Value>
std::string by_family(Value Family::*member) {
  std::vector<std::string> parts;
  for (const Family& family : kFamilies) {
    const Value value = family.*member;
    parts.push_back(value == Value{} ? fmt::format("{} none", family.name)
                                     : fmt::format("{} {}", family.name, value));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::vector<FieldPage> pages_of_keys(std::span<const ModelKey> rows) {
  std::vector<FieldPage> pages;
  for (const ModelKey& row : rows) {
    pages.push_back({row.info, row.kind, default_of(row), {}, {}, {}});
  }
  return pages;
}

}  // namespace

std::vector<FieldPage> model_pages() {
  std::vector<FieldPage> model = pages_of_keys(kModelKeys);
  for (FieldPage& page : model) {
    if (page.info.key == "rope_parameters") page.children = pages_of_keys(kRopeKeys);
    if (page.info.key == "rms_norm_eps") page.default_text = by_family(&Family::default_eps);
    if (page.info.key == "rope_theta") page.default_text = by_family(&Family::default_theta);
    if (page.info.key == "max_position_embeddings") {
      page.default_text = by_family(&Family::default_max_positions);
    }
    if (page.info.key == "sliding_window") page.default_text = by_family(&Family::default_window);
  }
  return model;
}

namespace {

json rope_json(const RopeSpec& rope) {
  json document = {{"rope_type", rope.type}, {"rope_theta", rope.theta}};
  if (rope.type == "default") return document;
  document["factor"] = rope.factor;
  if (rope.type == "llama3" || rope.type == "yarn") {
    document["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  }
  if (rope.type == "llama3") {
    document["low_freq_factor"] = rope.low_freq_factor;
    document["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.type == "yarn") {
    document["beta_fast"] = rope.beta_fast;
    document["beta_slow"] = rope.beta_slow;
    document["truncate"] = rope.truncate;
    if (rope.attention_factor > 0) document["attention_factor"] = rope.attention_factor;
    document["mscale"] = rope.mscale;
    document["mscale_all_dim"] = rope.mscale_all_dim;
  }
  return document;
}

void write_windows(const ModelSpec& model, json& document) {
  const auto& windows = model.attention_window;
  const auto widest = std::max_element(windows.begin(), windows.end());
  const int64_t window = widest == windows.end() ? 0 : *widest;
  if (window == 0) return;
  document["sliding_window"] = window;
  if (model.family == "qwen3_moe") document["use_sliding_window"] = true;
  json types = json::array();
  for (const int64_t w : windows) {
    MOETUNE_CHECK(w == 0 || w == window, "windows of {} and {} tokens in one model", w, window);
    types.push_back(w == 0 ? "full_attention" : "sliding_attention");
  }
  document["layer_types"] = std::move(types);
}

}  // namespace

json to_json(const ModelSpec& model) {
  json document = {{"model_type", model.family},
                   {"vocab_size", model.vocab_size},
                   {"hidden_size", model.hidden_size},
                   {"num_hidden_layers", model.num_layers},
                   {"num_attention_heads", model.num_heads},
                   {"num_key_value_heads", model.num_kv_heads},
                   {"head_dim", model.head_dim},
                   {"max_position_embeddings", model.max_position_embeddings},
                   {"rms_norm_eps", model.rms_norm_eps},
                   {"initializer_range", model.initializer_range},
                   {"attention_bias", model.has_attention_bias},
                   {"mlp_bias", model.has_mlp_bias},
                   {"tie_word_embeddings", model.ties_embeddings},
                   {"rope_parameters", rope_json(model.rope)}};
  for (const Activation& row : kActivations) {
    if (row.name != model.hidden_act) continue;
    document["hidden_act"] = row.config_name;
    break;
  }
  if (model.ffn_size > 0) document["intermediate_size"] = model.ffn_size;
  if (model.family != "llama") {
    const bool is_mixtral = model.family == "mixtral";
    document["num_experts"] = model.num_experts;
    if (model.num_experts > 0) {
      document["num_experts_per_tok"] = model.experts_per_token;
      document[is_mixtral ? "intermediate_size" : "moe_intermediate_size"] = model.moe_ffn_size;
      document["shared_expert_intermediate_size"] = model.shared_ffn_size;
      document["norm_topk_prob"] = model.normalizes_topk;
      json dense_layers = json::array();
      for (size_t layer = 0; layer < model.is_moe_layer.size(); ++layer) {
        if (!model.is_moe_layer[layer]) dense_layers.push_back(layer);
      }
      document["mlp_only_layers"] = std::move(dense_layers);
    }
  }
  write_windows(model, document);
  return document;
}

}  // namespace moetune::spec
