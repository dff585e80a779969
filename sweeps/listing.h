// A stored trial as JSON and as text: what ls, show and trial print.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "profiler/store/store.h"
#include "sweeps/sweep_view.h"

namespace moetune::sweeps {

/// The row as a reader should see it: a `running` one whose process is gone says so.
store::TrialRow explained(store::TrialRow trial);

/// What a trial tries: the stored title, else the knobs that differ from `baseline` (which may be
/// null).
std::string title_of(const store::Store& store, const store::TrialRow& trial,
                     const store::TrialRow* baseline);

/// The row of `ls --format json`: id, sweep (its id), hash, phase, title, status, reason, knobs,
/// predicted_peak_bytes, peak_bytes, predicted_step_ns, step_ns, wall, tokens_per_s, loss, marks
/// (winner, baseline, first_fit), is_kept, is_cleared, validated, parent (id of the trial that it
/// is a change of), changes (from the parent, by knob: before, after), changes_from_first_fit (the
/// same), num_measurements (that count) and the environment they were made in; null where unknown.
nlohmann::json trial_json(const SweepView& view, const store::TrialRow& trial,
                          const std::string& title);

/// Everything stored about a trial except its trace records.
nlohmann::json trial_details_json(const store::Store& store, const store::TrialRow& trial);

/// The same for people.
std::string trial_details_text(const store::Store& store, const store::TrialRow& trial,
                               std::optional<size_t> width);

/// The starting configuration among these, else the first; null when there are none.
const store::TrialRow* baseline_of(const std::vector<store::TrialRow>& trials);

}  // namespace moetune::sweeps
