// moetune compare: two runs of any framework side by side.
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "reports/comparison_page.h"
#include "reports/page.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/commands/output_file.h"
#include "sweeps/runs/compared_runs.h"
#include "sweeps/runs/comparison_report.h"
#include "sweeps/table.h"

namespace moetune::sweeps {

CommandOptions compare_options() {
  namespace po = boost::program_options;
  CommandOptions options(
      "compare BEFORE AFTER [--report FILE] [--format text|json]",
      "Sets two runs side by side, each a folder, a log or a trace as moetune diagnose takes them: "
      "what moved, by how much, whether that is more than the steps of a run differ by, and which "
      "settings differ.");
  options.add()("before", po::value<std::string>()->value_name("BEFORE"), "the first run");
  options.add()("after", po::value<std::string>()->value_name("AFTER"), "the second run");
  options.positional("before");
  options.positional("after");
  options.add()("report", po::value<std::string>()->value_name("FILE"),
                "also writes it as one self-contained HTML file");
  options.add_format();
  return options;
}

int run_compare_command(const CommandOptions& options) {
  const std::string before = options.required("before", "the first run, a folder or file");
  const std::string after = options.required("after", "the second run, a folder or file");
  const std::string report = options.text("report");
  check_output(report, OutputKind::page, "--report", {before, after});
  const RunDiagnosis first = diagnose_run({before}, {});
  const RunDiagnosis second = diagnose_run({after}, {});
  const RunComparison comparison = compare_runs(first, second);
  if (options.has("report")) {
    const reports::ComparisonPage page =
        comparison_page(comparison, {before, first}, {after, second});
    const int64_t num_bytes = reports::put_page(reports::render_comparison(page), report);
    std::cerr << fmt::format("{} ({})\n", report, base::format_bytes(num_bytes));
  }
  if (options.wants_json()) {
    std::cout << to_json(comparison).dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
              << "\n";
  } else {
    std::cout << comparison_text(comparison, terminal_width(STDOUT_FILENO));
  }
  return 0;
}

}  // namespace moetune::sweeps
