// Which commits changed a noisy metric. Computes the posterior over all ways to cut the line of
// commits into segments of one level each. Levels and noise are unknown, and not every commit has
// to have been run.
//
// Model. The metric of a run at commit c is the level of c's segment plus the noise of levels.h;
// levels and noise are integrated out on grids. Segmentations are summed exactly by dynamic
// programming over the measured commits (Fearnhead 2006, "Exact and efficient Bayesian inference
// for multiple changepoint problems"). Positions between two measured commits differ only in their
// prior.
#pragma once

#include <vector>

#include "tuner/stats/levels.h"

namespace moetune::tuner {

struct ChangePointOptions {
  int num_positions = 1;  ///< position of the bad end; the culprits are among 1..num_positions
  /// Prior weight of each culprit, [num_positions], position 1 first; empty: all alike.
  std::vector<double> prior;
  /// Prior odds of k + 1 changes against k changes.
  double extra_change_odds = 0.05;
  /// Prior odds of no change against one change.
  double no_change_odds = 1.0;
  /// How much of an independent reading each one is worth; below 1 if they depend on each other.
  double weight_of_reading = 1.0;
};

/// What the readings tell about all positions.
struct ChangePointPosterior {
  double no_change = 1.0;  ///< probability that all have one level
  /// [num_positions + 1]: probability that the position is a culprit; nothing at 0.
  std::vector<double> change;
  std::vector<double> level;         ///< [num_positions + 1]: expected level
  std::vector<double> level_spread;  ///< [num_positions + 1]: standard deviation of that level
  double noise = 0.0;                ///< expected standard deviation of a run, without outliers
};

/// `commits` in ascending order of position, each with a reading at least, positions within
/// 0..num_positions. Throws base::Error otherwise. O(n^2) in the number of measured commits.
ChangePointPosterior change_point_posterior(const std::vector<CommitReadings>& commits,
                                            const ChangePointOptions& options);

}  // namespace moetune::tuner
