// Names as words, compared one by one: neither dashes nor capitals make a difference.
#include "engine/spec/dialects/recipe_name.h"

#include <algorithm>
#include <array>
#include <vector>

namespace moetune::spec::dialects {
namespace {

using Words = std::vector<std::string>;

struct TaskWord {
  std::string_view word;
  TrainingTask task;
};
/// Recipes for few weights train adapters of LoRA unless the command says others.
constexpr std::array kTaskWords = {
    TaskWord{"pretrain", TrainingTask::pretrain}, TaskWord{"pretraining", TrainingTask::pretrain},
    TaskWord{"sft", TrainingTask::sft},           TaskWord{"finetune", TrainingTask::sft},
    TaskWord{"finetuning", TrainingTask::sft},    TaskWord{"peft", TrainingTask::lora},
    TaskWord{"lora", TrainingTask::lora},
};
/// What names end in beside a task.
constexpr std::array<std::string_view, 2> kEnds = {"config", "recipe"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// In small letters. A point within a number separates nothing: Qwen2.5 is written qwen25 as well.
Words words_of(std::string_view name) {
  Words words = {""};
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool is_large = c >= 'A' && c <= 'Z';
    if ((c >= 'a' && c <= 'z') || is_large || is_digit(c)) {
      words.back() += is_large ? static_cast<char>(c - 'A' + 'a') : c;
      continue;
    }
    const bool is_in_number =
        c == '.' && i > 0 && i + 1 < name.size() && is_digit(name[i - 1]) && is_digit(name[i + 1]);
    if (!is_in_number && !words.back().empty()) words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

const TaskWord* find_task(std::string_view word) {
  const auto* found = std::ranges::find(kTaskWords, word, &TaskWord::word);
  return found == kTaskWords.end() ? nullptr : found;
}

bool may_follow(std::string_view word) {
  return find_task(word) != nullptr || std::ranges::find(kEnds, word) != kEnds.end();
}

bool names(const Words& recipe, const Words& model) {
  if (model.empty()) return false;
  for (size_t first = 0; first + model.size() <= recipe.size(); ++first) {
    const size_t end = first + model.size();
    const bool is_there =
        std::equal(model.begin(), model.end(), recipe.begin() + static_cast<std::ptrdiff_t>(first));
    if (is_there && (end == recipe.size() || may_follow(recipe[end]))) return true;
  }
  return false;
}

}  // namespace

std::string model_in_recipe(std::string_view recipe, std::span<const std::string> models) {
  const Words words = words_of(recipe);
  std::string longest;
  size_t most = 0;
  for (const std::string& model : models) {
    const Words of_model = words_of(model);
    if (of_model.size() < most || !names(words, of_model)) continue;
    longest = of_model.size() == most ? "" : model;
    most = of_model.size();
  }
  return longest;
}

std::optional<TrainingTask> task_in_recipe(std::string_view recipe) {
  for (const std::string& word : words_of(recipe)) {
    if (const TaskWord* found = find_task(word)) return found->task;
  }
  return std::nullopt;
}

}  // namespace moetune::spec::dialects
