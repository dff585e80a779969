// A metric as it would be if the machine were as fast in every run: what is left of it when the
// course that most parts of a step have in common is taken off.
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
  /// By the runs of both ends and their parts, without `part` (the suspect) and parts that moved.
  /// None with few parts, with one above a third of their time, where they still differ between the
  /// ends, or where it removes little noise.
  static std::optional<EvenSpeed> of(const HuntRuns& runs, const HuntSetup& setup,
                                     const std::string& part);

  /// The metric whose readings these are: that of the step whose parts were measured.
  [[nodiscard]] const std::string& metric() const { return metric_; }
  /// None of a run that lacks a part.
  [[nodiscard]] std::optional<double> value_of(const HuntRuns& runs, const CommitRun& run) const;
  [[nodiscard]] std::vector<double> values_at(const HuntRuns& runs, int position) const;
  /// The bad end from the good one, with the asked confidence; none with too few runs.
  [[nodiscard]] std::optional<tuner::LevelDifference> ends_differ_by(const HuntRuns& runs,
                                                                     const HuntSetup& setup) const;
  /// Whether the parts as a whole have changed between two positions: then it is not the machine.
  [[nodiscard]] bool differs(const HuntRuns& runs, int before, int after) const;

 private:
  struct Part {
    std::string name;
    double scale = 1.0;  ///< units of the metric in one of its own
  };

  /// What is usual comes from the runs of both ends.
  EvenSpeed(const HuntRuns& runs, const HuntSetup& setup, std::string metric,
            std::vector<Part> parts);

  static std::vector<Part> long_parts(const HuntRuns& runs, const HuntSetup& setup);
  /// None where one is missing.
  [[nodiscard]] std::optional<std::vector<double>> durations_of(const CommitRun& run) const;
  [[nodiscard]] std::optional<double> log_slowness_of(const CommitRun& run) const;
  /// The part that has changed by most of its noises more or less than the others did, if any has.
  [[nodiscard]] std::optional<size_t> most_moved(const HuntRuns& runs, int before, int after) const;

  std::string metric_;
  std::vector<Part> parts_;
  tuner::RunSpeed speed_;
};

}  // namespace moetune::sweeps
