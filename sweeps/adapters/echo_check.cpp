#include "sweeps/adapters/echo_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/shell.h"
#include "engine/spec/dialects/values.h"
#include "engine/spec/plan_knobs.h"
#include "sweeps/adapters/engine_words.h"
#include "sweeps/adapters/shell_text.h"
#include "sweeps/runs/echoed_config.h"

namespace moetune::sweeps {
namespace {

namespace dialects = spec::dialects;

/// Without dashes and quotes, as a log's dump names it.
std::string plain_name(std::string name) {
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  std::ranges::replace(name, '-', '_');
  return name;
}
std::string plain_value(std::string value) {
  // Python prints lists and texts with marks around them.
  std::erase_if(
      value, [](char c) { return std::string_view("'\"[]\\").find(c) != std::string_view::npos; });
  std::ranges::transform(value, value.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return value.empty() ? "true" : value;
}

bool is_same_value(const std::string& asked, const std::string& echoed) {
  const std::string a = plain_value(asked);
  const std::string b = plain_value(echoed);
  if (a == b || (a == "false" && (b == "none" || b == "null"))) return true;
  char* end_a = nullptr;
  char* end_b = nullptr;
  const double x = std::strtod(a.c_str(), &end_a);
  const double y = std::strtod(b.c_str(), &end_b);
  return *end_a == '\0' && *end_b == '\0' && x == y;
}

/// A variable of the environment, which no configuration echoes.
constexpr std::string_view kMaxConnections = "cuda_device_max_connections";

/// Whether the log names the knob: all of them, or by the one setting that it is. A summary has
/// only what differs from defaults that depend on the recipe.
bool is_echoed(const std::string& knob, dialects::Dialect dialect, const RunFacts& facts) {
  if (facts.echoed.form != EchoedConfig::Form::bridge_summary) return true;
  return std::ranges::any_of(facts.echoed.settings, [&](const EchoedSetting& setting) {
    const dialects::Row* row = dialects::find_row(setting.key, dialect);
    return row != nullptr && row->name == knob;
  });
}

/// A size that makes a run another one.
struct RunSize {
  std::string_view row;   ///< of the dialects' tables
  std::string_view knob;  ///< the axis that sets it; empty: its row's name is its only one
  /// What holds in every dialect where it is not stated; empty: that depends.
  std::string_view unstated = {};
  /// What "None" in a log stands for; empty: nothing that could be compared.
  std::string_view none = {};
  /// Frameworks or recipes may choose it where it is not stated: then it is only noted.
  bool is_free_unstated = false;
};
constexpr std::string_view kVirtualStages = "num_virtual_stages_per_pipeline_rank";
constexpr std::array kRunSizes = {
    RunSize{"tp", "tp", "1"},
    RunSize{"pp", "pp", "1"},
    RunSize{kVirtualStages, "vpp", "1", "1"},
    RunSize{"num_layers_per_virtual_pipeline_stage", "vpp"},
    RunSize{"cp", "cp", "1"},
    RunSize{"ep", "ep", "1"},
    RunSize{"etp", "etp"},
    RunSize{"micro_batch_size", "micro_batch_size"},
    RunSize{"local_batch_size", "micro_batch_size"},
    RunSize{"global_batch_size", ""},
    RunSize{"sequences_per_step", ""},
    RunSize{"seq_length", ""},
    RunSize{"num_layers", ""},
    RunSize{"hidden_size", ""},
    RunSize{"num_experts", "", "", "0"},
    RunSize{"recompute_granularity", "recompute", "none", "none", true},
};

bool is_unset(const std::string& value) {
  const std::string plain = plain_value(value);
  return value.empty() || plain == "none" || plain == "null";
}

/// Also of "2_000", as files write it.
bool is_same_size(const std::string& asked, const std::string& echoed) {
  const std::optional<int64_t> size = dialects::parse_integer(asked);
  return is_same_value(asked, echoed) || (size && size == dialects::parse_integer(echoed));
}

/// What the command states of a row: by the row's own key before others; none: nothing.
std::optional<std::string> stated_of(const UserRun& run, const dialects::Row& row) {
  std::optional<std::string> other;
  for (const dialects::StatedSetting& setting : run.config.stated) {
    if (dialects::find_row(setting.key, *run.dialect) != &row || is_unset(setting.value)) continue;
    if (setting.key == dialects::key_of(row, *run.dialect)) return setting.value;
    other = setting.value;
  }
  return other;
}

/// The same of a log; "None" where none of its names has a value.
std::optional<std::string> echoed_of(const RunFacts& facts, const dialects::Row& row,
                                     dialects::Dialect dialect) {
  std::optional<std::string> found;
  for (const EchoedSetting& setting : facts.echoed.settings) {
    if (row_of_echoed(setting.key, facts.echoed.form, dialect) != &row) continue;
    const bool is_own = setting.key == dialects::key_of(row, dialect) || setting.key == row.name;
    if (is_unset(setting.value)) {
      if (!found) found = "None";
    } else if (is_own || !found || *found == "None") {
      found = setting.value;
      if (is_own) return found;
    }
  }
  return found;
}

bool has_axis_of(const UserRun& run, const RunSize& size, const dialects::Row& row) {
  return std::ranges::any_of(run.sweep.space, [&](const auto& axis) {
    return axis.first == size.knob || axis.first == row.name ||
           dialects::find_row(axis.first, *run.dialect) == &row;
  });
}

/// Whether trials say a size otherwise than the command, as it follows from an axis.
bool follows_an_axis(const UserRun& run, const RunSize& size) {
  if (size.knob == "vpp") return run.is_axis("pp");
  // torchtitan's batch of a rank is that of all stages.
  const bool has_stages = run.is_axis("pp") || run.config.knobs.pp > 1;
  return size.row == "local_batch_size" && has_stages;
}

/// Settings of commands that bring others with them.
constexpr std::array kBringers = {"--module", "--config", "--yaml-cfg", "--use-checkpoint-args",
                                  "--use-mp-args-from-checkpoint-args"};

/// Text that the shell fills in; a path is one value.
bool is_filled_in(const std::string& text) {
  return text.find('$') != std::string::npos && text.find('/') == std::string::npos;
}

/// Whether what the command does not state is stated nowhere else: by no recipe, no script of the
/// user's, no variable of the shell and no file that was not read.
bool states_all(const UserRun& run) {
  if (run.dialect == dialects::Dialect::megatron_bridge || run.config.is_partial) return false;
  const bool brings_more =
      std::ranges::any_of(run.config.stated, [](const dialects::StatedSetting& setting) {
        return is_filled_in(setting.value) ||
               std::ranges::find(kBringers, setting.key) != kBringers.end();
      });
  if (brings_more) return false;
  if (!run.engine().config.empty()) return true;
  const std::string text = without_placeholders(run.engine().run);
  for (const dialects::ShellCommand& command : dialects::read_shell(text, "engine.run")) {
    const bool has_more = std::ranges::any_of(command.words, [](const std::string& word) {
      return is_filled_in(word) || word.ends_with(".sh");
    });
    if (has_more) return false;
  }
  return true;
}

/// Whether stages are stated in other words than their number.
bool has_other_stages(const UserRun& run) {
  return std::ranges::any_of(
      std::array{"num_layers_per_virtual_pipeline_stage", "pipeline_model_parallel_layout"},
      [&](const char* name) { return stated_of(run, dialects::row_of(name)).has_value(); });
}

struct SizeDifference {
  std::string text;
  bool is_another_run = true;  ///< otherwise it is only noted
};

std::vector<SizeDifference> size_differences(const UserRun& run, const RunFacts& facts) {
  std::vector<SizeDifference> differences;
  if (!run.dialect || facts.echoed.form == EchoedConfig::Form::none) return differences;
  const dialects::Dialect theirs = dialect_of(facts.framework).value_or(*run.dialect);
  const bool is_all = states_all(run);
  for (const RunSize& size : kRunSizes) {
    const dialects::Row& row = dialects::row_of(size.row);
    const std::string key = dialects::key_of(row, *run.dialect);
    if (key.empty() || has_axis_of(run, size, row) || follows_an_axis(run, size)) continue;
    const std::optional<std::string> stated = stated_of(run, row);
    if (!stated && (size.unstated.empty() || (size.knob == "vpp" && has_other_stages(run))))
      continue;
    // Older words, or a run that was made without a text: its knobs tell.
    const spec::PlanKnobRow* knob = spec::find_plan_knob(size.knob);
    if (!stated && knob != nullptr &&
        spec::get_plan_knob(run.config.knobs, *knob) != size.unstated) {
      continue;
    }
    std::optional<std::string> echoed = echoed_of(facts, row, theirs);
    if (!echoed) continue;
    const std::string shown = *echoed;
    if (is_unset(*echoed)) echoed = std::string(size.none);
    const std::string asked = stated.value_or(std::string(size.unstated));
    // Of a batch, -1 is one that follows from others. What the shell fills in nobody knows here.
    const bool is_open = asked.starts_with("-") || asked.find('$') != std::string::npos;
    if (echoed->empty() || is_open || is_same_size(asked, *echoed)) continue;
    if (!stated && (size.is_free_unstated || !is_all)) {
      differences.push_back(
          {fmt::format("{}: the command does not say it, the log has {}", key, shown), false});
    } else {
      differences.push_back({fmt::format("{}: asked {}{}, the log has {}", key, asked,
                                         stated ? "" : " (not said)", shown)});
    }
  }
  return differences;
}

}  // namespace

std::string echo_mismatch(const UserRun& run, const tuner::TrialRequest& request,
                          const RunFacts& facts) {
  if (!run.dialect || facts.echoed.form == EchoedConfig::Form::none) return {};
  const tuner::Settings asked = settings_of(request);
  std::vector<std::string> wrong;
  for (const auto& [name, values] : run.sweep.space) {
    const std::string& value = asked.at(name);
    const spec::PlanKnobRow* row = spec::find_plan_knob(name);
    if (row == nullptr) {
      const auto plain = plain_name(name);
      const auto echoed = std::ranges::find_if(facts.echoed.settings, [&](const auto& setting) {
        return plain_name(setting.key) == plain;
      });
      if (value == kAsItIs || echoed == facts.echoed.settings.end()) continue;
      if (!is_same_value(value, echoed->value)) {
        wrong.push_back(fmt::format("{}: asked {}, the log has {}", name, value, echoed->value));
      }
      continue;
    }
    if (!facts.config || name == kMaxConnections) continue;
    const std::string echoed = spec::get_plan_knob(facts.config->knobs, *row);
    const bool may_be_unsaid = !is_echoed(name, *run.dialect, facts) &&
                               echoed == spec::get_plan_knob(dialects::RunConfig{}.knobs, *row);
    if (echoed != value && !may_be_unsaid) {
      wrong.push_back(fmt::format("{}: asked {}, the log has {}", name, value, echoed));
    }
  }
  return fmt::format("{}", fmt::join(wrong, "; "));
}

std::string size_mismatch(const UserRun& run, const RunFacts& facts) {
  std::vector<std::string> wrong;
  for (SizeDifference& difference : size_differences(run, facts)) {
    if (difference.is_another_run) wrong.push_back(std::move(difference.text));
  }
  return fmt::format("{}", fmt::join(wrong, "; "));
}

std::vector<std::string> echo_differences(const UserRun& run, const tuner::TrialRequest& request,
                                          const RunFacts& facts) {
  std::vector<std::string> differences;
  if (!run.dialect || !facts.config || !facts.config->is_echo) return differences;
  const spec::PlanKnobs asked = config_with(run, settings_of(request)).knobs;
  const spec::PlanKnobs defaults = spec::dialects::RunConfig{}.knobs;
  for (const spec::PlanKnobRow& row : spec::plan_knob_table()) {
    const std::string name(row.name);
    const std::string said = spec::get_plan_knob(asked, row);
    // What is as usual may not be said, by either.
    if (run.is_axis(name) || name == kMaxConnections ||
        said == spec::get_plan_knob(defaults, row) || !is_echoed(name, *run.dialect, facts)) {
      continue;
    }
    const std::string echoed = spec::get_plan_knob(facts.config->knobs, row);
    if (echoed != said) {
      differences.push_back(
          fmt::format("{}: the command says {}, the log has {}", name, said, echoed));
    }
  }
  for (SizeDifference& difference : size_differences(run, facts)) {
    if (!difference.is_another_run) differences.push_back(std::move(difference.text));
  }
  return differences;
}

}  // namespace moetune::sweeps
