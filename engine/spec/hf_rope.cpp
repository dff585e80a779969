// Positions in a Hugging Face config.json: rotary embeddings in both spellings, learned ones, none.
#include "engine/spec/hf_read.h"
#include "kernels/base/error.h"

namespace moetune::spec {

using nlohmann::json;

namespace {

/// The share of a head that is rotated.
double read_rotary_ratio(JsonReader& reader, const Family& family, const FieldInfo& key,
                         double otherwise) {
  const double ratio = reader.number_or(key, otherwise);
  if (family.runs_in_engine && ratio != 1.0) {
    reader.fail(key, "1.0 (partial rotation is not supported)");
  }
  return ratio;
}

/// Longrope's factors change no cost: families that are only planned may have them.
std::string read_rope_type(JsonReader& reader, const Family& family, const char* key) {
  std::vector<std::string_view> types = {"default", "linear", "dynamic", "yarn", "llama3"};
  if (!family.runs_in_engine) types.insert(types.end(), {"longrope", "su"});
  const std::string type = reader.choice(key, std::span<const std::string_view>(types));
  return type == "su" ? "longrope" : type;
}

/// Reads the scaling parameters of `reader`: the object rope_parameters (newer spelling) or
/// rope_scaling (older).
void read_rope_fields(JsonReader reader, const Family& family, RopeSpec& rope,
                      const ModelSpec& model) {
  const char* type_key = reader.has("rope_type") || !reader.has("type") ? "rope_type" : "type";
  if (reader.has(type_key)) {
    rope.type = read_rope_type(reader, family, type_key);
  }
  rope.theta = reader.number_or(rope_key("rope_theta"), rope.theta);
  rope.rotary_ratio =
      read_rotary_ratio(reader, family, rope_key("partial_rotary_factor"), rope.rotary_ratio);
  if (rope.type == "default" || rope.type == "longrope") return;
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
    // Llama 4 is published with equal ones.
    if (family.runs_in_engine && rope.high_freq_factor <= rope.low_freq_factor) {
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
  rope.theta = reader.number_or(model_key("rope_theta"), family.theta);
  rope.rotary_ratio =
      read_rotary_ratio(reader, family, model_key("partial_rotary_factor"), family.rotary_ratio);
  // Both spellings at once: the older one wins as a whole, as in the reference.
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    if (!reader.has(key) || reader.value(key).empty()) continue;
    read_rope_fields(reader.object(key), family, rope, model);
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

}  // namespace

void read_positions(JsonReader& reader, const Family& family, ModelSpec& model) {
  const FieldInfo& key = model_key("position_embedding");
  const std::string positions = reader.has(key) ? reader.choice(key, {"rope", "learned", "none"})
                                                : std::string(family.positions);
  if (positions == "rope") {
    model.rope = read_rope(reader, family, model);
    return;
  }
  model.rope = {.type = "none"};
  model.has_learned_positions = positions == "learned";
}

json rope_json(const RopeSpec& rope) {
  json document = {{"rope_type", rope.type}, {"rope_theta", rope.theta}};
  if (rope.rotary_ratio != 1) document["partial_rotary_factor"] = rope.rotary_ratio;
  if (rope.type == "default" || rope.type == "longrope") return document;
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

}  // namespace moetune::spec
