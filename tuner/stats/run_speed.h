// How fast the machine was during one run, by the durations of its many parts. A machine that
// others use, too, slows all parts. A commit slows only some.
#pragma once

#include <cstddef>
#include <vector>

namespace moetune::tuner {

class RunSpeed {
 public:
  /// Takes the usual duration of each part from these runs: [runs][parts], above 0, all runs with
  /// the same parts. Throws base::Error otherwise.
  explicit RunSpeed(const std::vector<std::vector<double>>& runs);

  /// Logarithm of how many times longer than usual the parts of a run took. It is the mean over the
  /// middle half of the parts' ratios, each with its usual duration as weight. So parts that make
  /// up less than a quarter of the time cannot move it alone.
  [[nodiscard]] double log_slowness(const std::vector<double>& parts) const;

  /// Share of the longest part in the time of all parts.
  [[nodiscard]] double largest_share() const;

 private:
  std::vector<double> levels_;  ///< by part: the median
};

}  // namespace moetune::tuner
