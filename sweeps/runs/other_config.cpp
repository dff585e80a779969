#include "sweeps/runs/other_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/spec/dialects/concepts.h"
#include "sweeps/runs/echoed_config.h"
#include "sweeps/runs/token_rate.h"

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

/// What both say, and say differently.
struct Contradiction {
  std::string words;  ///< "ep 32 where the log says 2"
  /// It may have been said anew at the start: how many ranks there are, and how much they take.
  bool is_of_start = false;
  /// Has the log's value count; false where that does not fit. Empty: the run is another one.
  std::function<bool(RunConfig&)> take_logged;
};

/// Files whose settings the command that starts them may say anew.
bool is_file_below_command(const RunConfig& config) {
  return config.dialect == Dialect::torchtitan || config.dialect == Dialect::primus;
}

/// `ranks`: of the log; none: those of the configuration.
bool take_knob(int32_t spec::PlanKnobs::*knob, int64_t size, std::optional<int64_t> ranks,
               RunConfig& config) {
  constexpr int64_t kMost = 1 << 20;
  if (size > kMost) return false;
  RunConfig taken = config;
  taken.knobs.*knob = static_cast<int32_t>(size);
  if (knob == &spec::PlanKnobs::tp && config.is_etp_derived) taken.knobs.etp = taken.knobs.tp;
  const int64_t world = ranks.value_or(taken.world_size);
  if (world > 0 && !take_world_size(world, taken)) return false;
  config = std::move(taken);
  return true;
}

class Comparison {
 public:
  Comparison(const RunConfig& config, const RunFacts& facts) : config_(config), facts_(facts) {}

  std::vector<Contradiction> all() {
    if (is_of_other_framework(config_, facts_)) {
      found_.push_back({fmt::format("settings of {} where the log is of {}",
                                    dialects::dialect_row(config_.dialect).title,
                                    spec::name_of(facts_.framework)),
                        false,
                        {}});
      return std::move(found_);
    }
    compare_ranks();
    compare_layout();
    compare_batches();
    compare_model();
    return std::move(found_);
  }

 private:
  using Take = std::function<bool(RunConfig&, int64_t)>;

  [[nodiscard]] Take take_of(int32_t spec::PlanKnobs::*knob) const {
    return [knob, ranks = facts_.world_size](RunConfig& config, int64_t size) {
      return take_knob(knob, size, ranks, config);
    };
  }
  static std::optional<int64_t> said(int64_t size) {
    return size > 0 ? std::optional(size) : std::nullopt;
  }

  /// `take`: of the configuration and the log's value.
  void compare(const char* name, std::optional<int64_t> configured, std::optional<int64_t> logged,
               bool is_of_start, Take take = {}) {
    if (!configured || !logged || *configured == *logged) return;
    Contradiction found{
        fmt::format("{} {} where the log says {}", name, *configured, *logged), is_of_start, {}};
    constexpr int64_t kMost = 1 << 30;
    if (take && *logged <= kMost) {
      found.take_logged = [take = std::move(take), size = *logged](RunConfig& config) {
        return take(config, size);
      };
    }
    found_.push_back(std::move(found));
  }

  void compare_ranks() {
    compare("ranks", said(config_.stated_world_size), facts_.world_size, true,
            [](RunConfig& config, int64_t ranks) {
              if (!take_world_size(ranks, config)) return false;
              config.stated_world_size = ranks;
              return true;
            });
  }

  void compare_layout() {
    for (const ParallelSizeRow& row : parallel_sizes()) {
      if (row.knob == nullptr) continue;
      const int32_t size = config_.knobs.*row.knob;
      const std::optional<int64_t> logged = logged_size(facts_, row);
      // What follows from others, which may not be known on one side.
      const bool is_etp = row.knob == &spec::PlanKnobs::etp;
      const bool is_vpp = row.knob == &spec::PlanKnobs::vpp;
      if (is_etp && (config_.is_etp_derived || (facts_.config && facts_.config->is_etp_derived))) {
        continue;
      }
      if (is_vpp && (size == 1 || logged.value_or(1) == 1)) continue;
      compare(row.name, configured_size(config_, size, row.name), logged,
              is_file_below_command(config_), take_of(row.knob));
    }
  }

  void compare_batches() {
    constexpr std::string_view kMicroBatch = "micro_batch_size";
    const bool is_echoed =
        facts_.micro_batch_size &&
        (!facts_.config || is_stated(*facts_.config, *facts_.micro_batch_size, kMicroBatch));
    if (is_echoed) {
      compare("micro-batch", configured_size(config_, config_.knobs.micro_batch_size, kMicroBatch),
              facts_.micro_batch_size, true, take_of(&spec::PlanKnobs::micro_batch_size));
    }
    if (!config_.is_batch_derived && !has_growing_batch(config_, facts_)) {
      compare("global batch", said(config_.global_batch_size), facts_.global_batch_size, true,
              [](RunConfig& config, int64_t sequences) {
                config.global_batch_size = sequences;
                return true;
              });
    }
    // Megatron-DeepSpeed's curriculum has sequences of many lengths.
    if (facts_.framework == Framework::deepspeed) return;
    compare("sequence", said(config_.seq_length), facts_.seq_length, is_file_below_command(config_),
            [](RunConfig& config, int64_t tokens) {
              config.seq_length = tokens;
              return true;
            });
  }

  void compare_model() {
    if (!facts_.config) return;
    for (const ModelSize& row : kModelSizes) {
      compare(row.name, model_size(config_, row.key), model_size(*facts_.config, row.key), false);
    }
  }

  const RunConfig& config_;
  const RunFacts& facts_;
  std::vector<Contradiction> found_;
};

std::string joined(const std::vector<Contradiction>& all) {
  std::vector<std::string> words;
  for (const Contradiction& one : all) words.push_back(one.words);
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

std::vector<std::string> contradictions(const RunConfig& config, const RunFacts& facts) {
  std::vector<std::string> words;
  for (Contradiction& one : Comparison(config, facts).all()) words.push_back(std::move(one.words));
  return words;
}

std::string of_other_run(const std::string& source, const RunFacts& facts, RunConfig& config,
                         std::vector<std::string>& notes) {
  const std::vector<Contradiction> all = Comparison(config, facts).all();
  if (all.empty()) return {};
  const Contradiction& first = all.front();
  if (all.size() == 1 && first.is_of_start && first.take_logged && first.take_logged(config)) {
    notes.push_back(fmt::format("{} says {}: the log counts, and the rest of {} is used", source,
                                first.words, source));
    return {};
  }
  return fmt::format("{} is of another run than {}: it says {}; the log counts, and {} is not used",
                     source, facts.files.empty() ? "the log" : facts.files.front(), joined(all),
                     source);
}

bool take_world_size(int64_t world_size, RunConfig& config) {
  spec::PlanKnobs knobs = config.knobs;
  if (!spec::set_dp_for(world_size, knobs)) return false;
  config.knobs = knobs;
  config.world_size = world_size;
  if (config.is_batch_derived) {
    config.global_batch_size = int64_t{knobs.micro_batch_size} * knobs.dp;
  }
  return true;
}

}  // namespace moetune::sweeps
