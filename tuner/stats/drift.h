// The machine's part in the readings: whether runs depend on when they were made, and the course of
// the machine's speed over time, to be subtracted.
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

/// How much of an independent reading one is worth while the speed wanders: what the course leaves
/// resembles that of the neighbours. What is claimed with it agrees with what is delivered
/// (tests/bench/bisect_bench.cpp).
inline constexpr double kWeightInWander = 0.95;

/// Evidence for a trend over time within commits, in standard deviations: Kendall's statistic
/// summed over commits (Hirsch and Slack 1984). It needs no levels and is robust against outliers.
double trend_score(const std::vector<TimedReading>& readings);

/// How much readings resemble those just before, in standard deviations: the rank version of von
/// Neumann's ratio (Bartels 1982) of the distances from the commits' medians. Commits with fewer
/// than three readings are left out.
double wander_score(const std::vector<TimedReading>& readings);

/// How far the machine was off at each reading, 0 on average, by the readings at `references`. Fits
/// a level per reference and a line through the nearest readings in time, again and again until
/// both settle. A reading does not smooth its own noise away. All 0 without references, or while
/// one of them has no reading. `least_scale`: of the noise.
std::vector<double> machine_drift(const std::vector<TimedReading>& readings,
                                  const std::vector<int>& references, double least_scale);

/// A reading against those of a reference made just before and after it.
struct TurnDifference {
  double value = 0.0;         ///< above 0: more than the reference
  double noise_factor = 1.0;  ///< its noise over that of one reading
};

/// For readings in turns with a reference, where they are too few for a course. Each other reading
/// is compared with the line in time between the reference's neighbours, which takes off what
/// changes evenly; at an end, with the one neighbour. Empty without readings of the reference.
std::vector<TurnDifference> differences_in_turns(const std::vector<TimedReading>& readings,
                                                 int reference);

/// The readings at two references by commit, in the order of time, less the machine's drift; a
/// reference without a reading is left out.
std::vector<CommitReadings> without_drift(const std::vector<TimedReading>& readings, int a, int b);

/// Whether what was measured then and now of one commit differs, by `min_effect_ratio` of its level
/// at least; not with fewer than three readings of each.
bool levels_differ(const std::vector<double>& then, const std::vector<double>& now,
                   double min_effect_ratio, double confidence);

/// Whether the readings of `bad` are worse than those of `good` by `threshold`, regardless of when
/// they were made.
bool raw_ends_differ(const std::vector<TimedReading>& readings, int good, int bad, double threshold,
                     double confidence);

/// Looks at a growing list of readings: once they depend on when they were made, every run should
/// be paired with one of a reference, and the machine's course is taken off all of them.
class DriftWatch {
 public:
  /// Looks for drift in `readings`. update() does so, too, and takes the course.
  void notice(const std::vector<TimedReading>& readings);
  void update(const std::vector<TimedReading>& readings, const std::vector<int>& references,
              double least_scale);

  [[nodiscard]] bool is_there() const { return is_there_; }
  /// The machine went one way, when that was noticed; else its speed wandered.
  [[nodiscard]] bool is_trend() const { return is_trend_; }
  /// How far the machine was off at a reading of the last update; the last one's for later ones.
  [[nodiscard]] double course_at(size_t reading) const;
  /// How much of an independent reading each one counts for: 1, or kWeightInWander.
  [[nodiscard]] double weight_of_reading() const;

 private:
  bool is_there_ = false;
  bool is_trend_ = false;
  std::vector<double> course_;
};

}  // namespace moetune::tuner
