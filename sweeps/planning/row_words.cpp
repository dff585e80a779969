// Spellings, one row each.
#include "sweeps/planning/row_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <vector>

#include "engine/spec/joined_words.h"
#include "kernels/base/utf8.h"

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
constexpr Spelling<spec::TrainingTask> kTasks[] = {
    {"pretraining", spec::TrainingTask::pretrain},
    {"pre_training", spec::TrainingTask::pretrain},
    {"pre_train", spec::TrainingTask::pretrain},
    {"finetune", spec::TrainingTask::sft},
    {"finetuning", spec::TrainingTask::sft},
    {"fine_tuning", spec::TrainingTask::sft},
    {"fine_tune", spec::TrainingTask::sft},
    {"full_finetuning", spec::TrainingTask::sft},
    {"full_sft", spec::TrainingTask::sft},
    {"supervised_fine_tuning", spec::TrainingTask::sft},
    {"peft", spec::TrainingTask::lora},
    {"qlora", spec::TrainingTask::lora},
    {"dora", spec::TrainingTask::lora}};
constexpr Spelling<const char*> kRoutings[] = {{"", "unknown"},
                                               {"unknown", "unknown"},
                                               {"force_balanced", "forced_balance"},
                                               {"forced_balanced", "forced_balance"},
                                               {"natural", "natural"},
                                               {"forced_balance", "forced_balance"},
                                               {"force_balance", "forced_balance"},
                                               {"forced", "forced_balance"},
                                               {"force_load_balancing", "forced_balance"}};
constexpr Spelling<spec::OptimizerKind> kOptimizers[] = {{"adamw", spec::OptimizerKind::adam},
                                                         {"fused_adam", spec::OptimizerKind::adam},
                                                         {"dist_muon", spec::OptimizerKind::muon}};
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

/// What the words of a precision say; several are a sum.
enum PrecisionBit {
  kSays16 = 1,
  kSaysHalf = 2,
  kSays32 = 4,
  kSays8 = 8,
  kSays4 = 16,
  kScaledAsNv = 32,
  kScaledAsMx = 64,
  kScaledByTensor = 128,
  kScaledByHistory = 256,
  kScaledByBlock = 512,
};
constexpr int kAnyScale = kScaledAsMx | kScaledByTensor | kScaledByHistory | kScaledByBlock;
constexpr spec::JoinedWord kPrecisionWords[] = {
    {"bf16", kSays16},
    {"bfloat16", kSays16},
    {"fp16", kSaysHalf},
    {"float16", kSaysHalf},
    {"half", kSaysHalf},
    {"fp32", kSays32},
    {"float32", kSays32},
    {"fp8", kSays8},
    {"float8", kSays8},
    {"fp4", kSays4},
    {"float4", kSays4},
    {"nv", kScaledAsNv},
    {"mx", kScaledAsMx},
    {"current", kScaledByTensor},
    {"cs", kScaledByTensor},
    {"tensorwise", kScaledByTensor},
    {"pertensor", kScaledByTensor},
    {"delayed", kScaledByHistory},
    {"ds", kScaledByHistory},
    {"blockwise", kScaledByBlock},
    {"block", kScaledByBlock},
    {"blocks", kScaledByBlock},
    {"128x128", kScaledByBlock},
    {"subchannel", kScaledByBlock},
    {"sc", kScaledByBlock},
    // How it is said, and the formats of FP8 and FP4.
    {"torch", 0},
    {"mixed", 0},
    {"with", 0},
    {"and", 0},
    {"precision", 0},
    {"training", 0},
    {"recipe", 0},
    {"scaling", 0},
    {"scaled", 0},
    {"hybrid", 0},
    {"e4m3", 0},
    {"e5m2", 0},
    {"e2m1", 0},
};

/// The sum of what the words say; 0 where there are others.
template <size_t N>
int said_by(std::string_view text, const spec::JoinedWord (&table)[N]) {
  int bits = 0;
  for (const int meaning : spec::meanings_in(text, table).value_or(std::vector<int>{})) {
    bits |= meaning;
  }
  return bits;
}

enum DispatcherBit {
  kSaysAllToAll = 1,
  kSaysAllGather = 2,
  kSaysDeep = 4,
  kSaysHybrid = 8,
  kSaysFlex = 16
};
constexpr spec::JoinedWord kDispatcherWords[] = {
    {"alltoall", kSaysAllToAll},
    {"a2a", kSaysAllToAll},
    {"allgather", kSaysAllGather},
    {"deepep", kSaysDeep},
    {"hybridep", kSaysHybrid},
    {"flex", kSaysFlex},
    // How it is said.
    {"nccl", 0},
    {"moe", 0},
    {"token", 0},
    {"dispatcher", 0},
    {"backend", 0},
    {"with", 0},
    {"v1", 0},
    {"v2", 0},
};

/// The number behind a word, after blanks and the like. A dash is a sign where a blank, a bracket
/// or nothing is before it, as in "rank -1", and not in "rank-1".
std::optional<int64_t> signed_number_behind(std::string_view text) {
  constexpr std::string_view kBetween = " \t_#=:(";
  const size_t first = text.find_first_not_of(kBetween);
  if (first == std::string_view::npos) return std::nullopt;
  const bool has_dash = text[first] == '-';
  const bool is_negative = has_dash && first > 0;
  text.remove_prefix(has_dash ? first + 1 : first);
  int64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || value < 0) return std::nullopt;
  return is_negative ? -value : value;
}

/// The one of `count` with this number, from the end where it is below 0.
std::optional<int64_t> one_of(int64_t number, int64_t count) {
  if (number < -count || number >= count) return std::nullopt;
  return number < 0 ? number + count : number;
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

std::string shown_of_row(std::string_view text) {
  constexpr size_t kMost = 120;
  return base::one_line(base::shortened(text, kMost));
}

std::string row_word_shown(std::string_view text) {
  constexpr size_t kMost = 40;
  size_t length = std::min(text.size(), kMost);
  // Not within a character of several bytes: the rest of it would be no UTF-8.
  const auto goes_on = [&](size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
  };
  while (length > 0 && goes_on(length)) --length;
  return fmt::format("'{}'", text.substr(0, length));
}

bool is_none_word(std::string_view text) {
  const std::string word = plain_word(text);
  return word.empty() || word == "none" || word == "no" || word == "off" || word == "false";
}

bool is_unknown_word(std::string_view text) {
  constexpr std::string_view kUnknown[] = {
      "",         "unknown",     "unclear",   "not_stated", "not_specified",
      "unstated", "unspecified", "not_known", "n/a"};
  return std::ranges::find(kUnknown, plain_word(text)) != std::end(kUnknown);
}

std::optional<bool> switch_word(std::string_view text) {
  const std::string word = plain_word(text);
  if (word == "true" || word == "yes" || word == "on" || word == "1") return true;
  if (word == "false" || word == "no" || word == "off" || word == "0") return false;
  return std::nullopt;
}

std::optional<spec::StateType> state_word(std::string_view text) {
  return meaning_of(text, kStates);
}
std::optional<spec::PrecisionRecipe> precision_word(std::string_view text) {
  using enum spec::PrecisionRecipe;
  int bits = said_by(text, kPrecisionWords);
  if ((bits & kSays4) != 0) {
    const bool is_other = (bits & (kSays8 | (kAnyScale & ~kScaledByBlock))) != 0;
    return is_other ? std::nullopt : std::optional(nvfp4);
  }
  if ((bits & kSays8) != 0) {
    if ((bits & kScaledAsMx) != 0) bits &= ~kScaledByBlock;  // its blocks are small ones
    switch (bits & (kAnyScale | kScaledAsNv)) {
      case 0:
      case kScaledByTensor:
        return fp8_current;
      case kScaledByHistory:
        return fp8_delayed;
      case kScaledByBlock:
        return fp8_blockwise;
      case kScaledAsMx:
        return mxfp8;
      default:
        return std::nullopt;
    }
  }
  switch (bits) {
    case kSays16:
      return bf16;
    case kSaysHalf:
      return fp16;
    case kSays32:
      return fp32;
    default:
      return std::nullopt;
  }
}
bool leaves_scaling_open(std::string_view text) {
  const int bits = said_by(text, kPrecisionWords);
  return (bits & kSays8) != 0 && (bits & kAnyScale) == 0;
}
std::optional<spec::TrainingTask> task_word(std::string_view text) {
  return meaning_of(text, kTasks);
}
std::string_view unpriced_in_task(std::string_view text) {
  const std::string word = plain_word(text);
  if (word == "qlora") return "that frozen weights have 4 bits";
  if (word == "dora") return "that lengths of rows are trained";
  return {};
}
std::optional<std::string> routing_word(std::string_view text) {
  const std::string word = plain_word(text);
  for (const Spelling<const char*>& spelling : kRoutings) {
    if (spelling.word == word) return spelling.value;
  }
  return std::nullopt;
}
std::optional<spec::OptimizerKind> optimizer_word(std::string_view text) {
  return meaning_of(text, kOptimizers);
}
std::optional<spec::PlanGraph> graph_word(std::string_view text) {
  return meaning_of(text, kGraphs);
}

std::optional<spec::Dispatcher> dispatcher_word(std::string_view text, std::string_view backend) {
  using enum spec::Dispatcher;
  const int bits = said_by(text, kDispatcherWords);
  switch (bits) {
    case kSaysAllToAll:
      return alltoall;
    case kSaysAllGather:
      return allgather;
    case kSaysDeep:
    case kSaysDeep | kSaysFlex:
      return deepep;
    case kSaysHybrid:
    case kSaysHybrid | kSaysFlex:
      return hybridep;
    case kSaysFlex:
      return backend.empty() ? deepep : dispatcher_word(backend, {});
    default:
      return std::nullopt;
  }
}
bool leaves_backend_open(std::string_view text) {
  return said_by(text, kDispatcherWords) == kSaysFlex;
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
  if (is_none_word(word) || is_unknown_word(word) || names("max") || names("worst")) {
    return kWorstStage;
  }
  if (names("last")) return pp - 1;
  if (names("first")) return 0;
  // A dash before a digit stays, since it may be a sign.
  std::string small(text);
  for (size_t i = 0; i < small.size(); ++i) {
    char& c = small[i];
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const bool is_before_digit = i + 1 < small.size() && small[i + 1] >= '0' && small[i + 1] <= '9';
    if (c == '_' || (c == '-' && !is_before_digit)) c = ' ';
  }
  const auto found = [&](int64_t number, bool is_stage) -> std::optional<int> {
    const auto one = one_of(number, is_stage ? pp : ranks_per_stage * pp);
    if (!one) return std::nullopt;
    return static_cast<int>(is_stage ? *one : *one / ranks_per_stage);
  };
  struct Counted {
    std::string_view behind;
    bool is_stage;
  };
  constexpr Counted kCounted[] = {{"stage", true},
                                  {"pp rank", true},
                                  {"pipeline rank", true},
                                  {"pipeline parallel rank", true},
                                  {"pipeline model parallel rank", true},
                                  {"rank", false},
                                  {"pp", true}};
  for (const Counted& counted : kCounted) {
    const size_t at = small.find(counted.behind);
    if (at == std::string::npos) continue;
    // Of the ranks of another axis every stage has some.
    const std::string_view before = std::string_view(small).substr(0, at);
    for (const std::string_view axis :
         {"tp ", "cp ", "dp ", "ep ", "tensor parallel ", "tensor model parallel ",
          "context parallel ", "data parallel ", "expert parallel "}) {
      if (before.ends_with(axis)) return std::nullopt;
    }
    const auto number =
        signed_number_behind(std::string_view(small).substr(at + counted.behind.size()));
    if (number) return found(*number, counted.is_stage);
  }
  // A number by itself: a blank before it makes its dash a sign.
  const auto number = signed_number_behind(" " + small);
  return number ? found(*number, false) : std::nullopt;
}

}  // namespace moetune::sweeps
