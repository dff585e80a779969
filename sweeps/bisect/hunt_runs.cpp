#include "sweeps/bisect/hunt_runs.h"

#include <algorithm>

#include "kernels/base/units.h"
#include "sweeps/bisect/metric_names.h"
#include "sweeps/bisect/reading.h"

namespace moetune::sweeps {
namespace {

// A path is no setting: the same text may lie elsewhere.
bool is_place(const std::string& name) { return name == "data_path"; }

std::string config_value(const std::map<std::string, std::string>& config,
                         const std::string& name) {
  const auto found = config.find(name);
  return found == config.end() ? "" : found->second;
}

}  // namespace

double mean_of(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

bool are_equal(const std::vector<double>& values) {
  return !values.empty() && std::all_of(values.begin(), values.end(),
                                        [&](double value) { return value == values.front(); });
}

const CommitRun* HuntRuns::first_at(int position) const {
  const auto found = std::find_if(runs().begin(), runs().end(), [position](const HuntRun& run) {
    return run.position == position;
  });
  return found == runs().end() ? nullptr : &found->run;
}

// What a store holds has its unit in its name; a number that a command prints has none.
std::string HuntRuns::unit() const {
  const std::string name = stored_metric(setup_->metric);
  for (const HuntRun& run : used_runs()) {
    if (!run.run.metrics.contains(name)) continue;
    return std::string(base::unit_of_name(name));
  }
  return "";
}

std::optional<double> HuntRuns::value_of(const CommitRun& run, const std::string& metric) const {
  if (metric == kRunFailsMetric) {
    if (run.status == RunStatus::ok) return 0.0;
    // Failures of another kind say nothing of this one.
    return run.status == failure_ ? std::optional(1.0) : std::nullopt;
  }
  if (run.status != RunStatus::ok) return std::nullopt;
  if (metric.starts_with(kConfigPrefix)) {
    if (run.config.empty()) return std::nullopt;
    const std::string name = metric.substr(std::string(kConfigPrefix).size());
    return config_value(run.config, name) == config_value(config_at(0), name) ? 0.0 : 1.0;
  }
  if (const auto own = defined_.find(metric); own != defined_.end()) return own->second(run);
  if (metric == setup_->metric && run.value) return run.value;
  return find_metric(run.metrics, metric);
}

std::vector<double> HuntRuns::values_of(const std::string& metric, int position) const {
  std::vector<double> values;
  for (const HuntRun& run : used_runs()) {
    if (run.position != position) continue;
    if (const auto value = value_of(run.run, metric)) values.push_back(*value);
  }
  return values;
}

std::vector<tuner::TimedReading> HuntRuns::timed(const std::string& metric,
                                                 const std::vector<int>& positions) const {
  return timed([&](const CommitRun& run) { return value_of(run, metric); }, positions);
}

std::vector<tuner::TimedReading> HuntRuns::timed(const Value& value,
                                                 const std::vector<int>& positions) const {
  std::vector<tuner::TimedReading> readings;
  for (size_t i = 0; i < runs().size(); ++i) {
    const int at = runs()[i].position;
    if (!is_used(i) || std::find(positions.begin(), positions.end(), at) == positions.end())
      continue;
    if (const auto number = value(runs()[i].run)) {
      readings.push_back({at, *number, time_of(i)});
    }
  }
  return readings;
}

std::set<std::string> HuntRuns::common_metrics() const {
  std::optional<std::set<std::string>> names;
  for (const HuntRun& run : used_runs()) {
    const bool is_end = run.position == 0 || run.position == last_position();
    if (!is_end || run.run.status != RunStatus::ok) continue;
    std::set<std::string> own;
    for (const auto& [name, value] : run.run.metrics) {
      if (!names || names->contains(name)) own.insert(name);
    }
    names = std::move(own);
  }
  return names.value_or(std::set<std::string>{});
}

// Of its first good run.
const std::map<std::string, std::string>& HuntRuns::config_at(int position) const {
  static const std::map<std::string, std::string> kNone;
  for (const HuntRun& run : used_runs()) {
    if (run.position == position && !run.run.config.empty()) return run.run.config;
  }
  return kNone;
}

std::vector<reports::ConfigChange> HuntRuns::config_changes_between(int before, int after) const {
  const std::map<std::string, std::string>& good = config_at(before);
  const std::map<std::string, std::string>& bad = config_at(after);
  if (good.empty() || bad.empty()) return {};
  std::map<std::string, std::string> names = good;
  names.insert(bad.begin(), bad.end());
  std::vector<reports::ConfigChange> changes;
  const auto runs = used_runs();
  for (const auto& entry : names) {
    const std::string& name = entry.first;
    reports::ConfigChange change{name, config_value(good, name), config_value(bad, name)};
    if (change.before == change.after || is_place(name)) continue;
    // A time or a folder in it differs between any two runs.
    const bool is_steady = std::all_of(runs.begin(), runs.end(), [&](const HuntRun& run) {
      const std::string& expected = run.position == before ? change.before : change.after;
      const bool counts = run.position == before || run.position == after;
      return !counts || run.run.config.empty() || config_value(run.run.config, name) == expected;
    });
    if (is_steady) changes.push_back(std::move(change));
  }
  return changes;
}

std::vector<HuntAnswer::Skipped> HuntRuns::skipped() const {
  std::vector<HuntAnswer::Skipped> skipped;
  std::set<int> seen;
  for (const HuntRun& run : used_runs()) {
    const bool is_other = run.run.status != RunStatus::ok && run.run.status != failure_;
    if (!is_other || !values_of(setup_->metric, run.position).empty()) continue;
    if (!seen.insert(run.position).second) continue;
    skipped.push_back({run.position, name_of(run.run.status), run.run.message});
  }
  return skipped;
}

}  // namespace moetune::sweeps
