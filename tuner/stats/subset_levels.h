// Whether a set of changes moves a noisy metric: the posterior of its level against the good end's,
// from few runs. The noise is normal with standard deviation s, or with 10 s for one run in twenty.
// The prior of a set's level: it is the good end's, or that of a set which is known to be bad, or
// (less likely) any other.
#pragma once

#include <cstddef>
#include <vector>

#include "tuner/stats/levels.h"

namespace moetune::tuner {

/// Probabilities of where a level lies against a reference; their sum is 1.
struct LevelSides {
  double below = 0.0;  ///< below it by more than the threshold
  double near = 1.0;   ///< within the threshold
  double above = 0.0;  ///< above it by more than the threshold
};

/// Readings of several sets, which the caller numbers; more is worse.
class SubsetLevels {
 public:
  void add(size_t set, double value);
  /// Forgets all readings. Those to come have this weight, as in ChangePointOptions.
  void clear(double weight_of_reading);
  [[nodiscard]] size_t num_runs(size_t set) const {
    return set < sets_.size() ? sets_[set].values.size() : 0;
  }
  [[nodiscard]] const std::vector<double>& values(size_t set) const { return sets_[set].values; }

  /// Compares the level of `set` with that of `good`. `likely` are other sets whose level it may
  /// have exactly. All these sets need a reading.
  LevelSides compare(size_t set, size_t good, const std::vector<size_t>& likely, double threshold);

 private:
  struct Set {
    std::vector<double> values;
    size_t num_fitted = 0;                     ///< values that are in log_fit
    std::vector<std::vector<double>> log_fit;  ///< [noise][point]
    std::vector<std::vector<double>> fit;      ///< exp(log_fit - log_scale)
    std::vector<double> log_scale;             ///< [noise]: the largest of log_fit
    std::vector<double> total;                 ///< [noise]: the sum of fit
    std::vector<double> log_total;             ///< [noise]
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
