// The parts of reading a config.json, each in a source of its own; hf_config.cpp puts them in
// order. Private to these sources, and to the dialects that write single parts in other words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/spec/hf_family.h"
#include "engine/spec/hf_keys.h"
#include "engine/spec/json_reader.h"
#include "engine/spec/model_spec.h"

namespace moetune::spec {

struct Activation {
  std::string_view config_name;
  std::string_view name;
  bool runs_in_engine = true;
};
// The first row of each name is the one that to_json writes.
inline constexpr std::array kActivations = {
    Activation{"silu", "silu"},          Activation{"swish", "silu"},
    Activation{"gelu", "gelu"},          Activation{"gelu_pytorch_tanh", "gelu_tanh"},
    Activation{"gelu_new", "gelu_tanh"}, Activation{"relu", "relu"},
    Activation{"relu2", "relu2", false},
};

/// `value` is 0 or 1, as fallbacks of the key table are.
inline bool boolean_of(JsonReader& reader, const FieldInfo& key, double otherwise) {
  return reader.boolean_or(key, otherwise != 0);
}

/// The row with a lower bound from above, which another key sets.
inline FieldInfo at_most(FieldInfo row, int64_t max) {
  row.limits.max = static_cast<double>(max);
  return row;
}

/// The spelling that the file has; `key` where it has neither.
inline const FieldInfo& spelled(const JsonReader& reader, const FieldInfo& key,
                                const FieldInfo& other) {
  return !reader.has(key) && reader.has(other) ? other : key;
}
/// The family's own name of a key; `key` where it has none.
constexpr const FieldInfo& own_name(const Family& family, const FieldInfo& key) {
  for (const Spelling& row : family.spellings) {
    if (row.ours == key.key) return *find_model_key(row.theirs);
  }
  return key;
}
/// The one of both that the file has. Where it has neither, the family's: so does a message name
/// it.
inline const FieldInfo& key_of(const Family& family, const JsonReader& reader,
                               const FieldInfo& key) {
  const FieldInfo& own = own_name(family, key);
  if (reader.has(own)) return own;
  // Megatron's own GPTs have both names, and are written with ours.
  return reader.has(key) || family.is_plain_gpt ? key : own;
}
/// Under either name.
inline bool is_null(const Family& family, const JsonReader& reader, const FieldInfo& key) {
  return reader.is_null(key) || reader.is_null(own_name(family, key));
}
consteval bool have_own_keys_rows() {
  for (const Family& family : kFamilies) {
    for (const Unknown& row : family.unknown) {
      if (!is_model_key(row.key)) return false;
    }
    for (const Spelling& row : family.spellings) {
      if (!is_model_key(row.ours) || !is_model_key(row.theirs)) return false;
    }
  }
  return true;
}
static_assert(have_own_keys_rows(), "each key of a family needs its row in kModelKeys");

/// A layer of nemotron_h.
struct PatternLetter {
  char letter;
  LayerKind kind;
};
inline constexpr std::array kPatternLetters = {
    PatternLetter{'M', {Mixer::mamba, FeedForward::none}},
    PatternLetter{'E', {Mixer::none, FeedForward::moe}},
    PatternLetter{'*', {Mixer::gqa, FeedForward::none}},
    PatternLetter{'-', {Mixer::none, FeedForward::dense}},
};

/// One letter for each layer, as nemotron_h has them.
std::string letters_of(const std::vector<LayerKind>& kinds);

// hf_attention.cpp

/// Heads, their sizes, biases and norms; of multi-head latent attention and Gated DeltaNet, too.
void read_attention(JsonReader& reader, const Family& family, ModelSpec& model);
/// Needs the number of layers.
void read_windows(JsonReader& reader, const Family& family, ModelSpec& model);

// hf_layers.cpp

/// How many layers there are. Where a pattern says it, what they are, too.
void read_layers(JsonReader& reader, const Family& family, ModelSpec& model);
/// Multi-token prediction, but for its layers where they are like the last.
void read_mtp(JsonReader& reader, const Family& family, ModelSpec& model);
/// What mixes the tokens in each layer. Needs which layers have experts.
void read_mixers(JsonReader& reader, const Family& family, ModelSpec& model);

// hf_experts.cpp

/// Experts, and which layers have them.
void read_experts(JsonReader& reader, const Family& family, ModelSpec& model);

// hf_rope.cpp

/// What tells positions apart. Needs the heads.
void read_positions(JsonReader& reader, const Family& family, ModelSpec& model);
/// As rope_parameters.
nlohmann::json rope_json(const RopeSpec& rope);

}  // namespace moetune::spec
