// The machine's part in the readings. Finds out whether readings depend on when they were made. If
// so, estimates by how much the machine was slower or faster at each of them, to be subtracted.
#pragma once

#include <cstddef>
#include <vector>

#include "tuner/stats/levels.h"

namespace moetune::tuner {

struct TimedReading {
  int position = 0;  ///< of the commit
  double value = 0.0;
  double time = 0.0;  ///< in any unit; no two readings have the same
};

/// Scores, in standard deviations, from which drift is assumed. A false alarm costs runs; missed
/// drift costs answers.
inline constexpr double kTrendScore = 3.0;
inline constexpr double kWanderScore = 2.0;

/// How much of an independent reading one is worth while the speed wanders: after the drift was
/// subtracted, neighbours still resemble each other. With this value, claimed confidences agree
/// with measured ones (tests/bench/bisect_bench.cpp).
inline constexpr double kWeightInWander = 0.95;

/// Evidence for a trend over time within commits, in standard deviations: Kendall's statistic
/// summed over commits (Hirsch and Slack 1984). It needs no levels and is robust against outliers.
double trend_score(const std::vector<TimedReading>& readings);

/// How much readings resemble those just before, in standard deviations: the rank version of von
/// Neumann's ratio (Bartels 1982) of the distances from the commits' medians. Commits with fewer
/// than three readings are left out.
double wander_score(const std::vector<TimedReading>& readings);

/// How far the machine was off at each reading, 0 on average. Estimated from the readings at
/// `references`: fits a level for each reference and a line through the nearest readings in time,
/// in turns until both settle. The line at a reading is fitted without that reading, so that it
/// does not follow its noise. All 0 without references, or while one of them has no reading.
/// `least_scale` is a lower bound of the noise.
std::vector<double> machine_drift(const std::vector<TimedReading>& readings,
                                  const std::vector<int>& references, double least_scale);

/// A reading against those of a reference made just before and after it.
struct TurnDifference {
  double value = 0.0;         ///< above 0: more than the reference
  double noise_factor = 1.0;  ///< its noise over that of one reading
};

/// For readings that were made in turns with a reference and are too few for machine_drift(). Takes
/// the readings of the reference just before and just after each other reading, and compares it
/// with the line in time between them. This removes a steady drift. The first and the last reading
/// may have one such neighbour only. Empty without readings of the reference.
std::vector<TurnDifference> differences_in_turns(const std::vector<TimedReading>& readings,
                                                 int reference);

/// The readings at the positions a and b, by position and in the order of time, less the machine's
/// drift. A position without readings is left out.
std::vector<CommitReadings> without_drift(const std::vector<TimedReading>& readings, int a, int b);

/// Whether the readings of one commit differ between two times by `min_effect_ratio` of its level
/// at least. False with fewer than three readings of either time.
bool levels_differ(const std::vector<double>& then, const std::vector<double>& now,
                   double min_effect_ratio, double confidence);

/// Whether the readings of `bad` are worse than those of `good` by `threshold`, regardless of when
/// they were made.
bool raw_ends_differ(const std::vector<TimedReading>& readings, int good, int bad, double threshold,
                     double confidence);

/// Watches a growing list of readings for drift. Once they depend on when they were made, every run
/// should be paired with one of a reference, and the drift is to be subtracted from all of them.
class DriftWatch {
 public:
  /// Looks for drift in `readings`. update() does so, too, and estimates the drift.
  void notice(const std::vector<TimedReading>& readings);
  void update(const std::vector<TimedReading>& readings, const std::vector<int>& references,
              double least_scale);

  [[nodiscard]] bool is_there() const { return is_there_; }
  /// Whether the machine had a trend, slower or faster, when drift was noticed. Otherwise its speed
  /// went up and down.
  [[nodiscard]] bool is_trend() const { return is_trend_; }
  /// How far the machine was off at a reading of the last update. Readings that came later get the
  /// value of the last one.
  [[nodiscard]] double course_at(size_t reading) const;
  /// How much of an independent reading each one is worth: 1 or kWeightInWander.
  [[nodiscard]] double weight_of_reading() const;

 private:
  bool is_there_ = false;
  bool is_trend_ = false;
  std::vector<double> course_;
};

}  // namespace moetune::tuner
