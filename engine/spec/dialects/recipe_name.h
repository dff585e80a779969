// What the name of a recipe says by itself, as "qwen3_30b_a3b_pretrain_8gpu_h100_bf16_config": the
// model, and what is trained of it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/spec/plan_knobs.h"

namespace moetune::spec::dialects {

/// The one of `models` whose words stand side by side in the recipe's name, whatever is between
/// them; of several the one with most words. Behind them has to stand the task, or the end: another
/// word, as the "lite" of deepseek_v2_lite, makes it another model. Empty where there is none, and
/// where two have as many words.
std::string model_in_recipe(std::string_view recipe, std::span<const std::string> models);

/// None where the name says none.
std::optional<TrainingTask> task_in_recipe(std::string_view recipe);

}  // namespace moetune::spec::dialects
