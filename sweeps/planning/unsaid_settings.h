// What a run leaves to a recipe, or to a file that was not given, and what is taken for it.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "tuner/planner/run.h"

namespace moetune::sweeps {

/// The choices that a run of Megatron-Bridge leaves to its recipe, with what is taken for each, a
/// sentence; empty: none.
std::string left_to_recipe(const spec::dialects::RunConfig& config,
                           const tuner::planner::PlanRun& run);

/// Where a run breaks a rule of its engine and may have from elsewhere what mends it, that is set
/// and added to `assumed`, a sentence each. `run`: as `config` says it. Throws base::UsageError,
/// naming the setting that would mend it, for a rule that it breaks by what it says itself, and for
/// one that only other parallel sizes mend: nobody can tell which.
void keep_rules(const spec::dialects::RunConfig& config, tuner::planner::PlanRun& run,
                std::vector<std::string>& assumed);

}  // namespace moetune::sweeps
