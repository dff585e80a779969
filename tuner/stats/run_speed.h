// How fast the machine was while one run lasted, by the durations of its many parts: a machine that
// others share slows all of them, a commit only some.
#pragma once

#include <cstddef>
#include <vector>

namespace moetune::tuner {

class RunSpeed {
 public:
  /// From runs to compare others with: [runs][parts], durations above 0, all runs with the same
  /// parts. Throws base::Error otherwise.
  explicit RunSpeed(const std::vector<std::vector<double>>& runs);

  /// Logarithm of how many times longer than usual the parts of a run took: the mean of the middle
  /// half of their ratios, each part with the weight of its usual duration. Parts that make up a
  /// quarter of the time or less cannot move it alone.
  [[nodiscard]] double log_slowness(const std::vector<double>& parts) const;

  /// Of all parts' time, the share of the longest one.
  [[nodiscard]] double largest_share() const;

 private:
  std::vector<double> levels_;  ///< by part: the median
};

}  // namespace moetune::tuner
