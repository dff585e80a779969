// The trials of a database as a table for people: what ls prints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "profiler/store/store.h"
#include "sweeps/sweep_view.h"

namespace moetune::sweeps {

/// A trial as a line of the list. The view of its sweep has to outlive it.
struct TrialLine {
  store::TrialRow trial;
  std::string title;
  const SweepView* view = nullptr;
  bool is_forced = false;  ///< its experts were forced to be balanced
};

/// The lines of a database, and the views to which they refer.
struct TrialLines {
  std::map<int64_t, SweepView> views;  ///< by sweep
  std::vector<TrialLine> lines;
};
/// Lines by sweep and in the order of the trials. `sweep_id` 0: all sweeps; empty `status`: all.
TrialLines read_trial_lines(const store::Store& store, int64_t sweep_id,
                            const std::string& status = {});

/// The change that a trial tried, with the trial that was changed: "ep 1 -> 2, from trial 17"; the
/// title if it changes no other trial.
std::string purpose_text(const SweepView& view, const store::TrialRow& trial,
                         const std::string& title);

/// Says of which trials no figure holds for real routing, a line; empty: of none.
std::string forced_text(const std::vector<TrialLine>& lines);

/// The first configurations that fitted, what forced_text says, and one line per trial: what it is
/// to its sweep (winner or, where its long run failed, not validated; first fit, baseline, kept),
/// its numbers, what it was for and what became of it, and its knobs where they are not those of
/// the first fit. With a `width`, lines fit.
std::string trial_list_text(const std::vector<TrialLine>& lines, std::optional<size_t> width);

/// Where the sweeps' trials were measured, where a sweep has run in more than one environment:
/// which of them the numbers in a line come from is its column env.
std::string environments_text(const std::map<int64_t, SweepView>& views);

}  // namespace moetune::sweeps
