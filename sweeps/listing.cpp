// Trials as JSON, and how they are called; the text of show is in details_text.cpp.
#include "sweeps/listing.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/spec/knobs.h"
#include "engine/spec/trial_status.h"
#include "profiler/store/db.h"
#include "profiler/store/metrics.h"
#include "profiler/store/untrusted_json.h"
#include "reports/device_account.h"
#include "reports/engine_trial.h"
#include "reports/or_null.h"
#include "sweeps/analyse.h"
#include "sweeps/knob_changes.h"
#include "sweeps/stored_flags.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using reports::or_null;
using reports::text_or_null;

/// A knob's value in its own type, so that a stored row can be pasted into a spec.
json value_json(const std::string& knob, const std::string& text) {
  const spec::KnobRow* row = spec::find_knob(knob);
  const bool is_text =
      row == nullptr || std::holds_alternative<std::string spec::Knobs::*>(row->member);
  const json value = is_text ? json() : store::parse_untrusted(text);
  return value.is_number() || value.is_boolean() ? value : json(text);
}

json knobs_json(const store::TrialRow& trial) {
  json knobs = json::object();
  for (const store::NamedText& knob : trial.knobs) {
    knobs[knob.name] = value_json(knob.name, knob.value);
  }
  return knobs;
}

/// From `from` to the trial, by knob: {"before", "after"}; null without `from`.
json changes_json(const store::TrialRow* from, const store::TrialRow& trial) {
  if (from == nullptr) return nullptr;
  json changes = json::object();
  for (const auto& [knob, before, after] : knob_changes(*from, trial)) {
    changes[knob] = {{"before", value_json(knob, before)}, {"after", value_json(knob, after)}};
  }
  return changes;
}

}  // namespace

store::TrialRow explained(store::TrialRow trial) {
  if (trial.status == spec::name_of(spec::TrialStatus::running) && !store::is_alive(trial.lease)) {
    trial.reason = "its process is gone; the next sweep repeats it";
  }
  return trial;
}

const store::TrialRow* baseline_of(const std::vector<store::TrialRow>& trials) {
  const auto found = std::ranges::find_if(trials, &store::TrialRow::is_baseline);
  if (found != trials.end()) return &*found;
  return trials.empty() ? nullptr : &trials.front();
}

std::string title_of(const store::Store& store, const store::TrialRow& trial,
                     const store::TrialRow* baseline) {
  store::Statement select(store.database(),
                          "SELECT value FROM trial_log WHERE trial_id = ? AND name = 'title' "
                          "ORDER BY ordinal DESC LIMIT 1");
  select.bind(1, trial.id);
  if (select.step()) return select.get_text(0);
  std::vector<std::string> changes;
  for (size_t i = 0; baseline != nullptr && i < trial.knobs.size() && i < baseline->knobs.size();
       ++i) {
    const store::NamedText& knob = trial.knobs[i];
    if (knob.name == baseline->knobs[i].name && knob.value != baseline->knobs[i].value) {
      changes.push_back(fmt::format("{} {}", knob.name, knob.value));
    }
  }
  return changes.empty() ? "starting configuration" : fmt::format("{}", fmt::join(changes, ", "));
}

json trial_json(const SweepView& view, const store::TrialRow& trial, const std::string& title) {
  const store::TrialRow* parent = view.parent_of(trial);
  return {{"id", trial.id},
          {"sweep", trial.sweep_id},
          {"hash", trial.spec_hash},
          {"phase", trial.phase},
          {"title", title},
          {"status", trial.status},
          {"reason", trial.reason},
          {"knobs", knobs_json(trial)},
          {"predicted_peak_bytes", or_null(trial.predicted_peak_bytes)},
          {"peak_bytes", or_null(trial.peak_bytes)},
          {"predicted_step_ns", or_null(trial.predicted_step_ns)},
          {"step_ns", or_null(trial.step_ns)},
          {"wall", text_or_null(trial.wall)},
          {"tokens_per_s", or_null(trial.tokens_per_s)},
          {"loss", or_null(trial.loss_final)},
          {"marks", view.marks_of(trial)},
          {"is_kept", view.is_kept(trial)},
          {"is_cleared", view.is_cleared(trial)},
          {"validated", or_null(view.validation_of(trial).is_passed)},
          {"parent", parent == nullptr ? json(nullptr) : json(parent->id)},
          {"changes", changes_json(parent, trial)},
          {"changes_from_first_fit", changes_json(view.first_fit(), trial)},
          {"num_measurements", view.num_counted(trial)},
          {"environment", environment_json(view.environment_of(trial))}};
}

json trial_details_json(const store::Store& store, const store::TrialRow& trial) {
  const std::vector<store::TrialRow> all = store.list_trials(trial.sweep_id);
  const SweepView view(store, trial.sweep_id);
  json document = trial_json(view, trial, title_of(store, trial, baseline_of(all)));
  document["is_baseline"] = trial.is_baseline;
  const std::optional<spec::MegatronFlags> flags = flags_of(trial);
  document["megatron_flags"] = flags ? json(spec::words_of(*flags)) : json(nullptr);
  document["megatron_notes"] = flags ? json(flags->notes) : json(nullptr);
  const std::optional<std::vector<std::string>> changes = reports::engine_changes(trial);
  document["engine_settings"] = changes ? json(*changes) : json(nullptr);
  document["step_ns_low"] = or_null(trial.step_ns_low);
  document["step_ns_high"] = or_null(trial.step_ns_high);
  document["started_at"] = text_or_null(trial.started_at);
  document["ended_at"] = text_or_null(trial.ended_at);
  document["duration_ns"] = or_null(trial.duration_ns);
  document["num_attempts"] = trial.num_attempts;
  document["spec"] = store::parse_untrusted(trial.spec_json);
  if (document["spec"].is_discarded()) document["spec"] = nullptr;
  json& measurements = document["measurements"] = json::array();
  for (const store::MeasurementRow& run : view.measurements_of(trial)) {
    measurements.push_back(measurement_json(view, run));
  }
  json& decisions = document["decisions"] = json::array();
  for (const store::DecisionRow& decision : store.read_decisions(trial.sweep_id)) {
    if (decision.trial_id != trial.id) continue;
    decisions.push_back({{"kind", name_of(decision.kind)},
                         {"phase", decision.phase},
                         {"text", decision.text},
                         {"gain_ratio", or_null(decision.gain_ratio)},
                         {"gain_low_ratio", or_null(decision.gain_low_ratio)},
                         {"gain_high_ratio", or_null(decision.gain_high_ratio)}});
  }
  json& predictions = document["predictions"] = json::object();
  for (const store::PredictionRow& row : store.read_predictions(trial.id)) {
    predictions[row.name] = {{"value", row.value}, {"grade", row.grade}};
  }
  json& metrics = document["metrics"] = json::array();
  for (const store::MetricRow& row : store.read_metrics(trial.id)) {
    metrics.push_back({{"rank", row.rank},
                       {"name", row.name},
                       {"unit", store::metric_info(row.name).unit},
                       {"value", row.value}});
  }
  json& memory = document["memory"] = json::array();
  for (const store::MemoryRow& row : store.read_memory(trial.id)) {
    memory.push_back({{"rank", row.rank},
                      {"group", row.group},
                      {"bytes", or_null(reports::known_bytes(changes.has_value(), row.bytes))},
                      {"predicted_bytes", or_null(row.predicted_bytes)},
                      {"peak_allocation", text_or_null(row.peak_allocation)}});
  }
  json& steps = document["steps"] = json::array();
  for (const store::StepRow& step : store.read_steps(trial.id)) {
    steps.push_back({{"step", step.step},
                     {"is_warmup", step.is_warmup},
                     {"is_traced", step.is_traced},
                     {"step_ns", step.step_ns},
                     {"loss", step.loss},
                     {"grad_norm", step.grad_norm},
                     {"lr", step.lr}});
  }
  json& texts = document["texts"] = json::object();
  for (const store::NamedText& text : store.read_texts(trial.id)) {
    // What is JSON already is not packed into a string a second time.
    const bool is_json =
        text.name == kWallEvidenceText || text.name == kRoutingProfileText ||
        (text.name == reports::kDeviceMemoryText && reports::read_device_account(text.value));
    const json parsed =
        is_json ? store::parse_untrusted(text.value) : json(json::value_t::discarded);
    json& value = texts[text.name];
    if (value.is_string() && parsed.is_discarded()) {
      // There may be several notes: a line each.
      value = value.get<std::string>() + "\n" + text.value;
    } else {
      value = parsed.is_discarded() ? json(text.value) : parsed;
    }
  }
  return document;
}

}  // namespace moetune::sweeps
