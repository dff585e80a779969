// moetune knobs: the knob table as text, JSON or the documentation page.
#include "engine/spec/knobs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/spec/megatron_flags.h"
#include "engine/spec/plan_knobs.h"
#include "kernels/base/error.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/table.h"

namespace moetune::sweeps {

CommandOptions knobs_options() {
  CommandOptions options("knobs [--plans] [--markdown] [--format text|json]",
                         "Lists what can be tuned: name, values, default, Megatron-LM's flag and "
                         "meaning. With --plans "
                         "what moetune plan chooses from and --fix takes.");
  options.add()("markdown", "print the documentation page");
  options.add()("plans", "list the knobs of plans, as text");
  options.add_format();
  return options;
}

namespace {

int print_plan_knobs() {
  TextTable table({{"knob"},
                   {"default", TextTable::Align::right, 1},
                   {"values", TextTable::Align::left, 2, true},
                   {"meaning"}});
  const spec::PlanKnobs defaults;
  for (const spec::PlanKnobRow& knob : spec::plan_knob_table()) {
    table.add({std::string(knob.name), spec::get_plan_knob(defaults, knob),
               std::string(knob.values), std::string(knob.help)});
  }
  std::cout << table.text(terminal_width(STDOUT_FILENO));
  return 0;
}

}  // namespace

int run_knobs_command(const CommandOptions& options) {
  if (options.has("plans")) {
    options.refuse_beside("--plans", {"markdown"});
    if (options.wants_json()) throw base::UsageError("--plans are listed as text alone");
    return print_plan_knobs();
  }
  if (options.has("markdown")) {
    std::cout << spec::knobs_markdown();
    return 0;
  }
  const spec::Knobs defaults;
  if (options.wants_json()) {
    nlohmann::json rows = nlohmann::json::array();
    for (const spec::KnobRow& knob : spec::knob_table()) {
      rows.push_back({{"name", knob.name},
                      {"group", knob.group},
                      {"unit", knob.unit},
                      {"values", knob.values},
                      {"default", spec::get_knob(defaults, knob)},
                      {"megatron_flag", knob.megatron_flag},
                      {"help", knob.help}});
    }
    std::cout << rows.dump(2) << "\n";
    return 0;
  }
  TextTable table({{"knob"},
                   {"default", TextTable::Align::right, 1},
                   {"Megatron-LM flag"},
                   {"values", TextTable::Align::left, 2, true},
                   {"meaning"}});
  for (const spec::KnobRow& knob : spec::knob_table()) {
    table.add({std::string(knob.name), spec::get_knob(defaults, knob),
               spec::has_megatron_flag(knob) ? std::string(knob.megatron_flag) : "none",
               std::string(knob.values), std::string(knob.help)});
  }
  std::cout << table.text(terminal_width(STDOUT_FILENO));
  return 0;
}

}  // namespace moetune::sweeps
