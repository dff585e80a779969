// The stages of a run that writes no layout.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "engine/spec/pipeline_layout.h"
#include "tuner/planner/run.h"

namespace moetune::sweeps {

/// The stages of a command of Megatron that writes none, where these are not those of an even
/// split: with the embedding or the loss counted as a layer. Empty: even ones. Throws
/// base::UsageError where Megatron refuses to start as the layers do not divide; what may be said
/// elsewhere, as by a recipe, is taken as balanced, which is told in `assumed`.
tuner::planner::Stages stages_of_command(const spec::dialects::RunConfig& config,
                                         const tuner::planner::PlanRun& run,
                                         std::vector<std::string>& assumed);

/// Of a run that says nothing of its stages but which ends count as a layer: those that Megatron
/// makes, where these are not even ones. None: it does not start, as the layers do not divide.
std::optional<tuner::planner::Stages> split_with(const tuner::planner::PlanRun& run,
                                                 const spec::CountedEnds& counted);
/// What is taken of a run that does not divide and is priced all the same: the ends stand alone
/// where there are fewer layers than stages, else layers are balanced (empty), which is told.
/// `counted`: the flags of the ends that count, as the run names them.
tuner::planner::Stages split_taken_for(const tuner::planner::PlanRun& run,
                                       const std::vector<std::string>& counted,
                                       std::vector<std::string>& assumed);

}  // namespace moetune::sweeps
