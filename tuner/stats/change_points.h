// Which commits changed a noisy metric: the posterior over all ways to cut the line of commits into
// segments of one level each, with unknown levels and noise, from whatever runs there are.
//
// Model. The metric of a run at commit c is the level of c's segment plus the noise of levels.h;
// levels and noise are integrated out on grids. Segmentations are summed exactly by dynamic
// programming over the measured commits (Fearnhead 2006, "Exact and efficient Bayesian inference
// for multiple changepoint problems"): between two measured commits nothing tells the positions
// apart but the prior.
#pragma once

#include <vector>

#include "tuner/stats/levels.h"

namespace moetune::tuner {

struct ChangePointOptions {
  int num_positions = 1;  ///< of the bad end: that many commits can be culprits, 1..num_positions
  /// Prior weight of each culprit, [num_positions], position 1 first; empty: all alike.
  std::vector<double> prior;
  /// Prior odds of each further change against one less.
  double extra_change_odds = 0.05;
  /// Prior odds of no change at all against one.
  double no_change_odds = 1.0;
  /// Below 1 where readings are not independent: how much of an independent one each is worth.
  double weight_of_reading = 1.0;
};

/// What the readings say of all positions; vectors are by position.
struct ChangePointPosterior {
  double no_change = 1.0;      ///< probability that all have one level
  std::vector<double> change;  ///< [num_positions + 1], at 1..num_positions: it is a culprit
  std::vector<double> level;   ///< [num_positions + 1], expected
  std::vector<double>
      level_spread;    ///< [num_positions + 1], standard deviation of which level it is
  double noise = 0.0;  ///< expected standard deviation of a run, without outliers
};

/// `commits` in ascending order of position, each with a reading at least, positions within
/// 0..num_positions. Throws base::Error otherwise. O(n^2) in the number of measured commits.
ChangePointPosterior change_point_posterior(const std::vector<CommitReadings>& commits,
                                            const ChangePointOptions& options);

}  // namespace moetune::tuner
