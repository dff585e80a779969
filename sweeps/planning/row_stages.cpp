// Layouts as texts and lists; stages that only counted ends explain.
#include "sweeps/planning/row_stages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <optional>
#include <string_view>

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

/// Stages that nobody wrote. A run that is measured did start: with more stages than layers the
/// ends had some of their own.
void take_unwritten_stages(const RowReader& row, PublishedRow& result) {
  planner::PlanRun& run = result.run;
  if (run.knobs.pp == 1) return;
  const spec::ModelSpec& model = *run.model;
  const int64_t num_stages = int64_t{run.knobs.pp} * run.knobs.vpp;
  const RowFlags flags(row);
  for (const char* key :
       {"decoder_first_pipeline_num_layers", "num_layers_in_first_pipeline_stage"}) {
    if (flags.reader().has(key)) run.knobs.first_stage_layers = flags.reader().size(key, 0);
  }
  for (const char* key :
       {"decoder_last_pipeline_num_layers", "num_layers_in_last_pipeline_stage"}) {
    if (flags.reader().has(key)) run.knobs.last_stage_layers = flags.reader().size(key, 0);
  }
  // What does not split with these is refused by a rule.
  if (run.knobs.first_stage_layers > 0 || run.knobs.last_stage_layers > 0) return;
  const spec::CountedEnds counted = {
      flags.state("account_for_embedding_in_pipeline_split").value_or(false),
      flags.state("account_for_loss_in_pipeline_split").value_or(false)};
  if (counted != spec::CountedEnds{}) {
    run.stages =
        spec::counted_pipeline_stages(model.num_layers, model.mtp.depth, num_stages, counted);
    if (!run.stages.empty()) return;
  }
  if (planner::splits_by_itself(run)) return;
  if (!planner::has_mixer(model, spec::Mixer::mamba)) {
    run.stages = spec::lone_pipeline_stages(model.num_layers, model.mtp.depth, num_stages);
  }
  if (!run.stages.empty()) {
    result.assumed.push_back(lone_stages_text(run));
  } else if (num_stages <= model.num_layers) {
    result.assumed.push_back(
        fmt::format("stages are taken as balanced: {} do not divide", layers_over_stages(run)));
  }
}

}  // namespace

void read_stages(const RowReader& row, PublishedRow& result) {
  planner::PlanRun& run = result.run;
  if (row.has("pipeline_layout")) {
    const json& stated = row.at("pipeline_layout");
    const bool is_list = stated.is_array();
    if (!is_list || !stated.empty()) {
      run.stages =
          spec::pipeline_stages_for(is_list ? joined_layout(stated) : row.text("pipeline_layout"),
                                    run.knobs.pp, run.model->num_layers);
      return;
    }
  }
  if (row.has("pipeline_split") && read_split(row, result)) return;
  take_unwritten_stages(row, result);
}

}  // namespace moetune::sweeps
