// moetune ls: one line per trial, or per hunt.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/spec/trial_status.h"
#include "kernels/base/error.h"
#include "profiler/store/store.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/hunt_list.h"
#include "sweeps/listing.h"
#include "sweeps/table.h"
#include "sweeps/trial_list.h"

namespace moetune::sweeps {
namespace {

void check_status(const std::string& status) {
  std::string names;
  for (const spec::StatusRow& row : spec::status_table()) {
    if (row.name == status) return;
    names += names.empty() ? "" : ", ";
    names += row.name;
  }
  throw base::UsageError(fmt::format("--status is '{}', expected one of {}", status, names));
}

/// `sweep_id` 0 stands for all sweeps.
void check_sweep(const store::Store& store, int64_t sweep_id) {
  std::vector<int64_t> known;
  for (const store::SweepRow& sweep : store.read_sweeps()) known.push_back(sweep.id);
  if (sweep_id == 0 || std::ranges::find(known, sweep_id) != known.end()) return;
  throw base::UsageError(fmt::format(
      "{}: there is no sweep {}, expected {}", store.path(), sweep_id,
      known.empty() ? "none: it is empty" : fmt::format("one of {}", fmt::join(known, ", "))));
}

}  // namespace

CommandOptions ls_options() {
  namespace po = boost::program_options;
  CommandOptions options(
      "ls [--db] PATH [--sweep N] [--status STATUS] [--hunts] [--format text|json]",
      "Lists the trials of a runs database, by sweep and in the order they were tried; of a "
      "database that has only hunts (moetune bisect), these.");
  options.add()("db", po::value<std::string>()->value_name("PATH"), "the runs database");
  options.add()("sweep", po::value<std::string>()->value_name("N"), "only trials of this sweep");
  options.add()("status", po::value<std::string>()->value_name("STATUS"),
                "only trials that ended so (ok, oom, invalid, ...)");
  options.add()("hunts", "the hunts, also where there are trials");
  options.add_format();
  options.positional("db");
  return options;
}

int run_ls_command(const CommandOptions& options) {
  const std::string status = options.text("status");
  if (!status.empty()) check_status(status);
  const int64_t sweep = options.integer("sweep", 1, 0);

  const auto store = store::Store::open_read_only(options.database());
  const size_t num_hunts = store.read_bisects().size();
  const std::optional<size_t> width = terminal_width(STDOUT_FILENO);
  const bool asks_for_trials = options.has("sweep") || options.has("status");
  if (options.has("hunts") || (num_hunts > 0 && !asks_for_trials && store.read_sweeps().empty())) {
    if (options.wants_json()) {
      std::cout << hunts_json(store).dump(2) << "\n";
    } else {
      std::cout << (num_hunts == 0 ? store.path() + ": no hunts\n" : hunts_text(store, width));
    }
    return 0;
  }
  check_sweep(store, sweep);
  const TrialLines listed = read_trial_lines(store, sweep, status);
  if (options.wants_json()) {
    nlohmann::json list = nlohmann::json::array();
    for (const TrialLine& line : listed.lines) {
      list.push_back(trial_json(*line.view, line.trial, line.title));
    }
    std::cout << list.dump(2) << "\n";
    return 0;
  }
  if (listed.lines.empty()) {
    std::cout << fmt::format("{}: no trials{}\n", store.path(),
                             status.empty() ? "" : fmt::format(" that ended as {}", status));
  } else {
    std::cout << trial_list_text(listed.lines, width) << environments_text(listed.views);
  }
  if (num_hunts > 0) {
    std::cout << fmt::format("\n{} hunt{} not listed: moetune ls {} --hunts\n", num_hunts,
                             num_hunts == 1 ? " is" : "s are", store.path());
  }
  return 0;
}

}  // namespace moetune::sweeps
