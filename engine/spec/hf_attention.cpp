// Attention in a Hugging Face config.json: heads of each kind of mixer, biases, sliding windows.
#include <algorithm>

#include "engine/spec/hf_read.h"
#include "kernels/base/error.h"

namespace moetune::spec {

using nlohmann::json;

namespace {

void read_gqa_heads(JsonReader& reader, const Family& family, ModelSpec& model) {
  const FieldInfo& kv_heads = key_of(family, reader, model_key("num_key_value_heads"));
  model.num_kv_heads = reader.integer_or(at_most(kv_heads, model.num_heads), model.num_heads);
  if (model.num_heads % model.num_kv_heads != 0) {
    reader.fail(kv_heads, fmt::format("a divisor of num_attention_heads ({})", model.num_heads));
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
}

/// Layers that take over the keys that another one has chosen are not known.
void check_indexed_layers(JsonReader& reader) {
  const FieldInfo& interval = model_key("index_topk_freq");
  if (reader.integer_or(interval, static_cast<int64_t>(model_default("index_topk_freq"))) != 1) {
    reader.fail(interval, "1: every layer chooses keys");
  }
  const FieldInfo& types = model_key("indexer_types");
  if (!reader.has(types)) return;
  for (const json& type : reader.array(types)) {
    if (type != "full") {
      reader.refuse(types, fmt::format("has {}, expected \"full\" of every layer", describe(type)));
    }
  }
}

void read_indexer(JsonReader& reader, ModelSpec& model) {
  check_indexed_layers(reader);
  model.mla.index_heads = reader.integer(model_key("index_n_heads"));
  model.mla.index_head_dim = reader.integer(model_key("index_head_dim"));
}

/// Every query head has keys and values of its own.
void read_mla(JsonReader& reader, ModelSpec& model) {
  MlaSpec& mla = model.mla;
  mla.q_lora_rank = reader.integer_or(model_key("q_lora_rank"), 0);
  mla.kv_lora_rank = reader.integer(model_key("kv_lora_rank"));
  mla.qk_nope_head_dim = reader.integer(model_key("qk_nope_head_dim"));
  mla.qk_rope_head_dim = reader.integer(model_key("qk_rope_head_dim"));
  mla.v_head_dim = reader.integer(model_key("v_head_dim"));
  if (mla.qk_rope_head_dim % 2 != 0) {
    reader.fail("qk_rope_head_dim", "an even number: positions turn pairs of elements");
  }
  model.num_kv_heads = model.num_heads;
  model.head_dim = mla.qk_head_dim();
}

void read_gdn(JsonReader& reader, ModelSpec& model) {
  GdnSpec& gdn = model.gdn;
  gdn.conv_kernel = reader.integer(model_key("linear_conv_kernel_dim"));
  gdn.num_key_heads = reader.integer(model_key("linear_num_key_heads"));
  gdn.num_value_heads = reader.integer(model_key("linear_num_value_heads"));
  gdn.key_head_dim = reader.integer(model_key("linear_key_head_dim"));
  gdn.value_head_dim = reader.integer(model_key("linear_value_head_dim"));
  if (gdn.num_value_heads % gdn.num_key_heads != 0) {
    reader.fail("linear_num_value_heads",
                fmt::format("a multiple of linear_num_key_heads ({})", gdn.num_key_heads));
  }
}

void read_attention_biases(JsonReader& reader, const Family& family, ModelSpec& model) {
  const auto by_key = [&](const FieldInfo& key) {
    return reader.boolean_or(key, family.attention_bias);
  };
  switch (family.biases) {
    case BiasRule::none:
      break;
    case BiasRule::refused:
      if (by_key(model_key("attention_bias"))) {
        reader.fail("attention_bias", fmt::format("false: no {} has them", family.name));
      }
      break;
    case BiasRule::attention_key:
      model.has_attention_bias = by_key(model_key("attention_bias"));
      model.has_attention_output_bias = model.has_attention_bias;
      break;
    case BiasRule::qkv:
      model.has_attention_bias = by_key(key_of(family, reader, model_key("attention_bias")));
      break;
    case BiasRule::use_bias:
      model.has_attention_bias = by_key(model_key("use_bias"));
      model.has_attention_output_bias = model.has_attention_bias;
      model.has_mlp_bias = model.has_attention_bias;
      break;
  }
  const bool takes_use_bias =
      family.biases == BiasRule::use_bias && family.experts == ExpertKeys::none;
  if (!takes_use_bias && reader.boolean_or(model_key("use_bias"), false)) {
    reader.fail("use_bias",
                fmt::format("false: biases everywhere are not known of {}", family.name));
  }
}

/// Whether the family's windows depend on use_sliding_window.
bool is_optional(WindowRule rule) {
  return rule == WindowRule::all_if_used || rule == WindowRule::late_if_used ||
         rule == WindowRule::even_if_used;
}

/// Whether a layer has the window where no layer_types says it. The rules of transformers 5.
bool has_window(WindowRule rule, int64_t layer, int64_t max_window_layers, int64_t interval) {
  switch (rule) {
    case WindowRule::none:
      return false;
    case WindowRule::all:
    case WindowRule::all_if_used:
      return true;
    case WindowRule::late_if_used:
      return layer >= max_window_layers;
    case WindowRule::even_if_used:
      return layer % 2 == 0 && layer < max_window_layers;
    case WindowRule::every_other_one:
      return layer % 2 == 0;
    case WindowRule::all_but_each_nth:
      return (layer + 1) % interval != 0;
  }
  return false;
}

/// 0 for a layer without a window and 1 for one with; an empty list is none.
bool read_window_list(JsonReader& reader, int64_t window, ModelSpec& model) {
  const FieldInfo& key = model_key("no_rope_layers");
  if (!reader.has(key)) return false;
  const std::vector<int64_t> layers = reader.integers(key, 0, 1);
  if (layers.empty()) return false;
  if (layers.size() != model.attention_window.size()) {
    reader.fail(key, fmt::format("{} entries, one per layer", model.num_layers));
  }
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    model.attention_window[layer] = layers[layer] * window;
  }
  return true;
}

/// As layer_types says.
void read_window_types(JsonReader& reader, const Family& family, int64_t window, ModelSpec& model) {
  const json& types = reader.array(model_key("layer_types"));
  if (types.size() != model.attention_window.size()) {
    reader.fail("layer_types", fmt::format("{} entries, one per layer", model.num_layers));
  }
  for (size_t layer = 0; layer < types.size(); ++layer) {
    const bool is_chunked = family.has_chunked_windows && types[layer] == "chunked_attention";
    if (types[layer] == "sliding_attention" || is_chunked) {
      if (window == 0) {
        reader.fail(own_name(family, model_key("sliding_window")),
                    fmt::format("a window, because layer_types has {} layers",
                                types[layer].get<std::string>()));
      }
      model.attention_window[layer] = window;
    } else if (types[layer] != "full_attention") {
      reader.refuse(fmt::format("layer_types[{}]", layer),
                    fmt::format("is {}, expected \"full_attention\" or \"sliding_attention\"",
                                describe(types[layer])));
    }
  }
}

/// Absent and null differ: an absent window may have a default.
int64_t read_window(JsonReader& reader, const Family& family) {
  const FieldInfo& key = key_of(family, reader, model_key("sliding_window"));
  if (reader.has(key)) return reader.integer(key);
  return is_null(family, reader, model_key("sliding_window")) ? 0 : family.window;
}

}  // namespace

void read_attention(JsonReader& reader, const Family& family, ModelSpec& model) {
  model.num_heads = reader.integer(key_of(family, reader, model_key("num_attention_heads")));
  if (family.mixer == MixerKeys::mla) {
    read_mla(reader, model);
  } else {
    read_gqa_heads(reader, family, model);
  }
  if (family.has_indexer) read_indexer(reader, model);
  for (const Unknown& row : family.unknown) {
    if (reader.boolean_or(row.key, false)) {
      reader.fail(row.key, fmt::format("false: {} are not modelled", row.what));
    }
  }
  if (family.mixer == MixerKeys::gdn) read_gdn(reader, model);
  model.has_qk_norm = reader.boolean_or(model_key("use_qk_norm"), family.has_qk_norm);
  model.has_attention_gate =
      reader.boolean_or(model_key("attn_output_gate"), family.has_attention_gate);
  model.has_attention_sinks =
      reader.boolean_or(model_key("attention_sinks"), family.has_attention_sinks);
  read_attention_biases(reader, family, model);
}

/// Sliding windows. mixtral: sliding_window, when set, on all layers; qwen3_moe: only with
/// use_sliding_window, also on all layers (max_window_layers has no effect in the reference since
/// version 5); llama: none. An explicit layer_types decides per layer.
void read_windows(JsonReader& reader, const Family& family, ModelSpec& model) {
  model.attention_window.assign(static_cast<size_t>(model.num_layers), 0);
  const WindowRule rule = family.windows;
  if (rule == WindowRule::none) return;
  if (is_optional(rule) &&
      !boolean_of(reader, model_key("use_sliding_window"), model_default("use_sliding_window"))) {
    return;
  }
  const int64_t window = read_window(reader, family);
  if (reader.has("layer_types")) {
    read_window_types(reader, family, window, model);
  } else if (rule != WindowRule::all_but_each_nth || !read_window_list(reader, window, model)) {
    int64_t max_window_layers = 0;
    if (rule == WindowRule::late_if_used || rule == WindowRule::even_if_used) {
      max_window_layers = reader.integer_or(
          model_key("max_window_layers"), static_cast<int64_t>(model_default("max_window_layers")));
    }
    int64_t interval = 1;
    if (rule == WindowRule::all_but_each_nth) {
      interval = reader.integer_or(key_of(family, reader, model_key("full_attention_interval")),
                                   static_cast<int64_t>(model_default("full_attention_interval")));
    }
    for (int64_t layer = 0; layer < model.num_layers; ++layer) {
      if (has_window(rule, layer, max_window_layers, interval)) {
        model.attention_window[static_cast<size_t>(layer)] = window;
      }
    }
  }
  model.has_chunked_windows =
      family.has_chunked_windows &&
      std::ranges::any_of(model.attention_window, [](int64_t keys) { return keys > 0; });
}

}  // namespace moetune::spec
