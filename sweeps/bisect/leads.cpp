#include "sweeps/bisect/leads.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "sweeps/bisect/metric_names.h"
#include "tuner/stats/levels.h"

namespace moetune::sweeps {
namespace {

constexpr double kExplains = 0.5;         ///< of the change, at least, by a part of it
constexpr double kClearly = 3.0;          ///< noises, for one of many metrics to have moved
constexpr size_t kMostCounters = 3;       ///< that are followed before the metric itself is
constexpr size_t kFewestRunsOfAnEnd = 3;  ///< runs of an end

/// Seconds in one unit of the metric that was asked for; none when it is no duration.
std::optional<double> seconds_per_target(const HuntRuns& runs, const HuntSetup& setup) {
  return runs.unit() == "ns" ? std::optional(1e-9) : seconds_per_unit(setup.metric);
}

}  // namespace

std::map<std::string, double> parts_of(const HuntRuns& runs, const HuntSetup& setup) {
  const std::optional<double> target = seconds_per_target(runs, setup);
  if (!target) return {};
  const std::set<std::string> names = runs.common_metrics();
  // Our engine's other durations are sums, or what overlaps; of other programs nothing is known.
  const bool is_own_engine = std::any_of(names.begin(), names.end(), is_own_operation);
  std::map<std::string, double> parts;
  for (const std::string& name : names) {
    const std::optional<double> unit = seconds_per_unit(name);
    if (!unit || stored_metric(name) == stored_metric(setup.metric)) continue;
    if (is_own_engine && !is_own_operation(name)) continue;
    parts[name] = *unit / *target;
  }
  return parts;
}

std::vector<CounterLead> counters_to_follow(const HuntRuns& runs, const HuntSetup& setup) {
  const int last = last_position(setup);
  struct Counter {
    bool is_exact = false;  ///< by its name
    double change = 0.0;
    std::string name;
  };
  std::vector<Counter> counters;
  for (const std::string& name : runs.common_metrics()) {
    if (stored_metric(name) == stored_metric(setup.metric)) continue;
    const std::vector<double> good = runs.values_of(name, 0);
    const std::vector<double> bad = runs.values_of(name, last);
    if (!may_be_counter(name, good, bad) || !are_equal(good) || !are_equal(bad)) continue;
    const double unit = std::max(std::abs(good.front()), 1e-300);
    const double change = std::abs(bad.front() - good.front()) / unit;
    if (change >= setup.min_effect_ratio) counters.push_back({is_exact_metric(name), change, name});
  }
  std::stable_sort(counters.begin(), counters.end(), [](const Counter& a, const Counter& b) {
    return std::tie(a.is_exact, a.change) > std::tie(b.is_exact, b.change);
  });
  if (counters.size() > kMostCounters) counters.resize(kMostCounters);
  std::vector<std::string> names;
  for (const reports::ConfigChange& change : runs.config_changes_between(0, last)) {
    // What only one of them knows is a new option, not a changed one.
    if (!change.before.empty() && !change.after.empty() && names.size() < kMostCounters) {
      names.push_back(kConfigPrefix + change.name);
    }
  }
  for (const Counter& counter : counters) names.push_back(counter.name);
  std::vector<CounterLead> leads;
  for (const std::string& name : names) {
    leads.push_back({name, runs.values_of(name, last).front() < runs.values_of(name, 0).front()});
  }
  return leads;
}

std::optional<PartLead> part_to_follow(const HuntRuns& runs, const HuntSetup& setup,
                                       const tuner::HuntResult& ends) {
  if (!is_duration_metric(stored_metric(setup.metric)) || setup.is_higher_better) {
    return std::nullopt;
  }
  const double target_level = mean_of(runs.values_of(setup.metric, 0));
  // The shift that parts have to explain. Where the noise hides it, a part has to make up one least
  // effect by itself: kExplains cancels.
  const double least = setup.min_effect_ratio / (ends.is_too_noisy ? kExplains : 1.0);
  const double target_shift = std::max(ends.effect_low_ratio, least) * target_level;
  const std::map<std::string, double> parts = parts_of(runs, setup);
  double most = kWorthFollowing * std::abs(ends.effect_ratio) / std::max(ends.noise_ratio, 1e-12);
  std::optional<PartLead> best;
  for (const std::string& name : runs.common_metrics()) {
    if (!is_duration_metric(name) || stored_metric(name) == stored_metric(setup.metric)) continue;
    const std::vector<double> good = runs.values_of(name, 0);
    const std::vector<double> bad = runs.values_of(name, last_position(setup));
    if (good.size() < kFewestRunsOfAnEnd || bad.size() < kFewestRunsOfAnEnd) continue;
    const tuner::LevelDifference difference = tuner::level_difference(good, bad, 0.0);
    if (difference.low <= 0) continue;
    const auto part = parts.find(name);
    const std::optional<double> scale =
        part == parts.end() ? std::nullopt : std::optional(part->second);
    if (scale && *scale * difference.mean < kExplains * target_shift) continue;
    const double noises = difference.mean / difference.noise;
    // Among so many metrics one always seems to have moved, and sums are as noisy as the step.
    if ((ends.is_too_noisy || !scale) && noises < kClearly) continue;
    if (ends.is_too_noisy && !scale) continue;
    const double level = std::abs(mean_of(good));
    const double least_effect = 0.5 * difference.mean / level;
    if (noises <= most || level <= 0 || !std::isfinite(noises + least_effect)) continue;
    most = noises;
    best = PartLead{name, noises, std::max(least_effect, 1e-6), scale};
  }
  return best;
}

bool is_made_up_for(const HuntRuns& runs, const HuntSetup& setup, int position, double growth) {
  for (const auto& [name, scale] : parts_of(runs, setup)) {
    const std::vector<double> before = runs.values_of(name, position - 1);
    const std::vector<double> after = runs.values_of(name, position);
    if (before.size() < 2 || after.size() < 2) continue;
    const tuner::LevelDifference difference = tuner::level_difference(before, after, 0.0);
    const bool is_clear = difference.mean <= -kClearly * difference.noise && difference.high < 0;
    if (is_clear && scale * difference.mean <= -kExplains * growth) return true;
  }
  return false;
}

}  // namespace moetune::sweeps
