// moetune compare: two runs of any framework side by side.
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/runs/compared_runs.h"
#include "sweeps/table.h"

namespace moetune::sweeps {

CommandOptions compare_options() {
  namespace po = boost::program_options;
  CommandOptions options(
      "compare BEFORE AFTER [--format text|json]",
      "Sets two runs side by side, each a folder, a log or a trace as moetune diagnose takes them: "
      "what moved, by how much, and whether that is more than the steps of a run differ by.");
  options.add()("before", po::value<std::string>()->value_name("BEFORE"), "the first run");
  options.add()("after", po::value<std::string>()->value_name("AFTER"), "the second run");
  options.positional("before");
  options.positional("after");
  options.add_format();
  return options;
}

int run_compare_command(const CommandOptions& options) {
  const std::string before = options.required("before", "the first run, a folder or file");
  const std::string after = options.required("after", "the second run, a folder or file");
  const RunComparison comparison =
      compare_runs(diagnose_run({before}, {}), diagnose_run({after}, {}));
  if (options.wants_json()) {
    std::cout << to_json(comparison).dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
              << "\n";
  } else {
    std::cout << comparison_text(comparison, terminal_width(STDOUT_FILENO));
  }
  return 0;
}

}  // namespace moetune::sweeps
