// moetune probe: a machine's hardware file, rewritten by what it measures.
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/spec/trial_status.h"
#include "kernels/base/error.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/commands/output_file.h"
#include "sweeps/load.h"
#include "sweeps/probing.h"
#include "sweeps/processes/interrupt.h"
#include "sweeps/processes/trial_folder.h"
#include "sweeps/scratch_folder.h"

namespace moetune::sweeps {
namespace {

constexpr const char* kProbeHelp =
    R"(Runs a model in several sizes on the machine at hand and rewrites its hardware file: which share of
the peaks products, grouped products, attention and what moves memory reach, at how many rows half
of that, and on devices what a launch, a synchronisation and the links between devices take. SPEC
is a trial or sweep, whose model, backend and hardware file are used; default: the quick start's,
which probes this CPU. Figures that nothing was measured for are kept and named.)";

}  // namespace

CommandOptions probe_options() {
  namespace po = boost::program_options;
  CommandOptions options("probe [SPEC] [--rounds N] [--out FILE] [--format text|json]", kProbeHelp);
  options.add()("spec", po::value<std::string>()->value_name("SPEC"),
                "a trial or sweep: a file or the name of a shipped one, default quickstart");
  options.positional("spec");
  options.add()("rounds", po::value<std::string>()->value_name("N"),
                "how often each size is run, default 3");
  options.add()("out", po::value<std::string>()->value_name("FILE"),
                "where to write the hardware file, default standard output");
  options.add()("quiet,q", "no progress");
  options.add_launch();
  options.add_format();
  return options;
}

int run_probe_command(const CommandOptions& options) {
  const std::string file = options.has("spec") ? options.text("spec") : "quickstart";
  const Loaded<spec::TrialSpec> loaded = load_trial(file);
  constexpr int64_t kRounds = 3;
  const int64_t rounds = options.integer("rounds", 1, kRounds);
  // Before the minutes that the trials take.
  check_output(options.text("out"), OutputKind::hardware, "--out", {file});
  const ScratchFolder scratch("moetune-probe");
  const TextSnapshot snapshot(scratch.path() + "/text", loaded.text);
  RunnerOptions runner;
  runner.rank_program = find_rank_program();
  runner.launcher = options.launcher(loaded.spec);
  runner.folder = scratch.path() + "/running";
  runner.text_path = snapshot.path();
  const InterruptGuard guard;
  SystemProcessRunner processes;
  const bool is_quiet = options.has("quiet") || isatty(STDERR_FILENO) == 0;
  const Probe probe =
      probe_machine(loaded.spec, rounds, processes, runner, [&](const std::string& text) {
        if (!is_quiet) std::cerr << text << '\n';
      });
  if (num_interrupts() > 0) return static_cast<int>(spec::ExitCode::interrupted);
  const std::string written = spec::to_json(probe.hardware).dump(2) + "\n";
  if (options.has("out")) {
    std::ofstream out(options.text("out"), std::ios::binary | std::ios::trunc);
    out << written << std::flush;
    if (!out) throw base::Error(fmt::format("{}: cannot be written", options.text("out")));
  }
  if (options.wants_json()) {
    std::cout << to_json(probe).dump(2) << '\n';
  } else if (options.has("out")) {
    std::cout << probe_text(probe);
  } else {
    std::cerr << probe_text(probe);
    std::cout << written;
  }
  return 0;
}

}  // namespace moetune::sweeps
