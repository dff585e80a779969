// The options of Megatron-Bridge's launcher of benchmarks (scripts/performance) and of its script
// for recipes (scripts/training), which stand for overrides of a recipe.
#pragma once

#include "engine/spec/dialects/shell.h"

namespace moetune::spec::dialects {

/// Puts those overrides, and the recipe, in the place of the options, and the other options by
/// their long names behind them; variables that it sets for the job are the command's. It is the
/// launcher by --model_recipe_name, else the script by its name. Other commands stay as they are.
void spell_out_options(ShellCommand& command);

}  // namespace moetune::spec::dialects
