// moetune ls: one line per trial.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/spec/trial_status.h"
#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "profiler/store/store.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/listing.h"
#include "sweeps/table.h"

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

/// A trial as a line of the list.
struct Line {
  store::TrialRow trial;
  std::string title;
  const SweepView* view = nullptr;
};

std::string table_text(const std::vector<Line>& lines, std::optional<size_t> width) {
  using Align = TextTable::Align;
  TextTable table({{"id", Align::right},
                   {"sweep", Align::right},
                   {"phase"},
                   {"status"},
                   {"step", Align::right},
                   {"predicted", Align::right},
                   {"tokens/s", Align::right},
                   {"peak", Align::right},
                   {"predicted", Align::right},
                   {"wall"},
                   {"runs", Align::right},
                   {"env", Align::right},
                   {"trial"}});
  const auto ns = [](const auto& value) { return value ? base::format_ns(*value) : "-"; };
  const auto bytes = [](const auto& value) { return value ? base::format_bytes(*value) : "-"; };
  for (const auto& [trial, title, view] : lines) {
    std::string what = trial.reason.empty() ? title : title + ": " + trial.reason;
    const std::vector<std::string> marks = view->marks_of(trial);
    if (!marks.empty()) what = fmt::format("[{}] {}", fmt::join(marks, ", "), what);
    const store::EnvironmentRow* environment = view->environment_of(trial);
    table.add({std::to_string(trial.id), std::to_string(trial.sweep_id), trial.phase, trial.status,
               ns(trial.step_ns), ns(trial.predicted_step_ns),
               trial.tokens_per_s ? base::format_count(*trial.tokens_per_s) : "-",
               bytes(trial.peak_bytes), bytes(trial.predicted_peak_bytes),
               trial.wall.empty() ? "-" : trial.wall, std::to_string(view->num_counted(trial)),
               environment == nullptr ? "-" : std::to_string(environment->ordinal),
               std::move(what)});
  }
  return table.text(width);
}

/// Where the sweeps' trials were measured, where a sweep has run in more than one environment:
/// which of them the numbers in a line come from is its column env.
std::string environments_text(const std::map<int64_t, SweepView>& views) {
  std::string text;
  for (const auto& [sweep_id, view] : views) {
    if (view.environments().size() < 2) continue;
    text += fmt::format("\nEnvironments of sweep {}\n", sweep_id);
    for (const store::EnvironmentRow& environment : view.environments()) {
      text += "  " + environment_text(environment) + "\n";
    }
  }
  return text;
}

}  // namespace

int run_ls_command(const std::vector<std::string>& words) {
  namespace po = boost::program_options;
  CommandOptions options("ls [--db] PATH [--sweep N] [--status STATUS] [--format text|json]",
                         "Lists the trials of a runs database, by sweep and in the order they were "
                         "tried.");
  options.add()("db", po::value<std::string>()->value_name("PATH"), "the runs database");
  options.add()("sweep", po::value<std::string>()->value_name("N"), "only trials of this sweep");
  options.add()("status", po::value<std::string>()->value_name("STATUS"),
                "only trials that ended so (ok, oom, invalid, ...)");
  options.add_format();
  options.positional("db");
  if (!options.parse(words)) return 0;
  const std::string status = options.text("status");
  if (!status.empty()) check_status(status);
  const int64_t sweep = options.integer("sweep", 1, 0);

  const auto store = store::Store::open_read_only(options.database());
  check_sweep(store, sweep);
  std::map<int64_t, std::vector<store::TrialRow>> by_sweep;
  for (store::TrialRow& trial : store.list_trials(sweep)) {
    by_sweep[trial.sweep_id].push_back(std::move(trial));
  }
  std::map<int64_t, SweepView> views;
  std::vector<Line> lines;
  for (const auto& [sweep_id, trials] : by_sweep) {
    const SweepView& view = views.emplace(sweep_id, SweepView(store, sweep_id)).first->second;
    for (const store::TrialRow& trial : trials) {
      if (!status.empty() && trial.status != status) continue;
      lines.push_back({explained(trial), title_of(store, trial, baseline_of(trials)), &view});
    }
  }
  if (options.wants_json()) {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& [trial, title, view] : lines) list.push_back(trial_json(*view, trial, title));
    std::cout << list.dump(2) << "\n";
  } else {
    std::cout << table_text(lines, terminal_width(STDOUT_FILENO)) << environments_text(views);
  }
  return 0;
}

}  // namespace moetune::sweeps
