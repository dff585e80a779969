// The columns of ls: what each shows, and which give way first on a narrow terminal.
#include "sweeps/trial_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "kernels/base/units.h"
#include "profiler/store/verdict.h"
#include "reports/engine_trial.h"
#include "sweeps/knob_changes.h"
#include "sweeps/listing.h"
#include "sweeps/table.h"

namespace moetune::sweeps {
namespace {

/// One word or two: what a reader looks for first. Trials that were run one by one have nothing to
/// win, and what did not pass its validation is not called the winner.
std::string mark_of(const SweepView& view, const store::TrialRow& trial) {
  const std::vector<std::string> marks = view.marks_of(trial);
  for (const char* mark : {"winner", "first_fit", "baseline"}) {
    if (std::ranges::find(marks, mark) == marks.end()) continue;
    if (mark == std::string("winner")) {
      if (view.first_fit() == nullptr) continue;
      if (view.validation_of(trial).is_passed == false) return "not validated";
    }
    return mark == std::string("first_fit") ? "first fit" : mark;
  }
  if (view.is_cleared(trial)) return "cleared";
  return view.is_kept(trial) ? "kept" : "";
}

/// The knobs that are not as in the first configuration that fitted.
std::string difference_text(const SweepView& view, const store::TrialRow& trial) {
  const store::TrialRow* first_fit = view.first_fit();
  if (first_fit == nullptr || first_fit->id == trial.id) return "-";
  const std::string text = values_text(knob_changes(*first_fit, trial));
  return text.empty() ? "the same" : text;
}

template <class Get>
bool has_several(const std::vector<TrialLine>& lines, Get get) {
  std::set<int64_t> values;
  for (const TrialLine& line : lines) values.insert(get(line));
  return values.size() > 1;
}

/// Of another engine what its command was given besides: its knobs hold what nobody has said, too.
std::string first_fit_text(const store::TrialRow& trial) {
  const auto changes = reports::engine_changes(trial);
  if (!changes) return configuration_text(trial);
  if (changes->empty()) return "your command as it is";
  return fmt::format("your command with {}", fmt::join(*changes, ", "));
}

std::string first_fits_text(const std::vector<TrialLine>& lines, bool has_sweeps) {
  std::string text;
  std::set<const SweepView*> told;
  for (const TrialLine& line : lines) {
    const store::TrialRow* first_fit = line.view->first_fit();
    if (first_fit == nullptr || !told.insert(line.view).second) continue;
    text += fmt::format("first fit{}: trial {}: {}\n",
                        has_sweeps ? fmt::format(" of sweep {}", first_fit->sweep_id) : "",
                        first_fit->id, one_line(first_fit_text(*first_fit)));
  }
  text += forced_text(lines);
  return text.empty() ? text : text + "\n";
}

}  // namespace

std::string forced_text(const std::vector<TrialLine>& lines) {
  std::vector<int64_t> forced;
  bool are_all = true;
  for (const TrialLine& line : lines) {
    if (line.is_forced) forced.push_back(line.trial.id);
    are_all = are_all && (line.is_forced || !line.trial.step_ns);
  }
  if (forced.empty()) return "";
  if (are_all) return fmt::format("{}\n", reports::kForcedBalancing);
  return fmt::format("of trials {}: {}\n", fmt::join(forced, ", "), reports::kForcedBalancing);
}

TrialLines read_trial_lines(const store::Store& store, int64_t sweep_id,
                            const std::string& status) {
  std::map<int64_t, std::vector<store::TrialRow>> by_sweep;
  for (store::TrialRow& trial : store.list_trials(sweep_id)) {
    by_sweep[trial.sweep_id].push_back(std::move(trial));
  }
  TrialLines listed;
  for (const auto& [id, trials] : by_sweep) {
    const SweepView& view = listed.views.emplace(id, SweepView(store, id)).first->second;
    for (const store::TrialRow& trial : trials) {
      if (!status.empty() && trial.status != status) continue;
      listed.lines.push_back({explained(trial), title_of(store, trial, baseline_of(trials)), &view,
                              reports::has_forced_balancing(store, trial.id)});
    }
  }
  return listed;
}

std::string purpose_text(const SweepView& view, const store::TrialRow& trial,
                         const std::string& title) {
  const store::TrialRow* parent = view.parent_of(trial);
  if (parent == nullptr) return title;
  const std::string changes = change_text(knob_changes(*parent, trial));
  return fmt::format("{}, from trial {}", changes.empty() ? title : changes, parent->id);
}

std::string trial_list_text(const std::vector<TrialLine>& lines, std::optional<size_t> width) {
  using Align = TextTable::Align;
  const bool has_sweeps = has_several(lines, [](const auto& l) { return l.trial.sweep_id; });
  const bool has_environments = has_several(lines, [](const TrialLine& l) {
    const store::EnvironmentRow* environment = l.view->environment_of(l.trial);
    return environment == nullptr ? int64_t{1} : environment->ordinal;
  });
  const bool has_marks = std::ranges::any_of(
      lines, [](const TrialLine& l) { return !mark_of(*l.view, l.trial).empty(); });
  const std::string first_fits = first_fits_text(lines, has_sweeps);

  // A column and its cells; those that say the same in every line are not there at all.
  struct Cells {
    TextTable::Column column;
    bool is_there;
    std::string (*cell)(const TrialLine& line);
  };
  static constexpr auto kNs = [](const auto& value) {
    return value ? base::format_ns(*value) : std::string("-");
  };
  static constexpr auto kBytes = [](const auto& value) {
    return value ? base::format_bytes(*value) : std::string("-");
  };
  const std::vector<Cells> all = {
      {{"id", Align::right}, true, [](const TrialLine& l) { return std::to_string(l.trial.id); }},
      {{"sweep", Align::right},
       has_sweeps,
       [](const TrialLine& l) { return std::to_string(l.trial.sweep_id); }},
      {{"mark"}, has_marks, [](const TrialLine& l) { return mark_of(*l.view, l.trial); }},
      {{"phase", Align::left, 3}, true, [](const TrialLine& l) { return l.trial.phase; }},
      {{"status"}, true, [](const TrialLine& l) { return l.trial.status; }},
      {{"step", Align::right}, true, [](const TrialLine& l) { return kNs(l.trial.step_ns); }},
      {{"predicted", Align::right, 7},
       true,
       [](const TrialLine& l) { return kNs(l.trial.predicted_step_ns); }},
      {{"tokens/s", Align::right, 5},
       true,
       [](const TrialLine& l) {
         return l.trial.tokens_per_s ? base::format_count(*l.trial.tokens_per_s) : "-";
       }},
      {{"peak", Align::right, 2},
       true,
       [](const TrialLine& l) { return kBytes(l.trial.peak_bytes); }},
      {{"predicted", Align::right, 8},
       true,
       [](const TrialLine& l) { return kBytes(l.trial.predicted_peak_bytes); }},
      {{"wall", Align::left, 4},
       true,
       [](const TrialLine& l) { return l.trial.wall.empty() ? "-" : l.trial.wall; }},
      {{"runs", Align::right, 9},
       true,
       [](const TrialLine& l) { return std::to_string(l.view->num_counted(l.trial)); }},
      {{"env", Align::right, 6},
       has_environments,
       [](const TrialLine& l) {
         const store::EnvironmentRow* environment = l.view->environment_of(l.trial);
         return environment == nullptr ? "-" : std::to_string(environment->ordinal);
       }},
      {{"changes from the first fit", Align::left, 0, true},
       !first_fits.empty(),
       [](const TrialLine& l) { return difference_text(*l.view, l.trial); }},
      // Where there are both, the changes say more.
      {{"purpose and result", Align::left, first_fits.empty() ? 0 : 1},
       true,
       [](const TrialLine& l) {
         const std::string what = purpose_text(*l.view, l.trial, l.title);
         const std::string cleared =
             l.view->is_cleared(l.trial) ? fmt::format("; {}", store::kClearedText) : "";
         return l.trial.reason.empty() ? what : what + ": " + l.trial.reason + cleared;
       }},
  };
  std::vector<TextTable::Column> columns;
  for (const Cells& cells : all) {
    if (cells.is_there) columns.push_back(cells.column);
  }
  TextTable table(columns);
  for (const TrialLine& line : lines) {
    std::vector<std::string> row;
    for (const Cells& cells : all) {
      if (cells.is_there) row.push_back(cells.cell(line));
    }
    table.add(std::move(row));
  }
  return first_fits + table.text(width);
}

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

}  // namespace moetune::sweeps
