// Grids, sums over segmentations, and what they say of each position; see change_points.h.
#include "tuner/bisect/change_points.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/base/error.h"
#include "tuner/bisect/noise_model.h"

namespace moetune::tuner {
namespace {

constexpr double kMadToDeviation = 1.4826;
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
constexpr double kLevelStep = 0.3;   ///< of the grid of levels, in noises
constexpr double kLevelReach = 3.0;  ///< beyond a commit's median, in noises
/// For a difference: around both medians, in standard errors of the robust noise.
constexpr double kReach = 6.0;
/// So few readings, together, say little of the noise: it may be far larger than it looks. Without
/// more of its grid their intervals of 95 % would hold in 0.83 of cases (three readings of each).
constexpr size_t kFewReadings = 20;
constexpr int kMoreNoises = 2;
constexpr double kReachOfFew = 11.0;

/// log(sum of exp).
class LogSum {
 public:
  void add(double log_term) {
    if (log_term <= largest_) {
      sum_ += std::exp(log_term - largest_);
    } else {
      sum_ = largest_ == kMinusInfinity ? 1.0 : sum_ * std::exp(largest_ - log_term) + 1.0;
      largest_ = log_term;
    }
  }
  [[nodiscard]] double value() const {
    return largest_ == kMinusInfinity ? kMinusInfinity : largest_ + std::log(sum_);
  }

 private:
  double largest_ = kMinusInfinity;
  double sum_ = 0.0;
};

/// What the noise may be, smallest first. Never 0: a metric without noise has some tiny one.
std::vector<double> noise_grid(const std::vector<CommitReadings>& commits) {
  double scale = pooled_noise(commits);
  double largest = 0;
  for (const CommitReadings& commit : commits) {
    for (const double value : commit.values) largest = std::max(largest, std::abs(value));
  }
  if (scale <= 0) scale = largest > 0 ? largest * 1e-9 : 1e-9;
  // The lattice of levels is counted in whole numbers.
  scale = std::max(scale, largest * 1e-12);
  std::vector<double> grid;
  for (const double factor : kNoiseFactors) grid.push_back(factor * scale);
  return grid;
}

/// Points of a lattice around what was measured.
std::vector<double> level_grid(const std::vector<CommitReadings>& commits, double scale) {
  const double step = kLevelStep * scale;
  std::vector<int64_t> indices;
  for (const CommitReadings& commit : commits) {
    // A median of few runs lies off its level by more.
    const double reach = kLevelReach * scale *
                         std::max(0.5, 1.5 / std::sqrt(static_cast<double>(commit.values.size())));
    const double middle = median_of(commit.values);
    const auto first = static_cast<int64_t>(std::floor((middle - reach) / step));
    const auto last = static_cast<int64_t>(std::ceil((middle + reach) / step));
    for (int64_t i = first; i <= last; ++i) indices.push_back(i);
  }
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  std::vector<double> grid;
  grid.reserve(indices.size());
  for (const int64_t i : indices) grid.push_back(static_cast<double>(i) * step);
  return grid;
}

/// A run of measured commits under one level: how well they agree, and on which level.
struct Segment {
  double log_evidence = kMinusInfinity;
  double level = 0.0;
};

/// All segments for one noise, [first][last].
class Segments {
 public:
  Segments(const std::vector<CommitReadings>& commits, const std::vector<double>& levels,
           double noise, double weight_of_reading)
      : size_(commits.size()), segments_(size_ * size_) {
    const size_t num_levels = levels.size();
    std::vector<double> fit(size_ * num_levels, 0.0);
    for (size_t c = 0; c < size_; ++c) {
      for (const double value : commits[c].values) {
        for (size_t m = 0; m < num_levels; ++m) {
          fit[c * num_levels + m] += weight_of_reading * log_density(value - levels[m], noise);
        }
      }
    }
    const double prior = -std::log(static_cast<double>(num_levels));
    std::vector<double> sum(num_levels);
    for (size_t first = 0; first < size_; ++first) {
      std::fill(sum.begin(), sum.end(), 0.0);
      for (size_t last = first; last < size_; ++last) {
        double largest = kMinusInfinity;
        for (size_t m = 0; m < num_levels; ++m) {
          sum[m] += fit[last * num_levels + m];
          largest = std::max(largest, sum[m]);
        }
        double total = 0.0;
        double weighted = 0.0;
        for (size_t m = 0; m < num_levels; ++m) {
          if (sum[m] < largest - 30) continue;
          const double weight = std::exp(sum[m] - largest);
          total += weight;
          weighted += weight * levels[m];
        }
        segments_[first * size_ + last] = {prior + largest + std::log(total), weighted / total};
      }
    }
  }

  [[nodiscard]] const Segment& at(size_t first, size_t last) const {
    return segments_[first * size_ + last];
  }

 private:
  size_t size_;
  std::vector<Segment> segments_;
};

/// Sums over all segmentations for one noise. Gap g lies between measured commits g and g + 1.
struct Passes {
  std::vector<double> forward;   ///< [n]: of commits 0..i, a segment ending at i
  std::vector<double> backward;  ///< [n]: of commits i..n-1, a segment beginning at i
  double evidence = kMinusInfinity;
};

Passes run_passes(const Segments& segments, const std::vector<double>& log_gap) {
  const size_t n = log_gap.size() + 1;
  Passes passes;
  passes.forward.assign(n, kMinusInfinity);
  passes.backward.assign(n, kMinusInfinity);
  for (size_t last = 0; last < n; ++last) {
    LogSum sum;
    for (size_t first = 0; first <= last; ++first) {
      const double before = first == 0 ? 0.0 : passes.forward[first - 1] + log_gap[first - 1];
      sum.add(before + segments.at(first, last).log_evidence);
    }
    passes.forward[last] = sum.value();
  }
  for (size_t first = n; first-- > 0;) {
    LogSum sum;
    for (size_t last = first; last < n; ++last) {
      const double after = last + 1 == n ? 0.0 : log_gap[last] + passes.backward[last + 1];
      sum.add(segments.at(first, last).log_evidence + after);
    }
    passes.backward[first] = sum.value();
  }
  passes.evidence = passes.backward[0];
  return passes;
}

/// First and second moment of a level, weighted.
struct Moments {
  double weight = 0.0;
  double first = 0.0;
  double second = 0.0;

  void add(double probability, double level) {
    weight += probability;
    first += probability * level;
    second += probability * level * level;
  }
  void add(double share, const Moments& other) {
    weight += share * other.weight;
    first += share * other.first;
    second += share * other.second;
  }
};

void check_commits(const std::vector<CommitReadings>& commits, const ChangePointOptions& options) {
  MOETUNE_CHECK(!commits.empty(), "no commit was measured");
  int before = -1;
  for (const CommitReadings& commit : commits) {
    MOETUNE_CHECK(commit.position > before && commit.position <= options.num_positions,
                  "position {} after {} of {}", commit.position, before, options.num_positions);
    MOETUNE_CHECK(!commit.values.empty(), "position {} has no reading", commit.position);
    before = commit.position;
  }
  MOETUNE_CHECK(
      options.prior.empty() || options.prior.size() == static_cast<size_t>(options.num_positions),
      "{} prior weights for {} positions", options.prior.size(), options.num_positions);
}

/// The posterior from the sums for every noise.
class Posterior {
 public:
  Posterior(const std::vector<CommitReadings>& commits, const ChangePointOptions& options)
      : commits_(commits), options_(options), prior_(options.prior) {
    const auto count = static_cast<size_t>(options.num_positions);
    if (prior_.empty()) prior_.assign(count, 1.0);
    const double total = std::accumulate(prior_.begin(), prior_.end(), 0.0);
    for (double& weight : prior_) weight /= total;
    for (size_t gap = 0; gap + 1 < commits.size(); ++gap) {
      double weight = 0.0;
      for (int p = commits[gap].position + 1; p <= commits[gap + 1].position; ++p) {
        weight += prior_of(p);
      }
      gap_weight_.push_back(weight);
      log_gap_.push_back(std::log(options.extra_change_odds * weight));
    }
    result_.no_change = 0.0;
    result_.change.assign(count + 1, 0.0);
    moments_.resize(count + 1);
  }

  ChangePointPosterior run() {
    const std::vector<double> noises = noise_grid(commits_);
    const std::vector<double> levels = level_grid(commits_, noises[noises.size() / 2 - 1]);
    std::vector<Segments> segments;
    std::vector<Passes> passes;
    LogSum total;
    for (const double noise : noises) {
      segments.emplace_back(commits_, levels, noise, options_.weight_of_reading);
      passes.push_back(run_passes(segments.back(), log_gap_));
      // No change has odds of its own, where the sums count it as none of the further ones.
      add_no_change(segments.back(), passes.back());
      total.add(passes.back().evidence);
    }
    for (size_t i = 0; i < noises.size(); ++i) {
      add_noise(segments[i], passes[i], total.value(), noises[i]);
    }
    return finish();
  }

 private:
  [[nodiscard]] double prior_of(int position) const {
    return prior_[static_cast<size_t>(position) - 1];
  }

  // The weight of no change relative to one: odds * extra / 1, as every change brought the factor.
  void add_no_change(const Segments& segments, Passes& passes) {
    const size_t n = commits_.size();
    const double whole = segments.at(0, n - 1).log_evidence;
    extra_.push_back(whole + std::log(options_.no_change_odds * options_.extra_change_odds));
    // evidence holds it once with weight one; what is meant is the weight above.
    LogSum sum;
    for (size_t last = 0; last + 1 < n; ++last) {
      sum.add(segments.at(0, last).log_evidence + log_gap_[last] + passes.backward[last + 1]);
    }
    sum.add(extra_.back());
    passes.evidence = sum.value();
  }

  void add_noise(const Segments& segments, const Passes& passes, double total, double noise) {
    const size_t n = commits_.size();
    const size_t index = num_noises_++;
    const double share = std::exp(passes.evidence - total);
    if (share < 1e-9) return;
    result_.noise += share * noise;
    const double no_change = std::exp(extra_[index] - total);
    result_.no_change += no_change;
    // By measured commit: the moments of its level. By gap: those of the level on either side when
    // it has a change, and when it has none.
    std::vector<Moments> at(n);
    std::vector<Moments> left(n);
    std::vector<Moments> right(n);
    std::vector<Moments> across(n);
    for (size_t first = 0; first < n; ++first) {
      for (size_t last = first; last < n; ++last) {
        const Segment& segment = segments.at(first, last);
        double probability = no_change;
        if (first > 0 || last + 1 < n) {
          const double before = first == 0 ? 0.0 : passes.forward[first - 1] + log_gap_[first - 1];
          const double after = last + 1 == n ? 0.0 : log_gap_[last] + passes.backward[last + 1];
          probability = std::exp(before + segment.log_evidence + after - total);
        }
        if (probability < 1e-12) continue;
        for (size_t i = first; i <= last; ++i) at[i].add(probability, segment.level);
        for (size_t g = first; g < last; ++g) across[g].add(probability, segment.level);
        if (first > 0) right[first - 1].add(probability, segment.level);
        if (last + 1 < n) left[last].add(probability, segment.level);
      }
    }
    for (size_t i = 0; i < n; ++i) {
      moments_[static_cast<size_t>(commits_[i].position)].add(1.0, at[i]);
    }
    for (size_t g = 0; g + 1 < n; ++g) add_gap(g, left[g], right[g], across[g]);
  }

  void add_gap(size_t gap, const Moments& left, const Moments& right, const Moments& across) {
    double before = 0.0;  // the share of the gap's prior up to and with the position
    for (int p = commits_[gap].position + 1; p <= commits_[gap + 1].position; ++p) {
      const double own = prior_of(p) / gap_weight_[gap];
      before += own;
      result_.change[static_cast<size_t>(p)] += left.weight * own;
      if (p == commits_[gap + 1].position) break;
      Moments& moments = moments_[static_cast<size_t>(p)];
      moments.add(1.0, across);
      moments.add(1.0 - before, left);
      moments.add(before, right);
    }
  }

  ChangePointPosterior finish() {
    // Beyond the measured ends nothing is known but their levels.
    const auto first = static_cast<size_t>(commits_.front().position);
    const auto last = static_cast<size_t>(commits_.back().position);
    for (size_t p = 0; p < moments_.size(); ++p) {
      const Moments& m = moments_[std::clamp(p, first, last)];
      const double level = m.weight > 0 ? m.first / m.weight : 0.0;
      const double square = m.weight > 0 ? m.second / m.weight - level * level : 0.0;
      result_.level.push_back(level);
      result_.level_spread.push_back(std::sqrt(std::max(0.0, square)));
    }
    return std::move(result_);
  }

  const std::vector<CommitReadings>& commits_;
  const ChangePointOptions& options_;
  std::vector<double> prior_;
  std::vector<double> gap_weight_;
  std::vector<double> log_gap_;
  std::vector<double> extra_;
  size_t num_noises_ = 0;
  std::vector<Moments> moments_;
  ChangePointPosterior result_;
};

}  // namespace

double pooled_noise(const std::vector<CommitReadings>& commits) {
  // Distances from the median of n runs are shorter than from the level by sqrt((n - 1) / n).
  std::vector<double> distances;
  for (const CommitReadings& commit : commits) {
    const size_t n = commit.values.size();
    if (n < 2) continue;
    const double middle = median_of(commit.values);
    const double stretch = std::sqrt(static_cast<double>(n) / static_cast<double>(n - 1));
    for (const double value : commit.values) {
      distances.push_back(std::abs(value - middle) * stretch);
    }
  }
  if (distances.empty()) return 0.0;
  const double scale = kMadToDeviation * median_of(distances);
  if (scale > 0) return scale;
  // More than half of the runs agree: a mean is better than none.
  return std::accumulate(distances.begin(), distances.end(), 0.0) /
         static_cast<double>(distances.size());
}

ChangePointPosterior change_point_posterior(const std::vector<CommitReadings>& commits,
                                            const ChangePointOptions& options) {
  check_commits(commits, options);
  return Posterior(commits, options).run();
}

LevelDifference level_difference(const std::vector<double>& a, const std::vector<double>& b,
                                 double threshold, double probability, double weight_of_reading) {
  const std::vector<CommitReadings> commits = {{0, a}, {1, b}};
  MOETUNE_CHECK(!a.empty() && !b.empty(), "a difference of {} and {} readings", a.size(), b.size());
  std::vector<double> noises = noise_grid(commits);
  const double scale = noises[noises.size() / 2 - 1];
  const bool is_few = a.size() + b.size() <= kFewReadings;
  if (is_few) {
    const double ratio = noises[1] / noises[0];
    for (int i = 0; i < kMoreNoises; ++i) noises.push_back(noises.back() * ratio);
  }
  const auto most = static_cast<double>(std::max(a.size(), b.size()));
  // Fine enough for the mean of all runs.
  const double step = scale * 0.4 / std::sqrt(most);
  const auto grid_of = [&](const std::vector<double>& values) {
    const double reach = (is_few ? kReachOfFew : kReach) * scale /
                         std::sqrt(weight_of_reading * static_cast<double>(values.size()));
    const auto middle = static_cast<int64_t>(std::round(median_of(values) / step));
    const auto count = static_cast<int64_t>(std::ceil(reach / step));
    return std::pair<int64_t, int64_t>(middle - count, middle + count);
  };
  const auto [a_first, a_last] = grid_of(a);
  const auto [b_first, b_last] = grid_of(b);
  const auto fit = [&](const std::vector<double>& values, int64_t first, int64_t last,
                       double noise) {
    std::vector<double> logs;
    for (int64_t i = first; i <= last; ++i) {
      double sum = 0.0;
      for (const double value : values) {
        sum += log_density(value - static_cast<double>(i) * step, noise);
      }
      logs.push_back(weight_of_reading * sum);
    }
    return logs;
  };
  std::vector<std::pair<std::vector<double>, std::vector<double>>> fits;
  double largest = kMinusInfinity;
  for (const double noise : noises) {
    fits.emplace_back(fit(a, a_first, a_last, noise), fit(b, b_first, b_last, noise));
    largest = std::max(largest,
                       *std::max_element(fits.back().first.begin(), fits.back().first.end()) +
                           *std::max_element(fits.back().second.begin(), fits.back().second.end()));
  }
  // Weight of each difference, by lattice steps.
  const int64_t lowest = b_first - a_last;
  std::vector<double> weights(static_cast<size_t>(b_last - a_first - lowest) + 1, 0.0);
  LevelDifference result;
  double total = 0.0;
  for (size_t n = 0; n < noises.size(); ++n) {
    const auto& [a_fit, b_fit] = fits[n];
    double of_noise = 0.0;
    for (size_t i = 0; i < a_fit.size(); ++i) {
      for (size_t j = 0; j < b_fit.size(); ++j) {
        const double log_weight = a_fit[i] + b_fit[j] - largest;
        if (log_weight < -30) continue;
        const double weight = std::exp(log_weight);
        of_noise += weight;
        const int64_t steps = b_first + static_cast<int64_t>(j) - a_first - static_cast<int64_t>(i);
        weights[static_cast<size_t>(steps - lowest)] += weight;
      }
    }
    total += of_noise;
    result.noise += of_noise * noises[n];
  }
  result.noise /= total;
  double sum = 0.0;
  const double tail = (1.0 - probability) / 2;
  result.low = static_cast<double>(lowest) * step;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double difference = static_cast<double>(lowest + static_cast<int64_t>(i)) * step;
    const double weight = weights[i] / total;
    if (sum < tail) result.low = difference;
    if (sum < 1.0 - tail) result.high = difference;
    sum += weight;
    result.mean += weight * difference;
    if (difference > threshold) result.above += weight;
    if (difference < -threshold) result.below += weight;
  }
  return result;
}

double log_odds_of_shift(const std::vector<double>& a, const std::vector<double>& b, double shift,
                         double weight_of_reading) {
  MOETUNE_CHECK(!a.empty() && !b.empty(), "a shift of {} and {} readings", a.size(), b.size());
  const std::vector<double> noises = noise_grid({{0, a}, {1, b}});
  const double scale = noises[noises.size() / 2 - 1];
  const double step = scale * 0.4 / std::sqrt(static_cast<double>(a.size() + b.size()));
  const auto log_evidence = [&](double off) {
    std::vector<double> moved = b;
    for (double& value : moved) value -= off;
    // One level for both: near that of either, or in between.
    std::vector<double> all = a;
    all.insert(all.end(), moved.begin(), moved.end());
    std::vector<int64_t> lattice;
    for (const std::vector<double>* values : {&a, static_cast<const std::vector<double>*>(&moved),
                                              static_cast<const std::vector<double>*>(&all)}) {
      const double reach =
          6.0 * scale / std::sqrt(weight_of_reading * static_cast<double>(values->size()));
      const auto middle = static_cast<int64_t>(std::round(median_of(*values) / step));
      const auto count = static_cast<int64_t>(std::ceil(reach / step));
      for (int64_t i = middle - count; i <= middle + count; ++i) lattice.push_back(i);
    }
    std::sort(lattice.begin(), lattice.end());
    lattice.erase(std::unique(lattice.begin(), lattice.end()), lattice.end());
    LogSum evidence;
    for (const double noise : noises) {
      for (const int64_t i : lattice) {
        double sum = 0.0;
        for (const double value : all) {
          sum += log_density(value - static_cast<double>(i) * step, noise);
        }
        evidence.add(weight_of_reading * sum);
      }
    }
    return evidence.value();
  };
  return log_evidence(shift) - log_evidence(0.0);
}

}  // namespace moetune::tuner
