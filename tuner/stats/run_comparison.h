// How much faster one configuration is than another. Their runs were made at different times on a
// machine that others may use, too. The noise model and the handling of drift are those that hunts
// use for two commits.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "tuner/stats/levels.h"

namespace moetune::tuner {

/// The step time of one run.
struct RunReading {
  double log_ns = 0.0;  ///< logarithm of the step time
  double error = 0.0;   ///< its standard error, by the spread of the run's own steps; a ratio
  double time = 0.0;    ///< middle of the run, seconds on a clock that all runs share
};

/// A reading from the time of a step, its interval of 95 %, and the single steps, which may be
/// none. With three steps or more, the error is that of their median, by their median absolute
/// deviation: a single slow step moves it little. Otherwise the error is that of the interval.
RunReading reading_of(double step_ns, double low_ns, double high_ns,
                      const std::vector<double>& samples_ns, double time);

/// A step time with an interval of 95 %.
struct StepLevel {
  double ns = 0.0;
  double low_ns = 0.0;
  double high_ns = 0.0;
};
/// The step time of one configuration by all its runs, which are at least one. It is their median.
/// The interval follows from the noise between runs or within them, whichever is larger.
StepLevel level_of_runs(const std::vector<RunReading>& runs);

/// log(before / after): above 0, the second one is faster.
struct LogGain {
  double mean = 0.0;
  double low = 0.0;  ///< of the interval of 95 %
  double high = 0.0;
  double noise = 0.0;  ///< standard deviation of one run, a ratio

  /// Standard error that a normal distribution with this interval has.
  [[nodiscard]] double error() const;
};

/// Readings of one search in the order they were made. The caller numbers the configurations.
class RunLog {
 public:
  void add(int configuration, const RunReading& reading);
  void clear() { runs_.clear(); }
  [[nodiscard]] size_t num_runs() const { return runs_.size(); }
  [[nodiscard]] size_t num_runs(int configuration) const;

  /// The gain by all runs of both, which need a run each. The noise is that between the runs of all
  /// repeated configurations, and at least that within runs. If readings depend on when they were
  /// made (DriftWatch), the machine's drift is subtracted first, as the repeated configurations
  /// show it.
  [[nodiscard]] LogGain gain(int before, int after) const;

  /// The gain by runs in turns (before, after, before, ...), which are given by their indices in
  /// this log. Compares each run of `after` with the line in time between the runs of `before`
  /// around it, so that a steady drift makes no difference. Both need a run among them.
  [[nodiscard]] LogGain gain_in_turns(int before, int after,
                                      const std::vector<size_t>& places) const;

  /// Standard deviation of one run, a ratio, by repeated configurations; empty if none was
  /// repeated.
  [[nodiscard]] std::optional<double> noise() const;

 private:
  struct Run {
    int configuration = 0;
    RunReading reading;
  };
  using ByConfiguration = std::map<int, std::vector<double>>;
  /// The readings less the machine's drift, if any was noticed.
  [[nodiscard]] std::vector<double> freed() const;
  /// What runs tell about the noise; some of them are left out.
  [[nodiscard]] NoiseEvidence evidence_without(const std::vector<bool>& is_left_out,
                                               double least_noise) const;
  [[nodiscard]] double usual_error(int before, int after) const;

  std::vector<Run> runs_;
};

}  // namespace moetune::tuner
