#include "sweeps/bisect/even_speed.h"

#include <algorithm>
#include <cmath>

#include "sweeps/bisect/leads.h"
#include "sweeps/bisect/metric_names.h"
#include "sweeps/bisect/reading.h"
#include "tuner/stats/drift.h"
#include "tuner/stats/levels.h"

namespace moetune::sweeps {
namespace {

constexpr size_t kFewestParts = 6;
constexpr size_t kMostParts = 100;         ///< the longest: more add time and tell nothing
constexpr double kLargestShare = 1.0 / 3;  ///< of all parts' time, in one of them
constexpr double kMostNoiseLeft = 0.6;     ///< of the metric's noise, for the correction to pay
constexpr double kMovedConfidence = 0.99;  ///< that a part has moved
constexpr size_t kFewestReadings = 3;

// Our engine's operations are those of a traced step, which has a time of its own.
std::string metric_of_parts(const HuntRuns& runs, const HuntSetup& setup) {
  constexpr const char* kTraced = "traced_step_ns";
  const bool is_step = stored_metric(setup.metric) == "step_ns";
  return is_step && runs.common_metrics().contains(kTraced) ? kTraced : setup.metric;
}

/// Of a value between two positions that were run in turns, freed of the machine's course where
/// that shows. None with fewer than three readings of each: they say nothing of the noise.
std::optional<tuner::LevelDifference> difference_between(const HuntRuns& runs,
                                                         const HuntRuns::Value& value, int a, int b,
                                                         double probability) {
  const std::vector<tuner::TimedReading> readings = runs.timed(value, {a, b});
  tuner::DriftWatch watch;
  watch.notice(readings);
  std::vector<tuner::CommitReadings> commits = {{a, {}}, {b, {}}};
  if (watch.is_there()) {
    commits = tuner::without_drift(readings, a, b);
  } else {
    for (const auto& reading : readings) {
      commits[reading.position == b].values.push_back(reading.value);
    }
  }
  const auto is_short = [](const auto& commit) { return commit.values.size() < kFewestReadings; };
  if (commits.size() < 2 || std::any_of(commits.begin(), commits.end(), is_short)) {
    return std::nullopt;
  }
  return tuner::level_difference(commits[0].values, commits[1].values, 0.0, probability,
                                 watch.weight_of_reading());
}

/// By how many noises; 0 where that is not sure.
double noises_between(const HuntRuns& runs, const HuntRuns::Value& value, int a, int b) {
  const auto difference = difference_between(runs, value, a, b, kMovedConfidence);
  const bool is_sure = difference && (difference->low > 0 || difference->high < 0);
  return is_sure ? difference->mean / difference->noise : 0.0;
}

}  // namespace

// The longest parts, by their time at the good end: at the bad one they may have changed. A part
// must take some time in every good run of both ends, and no longer than the metric itself.
std::vector<EvenSpeed::Part> EvenSpeed::long_parts(const HuntRuns& runs, const HuntSetup& setup) {
  const double whole = mean_of(runs.values_of(setup.metric, 0));
  const size_t num_runs =
      runs.good_runs_at(0).size() + runs.good_runs_at(last_position(setup)).size();
  std::vector<std::pair<double, Part>> parts;
  for (const auto& entry : parts_of(runs, setup)) {
    const std::string& name = entry.first;
    const double scale = entry.second;
    std::vector<double> durations = runs.values_of(name, 0);
    if (durations.empty()) continue;
    const double usual = scale * mean_of(durations);
    const std::vector<double> bad = runs.values_of(name, last_position(setup));
    durations.insert(durations.end(), bad.begin(), bad.end());
    const bool has_all = durations.size() == num_runs &&
                         std::all_of(durations.begin(), durations.end(), [&](double duration) {
                           return duration > 0 && std::isnormal(scale * duration);
                         });
    if (has_all && usual <= whole) parts.emplace_back(usual, Part{name, scale});
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (parts.size() > kMostParts) parts.resize(kMostParts);
  std::vector<Part> longest;
  longest.reserve(parts.size());
  for (auto& [duration, part] : parts) longest.push_back(std::move(part));
  return longest;
}

EvenSpeed::EvenSpeed(const HuntRuns& runs, const HuntSetup& setup, std::string metric,
                     std::vector<Part> parts)
    : metric_(std::move(metric)), parts_(std::move(parts)), speed_([&] {
        std::vector<std::vector<double>> all;
        for (const int position : {0, last_position(setup)}) {
          for (const CommitRun& run : runs.good_runs_at(position)) {
            if (auto durations = durations_of(run)) all.push_back(std::move(*durations));
          }
        }
        return tuner::RunSpeed(all);
      }()) {}

std::optional<EvenSpeed> EvenSpeed::of(const HuntRuns& runs, const HuntSetup& setup,
                                       const std::string& part) {
  const int last = last_position(setup);
  const std::string metric = metric_of_parts(runs, setup);
  std::vector<Part> parts = long_parts(runs, setup);
  std::erase_if(parts, [&](const Part& p) { return p.name == part || p.name == metric; });
  // A part that a commit changed does not show the machine's speed. Parts are dropped one by one,
  // the most changed first: without it the others show better which of them changed too.
  std::optional<EvenSpeed> even;
  while (true) {
    if (parts.size() < kFewestParts) return std::nullopt;
    even = EvenSpeed(runs, setup, metric, parts);
    const std::optional<size_t> moved = even->most_moved(runs, 0, last);
    if (!moved) break;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(*moved));
  }
  if (even->speed_.largest_share() > kLargestShare || even->differs(runs, 0, last) ||
      !even->ends_differ_by(runs, setup)) {
    return std::nullopt;
  }
  const auto noise_of = [&](const auto& values_at) {
    const std::vector<double> good = values_at(0);
    return tuner::pooled_noise({{0, good}, {last, values_at(last)}}) / mean_of(good);
  };
  const double raw = noise_of([&](int position) { return runs.values_of(setup.metric, position); });
  const double left = noise_of([&](int position) { return even->values_at(runs, position); });
  if (left > kMostNoiseLeft * raw) return std::nullopt;
  return even;
}

std::optional<std::vector<double>> EvenSpeed::durations_of(const CommitRun& run) const {
  std::vector<double> durations;
  durations.reserve(parts_.size());
  for (const Part& part : parts_) {
    const std::optional<double> duration = find_metric(run.metrics, part.name);
    if (!duration) return std::nullopt;
    durations.push_back(part.scale * *duration);
    if (!std::isnormal(durations.back()) || durations.back() < 0) return std::nullopt;
  }
  return durations;
}

std::optional<double> EvenSpeed::log_slowness_of(const CommitRun& run) const {
  const std::optional<std::vector<double>> durations = durations_of(run);
  return durations ? std::optional(speed_.log_slowness(*durations)) : std::nullopt;
}

std::optional<double> EvenSpeed::value_of(const HuntRuns& runs, const CommitRun& run) const {
  const std::optional<double> value = runs.value_of(run, metric_);
  const std::optional<double> slowness = log_slowness_of(run);
  if (!value || !slowness) return std::nullopt;
  const double even = *value * std::exp(-*slowness);
  return is_measurement(even) ? std::optional(even) : std::nullopt;
}

std::vector<double> EvenSpeed::values_at(const HuntRuns& runs, int position) const {
  std::vector<double> values;
  for (const CommitRun& run : runs.good_runs_at(position)) {
    if (const auto value = value_of(runs, run)) values.push_back(*value);
  }
  return values;
}

std::optional<tuner::LevelDifference> EvenSpeed::ends_differ_by(const HuntRuns& runs,
                                                                const HuntSetup& setup) const {
  const HuntRuns::Value value = [&](const CommitRun& run) { return value_of(runs, run); };
  return difference_between(runs, value, 0, last_position(setup), setup.confidence);
}

bool EvenSpeed::differs(const HuntRuns& runs, int before, int after) const {
  const HuntRuns::Value slowness = [&](const CommitRun& run) { return log_slowness_of(run); };
  return noises_between(runs, slowness, before, after) != 0;
}

std::optional<size_t> EvenSpeed::most_moved(const HuntRuns& runs, int before, int after) const {
  std::optional<size_t> most;
  double most_noises = 0.0;
  for (size_t part = 0; part < parts_.size(); ++part) {
    const HuntRuns::Value ratio = [&](const CommitRun& run) -> std::optional<double> {
      const std::optional<std::vector<double>> durations = durations_of(run);
      if (!durations) return std::nullopt;
      return std::log((*durations)[part]) - speed_.log_slowness(*durations);
    };
    const double noises = std::abs(noises_between(runs, ratio, before, after));
    if (noises <= most_noises) continue;
    most_noises = noises;
    most = part;
  }
  return most;
}

}  // namespace moetune::sweeps
