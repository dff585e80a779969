// moetune diagnose: what holds a run of any framework back, from what it has left.
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "reports/diagnosis_page.h"
#include "reports/page.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/commands/output_file.h"
#include "sweeps/planning/machines.h"
#include "sweeps/planning/named_files.h"
#include "sweeps/runs/diagnosed_run.h"
#include "sweeps/runs/diagnosis_report.h"
#include "sweeps/table.h"

namespace moetune::sweeps {

CommandOptions diagnose_options() {
  namespace po = boost::program_options;
  CommandOptions options(
      "diagnose FOLDER|FILE... [--run COMMAND] [--model MODEL] [--hardware HARDWARE --gpus N] "
      "[--report FILE] [--format text|json]",
      "Reads what a run has left (logs, traces, its command or configuration; any of them may be "
      "missing) and says how it went, where the time of its devices went, what holds it back, and "
      "which settings of its own framework to change. Read are logs of Megatron-LM, "
      "Megatron-Bridge, torchtitan, Primus and others, traces of PyTorch's profiler (also packed "
      "by gzip), of Nsight Systems (SQLite), of rocprofiler-sdk and of moetune trace; files are "
      "known by their content. "
      "Nothing is run.");
  options.add()("file", po::value<std::vector<std::string>>()->value_name("FILE"),
                "a folder of the run, or its files");
  options.positional("file", -1);
  const auto text = [&](const char* name, const char* value, const char* help) {
    options.add()(name, po::value<std::string>()->value_name(value), help);
  };
  text("run", "COMMAND|FILE",
       "the run's command or configuration, a file with one, or - for standard "
       "input; default: what is found in the files or echoed in a log");
  text("dialect", "DIALECT", "whose words it has; default: told by its content");
  text("model", "MODEL", "a config.json or the name of a shipped model: rules are then checked");
  text("hardware", "HARDWARE", "a hardware file or the name of a shipped one");
  text("gpus", "N", "devices of the run");
  text("report", "FILE", "also writes it as one self-contained HTML file");
  options.add_format();
  return options;
}

int run_diagnose_command(const CommandOptions& options) {
  const std::vector<std::string> files = options.texts("file");
  if (files.empty() && !options.has("run")) {
    throw base::UsageError("a folder or file of the run is missing: moetune diagnose FILE...");
  }
  for (const std::string& file : files) check_is_no_command(file);
  AboutRun about;
  for (const auto& [option, needs] : {std::pair{"hardware", "gpus"}, std::pair{"dialect", "run"}}) {
    if (options.has(option) && !options.has(needs)) {
      throw base::UsageError(fmt::format("--{} needs --{}", option, needs));
    }
  }
  constexpr int64_t kNotSaid = 0;
  const int64_t devices = options.integer("gpus", 1, kNotSaid);
  about.num_devices = devices;
  if (options.has("model")) about.model = model_named(options.text("model"));
  if (options.has("run")) {
    NamedRunText text = named_run_text(options, "run", devices, about.model.get());
    about.config_source = text.how.source;
    about.read_config = [text = std::move(text)](int64_t world_size) {
      return run_config_of(text, world_size);
    };
  }
  if (options.has("hardware"))
    about.hardware = machine_of(machine_named(options.text("hardware")), devices);
  const std::string report = options.text("report");
  std::vector<std::string> inputs = files;
  for (const char* option : {"run", "model", "hardware"}) inputs.push_back(options.text(option));
  check_output(report, OutputKind::page, "--report", inputs);
  const RunDiagnosis diagnosis = diagnose_run(files, about);
  if (options.has("report")) {
    const int64_t num_bytes = reports::put_page(
        reports::render_diagnosis(diagnosis_page(
            diagnosis, files.empty() ? about.config_source : name_of_run(files.front()))),
        report);
    std::cerr << fmt::format("{} ({})\n", report, base::format_bytes(num_bytes));
  }
  if (options.wants_json()) {
    // Names and paths may be no UTF-8.
    std::cout << to_json(diagnosis).dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
              << "\n";
  } else {
    std::cout << run_text(diagnosis, terminal_width(STDOUT_FILENO));
  }
  return 0;
}

}  // namespace moetune::sweeps
