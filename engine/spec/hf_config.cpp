// Hugging Face config.json to ModelSpec: the order of its parts. The meaning of each field, its
// default when absent, and which fields a family ignores follow the reference implementation
// (transformers 5); for megatron_gpt and megatron_gpt_moe, which are no families of it,
// Megatron-LM.
#include <algorithm>
#include <utility>

#include "engine/spec/hf_read.h"
#include "engine/spec/model_counts.h"
#include "engine/spec/problems.h"
#include "kernels/base/error.h"

namespace moetune::spec {

using base::UsageError;
using nlohmann::json;

namespace {

constexpr double kMaxParameters = 1e15;

const Family& family_of(JsonReader& reader) {
  const std::string name = reader.text(model_key("model_type"));
  const Family* family = find_family(name);
  if (family != nullptr) return *family;
  for (const UnplannedFamily& each : kUnplannedFamilies) {
    if (each.name != name) continue;
    reader.refuse("model_type",
                  fmt::format("model family '{}' is not planned yet: {}", name, each.why));
  }
  std::vector<std::string_view> run;
  std::vector<std::string_view> planned;
  for (const Family& each : kFamilies) (each.runs_in_engine ? run : planned).push_back(each.name);
  reader.refuse("model_type",
                fmt::format("model family '{}' is not supported yet (supported: {}; only in plans: "
                            "{})",
                            name.substr(0, 60), fmt::join(run, ", "), fmt::join(planned, ", ")));
}

std::string read_activation(JsonReader& reader, const Family& family) {
  const FieldInfo& key = key_of(family, reader, model_key("hidden_act"));
  const std::string name = reader.text_or(key, std::string(family.activation));
  std::vector<std::string_view> supported;
  for (const Activation& row : kActivations) {
    if (family.runs_in_engine && !row.runs_in_engine) continue;
    if (row.config_name == name) return std::string(row.name);
    supported.push_back(row.config_name);
  }
  reader.fail(key, fmt::format("one of {}", fmt::join(supported, ", ")));
}

/// What costs masks in memory; the engine has none (engine_gap). Fields that nobody prices are
/// refused.
void read_dropout(JsonReader& reader, const Family& family, ModelSpec& model) {
  model.attention_dropout =
      reader.number_or(key_of(family, reader, model_key("attention_dropout")), family.dropout);
  model.hidden_dropout =
      reader.number_or(key_of(family, reader, model_key("hidden_dropout")), family.dropout);
  if (reader.number_or(model_key("router_jitter_noise"), 0.0) != 0.0 && !family.may_jitter) {
    reader.fail("router_jitter_noise", "0 (not supported in training)");
  }
  if (family.runs_in_engine && reader.has("quantization_config")) {
    reader.fail("quantization_config", "none: quantized weights are not supported");
  }
}

/// Wherever a layer has an MLP. Megatron's plain GPT and GPT-2 have four hidden sizes if nothing is
/// said.
void read_dense_width(JsonReader& reader, const Family& family, ModelSpec& model) {
  const auto is_dense = [](const LayerKind& kind) {
    return kind.feed_forward == FeedForward::dense;
  };
  if (model.num_layers_with(FeedForward::dense) == 0 &&
      std::ranges::none_of(model.mtp.layers, is_dense)) {
    return;
  }
  const FieldInfo& key = key_of(family, reader, model_key("intermediate_size"));
  model.ffn_size =
      family.is_plain_gpt ? reader.integer_or(key, 4 * model.hidden_size) : reader.integer(key);
}

/// A bias of the MLP where no family above takes it.
void read_mlp_bias(JsonReader& reader, const Family& family, ModelSpec& model) {
  if (family.name == "llama") {
    model.has_mlp_bias = boolean_of(reader, model_key("mlp_bias"), model_default("mlp_bias"));
  } else if (!family.runs_in_engine && !family.has_expert_bias &&
             reader.boolean_or(model_key("mlp_bias"), false)) {
    reader.fail("mlp_bias", fmt::format("false: such biases are not known of {}", family.name));
  }
}

void read_details(JsonReader& reader, const Family& family, ModelSpec& model) {
  model.rms_norm_eps =
      reader.number_or(key_of(family, reader, model_key("rms_norm_eps")), family.eps);
  model.initializer_range =
      reader.number_or(model_key("initializer_range"), model_default("initializer_range"));
  model.hidden_act = read_activation(reader, family);
  read_mlp_bias(reader, family, model);
  model.ties_embeddings =
      reader.boolean_or(model_key("tie_word_embeddings"), family.ties_embeddings);
  model.has_gated_mlp = reader.boolean_or(model_key("gated_mlp"), family.has_gated_mlp);
  model.has_layer_norm = family.has_layer_norm;
  if (reader.has("norm")) {
    model.has_layer_norm = reader.choice("norm", {"rmsnorm", "layernorm"}) == "layernorm";
  }
}

void read_padded_vocab(JsonReader& reader, ModelSpec& model) {
  const FieldInfo& key = model_key("padded_vocab_size");
  const int64_t rows = reader.integer_or(key, model.vocab_size);
  if (rows < model.vocab_size) {
    reader.fail(key, fmt::format("at least vocab_size ({})", model.vocab_size));
  }
  model.padded_vocab_size = rows == model.vocab_size ? 0 : rows;
}

/// By what is counted later, so that nothing overflows there.
void check_total_size(const JsonReader& reader, const ModelSpec& model) {
  const double parameters = approximate_parameters(model);
  if (parameters > kMaxParameters) {
    throw UsageError(
        fmt::format("{}: the sizes make a model of about {:.1e} parameters, expected "
                    "at most {:.0e}",
                    reader.source(), parameters, kMaxParameters));
  }
}

/// A document whose family has inner parts, with their keys beside the others; null for others.
json with_inner_parts(const json& document, const Source& source) {
  JsonReader reader(document, source, "", NullIs::absent);
  if (!reader.has("model_type") || !reader.value("model_type").is_string()) return {};
  const Family* family = find_family(reader.text("model_type"));
  if (family == nullptr || !family->has_inner_parts) return {};
  json flat = document;
  for (const std::string_view part : kInnerParts) {
    if (!reader.has(part)) continue;
    static_cast<void>(reader.object(part));
    const json& inner = reader.value(part);
    for (const auto& item : inner.items()) {
      if (!flat.contains(item.key())) flat[item.key()] = item.value();
    }
  }
  return flat;
}

ModelSpec read_model(JsonReader reader) {
  const Family& family = family_of(reader);
  ModelSpec model;
  model.family = family.name;
  Problems problems;
  problems.attempt([&] { read_dropout(reader, family, model); });
  problems.attempt([&] { model.vocab_size = reader.integer(model_key("vocab_size")); });
  problems.attempt([&] {
    model.hidden_size = reader.integer(key_of(family, reader, model_key("hidden_size")));
  });
  problems.attempt([&] { read_layers(reader, family, model); });
  // What follows is judged by these.
  problems.throw_if_any();
  problems.attempt([&] {
    model.max_position_embeddings = reader.integer_or(
        key_of(family, reader, model_key("max_position_embeddings")), family.max_positions);
  });
  problems.attempt([&] { read_attention(reader, family, model); });
  model.is_moe_layer.assign(static_cast<size_t>(model.num_layers), false);
  for (size_t layer = 0; layer < model.layer_kinds.size(); ++layer) {
    model.is_moe_layer[layer] = model.layer_kinds[layer].feed_forward == FeedForward::moe;
  }
  problems.attempt([&] { read_mtp(reader, family, model); });
  problems.attempt([&] { read_experts(reader, family, model); });
  problems.attempt([&] { read_mixers(reader, family, model); });
  problems.attempt([&] { read_dense_width(reader, family, model); });
  problems.attempt([&] { read_windows(reader, family, model); });
  problems.attempt([&] { read_details(reader, family, model); });
  problems.attempt([&] { read_padded_vocab(reader, model); });
  problems.throw_if_any();
  // The rotary tables need the heads.
  read_positions(reader, family, model);
  check_total_size(reader, model);
  return model;
}

}  // namespace

json language_model_part(const json& document, const Source& source) {
  JsonReader reader(document, source, "", NullIs::absent);
  if (!reader.has("text_config") || !reader.has("model_type")) return {};
  const json& type = reader.value("model_type");
  const bool is_multimodal = std::ranges::any_of(
      kMultimodal, [&](std::string_view name) { return type == std::string(name); });
  if (!is_multimodal) return {};
  static_cast<void>(reader.object("text_config"));
  json text = reader.value("text_config");
  if (!text.contains("tie_word_embeddings") && reader.has("tie_word_embeddings")) {
    text["tie_word_embeddings"] = reader.value("tie_word_embeddings");
  }
  return text;
}

ModelSpec model_from_json(const json& document, const Source& source) {
  const json text = language_model_part(document, source);
  if (!text.is_null()) return read_model({text, source, "text_config", NullIs::absent});
  const json flat = with_inner_parts(document, source);
  if (!flat.is_null()) return read_model({flat, source, "", NullIs::absent});
  return read_model({document, source, "", NullIs::absent});
}

}  // namespace moetune::spec
