// A metric as it would be if the machine were equally fast in every run. A slow machine slows most
// parts of a step alike; by how much it did is divided out of the metric.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sweeps/bisect/hunt_runs.h"
#include "sweeps/bisect/vocabulary.h"
#include "tuner/stats/run_speed.h"

namespace moetune::sweeps {

class EvenSpeed {
 public:
  /// Learns the machine's speed from the parts of a step, in the runs of both ends. Leaves out
  /// `part`, which is the suspect, and parts that moved more or less than the others. Empty if
  /// - fewer than six parts are left, or one takes more than a third of their time;
  /// - these parts as a whole differ between the ends, or there are too few runs to compare them;
  /// - more than 60 % of the metric's noise stays.
  static std::optional<EvenSpeed> of(const HuntRuns& runs, const HuntSetup& setup,
                                     const std::string& part);

  /// The metric that is corrected: the one that was asked for. If that is the time of a step and
  /// our own engine has traced one, it is the time of that step, whose parts are known.
  [[nodiscard]] const std::string& metric() const { return metric_; }
  /// The corrected metric of a run; empty if the run lacks a part.
  [[nodiscard]] std::optional<double> value_of(const HuntRuns& runs, const CommitRun& run) const;
  [[nodiscard]] std::vector<double> values_at(const HuntRuns& runs, int position) const;
  /// By how much the corrected metric is larger at the bad end, with the asked confidence; empty
  /// with too few runs.
  [[nodiscard]] std::optional<tuner::LevelDifference> ends_differ_by(const HuntRuns& runs,
                                                                     const HuntSetup& setup) const;
  /// Whether the parts as a whole take longer or shorter at `after` than at `before`. If so, a
  /// commit has changed them, not the machine.
  [[nodiscard]] bool differs(const HuntRuns& runs, int before, int after) const;

 private:
  struct Part {
    std::string name;
    double scale = 1.0;  ///< factor from the part's unit to the metric's
  };

  /// Takes the usual duration of each part from the runs of both ends.
  EvenSpeed(const HuntRuns& runs, const HuntSetup& setup, std::string metric,
            std::vector<Part> parts);

  static std::vector<Part> long_parts(const HuntRuns& runs, const HuntSetup& setup);
  /// In the metric's unit, [parts]; empty if the run lacks one.
  [[nodiscard]] std::optional<std::vector<double>> durations_of(const CommitRun& run) const;
  [[nodiscard]] std::optional<double> log_slowness_of(const CommitRun& run) const;
  /// The part whose change against that of all parts is largest, as a multiple of its noise. Empty
  /// if none has changed for sure.
  [[nodiscard]] std::optional<size_t> most_moved(const HuntRuns& runs, int before, int after) const;

  std::string metric_;
  std::vector<Part> parts_;
  tuner::RunSpeed speed_;
};

}  // namespace moetune::sweeps
