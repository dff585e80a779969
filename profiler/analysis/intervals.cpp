// Unions, intersections and differences by one sweep over sorted ends.
#include "profiler/analysis/intervals.h"

#include <algorithm>
#include <iterator>

namespace moetune::profiler {

int64_t overlap_ns(const Interval& a, const Interval& b) {
  return Interval{std::max(a.start_ns, b.start_ns), std::min(a.end_ns, b.end_ns)}.length_ns();
}

IntervalSet::IntervalSet(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& i) { return i.length_ns() == 0; });
  if (!std::ranges::is_sorted(intervals, {}, &Interval::start_ns)) {
    std::ranges::sort(intervals, {}, &Interval::start_ns);
  }
  for (const Interval& interval : intervals) {
    if (!intervals_.empty() && interval.start_ns <= intervals_.back().end_ns) {
      intervals_.back().end_ns = std::max(intervals_.back().end_ns, interval.end_ns);
    } else {
      intervals_.push_back(interval);
    }
  }
  length_before_.reserve(intervals_.size());
  int64_t before_ns = 0;
  for (const Interval& interval : intervals_) {
    length_before_.push_back(before_ns);
    before_ns += interval.length_ns();
  }
}

int64_t IntervalSet::total_ns() const {
  return empty() ? 0 : length_before_.back() + intervals_.back().length_ns();
}

IntervalSet unite(const IntervalSet& a, const IntervalSet& b) {
  std::vector<Interval> all = a.intervals();
  all.insert(all.end(), b.intervals().begin(), b.intervals().end());
  return IntervalSet(std::move(all));
}

IntervalSet intersect(const IntervalSet& a, const IntervalSet& b) {
  std::vector<Interval> common;
  auto x = a.intervals().begin();
  auto y = b.intervals().begin();
  while (x != a.intervals().end() && y != b.intervals().end()) {
    common.push_back({std::max(x->start_ns, y->start_ns), std::min(x->end_ns, y->end_ns)});
    if (x->end_ns < y->end_ns) {
      ++x;
    } else {
      ++y;
    }
  }
  return IntervalSet(std::move(common));
}

IntervalSet subtract(const IntervalSet& a, const IntervalSet& b) {
  std::vector<Interval> rest;
  auto y = b.intervals().begin();
  for (const Interval& interval : a.intervals()) {
    int64_t cursor = interval.start_ns;
    while (y != b.intervals().end() && y->end_ns <= cursor) ++y;
    for (auto z = y; z != b.intervals().end() && z->start_ns < interval.end_ns; ++z) {
      rest.push_back({cursor, z->start_ns});
      cursor = z->end_ns;
    }
    rest.push_back({cursor, interval.end_ns});
  }
  return IntervalSet(std::move(rest));
}

IntervalSet clip(const IntervalSet& set, const Interval& window) {
  return intersect(set, IntervalSet({window}));
}

int64_t covered_ns(const IntervalSet& set, const Interval& time) {
  const std::vector<Interval>& all = set.intervals_;
  const auto first = std::ranges::upper_bound(all, time.start_ns, {}, &Interval::end_ns);
  const auto behind = std::ranges::lower_bound(all, time.end_ns, {}, &Interval::start_ns);
  if (first >= behind) return 0;
  const auto last = std::prev(behind);
  const int64_t whole_ns = set.length_before_[static_cast<size_t>(last - all.begin())] -
                           set.length_before_[static_cast<size_t>(first - all.begin())] +
                           last->length_ns();
  return whole_ns - std::max<int64_t>(0, time.start_ns - first->start_ns) -
         std::max<int64_t>(0, last->end_ns - time.end_ns);
}

}  // namespace moetune::profiler
