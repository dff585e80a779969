#include "tuner/stats/run_comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/base/error.h"
#include "profiler/analysis/stats.h"
#include "tuner/stats/drift.h"

namespace moetune::tuner {
namespace {

constexpr double kConfidence = 0.95;
constexpr size_t kFewestSamples = 3;
/// No two runs are the same to more digits, whatever their steps say.
constexpr double kLeastNoise = 1e-3;
/// A configuration that the machine's course is read from has been run so often.
constexpr size_t kFewestReferenceRuns = 3;

}  // namespace

RunReading reading_of(double step_ns, double low_ns, double high_ns,
                      const std::vector<double>& samples_ns, double time) {
  MOETUNE_CHECK(std::isfinite(step_ns) && step_ns > 0, "a step of {} ns", step_ns);
  RunReading reading{std::log(step_ns), 0.0, time};
  if (samples_ns.size() >= kFewestSamples) {
    reading.error = profiler::kMedianError * profiler::kMadToDeviation *
                    profiler::median_absolute_deviation(samples_ns) /
                    std::sqrt(static_cast<double>(samples_ns.size())) / step_ns;
  } else {
    reading.error = std::max(0.0, high_ns - low_ns) / 2 / profiler::kNormal95 / step_ns;
  }
  return reading;
}

StepLevel level_of_runs(const std::vector<RunReading>& runs) {
  std::vector<double> values;
  std::vector<double> errors;
  for (const RunReading& run : runs) {
    values.push_back(run.log_ns);
    errors.push_back(run.error);
  }
  const double noise = std::max(pooled_noise({{0, values}}), profiler::median(std::move(errors)));
  const double reach = profiler::kNormal95 * noise / std::sqrt(static_cast<double>(runs.size()));
  const double middle = profiler::median(std::move(values));
  return {std::exp(middle), std::exp(middle - reach), std::exp(middle + reach)};
}

double LogGain::error() const { return (high - low) / 2 / profiler::kNormal95; }

void RunLog::add(int configuration, const RunReading& reading) {
  runs_.push_back({configuration, reading});
}

size_t RunLog::num_runs(int configuration) const {
  return static_cast<size_t>(std::count_if(runs_.begin(), runs_.end(), [&](const Run& run) {
    return run.configuration == configuration;
  }));
}

// Runs at the same time, as where no clock was recorded, are told apart by their order.
std::vector<double> RunLog::freed() const {
  std::vector<TimedReading> readings;
  std::vector<double> values;
  std::map<int, size_t> num_runs;
  double time = std::numeric_limits<double>::lowest();
  for (const Run& run : runs_) {
    time = std::max(std::nextafter(time, std::numeric_limits<double>::max()), run.reading.time);
    readings.push_back({run.configuration, run.reading.log_ns, time});
    values.push_back(run.reading.log_ns);
    ++num_runs[run.configuration];
  }
  DriftWatch watch;
  watch.notice(readings);
  if (!watch.is_there()) return values;
  std::vector<int> references;
  for (const auto& [configuration, count] : num_runs) {
    if (count >= kFewestReferenceRuns) references.push_back(configuration);
  }
  const std::vector<double> course = machine_drift(readings, references, kLeastNoise);
  for (size_t i = 0; i < values.size(); ++i) values[i] -= course[i];
  return values;
}

NoiseEvidence RunLog::evidence_without(const std::vector<bool>& is_left_out,
                                       double least_noise) const {
  const std::vector<double> values = freed();
  ByConfiguration groups;
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (!is_left_out[i]) groups[runs_[i].configuration].push_back(values[i]);
  }
  NoiseEvidence evidence;
  evidence.least = least_noise;
  for (auto& [configuration, group] : groups) {
    if (group.size() > 1) evidence.repeats.push_back(std::move(group));
  }
  return evidence;
}

double RunLog::usual_error(int before, int after) const {
  std::vector<double> errors;
  for (const Run& run : runs_) {
    if (run.configuration == before || run.configuration == after) {
      errors.push_back(run.reading.error);
    }
  }
  return std::max(kLeastNoise, profiler::median(std::move(errors)));
}

LogGain RunLog::gain(int before, int after) const {
  const std::vector<double> values = freed();
  std::vector<bool> is_of_them(runs_.size(), false);
  std::vector<double> of_before;
  std::vector<double> of_after;
  for (size_t i = 0; i < runs_.size(); ++i) {
    is_of_them[i] = runs_[i].configuration == before || runs_[i].configuration == after;
    if (!is_of_them[i]) continue;
    (runs_[i].configuration == before ? of_before : of_after).push_back(values[i]);
  }
  const LevelDifference difference =
      level_difference(of_after, of_before, 0.0, kConfidence, 1.0,
                       evidence_without(is_of_them, usual_error(before, after)));
  return {difference.mean, difference.low, difference.high, difference.noise};
}

// Of several differences the noise factors are much the same: the largest stands for all.
LogGain RunLog::gain_in_turns(int before, int after, const std::vector<size_t>& places) const {
  std::vector<TimedReading> readings;
  std::vector<bool> is_in_turns(runs_.size(), false);
  for (const size_t place : places) {
    const Run& run = runs_.at(place);
    is_in_turns[place] = true;
    readings.push_back({run.configuration, run.reading.log_ns, run.reading.time});
  }
  std::vector<double> gains;
  double factor = 1.0;
  for (const TurnDifference& difference : differences_in_turns(readings, before)) {
    gains.push_back(-difference.value);
    factor = std::max(factor, difference.noise_factor);
  }
  MOETUNE_CHECK(!gains.empty(), "configurations {} and {} were not run in turns", before, after);
  NoiseEvidence evidence = evidence_without(is_in_turns, usual_error(before, after));
  evidence.least *= factor;
  for (std::vector<double>& group : evidence.repeats) {
    for (double& value : group) value *= factor;
  }
  const LevelDifference level = level_from_zero(gains, 0.0, kConfidence, evidence);
  return {level.mean, level.low, level.high, level.noise / factor};
}

std::optional<double> RunLog::noise() const {
  const NoiseEvidence evidence =
      evidence_without(std::vector<bool>(runs_.size(), false), kLeastNoise);
  if (evidence.repeats.empty()) return std::nullopt;
  std::vector<CommitReadings> configurations;
  for (const std::vector<double>& group : evidence.repeats) configurations.push_back({0, group});
  return pooled_noise(configurations);
}

}  // namespace moetune::tuner
