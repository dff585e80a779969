// Readings in turns with a reference, and what a machine that changes does to them. The course of a
// long series is tested with the hunts (commit_search_test.cpp).
#include "tuner/stats/drift.h"

#include <boost/test/unit_test.hpp>
#include <cmath>

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(drift)

namespace {

namespace tt = boost::test_tools;

BOOST_AUTO_TEST_CASE(in_turns_an_even_change_makes_no_difference) {
  // Reference 10, the other 7; the machine slows down by 3 a second, and the times are uneven.
  std::vector<TimedReading> readings;
  const double times[] = {1, 2, 3, 5, 9};
  for (size_t i = 0; i < std::size(times); ++i) {
    const bool is_reference = i % 2 == 0;
    readings.push_back({is_reference ? 4 : 2, (is_reference ? 10 : 7) + 3 * times[i], times[i]});
  }
  // In any order.
  std::swap(readings[0], readings[3]);
  const std::vector<TurnDifference> differences = differences_in_turns(readings, 4);
  BOOST_REQUIRE(differences.size() == 2U);
  for (const TurnDifference& difference : differences) {
    BOOST_TEST(difference.value == -3, tt::tolerance(1e-12));
  }
  // In the middle of two a reading and half of each; nearer to one, more of that.
  BOOST_TEST(differences[0].noise_factor == std::sqrt(1.5), tt::tolerance(1e-12));
  BOOST_TEST(differences[1].noise_factor == std::sqrt(1 + 4.0 / 9 + 1.0 / 9), tt::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(at_an_end_there_is_one_neighbour) {
  const std::vector<TimedReading> readings = {{1, 5.0, 0}, {0, 4.0, 1}, {0, 6.0, 3}, {1, 8.0, 4}};
  const std::vector<TurnDifference> differences = differences_in_turns(readings, 0);
  BOOST_REQUIRE(differences.size() == 2U);
  BOOST_TEST(differences[0].value == 1.0);
  BOOST_TEST(differences[1].value == 2.0);
  BOOST_TEST(differences[1].noise_factor == std::sqrt(2.0));
  BOOST_TEST(differences_in_turns(readings, 7).empty());
  BOOST_TEST(differences_in_turns({}, 0).empty());
}

BOOST_AUTO_TEST_CASE(without_references_there_is_no_course) {
  const std::vector<TimedReading> readings = {{0, 1.0, 0}, {1, 2.0, 1}, {0, 3.0, 2}};
  const std::vector<double> none(readings.size(), 0.0);
  BOOST_TEST(machine_drift(readings, {}, 1e-3) == none, tt::per_element());
  BOOST_TEST(machine_drift(readings, {0, 7}, 1e-3) == none, tt::per_element());
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
