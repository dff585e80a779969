// Interval sets against a bitmap that cannot be wrong.
#include "profiler/analysis/intervals.h"

#include <bitset>
#include <boost/test/unit_test.hpp>
#include <random>

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(intervals)

namespace {

constexpr size_t kRange = 64;
using Bitmap = std::bitset<kRange>;

std::vector<Interval> random_intervals(std::mt19937_64& random) {
  std::vector<Interval> intervals;
  const auto count = random() % 8;
  for (size_t i = 0; i < count; ++i) {
    const auto start = static_cast<int64_t>(random() % kRange);
    // Sometimes empty or reversed: both mean nothing.
    const int64_t length = static_cast<int64_t>(random() % 16) - 2;
    intervals.push_back({start, std::min<int64_t>(start + length, kRange)});
  }
  return intervals;
}

Bitmap bits_of(const std::vector<Interval>& intervals) {
  Bitmap bits;
  for (const Interval& interval : intervals) {
    for (int64_t t = interval.start_ns; t < interval.end_ns; ++t) bits.set(static_cast<size_t>(t));
  }
  return bits;
}

void check_equal(const IntervalSet& set, const Bitmap& expected) {
  BOOST_TEST(bits_of(set.intervals()) == expected);
  BOOST_TEST(set.total_ns() == static_cast<int64_t>(expected.count()));
  for (size_t i = 0; i < set.intervals().size(); ++i) {
    BOOST_TEST(set.intervals()[i].length_ns() > 0);
    if (i > 0) BOOST_TEST(set.intervals()[i - 1].end_ns < set.intervals()[i].start_ns);
  }
}

BOOST_AUTO_TEST_CASE(agrees_with_a_bitmap) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 5000; ++round) {
    const auto x = random_intervals(random);
    const auto y = random_intervals(random);
    const IntervalSet a(x), b(y);
    const Bitmap p = bits_of(x), q = bits_of(y);
    check_equal(a, p);
    check_equal(unite(a, b), p | q);
    check_equal(intersect(a, b), p & q);
    check_equal(subtract(a, b), p & ~q);
    const Interval window = {static_cast<int64_t>(random() % kRange),
                             static_cast<int64_t>(random() % kRange)};
    check_equal(clip(a, window), p & bits_of({window}));
  }
}

BOOST_AUTO_TEST_CASE(neighbours_become_one) {
  const IntervalSet set({{5, 7}, {1, 5}, {9, 9}, {10, 12}});
  BOOST_TEST((set == IntervalSet({{1, 7}, {10, 12}})));
  BOOST_TEST(set.intervals().size() == 2U);
}

BOOST_AUTO_TEST_CASE(empty_sets) {
  const IntervalSet none, some({{3, 4}});
  BOOST_TEST(none.empty());
  BOOST_TEST(none.total_ns() == 0);
  BOOST_TEST(intersect(none, some).empty());
  BOOST_TEST(subtract(some, some).empty());
  BOOST_TEST((unite(none, some) == some));
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
