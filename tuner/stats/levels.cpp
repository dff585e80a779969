// The grid of the noise, and the lattice on which differences of levels are summed.
#include "tuner/stats/levels.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <utility>

#include "kernels/base/error.h"
#include "profiler/analysis/stats.h"
#include "tuner/stats/fast_exp.h"
#include "tuner/stats/level_lattice.h"
#include "tuner/stats/log_sum.h"
#include "tuner/stats/noise_model.h"

namespace moetune::tuner {
namespace {

/// Around both medians, in standard errors of the robust noise.
constexpr double kReach = 6.0;
/// With no more readings than this, the noise may be far larger than it looks: its grid gets more
/// points. Without these, intervals of 95 % would hold in 0.83 of cases (three readings of each).
constexpr size_t kFewReadings = 20;
constexpr int kMoreNoises = 2;
constexpr double kReachOfFew = 11.0;
/// Where the noise has a floor, a level may have only one reading, and the noise comes from two or
/// three repeats of others. Then the grid gets still more points. Without these, intervals of 95 %
/// would hold in 0.84 of cases (three runs of one level, one of the other).
constexpr int kMoreNoisesOfOne = 4;
constexpr double kReachOfOne = 18.0;
constexpr double kLatticeStep = 0.4;  ///< in standard errors of the most readings
/// Levels and noises whose likelihood is below this share of the largest are left out.
constexpr double kLeastShare = 1e-13;

std::vector<double> lattice_points(int64_t first, int64_t last, double step) {
  std::vector<double> points;
  points.reserve(static_cast<size_t>(last - first) + 1);
  for (int64_t i = first; i <= last; ++i) points.push_back(static_cast<double>(i) * step);
  return points;
}

std::vector<double> log_fit(const std::vector<double>& values, double noise, double weight,
                            const std::vector<double>& levels) {
  std::vector<double> sums(levels.size(), 0.0);
  add_log_likelihoods(values, noise, weight, levels, sums);
  return sums;
}

double log_sum_of(const std::vector<double>& logs) {
  LogSum sum;
  for (const double log : logs) sum.add(log);
  return sum.value();
}

/// exp(log - largest), and their sum.
std::pair<std::vector<double>, double> scaled(const std::vector<double>& logs, double largest) {
  std::vector<double> weights(logs.size());
  for (size_t i = 0; i < logs.size(); ++i) weights[i] = fast_exp(logs[i] - largest);
  return {weights, std::accumulate(weights.begin(), weights.end(), 0.0)};
}

/// Logarithm of how likely readings of one level are, whatever the level, on a lattice of `step`.
double log_evidence_of(const std::vector<double>& values, double noise, double step) {
  const double reach = kReach * noise / std::sqrt(static_cast<double>(values.size()));
  const auto middle = static_cast<int64_t>(std::round(profiler::median(values) / step));
  const auto count = static_cast<int64_t>(std::ceil(reach / step));
  return log_sum_of(
      log_fit(values, noise, 1.0, lattice_points(middle - count, middle + count, step)));
}

/// What difference_of looks at.
struct DifferenceQuestion {
  const std::vector<double>& a;  ///< empty: its level is 0
  const std::vector<double>& b;
  double weight_of_reading = 1.0;
  const NoiseEvidence& evidence;
};

/// Noises and levels over which a difference is summed.
struct DifferenceGrid {
  std::vector<double> noises;
  double step = 0.0;  ///< of the lattice of levels
  // Lattice points of the two levels, both ends included.
  int64_t a_first = 0;
  int64_t a_last = 0;
  int64_t b_first = 0;
  int64_t b_last = 0;
};

DifferenceGrid grid_of(const DifferenceQuestion& question) {
  const std::vector<double>& a = question.a;
  const std::vector<double>& b = question.b;
  const NoiseEvidence& evidence = question.evidence;
  std::vector<CommitReadings> commits = {{0, b}};
  if (!a.empty()) commits.insert(commits.begin(), {1, a});
  size_t num_readings = a.size() + b.size();
  for (const std::vector<double>& repeats : evidence.repeats) {
    commits.push_back({static_cast<int>(commits.size()), repeats});
    num_readings += repeats.size();
  }
  DifferenceGrid grid;
  grid.noises = noise_grid(noise_scale(commits, evidence.least));
  const double scale = std::max(middle_noise(grid.noises), evidence.least);
  double reach_in_noises = kReach;
  if (num_readings <= kFewReadings) {
    reach_in_noises = evidence.least > 0 ? kReachOfOne : kReachOfFew;
    const int more = evidence.least > 0 ? kMoreNoisesOfOne : kMoreNoises;
    const double ratio = grid.noises[1] / grid.noises[0];
    for (int i = 0; i < more; ++i) grid.noises.push_back(grid.noises.back() * ratio);
  }
  for (double& noise : grid.noises) noise = std::max(noise, evidence.least);
  grid.noises.erase(std::unique(grid.noises.begin(), grid.noises.end()), grid.noises.end());
  const auto most = static_cast<double>(std::max(a.size(), b.size()));
  // Fine enough for the mean of all runs.
  grid.step = scale * kLatticeStep / std::sqrt(most);
  const auto points_near = [&](const std::vector<double>& values, int64_t& first, int64_t& last) {
    if (values.empty()) return;
    const double reach = reach_in_noises * scale /
                         std::sqrt(question.weight_of_reading * static_cast<double>(values.size()));
    const auto middle = static_cast<int64_t>(std::round(profiler::median(values) / grid.step));
    const auto count = static_cast<int64_t>(std::ceil(reach / grid.step));
    first = middle - count;
    last = middle + count;
  };
  points_near(a, grid.a_first, grid.a_last);
  points_near(b, grid.b_first, grid.b_last);
  return grid;
}

/// Log likelihoods of both levels' readings, by level, with one noise.
struct LevelFits {
  std::vector<double> a;
  std::vector<double> b;
  double a_largest = 0.0;
  double b_largest = 0.0;
  double of_repeats = 0.0;

  [[nodiscard]] double largest() const { return a_largest + b_largest + of_repeats; }
};

/// One for each noise of the grid.
std::vector<LevelFits> fits_of(const DifferenceQuestion& question, const DifferenceGrid& grid) {
  const double weight = question.weight_of_reading;
  const std::vector<double> a_levels = lattice_points(grid.a_first, grid.a_last, grid.step);
  const std::vector<double> b_levels = lattice_points(grid.b_first, grid.b_last, grid.step);
  std::vector<LevelFits> fits;
  for (const double noise : grid.noises) {
    LevelFits& of_noise = fits.emplace_back();
    of_noise.a = log_fit(question.a, noise, weight, a_levels);
    of_noise.b = log_fit(question.b, noise, weight, b_levels);
    of_noise.a_largest = *std::max_element(of_noise.a.begin(), of_noise.a.end());
    of_noise.b_largest = *std::max_element(of_noise.b.begin(), of_noise.b.end());
    for (const std::vector<double>& repeats : question.evidence.repeats) {
      if (repeats.size() > 1) of_noise.of_repeats += log_evidence_of(repeats, noise, grid.step);
    }
  }
  return fits;
}

/// Distribution of the difference b - a, and the expected noise.
struct DifferenceWeights {
  std::vector<double> weights;  ///< not normalized, by lattice step from `lowest`
  int64_t lowest = 0;
  double total = 0.0;
  double noise = 0.0;
};

DifferenceWeights convolve(const DifferenceGrid& grid, const std::vector<LevelFits>& fits) {
  double largest = kMinusInfinity;
  for (const LevelFits& of_noise : fits) largest = std::max(largest, of_noise.largest());
  DifferenceWeights result;
  result.lowest = grid.b_first - grid.a_last;
  result.weights.assign(static_cast<size_t>(grid.b_last - grid.a_first - result.lowest) + 1, 0.0);
  for (size_t n = 0; n < grid.noises.size(); ++n) {
    const double share = std::exp(fits[n].largest() - largest);
    if (share < kLeastShare) continue;
    const auto [a_weights, a_sum] = scaled(fits[n].a, fits[n].a_largest);
    const auto [b_weights, b_sum] = scaled(fits[n].b, fits[n].b_largest);
    for (size_t i = 0; i < a_weights.size(); ++i) {
      const double weight = share * a_weights[i];
      if (weight < kLeastShare) continue;
      // Differences b - a for this level of a: a contiguous run of the lattice.
      double* const at = result.weights.data() + (a_weights.size() - 1 - i);
      for (size_t j = 0; j < b_weights.size(); ++j) at[j] += weight * b_weights[j];
    }
    const double of_noise = share * a_sum * b_sum;
    result.total += of_noise;
    result.noise += of_noise * grid.noises[n];
  }
  result.noise /= result.total;
  return result;
}

LevelDifference summary_of(const DifferenceWeights& found, double step, double threshold,
                           double probability) {
  LevelDifference result;
  result.noise = found.noise;
  double sum = 0.0;
  const double tail = (1.0 - probability) / 2;
  result.low = static_cast<double>(found.lowest) * step;
  for (size_t i = 0; i < found.weights.size(); ++i) {
    const double difference = static_cast<double>(found.lowest + static_cast<int64_t>(i)) * step;
    const double weight = found.weights[i] / found.total;
    if (sum < tail) result.low = difference;
    if (sum < 1.0 - tail) result.high = difference;
    sum += weight;
    result.mean += weight * difference;
    if (difference > threshold) result.above += weight;
    if (difference < -threshold) result.below += weight;
  }
  return result;
}

LevelDifference difference_of(const DifferenceQuestion& question, double threshold,
                              double probability) {
  const DifferenceGrid grid = grid_of(question);
  return summary_of(convolve(grid, fits_of(question, grid)), grid.step, threshold, probability);
}

}  // namespace

double pooled_noise(const std::vector<CommitReadings>& commits) {
  // Distances from the median of n runs are shorter than from the level by sqrt((n - 1) / n).
  std::vector<double> distances;
  for (const CommitReadings& commit : commits) {
    const size_t n = commit.values.size();
    if (n < 2) continue;
    const double middle = profiler::median(commit.values);
    const double stretch = std::sqrt(static_cast<double>(n) / static_cast<double>(n - 1));
    for (const double value : commit.values) {
      distances.push_back(std::abs(value - middle) * stretch);
    }
  }
  if (distances.empty()) return 0.0;
  const double scale = profiler::kMadToDeviation * profiler::median(distances);
  if (scale > 0) return scale;
  // More than half of the runs agree: a mean is better than none.
  return std::accumulate(distances.begin(), distances.end(), 0.0) /
         static_cast<double>(distances.size());
}

double noise_scale(const std::vector<CommitReadings>& commits, double least) {
  double scale = std::max(pooled_noise(commits), least);
  double largest = 0;
  for (const CommitReadings& commit : commits) {
    for (const double value : commit.values) largest = std::max(largest, std::abs(value));
  }
  if (scale <= 0) scale = largest > 0 ? largest * 1e-9 : 1e-9;
  // Lattices of levels are counted in whole numbers.
  return std::max(scale, largest * 1e-12);
}

std::vector<double> noise_grid(double scale) {
  std::vector<double> grid;
  for (const double factor : kNoiseFactors) grid.push_back(factor * scale);
  return grid;
}

double middle_noise(const std::vector<double>& noises) {
  return noises[kNoiseFactors.size() / 2 - 1];
}

LevelDifference level_difference(const std::vector<double>& a, const std::vector<double>& b,
                                 double threshold, double probability, double weight_of_reading,
                                 const NoiseEvidence& evidence) {
  MOETUNE_CHECK(!a.empty() && !b.empty(), "a difference of {} and {} readings", a.size(), b.size());
  return difference_of({a, b, weight_of_reading, evidence}, threshold, probability);
}

const LevelDifference& RememberedDifference::of(std::vector<double> a, std::vector<double> b,
                                                double threshold, double probability,
                                                double weight_of_reading) {
  Question question{std::move(a), std::move(b), threshold, probability, weight_of_reading};
  if (question != asked_) {
    answer_ = level_difference(question.a, question.b, threshold, probability, weight_of_reading);
    asked_ = std::move(question);
  }
  return answer_;
}

LevelDifference level_from_zero(const std::vector<double>& readings, double threshold,
                                double probability, const NoiseEvidence& evidence) {
  MOETUNE_CHECK(!readings.empty(), "a level of no readings");
  const std::vector<double> none;
  return difference_of({none, readings, 1.0, evidence}, threshold, probability);
}

double log_odds_of_shift(const std::vector<double>& a, const std::vector<double>& b, double shift,
                         double weight_of_reading) {
  MOETUNE_CHECK(!a.empty() && !b.empty(), "a shift of {} and {} readings", a.size(), b.size());
  const std::vector<double> noises = noise_grid(noise_scale({{0, a}, {1, b}}));
  const double scale = middle_noise(noises);
  const double step = scale * kLatticeStep / std::sqrt(static_cast<double>(a.size() + b.size()));
  const auto log_evidence = [&](double off) {
    std::vector<double> moved = b;
    for (double& value : moved) value -= off;
    // One level for both: near that of either, or in between.
    std::vector<double> all = a;
    all.insert(all.end(), moved.begin(), moved.end());
    std::vector<LevelRange> ranges;
    for (const std::vector<double>* values :
         std::initializer_list<const std::vector<double>*>{&a, &moved, &all}) {
      const double reach =
          kReach * scale / std::sqrt(weight_of_reading * static_cast<double>(values->size()));
      // From a point of the lattice, which the sums of all shifts share.
      ranges.push_back({step * std::round(profiler::median(*values) / step), reach});
    }
    const std::vector<double> levels = level_lattice(ranges, step);
    LogSum evidence;
    for (const double noise : noises) {
      evidence.add(log_sum_of(log_fit(all, noise, weight_of_reading, levels)));
    }
    return evidence.value();
  };
  return log_evidence(shift) - log_evidence(0.0);
}

}  // namespace moetune::tuner
