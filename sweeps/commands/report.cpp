// moetune report: the database's HTML page.
#include "reports/report.h"

#include <fmt/format.h>

#include <filesystem>
#include <iostream>

#include "kernels/base/units.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/stored_flags.h"

namespace moetune::sweeps {

CommandOptions report_options() {
  namespace po = boost::program_options;
  CommandOptions options("report [--db] PATH [--out FILE]",
                         "Writes one self-contained HTML file about a sweep: opens in any browser, "
                         "needs no network.");
  options.add()("db", po::value<std::string>()->value_name("PATH"), "the runs database");
  options.add()("out", po::value<std::string>()->value_name("FILE"),
                "the page; default: the database's name with .html");
  options.add()("sweep", po::value<std::string>()->value_name("N"),
                "number of the sweep, default the last one");
  options.add()("trial", po::value<std::string>()->value_name("ID"),
                "show this trial in the winner's place");
  options.add()("title", po::value<std::string>()->value_name("TEXT"), "title of the page");
  options.positional("db");
  return options;
}

int run_report_command(const CommandOptions& options) {
  const std::string path = options.database();
  std::string out = options.text("out");
  if (out.empty()) out = std::filesystem::path(path).replace_extension(".html");
  reports::ReportOptions report;
  report.title = options.text("title");
  report.sweep_id = options.integer("sweep", 1, 0);
  report.trial = options.text("trial");
  report.flags = flags_block;
  const int64_t num_bytes = reports::write_report(path, out, report);
  std::cout << fmt::format("{} ({})\n", out, base::format_bytes(num_bytes));
  return 0;
}

}  // namespace moetune::sweeps
