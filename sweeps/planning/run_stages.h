// The stages of a run that writes no layout.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "tuner/planner/run.h"

namespace moetune::sweeps {

/// The stages of a command of Megatron that writes none, where these are not those of an even
/// split: with the embedding or the loss counted as a layer. Empty: even ones. Throws
/// base::UsageError where Megatron refuses to start as the layers do not divide; what may be said
/// elsewhere, as by a recipe, is taken as balanced, which is told in `assumed`.
tuner::planner::Stages stages_of_command(const spec::dialects::RunConfig& config,
                                         const tuner::planner::PlanRun& run,
                                         std::vector<std::string>& assumed);

/// Which stages are without layers, where spec::lone_pipeline_stages makes some.
std::string lone_stages_text(const tuner::planner::PlanRun& run);
/// "94 layers over 32 stages" of a run that writes no stages.
std::string layers_over_stages(const tuner::planner::PlanRun& run);

}  // namespace moetune::sweeps
