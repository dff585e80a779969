// Each field of the tuner's structs beside the store's column, in both directions.
#include "sweeps/outcome.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/spec/knobs.h"
#include "profiler/store/untrusted_json.h"
#include "sweeps/analyse.h"
#include "tuner/stats/run_comparison.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;

std::string last_text(const std::vector<store::NamedText>& texts, std::string_view name) {
  const auto found = std::find_if(texts.rbegin(), texts.rend(),
                                  [&](const store::NamedText& text) { return text.name == name; });
  return found == texts.rend() ? std::string() : found->value;
}

/// The database may have been edited by anybody: what does not parse is as if it were not there.
void read_wall(const std::string& text, tuner::TrialOutcome& outcome) {
  const json document = store::parse_untrusted(text);
  if (!document.is_object()) return;
  const auto word_of = [&](const char* key) {
    const auto found = document.find(key);
    return found != document.end() && found->is_string() ? found->get<std::string>() : "";
  };
  // Trials of earlier versions have a label beside a wall that knows less.
  if (const auto label = base::wall_from_name(word_of("label"))) outcome.wall = label;
  outcome.wall_cause = word_of("sub_cause");
  const auto evidence = document.find("evidence");
  if (evidence != document.end() && evidence->is_array()) {
    for (const json& fact : *evidence) {
      if (!fact.is_object() || !fact.contains("name") || !fact.contains("text")) continue;
      const auto value = fact.find("value");
      if (fact["name"] == kTracedStepFact && value != fact.end() && value->is_number()) {
        const auto ns = value->get<double>();
        const bool is_time = ns >= 1 && ns < 1e18;
        outcome.traced_step_ns = is_time ? std::llround(ns) : 0;
      }
      const bool is_doubt = fact["name"] == "ranks_missing" || fact["name"] == "ranks_unknown";
      if (is_doubt && fact["text"].is_string()) outcome.wall_doubt = fact["text"];
    }
  }
  const auto read_ratios = [&](const char* key, std::map<std::string, double>& ratios) {
    const auto found = document.find(key);
    if (found == document.end() || !found->is_object()) return;
    for (const auto& [name, ratio] : found->items()) {
      if (ratio.is_number()) ratios[name] = ratio.get<double>();
    }
  };
  read_ratios("shares", outcome.shares);
  read_ratios("label_ceilings", outcome.ceilings);
  read_ratios("ceilings", outcome.cause_ceilings);
}

/// What says how far off the step time may be; of played steps that is their interval.
std::vector<double> compared_samples(const store::MeasurementRow& run) {
  if (!run.played_ns.empty()) return {};
  return {run.samples_ns.begin(), run.samples_ns.end()};
}

}  // namespace

tuner::TrialOutcome read_outcome(const store::Store& store, const store::TrialRow& trial,
                                 const store::MeasurementRow& measurement) {
  tuner::TrialOutcome outcome;
  outcome.status = spec::status_from_name(measurement.status);
  outcome.reason = measurement.reason;
  // Anybody may have edited the file: a time below 0 is none, and an interval holds its median.
  outcome.step_ns = std::max<int64_t>(0, measurement.step_ns.value_or(0));
  outcome.step_low_ns =
      std::clamp<int64_t>(measurement.step_ns_low.value_or(outcome.step_ns), 0, outcome.step_ns);
  outcome.step_high_ns =
      std::max(measurement.step_ns_high.value_or(outcome.step_ns), outcome.step_ns);
  outcome.num_timed_steps = static_cast<int64_t>(measurement.samples_ns.size());
  outcome.samples_ns = compared_samples(measurement);
  outcome.started_s = store::seconds_of(measurement.window_start);
  outcome.ended_s = store::seconds_of(measurement.window_end);
  if (measurement.purpose != tuner::name_of(tuner::Purpose::first)) return outcome;
  outcome.peak_bytes = trial.peak_bytes.value_or(0);
  outcome.wall = base::wall_from_name(trial.wall);
  for (const store::StepRow& step : store.read_steps(trial.id)) {
    outcome.losses.push_back(step.loss);
  }
  for (const store::OpRow& op : store.read_ops(trial.id)) {
    tuner::TrialOutcome::OpTime& time = outcome.op_times[op.name];
    time.count += op.count;
    time.flops += op.flops;
    time.bytes += op.bytes;
    time.duration_ns += op.duration_ns;
  }
  const std::vector<store::NamedText> texts = store.read_texts(trial.id);
  outcome.routing_profile = last_text(texts, kRoutingProfileText);
  read_wall(last_text(texts, kWallEvidenceText), outcome);
  return outcome;
}

std::optional<store::TrialSpeed> speed_of(const std::vector<store::MeasurementRow>& measurements,
                                          double tokens_per_step) {
  std::vector<tuner::RunReading> runs;
  for (const store::MeasurementRow& run : measurements) {
    const auto step_ns = static_cast<double>(run.step_ns.value_or(0));
    if (!run.is_counted || step_ns <= 0) continue;
    runs.push_back(tuner::reading_of(
        step_ns, static_cast<double>(run.step_ns_low.value_or(*run.step_ns)),
        static_cast<double>(run.step_ns_high.value_or(*run.step_ns)), compared_samples(run), 0.0));
  }
  if (runs.size() < 2) return std::nullopt;
  const tuner::StepLevel level = tuner::level_of_runs(runs);
  store::TrialSpeed speed{std::llround(level.ns), std::llround(level.low_ns),
                          std::llround(level.high_ns), std::nullopt};
  if (tokens_per_step > 0) speed.tokens_per_s = tokens_per_step * 1e9 / level.ns;
  return speed;
}

store::TrialRow trial_row(const tuner::TrialRequest& request, int64_t sweep_id) {
  store::TrialRow row;
  row.sweep_id = sweep_id;
  row.spec_hash = request.hash;
  row.spec_json = spec::to_json(request.spec).dump(-1, ' ', false, json::error_handler_t::replace);
  row.reason = request.reason;
  row.phase = name_of(request.phase);
  row.is_baseline = request.is_baseline;
  if (request.prediction.peak_bytes > 0) row.predicted_peak_bytes = request.prediction.peak_bytes;
  if (request.prediction.step_ns > 0) row.predicted_step_ns = request.prediction.step_ns;
  for (const auto& [name, value] : request.settings) row.knobs.push_back({name, value});
  if (!request.stored_spec.empty()) {
    row.spec_json = request.stored_spec;
    return row;
  }
  for (const spec::KnobRow& knob : spec::knob_table()) {
    row.knobs.push_back({std::string(knob.name), spec::get_knob(request.spec.knobs, knob)});
  }
  return row;
}

std::vector<store::PredictionRow> prediction_rows(const tuner::Prediction& prediction) {
  std::vector<store::PredictionRow> rows;
  const auto add = [&](std::string name, int64_t value, tuner::Grade grade) {
    rows.push_back({std::move(name), static_cast<double>(value), tuner::name_of(grade)});
  };
  if (prediction.peak_bytes > 0) add("peak_bytes", prediction.peak_bytes, prediction.memory_grade);
  if (prediction.step_ns > 0) add("step_ns", prediction.step_ns, prediction.time_grade);
  for (const auto& [name, ns] : prediction.step_parts_ns) {
    add("step_part_" + name + "_ns", ns, prediction.time_grade);
  }
  return rows;
}

std::vector<store::MemoryPrediction> memory_predictions(const tuner::Prediction& prediction) {
  std::vector<store::MemoryPrediction> rows;
  for (size_t rank = 0; rank < prediction.ranks.size(); ++rank) {
    const tuner::Prediction::Rank& memory = prediction.ranks[rank];
    for (const auto& [group, bytes] : memory.group_bytes) {
      rows.push_back({static_cast<int>(rank), group, bytes});
    }
    if (!memory.group_bytes.contains("total")) {
      rows.push_back({static_cast<int>(rank), "total", memory.peak_bytes});
    }
  }
  return rows;
}

}  // namespace moetune::sweeps
