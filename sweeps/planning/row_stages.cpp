// Layouts as texts and lists; stages that only counted ends explain.
#include "sweeps/planning/row_stages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/spec/pipeline_layout.h"
#include "kernels/base/error.h"
#include "sweeps/planning/row_flags.h"
#include "sweeps/planning/row_words.h"
#include "sweeps/planning/run_stages.h"

namespace moetune::sweeps {

namespace {

using nlohmann::json;
namespace planner = tuner::planner;

/// What stands in a stage, as Megatron-LM's layouts in Python say it.
constexpr std::pair<std::string_view, char> kPartsOfStage[] = {
    {"embedding", 'E'}, {"decoder", 't'}, {"layer", 't'}, {"mtp", 'm'}, {"loss", 'L'}};

/// Of "decoder", or of letters.
std::string letters_of(const std::string& part) {
  const std::string word = plain_word(part);
  for (const auto& [name, letter] : kPartsOfStage) {
    if (word == name) return std::string(1, letter);
  }
  return part;
}

/// A list of stages, each a text or a list of its parts, as one text.
std::string joined_layout(const json& stages) {
  std::vector<std::string> texts;
  for (const json& stage : stages) {
    std::string& text = texts.emplace_back();
    for (const json& part : stage.is_array() ? stage : json::array({stage})) {
      if (!part.is_string()) {
        throw base::UsageError("pipeline_layout is neither a text nor a list of stages");
      }
      text += letters_of(part.get<std::string>());
    }
  }
  return fmt::format("{}", fmt::join(texts, "|"));
}

/// Whole numbers, in a list or between commas; none where there is anything else.
std::optional<std::vector<int64_t>> counts_of(const RowReader& row, const char* key) {
  std::vector<int64_t> counts;
  const json& stated = row.at(key);
  if (stated.is_array()) {
    for (const json& count : stated) {
      if (!count.is_number_integer()) break;
      counts.push_back(count.get<int64_t>());
    }
    if (counts.size() == stated.size()) return counts;
    counts.clear();
  }
  const std::vector<std::string> words = row.words(key);
  for (const std::string& word : words) {
    int64_t& count = counts.emplace_back(0);
    const char* const end = word.data() + word.size();
    const auto read = std::from_chars(word.data(), end, count);
    if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  }
  const bool is_whole = !words.empty() && (stated.is_string() || words.size() == stated.size());
  return is_whole ? std::optional(counts) : std::nullopt;
}

/// Layers of each pipeline rank. False where they are not understood, which is told.
bool read_split(const RowReader& row, PublishedRow& result) {
  constexpr const char* kSplit = "pipeline_split";
  const auto counts = counts_of(row, kSplit);
  if (!counts) {
    result.assumed.push_back(fmt::format("pipeline_split not read: {} is no list of layers",
                                         row_word_shown(row.word(kSplit))));
    return false;
  }
  planner::PlanRun& run = result.run;
  int64_t layers = 0;
  for (const int64_t count : *counts) {
    if (count < 0 || count > run.model->num_layers) {
      throw base::UsageError("pipeline_split is no list of layers");
    }
    layers += count;
  }
  if (static_cast<int64_t>(counts->size()) != run.knobs.pp || layers != run.model->num_layers) {
    throw base::UsageError("pipeline_split does not add up to pp stages of the model's layers");
  }
  run.stage_layers = *counts;
  return true;
}

constexpr const char* kCountsEmbedding = "account_for_embedding_in_pipeline_split";
constexpr const char* kCountsLoss = "account_for_loss_in_pipeline_split";

/// Layers of an end, by either of its names; 0 where they are not stated.
int32_t layers_of_end(const RowFlags& flags, const std::array<const char*, 2>& names) {
  int32_t layers = 0;
  for (const char* name : names) {
    if (flags.reader().has(name)) layers = flags.reader().size(name, 0);
  }
  return layers;
}

/// Stages that nobody wrote. A run that is measured did start: with more stages than layers the
/// ends had some of their own.
void take_unwritten_stages(const RowReader& row, PublishedRow& result) {
  planner::PlanRun& run = result.run;
  if (run.knobs.pp == 1) return;
  const RowFlags flags(row);
  run.knobs.first_stage_layers = layers_of_end(
      flags, {"decoder_first_pipeline_num_layers", "num_layers_in_first_pipeline_stage"});
  run.knobs.last_stage_layers = layers_of_end(
      flags, {"decoder_last_pipeline_num_layers", "num_layers_in_last_pipeline_stage"});
  const spec::CountedEnds counted = {
      state_or_told(flags, kCountsEmbedding, result.assumed).value_or(false),
      state_or_told(flags, kCountsLoss, result.assumed).value_or(false)};
  std::vector<std::string> names;
  if (counted.has_embedding) names.emplace_back(kCountsEmbedding);
  if (counted.has_loss) names.emplace_back(kCountsLoss);
  const bool counts_any = counted != spec::CountedEnds{};
  if (planner::counts_stage_layers(run)) {
    if (counts_any) {
      throw base::UsageError(fmt::format(
          "{} and the layers of the first or the last stage contradict each other, as in Megatron",
          fmt::join(names, " and ")));
    }
    return;  // what does not split with these is refused by a rule
  }
  // As of commands: the layers of these are placed by another list.
  const bool is_hybrid = planner::has_mixer(*run.model, spec::Mixer::mamba);
  if (is_hybrid && counts_any) {
    result.assumed.push_back(
        fmt::format("{} not read: the model has Mamba layers", fmt::join(names, " and ")));
    names.clear();
  }
  const auto stages = split_with(run, is_hybrid ? spec::CountedEnds{} : counted);
  run.stages = stages ? *stages : split_taken_for(run, names, result.assumed);
}

}  // namespace

void read_stages(const RowReader& row, PublishedRow& result) {
  planner::PlanRun& run = result.run;
  const auto is_stated = [&](const char* key) {
    return row.has(key) && !(row.at(key).is_array() && row.at(key).empty());
  };
  if (is_stated("pipeline_layout")) {
    const json& stated = row.at("pipeline_layout");
    run.stages = spec::pipeline_stages_for(
        stated.is_array() ? joined_layout(stated) : row.text("pipeline_layout"), run.knobs.pp,
        run.model->num_layers);
    return;
  }
  if (is_stated("pipeline_split") && read_split(row, result)) return;
  take_unwritten_stages(row, result);
}

}  // namespace moetune::sweeps
