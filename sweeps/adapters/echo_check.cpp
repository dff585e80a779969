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
#include "sweeps/adapters/trial_settings.h"
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

/// A size that a log's lines outside of its configuration say.
struct LoggedSize {
  std::string_view row;
  NamedSize size;
};
constexpr std::array kLoggedSizes = {
    LoggedSize{"tp", &NamedSizes::tp},
    LoggedSize{"pp", &NamedSizes::pp},
    LoggedSize{"cp", &NamedSizes::cp},
    LoggedSize{"ep", &NamedSizes::ep},
    LoggedSize{"etp", &NamedSizes::etp},
    LoggedSize{"global_batch_size", &NamedSizes::global_batch_size},
    LoggedSize{"sequences_per_step", &NamedSizes::global_batch_size},
    LoggedSize{"local_batch_size", &NamedSizes::local_batch_size},
    LoggedSize{"seq_length", &NamedSizes::seq_length},
};

/// Whether the batch grows from step to step, so that no line has the one that was asked for.
bool has_growing_batch(const UserRun& run) {
  return std::ranges::any_of(run.config.stated, [](const dialects::StatedSetting& setting) {
    return setting.key.find("rampup") != std::string::npos;
  });
}

/// What a log without a setting in its configuration says of it elsewhere: in the command that the
/// shell printed, or in lines of its start and about steps; none: nothing.
std::optional<std::string> logged_of(const UserRun& run, const RunFacts& facts,
                                     const dialects::Row& row, dialects::Dialect dialect) {
  if (facts.config && !facts.config->is_echo) {
    const std::vector<dialects::StatedSetting>& stated = facts.config->stated;
    // Of two the later counts.
    const auto found = std::find_if(stated.rbegin(), stated.rend(), [&](const auto& setting) {
      return dialects::find_row(setting.key, dialect) == &row && !is_unset(setting.value);
    });
    if (found != stated.rend()) return found->value;
  }
  for (const LoggedSize& logged : kLoggedSizes) {
    const int64_t size = facts.named.*logged.size;
    if (logged.row == row.name && size > 0) return std::to_string(size);
  }
  if (row.name != "global_batch_size" || has_growing_batch(run)) return std::nullopt;
  const auto line = std::find_if(facts.steps.rbegin(), facts.steps.rend(), [](const auto& step) {
    return step.global_batch_size && *step.global_batch_size >= 1;
  });
  if (line == facts.steps.rend()) return std::nullopt;
  return fmt::format("{:.0f}", *line->global_batch_size);
}

/// The row that an axis of the space belongs to; null: of none.
const dialects::Row* row_of_axis(const std::string& name, dialects::Dialect dialect) {
  for (const dialects::Row& row : dialects::rows()) {
    if (row.name == name) return &row;
  }
  return dialects::find_row(name, dialect);
}

/// The same as a sentence, where that is not what was asked for; empty: it is, or nothing is said.
std::string logged_mismatch(const UserRun& run, const std::string& name, const std::string& asked,
                            const RunFacts& facts) {
  const dialects::Row* row = row_of_axis(name, *run.dialect);
  if (row == nullptr || asked == kAsItIs) return {};
  const dialects::Dialect theirs = dialect_of(facts.framework).value_or(*run.dialect);
  const std::optional<std::string> logged = logged_of(run, facts, *row, theirs);
  if (!logged || is_same_size(asked, *logged)) return {};
  // Words of another spelling say nothing certain.
  if (!dialects::parse_integer(asked) || !dialects::parse_integer(*logged)) return {};
  return fmt::format("{}: asked {}, the log has {}", name, asked, *logged);
}

/// How many steps the trial makes, where the log's configuration has another number and the run has
/// not made so many.
std::string steps_mismatch(const UserRun& run, const tuner::TrialRequest& request,
                           const RunFacts& facts) {
  const std::string key(trial_steps_setting(*run.dialect));
  if (key.empty() || facts.echoed.form == EchoedConfig::Form::none) return {};
  const auto echoed = std::ranges::find_if(facts.echoed.settings, [&](const auto& setting) {
    return plain_name(setting.key) == plain_name(key);
  });
  if (echoed == facts.echoed.settings.end()) return {};
  // One that has made them all may have been told to go on.
  const int64_t steps = launched_steps(request);
  if (facts.last_step && *facts.last_step - facts.first_step.value_or(1) + 1 >= steps) return {};
  const std::string asked = std::to_string(steps);
  if (is_same_size(asked, echoed->value)) return {};
  return fmt::format("{}: asked {}, the log has {}", key, asked, echoed->value);
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
      return is_filled_in(word) || dialects::is_script_name(word);
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
  if (!run.dialect) return differences;
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
    if (!echoed) echoed = logged_of(run, facts, row, theirs);
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
  const std::string total = total_steps_setting(*run.dialect);
  const auto stated = std::ranges::find(run.config.stated, total, &dialects::StatedSetting::key);
  if (total.empty() || stated == run.config.stated.end() || run.is_axis(total)) return differences;
  const std::optional<int64_t> asked = dialects::parse_integer(stated->value);
  if (asked && *asked > 0 && facts.total_steps && *facts.total_steps != *asked) {
    differences.push_back(
        {fmt::format("{}: asked {}, the log has {}", total, *asked, *facts.total_steps)});
  }
  return differences;
}

/// Where the log's configuration has a setting of that name with another value than was asked for;
/// empty: it has not.
std::string raw_mismatch(const std::string& name, const std::string& asked, const RunFacts& facts) {
  const auto plain = plain_name(name);
  const auto echoed = std::ranges::find_if(
      facts.echoed.settings, [&](const auto& setting) { return plain_name(setting.key) == plain; });
  if (asked == kAsItIs || echoed == facts.echoed.settings.end()) return {};
  if (is_same_value(asked, echoed->value)) return {};
  return fmt::format("{}: asked {}, the log has {}", name, asked, echoed->value);
}

}  // namespace

std::string echo_mismatch(const UserRun& run, const tuner::TrialRequest& request,
                          const RunFacts& facts) {
  if (!run.dialect) return {};
  const bool has_echo = facts.echoed.form != EchoedConfig::Form::none;
  const tuner::Settings asked = settings_of(request);
  std::vector<std::string> wrong;
  for (const auto& [name, values] : run.sweep.space) {
    const std::string& value = asked.at(name);
    if (!has_echo) {
      std::string logged = logged_mismatch(run, name, value, facts);
      if (!logged.empty()) wrong.push_back(std::move(logged));
      continue;
    }
    const spec::PlanKnobRow* row = spec::find_plan_knob(name);
    if (row == nullptr) {
      std::string mismatch = raw_mismatch(name, value, facts);
      if (!mismatch.empty()) wrong.push_back(std::move(mismatch));
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
  std::string steps = steps_mismatch(run, request, facts);
  if (!steps.empty()) wrong.push_back(std::move(steps));
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
  if (!run.dialect) {
    // What a command of nobody's dialect takes may mean something else than its framework's setting
    // of the same name.
    const tuner::Settings asked = settings_of(request);
    for (const auto& [name, values] : run.sweep.space) {
      std::string mismatch = raw_mismatch(name, asked.at(name), facts);
      if (!mismatch.empty()) differences.push_back(std::move(mismatch));
    }
    return differences;
  }
  if (!facts.config || !facts.config->is_echo) return differences;
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
