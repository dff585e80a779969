// moetune trace: the stored trace of a trial as a file, without running it again.
#include <fmt/format.h>

#include <iostream>

#include "kernels/base/error.h"
#include "profiler/store/store.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/trace_file.h"
#include "sweeps/trial_id.h"

namespace moetune::sweeps {

CommandOptions trace_options() {
  namespace po = boost::program_options;
  CommandOptions options(
      "trace [--db] PATH ID --out FILE.json",
      "Writes the trace that is stored of a trial, all traced steps of all ranks with their "
      "launches, arrows between what waits for each other, and rates, for chrome://tracing and "
      "ui.perfetto.dev. Nothing is run.");
  options.add()("db", po::value<std::string>()->value_name("PATH"), "the runs database");
  options.add()("id", po::value<std::vector<std::string>>()->value_name("ID"), kTrialIdHelp);
  options.add()("out", po::value<std::string>()->value_name("FILE"),
                "where to write it, as Chrome trace events");
  options.positional("id", -1);
  return options;
}

int run_trace_command(const CommandOptions& options) {
  const auto [path, id] = options.database_and_word(kTrialIdWhat);
  const std::string out = options.required("out", "the file (--out FILE.json)");
  check_trace_folder(out, "--out");

  const auto store = store::Store::open_read_only(path);
  const store::TrialRow trial = find_trial(store, id);
  if (!write_trace_file(store, trial.id, out)) {
    throw base::UsageError(fmt::format("{}: {}", path, no_trace_text(store, trial)));
  }
  std::cout << fmt::format("{} (trial {})\n", out, trial.id);
  return 0;
}

}  // namespace moetune::sweeps
