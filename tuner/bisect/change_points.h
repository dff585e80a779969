// Which commits changed a noisy metric: the posterior over all ways to cut the line of commits into
// segments of one level each, with unknown levels and noise, from whatever runs there are.
//
// Model. The metric of a run at commit c is the level of c's segment plus noise, with probability
// 0.95 normal with standard deviation s, else (an outlier) normal with 10 s. Levels are flat over
// the range of the data, s is flat in its logarithm around a robust estimate; both are integrated
// out on grids. Segmentations are summed exactly by dynamic programming over the measured commits
// (Fearnhead 2006, "Exact and efficient Bayesian inference for multiple changepoint problems"):
// between two measured commits nothing tells the positions apart but the prior.
#pragma once

#include <cstdint>
#include <vector>

namespace moetune::tuner {

/// The readings of one commit, by position: 0 is the good end, num_positions the bad one.
struct CommitReadings {
  int position = 0;
  std::vector<double> values;
};

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

/// What the readings say of one position. The first element of a vector is position 0.
struct ChangePointPosterior {
  double no_change = 1.0;      ///< probability that all have one level
  std::vector<double> change;  ///< [num_positions + 1], at 1..num_positions: it is a culprit
  std::vector<double> level;   ///< [num_positions + 1], expected
  std::vector<double>
      level_spread;    ///< [num_positions + 1], standard deviation of which level it is
  double noise = 0.0;  ///< expected standard deviation of a run, without outliers
};

/// Half the difference of two runs of one commit and the like: a robust scale of the noise, pooled
/// over commits. 0 when no commit was run twice or all runs agree.
double pooled_noise(const std::vector<CommitReadings>& commits);

/// `commits` in ascending order of position, each with a reading at least, positions within
/// 0..num_positions. Throws base::Error otherwise. O(n^2) in the number of measured commits.
ChangePointPosterior change_point_posterior(const std::vector<CommitReadings>& commits,
                                            const ChangePointOptions& options);

/// The difference of two commits' levels.
struct LevelDifference {
  double mean = 0.0;
  double low = 0.0;  ///< of the interval of the asked probability, equal tails
  double high = 0.0;
  double noise = 0.0;  ///< expected standard deviation of a run
  double above = 0.0;  ///< probability that it exceeds the asked threshold
  double below = 0.0;  ///< probability that it is less than minus the threshold
};

/// level(b) - level(a) under the same noise model. Both need a reading. `weight_of_reading`: as in
/// ChangePointOptions.
LevelDifference level_difference(const std::vector<double>& a, const std::vector<double>& b,
                                 double threshold, double probability = 0.95,
                                 double weight_of_reading = 1.0);

/// Logarithm of how much likelier the readings are when level(b) = level(a) + shift than when the
/// levels are the same, under the same noise model, whatever the level. Both need a reading.
double log_odds_of_shift(const std::vector<double>& a, const std::vector<double>& b, double shift,
                         double weight_of_reading = 1.0);

}  // namespace moetune::tuner
