// moetune knobs: the knob table as text, JSON or the documentation page.
#include "engine/spec/knobs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/table.h"

namespace moetune::sweeps {

int run_knobs_command(const std::vector<std::string>& words) {
  CommandOptions options(
      "knobs [--markdown] [--format text|json]",
      "Lists what can be tuned: name, values, default, meaning, and Megatron's flag.");
  options.add()("markdown", "print the documentation page");
  options.add_format();
  if (!options.parse(words)) return 0;
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
  TextTable table({{"knob"}, {"default", TextTable::Align::right}, {"values"}, {"meaning"}});
  for (const spec::KnobRow& knob : spec::knob_table()) {
    table.add({std::string(knob.name), spec::get_knob(defaults, knob), std::string(knob.values),
               std::string(knob.help)});
  }
  std::cout << table.text(terminal_width(STDOUT_FILENO));
  return 0;
}

}  // namespace moetune::sweeps
