// Experts in a Hugging Face config.json: how many, how wide, in which layers, in each family's
// spelling.
#include <algorithm>

#include "engine/spec/hf_read.h"
#include "kernels/base/error.h"

namespace moetune::spec {

namespace {

constexpr auto kMostExperts = static_cast<int64_t>(detail::kMaxExperts);

/// The spelling that counts; the others must agree.
std::string_view count_key(const JsonReader& reader, const Family& family) {
  const bool is_routed =
      family.experts == ExpertKeys::deepseek || family.experts == ExpertKeys::pattern;
  if (is_routed && reader.has("n_routed_experts")) return "n_routed_experts";
  if (reader.has("num_local_experts")) return "num_local_experts";
  return is_routed && !reader.has("num_experts") ? "n_routed_experts" : "num_experts";
}

int64_t read_count(JsonReader& reader, const Family& family) {
  const std::string_view key = count_key(reader, family);
  const int64_t count =
      reader.integer(key, family.experts == ExpertKeys::mixtral ? 1 : 0, kMostExperts);
  if (reader.has("num_experts") && reader.integer(model_key("num_experts")) != count) {
    reader.fail("num_experts", fmt::format("the same as {} ({})", key, count));
  }
  return count;
}

/// Layer i has experts when it is not listed in mlp_only_layers and decoder_sparse_step divides
/// i + 1.
void place_by_step(JsonReader& reader, ModelSpec& model) {
  const int64_t step = reader.integer_or(
      model_key("decoder_sparse_step"), static_cast<int64_t>(model_default("decoder_sparse_step")));
  std::vector<int64_t> dense_layers;
  if (reader.has("mlp_only_layers")) {
    dense_layers = reader.integers(model_key("mlp_only_layers"), 0,
                                   static_cast<int64_t>(detail::kMaxPositions));
  }
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const bool is_listed =
        std::find(dense_layers.begin(), dense_layers.end(), layer) != dense_layers.end();
    model.is_moe_layer[static_cast<size_t>(layer)] = !is_listed && (layer + 1) % step == 0;
  }
}

/// The first layers have none, behind them every layer that moe_layer_freq divides has some.
void place_behind_dense(JsonReader& reader, ModelSpec& model) {
  const int64_t num_dense = reader.integer(model_key("first_k_dense_replace"));
  const int64_t step = reader.integer_or(model_key("moe_layer_freq"),
                                         static_cast<int64_t>(model_default("moe_layer_freq")));
  for (int64_t layer = num_dense; layer < model.num_layers; ++layer) {
    model.is_moe_layer[static_cast<size_t>(layer)] = layer % step == 0;
  }
}

int64_t read_width(JsonReader& reader, const Family& family) {
  if (family.experts == ExpertKeys::mixtral) return reader.integer(model_key("intermediate_size"));
  if (family.is_plain_gpt && !reader.has("moe_intermediate_size")) {
    return reader.integer(model_key("intermediate_size"));
  }
  return reader.integer(model_key("moe_intermediate_size"));
}

/// Shared experts are one that is as wide as all of them.
int64_t read_shared_width(JsonReader& reader, const Family& family, int64_t expert_width) {
  switch (family.experts) {
    case ExpertKeys::deepseek:
      if (reader.is_null("n_shared_experts")) return 0;
      return reader.integer(model_key("n_shared_experts")) * expert_width;
    case ExpertKeys::pattern:
      if (reader.integer_or(model_key("n_shared_experts"), 1) == 0) return 0;
      return reader.integer(model_key("moe_shared_expert_intermediate_size"));
    default:
      break;
  }
  if (family.has_shared_gate) return reader.integer(model_key("shared_expert_intermediate_size"));
  return reader.integer_or(model_key("shared_expert_intermediate_size"),
                           static_cast<int64_t>(model_default("shared_expert_intermediate_size")));
}

/// The bias by which routing is balanced without a loss (arXiv 2408.15664).
bool read_router_bias(JsonReader& reader, const Family& family) {
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
    if (family.experts == ExpertKeys::qwen) place_by_step(reader, model);
    if (family.experts == ExpertKeys::deepseek) place_behind_dense(reader, model);
    if (family.experts == ExpertKeys::mixtral) {
      std::fill(model.is_moe_layer.begin(), model.is_moe_layer.end(), true);
    }
  }
  if (!has_experts(model)) {
    model.num_experts = 0;
    return;
  }
  model.experts_per_token =
      reader.integer(at_most(model_key("num_experts_per_tok"), model.num_experts));
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
