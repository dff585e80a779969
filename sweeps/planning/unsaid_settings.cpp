#include "sweeps/planning/unsaid_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/spec/dialects/concepts.h"
#include "kernels/base/error.h"
#include "tuner/planner/rules.h"

namespace moetune::sweeps {

namespace {

namespace dialects = spec::dialects;
namespace planner = tuner::planner;
using planner::PlanRun;

/// A knob, and the row of the table whose setting says it.
struct SaidBy {
  const char* knob;
  const char* row;
};

std::string key_in(const dialects::RunConfig& config, const char* row) {
  return dialects::key_of(dialects::row_of(row), config.dialect);
}

/// By one setting, or by the fields of one, as those of "mixed_precision".
bool says_row(const dialects::RunConfig& config, const char* row) {
  const std::string fields = key_in(config, row) + ".";
  return dialects::is_said(config, dialects::row_of(row)) ||
         std::ranges::any_of(config.stated, [&](const dialects::StatedSetting& setting) {
           return setting.key.starts_with(fields);
         });
}

/// What moves the figures of most runs.
constexpr std::array kChoices = {
    SaidBy{"tp", "tp"},
    SaidBy{"sequence_parallel", "sequence_parallel"},
    SaidBy{"cp", "cp"},
    SaidBy{"pp", "pp"},
    SaidBy{"vpp", "num_virtual_stages_per_pipeline_rank"},
    SaidBy{"ep", "ep"},
    SaidBy{"etp", "etp"},
    SaidBy{"micro_batch_size", "micro_batch_size"},
    SaidBy{"precision", "mixed_precision"},
    SaidBy{"dispatcher", "moe_token_dispatcher_type"},
    SaidBy{"recompute", "recompute_granularity"},
    SaidBy{"cuda_graphs", "cuda_graph_impl"},
    SaidBy{"fsdp", "use_megatron_fsdp"},
};

/// Whether a knob means nothing beside the others: all its values are one run.
bool is_without_effect(std::string_view knob, const PlanRun& run) {
  if (knob == "sequence_parallel" || knob == "etp") return run.knobs.tp == 1;
  return knob == "vpp" && run.knobs.pp == 1;
}

/// A value that mends rules, where it is not said.
struct Mend {
  SaidBy choice;
  const char* value;
};
constexpr std::array kMends = {
    Mend{{"sequence_parallel", "sequence_parallel"}, "true"},
    Mend{{"etp", "etp"}, "1"},
    Mend{{"cp_comm_type", "cp_comm_type"}, "a2a"},
    Mend{{"cp_comm_type", "cp_comm_type"}, "all_gather"},
    Mend{{"dispatcher", "moe_token_dispatcher_type"}, "alltoall"},
    Mend{{"overlap_moe_expert_parallel_comm", "overlap_moe_expert_parallel_comm"}, "true"},
    Mend{{"precision_aware_optimizer", "precision_aware_optimizer"}, "true"},
    Mend{{"vpp", "num_virtual_stages_per_pipeline_rank"}, "2"},
};
/// Sizes that may mend them, too, and that nobody can guess.
constexpr std::array kSizes = {SaidBy{"ep", "ep"}, SaidBy{"pp", "pp"}, SaidBy{"tp", "tp"},
                               SaidBy{"cp", "cp"}};

PlanRun with_knob(const PlanRun& run, const char* knob, std::string_view value) {
  PlanRun other = run;
  spec::set_plan_knob(other.knobs, *spec::find_plan_knob(knob), value);
  return other;
}

bool mends(const planner::PlanRule& rule, const PlanRun& broken, const PlanRun& run) {
  return rule.holds(run) && !planner::breaks_more(run, broken);
}

/// The run as it keeps the rule, by one choice of which `may_change` is true.
template <class MayChange>
std::optional<PlanRun> mended(const planner::PlanRule& rule, const dialects::RunConfig& config,
                              const PlanRun& run, const MayChange& may_change) {
  // Of a batch that is not said each stage of a pipeline has one micro-batch.
  std::vector<int64_t> batches = {run.global_batch_size};
  if (config.global_batch_size == 0) batches.push_back(run.global_batch_size * run.knobs.pp);
  for (const int64_t batch : batches) {
    PlanRun plain = run;
    plain.global_batch_size = batch;
    if (mends(rule, run, plain)) return plain;
    for (const Mend& mend : kMends) {
      if (key_in(config, mend.choice.row).empty() || !may_change(mend.choice.row)) continue;
      PlanRun other = with_knob(plain, mend.choice.knob, mend.value);
      if (mends(rule, run, other)) return other;
    }
  }
  return std::nullopt;
}

/// What `run` says otherwise than `before`, in the words of the dialect.
std::string words_between(const dialects::RunConfig& config, const PlanRun& before,
                          const PlanRun& run) {
  dialects::RunConfig from = config;
  from.knobs = before.knobs;
  dialects::RunConfig to = config;
  to.knobs = run.knobs;
  if (run.global_batch_size != before.global_batch_size) {
    to.global_batch_size = run.global_batch_size;
  }
  std::vector<std::string> words;
  for (const dialects::SettingChange& change :
       dialects::changed_settings(from, to, config.dialect)) {
    words.push_back(dialects::text_of(change, config.dialect));
  }
  return fmt::format("{}", fmt::join(words, " "));
}

/// Keys of sizes that are not said, of which some value keeps the rule.
std::vector<std::string> open_sizes(const planner::PlanRule& rule,
                                    const dialects::RunConfig& config, const PlanRun& run) {
  std::vector<std::string> keys;
  for (const SaidBy& size : kSizes) {
    if (says_row(config, size.row)) continue;
    for (int64_t value = 2; value <= run.hardware->num_devices(); value *= 2) {
      PlanRun other = with_knob(run, size.knob, std::to_string(value));
      if (!spec::set_dp_for(run.hardware->num_devices(), other.knobs)) continue;
      if (!mends(rule, run, other)) continue;
      keys.push_back(key_in(config, size.row));
      break;
    }
  }
  return keys;
}

[[noreturn]] void refuse_broken(const planner::PlanRule& rule, const dialects::RunConfig& config,
                                const PlanRun& run) {
  std::string text = fmt::format("{}: {}", rule.name, rule.message(run));
  const std::vector<std::string> sizes = dialects::may_stand_elsewhere(config)
                                             ? open_sizes(rule, config, run)
                                             : std::vector<std::string>();
  if (!sizes.empty()) {
    text += fmt::format("; what the run leaves to {} may mend it: say {}",
                        config.model_name.empty() ? "other files" : "its recipe",
                        fmt::join(sizes, " or "));
  } else if (const auto other = mended(rule, config, run, [](const char*) { return true; })) {
    const std::string words = words_between(config, run, *other);
    if (!words.empty()) text += fmt::format(" ({})", words);
  }
  throw base::UsageError(text);
}

}  // namespace

std::string left_to_recipe(const dialects::RunConfig& config, const PlanRun& run) {
  if (config.dialect != dialects::Dialect::megatron_bridge || config.is_echo) return "";
  std::vector<std::string> taken;
  for (const SaidBy& choice : kChoices) {
    const spec::PlanKnobRow& row = *spec::find_plan_knob(choice.knob);
    const bool is_of_others = row.is_of_experts && run.model->num_experts == 0;
    const std::string value = get_plan_knob(run.knobs, row);
    // What a rule asks for is told with the rule.
    const bool is_told = value != get_plan_knob(config.knobs, row);
    if (is_of_others || is_told || says_row(config, choice.row) ||
        is_without_effect(choice.knob, run)) {
      continue;
    }
    taken.push_back(fmt::format("{} {}", choice.knob, value));
  }
  const bool is_batch_told =
      run.global_batch_size != int64_t{run.knobs.micro_batch_size} * run.knobs.dp;
  if (config.global_batch_size == 0 && !is_batch_told) {
    taken.push_back(fmt::format("global batch {}", run.global_batch_size));
  }
  if (config.seq_length == 0) taken.push_back(fmt::format("sequence {}", run.seq_length));
  if (taken.empty()) return "";
  return fmt::format("{}: the run does not say, and no recipe is looked up",
                     fmt::join(taken, ", "));
}

void keep_rules(const dialects::RunConfig& config, PlanRun& run,
                std::vector<std::string>& assumed) {
  const bool may_stand_elsewhere = dialects::may_stand_elsewhere(config);
  // Each round leaves one rule fewer that is broken.
  while (const planner::PlanRule* rule = planner::broken_rule(run)) {
    const auto is_open = [&](const char* row) {
      return may_stand_elsewhere && !says_row(config, row);
    };
    std::optional<PlanRun> other = mended(*rule, config, run, is_open);
    if (!other || !may_stand_elsewhere) refuse_broken(*rule, config, run);
    assumed.push_back(fmt::format("{}, which the run does not say: {}",
                                  words_between(config, run, *other), rule->message(run)));
    run = std::move(*other);
  }
}

}  // namespace moetune::sweeps
