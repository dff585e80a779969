// Sets of half-open time intervals. Every metric of a step is the length of a union, an
// intersection or a difference of such sets: sums of kernel durations are work volume, never wall
// time.
#pragma once

#include <cstdint>
#include <vector>

namespace moetune::profiler {

/// [start_ns, end_ns); empty when end_ns <= start_ns.
struct Interval {
  int64_t start_ns = 0;
  int64_t end_ns = 0;

  [[nodiscard]] int64_t length_ns() const { return end_ns > start_ns ? end_ns - start_ns : 0; }
  bool operator==(const Interval&) const = default;
};

/// How long both last together.
int64_t overlap_ns(const Interval& a, const Interval& b);

/// Disjoint, non-adjacent, non-empty intervals in ascending order.
class IntervalSet {
 public:
  IntervalSet() = default;
  /// The union of any intervals, overlapping and unordered as they may be; O(n log n).
  explicit IntervalSet(std::vector<Interval> intervals);

  [[nodiscard]] const std::vector<Interval>& intervals() const { return intervals_; }
  [[nodiscard]] bool empty() const { return intervals_.empty(); }
  [[nodiscard]] int64_t total_ns() const;

  bool operator==(const IntervalSet&) const = default;

 private:
  friend int64_t covered_ns(const IntervalSet& set, const Interval& time);

  std::vector<Interval> intervals_;
  std::vector<int64_t> length_before_;  ///< by interval: of all before it
};

IntervalSet unite(const IntervalSet& a, const IntervalSet& b);
IntervalSet intersect(const IntervalSet& a, const IntervalSet& b);
/// What is in `a` and not in `b`.
IntervalSet subtract(const IntervalSet& a, const IntervalSet& b);
IntervalSet clip(const IntervalSet& set, const Interval& window);
/// How much of `time` the set covers; O(log n).
int64_t covered_ns(const IntervalSet& set, const Interval& time);

}  // namespace moetune::profiler
