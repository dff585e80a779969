// The likelihood of a set's readings under each of the three levels, on the grids of levels.h.
#include "tuner/stats/subset_levels.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "kernels/base/error.h"
#include "profiler/analysis/stats.h"
#include "tuner/stats/level_lattice.h"
#include "tuner/stats/noise_model.h"

namespace moetune::tuner {
namespace {

// Prior of a set's level. A share that does not apply is spread over the others.
constexpr double kGoodShare = 0.45;    ///< the good end's
constexpr double kLikelyShare = 0.35;  ///< that of a set known to be bad
constexpr double kOtherShare = 0.20;   ///< anywhere

constexpr double kSetReach = 6.0;        ///< of the lattice around a median of one run, in noises
constexpr double kLeastReach = 3.0;      ///< the same around a median of many runs
constexpr double kCovered = 2.5;         ///< this far around a median the lattice must reach
constexpr double kSetLatticeStep = 0.4;  ///< in standard errors of the set that ran most often
constexpr double kLatticeGrowth = 1.2;   ///< of the number of readings until it is made anew

double reach_of(size_t num_values) {
  return std::max(kLeastReach, kSetReach / std::sqrt(static_cast<double>(num_values)));
}

}  // namespace

void SubsetLevels::add(size_t set, double value) {
  if (set >= sets_.size()) sets_.resize(set + 1);
  sets_[set].values.push_back(value);
  ++num_values_;
}

void SubsetLevels::clear(double weight_of_reading) {
  *this = SubsetLevels();
  weight_of_reading_ = weight_of_reading;
}

bool SubsetLevels::is_covered(const Set& set) const {
  const double middle = profiler::median(set.values);
  for (const double side : {-kCovered, kCovered}) {
    const double at = middle + side * scale_;
    const auto above = std::lower_bound(lattice_.begin(), lattice_.end(), at - step_);
    if (above == lattice_.end() || *above > at + step_) return false;
  }
  return true;
}

void SubsetLevels::build_lattice() {
  std::vector<CommitReadings> commits;
  size_t most = 1;
  for (const Set& set : sets_) {
    if (set.values.empty()) continue;
    commits.push_back({static_cast<int>(commits.size()), set.values});
    most = std::max(most, set.values.size());
  }
  scale_ = noise_scale(commits);
  step_ = scale_ * kSetLatticeStep / std::sqrt(static_cast<double>(most));
  noises_ = noise_grid(scale_);
  std::vector<LevelRange> ranges;
  for (const CommitReadings& commit : commits) {
    ranges.push_back({profiler::median(commit.values), scale_ * reach_of(commit.values.size())});
  }
  lattice_ = level_lattice(ranges, step_);
  num_at_lattice_ = num_values_;
  for (Set& set : sets_) {
    set.num_fitted = 0;
    set.log_fit.assign(noises_.size(), std::vector<double>(lattice_.size(), 0.0));
  }
}

void SubsetLevels::fit(Set& set) {
  if (set.log_fit.empty()) {
    set.log_fit.assign(noises_.size(), std::vector<double>(lattice_.size(), 0.0));
  }
  set.fit.resize(noises_.size());
  set.log_scale.resize(noises_.size());
  set.total.resize(noises_.size());
  set.log_total.resize(noises_.size());
  for (size_t n = 0; n < noises_.size(); ++n) {
    std::vector<double>& log_fit = set.log_fit[n];
    add_log_likelihoods(std::span(set.values).subspan(set.num_fitted), noises_[n],
                        weight_of_reading_, lattice_, log_fit);
    std::vector<double>& fit = set.fit[n];
    fit.resize(lattice_.size());
    set.log_scale[n] = scale_by_largest(log_fit, fit);
    set.total[n] = std::accumulate(fit.begin(), fit.end(), 0.0);
    set.log_total[n] = std::log(set.total[n]);
  }
  set.num_fitted = set.values.size();
}

void SubsetLevels::update() {
  bool is_stale =
      static_cast<double>(num_values_) >= kLatticeGrowth * static_cast<double>(num_at_lattice_);
  for (const Set& set : sets_) {
    if (is_stale) break;
    is_stale = set.num_fitted < set.values.size() && !is_covered(set);
  }
  if (is_stale || lattice_.empty()) build_lattice();
  for (Set& set : sets_) {
    if (set.num_fitted < set.values.size()) fit(set);
  }
}

LevelSides SubsetLevels::compare(size_t set, size_t good, const std::vector<size_t>& likely,
                                 double threshold) {
  MOETUNE_CHECK(num_runs(set) > 0 && num_runs(good) > 0, "sets {} and {} without a reading", set,
                good);
  update();
  const size_t num_levels = lattice_.size();
  // Evidence of each noise from all sets but this one.
  std::vector<double> log_weight(noises_.size(), 0.0);
  for (size_t s = 0; s < sets_.size(); ++s) {
    if (s == set || sets_[s].values.empty()) continue;
    for (size_t n = 0; n < noises_.size(); ++n) {
      log_weight[n] += sets_[s].log_scale[n] + sets_[s].log_total[n];
    }
  }
  const Set& own = sets_[set];
  for (size_t n = 0; n < noises_.size(); ++n) log_weight[n] += own.log_scale[n];
  const double largest = *std::max_element(log_weight.begin(), log_weight.end());

  const double range = (lattice_.back() - lattice_.front()) / step_ + 1;
  const double asked = kGoodShare + kOtherShare + (likely.empty() ? 0.0 : kLikelyShare);
  LevelSides sides{0.0, 0.0, 0.0};
  // Of each level: the points below level - threshold, and those up to level + threshold.
  std::vector<size_t> num_lower(num_levels);
  std::vector<size_t> num_upper(num_levels);
  for (size_t l = 0, lower = 0, upper = 0; l < num_levels; ++l) {
    while (lower < num_levels && lattice_[lower] < lattice_[l] - threshold) ++lower;
    while (upper < num_levels && lattice_[upper] <= lattice_[l] + threshold) ++upper;
    num_lower[l] = lower;
    num_upper[l] = upper;
  }
  std::vector<double> of_good(num_levels);    // share of the good end's level at each point
  std::vector<double> up_to(num_levels + 1);  // the same below each point
  std::vector<double> prior(num_levels);
  for (size_t n = 0; n < noises_.size(); ++n) {
    const double weight = std::exp(log_weight[n] - largest) / asked;
    if (weight < 1e-12) continue;
    const Set& base = sets_[good];
    const double* const fit = own.fit[n].data();
    for (size_t l = 0; l < num_levels; ++l) of_good[l] = base.fit[n][l] / base.total[n];
    up_to[0] = 0.0;
    for (size_t l = 0; l < num_levels; ++l) up_to[l + 1] = up_to[l] + of_good[l];
    std::fill(prior.begin(), prior.end(), kOtherShare / range);
    for (const size_t other : likely) {
      const double share = kLikelyShare / static_cast<double>(likely.size());
      const double* const other_fit = sets_[other].fit[n].data();
      const double other_total = sets_[other].total[n];
      for (size_t l = 0; l < num_levels; ++l) prior[l] += share * other_fit[l] / other_total;
    }
    double as_good = 0.0;
    double above = 0.0;
    double below = 0.0;
    double total = 0.0;
    for (size_t l = 0; l < num_levels; ++l) {
      as_good += of_good[l] * fit[l];
      const double mass = prior[l] * fit[l];
      total += mass;
      above += mass * up_to[num_lower[l]];
      below += mass * (1.0 - up_to[num_upper[l]]);
    }
    sides.above += weight * above;
    sides.below += weight * below;
    sides.near += weight * (kGoodShare * as_good + total - above - below);
  }
  const double sum = sides.above + sides.near + sides.below;
  return {sides.below / sum, sides.near / sum, sides.above / sum};
}

}  // namespace moetune::tuner
