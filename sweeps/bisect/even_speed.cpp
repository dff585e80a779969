// See even_speed.h.
#include "sweeps/bisect/even_speed.h"

#include <algorithm>
#include <cmath>

#include "sweeps/bisect/leads.h"
#include "sweeps/bisect/metric_names.h"
#include "tuner/bisect/change_points.h"
#include "tuner/bisect/drift.h"

namespace moetune::sweeps {
namespace {

constexpr size_t kFewestParts = 6;
constexpr double kLargestShare = 1.0 / 3;  ///< of all parts' time, in one of them
constexpr double kLeftOfNoise = 0.6;       ///< at most
constexpr double kSurely = 0.99;

// Our engine's operations are those of a traced step, which has a time of its own.
std::string metric_of_parts(const HuntRuns& runs, const HuntSetup& setup) {
  constexpr const char* kTraced = "traced_step_ns";
  const bool is_step = stored_metric(setup.metric) == "step_ns";
  return is_step && runs.common_metrics().contains(kTraced) ? kTraced : setup.metric;
}

tuner::RunSpeed speed_by(const HuntRuns& runs, const std::vector<int>& positions,
                         const std::vector<std::string>& parts) {
  std::vector<std::vector<double>> durations;
  for (const int position : positions) {
    for (const CommitRun& run : runs.good_runs_at(position)) {
      std::vector<double>& of_run = durations.emplace_back();
      for (const std::string& name : parts) of_run.push_back(run.metrics.at(name));
    }
  }
  return tuner::RunSpeed(durations);
}

/// By how many noises a value differs between two positions; 0 where that is not sure.
double noises_between(const HuntRuns& runs, const HuntRuns::Value& value, int a, int b) {
  const std::vector<tuner::TimedReading> readings = runs.timed(value, {a, b});
  tuner::DriftWatch watch;
  watch.notice(readings);
  std::vector<tuner::CommitReadings> commits = {{a, {}}, {b, {}}};
  if (watch.is_there()) {
    commits = tuner::freed_of_course(readings, a, b);
  } else {
    for (const auto& reading : readings) {
      commits[reading.position == b].values.push_back(reading.value);
    }
  }
  if (commits.size() < 2 || commits[0].values.empty() || commits[1].values.empty()) return 0.0;
  // Neighbouring runs are alike where the machine's speed wanders.
  const tuner::LevelDifference difference = tuner::level_difference(
      commits[0].values, commits[1].values, 0.0, kSurely, tuner::kWeightInWander);
  const bool is_sure = difference.low > 0 || difference.high < 0;
  return is_sure ? difference.mean / difference.noise : 0.0;
}

}  // namespace

std::optional<EvenSpeed> EvenSpeed::of(const HuntRuns& runs, const HuntSetup& setup,
                                       const std::string& part) {
  const int last = static_cast<int>(setup.commits.size()) - 1;
  const std::string metric = metric_of_parts(runs, setup);
  std::vector<std::string> parts;
  for (const auto& [name, scale] : parts_of(runs, setup)) {
    if (name == part || name == metric) continue;
    std::vector<double> durations = runs.values_of(name, 0);
    const std::vector<double> bad = runs.values_of(name, last);
    durations.insert(durations.end(), bad.begin(), bad.end());
    if (!durations.empty() && *std::min_element(durations.begin(), durations.end()) > 0) {
      parts.push_back(name);
    }
  }
  // What has changed beside the machine is no measure of it. Without the part that did most, the
  // others show better which of them have.
  std::optional<EvenSpeed> even;
  while (true) {
    if (parts.size() < kFewestParts) return std::nullopt;
    even = EvenSpeed(metric, parts, speed_by(runs, {0, last}, parts));
    const std::optional<std::string> moved = even->most_moved(runs, 0, last);
    if (!moved) break;
    std::erase(parts, *moved);
  }
  if (even->speed_.largest_share() > kLargestShare || even->differs(runs, 0, last)) {
    return std::nullopt;
  }
  const auto noise_of = [&](const auto& values_at) {
    return tuner::pooled_noise({{0, values_at(0)}, {last, values_at(last)}});
  };
  const double raw = noise_of([&](int position) { return runs.values_of(setup.metric, position); });
  const double left = noise_of([&](int position) { return even->values_at(runs, position); });
  if (left > kLeftOfNoise * raw) return std::nullopt;
  return even;
}

std::optional<double> EvenSpeed::log_slowness_of(const CommitRun& run) const {
  std::vector<double> durations;
  durations.reserve(parts_.size());
  for (const std::string& name : parts_) {
    const auto found = run.metrics.find(name);
    if (found == run.metrics.end() || found->second <= 0) return std::nullopt;
    durations.push_back(found->second);
  }
  return speed_.log_slowness(durations);
}

std::optional<double> EvenSpeed::value_of(const HuntRuns& runs, const CommitRun& run) const {
  const std::optional<double> value = runs.value_of(run, metric_);
  const std::optional<double> slowness = log_slowness_of(run);
  if (!value || !slowness) return std::nullopt;
  return *value * std::exp(-*slowness);
}

std::vector<double> EvenSpeed::values_at(const HuntRuns& runs, int position) const {
  std::vector<double> values;
  for (const CommitRun& run : runs.good_runs_at(position)) {
    if (const auto value = value_of(runs, run)) values.push_back(*value);
  }
  return values;
}

tuner::LevelDifference EvenSpeed::ends_differ_by(const HuntRuns& runs,
                                                 const HuntSetup& setup) const {
  const int last = static_cast<int>(setup.commits.size()) - 1;
  return tuner::level_difference(values_at(runs, 0), values_at(runs, last), 0.0, setup.confidence);
}

bool EvenSpeed::differs(const HuntRuns& runs, int before, int after) const {
  const HuntRuns::Value slowness = [&](const CommitRun& run) { return log_slowness_of(run); };
  return noises_between(runs, slowness, before, after) != 0;
}

std::optional<std::string> EvenSpeed::most_moved(const HuntRuns& runs, int before,
                                                 int after) const {
  std::optional<std::string> most;
  double most_noises = 0.0;
  for (const std::string& part : parts_) {
    const HuntRuns::Value ratio = [&](const CommitRun& run) -> std::optional<double> {
      const std::optional<double> slowness = log_slowness_of(run);
      if (!slowness) return std::nullopt;
      return std::log(run.metrics.at(part)) - *slowness;
    };
    const double noises = std::abs(noises_between(runs, ratio, before, after));
    if (noises <= most_noises) continue;
    most_noises = noises;
    most = part;
  }
  return most;
}

}  // namespace moetune::sweeps
