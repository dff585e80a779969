// By how much two levels differ, from few noisy readings of each: the one interval that hunts and
// searches judge by.
//
// Model. A reading is its level plus noise, with probability 0.95 normal with standard deviation s,
// else (an outlier) normal with 10 s. Levels are flat over the range of the data, s is flat in its
// logarithm around a robust estimate; both are integrated out on grids.
#pragma once

#include <vector>

namespace moetune::tuner {

/// The readings of one position: of a commit in a history, of a configuration in a search.
struct CommitReadings {
  int position = 0;
  std::vector<double> values;
};

/// Robust standard deviation of a run, by the distances of all commits' runs from their commit's
/// median. 0 when no commit was run twice or all runs agree.
double pooled_noise(const std::vector<CommitReadings>& commits);

/// The pooled noise, or `least` if that is more. Never 0, and never so small against the readings
/// that the points of a lattice cannot be counted: a metric without noise gets a tiny one.
double noise_scale(const std::vector<CommitReadings>& commits, double least = 0.0);

/// Standard deviations that the noise may have, smallest first: kNoiseFactors times `scale`.
std::vector<double> noise_grid(double scale);
/// The usual noise of such a grid.
double middle_noise(const std::vector<double>& noises);

/// Evidence of the noise beyond the readings of the two levels.
struct NoiseEvidence {
  /// Readings of other levels, each of which was read several times.
  std::vector<std::vector<double>> repeats;
  /// Lower bound of the noise, such as what the parts of one reading show; 0: unknown.
  double least = 0.0;
};

/// The difference of two levels.
struct LevelDifference {
  double mean = 0.0;
  double low = 0.0;  ///< ends of the interval of the asked probability, with equal tails
  double high = 0.0;
  double noise = 0.0;  ///< expected standard deviation of a run
  double above = 0.0;  ///< probability that it exceeds the asked threshold
  double below = 0.0;  ///< probability that it is less than minus the threshold
};

/// level(b) - level(a). Both need a reading. `weight_of_reading`: below 1 where readings are not
/// independent, how much of an independent one each is worth.
LevelDifference level_difference(const std::vector<double>& a, const std::vector<double>& b,
                                 double threshold, double probability = 0.95,
                                 double weight_of_reading = 1.0,
                                 const NoiseEvidence& evidence = {});

/// level_difference that keeps its last answer. The difference of a hunt's ends decides after every
/// run, and most runs are not of the ends.
class RememberedDifference {
 public:
  const LevelDifference& of(std::vector<double> a, std::vector<double> b, double threshold,
                            double probability, double weight_of_reading);

 private:
  struct Question {
    std::vector<double> a;
    std::vector<double> b;
    double threshold = 0.0;
    double probability = 0.0;
    double weight_of_reading = 0.0;

    bool operator==(const Question&) const = default;
  };
  Question asked_;
  LevelDifference answer_;
};

/// As level_difference between 0 and one level: for differences of pairs. Needs a reading.
LevelDifference level_from_zero(const std::vector<double>& readings, double threshold,
                                double probability = 0.95, const NoiseEvidence& evidence = {});

/// Logarithm of how much likelier the readings are when level(b) = level(a) + shift than when the
/// levels are the same, whatever the level. Both need a reading.
double log_odds_of_shift(const std::vector<double>& a, const std::vector<double>& b, double shift,
                         double weight_of_reading = 1.0);

}  // namespace moetune::tuner
