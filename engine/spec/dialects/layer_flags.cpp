// Windows and hybrids in Megatron's flags. A hybrid is a letter for each layer, with bars between
// pipeline stages and the layers of multi-token prediction behind slashes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "engine/spec/dialects/layer_pattern.h"
#include "engine/spec/dialects/model_pairs.h"
#include "engine/spec/dialects/parts.h"
#include "engine/spec/dialects/text_cursor.h"
#include "engine/spec/dialects/values.h"
#include "engine/spec/hf_keys.h"
#include "engine/spec/pipeline_layout.h"

namespace moetune::spec::dialects {
namespace {

constexpr std::string_view kPattern = "hybrid_layer_pattern";
constexpr std::string_view kMtpPattern = "mtp_hybrid_override_pattern";
constexpr std::string_view kWindow = "window_size";
constexpr std::string_view kWindowLayers = "window_attn_skip_freq";
/// More depths of multi-token prediction than any model has are refused where it is priced.
constexpr auto kMostDepths = static_cast<int64_t>(detail::kMaxMtpDepth);

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts = {""};
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string word(const Reading& in, std::string_view trait) {
  return word_of(in.traits, std::string(trait).c_str());
}

/// Numbers in parentheses, brackets or neither.
std::vector<std::optional<int64_t>> numbers_of(std::string text) {
  std::erase_if(text,
                [](char c) { return c == '(' || c == ')' || c == '[' || c == ']' || c == ' '; });
  std::vector<std::optional<int64_t>> numbers;
  for (const std::string& part : split(text, ',')) {
    // A list that was cut at its blanks has two commas.
    if (!part.empty()) numbers.push_back(parse_integer(part));
  }
  return numbers;
}

/// How many keys a token sees, itself included: Megatron counts those before it and those behind
/// it. With a causal mask no token sees what is behind it, whatever is said.
void read_window(Reading& in) {
  const std::string text = word(in, kWindow);
  if (text.empty()) {
    if (in.is_stated(kWindowLayers) && !in.options.is_echo && !in.may_stand_elsewhere()) {
      in.note(
          fmt::format("'{}' says nothing without '{}'", in.key(kWindowLayers), in.key(kWindow)));
    }
    return;
  }
  const auto numbers = numbers_of(text);
  const auto fail = [&](std::string_view expected) {
    in.problem(fmt::format("'{}' is '{}', expected {}", in.key(kWindow), shown(text), expected));
  };
  if (numbers.size() != 2 || !numbers[0] || !numbers[1]) {
    fail("two numbers such as 127,0: keys before a token, and behind it");
    return;
  }
  const int64_t before = *numbers[0];
  const int64_t behind = *numbers[1];
  constexpr auto kMostKeys = static_cast<int64_t>(detail::kMaxPositions);
  if (before < -1 || before >= kMostKeys || behind < -1) {
    fail(fmt::format("from -1 (no limit) to {} keys before a token, and 0 behind it",
                     kMostKeys - 1));
  } else if (before == -1 && behind > 0) {
    fail("a limit before a token where there is one behind it");
  } else if (before >= 0) {
    if (behind != 0) {
      in.note(fmt::format("'{}' is '{}': attention is causal, so no token sees what is behind it",
                          in.key(kWindow), shown(text)));
    }
    in.traits["window_keys"] = before + 1;
  }
  if (in.problems.empty()) {
    in.traits[std::string(kWindow)] = fmt::format("{},{}", before, behind);
  }
}

std::string meaning_of(char letter) {
  switch (letter) {
    case 'G':
      return "Gated DeltaNet";
    case 'D':
      return "sparse attention";
    case '+':
      return "multi-head latent attention";
    default:
      return "";
  }
}

/// Whether a part of the pattern has known letters only.
bool check_letters(Reading& in, std::string_view letters) {
  const size_t at = letters.find_first_not_of("M*-E");
  if (at == std::string_view::npos) return true;
  const std::string kind = meaning_of(letters[at]);
  const std::string letter = shown(letters.substr(at, 1));
  in.problem(kind.empty()
                 ? fmt::format("'{}' has the letter '{}', expected M (Mamba-2), * (attention), - "
                               "(MLP) or E (experts)",
                               in.key(kPattern), letter)
                 : fmt::format("'{}' has the letter '{}' ({}), which is not planned in a hybrid",
                               in.key(kPattern), letter, kind));
  return false;
}

/// What says stages beside the bars.
void check_stages(Reading& in, bool has_bars) {
  const PlanKnobs& k = in.run.knobs;
  std::vector<std::string_view> others;
  for (const std::string_view count :
       {"num_virtual_stages_per_pipeline_rank", "num_layers_per_virtual_pipeline_stage"}) {
    if (in.parts.integer(count)) others.push_back(count);
  }
  if (!in.run.pipeline_layout.empty()) others.emplace_back("pipeline_model_parallel_layout");
  if (has_bars && k.first_stage_layers > 0) others.emplace_back("first_stage_layers");
  if (has_bars && k.last_stage_layers > 0) others.emplace_back("last_stage_layers");
  for (const std::string_view other : others) {
    in.problem(fmt::format("'{}' contradicts '{}', whose bars say the stages", in.key(other),
                           in.key(kPattern)));
  }
}

/// Stages of equal length, one for each rank, are the even split, which need not be written down.
void read_bars(Reading& in, const std::vector<std::string>& segments, int64_t mtp_depth) {
  const bool has_bars = segments.size() > 1;
  // A log tells also what Megatron made of the bars.
  if (!in.options.is_echo) check_stages(in, has_bars);
  if (!has_bars || !in.problems.empty()) return;
  PlanKnobs& k = in.run.knobs;
  const auto count = static_cast<int64_t>(segments.size());
  if (k.pp == 1 || count % k.pp != 0) {
    in.problem(fmt::format("'{}' has {} stages, which '{}' ({}) {}", in.key(kPattern), count,
                           in.key("pp"), k.pp, k.pp == 1 ? "has no ranks for" : "does not divide"));
    return;
  }
  k.vpp = static_cast<int32_t>(count / k.pp);
  const bool is_even = std::ranges::all_of(
      segments, [&](const std::string& part) { return part.size() == segments[0].size(); });
  if (is_even && k.vpp == 1) return;
  std::vector<std::string> stages;
  for (const std::string& segment : segments) stages.emplace_back(segment.size(), 't');
  stages.front().insert(0, "E");
  stages.back() += std::string(static_cast<size_t>(std::min(mtp_depth, kMostDepths)), 'm') + "L";
  in.run.pipeline_layout = pipeline_layout_text(stages);
}

/// A depth of multi-token prediction for each part behind a slash, all alike.
void read_mtp_letters(Reading& in, const std::vector<std::string>& parts) {
  const std::string older = word(in, kMtpPattern);
  if (parts.size() == 1) {
    if (!older.empty()) check_letters(in, older);
    return;
  }
  in.traits.erase(std::string(kMtpPattern));
  if (std::all_of(parts.begin() + 1, parts.end(), [](const auto& part) { return part.empty(); })) {
    return;
  }
  for (size_t i = 2; i < parts.size(); ++i) {
    if (parts[i] == parts[1]) continue;
    in.problem(fmt::format("'{}' has '{}' and '{}' behind slashes: all depths have to be the same",
                           in.key(kPattern), shown(parts[1]), shown(parts[i])));
    return;
  }
  if (!check_letters(in, parts[1])) return;
  if (!older.empty() && older != parts[1]) {
    in.note(fmt::format("'{}' says nothing beside what '{}' has behind slashes",
                        in.key(kMtpPattern), in.key(kPattern)));
  }
  const auto depth = static_cast<int64_t>(parts.size()) - 1;
  const int64_t said = size_of(in.traits, "mtp_num_layers", depth);
  if (said != depth) {
    in.note(fmt::format("'{}' is {}, but '{}' has {} depths: these are taken",
                        in.key("mtp_num_layers"), said, in.key(kPattern), depth));
  }
  in.traits["mtp_num_layers"] = depth;
  in.traits[std::string(kMtpPattern)] = parts[1];
}

/// Megatron's mixer is twice as wide as the model where nobody says its heads.
constexpr int64_t kExpand = 2;

void read_mamba(Reading& in) {
  const int64_t width = size_of(in.traits, "hidden_size");
  for (const char* size : {"mamba_state_dim", "mamba_head_dim", "mamba_num_groups"}) {
    if (size_of(in.traits, size) > 0) continue;
    in.problem(fmt::format("'{}' is 0, expected at least 1", in.key(size)));
    return;
  }
  const int64_t head = size_of(in.traits, "mamba_head_dim");
  const int64_t groups = size_of(in.traits, "mamba_num_groups");
  const bool is_said = in.traits.contains("mamba_num_heads");
  if (!is_said && width == 0) return;
  if (!is_said && kExpand * width % head != 0) {
    in.problem(fmt::format("'{}' ({}) does not divide {} x '{}' ({}): say '{}'",
                           in.key("mamba_head_dim"), head, kExpand, in.key("hidden_size"), width,
                           in.key("mamba_num_heads")));
    return;
  }
  const int64_t heads = size_of(in.traits, "mamba_num_heads", kExpand * width / head);
  if (heads == 0 || heads % groups != 0) {
    in.problem(fmt::format("'{}' is {}, expected a multiple of '{}' ({})",
                           in.key("mamba_num_heads"), heads, in.key("mamba_num_groups"), groups));
  }
  in.traits["mamba_num_heads"] = heads;
}

std::string why_no_letters(const Reading& in) {
  for (const Setting& setting : in.settings.all()) {
    std::string key = setting.key.substr(setting.key.find_last_of(".-/") + 1);
    const bool is_of_flag = setting.key.starts_with("--");
    if (is_of_flag) {
      key = setting.key.substr(2);
      std::ranges::replace(key, '-', '_');
    }
    if (key == "hybrid_attention_ratio" && !setting.is_null) {
      return fmt::format("which layers '{}' makes Mamba's is not known here", shown(setting.key));
    }
  }
  return "nothing else says here which layers are Mamba's";
}

void read_hybrid(Reading& in) {
  const std::string text = word(in, kPattern);
  if (text.empty()) {
    // Older releases made the letters of two ratios.
    if (!is_on(in.traits, "is_hybrid_model") || in.may_stand_elsewhere()) return;
    const std::string why = fmt::format("'{}' needs '{}': {}", in.key("is_hybrid_model"),
                                        in.key(kPattern), why_no_letters(in));
    if (in.options.is_echo) {
      in.note(why);
    } else {
      in.problem(why);
    }
    return;
  }
  in.traits.erase(std::string(kPattern));  // until it is known to be one
  const std::vector<std::string> parts = split(text, '/');
  const std::vector<std::string> segments = split(parts[0], '|');
  std::string letters;
  for (const std::string& segment : segments) letters += segment;
  constexpr auto kMost = static_cast<size_t>(detail::kMaxLayers);
  if (letters.empty() || letters.size() > kMost) {
    in.problem(fmt::format("'{}' has {} layers, expected 1 to {}", in.key(kPattern), letters.size(),
                           kMost));
    return;
  }
  if (!check_letters(in, letters)) return;
  const auto layers = static_cast<int64_t>(letters.size());
  if (const int64_t said = size_of(in.traits, "num_layers", layers); said != layers) {
    in.note(fmt::format("'{}' is {}, but '{}' has {} letters: these are taken",
                        in.key("num_layers"), said, in.key(kPattern), layers));
  }
  const bool has_experts = letters.find('E') != std::string::npos;
  if (has_experts && size_of(in.traits, "num_experts") == 0 && !in.may_stand_elsewhere()) {
    in.problem(
        fmt::format("'{}' has an E, which needs '{}'", in.key(kPattern), in.key("num_experts")));
  }
  if (is_on(in.traits, "multi_latent_attention") && letters.find('*') != std::string::npos) {
    in.problem(fmt::format("'{}' and '{}' together are not planned",
                           in.key("multi_latent_attention"), in.key(kPattern)));
  }
  in.traits["num_layers"] = layers;
  in.traits[std::string(kPattern)] = letters;
  read_mtp_letters(in, parts);
  read_bars(in, segments, size_of(in.traits, "mtp_num_layers"));
  if (letters.find('M') != std::string::npos) read_mamba(in);
}

/// Where nobody says how many groups of heads there are, Megatron-LM's parser counts one. Primus
/// hands on that none are said: as many as heads. Without the switch a number says nothing.
void read_groups(Reading& in) {
  constexpr std::string_view kHasGroups = "group_query_attention";
  constexpr std::string_view kGroups = "num_query_groups";
  if (in.dialect == Dialect::megatron_bridge || in.options.is_echo) return;
  const bool is_grouped = is_on(in.traits, kHasGroups.data());
  const bool is_counted = in.traits.contains(std::string(kGroups));
  const int64_t heads = size_of(in.traits, "num_attention_heads");
  if (is_grouped && !is_counted && heads > 0) {
    const bool is_one = in.dialect == Dialect::megatron_lm;
    in.traits[std::string(kGroups)] = is_one ? 1 : heads;
    if (is_one) {
      in.note(fmt::format("'{}' without '{}': all heads share one head of keys and values",
                          in.key(kHasGroups), in.key(kGroups)));
    }
  } else if (is_counted && !is_grouped && !in.may_stand_elsewhere()) {
    in.note(fmt::format("'{}' says nothing without '{}'", in.key(kGroups), in.key(kHasGroups)));
  }
}

/// What Megatron's own assertions refuse of attention and activations.
void check_traits(Reading& in) {
  if (in.options.is_echo) return;
  // Files that were not given may have the contrary of a default.
  const auto is_set = [&](const char* trait) {
    return is_on(in.traits, trait) && in.is_stated(trait);
  };
  constexpr std::array<std::pair<const char*, const char*>, 3> kContrary = {
      std::pair{"multi_latent_attention", "attention_output_gate"},
      {"swiglu", "quick_geglu"},
      {"swiglu", "squared_relu"},
  };
  for (const auto& [one, other] : kContrary) {
    if (!is_set(one) || !is_set(other)) continue;
    in.problem(
        fmt::format("'{}' and '{}' contradict each other: leave one", in.key(one), in.key(other)));
  }
  if (word_of(in.traits, "softmax_type") == "off-by-one") {
    in.note(fmt::format("'{}' off-by-one has no parameters: it is priced as vanilla",
                        in.key("softmax_type")));
  }
}

}  // namespace

void read_layer_flags(Reading& reading) {
  check_traits(reading);
  read_groups(reading);
  read_window(reading);
  read_hybrid(reading);
}

namespace {

/// The letters with bars as the stages of a run are; as they are where nothing says stages.
std::string with_bars(Writing& out, const RunConfig& run, const std::string& letters) {
  std::vector<size_t> sizes;
  const size_t stages = static_cast<size_t>(run.knobs.pp) * static_cast<size_t>(run.knobs.vpp);
  if (!run.pipeline_layout.empty()) {
    for (const std::string& stage : pipeline_stages_of(run.pipeline_layout)) {
      sizes.push_back(static_cast<size_t>(std::ranges::count(stage, 't')));
    }
  } else if (run.knobs.vpp > 1 && letters.size() % stages == 0) {
    sizes.assign(stages, letters.size() / stages);
  }
  size_t sum = 0;
  for (const size_t size : sizes) sum += size;
  const bool is_said = !run.pipeline_layout.empty() || run.knobs.vpp > 1;
  if (is_said && (sum != letters.size() || out.dialect == Dialect::primus)) {
    out.cannot_say(fmt::format("vpp={}", run.knobs.vpp), "a hybrid's letters have no such stages");
    return letters;
  }
  std::vector<std::string> segments;
  size_t first = 0;
  for (const size_t size : sizes) {
    segments.push_back(letters.substr(first, size));
    first += size;
  }
  return sizes.empty() ? letters : fmt::format("{}", fmt::join(segments, "|"));
}

/// Megatron-Bridge says the gate and the activation apart, and of groups how many there are. The
/// others have a switch for both, and one for groups.
void write_switches(Writing& out) {
  json& traits = out.traits;
  const std::string activation = word_of(traits, "activation_func");
  const auto names = [&](std::string_view part) {
    return activation.find(part) != std::string::npos;
  };
  const bool is_squared = is_on(traits, "squared_relu") || names("squared_relu") || names("relu2");
  const bool is_quick = is_on(traits, "quick_geglu") || (is_on(traits, "swiglu") && names("quick"));
  if (out.dialect == Dialect::megatron_bridge) {
    if (is_quick) traits["swiglu"] = true;
    if (is_quick && !names("quick")) traits["activation_func"] = "quick_gelu";
    if (is_squared && !names("relu")) traits["activation_func"] = "squared_relu";
    if (!is_on(traits, "group_query_attention", true)) traits.erase("num_query_groups");
    return;
  }
  if (is_squared) traits["squared_relu"] = true;
  if (is_quick) traits["quick_geglu"] = true;
  // A default of another dialect may be the contrary; that of a file is said there.
  const bool is_open = traits.contains("swiglu") || out.run.dialect != out.dialect;
  if ((is_quick || is_squared) && is_open) traits["swiglu"] = false;
  if (is_on(traits, "swiglu") && names("gelu")) {
    out.cannot_say("activation_func=" + shown(activation), "its gated MLP has SiLU");
  }
  const bool has_groups = traits.contains("num_query_groups");
  if (has_groups && !traits.contains("group_query_attention"))
    traits["group_query_attention"] = true;
}

}  // namespace

/// Megatron-LM's parser computes sums of lists. Megatron-Bridge's overrides have lists alone.
void write_lists(Writing& out) {
  if (out.dialect != Dialect::megatron_bridge) return;
  for (const char* name : {"moe_layer_freq", "linear_attention_freq", "window_attn_skip_freq"}) {
    const std::string text = word_of(out.traits, name);
    if (!text.empty()) out.traits[name] = written_out(text);
  }
}

void write_layer_flags(Writing& writing, RunConfig& run) {
  write_switches(writing);
  write_lists(writing);
  json& traits = writing.traits;
  const std::string pattern(kPattern);
  const std::string mtp_pattern(kMtpPattern);
  std::string letters = word_of(traits, pattern.c_str());
  if (letters.empty()) return;
  letters = with_bars(writing, run, letters);
  run.pipeline_layout.clear();
  const int64_t depth = std::min(size_of(traits, "mtp_num_layers"), kMostDepths);
  const std::string of_mtp = word_of(traits, mtp_pattern.c_str());
  const bool has_slashes = writing.dialect != Dialect::primus;
  for (int64_t i = 0; has_slashes && i < depth && !of_mtp.empty(); ++i) letters += "/" + of_mtp;
  if (has_slashes || depth == 0) traits.erase(mtp_pattern);
  traits[pattern] = letters;
}

}  // namespace moetune::spec::dialects
