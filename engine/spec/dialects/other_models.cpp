// Runs of what is no GPT, or not only one: refused where their figures would be another model's,
// told where only a part is priced.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/spec/dialects/parts.h"
#include "engine/spec/dialects/text_cursor.h"
#include "engine/spec/dialects/values.h"
#include "engine/spec/knobs.h"

namespace moetune::spec::dialects {
namespace {

bool is_set(const Reading& in, std::string_view key) {
  const Setting* setting = in.settings.find(key);
  return setting != nullptr && !setting->is_null && !setting->words.empty();
}

/// Primus names what it trains.
void judge_type(Reading& in) {
  constexpr std::string_view kType = "model_type";
  if (!is_set(in, kType)) return;
  const std::string type = in.settings.find(kType)->words.front();
  const auto is_on = [&](std::string_view key) {
    return is_set(in, key) &&
           parse_yaml_switch(in.settings.find(key)->words.front()).value_or(false);
  };
  if (type == "gpt") return;
  // A hybrid without letters is refused where these are read.
  const bool is_hybrid = is_set(in, "hybrid_layer_pattern") ||
                         is_set(in, "hybrid_override_pattern") || is_on("is_hybrid_model");
  if (type == "mamba" && is_hybrid) return;
  in.problem(fmt::format("'{}' is '{}': moetune plans GPTs, and hybrids whose layers '{}' says",
                         kType, shown(type), in.key("hybrid_layer_pattern")));
}

/// What only models have that are not planned.
void judge_layers(Reading& in) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kParts = {
      std::pair{"lfm_layer_types", "layers of other kinds than attention"},
      {"routed_expert_hidden_size", "experts of another width than the model"},
  };
  for (const auto& [key, what] : kParts) {
    if (is_set(in, key)) in.problem(fmt::format("'{}' makes {}, which is not planned", key, what));
  }
}

/// Models of several parts that each have a layout.
void refuse_layouts_of_parts(Reading& in) {
  for (const Setting& setting : in.settings.all()) {
    for (const std::string_view part : {"--llm-", "--vision-"}) {
      if (!setting.key.starts_with(part)) continue;
      const std::string_view size = std::string_view(setting.key).substr(part.size());
      const auto sizes = layout_sizes();
      if (std::ranges::find(sizes, size, &LayoutSize::name) == sizes.end()) continue;
      in.problem(
          fmt::format("'{}' gives a part of the model a layout of its own, which is not "
                      "planned",
                      shown(setting.key)));
      return;
    }
  }
}

/// Beside an encoder of images the usual flag is that of the encoder's sequence.
void read_sequence_behind_images(Reading& in) {
  const bool has_images = is_set(in, "--language-model-type") || is_set(in, "--vision-model-type");
  if (!has_images) return;
  in.note("only the language model is priced: what reads images is not");
  constexpr std::string_view kDecoder = "--decoder-seq-length";
  if (!is_set(in, kDecoder)) return;
  Setting length = *in.settings.find(kDecoder);
  length.key = in.key("seq_length");
  if (in.settings.find(length.key) != nullptr) {
    in.settings.replace(length);
  } else {
    in.settings.add(length, in.problems);
  }
  in.note(fmt::format("'{}' is the language model's sequence: it is priced with {}", kDecoder,
                      shown(length.words.front())));
}

void note_other_tasks(Reading& in) {
  const auto flag_with = [&](std::string_view front) -> std::string {
    const auto& all = in.settings.all();
    const auto at = std::ranges::find_if(
        all, [&](const Setting& setting) { return setting.key.starts_with(front); });
    return at == all.end() ? std::string() : at->key;
  };
  const auto note = [&](const std::string& mark, std::string_view what) {
    if (!mark.empty()) in.note(fmt::format("'{}' is {}", shown(mark), what));
  };
  const std::string program = in.program.substr(in.program.rfind('/') + 1);
  const auto named = [&](std::string_view part) {
    return program.find(part) == std::string::npos ? std::string() : program;
  };
  std::string bert = named("pretrain_bert");
  if (bert.empty()) bert = flag_with("--bert-");
  note(bert, "of BERT, which is priced as a GPT of its sizes");
  note(named("pretrain_t5"), "of T5, which is priced as a GPT of its sizes");
  std::string text = named("text_generation");
  if (text.empty()) text = named("inference");
  if (text.empty()) text = flag_with("--inference-");
  note(text, "of generating text, which is not priced: the run is priced as training");
}

/// "2.4B": the largest numbers of a schedule have units.
std::optional<double> amount_of(std::string_view text) {
  constexpr std::array<std::pair<char, double>, 4> kUnits = {
      std::pair{'T', 1e12}, {'B', 1e9}, {'M', 1e6}, {'K', 1e3}};
  double unit = 1;
  for (const auto& [letter, size] : kUnits) {
    if (!text.ends_with(letter)) continue;
    unit = size;
    text.remove_suffix(1);
    break;
  }
  const auto number = parse_number(text);
  return number ? std::optional(*number * unit) : std::nullopt;
}

/// The batch at the end of "0:16 2.4B:320", which holds for most of a run; none of another text.
std::optional<int64_t> last_batch_of(const Setting& schedule) {
  std::optional<double> last;
  std::optional<int64_t> batch;
  std::string all;
  for (const std::string& word : schedule.words) all += word + " ";
  while (!all.empty()) {
    const size_t end = std::min(all.find_first_of(" ,"), all.size());
    const std::string entry = all.substr(0, end);
    all.erase(0, end + 1);
    if (entry.empty()) continue;
    const size_t colon = std::min(entry.find(':'), entry.size());
    const auto from = amount_of(std::string_view(entry).substr(0, colon));
    const auto size = amount_of(std::string_view(entry).substr(std::min(colon + 1, entry.size())));
    constexpr double kMostSequences = 1e9;
    if (!from || !size || *size < 1 || *size > kMostSequences) return std::nullopt;
    if (last && *from < *last) continue;
    last = from;
    batch = std::llround(*size);
  }
  return batch;
}

void read_batch_schedule(Reading& in) {
  constexpr std::string_view kSchedule = "--step-batch-size-schedule";
  const Setting* schedule = in.settings.find(kSchedule);
  if (schedule == nullptr || in.options.is_echo) return;
  const std::string batch_key = in.key("global_batch_size");
  if (in.settings.find(batch_key) != nullptr) {
    in.problem(fmt::format("'{}' and '{}' contradict each other: leave one", kSchedule, batch_key));
    return;
  }
  const std::optional<int64_t> batch = last_batch_of(*schedule);
  if (!batch) {
    in.problem(fmt::format("'{}' is '{}', expected pairs such as '0:16 2B:320'", kSchedule,
                           shown(schedule->value)));
    return;
  }
  // What is priced is written.
  in.settings.remove(kSchedule);
  in.settings.add(
      {.key = batch_key, .words = {std::to_string(*batch)}, .value = std::to_string(*batch)},
      in.problems);
  in.note(
      fmt::format("'{}' ends with a batch of {}: it is taken for all steps", kSchedule, *batch));
}

}  // namespace

void judge_other_models(Reading& reading) {
  if (reading.dialect == Dialect::primus && !reading.options.is_echo) {
    judge_type(reading);
    judge_layers(reading);
  }
  if (reading.dialect != Dialect::megatron_lm) return;
  refuse_layouts_of_parts(reading);
  read_sequence_behind_images(reading);
  note_other_tasks(reading);
  read_batch_schedule(reading);
}

}  // namespace moetune::spec::dialects
