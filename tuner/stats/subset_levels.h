// Whether a set of changes moves a noisy metric: the posterior of its level beside the good end's,
// from few runs. The noise model is that of levels.h; what is new is the prior: a set has
// the good end's level, or that of a set which is known to be bad, or (less likely) any other.
#pragma once

#include <cstddef>
#include <vector>

#include "tuner/stats/levels.h"

namespace moetune::tuner {

/// Where a level lies from a reference: probabilities, together 1.
struct LevelSides {
  double below = 0.0;  ///< by more than the threshold
  double near = 1.0;
  double above = 0.0;
};

/// Readings of several sets, by an index that the caller gives; more is worse.
class SubsetLevels {
 public:
  void add(size_t set, double value);
  /// Forgets all readings; `weight_of_reading` of those to come as in ChangePointOptions.
  void clear(double weight_of_reading);
  [[nodiscard]] size_t num_runs(size_t set) const {
    return set < sets_.size() ? sets_[set].values.size() : 0;
  }
  [[nodiscard]] const std::vector<double>& values(size_t set) const { return sets_[set].values; }

  /// The level of `set` from that of `good`. `likely`: sets whose level it may have exactly. Both
  /// sets and each of `likely` need a reading.
  LevelSides compare(size_t set, size_t good, const std::vector<size_t>& likely, double threshold);

 private:
  struct Set {
    std::vector<double> values;
    size_t num_fitted = 0;                     ///< values that are in log_fit
    std::vector<std::vector<double>> log_fit;  ///< [noise][point]
    std::vector<std::vector<double>> fit;      ///< exp(log_fit - log_scale)
    std::vector<double> log_scale;             ///< [noise]: the largest of log_fit
    std::vector<double> total;                 ///< [noise]: the sum of fit
  };
  void update();
  void build_lattice();
  void fit(Set& set);
  [[nodiscard]] bool is_covered(const Set& set) const;

  std::vector<Set> sets_;
  double weight_of_reading_ = 1.0;
  size_t num_values_ = 0;
  size_t num_at_lattice_ = 0;  ///< readings when the lattice was made
  double scale_ = 0.0;         ///< of the noise
  double step_ = 0.0;          ///< of the lattice
  std::vector<double> noises_;
  std::vector<double> lattice_;  ///< ascending; points only near what was measured
};

}  // namespace moetune::tuner
