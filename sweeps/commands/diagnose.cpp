// moetune diagnose: what holds a run of any framework back, from what it has left.
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/diagnosis.h"
#include "sweeps/table.h"

namespace moetune::sweeps {

CommandOptions diagnose_options() {
  namespace po = boost::program_options;
  CommandOptions options(
      "diagnose FILE... [--format text|json]",
      "Reads traces of a run, one or more a rank, and says where the time of its devices went and "
      "what holds it back. Read are traces of PyTorch's profiler and of rocprofv3 (JSON), also "
      "packed by gzip, and of Nsight Systems (nsys export --type sqlite); files are known by their "
      "content and not changed. Nothing is run.");
  options.add()("file", po::value<std::vector<std::string>>()->value_name("FILE"),
                "a trace of a rank, or of several");
  options.add_format();
  options.positional("file", -1);
  return options;
}

int run_diagnose_command(const CommandOptions& options) {
  const std::vector<std::string> files = options.texts("file");
  if (files.empty()) throw base::UsageError("a trace is missing: moetune diagnose FILE...");
  const Diagnosis diagnosis = diagnose_traces(files);
  if (options.wants_json()) {
    // Names and paths may be no UTF-8.
    std::cout << to_json(diagnosis).dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
              << "\n";
  } else {
    std::cout << diagnosis_text(diagnosis, terminal_width(STDOUT_FILENO));
  }
  return 0;
}

}  // namespace moetune::sweeps
