#include "sweeps/bisect/moved.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "kernels/base/units.h"
#include "sweeps/bisect/hunt_runs.h"
#include "sweeps/bisect/metric_names.h"
#include "sweeps/bisect/reading.h"
#include "sweeps/bisect/text.h"

namespace moetune::sweeps {
namespace {

constexpr size_t kNumMoved = 5;        ///< of each kind
constexpr double kFalseAlarms = 0.05;  ///< share of the durations that are told
constexpr double kFairShare = 0.03;    ///< of the metric's own change

std::vector<double> values_of(const RunList& runs, const std::string& name) {
  std::vector<double> values;
  for (const CommitRun& run : runs) {
    if (const auto value = find_metric(run.metrics, name)) values.push_back(*value);
  }
  return values;
}

/// The step that values were rounded to, such as whole milliseconds: the smallest difference
/// between them, where all are multiples of it; else 0.
double quantum_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  double quantum = 0.0;
  for (size_t i = 1; i < values.size(); ++i) {
    const double step = values[i] - values[i - 1];
    if (step > 0 && (quantum == 0 || step < quantum)) quantum = step;
  }
  const bool is_rounded = std::all_of(values.begin(), values.end(), [&](double value) {
    constexpr double kTolerance = 1e-6;
    const double steps = quantum > 0 ? value / quantum : 0.0;
    return std::abs(steps - std::round(steps)) < kTolerance;
  });
  return is_rounded ? quantum : 0.0;
}

double variance_of_mean(const std::vector<double>& values, double quantum) {
  const double mean = mean_of(values);
  double squares = 0.0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const auto n = static_cast<double>(values.size());
  // With what may have been rounded off.
  return (squares / (n - 1) + quantum * quantum / 12) / n;
}

/// Probability that two means differ by this much or more by chance (Welch 1947). Each side needs
/// two readings.
double chance_of(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> both = a;
  both.insert(both.end(), b.begin(), b.end());
  const double quantum = quantum_of(std::move(both));
  const double of_a = variance_of_mean(a, quantum);
  const double of_b = variance_of_mean(b, quantum);
  const double difference = std::abs(mean_of(b) - mean_of(a));
  if (of_a + of_b <= 0) return difference > 0 ? 0.0 : 1.0;
  const double degrees = (of_a + of_b) * (of_a + of_b) /
                         (of_a * of_a / static_cast<double>(a.size() - 1) +
                          of_b * of_b / static_cast<double>(b.size() - 1));
  const double t = difference / std::sqrt(of_a + of_b);
  if (!std::isfinite(t) || !(degrees > 0)) return 1.0;
  return 2 * boost::math::cdf(boost::math::complement(boost::math::students_t(degrees), t));
}

struct Candidate {
  Moved moved;
  bool has_weight = true;
  double weight = 0.0;
  double chance = 0.0;
};

/// Largest chance with which a duration is reported, so that no more than kFalseAlarms of those
/// reported are false alarms (Benjamini and Hochberg 1995).
double most_chance(const std::vector<Candidate>& durations) {
  std::vector<double> chances;
  for (const Candidate& duration : durations) chances.push_back(duration.chance);
  std::sort(chances.begin(), chances.end());
  const auto n = static_cast<double>(chances.size());
  double most = 0.0;
  for (size_t i = 0; i < chances.size(); ++i) {
    if (chances[i] <= kFalseAlarms * static_cast<double>(i + 1) / n) most = chances[i];
  }
  return most;
}

std::vector<Moved> largest(std::vector<Candidate> candidates) {
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& x, const auto& y) {
    return std::tie(x.has_weight, x.weight) > std::tie(y.has_weight, y.weight);
  });
  if (candidates.size() > kNumMoved) candidates.resize(kNumMoved);
  std::vector<Moved> moved;
  for (const Candidate& candidate : candidates) moved.push_back(candidate.moved);
  return moved;
}

}  // namespace

std::vector<Moved> moved_between(const RunList& before, const RunList& after,
                                 const std::string& metric, double min_effect_ratio) {
  std::set<std::string> names;
  for (const RunList& runs : {before, after}) {
    for (const CommitRun& run : runs) {
      for (const auto& entry : run.metrics) names.insert(entry.first);
    }
  }
  const std::vector<double> asked_before = values_of(before, metric);
  const std::vector<double> asked_after = values_of(after, metric);
  // What a store holds has its unit in its name; a number that a command prints may have none.
  const std::optional<double> asked_unit =
      seconds_per_unit(names.contains(stored_metric(metric)) ? stored_metric(metric) : metric);
  double least_seconds = 0.0;
  if (asked_unit && asked_before.size() >= 2 && asked_after.size() >= 2) {
    least_seconds =
        kFairShare * *asked_unit * std::abs(mean_of(asked_after) - mean_of(asked_before));
  }
  const bool is_own_engine = std::any_of(names.begin(), names.end(), is_own_operation);
  std::vector<Candidate> counters;
  std::vector<Candidate> durations;
  for (const std::string& name : names) {
    if (stored_metric(name) == stored_metric(metric)) continue;
    const std::vector<double> a = values_of(before, name);
    const std::vector<double> b = values_of(after, name);
    if (a.empty() || b.empty()) continue;
    Candidate candidate{{name, mean_of(a), mean_of(b)}};
    const double change = std::abs(candidate.moved.after - candidate.moved.before);
    if (is_duration_metric(name)) {
      if (a.size() < 2 || b.size() < 2 || (is_own_engine && !is_own_operation(name))) continue;
      const std::optional<double> unit = seconds_per_unit(name);
      candidate.has_weight = unit.has_value();
      candidate.weight =
          unit ? *unit * change : change / std::max(std::abs(candidate.moved.before), 1e-300);
      candidate.chance = chance_of(a, b);
      durations.push_back(candidate);
    } else if (may_be_counter(name, a, b) && are_equal(a) && are_equal(b)) {
      candidate.weight = change / std::max(std::abs(candidate.moved.before), 1.0);
      // The groups that it is the sum of say more.
      const bool is_sum = is_own_engine && name == "memory_total_bytes";
      if (candidate.weight >= min_effect_ratio && !is_sum) counters.push_back(candidate);
    }
  }
  const double most = most_chance(durations);
  std::erase_if(durations, [&](const Candidate& duration) {
    return duration.chance > most || (duration.has_weight && duration.weight < least_seconds);
  });
  std::vector<Moved> moved = largest(std::move(counters));
  for (Moved& duration : largest(std::move(durations))) {
    moved.push_back(std::move(duration));
  }
  return moved;
}

nlohmann::json moved_json(const std::vector<Moved>& moved) {
  nlohmann::json list = nlohmann::json::array();
  for (const Moved& m : moved) {
    list.push_back({{"name", m.name}, {"before", m.before}, {"after", m.after}});
  }
  return list;
}

std::string moved_line(const char* lead, const Moved& moved) {
  const std::string_view unit = base::unit_of_name(moved.name);
  return fmt::format("  {}: {} {} -> {}\n", lead, plain_text(moved.name, 100),
                     base::format_value(moved.before, unit), base::format_value(moved.after, unit));
}

}  // namespace moetune::sweeps
