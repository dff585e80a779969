// Each field of a run beside its column, in both directions.
#include "sweeps/bisect/run_rows.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/spec/json_reader.h"
#include "kernels/base/error.h"
#include "sweeps/bisect/reading.h"
#include "sweeps/bisect/text.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;

constexpr std::array kStatuses = {RunStatus::ok,  RunStatus::build_failed, RunStatus::crashed,
                                  RunStatus::oom, RunStatus::hung,         RunStatus::no_metric};

json metrics_json(const CommitRun& run) {
  json metrics = json::object();
  for (const auto& [name, value] : run.metrics) {
    if (std::isfinite(value)) metrics[name] = value;
  }
  json document = {{"metrics", std::move(metrics)}, {"was_built_now", run.was_built_now}};
  if (!run.config.empty()) document["config"] = run.config;
  return document;
}

}  // namespace

store::BisectRunRow row_of(const CommitRun& run, int position, const std::string& key,
                           const std::string& purpose) {
  store::BisectRunRow row;
  row.position = position;
  row.key = key;
  row.purpose = purpose;
  row.status = name_of(run.status);
  row.value = run.value;
  row.metrics_json = metrics_json(run).dump(-1, ' ', false, json::error_handler_t::replace);
  row.message = run.message;
  row.build_seconds = run.build_seconds;
  row.run_seconds = run.run_seconds;
  return row;
}

CommitRun run_of(const store::BisectRunRow& row) {
  CommitRun run;
  run.status = RunStatus::no_metric;
  for (const RunStatus status : kStatuses) {
    if (row.status == name_of(status)) run.status = status;
  }
  if (row.value && is_measurement(*row.value)) run.value = row.value;
  run.message = plain_text(row.message, 500);
  run.build_seconds = row.build_seconds;
  run.run_seconds = row.run_seconds;
  json document;
  try {
    document = spec::parse_json(row.metrics_json, "metrics");
  } catch (const base::Error&) {
    return run;
  }
  if (!document.is_object()) return run;
  const auto built = document.find("was_built_now");
  run.was_built_now = built != document.end() && built->is_boolean() && built->get<bool>();
  if (const auto config = document.find("config");
      config != document.end() && config->is_object()) {
    for (const auto& [name, value] : config->items()) {
      if (value.is_string()) run.config[name] = value.get<std::string>();
    }
  }
  const auto metrics = document.find("metrics");
  if (metrics == document.end() || !metrics->is_object()) return run;
  for (const auto& [name, value] : metrics->items()) {
    if (value.is_number() && is_measurement(value)) run.metrics[name] = value.get<double>();
  }
  return run;
}

std::optional<CommitRun> run_of_other(const store::BisectRunRow& row, const std::string& metric) {
  CommitRun run = run_of(row);
  // A failure may be one of its limits, or of a full disk: worth another look.
  if (run.status != RunStatus::ok) return std::nullopt;
  run.value = find_metric(run.metrics, metric);
  return run.value ? std::optional(run) : std::nullopt;
}

}  // namespace moetune::sweeps
