// ModelSpec to the keys of a Hugging Face config.json, such that reading them again gives the same.
#include <algorithm>

#include "engine/spec/hf_read.h"
#include "kernels/base/error.h"

namespace moetune::spec {

using nlohmann::json;

namespace {

/// Adds what the family would not have by itself, so that a family's own files stay short.
class Difference {
 public:
  Difference(json& document) : document_(&document) {}  // NOLINT(google-explicit-constructor)
  template <class Value>
  void operator()(std::string_view key, const Value& value, const Value& otherwise) const {
    if (value != otherwise) (*document_)[std::string(key)] = value;
  }

 private:
  json* document_;
};

void write_windows(const ModelSpec& model, const Family& family, json& document) {
  const auto& windows = model.attention_window;
  const auto widest = std::max_element(windows.begin(), windows.end());
  const int64_t window = widest == windows.end() ? 0 : *widest;
  const bool is_optional = family.windows == WindowRule::all_if_used ||
                           family.windows == WindowRule::late_if_used ||
                           family.windows == WindowRule::even_if_used;
  // Families with a window by default are told where there is none.
  if (window == 0 && family.window > 0 && !is_optional) document["sliding_window"] = nullptr;
  if (window == 0) return;
  document["sliding_window"] = window;
  if (is_optional) document["use_sliding_window"] = true;
  json types = json::array();
  for (const int64_t w : windows) {
    MOETUNE_CHECK(w == 0 || w == window, "windows of {} and {} tokens in one model", w, window);
    types.push_back(w == 0 ? "full_attention" : "sliding_attention");
  }
  document["layer_types"] = std::move(types);
}

void write_mixers(const ModelSpec& model, const Family& family, json& document) {
  switch (family.mixer) {
    case MixerKeys::gqa:
      break;
    case MixerKeys::mla: {
      document.erase("head_dim");
      document.erase("num_key_value_heads");
      const MlaSpec& mla = model.mla;
      document.update({{"q_lora_rank", mla.q_lora_rank},
                       {"kv_lora_rank", mla.kv_lora_rank},
                       {"qk_nope_head_dim", mla.qk_nope_head_dim},
                       {"qk_rope_head_dim", mla.qk_rope_head_dim},
                       {"v_head_dim", mla.v_head_dim}});
      if (family.has_indexer) {
        document["index_n_heads"] = mla.index_heads;
        document["index_head_dim"] = mla.index_head_dim;
      }
      break;
    }
    case MixerKeys::gdn: {
      const GdnSpec& gdn = model.gdn;
      document.update({{"linear_conv_kernel_dim", gdn.conv_kernel},
                       {"linear_num_key_heads", gdn.num_key_heads},
                       {"linear_num_value_heads", gdn.num_value_heads},
                       {"linear_key_head_dim", gdn.key_head_dim},
                       {"linear_value_head_dim", gdn.value_head_dim}});
      json types = json::array();
      for (const LayerKind& kind : model.layer_kinds) {
        types.push_back(kind.mixer == Mixer::gqa ? "full_attention" : "linear_attention");
      }
      document["layer_types"] = std::move(types);
      break;
    }
    case MixerKeys::pattern:
      document["hybrid_override_pattern"] = letters_of(model.layer_kinds);
      if (model.mamba.num_heads > 0) {
        const MambaSpec& mamba = model.mamba;
        document.update({{"mamba_num_heads", mamba.num_heads},
                         {"mamba_head_dim", mamba.head_dim},
                         {"ssm_state_size", mamba.state_size},
                         {"n_groups", mamba.num_groups},
                         {"conv_kernel", mamba.conv_kernel}});
      }
      break;
  }
}

void write_mtp(const ModelSpec& model, const Family& family, json& document) {
  if (model.mtp.depth == 0) return;
  document["num_nextn_predict_layers"] = model.mtp.depth;
  if (model.mtp.repeats_layer) document["mtp_use_repeated_layer"] = true;
  if (family.mixer == MixerKeys::pattern) {
    document["mtp_hybrid_override_pattern"] = letters_of(model.mtp.layers);
  }
}

/// The step that makes these layers from the first with experts on: the inverse of reading
/// moe_layer_freq. 0: none does.
int64_t layer_step(const std::vector<bool>& is_moe_layer, size_t first) {
  for (size_t step = 1; step <= is_moe_layer.size(); ++step) {
    bool fits = true;
    for (size_t layer = first; layer < is_moe_layer.size(); ++layer) {
      fits &= is_moe_layer[layer] == (layer % step == 0);
    }
    if (fits) return static_cast<int64_t>(step);
  }
  return 0;
}

void write_placement(const ModelSpec& model, const Family& family, json& document) {
  const std::vector<bool>& is_moe = model.is_moe_layer;
  if (family.experts == ExpertKeys::deepseek) {
    const auto first = static_cast<size_t>(std::ranges::find(is_moe, true) - is_moe.begin());
    document["first_k_dense_replace"] = first;
    const int64_t step = layer_step(is_moe, first);
    if (step > 0) {
      document["moe_layer_freq"] = step;
      return;
    }
    json types = json::array();
    for (const bool has_experts : is_moe) types.push_back(has_experts ? "sparse" : "dense");
    document["mlp_layer_types"] = std::move(types);
    return;
  }
  if (family.experts == ExpertKeys::pattern) return;
  json dense_layers = json::array();
  for (size_t layer = 0; layer < is_moe.size(); ++layer) {
    if (!is_moe[layer]) dense_layers.push_back(layer);
  }
  document["mlp_only_layers"] = std::move(dense_layers);
}

void write_shared(const ModelSpec& model, const Family& family, json& document) {
  switch (family.shared) {
    case SharedKeys::counted:
    case SharedKeys::one:
      document["n_shared_experts"] = model.shared_ffn_size / model.moe_ffn_size;
      break;
    case SharedKeys::pattern:
      document["n_shared_experts"] = model.shared_ffn_size > 0 ? 1 : 0;
      document["moe_shared_expert_intermediate_size"] = model.shared_ffn_size;
      break;
    case SharedKeys::width:
      document["shared_expert_intermediate_size"] = model.shared_ffn_size;
      break;
  }
}

void write_experts(const ModelSpec& model, const Family& family, json& document) {
  if (family.experts == ExpertKeys::none) return;
  const bool is_routed =
      family.experts == ExpertKeys::deepseek || family.experts == ExpertKeys::pattern;
  document[is_routed ? "n_routed_experts" : "num_experts"] = model.num_experts;
  if (model.num_experts == 0) return;
  const bool is_mixtral = family.experts == ExpertKeys::mixtral;
  document["num_experts_per_tok"] = model.experts_per_token;
  document[is_mixtral ? "intermediate_size" : "moe_intermediate_size"] = model.moe_ffn_size;
  document["norm_topk_prob"] = model.normalizes_topk;
  write_shared(model, family, document);
  write_placement(model, family, document);
  const Difference differs(document);
  differs("moe_latent_size", model.moe_latent_size, int64_t{0});
  differs("shared_expert_gate", model.has_shared_gate,
          family.has_shared_gate && model.shared_ffn_size > 0);
  if (model.has_router_bias != family.has_router_bias) {
    document["topk_method"] = model.has_router_bias ? "noaux_tc" : "greedy";
  }
  if (family.has_expert_bias) document["mlp_bias"] = model.has_expert_bias;
}

void write_biases(const ModelSpec& model, const Family& family, json& document) {
  // The engine's families have had both keys from the beginning: trials are known by them.
  if (family.runs_in_engine) {
    document["attention_bias"] = model.has_attention_bias;
    document["mlp_bias"] = model.has_mlp_bias;
    return;
  }
  const Difference differs(document);
  differs(family.biases == BiasRule::use_bias ? "use_bias" : "attention_bias",
          model.has_attention_bias, family.attention_bias);
}

void write_positions(const ModelSpec& model, const Family& family, json& document) {
  const std::string_view positions = model.has_learned_positions ? "learned"
                                     : model.rope.type == "none" ? "none"
                                                                 : "rope";
  if (positions != family.positions) document["position_embedding"] = positions;
  if (positions != "rope") return;
  document["rope_parameters"] = rope_json(model.rope);
  // The family's share would be taken for one that is left out.
  if (model.rope.rotary_ratio != family.rotary_ratio) {
    document["partial_rotary_factor"] = model.rope.rotary_ratio;
  }
}

/// What only plans know.
void write_rest(const ModelSpec& model, const Family& family, json& document) {
  const Difference differs(document);
  differs("padded_vocab_size", model.padded_vocab_size, int64_t{0});
  differs("use_qk_norm", model.has_qk_norm, family.has_qk_norm);
  differs("attn_output_gate", model.has_attention_gate, family.has_attention_gate);
  differs("attention_sinks", model.has_attention_sinks, family.has_attention_sinks);
  differs("gated_mlp", model.has_gated_mlp, family.has_gated_mlp);
  differs("attention_dropout", model.attention_dropout, family.dropout);
  differs("hidden_dropout", model.hidden_dropout, family.dropout);
  if (model.has_layer_norm != family.has_layer_norm) {
    document["norm"] = model.has_layer_norm ? "layernorm" : "rmsnorm";
  }
}

}  // namespace

json to_json(const ModelSpec& model) {
  // A model made by hand may have a family of its own.
  const Family* known = find_family(model.family);
  const Family& family = known != nullptr ? *known : *find_family("qwen3_moe");
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
                   {"tie_word_embeddings", model.ties_embeddings}};
  for (const Activation& row : kActivations) {
    if (row.name != model.hidden_act) continue;
    document[family.mixer == MixerKeys::pattern ? "mlp_hidden_act" : "hidden_act"] =
        row.config_name;
    break;
  }
  if (model.ffn_size > 0) document["intermediate_size"] = model.ffn_size;
  write_biases(model, family, document);
  write_mixers(model, family, document);
  write_experts(model, family, document);
  write_mtp(model, family, document);
  write_positions(model, family, document);
  write_windows(model, family, document);
  write_rest(model, family, document);
  return document;
}

}  // namespace moetune::spec
