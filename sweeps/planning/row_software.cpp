#include "sweeps/planning/row_software.h"

#include <string>

namespace moetune::sweeps {

namespace {

struct SoftwareWord {
  std::string_view word;  ///< small letters and digits alone
  EngineOfSoftware engine;
};

constexpr auto kCore = EngineOfSoftware::megatron_core;
constexpr auto kOther = EngineOfSoftware::other;

/// The first whose word is in the name counts, so that what goes by two of them stands in front:
/// NeMo has both kinds, DeepSpeed a fork of Megatron-LM from before Megatron-Core, and verl trains
/// with FSDP where it does not say Megatron.
constexpr SoftwareWord kSoftware[] = {
    {"automodel", kOther},    {"deepspeed", kOther},    {"gptneox", kOther},
    {"megatron", kCore},      {"mcore", kCore},         {"nemo", kCore},
    {"primus", kCore},        {"mlperf", kCore},        {"flagscale", kCore},
    {"mindspeed", kCore},     {"torchtitan", kOther},   {"nanotron", kOther},
    {"lightning", kOther},    {"accelerate", kOther},   {"huggingface", kOther},
    {"transformers", kOther}, {"torchtune", kOther},    {"litgpt", kOther},
    {"axolotl", kOther},      {"llamafactory", kOther}, {"unsloth", kOther},
    {"llmfoundry", kOther},   {"composer", kOther},     {"olmo", kOther},
    {"colossalai", kOther},   {"veomni", kOther},       {"vescale", kOther},
    {"internevo", kOther},    {"paddle", kOther},       {"maxtext", kOther},
    {"verl", kOther},         {"fsdp", kOther},         {"pytorch", kOther},
};

/// The small letters and the digits of a name.
std::string letters_of(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z') {
      letters += static_cast<char>(c - 'A' + 'a');
    } else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      letters += c;
    }
  }
  return letters;
}

}  // namespace

EngineOfSoftware engine_of_software(std::string_view name) {
  const std::string letters = letters_of(name);
  for (const SoftwareWord& row : kSoftware) {
    if (letters.find(row.word) != std::string::npos) return row.engine;
  }
  return EngineOfSoftware::unknown;
}

bool is_megatron_bridge(std::string_view name) {
  return letters_of(name).find("megatronbridge") != std::string::npos;
}

}  // namespace moetune::sweeps
