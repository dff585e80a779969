// Words of rows that other people write: the spellings of one thing that are met, and what they
// mean. A word that is not known is no value: the row then says what was taken instead.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/spec/plan_knobs.h"

namespace moetune::sweeps {

/// "torch.BFloat16" as "bfloat16", " ZeRO-3" as "zero_3": small letters, underscores for dashes
/// and blanks, none at the ends, without the name of the library.
std::string plain_word(std::string_view text);
/// In quotes, at most 40 bytes of it.
std::string row_word_shown(std::string_view text);
/// A text of a row as answers show it: rows are somebody's, and may be long.
std::string shown_of_row(std::string_view text);
/// Whether it says that there is none: empty, none, no, off, false.
bool is_none_word(std::string_view text);
/// Whether it says that nothing is known: empty, unknown, not stated, unspecified, n/a.
bool is_unknown_word(std::string_view text);
/// A switch as people write it: true, yes, on, 1, or false, no, off, 0.
std::optional<bool> switch_word(std::string_view text);

std::optional<spec::StateType> state_word(std::string_view text);
/// A type and how it is scaled, in words of any order: "fp8-hybrid", "FP8 (sub-channel scaling)",
/// "bf16_with_mxfp8_mixed". FP8 without a stated scaling means one scale for each tensor.
std::optional<spec::PrecisionRecipe> precision_word(std::string_view text);
/// Whether it is FP8 and leaves the scaling open.
bool leaves_scaling_open(std::string_view text);
std::optional<spec::TrainingTask> task_word(std::string_view text);
/// What of such a task has no price beside that of its kind; empty: nothing.
std::string_view unpriced_in_task(std::string_view text);
/// forced_balance, natural or unknown, which no text is.
std::optional<std::string> routing_word(std::string_view text);
std::optional<spec::OptimizerKind> optimizer_word(std::string_view text);
/// "flex" is Megatron's dispatcher with `backend`, by default DeepEP, unless the text has the
/// backend itself: "flex (HybridEP)".
std::optional<spec::Dispatcher> dispatcher_word(std::string_view text, std::string_view backend);
/// Whether the text is flex and does not say with which backend.
bool leaves_backend_open(std::string_view text);
std::optional<spec::PlanGraph> graph_word(std::string_view text);

/// What is sharded, according to `fsdp` and `fsdp_sharding`.
struct ShardingWord {
  spec::Fsdp fsdp = spec::Fsdp::none;
  std::optional<bool> distributed_optimizer;  ///< empty: as the optimizer's own setting
  bool shards_gradients = false;              ///< without weights (ZeRO-2), which is not priced
};
std::optional<ShardingWord> fsdp_word(std::string_view text);
/// Sharding by FSDP of this kind. Words: Megatron's no_shard, optim, optim_grads,
/// optim_grads_params.
std::optional<ShardingWord> fsdp_sharding_word(std::string_view text, spec::Fsdp kind);

constexpr int kWorstStage = -1;
/// Pipeline stage of `memory_rank`: "rank 3", "first pipeline stage", "last rank (...)", "stage 2",
/// "pp rank 2", or kWorstStage for "max over ranks" and where it is not stated. Numbers below 0
/// count from the end: "rank -1" is the last one. Ranks of a stage are neighbours, as Megatron
/// places them. No value: not known, or there is no such rank.
std::optional<int> stage_word(std::string_view text, int64_t ranks_per_stage, int pp);

}  // namespace moetune::sweeps
