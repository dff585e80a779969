// A trial's configuration as flags of Megatron-LM, so that what was found here can be pasted into
// the command line that trains there. Spelled as in Megatron-LM's main branch of 22 August 2026.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/trial_spec.h"

namespace moetune::spec {

/// One flag and what follows it; without values it is a switch.
struct MegatronFlag {
  std::string group;  ///< model, batch, or the group of the knob: flags of one are printed together
  std::string name;   ///< "--micro-batch-size"
  std::vector<std::string> values;
};

struct MegatronFlags {
  std::vector<MegatronFlag> flags;  ///< by group
  /// What Megatron cannot be told, one sentence each: "no flag in Megatron: ep_chunks_forward=2".
  std::vector<std::string> notes;
};

/// The knobs, the batch and the sizes of the model. What moetune does not decide (norms, rotary
/// embedding, vocabulary, learning rate, data) is left to the script that the flags go into.
/// `world_size`: number of ranks.
MegatronFlags megatron_flags(const ModelSpec& model, const TrainingSpec& training, DType dtype,
                             const Knobs& knobs, int64_t world_size);
/// Of a miniature: with the sizes and the batch of what it stands for, notes that name the flags
/// that were tuned on the miniature, and the rules that they would break there.
MegatronFlags megatron_flags(const TrialSpec& trial);

/// Whether Megatron-LM has a flag that says just this (the row's megatron_flag is its name, or
/// several by commas); else megatron_flag is "none" with the reason.
bool has_megatron_flag(const KnobRow& row);

/// Megatron-LM's names of values; that of full is empty, as it is a granularity there.
std::string_view megatron_name(RecomputeModule module);
std::string_view megatron_name(CpCommType type);

/// The words of a command line, unquoted: "--tp", "2", ...
std::vector<std::string> words_of(const MegatronFlags& flags);

/// The flags as shell text of at most 100 columns that goes behind a command as it is: every line
/// but the last flag's ends in a backslash; the notes come behind them as comments, which may have
/// 120.
std::string shell_block(const MegatronFlags& flags);

}  // namespace moetune::spec
