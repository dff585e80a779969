// Tests for a trend and for wandering, and a smooth course through the readings.
#include "tuner/stats/drift.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "profiler/analysis/stats.h"

namespace moetune::tuner {
namespace {

constexpr size_t kNumNeighbours = 8;  ///< references that the course is read from
constexpr size_t kFewestNeighbours = 3;
constexpr int kNumRounds = 6;  ///< of levels and course; it has settled by then
constexpr size_t kFewestDriftRuns = 14;

/// A straight line through the nearest points, robustly, and what it says at one time. Beyond the
/// points it goes on for as long as they are apart, and no further: their noise would grow with it.
/// What follows from the times alone is made once, for all rounds of levels and course.
class LocalLine {
 public:
  /// `times`: of the points; those at `at` itself are left out. `others` is room to work in, which
  /// many lines share.
  LocalLine(const std::vector<double>& times, double at,
            std::vector<std::pair<double, size_t>>& others) {
    others.clear();
    for (size_t i = 0; i < times.size(); ++i) {
      if (times[i] != at) others.emplace_back(times[i], i);
    }
    if (others.size() < kFewestNeighbours) return;
    const size_t count = std::min(kNumNeighbours, others.size());
    std::partial_sort(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(count),
                      others.end(), [at](const auto& a, const auto& b) {
                        return std::abs(a.first - at) < std::abs(b.first - at);
                      });
    others.resize(count);
    const auto [first, last] = std::minmax_element(others.begin(), others.end());
    const double gap = (last->first - first->first) / static_cast<double>(count - 1);
    at = std::clamp(at, first->first - gap, last->first + gap);
    const double reach = 1.05 * std::max(at - first->first, last->first - at) + 1e-9;
    for (const auto& [time, index] : others) {
      const double u = std::abs(time - at) / reach;
      indices_[num_neighbours_] = index;
      distances_[num_neighbours_] = time - at;
      nearness_[num_neighbours_] = std::pow(1 - u * u * u, 3);
      ++num_neighbours_;
    }
  }

  /// `values`: of all points; 0 where there are too few others.
  [[nodiscard]] double level(const std::vector<double>& values, double scale) const {
    double level = 0.0;
    double slope = 0.0;
    std::array<double, kNumNeighbours> ys = {};
    for (size_t i = 0; i < num_neighbours_; ++i) ys[i] = values[indices_[i]];
    for (int round = 0; round < 4 && num_neighbours_ > 0; ++round) {
      std::array<double, kNumNeighbours> weights = {};
      for (size_t i = 0; i < kNumNeighbours; ++i) {
        const double off =
            round == 0 ? 0.0 : std::abs(ys[i] - level - slope * distances_[i]) / scale;
        weights[i] = nearness_[i] / std::max(1.0, off * off / 4.0) + 1e-12;
      }
      double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
      for (size_t i = 0; i < num_neighbours_; ++i) {
        const double x = distances_[i];
        const double y = ys[i];
        const double weight = weights[i];
        w += weight;
        wx += weight * x;
        wy += weight * y;
        wxx += weight * x * x;
        wxy += weight * x * y;
      }
      const double determinant = w * wxx - wx * wx;
      const double slope_before = slope;
      const double level_before = level;
      slope = determinant > 1e-9 * w * w ? (w * wxy - wx * wy) / determinant : 0.0;
      level = (wy - slope * wx) / w;
      // The next round would see what this one has seen.
      if (round > 0 && slope == slope_before && level == level_before) break;
    }
    return level;
  }

 private:
  // One array for each property: their loops are vector code.
  size_t num_neighbours_ = 0;
  std::array<size_t, kNumNeighbours> indices_ = {};    ///< of the points
  std::array<double, kNumNeighbours> distances_ = {};  ///< in time, from where the line is read
  std::array<double, kNumNeighbours> nearness_ = {};   ///< their weights
};

std::vector<TimedReading> in_order_of_time(std::vector<TimedReading> readings) {
  std::stable_sort(readings.begin(), readings.end(),
                   [](const auto& a, const auto& b) { return a.time < b.time; });
  return readings;
}

/// From 1; those that are equal share their mean.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t first = 0; first < order.size();) {
    size_t last = first;
    while (last + 1 < order.size() && values[order[last + 1]] == values[order[first]]) ++last;
    for (size_t i = first; i <= last; ++i) {
      ranks[order[i]] = 1.0 + static_cast<double>(first + last) / 2;
    }
    first = last + 1;
  }
  return ranks;
}

}  // namespace

double trend_score(const std::vector<TimedReading>& readings) {
  std::map<int, std::vector<double>> series;
  for (const TimedReading& reading : in_order_of_time(readings)) {
    series[reading.position].push_back(reading.value);
  }
  double score = 0.0;
  double variance = 0.0;
  for (const auto& [position, values] : series) {
    const auto n = static_cast<double>(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      for (size_t j = i + 1; j < values.size(); ++j) {
        score += values[j] > values[i] ? 1 : values[j] < values[i] ? -1 : 0;
      }
    }
    if (values.size() >= 2) variance += n * (n - 1) * (2 * n + 5) / 18;
  }
  return variance > 0 ? score / std::sqrt(variance) : 0.0;
}

double wander_score(const std::vector<TimedReading>& readings) {
  constexpr size_t kFewest = 3;
  std::map<int, std::vector<double>> values;
  for (const TimedReading& reading : readings) values[reading.position].push_back(reading.value);
  std::vector<double> distances;
  for (const TimedReading& reading : in_order_of_time(readings)) {
    const std::vector<double>& own = values[reading.position];
    if (own.size() >= kFewest) distances.push_back(reading.value - profiler::median(own));
  }
  if (distances.size() < 2 * kFewest) return 0.0;
  const std::vector<double> ranks = ranks_of(distances);
  const auto n = static_cast<double>(ranks.size());
  double steps = 0.0;
  double spread = 0.0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i + 1 < ranks.size()) steps += (ranks[i] - ranks[i + 1]) * (ranks[i] - ranks[i + 1]);
    spread += (ranks[i] - (n + 1) / 2) * (ranks[i] - (n + 1) / 2);
  }
  if (spread <= 0) return 0.0;
  const double variance =
      4 * (n - 2) * (5 * n * n - 2 * n - 9) / (5 * n * (n + 1) * (n - 1) * (n - 1));
  return (2 - steps / spread) / std::sqrt(variance);
}

std::vector<double> machine_drift(const std::vector<TimedReading>& readings,
                                  const std::vector<int>& references, double least_scale) {
  std::vector<bool> is_reference;
  std::vector<bool> is_there(references.size(), false);
  for (const TimedReading& reading : readings) {
    const auto found = std::find(references.begin(), references.end(), reading.position);
    is_reference.push_back(found != references.end());
    if (found != references.end()) is_there[static_cast<size_t>(found - references.begin())] = true;
  }
  const bool lacks_one = std::find(is_there.begin(), is_there.end(), false) != is_there.end();
  if (references.empty() || lacks_one) {
    return std::vector<double>(readings.size(), 0.0);
  }
  std::vector<double> times;  // of the references
  for (size_t i = 0; i < readings.size(); ++i) {
    if (is_reference[i]) times.push_back(readings[i].time);
  }
  std::vector<LocalLine> lines;
  lines.reserve(readings.size());
  std::vector<std::pair<double, size_t>> others;
  // A reference does not smooth its own noise away.
  for (const TimedReading& reading : readings) lines.emplace_back(times, reading.time, others);
  std::vector<double> course(readings.size(), 0.0);
  for (int round = 0; round < kNumRounds; ++round) {
    std::map<int, std::vector<double>> freed;
    for (size_t i = 0; i < readings.size(); ++i) {
      if (is_reference[i]) freed[readings[i].position].push_back(readings[i].value - course[i]);
    }
    std::map<int, double> levels;
    for (const auto& [position, values] : freed) levels[position] = profiler::median(values);
    std::vector<double> distances;
    std::vector<double> offs;
    for (size_t i = 0; i < readings.size(); ++i) {
      if (!is_reference[i]) continue;
      offs.push_back(readings[i].value - levels[readings[i].position]);
      distances.push_back(std::abs(offs.back() - course[i]));
    }
    const double scale =
        std::max(profiler::kMadToDeviation * profiler::median(distances), least_scale);
    for (size_t i = 0; i < readings.size(); ++i) course[i] = lines[i].level(offs, scale);
  }
  const double middle =
      std::accumulate(course.begin(), course.end(), 0.0) / static_cast<double>(course.size());
  for (double& off : course) off -= middle;
  return course;
}

std::vector<TurnDifference> differences_in_turns(const std::vector<TimedReading>& readings,
                                                 int reference) {
  std::vector<TimedReading> references;
  std::vector<TurnDifference> differences;
  for (const TimedReading& reading : in_order_of_time(readings)) {
    if (reading.position == reference) references.push_back(reading);
  }
  if (references.empty()) return differences;
  for (const TimedReading& reading : in_order_of_time(readings)) {
    if (reading.position == reference) continue;
    const auto after = std::find_if(references.begin(), references.end(),
                                    [&](const auto& r) { return r.time > reading.time; });
    if (after == references.begin() || after == references.end()) {
      const TimedReading& nearest = after == references.end() ? references.back() : *after;
      differences.push_back({reading.value - nearest.value, std::sqrt(2.0)});
      continue;
    }
    const TimedReading& before = *(after - 1);
    const double share = (reading.time - before.time) / (after->time - before.time);
    const double between = (1 - share) * before.value + share * after->value;
    differences.push_back(
        {reading.value - between, std::sqrt(1 + (1 - share) * (1 - share) + share * share)});
  }
  return differences;
}

std::vector<CommitReadings> without_drift(const std::vector<TimedReading>& readings, int a, int b) {
  const std::vector<double> course = machine_drift(readings, {a, b}, 1e-300);
  std::vector<CommitReadings> commits = {{a, {}}, {b, {}}};
  for (size_t i = 0; i < readings.size(); ++i) {
    commits[readings[i].position == b].values.push_back(readings[i].value - course[i]);
  }
  std::erase_if(commits, [](const auto& commit) { return commit.values.empty(); });
  return commits;
}

bool levels_differ(const std::vector<double>& then, const std::vector<double>& now,
                   double min_effect_ratio, double confidence) {
  constexpr size_t kFewest = 3;
  if (then.size() < kFewest || now.size() < kFewest) return false;
  const double level =
      std::accumulate(then.begin(), then.end(), 0.0) / static_cast<double>(then.size());
  const LevelDifference difference =
      level_difference(then, now, min_effect_ratio * std::abs(level), confidence);
  return std::max(difference.above, difference.below) >= confidence;
}

bool raw_ends_differ(const std::vector<TimedReading>& readings, int good, int bad, double threshold,
                     double confidence) {
  std::vector<double> of_good;
  std::vector<double> of_bad;
  for (const TimedReading& reading : readings) {
    if (reading.position == good) of_good.push_back(reading.value);
    if (reading.position == bad) of_bad.push_back(reading.value);
  }
  const LevelDifference difference = level_difference(of_good, of_bad, threshold, confidence);
  return difference.low > 0 && difference.above >= 0.8;
}

// A drift goes one way; wandering speed shows in runs that resemble those just before. Either makes
// runs of one commit depend on when they were made.
void DriftWatch::notice(const std::vector<TimedReading>& readings) {
  if (is_there_ || readings.size() < kFewestDriftRuns) return;
  is_trend_ = std::abs(trend_score(readings)) >= kTrendScore;
  is_there_ = is_trend_ || wander_score(readings) >= kWanderScore;
}

void DriftWatch::update(const std::vector<TimedReading>& readings,
                        const std::vector<int>& references, double least_scale) {
  notice(readings);
  if (!is_there_) return;
  course_ = machine_drift(readings, references, least_scale);
}

double DriftWatch::course_at(size_t reading) const {
  if (course_.empty()) return 0.0;
  return course_[std::min(reading, course_.size() - 1)];
}

double DriftWatch::weight_of_reading() const {
  return is_there_ && !is_trend_ ? kWeightInWander : 1.0;
}

}  // namespace moetune::tuner
