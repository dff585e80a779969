// Spellings, one row each.
#include "sweeps/planning/row_words.h"

#include <charconv>

namespace moetune::sweeps {

namespace {

/// A spelling, as plain_word makes it, and its meaning.
template <class T>
struct Spelling {
  std::string_view word;
  T value;
};

constexpr Spelling<spec::StateType> kStates[] = {
    {"bfloat16", spec::StateType::bf16},    {"float16", spec::StateType::fp16},
    {"half", spec::StateType::fp16},        {"float32", spec::StateType::fp32},
    {"float", spec::StateType::fp32},       {"uint8", spec::StateType::fp8},
    {"float8_e4m3fn", spec::StateType::fp8}};
constexpr Spelling<spec::PrecisionRecipe> kPrecisions[] = {
    {"bfloat16", spec::PrecisionRecipe::bf16},
    {"bf16_mixed", spec::PrecisionRecipe::bf16},
    {"float16", spec::PrecisionRecipe::fp16},
    {"fp16_mixed", spec::PrecisionRecipe::fp16},
    {"float32", spec::PrecisionRecipe::fp32},
    {"fp8", spec::PrecisionRecipe::fp8_current},
    {"fp8_cs", spec::PrecisionRecipe::fp8_current},
    {"fp8_tensorwise", spec::PrecisionRecipe::fp8_current},
    {"fp8_delayed_scaling", spec::PrecisionRecipe::fp8_delayed},
    {"fp8_mx", spec::PrecisionRecipe::mxfp8}};
constexpr Spelling<spec::TrainingTask> kTasks[] = {
    {"pretraining", spec::TrainingTask::pretrain},
    {"pre_training", spec::TrainingTask::pretrain},
    {"pre_train", spec::TrainingTask::pretrain},
    {"finetune", spec::TrainingTask::sft},
    {"finetuning", spec::TrainingTask::sft},
    {"fine_tuning", spec::TrainingTask::sft},
    {"fine_tune", spec::TrainingTask::sft},
    {"full_finetuning", spec::TrainingTask::sft},
    {"supervised_fine_tuning", spec::TrainingTask::sft},
    {"peft", spec::TrainingTask::lora}};
constexpr Spelling<spec::OptimizerKind> kOptimizers[] = {{"adamw", spec::OptimizerKind::adam},
                                                         {"fused_adam", spec::OptimizerKind::adam},
                                                         {"dist_muon", spec::OptimizerKind::muon}};
constexpr Spelling<spec::Dispatcher> kDispatchers[] = {
    {"all_to_all", spec::Dispatcher::alltoall},   {"a2a", spec::Dispatcher::alltoall},
    {"all_gather", spec::Dispatcher::allgather},  {"deep_ep", spec::Dispatcher::deepep},
    {"hybrid_ep", spec::Dispatcher::hybridep},    {"flex_deepep", spec::Dispatcher::deepep},
    {"flex_hybridep", spec::Dispatcher::hybridep}};
constexpr Spelling<spec::PlanGraph> kGraphs[] = {{"full", spec::PlanGraph::full_iteration},
                                                 {"full_iter", spec::PlanGraph::full_iteration},
                                                 {"router", spec::PlanGraph::moe_router},
                                                 {"preprocess", spec::PlanGraph::moe_preprocess}};

/// By a name of ours, dashes and underscores alike, or by one of the spellings.
template <class T, size_t N>
std::optional<T> meaning_of(std::string_view text, const Spelling<T> (&spellings)[N]) {
  const std::string word = plain_word(text);
  for (const auto& row : spec::NameTable<T>::kRows) {
    if (plain_word(row.name) == word) return row.value;
  }
  for (const Spelling<T>& spelling : spellings) {
    if (spelling.word == word) return spelling.value;
  }
  return std::nullopt;
}

/// The number at the start of a word, after blanks.
std::optional<int64_t> rank_in_words(std::string_view text) {
  while (!text.empty() && (text.front() == '_' || text.front() == ' ')) text.remove_prefix(1);
  int64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::string plain_word(std::string_view text) {
  std::string word;
  for (const char c : text) {
    if (c >= 'A' && c <= 'Z') {
      word += static_cast<char>(c - 'A' + 'a');
    } else {
      word += c == '-' || c == ' ' || c == '\t' ? '_' : c;
    }
  }
  const size_t first = word.find_first_not_of('_');
  if (first == std::string::npos) return {};
  word = word.substr(first, word.find_last_not_of('_') - first + 1);
  constexpr std::string_view kLibrary = "torch.";
  return word.starts_with(kLibrary) ? word.substr(kLibrary.size()) : word;
}

bool is_none_word(std::string_view text) {
  const std::string word = plain_word(text);
  return word.empty() || word == "none" || word == "no" || word == "off" || word == "false";
}

std::optional<spec::StateType> state_word(std::string_view text) {
  return meaning_of(text, kStates);
}
std::optional<spec::PrecisionRecipe> precision_word(std::string_view text) {
  return meaning_of(text, kPrecisions);
}
std::optional<spec::TrainingTask> task_word(std::string_view text) {
  return meaning_of(text, kTasks);
}
std::optional<spec::OptimizerKind> optimizer_word(std::string_view text) {
  return meaning_of(text, kOptimizers);
}
std::optional<spec::PlanGraph> graph_word(std::string_view text) {
  return meaning_of(text, kGraphs);
}

std::optional<spec::Dispatcher> dispatcher_word(std::string_view text, std::string_view backend) {
  if (plain_word(text) != "flex") return meaning_of(text, kDispatchers);
  if (backend.empty()) return spec::Dispatcher::deepep;
  return meaning_of(backend, kDispatchers);
}

std::optional<ShardingWord> fsdp_word(std::string_view text) {
  const std::string word = plain_word(text);
  const auto names = [&](std::string_view part) { return word.find(part) != std::string::npos; };
  if (is_none_word(word) || word == "ddp") return ShardingWord{};
  if (names("fsdp2") || names("torch")) return ShardingWord{spec::Fsdp::torch, {}, false};
  for (const std::string_view zero : {"zero_", "zero"}) {
    if (names(std::string(zero) + "0")) return ShardingWord{spec::Fsdp::none, false, false};
    if (names(std::string(zero) + "1")) return ShardingWord{spec::Fsdp::none, true, false};
    if (names(std::string(zero) + "2")) return ShardingWord{spec::Fsdp::none, true, true};
    if (names(std::string(zero) + "3")) return ShardingWord{spec::Fsdp::megatron, {}, false};
  }
  if (names("fsdp") || word == "megatron" || word == "true") {
    return ShardingWord{spec::Fsdp::megatron, {}, false};
  }
  return std::nullopt;
}

std::optional<ShardingWord> fsdp_sharding_word(std::string_view text, spec::Fsdp kind) {
  const std::string word = plain_word(text);
  if (word == "no_shard") return ShardingWord{spec::Fsdp::none, false, false};
  if (word == "optim") return ShardingWord{spec::Fsdp::none, true, false};
  if (word == "optim_grads") return ShardingWord{spec::Fsdp::none, true, true};
  if (word.empty() || word == "optim_grads_params" || word == "full_shard") {
    return ShardingWord{kind, {}, false};
  }
  return std::nullopt;
}

std::optional<int> stage_word(std::string_view text, int64_t ranks_per_stage, int pp) {
  const std::string word = plain_word(text);
  const auto names = [&](std::string_view part) { return word.find(part) != std::string::npos; };
  if (is_none_word(word) || word == "not_stated" || word == "unknown" || names("max") ||
      names("worst")) {
    return kWorstStage;
  }
  if (names("last")) return pp - 1;
  if (names("first")) return 0;
  for (const std::string_view what : {"stage", "rank"}) {
    const size_t at = word.find(what);
    if (at == std::string::npos) continue;
    const auto number = rank_in_words(std::string_view(word).substr(at + what.size()));
    if (!number) continue;
    const int64_t stage = what == "stage" ? *number : *number / ranks_per_stage;
    return stage < pp ? std::optional(static_cast<int>(stage)) : std::nullopt;
  }
  const auto number = rank_in_words(word);
  if (!number || *number / ranks_per_stage >= pp) return std::nullopt;
  return static_cast<int>(*number / ranks_per_stage);
}

}  // namespace moetune::sweeps
