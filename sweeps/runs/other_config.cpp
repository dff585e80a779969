#include "sweeps/runs/other_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "engine/spec/dialects/concepts.h"
#include "sweeps/runs/echoed_config.h"

namespace moetune::sweeps {
namespace {

namespace dialects = spec::dialects;
using dialects::Dialect;
using dialects::RunConfig;

/// Whether a size is more than what holds where nobody says it.
bool is_stated(const RunConfig& config, int64_t size, std::string_view row) {
  return size != 1 || dialects::is_said(config, dialects::row_of(row));
}

/// A size as the log has it: in a line of its own, or in a configuration that it echoes.
std::optional<int64_t> logged_size(const RunFacts& facts, const ParallelSizeRow& row) {
  const std::optional<int64_t> size = facts.parallel.*row.size;
  if (!size) return std::nullopt;
  const bool has_line = row.named != nullptr && facts.named.*row.named > 0;
  const bool is_echoed = facts.config && is_stated(*facts.config, *size, row.name);
  return has_line || is_echoed ? size : std::nullopt;
}

/// A size as a configuration has it; none where it may stand in a recipe.
std::optional<int64_t> configured_size(const RunConfig& config, int32_t size,
                                       std::string_view row) {
  const bool is_known = is_stated(config, size, row) || !dialects::may_stand_elsewhere(config);
  return is_known ? std::optional<int64_t>(size) : std::nullopt;
}

/// Whether the batch grows while the run goes on: a log has that of its last step.
bool has_growing_batch(const RunConfig& config, const RunFacts& facts) {
  constexpr std::array<std::string_view, 2> kWords = {"rampup", "batch_size_schedule"};
  const auto grows = [&](std::string key, std::string_view value) {
    std::ranges::replace(key, '-', '_');
    return value != "None" && std::ranges::any_of(kWords, [&](std::string_view word) {
             return key.find(word) != std::string::npos;
           });
  };
  return std::ranges::any_of(config.stated,
                             [&](const auto& said) { return grows(said.key, said.value); }) ||
         std::ranges::any_of(facts.echoed.settings,
                             [&](const auto& said) { return grows(said.key, said.value); });
}

/// Megatron-LM's lines are those of Megatron-Bridge and Primus as well; torchtitan's are not.
bool is_of_other_framework(const RunConfig& config, const RunFacts& facts) {
  const auto logged = dialect_of(facts.framework);
  if (!logged || logged == Dialect::primus || config.dialect == Dialect::primus) return false;
  return (logged == Dialect::torchtitan) != (config.dialect == Dialect::torchtitan);
}

struct ModelSize {
  const char* key;  ///< in a config.json
  const char* name;
};
/// Those that go by one name in all families.
constexpr std::array kModelSizes = {
    ModelSize{"num_hidden_layers", "layers"},
    ModelSize{"hidden_size", "hidden size"},
    ModelSize{"num_attention_heads", "heads"},
    ModelSize{"num_experts", "experts"},
    ModelSize{"num_experts_per_tok", "experts for each token"},
};

std::optional<int64_t> model_size(const RunConfig& config, const char* key) {
  const auto found = config.model.find(key);
  const bool is_size = found != config.model.end() && found->is_number_integer();
  return is_size ? std::optional(found->get<int64_t>()) : std::nullopt;
}

}  // namespace

std::vector<std::string> contradictions(const RunConfig& config, const RunFacts& facts) {
  std::vector<std::string> words;
  const auto compare = [&](const char* name, std::optional<int64_t> configured,
                           std::optional<int64_t> logged) {
    if (!configured || !logged || *configured == *logged) return;
    words.push_back(fmt::format("{} {} where the log says {}", name, *configured, *logged));
  };
  const auto said = [](int64_t size) { return size > 0 ? std::optional(size) : std::nullopt; };
  if (is_of_other_framework(config, facts)) {
    words.push_back(fmt::format("settings of {} where the log is of {}",
                                dialects::dialect_row(config.dialect).title,
                                spec::name_of(facts.framework)));
    return words;
  }
  compare("ranks", said(config.stated_world_size), facts.world_size);
  for (const ParallelSizeRow& row : parallel_sizes()) {
    if (row.knob == nullptr) continue;
    const int32_t size = config.knobs.*row.knob;
    const std::optional<int64_t> logged = logged_size(facts, row);
    // What follows from others, which may not be known on one side.
    const bool is_etp = row.knob == &spec::PlanKnobs::etp;
    const bool is_vpp = row.knob == &spec::PlanKnobs::vpp;
    if (is_etp && (config.is_etp_derived || (facts.config && facts.config->is_etp_derived))) {
      continue;
    }
    if (is_vpp && (size == 1 || logged.value_or(1) == 1)) continue;
    compare(row.name, configured_size(config, size, row.name), logged);
  }
  constexpr std::string_view kMicroBatch = "micro_batch_size";
  const bool is_echoed =
      facts.micro_batch_size &&
      (!facts.config || is_stated(*facts.config, *facts.micro_batch_size, kMicroBatch));
  if (is_echoed) {
    compare("micro-batch", configured_size(config, config.knobs.micro_batch_size, kMicroBatch),
            facts.micro_batch_size);
  }
  if (!config.is_batch_derived && !has_growing_batch(config, facts)) {
    compare("global batch", said(config.global_batch_size), facts.global_batch_size);
  }
  // Megatron-DeepSpeed's curriculum has sequences of many lengths.
  if (facts.framework != Framework::deepspeed) {
    compare("sequence", said(config.seq_length), facts.seq_length);
  }
  if (!facts.config) return words;
  for (const ModelSize& row : kModelSizes) {
    compare(row.name, model_size(config, row.key), model_size(*facts.config, row.key));
  }
  return words;
}

std::string of_other_run(const RunConfig& config, const std::string& source,
                         const RunFacts& facts) {
  const std::vector<std::string> words = contradictions(config, facts);
  if (words.empty()) return {};
  return fmt::format("{} is of another run than {}: it says {}; the log counts, and {} is not used",
                     source, facts.files.empty() ? "the log" : facts.files.front(),
                     fmt::join(words, ", "), source);
}

}  // namespace moetune::sweeps
