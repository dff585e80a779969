// Megatron-Core's own split (transformer_config.py, arguments.py): every virtual stage has as many
// layers, embedding and loss counted as one each where a flag says so.
#include "sweeps/planning/run_stages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/spec/dialects/concepts.h"
#include "kernels/base/error.h"

namespace moetune::sweeps {

namespace {

namespace dialects = spec::dialects;
namespace planner = tuner::planner;
using planner::PlanRun;
using planner::Stages;

int64_t num_stages(const PlanRun& run) { return int64_t{run.knobs.pp} * run.knobs.vpp; }

/// Whether stages may be said where nothing is read: in a recipe, in a log's source, or in a list
/// that is not.
bool may_be_said_elsewhere(const dialects::RunConfig& config) {
  const std::string split =
      dialects::key_of(dialects::row_of("decoder_pipeline_manual_split_list"), config.dialect);
  return config.is_echo || dialects::may_stand_elsewhere(config) ||
         (!split.empty() &&
          std::ranges::any_of(config.unknown, [&](const dialects::UnknownSetting& setting) {
            return setting.key == split && dialects::follows_layout(setting, config.dialect);
          }));
}

/// What would make the layers divide, in the words of the dialect.
std::string ways_to_split(const dialects::RunConfig& config, const PlanRun& run) {
  const auto key = [&](const char* row) {
    return dialects::key_of(dialects::row_of(row), config.dialect);
  };
  std::string text = key("pipeline_model_parallel_layout");
  const std::string loss = key("account_for_loss_in_pipeline_split");
  const int64_t layers = run.model->num_layers;
  if ((layers + 1) % num_stages(run) == 0) {
    text += fmt::format(", or count the loss ({})", loss);
  } else if ((layers + 2) % num_stages(run) == 0) {
    text += fmt::format(", or count embedding and loss ({} and {})",
                        key("account_for_embedding_in_pipeline_split"), loss);
  }
  return text;
}

/// "94 layers over 32 stages".
std::string layers_over_stages(const PlanRun& run) {
  return run.knobs.vpp > 1
             ? fmt::format("{} layers over {} stages (pp {} x vpp {})", run.model->num_layers,
                           num_stages(run), run.knobs.pp, run.knobs.vpp)
             : fmt::format("{} layers over {} stages", run.model->num_layers, run.knobs.pp);
}

/// Which stages are without layers: "embedding and loss have a stage each: ...".
std::string lone_stages_text(const PlanRun& run, const Stages& stages) {
  std::vector<std::string_view> lone;
  for (const std::string& stage : stages) {
    if (stage.find('t') != std::string::npos) continue;
    lone.push_back(stage.back() == 'E'   ? "embedding"
                   : stage.back() == 'L' ? "loss"
                                         : "multi-token prediction");
  }
  const std::string last(lone.back());
  lone.pop_back();
  return lone.empty() ? fmt::format("the {} has a stage: {}", last, layers_over_stages(run))
                      : fmt::format("{} and {} have a stage each: {}", fmt::join(lone, ", "), last,
                                    layers_over_stages(run));
}

/// " with --account-for-loss-in-pipeline-split"
std::string with_flags(const std::vector<std::string>& counted) {
  return counted.empty() ? std::string() : fmt::format(" with {}", fmt::join(counted, " and "));
}

}  // namespace

std::optional<Stages> split_with(const PlanRun& run, const spec::CountedEnds& counted) {
  if (counted == spec::CountedEnds{}) {
    return planner::splits_by_itself(run) ? std::optional(Stages{}) : std::nullopt;
  }
  Stages stages = spec::counted_pipeline_stages(run.model->num_layers, run.model->mtp.depth,
                                                num_stages(run), counted);
  return stages.empty() ? std::nullopt : std::optional(std::move(stages));
}

Stages split_taken_for(const PlanRun& run, const std::vector<std::string>& counted,
                       std::vector<std::string>& assumed) {
  Stages lone;
  if (!planner::has_mixer(*run.model, spec::Mixer::mamba)) {
    lone = spec::lone_pipeline_stages(run.model->num_layers, run.model->mtp.depth, num_stages(run));
  }
  if (!lone.empty()) {
    assumed.push_back(lone_stages_text(run, lone));
  } else if (num_stages(run) <= run.model->num_layers) {  // a rule refuses more
    assumed.push_back(fmt::format("stages are taken as balanced: {} do not divide{}",
                                  layers_over_stages(run), with_flags(counted)));
  }
  return lone;
}

Stages stages_of_command(const dialects::RunConfig& config, const PlanRun& run,
                         std::vector<std::string>& assumed) {
  const bool is_hybrid = planner::has_mixer(*run.model, spec::Mixer::mamba);
  if (!run.is_of_megatron || run.knobs.pp == 1 || is_hybrid || planner::counts_stage_layers(run)) {
    return {};
  }
  if (auto stages = split_with(run, dialects::counted_ends(config))) return *std::move(stages);
  const std::vector<std::string> counted = dialects::keys_of_counted_ends(config);
  if (!may_be_said_elsewhere(config)) {
    throw base::UsageError(
        fmt::format("{} do not divide{}, and Megatron refuses to start: say the stages with {}",
                    layers_over_stages(run), with_flags(counted), ways_to_split(config, run)));
  }
  return split_taken_for(run, counted, assumed);
}

}  // namespace moetune::sweeps
