// Experts in a Hugging Face config.json: how many, how wide, in which layers, in each family's
// spelling.
#include <algorithm>
#include <optional>

#include "engine/spec/hf_read.h"
#include "kernels/base/error.h"

namespace moetune::spec {

namespace {

/// The spelling that counts; the others must agree.
std::string_view count_key(const JsonReader& reader, const Family& family) {
  const FieldInfo& own = key_of(family, reader, model_key("num_experts"));
  if (own.key != model_key("num_experts").key && reader.has(own)) return own;
  const bool is_routed =
      family.experts == ExpertKeys::deepseek || family.experts == ExpertKeys::pattern;
  if (is_routed && reader.has("n_routed_experts")) return "n_routed_experts";
  if (reader.has("num_local_experts")) return "num_local_experts";
  return is_routed && !reader.has("num_experts") ? "n_routed_experts" : own.key;
}

/// Some families have a number for each layer: all must be the same.
int64_t read_of_all_layers(JsonReader& reader, const Family& family, const FieldInfo& key) {
  const bool is_list = reader.has(key) && reader.value(key).is_array();
  if (family.runs_in_engine || !is_list) return reader.integer(key);
  const std::vector<int64_t> layers = reader.integers(key, static_cast<int64_t>(key.limits.min),
                                                      static_cast<int64_t>(key.limits.max));
  if (layers.empty() || std::ranges::count(layers, layers.front()) != std::ssize(layers)) {
    reader.refuse(key, "has a number for each layer, expected the same for all");
  }
  return layers.front();
}

int64_t read_count(JsonReader& reader, const Family& family) {
  FieldInfo key = model_key("num_experts");
  key.key = count_key(reader, family);
  key.limits.min = family.experts == ExpertKeys::mixtral ? 1 : 0;
  const int64_t count = read_of_all_layers(reader, family, key);
  if (reader.has("num_experts") &&
      read_of_all_layers(reader, family, model_key("num_experts")) != count) {
    reader.fail("num_experts", fmt::format("the same as {} ({})", key.key, count));
  }
  return count;
}

/// Whether a list of layers names each of the model's; none where there is no list.
std::optional<std::vector<bool>> read_listed(JsonReader& reader, const FieldInfo& key,
                                             const ModelSpec& model) {
  if (!reader.has(key)) return std::nullopt;
  std::vector<bool> is_listed(static_cast<size_t>(model.num_layers), false);
  for (const int64_t layer : reader.integers(key, 0, static_cast<int64_t>(detail::kMaxPositions))) {
    if (layer < model.num_layers) is_listed[static_cast<size_t>(layer)] = true;
  }
  return is_listed;
}

/// Layers that may have experts.
struct LayerRange {
  int64_t first = 0;
  int64_t last = 0;
};
LayerRange read_range(JsonReader& reader, const Family& family, const ModelSpec& model) {
  LayerRange range = {0, model.num_layers - 1};
  if (family.experts != ExpertKeys::ranged) return range;
  range.first = reader.integer_or(model_key("moe_layer_start_index"),
                                  static_cast<int64_t>(model_default("moe_layer_start_index")));
  const int64_t last = reader.integer_or(
      model_key("moe_layer_end_index"), static_cast<int64_t>(model_default("moe_layer_end_index")));
  if (last >= 0) range.last = last;
  return range;
}

/// Layer i has experts when it is not listed in mlp_only_layers and decoder_sparse_step divides
/// i + 1.
void place_by_step(JsonReader& reader, const Family& family, ModelSpec& model) {
  const int64_t step =
      reader.integer_or(key_of(family, reader, model_key("decoder_sparse_step")),
                        static_cast<int64_t>(model_default("decoder_sparse_step")));
  const auto dense_layers = read_listed(reader, model_key("mlp_only_layers"), model);
  const LayerRange range = read_range(reader, family, model);
  std::optional<std::vector<bool>> moe_layers;
  if (family.experts == ExpertKeys::listed) {
    moe_layers = read_listed(reader, model_key("moe_layers"), model);
  }
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const auto i = static_cast<size_t>(layer);
    const bool is_dense = dense_layers && (*dense_layers)[i];
    const bool is_placed = moe_layers ? (*moe_layers)[i] : (layer + 1) % step == 0;
    const bool is_within = layer >= range.first && layer <= range.last;
    model.is_moe_layer[i] = !is_dense && is_placed && is_within;
  }
}

/// dense or sparse for each layer.
void place_by_types(JsonReader& reader, ModelSpec& model) {
  const FieldInfo& key = model_key("mlp_layer_types");
  const nlohmann::json& types = reader.array(key);
  if (types.size() != model.is_moe_layer.size()) {
    reader.fail(key, fmt::format("{} entries, one per layer", model.num_layers));
  }
  for (size_t layer = 0; layer < types.size(); ++layer) {
    if (types[layer] != "dense" && types[layer] != "sparse") {
      reader.refuse(fmt::format("{}[{}]", key.key, layer),
                    fmt::format("is {}, expected \"dense\" or \"sparse\"", describe(types[layer])));
    }
    model.is_moe_layer[layer] = types[layer] == "sparse";
  }
}

/// The first layers have none, behind them every layer that moe_layer_freq divides has some.
void place_behind_dense(JsonReader& reader, ModelSpec& model) {
  if (reader.has(model_key("mlp_layer_types"))) {
    place_by_types(reader, model);
    return;
  }
  const int64_t num_dense = reader.integer(model_key("first_k_dense_replace"));
  const int64_t step = reader.integer_or(model_key("moe_layer_freq"),
                                         static_cast<int64_t>(model_default("moe_layer_freq")));
  for (int64_t layer = num_dense; layer < model.num_layers; ++layer) {
    model.is_moe_layer[static_cast<size_t>(layer)] = layer % step == 0;
  }
}

int64_t read_width(JsonReader& reader, const Family& family) {
  const bool may_be_plain = family.is_plain_gpt || family.has_plain_expert_width;
  if (may_be_plain && !reader.has("moe_intermediate_size")) {
    return reader.integer(model_key("intermediate_size"));
  }
  return read_of_all_layers(reader, family,
                            family.experts == ExpertKeys::mixtral
                                ? key_of(family, reader, model_key("intermediate_size"))
                                : model_key("moe_intermediate_size"));
}

/// Shared experts are one that is as wide as all of them.
int64_t read_shared_width(JsonReader& reader, const Family& family, int64_t expert_width) {
  const FieldInfo& count = key_of(family, reader, model_key("n_shared_experts"));
  switch (family.shared) {
    case SharedKeys::counted:
      if (is_null(family, reader, model_key("n_shared_experts")) && !reader.has(count)) return 0;
      return read_of_all_layers(reader, family, count) * expert_width;
    case SharedKeys::one:
      return reader.integer_or(count, 1) * expert_width;
    case SharedKeys::pattern:
      if (reader.integer_or(model_key("n_shared_experts"), 1) == 0) return 0;
      return reader.integer(model_key("moe_shared_expert_intermediate_size"));
    case SharedKeys::width:
      break;
  }
  const FieldInfo& width = key_of(family, reader, model_key("shared_expert_intermediate_size"));
  if (family.has_shared_gate) return reader.integer(width);
  return reader.integer_or(width,
                           static_cast<int64_t>(model_default("shared_expert_intermediate_size")));
}

/// The bias by which routing is balanced without a loss (arXiv 2408.15664).
bool read_router_bias(JsonReader& reader, const Family& family) {
  const FieldInfo& key = key_of(family, reader, model_key("use_routing_bias"));
  if (!family.runs_in_engine && reader.has(key)) return reader.boolean(key);
  const std::string method = reader.text_or(model_key("topk_method"), "");
  return method.empty() ? family.has_router_bias : method == "noaux_tc";
}

/// Experts of the layers, or of multi-token prediction alone.
bool has_experts(const ModelSpec& model) {
  const auto is_moe = [](const LayerKind& kind) { return kind.feed_forward == FeedForward::moe; };
  return model.num_moe_layers() > 0 || std::ranges::any_of(model.mtp.layers, is_moe);
}

}  // namespace

void read_experts(JsonReader& reader, const Family& family, ModelSpec& model) {
  if (family.experts == ExpertKeys::none) return;
  if (family.experts == ExpertKeys::pattern && !has_experts(model)) return;
  model.num_experts = read_count(reader, family);
  if (family.experts == ExpertKeys::pattern) {
    if (model.num_experts == 0)
      reader.fail("n_routed_experts", "at least 1 with an E in a pattern");
  } else if (model.num_experts > 0) {
    if (family.experts == ExpertKeys::qwen || family.experts == ExpertKeys::ranged ||
        family.experts == ExpertKeys::listed) {
      place_by_step(reader, family, model);
    }
    if (family.experts == ExpertKeys::deepseek) place_behind_dense(reader, model);
    if (family.experts == ExpertKeys::mixtral) {
      std::fill(model.is_moe_layer.begin(), model.is_moe_layer.end(), true);
    }
  }
  if (!has_experts(model)) {
    model.num_experts = 0;
    return;
  }
  const FieldInfo& topk = key_of(family, reader, model_key("num_experts_per_tok"));
  model.experts_per_token = read_of_all_layers(reader, family, at_most(topk, model.num_experts));
  model.moe_ffn_size = read_width(reader, family);
  model.shared_ffn_size = read_shared_width(reader, family, model.moe_ffn_size);
  model.normalizes_topk = family.reads_norm_topk ? reader.boolean_or(model_key("norm_topk_prob"),
                                                                     family.normalizes_topk)
                                                 : family.normalizes_topk;
  model.moe_latent_size = reader.integer_or(model_key("moe_latent_size"), 0);
  model.has_shared_gate =
      reader.boolean_or(model_key("shared_expert_gate"), family.has_shared_gate) &&
      model.shared_ffn_size > 0;
  model.has_router_bias = read_router_bias(reader, family);
  if (family.has_expert_bias)
    model.has_expert_bias = reader.boolean_or(model_key("mlp_bias"), true);
}

}  // namespace moetune::spec
