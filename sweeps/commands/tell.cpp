// moetune tell: the result of a trial that somebody has run by hand.
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "kernels/base/error.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/conduct_sweep.h"
#include "sweeps/load.h"

namespace moetune::sweeps {

CommandOptions tell_options() {
  namespace po = boost::program_options;
  CommandOptions options(
      "tell SWEEP FILE... --db PATH [--exit-code N] [--format text|json]",
      "Takes the result of the command that `moetune sweep SWEEP --db PATH --dry-run` has named, "
      "from the logs and traces that it left, stores it, and names the next one. For people who "
      "may not let moetune launch anything.");
  options.add()("file", po::value<std::string>()->value_name("SWEEP"), "the sweep file");
  options.add()("left", po::value<std::vector<std::string>>()->value_name("FILE"),
                "logs, traces and folders of the run");
  options.add()("db", po::value<std::string>()->value_name("PATH"), "the runs database");
  options.add()("exit-code", po::value<std::string>()->value_name("N"),
                "with which the command ended; where it is not said, the log has to show its end");
  options.add_format();
  options.positional("file");
  options.positional("left", -1);
  return options;
}

int run_tell_command(const CommandOptions& options) {
  ToldRun told;
  told.files = options.texts("left");
  if (options.has("exit-code")) {
    told.exit_code = static_cast<int>(options.integer("exit-code", 0, 0));
  }
  if (told.files.empty() && told.exit_code.value_or(0) == 0) {
    throw base::UsageError("a log of the run is missing: moetune tell SWEEP --db PATH LOG...");
  }
  for (const std::string& file : told.files) {
    std::error_code error;
    if (!std::filesystem::exists(file, error)) {
      throw base::UsageError(fmt::format("{}: there is no such file or folder", shown_path(file)));
    }
  }
  return conduct_sweep(options, told);
}

}  // namespace moetune::sweeps
