// Medians, and their intervals against the binomial table and a simulation.
#include "profiler/analysis/stats.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/base/error.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(stats)

namespace {

namespace tt = boost::test_tools;

std::vector<double> one_to(int n) {
  std::vector<double> values;
  for (int i = n; i >= 1; --i) values.push_back(i);
  return values;
}

BOOST_AUTO_TEST_CASE(medians_and_quantiles) {
  BOOST_TEST(median({3, 1, 2}) == 2.0);
  BOOST_TEST(median({4, 1, 3, 2}) == 2.5);
  BOOST_TEST(median({7}) == 7.0);
  BOOST_TEST(quantile({1, 2, 3, 4, 5}, 0.0) == 1.0);
  BOOST_TEST(quantile({1, 2, 3, 4, 5}, 1.0) == 5.0);
  BOOST_TEST(quantile({1, 2, 3, 4, 5}, 0.9) == 4.6, tt::tolerance(1e-12));
  BOOST_TEST(median_absolute_deviation({1, 1, 2, 2, 4, 6, 9}) == 1.0);
}

BOOST_AUTO_TEST_CASE(bad_input_is_an_error) {
  BOOST_CHECK_THROW(median({}), base::Error);
  BOOST_CHECK_THROW(quantile({1}, 1.5), base::Error);
  BOOST_CHECK_THROW(median({1, std::nan("")}), base::Error);
  BOOST_CHECK_THROW(median_interval({}), base::Error);
  BOOST_CHECK_THROW(median_interval({1}, 1.0), base::Error);
  BOOST_CHECK_THROW(median({1, std::numeric_limits<double>::infinity()}), base::Error);
}

BOOST_AUTO_TEST_CASE(interval_of_the_median_as_tabulated) {
  // n, rank of the lower bound, coverage: the table of the sign test.
  struct Row {
    int n;
    int rank;
    double coverage;
  };
  for (const Row& row : {Row{6, 1, 0.96875}, Row{9, 2, 0.9609375}, Row{10, 2, 0.978515625},
                         Row{15, 4, 0.96484375}, Row{20, 6, 0.9586105346679688}}) {
    const MedianInterval m = median_interval(one_to(row.n));
    BOOST_TEST(m.low == row.rank);
    BOOST_TEST(m.high == row.n + 1 - row.rank);
    BOOST_TEST(m.confidence_ratio == row.coverage, tt::tolerance(1e-9));
    BOOST_TEST(!m.is_range);
  }
}

BOOST_AUTO_TEST_CASE(few_values_give_their_range_and_say_so) {
  const MedianInterval five = median_interval({5, 1, 4, 2, 3});
  BOOST_TEST(five.low == 1.0);
  BOOST_TEST(five.high == 5.0);
  BOOST_TEST(five.is_range);
  BOOST_TEST(five.confidence_ratio == 0.9375);
  BOOST_TEST(five.noise_ratio() == 2.0 / 3.0);
  BOOST_TEST(median_interval({8}).confidence_ratio == 0.0);
  BOOST_TEST(median_interval({0, 0}).noise_ratio() == 0.0);
}

BOOST_AUTO_TEST_CASE(intervals_cover_as_often_as_they_claim) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> skewed(0.0, 1.0);  // median 1
  constexpr int kRounds = 4000;
  for (const int n : {7, 20}) {
    int covered = 0;
    double claimed = 0;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<double> a;
      for (int i = 0; i < n; ++i) a.push_back(skewed(random));
      const MedianInterval m = median_interval(a);
      covered += m.low <= 1.0 && 1.0 <= m.high;
      claimed = m.confidence_ratio;
    }
    // Four standard errors of a proportion near 0.95.
    BOOST_TEST(std::abs(covered / double{kRounds} - claimed) < 0.015);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
