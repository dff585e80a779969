// How much faster one configuration is than another, by runs of both that were made at different
// times on a machine that others may use, too. What bisect asks of two commits, asked of two
// configurations: same noise model, same course of the machine.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "tuner/stats/levels.h"

namespace moetune::tuner {

/// One run: its step time and what its own steps say of that.
struct RunReading {
  double log_ns = 0.0;  ///< logarithm of the step time
  double error = 0.0;   ///< standard error of it, by the run's own steps; a share
  double time = 0.0;    ///< middle of the run, seconds on a clock that all runs share
};

/// From the time of a step, its interval of 95 %, and the steps behind it (may be none). With three
/// steps or more the error is that of their median by their median absolute deviation, which a
/// single slow step does not move as it does the interval of few steps; else half the interval.
RunReading reading_of(double step_ns, double low_ns, double high_ns,
                      const std::vector<double>& samples_ns, double time);

/// A step time with an interval of 95 %.
struct StepLevel {
  double ns = 0.0;
  double low_ns = 0.0;
  double high_ns = 0.0;
};
/// Of one configuration by all its runs, which are at least one: the median of the runs, with the
/// noise between them or within them, whichever is larger.
StepLevel level_of_runs(const std::vector<RunReading>& runs);

/// log(before / after): above 0, the second one is faster.
struct LogGain {
  double mean = 0.0;
  double low = 0.0;  ///< of the interval of 95 %
  double high = 0.0;
  double noise = 0.0;  ///< standard deviation of one run, a share

  /// Standard error, taking the interval for that of a normal distribution.
  [[nodiscard]] double error() const;
};

/// Readings of one search, in the order they were made, by configuration: an index that the caller
/// gives.
class RunLog {
 public:
  void add(int configuration, const RunReading& reading);
  void clear() { runs_.clear(); }
  [[nodiscard]] size_t num_runs() const { return runs_.size(); }
  [[nodiscard]] size_t num_runs(int configuration) const;

  /// By all runs of both, with the noise between runs that all repeated configurations show, and
  /// not less than within them. Where runs turn out to depend on when they were made (DriftWatch),
  /// the machine's course, read from what was run repeatedly, is taken off all of them first. Both
  /// need a run.
  [[nodiscard]] LogGain gain(int before, int after) const;

  /// By runs in turns (before, after, before, ...), which are given by their places: each run of
  /// `after` against the line in time between the runs of `before` around it, so that a machine
  /// that becomes slower evenly makes no difference. Both need a run among them.
  [[nodiscard]] LogGain gain_in_turns(int before, int after,
                                      const std::vector<size_t>& places) const;

  /// Standard deviation of one run, a share, by repeated ones; none without any.
  [[nodiscard]] std::optional<double> noise() const;

 private:
  struct Run {
    int configuration = 0;
    RunReading reading;
  };
  using ByConfiguration = std::map<int, std::vector<double>>;
  /// The readings without the machine's course, where there is one to be seen.
  [[nodiscard]] std::vector<double> freed() const;
  /// What the runs tell of the noise, but for some of them.
  [[nodiscard]] NoiseEvidence evidence_without(const std::vector<bool>& is_left_out,
                                               double least_noise) const;
  [[nodiscard]] double usual_error(int before, int after) const;

  std::vector<Run> runs_;
};

}  // namespace moetune::tuner
