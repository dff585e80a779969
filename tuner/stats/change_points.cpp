// The grids, the sums over segmentations, and what they say of each position.
#include "tuner/stats/change_points.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "kernels/base/error.h"
#include "profiler/analysis/stats.h"
#include "tuner/stats/level_lattice.h"
#include "tuner/stats/log_sum.h"
#include "tuner/stats/noise_model.h"

namespace moetune::tuner {
namespace {

constexpr double kLevelStep = 0.3;   ///< of the grid of levels, in noises
constexpr double kLevelReach = 3.0;  ///< beyond a commit's median, in noises

std::vector<double> levels_near(const std::vector<CommitReadings>& commits, double scale) {
  std::vector<LevelRange> ranges;
  for (const CommitReadings& commit : commits) {
    // A median of few runs lies off its level by more.
    const double of_few = 1.5 / std::sqrt(static_cast<double>(commit.values.size()));
    ranges.push_back(
        {profiler::median(commit.values), kLevelReach * scale * std::max(0.5, of_few)});
  }
  return level_lattice(ranges, kLevelStep * scale);
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
      add_log_likelihoods(commits[c].values, noise, weight_of_reading, levels,
                          std::span(fit).subspan(c * num_levels, num_levels));
    }
    const double prior = -std::log(static_cast<double>(num_levels));
    std::vector<double> sum(num_levels);
    std::vector<double> weights(num_levels);
    for (size_t first = 0; first < size_; ++first) {
      std::fill(sum.begin(), sum.end(), 0.0);
      for (size_t last = first; last < size_; ++last) {
        for (size_t m = 0; m < num_levels; ++m) sum[m] += fit[last * num_levels + m];
        const double largest = scale_by_largest(sum, weights);
        double total = 0.0;
        double weighted = 0.0;
        for (size_t m = 0; m < num_levels; ++m) {
          total += weights[m];
          weighted += weights[m] * levels[m];
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
  std::vector<double> forward;            ///< [n]: of commits 0..i, a segment ending at i
  std::vector<double> backward;           ///< [n]: of commits i..n-1, a segment beginning at i
  double log_no_change = kMinusInfinity;  ///< of all commits on one level, with its own odds
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
    const std::vector<double> noises = noise_grid(noise_scale(commits_));
    const std::vector<double> levels = levels_near(commits_, middle_noise(noises));
    std::vector<Segments> segments;
    std::vector<Passes> passes;
    LogSum total;
    for (const double noise : noises) {
      segments.emplace_back(commits_, levels, noise, options_.weight_of_reading);
      passes.push_back(run_passes(segments.back(), log_gap_));
      // The sums give no change the weight of zero further changes, but it has odds of its own.
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

  // Weight of no change against one change: odds * extra, as each change has the factor extra.
  void add_no_change(const Segments& segments, Passes& passes) {
    const size_t n = commits_.size();
    const double whole = segments.at(0, n - 1).log_evidence;
    passes.log_no_change = whole + std::log(options_.no_change_odds * options_.extra_change_odds);
    // The passes counted no change with weight one; the sum is made again with the weight above.
    LogSum sum;
    for (size_t last = 0; last + 1 < n; ++last) {
      sum.add(segments.at(0, last).log_evidence + log_gap_[last] + passes.backward[last + 1]);
    }
    sum.add(passes.log_no_change);
    passes.evidence = sum.value();
  }

  void add_noise(const Segments& segments, const Passes& passes, double total, double noise) {
    const size_t n = commits_.size();
    const double share = std::exp(passes.evidence - total);
    if (share < 1e-9) return;
    result_.noise += share * noise;
    const double no_change = std::exp(passes.log_no_change - total);
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
  std::vector<Moments> moments_;
  ChangePointPosterior result_;
};

}  // namespace

ChangePointPosterior change_point_posterior(const std::vector<CommitReadings>& commits,
                                            const ChangePointOptions& options) {
  check_commits(commits, options);
  return Posterior(commits, options).run();
}

}  // namespace moetune::tuner
