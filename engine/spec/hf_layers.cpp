// What the layers of a Hugging Face config.json are: patterns, mixers by layer, multi-token
// prediction.
#include <algorithm>

#include "engine/spec/hf_read.h"
#include "kernels/base/error.h"

namespace moetune::spec {

using nlohmann::json;

namespace {

constexpr auto kMostLayers = static_cast<size_t>(detail::kMaxLayers);

/// Two spellings of the same list: letters, or words.
struct PatternKeys {
  const FieldInfo& letters;
  const FieldInfo& words;
};
const PatternKeys kLayerPattern = {model_key("hybrid_override_pattern"),
                                   model_key("layers_block_type")};
const PatternKeys kMtpPattern = {model_key("mtp_hybrid_override_pattern"),
                                 model_key("mtp_layers_block_type")};

/// Of older and newer configs.
struct PatternWord {
  std::string_view word;
  char letter;
};
constexpr std::array kPatternWords = {
    PatternWord{"mamba", 'M'},     PatternWord{"linear_attention", 'M'}, PatternWord{"moe", 'E'},
    PatternWord{"attention", '*'}, PatternWord{"full_attention", '*'},   PatternWord{"mlp", '-'},
};

const LayerKind* kind_of_letter(char letter) {
  for (const PatternLetter& row : kPatternLetters) {
    if (row.letter == letter) return &row.kind;
  }
  return nullptr;
}

std::vector<LayerKind> kinds_of_letters(JsonReader& reader, const FieldInfo& key, size_t most) {
  const std::string letters = reader.text(key);
  if (letters.empty() || letters.size() > most) {
    reader.refuse(key, fmt::format("has {} letters, expected 1 to {}, one for each layer",
                                   letters.size(), most));
  }
  std::vector<LayerKind> kinds;
  for (const char letter : letters) {
    const LayerKind* kind = kind_of_letter(letter);
    if (kind == nullptr) {
      reader.refuse(key, fmt::format("letter {} is {}, expected M (Mamba-2), E (experts), * "
                                     "(attention) or - (MLP)",
                                     kinds.size(), describe(json(std::string(1, letter)))));
    }
    kinds.push_back(*kind);
  }
  return kinds;
}

std::vector<LayerKind> kinds_of_words(JsonReader& reader, const FieldInfo& key, size_t most) {
  const json& words = reader.array(key);
  if (words.empty() || words.size() > most) {
    reader.refuse(key, fmt::format("has {} entries, expected 1 to {}, one for each layer",
                                   words.size(), most));
  }
  std::vector<LayerKind> kinds;
  for (const json& word : words) {
    const auto row = std::ranges::find_if(
        kPatternWords, [&](const PatternWord& each) { return word == each.word; });
    if (row == kPatternWords.end()) {
      reader.refuse(fmt::format("{}[{}]", key.key, kinds.size()),
                    fmt::format("is {}, expected mamba, linear_attention, moe, attention, "
                                "full_attention or mlp",
                                describe(word)));
    }
    kinds.push_back(*kind_of_letter(row->letter));
  }
  return kinds;
}

/// Empty where neither spelling is there. As in the reference, the words win.
std::vector<LayerKind> read_pattern(JsonReader& reader, const PatternKeys& keys, size_t most) {
  if (reader.has(keys.words)) return kinds_of_words(reader, keys.words, most);
  if (reader.has(keys.letters)) return kinds_of_letters(reader, keys.letters, most);
  return {};
}

/// Attention in every so many layers, the others are Gated DeltaNet.
std::vector<Mixer> read_gdn_mixers(JsonReader& reader, int64_t num_layers) {
  std::vector<Mixer> mixers;
  if (!reader.has("layer_types")) {
    const int64_t interval =
        reader.integer_or(model_key("full_attention_interval"),
                          static_cast<int64_t>(model_default("full_attention_interval")));
    for (int64_t layer = 0; layer < num_layers; ++layer) {
      mixers.push_back((layer + 1) % interval == 0 ? Mixer::gqa : Mixer::gdn);
    }
    return mixers;
  }
  const json& types = reader.array(model_key("layer_types"));
  if (types.size() != static_cast<size_t>(num_layers)) {
    reader.fail("layer_types", fmt::format("{} entries, one per layer", num_layers));
  }
  for (const json& type : types) {
    if (type != "full_attention" && type != "linear_attention") {
      reader.refuse(fmt::format("layer_types[{}]", mixers.size()),
                    fmt::format("is {}, expected \"full_attention\" or \"linear_attention\"",
                                describe(type)));
    }
    mixers.push_back(type == "full_attention" ? Mixer::gqa : Mixer::gdn);
  }
  return mixers;
}

bool has_mixer(const ModelSpec& model, Mixer mixer) {
  const auto is_it = [&](const LayerKind& kind) { return kind.mixer == mixer; };
  return std::ranges::any_of(model.layer_kinds, is_it) ||
         std::ranges::any_of(model.mtp.layers, is_it);
}

/// Of one depth, where a hybrid does not say them.
std::vector<LayerKind> hybrid_mtp_layers() { return {*kind_of_letter('*'), *kind_of_letter('E')}; }

/// Of others a depth is like the last layer.
void fill_mtp_layers(ModelSpec& model) {
  if (model.mtp.layers.empty()) model.mtp.layers = {model.kind_of(model.num_layers - 1)};
}

void read_mamba(JsonReader& reader, ModelSpec& model) {
  MambaSpec& mamba = model.mamba;
  mamba.num_heads = reader.integer(model_key("mamba_num_heads"));
  mamba.head_dim = reader.integer(model_key("mamba_head_dim"));
  mamba.state_size = reader.integer(model_key("ssm_state_size"));
  mamba.num_groups = reader.integer(model_key("n_groups"));
  mamba.conv_kernel = reader.integer(model_key("conv_kernel"));
  if (mamba.num_heads % mamba.num_groups != 0) {
    reader.fail("mamba_num_heads", fmt::format("a multiple of n_groups ({})", mamba.num_groups));
  }
}

}  // namespace

std::string letters_of(const std::vector<LayerKind>& kinds) {
  std::string letters;
  for (const LayerKind& kind : kinds) {
    const auto row = std::ranges::find(kPatternLetters, kind, &PatternLetter::kind);
    MOETUNE_CHECK(row != kPatternLetters.end(), "layer {} has no letter", letters.size());
    letters += row->letter;
  }
  return letters;
}

void read_layers(JsonReader& reader, const Family& family, ModelSpec& model) {
  const FieldInfo& key = key_of(family, reader, model_key("num_hidden_layers"));
  if (family.mixer != MixerKeys::pattern) {
    constexpr const char* kOfMegatron = "num_layers";
    if (!reader.has(key) && reader.has(kOfMegatron)) {
      reader.fail(key, fmt::format("an integer from {:g} to {:g}; you wrote '{}'", key.limits.min,
                                   key.limits.max, kOfMegatron));
    }
    model.num_layers = reader.integer(key);
    return;
  }
  model.layer_kinds = read_pattern(reader, kLayerPattern, kMostLayers);
  if (model.layer_kinds.empty()) reader.fail(kLayerPattern.letters, "a letter for each layer");
  model.num_layers = static_cast<int64_t>(model.layer_kinds.size());
  if (reader.has(key) && reader.integer(key) != model.num_layers) {
    reader.fail(key, fmt::format("{}, as many as the pattern has", model.num_layers));
  }
}

void read_mtp(JsonReader& reader, const Family& family, ModelSpec& model) {
  const FieldInfo& key =
      spelled(reader, model_key("num_nextn_predict_layers"), model_key("mtp_num_hidden_layers"));
  model.mtp.depth = reader.integer_or(key, 0);
  if (reader.integer_or(model_key("mtp_num_hidden_layers"), model.mtp.depth) != model.mtp.depth) {
    reader.fail("mtp_num_hidden_layers",
                fmt::format("the same as num_nextn_predict_layers ({})", model.mtp.depth));
  }
  if (model.mtp.depth == 0) return;
  model.mtp.repeats_layer = boolean_of(reader, model_key("mtp_use_repeated_layer"),
                                       model_default("mtp_use_repeated_layer"));
  if (family.mixer != MixerKeys::pattern) return;
  constexpr auto kMost = static_cast<size_t>(detail::kMaxMtpDepth);
  model.mtp.layers = read_pattern(reader, kMtpPattern, kMost);
  if (model.mtp.layers.empty()) model.mtp.layers = hybrid_mtp_layers();
}

void read_mixers(JsonReader& reader, const Family& family, ModelSpec& model) {
  std::vector<Mixer> mixers;
  if (family.mixer == MixerKeys::mla) {
    mixers.assign(static_cast<size_t>(model.num_layers), Mixer::mla);
  } else if (family.mixer == MixerKeys::gdn) {
    mixers = read_gdn_mixers(reader, model.num_layers);
  }
  for (size_t layer = 0; layer < mixers.size(); ++layer) {
    model.layer_kinds.push_back(
        {mixers[layer], model.is_moe_layer[layer] ? FeedForward::moe : FeedForward::dense});
  }
  if (model.mtp.depth > 0) fill_mtp_layers(model);
  if (has_mixer(model, Mixer::mamba)) read_mamba(reader, model);
}

void set_mtp_depth(ModelSpec& model, int64_t depth) {
  constexpr auto kMost = static_cast<int64_t>(detail::kMaxMtpDepth);
  if (depth < 0 || depth > kMost) {
    throw base::UsageError(fmt::format(
        "multi-token prediction of {} layers is asked for, expected 0 to {}", depth, kMost));
  }
  if (depth == 0) {
    model.mtp = {};
    return;
  }
  model.mtp.depth = depth;
  const bool is_hybrid = has_mixer(model, Mixer::mamba) && model.num_experts > 0;
  if (model.mtp.layers.empty() && is_hybrid) {
    model.mtp.layers = hybrid_mtp_layers();
  }
  fill_mtp_layers(model);
}

}  // namespace moetune::spec
