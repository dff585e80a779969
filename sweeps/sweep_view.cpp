// Reads a sweep's trials, decisions and measurements once, and joins them by trial.
#include "sweeps/sweep_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/spec/trial_status.h"
#include "kernels/base/search_words.h"
#include "reports/or_null.h"
#include "sweeps/table.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using reports::or_null;
using reports::text_or_null;

}  // namespace

SweepView::SweepView(const store::Store& store, int64_t sweep_id)
    : sweep_(store.read_sweep(sweep_id).value_or(store::SweepRow{})),
      decisions_(store.read_decisions(sweep_id)),
      cleared_(store::cleared_trials(decisions_)),
      environments_(store.read_environments(sweep_id)) {
  for (store::TrialRow& row : store.list_trials(sweep_id)) {
    const int64_t id = row.id;
    trials_.emplace(id, std::move(row));
  }
  for (store::MeasurementRow& row : store.read_measurements_of_sweep(sweep_id)) {
    measurements_[row.trial_id].push_back(std::move(row));
  }
}

std::vector<std::string> SweepView::marks_of(const store::TrialRow& trial) const {
  std::vector<std::string> marks;
  // Measured anew elsewhere, it may have failed since it won.
  const bool is_ok = trial.status == spec::name_of(spec::TrialStatus::ok);
  if (sweep_.winner_trial == trial.id && is_ok) marks.emplace_back("winner");
  if (sweep_.baseline_trial == trial.id) marks.emplace_back("baseline");
  if (sweep_.first_fit_trial == trial.id) marks.emplace_back("first_fit");
  return marks;
}

bool SweepView::is_kept(const store::TrialRow& trial) const {
  return std::ranges::any_of(decisions_, [&](const store::DecisionRow& decision) {
    return decision.kind == store::DecisionKind::kept && decision.trial_id == trial.id;
  });
}

const store::TrialRow* SweepView::find(std::optional<int64_t> id) const {
  const auto found = id ? trials_.find(*id) : trials_.end();
  return found == trials_.end() ? nullptr : &found->second;
}

const store::TrialRow* SweepView::first_fit() const { return find(sweep_.first_fit_trial); }

const store::TrialRow* SweepView::parent_of(const store::TrialRow& trial) const {
  for (const store::DecisionRow& decision : decisions_) {
    const bool is_about_it =
        decision.trial_id == trial.id && decision.baseline_trial_id != trial.id;
    const store::TrialRow* parent = is_about_it ? find(decision.baseline_trial_id) : nullptr;
    if (parent != nullptr) return parent;
  }
  const store::TrialRow* parent = nullptr;
  if (trial.phase == name_of(base::Phase::retune)) {
    // A remedy changes the best so far, also where nothing has been decided about it.
    for (const store::DecisionRow& decision : decisions_) {
      const store::TrialRow* kept =
          decision.kind == store::DecisionKind::kept ? find(decision.trial_id) : nullptr;
      if (kept != nullptr && kept->ordinal < trial.ordinal) parent = kept;
    }
  } else if (trial.num_attempts == 0) {
    parent = find(sweep_.baseline_trial);
  }
  return parent == nullptr || parent->id == trial.id ? nullptr : parent;
}

const std::vector<store::MeasurementRow>& SweepView::measurements_of(
    const store::TrialRow& trial) const {
  static const std::vector<store::MeasurementRow> kNone;
  const auto found = measurements_.find(trial.id);
  return found == measurements_.end() ? kNone : found->second;
}

int64_t SweepView::num_counted(const store::TrialRow& trial) const {
  return std::ranges::count_if(measurements_of(trial), &store::MeasurementRow::is_counted);
}

const store::EnvironmentRow* SweepView::environment_of(const store::TrialRow& trial) const {
  const auto& runs = measurements_of(trial);
  const auto counted = std::ranges::find_if(runs, &store::MeasurementRow::is_counted);
  return counted == runs.end() ? nullptr : environment_of(*counted);
}

const store::EnvironmentRow* SweepView::environment_of(
    const store::MeasurementRow& measurement) const {
  const auto found = std::ranges::find_if(
      environments_, [&](const auto& row) { return measurement.environment_id == row.id; });
  return found == environments_.end() ? nullptr : &*found;
}

json environment_json(const store::EnvironmentRow* environment) {
  if (environment == nullptr) return nullptr;
  json document = {{"ordinal", environment->ordinal}};
  for (const std::string_view name : store::kEnvironmentIdentity) {
    document[std::string(name)] = text_or_null(environment->value(name));
  }
  return document;
}

json measurement_json(const SweepView& view, const store::MeasurementRow& measurement) {
  return {{"attempt", measurement.attempt},
          {"purpose", measurement.purpose},
          {"status", measurement.status},
          {"reason", measurement.reason},
          {"is_counted", measurement.is_counted},
          {"num_steps", measurement.num_steps},
          {"samples_ns", measurement.samples_ns},
          {"played_ns", measurement.played_ns},
          {"probe_ns", or_null(measurement.probe_ns)},
          {"step_ns", or_null(measurement.step_ns)},
          {"step_ns_low", or_null(measurement.step_ns_low)},
          {"step_ns_high", or_null(measurement.step_ns_high)},
          {"window_start", measurement.window_start},
          {"window_end", measurement.window_end},
          {"commit", text_or_null(measurement.commit)},
          {"environment", environment_json(view.environment_of(measurement))}};
}

std::string environment_text(const store::EnvironmentRow& environment) {
  std::string text = fmt::format("{}:", environment.ordinal);
  for (const std::string_view name : store::kEnvironmentIdentity) {
    const std::string value = one_line(environment.value(name));
    text += fmt::format("{} {} {}", text.ends_with(':') ? "" : ",", name,
                        value.empty() ? "unknown" : value);
  }
  return text;
}

}  // namespace moetune::sweeps
