// What of a model the engine does not run: one table, asked from the top. What plans assume of it.
#include <algorithm>

#include "engine/spec/hf_family.h"
#include "engine/spec/model_spec.h"
#include "kernels/base/error.h"

namespace moetune::spec {

namespace {

bool mixes_with(const ModelSpec& model, Mixer mixer) {
  return std::ranges::any_of(model.layer_kinds,
                             [&](const LayerKind& kind) { return kind.mixer == mixer; });
}

/// Attention or an MLP alone in a layer.
bool has_half_layers(const ModelSpec& model) {
  return std::ranges::any_of(model.layer_kinds, [](const LayerKind& kind) {
    return kind.mixer == Mixer::none || kind.feed_forward == FeedForward::none;
  });
}

struct Gap {
  const char* what;  ///< of a sentence, with its verb
  bool (*is_there)(const ModelSpec&);
};
constexpr Gap kGaps[] = {
    {"multi-head latent attention is",
     [](const ModelSpec& m) { return mixes_with(m, Mixer::mla); }},
    {"Gated DeltaNet is", [](const ModelSpec& m) { return mixes_with(m, Mixer::gdn); }},
    {"Mamba-2 is", [](const ModelSpec& m) { return mixes_with(m, Mixer::mamba); }},
    {"a layer of attention or an MLP alone is", has_half_layers},
    {"multi-token prediction is", [](const ModelSpec& m) { return m.mtp.depth > 0; }},
    {"a gate on attention is", [](const ModelSpec& m) { return m.has_attention_gate; }},
    {"attention with sinks is", [](const ModelSpec& m) { return m.has_attention_sinks; }},
    {"attention in chunks is", [](const ModelSpec& m) { return m.has_chunked_windows; }},
    {"an MLP without a gate is", [](const ModelSpec& m) { return !m.has_gated_mlp; }},
    {"a gate on the shared expert is", [](const ModelSpec& m) { return m.has_shared_gate; }},
    {"a bias on the router's scores is", [](const ModelSpec& m) { return m.has_router_bias; }},
    {"an expert with biases is", [](const ModelSpec& m) { return m.has_expert_bias; }},
    {"an expert on a latent width is", [](const ModelSpec& m) { return m.moe_latent_size > 0; }},
    {"LayerNorm is", [](const ModelSpec& m) { return m.has_layer_norm; }},
    {"a learned embedding of positions is",
     [](const ModelSpec& m) { return m.has_learned_positions; }},
    {"a model without positions is", [](const ModelSpec& m) { return m.rope.type == "none"; }},
    {"rotation of a part of a head is",
     [](const ModelSpec& m) { return m.rope.rotary_ratio != 1; }},
    {"a padded vocabulary is", [](const ModelSpec& m) { return m.padded_vocab_size > 0; }},
    {"dropout is",
     [](const ModelSpec& m) { return m.hidden_dropout > 0 || m.attention_dropout > 0; }},
    {"the activation relu2 is", [](const ModelSpec& m) { return m.hidden_act == "relu2"; }},
};

}  // namespace

std::string engine_gap(const ModelSpec& model) {
  for (const Gap& gap : kGaps) {
    if (gap.is_there(model)) return fmt::format("{} planned, not run, by the engine yet", gap.what);
  }
  const Family* family = find_family(model.family);
  if (family == nullptr || family->runs_in_engine) return {};
  return fmt::format("the family {} is planned, not run, by the engine yet", model.family);
}

std::string model_assumption(const ModelSpec& model) {
  const Family* family = find_family(model.family);
  if (family == nullptr || family->assumed.empty()) return {};
  return fmt::format("{}: {}", family->name, family->assumed);
}

void refuse_engine_gap(const ModelSpec& model, const Source& source) {
  const std::string gap = engine_gap(model);
  if (gap.empty()) return;
  throw base::UsageError(
      fmt::format("{}key 'model_type' is \"{}\": {}; it runs llama, mixtral and qwen3_moe",
                  source.prefix("model_type"), model.family, gap));
}

}  // namespace moetune::spec
