// Trials as JSON and text; see listing.h.
#include "sweeps/listing.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/spec/knobs.h"
#include "engine/spec/trial_status.h"
#include "kernels/base/units.h"
#include "profiler/store/db.h"
#include "profiler/store/metrics.h"
#include "reports/device_account.h"
#include "sweeps/analyse.h"
#include "sweeps/table.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using Align = TextTable::Align;

template <typename T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

json text_or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

/// Knob values in their own types, so that a stored row can be pasted into a spec.
json knobs_json(const store::TrialRow& trial) {
  json knobs = json::object();
  for (const store::NamedText& knob : trial.knobs) {
    const spec::KnobRow* row = spec::find_knob(knob.name);
    const bool is_text =
        row == nullptr || std::holds_alternative<std::string spec::Knobs::*>(row->member);
    const json value = is_text ? json() : json::parse(knob.value, nullptr, false);
    knobs[knob.name] = value.is_number() || value.is_boolean() ? value : json(knob.value);
  }
  return knobs;
}

std::string format_value(double value, std::string_view unit) {
  if (unit == "ns") return base::format_ns(static_cast<int64_t>(value));
  if (unit == "bytes") return base::format_bytes(static_cast<int64_t>(value));
  if (unit == "ratio") return base::format_ratio(value);
  if (unit == "nats") return fmt::format("{:.4f}", value);
  return base::format_count(value) + (unit == "1/s" ? "/s" : "");
}

std::string bytes_text(const std::optional<int64_t>& bytes) {
  return bytes ? base::format_bytes(*bytes) : "-";
}

std::string ns_text(const std::optional<int64_t>& ns) { return ns ? base::format_ns(*ns) : "-"; }

std::string section(const std::string& title, const std::string& body) {
  return body.empty() ? "" : "\n" + title + "\n" + body;
}

std::string head_text(const store::TrialRow& trial, const std::string& title) {
  std::string text = fmt::format("trial {} ({}), {}: {}\n", trial.id, trial.spec_hash, trial.phase,
                                 one_line(title));
  text += "status  " + trial.status;
  if (!trial.reason.empty()) text += ": " + one_line(trial.reason);
  text += fmt::format("\nstep    {} measured, {} predicted\n", ns_text(trial.step_ns),
                      ns_text(trial.predicted_step_ns));
  text += fmt::format("peak    {} measured, {} predicted\n", bytes_text(trial.peak_bytes),
                      bytes_text(trial.predicted_peak_bytes));
  if (trial.tokens_per_s) {
    text += fmt::format("speed   {} tokens/s\n", base::format_count(*trial.tokens_per_s));
  }
  if (trial.loss_final) text += fmt::format("loss    {:.4f} nats per token\n", *trial.loss_final);
  if (!trial.wall.empty()) text += "wall    " + trial.wall + "\n";
  return text;
}

std::string wall_text(const std::vector<store::NamedText>& texts) {
  std::string text;
  for (const store::NamedText& entry : texts) {
    if (entry.name != kWallEvidenceText) continue;
    const json document = json::parse(entry.value, nullptr, false);
    if (!document.is_object()) continue;
    text = "  " + one_line(document.value("summary", "")) + "\n";
    for (const json& fact : document.value("evidence", json::array())) {
      if (fact.is_object()) text += "  - " + one_line(fact.value("text", "")) + "\n";
    }
  }
  return text;
}

/// One line per run: those that count, and those of other environments.
std::string measurements_text(const SweepView& view, const store::TrialRow& trial) {
  if (view.measurements_of(trial).empty()) return {};
  TextTable table({{"  attempt", Align::right},
                   {"for"},
                   {"counts"},
                   {"status"},
                   {"step", Align::right},
                   {"from", Align::right},
                   {"to", Align::right},
                   {"steps", Align::right},
                   {"when"},
                   {"environment"}});
  for (const store::MeasurementRow& run : view.measurements_of(trial)) {
    const store::EnvironmentRow* environment = view.environment_of(run);
    table.add({std::to_string(run.attempt), run.purpose, run.is_counted ? "yes" : "no",
               run.reason.empty() ? run.status : run.status + ": " + run.reason,
               ns_text(run.step_ns), ns_text(run.step_ns_low), ns_text(run.step_ns_high),
               std::to_string(run.samples_ns.size()), run.window_start,
               environment == nullptr ? "unknown" : environment_text(*environment)});
  }
  return table.text(std::nullopt);
}

/// One line per rank: what it peaked at, and what the peak was made of.
std::string memory_text(const std::vector<store::MemoryRow>& rows) {
  if (rows.empty()) return {};
  std::vector<TextTable::Column> columns = {{"  rank", Align::right},
                                            {"peak", Align::right},
                                            {"predicted", Align::right},
                                            {"capacity", Align::right}};
  std::vector<std::string> groups;
  for (int i = 0; i < profiler::kNumMemoryGroups; ++i) {
    groups.emplace_back(profiler::name_of(static_cast<profiler::MemoryGroup>(i)));
    columns.push_back({groups.back(), Align::right});
  }
  columns.push_back({"set by"});
  std::map<int, std::map<std::string, store::MemoryRow>> ranks;
  for (const store::MemoryRow& row : rows) ranks[row.rank][row.group] = row;
  TextTable table(columns);
  for (auto& [rank, by_group] : ranks) {
    const store::MemoryRow& total = by_group["total"];
    std::vector<std::string> cells = {std::to_string(rank), bytes_text(total.bytes),
                                      bytes_text(total.predicted_bytes),
                                      bytes_text(by_group["capacity"].bytes)};
    for (const std::string& group : groups) cells.push_back(bytes_text(by_group[group].bytes));
    cells.push_back(total.peak_allocation);
    table.add(std::move(cells));
  }
  return table.text(std::nullopt);
}

/// What lies on the device of each process: a line each, and what the lines leave of what the
/// driver says is used.
std::string device_memory_text(const std::vector<store::NamedText>& texts) {
  std::string text;
  for (const store::NamedText& entry : texts) {
    if (entry.name != reports::kDeviceMemoryText) continue;
    const auto account = reports::read_device_account(entry.value);
    if (!account) {
      text += "  cannot be read\n";
      continue;
    }
    TextTable table({{"  " + account->ranks}, {"bytes", Align::right}, {"share", Align::right}});
    const auto add = [&](const std::string& name, int64_t bytes, double ratio) {
      table.add({"  " + name, base::format_bytes(bytes), base::format_ratio(ratio)});
    };
    for (const auto& line : account->lines) add(line.name, line.bytes, line.used_ratio);
    add(account->rest.name, account->rest.bytes, account->rest.used_ratio);
    add("used, as the driver says", account->driver_used_bytes, 1);
    text += table.text(std::nullopt);
  }
  return text;
}

/// Lines of whole words, indented, not wider than `width` where words allow it.
std::string wrapped(const std::string& text, std::optional<size_t> width) {
  std::string lines;
  std::string line = " ";
  std::istringstream words(one_line(text));
  for (std::string word; words >> word;) {
    if (width && line != " " && display_width(line) + 1 + display_width(word) > *width) {
      lines += line + "\n";
      line = " ";
    }
    line += " " + word;
  }
  return lines + line + "\n";
}

std::string trace_text(const std::vector<store::NamedText>& texts, std::optional<size_t> width) {
  std::string text;
  for (const store::NamedText& entry : texts) {
    if (entry.name == reports::kTraceNoteText) text += wrapped(entry.value, width);
  }
  return text;
}

/// What became of the graphs of a trial on a GPU, all ranks together.
std::string graphs_text(const std::vector<store::MetricRow>& rows) {
  std::map<std::string, double> sums;
  for (const store::MetricRow& row : rows) {
    if (row.rank >= 0 && row.name.starts_with("num_graph")) sums[row.name] += row.value;
  }
  if (sums.empty()) return {};
  return fmt::format("  {} captured, {} launches of them, {} parts given up\n",
                     base::format_count(sums["num_graphs"]),
                     base::format_count(sums["num_graph_replays"]),
                     base::format_count(sums["num_graphs_given_up"]));
}

std::string metrics_text(const std::vector<store::MetricRow>& rows) {
  TextTable table({{"  metric"}, {"value", Align::right}, {"meaning"}});
  bool has_rows = false;
  for (const store::MetricRow& row : rows) {
    if (row.rank >= 0) continue;
    has_rows = true;
    const store::MetricInfo& info = store::metric_info(row.name);
    table.add({"  " + row.name, format_value(row.value, info.unit), std::string(info.help)});
  }
  return has_rows ? table.text(std::nullopt) : "";
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
          {"num_measurements", view.num_counted(trial)},
          {"environment", environment_json(view.environment_of(trial))}};
}

json trial_details_json(const store::Store& store, const store::TrialRow& trial) {
  const std::vector<store::TrialRow> all = store.list_trials(trial.sweep_id);
  const SweepView view(store, trial.sweep_id);
  json document = trial_json(view, trial, title_of(store, trial, baseline_of(all)));
  document["is_baseline"] = trial.is_baseline;
  document["step_ns_low"] = or_null(trial.step_ns_low);
  document["step_ns_high"] = or_null(trial.step_ns_high);
  document["started_at"] = text_or_null(trial.started_at);
  document["ended_at"] = text_or_null(trial.ended_at);
  document["duration_ns"] = or_null(trial.duration_ns);
  document["num_attempts"] = trial.num_attempts;
  document["spec"] = json::parse(trial.spec_json, nullptr, false);
  if (document["spec"].is_discarded()) document["spec"] = nullptr;
  json& measurements = document["measurements"] = json::array();
  for (const store::MeasurementRow& run : view.measurements_of(trial)) {
    measurements.push_back(measurement_json(view, run));
  }
  json& decisions = document["decisions"] = json::array();
  for (const store::DecisionRow& decision : store.read_decisions(trial.sweep_id)) {
    if (decision.trial_id != trial.id) continue;
    decisions.push_back({{"kind", decision.kind},
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
                      {"bytes", or_null(row.bytes)},
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
        is_json ? json::parse(text.value, nullptr, false) : json(json::value_t::discarded);
    texts[text.name] = parsed.is_discarded() ? json(text.value) : parsed;
  }
  return document;
}

std::string trial_details_text(const store::Store& store, const store::TrialRow& trial,
                               std::optional<size_t> width) {
  const std::vector<store::TrialRow> all = store.list_trials(trial.sweep_id);
  std::string text = head_text(trial, title_of(store, trial, baseline_of(all)));
  std::string knobs;
  for (const store::NamedText& knob : trial.knobs) {
    knobs += fmt::format("  {:<36} {}\n", knob.name, one_line(knob.value));
  }
  const std::vector<store::NamedText> texts = store.read_texts(trial.id);
  std::string told;
  for (const store::DecisionRow& decision : store.read_decisions(trial.sweep_id)) {
    if (decision.trial_id == trial.id) {
      told += fmt::format("  {}: {}\n", decision.kind, one_line(decision.text));
    }
  }
  const SweepView view(store, trial.sweep_id);
  std::string log;
  for (const store::NamedText& entry : texts) {
    if (entry.name == "command" || entry.name == "stderr" || entry.name == "device_kernels") {
      log += fmt::format("  {}: {}\n", entry.name, one_line(entry.value));
    }
  }
  text += section("Knobs", knobs);
  text += section("Measurements", measurements_text(view, trial));
  text += section("Decisions", told);
  text += section("Wall", wall_text(texts));
  text += section("Memory at the peak", memory_text(store.read_memory(trial.id)));
  text += section("Memory of the device", device_memory_text(texts));
  text += section("Trace", trace_text(texts, width));
  const std::vector<store::MetricRow> metrics = store.read_metrics(trial.id);
  text += section("Graphs (all ranks)", graphs_text(metrics));
  text += section("Metrics (whole run)", metrics_text(metrics));
  text += section("Log", log);
  if (!width) return text;
  std::string cut;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    cut += cut_to_width(std::string_view(text).substr(start, end - start), *width) + "\n";
    start = end + 1;
  }
  return cut;
}

}  // namespace moetune::sweeps
