// Megatron-Core's own split (transformer_config.py, arguments.py): every virtual stage has as many
// layers, embedding and loss counted as one each where a flag says so.
#include "sweeps/planning/run_stages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

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

}  // namespace

std::string layers_over_stages(const PlanRun& run) {
  return run.knobs.vpp > 1
             ? fmt::format("{} layers over {} stages (pp {} x vpp {})", run.model->num_layers,
                           num_stages(run), run.knobs.pp, run.knobs.vpp)
             : fmt::format("{} layers over {} stages", run.model->num_layers, run.knobs.pp);
}

std::string lone_stages_text(const PlanRun& run) {
  constexpr std::array kLone = {"the loss has a stage", "embedding and loss have a stage each",
                                "embedding, multi-token prediction and loss have a stage each"};
  const int64_t lone = num_stages(run) - run.model->num_layers;
  return fmt::format("{}: {}", kLone.at(static_cast<size_t>(lone - 1)), layers_over_stages(run));
}

Stages stages_of_command(const dialects::RunConfig& config, const PlanRun& run,
                         std::vector<std::string>& assumed) {
  const spec::PlanKnobs& k = run.knobs;
  const bool is_hybrid = planner::has_mixer(*run.model, spec::Mixer::mamba);
  const bool has_own_counts = k.first_stage_layers > 0 || k.last_stage_layers > 0;
  if (!run.is_of_megatron || k.pp == 1 || is_hybrid || has_own_counts) return {};
  const spec::CountedEnds counted = dialects::counted_ends(config);
  const bool counts_any = counted != spec::CountedEnds{};
  if (counts_any) {
    Stages stages = spec::counted_pipeline_stages(run.model->num_layers, run.model->mtp.depth,
                                                  num_stages(run), counted);
    if (!stages.empty()) return stages;
  } else if (planner::splits_by_itself(run)) {
    return {};
  }
  const std::string beside =
      counts_any
          ? fmt::format(" with {}", fmt::join(dialects::keys_of_counted_ends(config), " and "))
          : std::string();
  if (!may_be_said_elsewhere(config)) {
    throw base::UsageError(
        fmt::format("{} do not divide{}, and Megatron refuses to start: say the stages with {}",
                    layers_over_stages(run), beside, ways_to_split(config, run)));
  }
  Stages lone =
      spec::lone_pipeline_stages(run.model->num_layers, run.model->mtp.depth, num_stages(run));
  assumed.push_back(lone.empty() ? fmt::format("stages are taken as balanced: {} do not divide{}",
                                               layers_over_stages(run), beside)
                                 : lone_stages_text(run));
  return lone;
}

}  // namespace moetune::sweeps
