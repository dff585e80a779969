// Medians, their intervals against the binomial table and a simulation, and verdicts on pairs of
// samples.
#include "profiler/analysis/stats.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/base/error.h"

namespace moetune::profiler {
namespace {

namespace tt = boost::test_tools;

std::vector<double> one_to(int n) {
  std::vector<double> values;
  for (int i = n; i >= 1; --i) values.push_back(i);
  return values;
}

BOOST_AUTO_TEST_SUITE(stats)

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
  BOOST_CHECK_THROW(compare({1}, {}), base::Error);
  BOOST_CHECK_THROW(compare({1}, {0}), base::Error);
  BOOST_CHECK_THROW(compare({1}, {std::numeric_limits<double>::infinity()}), base::Error);
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
    int covered = 0, covered_ratio = 0;
    double claimed = 0, claimed_ratio = 0;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<double> a, b;
      for (int i = 0; i < n; ++i) {
        a.push_back(skewed(random));
        b.push_back(1.5 * skewed(random));
      }
      const MedianInterval m = median_interval(a);
      covered += m.low <= 1.0 && 1.0 <= m.high;
      claimed = m.confidence_ratio;
      const Comparison c = compare(a, b);
      covered_ratio += c.low <= 1.5 && 1.5 <= c.high;
      claimed_ratio = c.confidence_ratio;
    }
    // Four standard errors of a proportion near 0.95.
    BOOST_TEST(std::abs(covered / double{kRounds} - claimed) < 0.015);
    BOOST_TEST(std::abs(covered_ratio / double{kRounds} - claimed_ratio) < 0.015);
    BOOST_TEST(claimed_ratio >= 0.95);
  }
}

BOOST_AUTO_TEST_CASE(clear_differences_are_found) {
  const std::vector<double> slow = {100, 101, 99, 100, 102, 98};
  const std::vector<double> fast = {80, 81, 79, 80, 82, 78};
  const Comparison faster = compare(slow, fast, 0.02);
  BOOST_TEST((faster.verdict == Verdict::faster));
  BOOST_TEST(faster.ratio == 0.8, tt::tolerance(0.01));
  BOOST_TEST(faster.gain_ratio() == 0.25, tt::tolerance(0.05));
  BOOST_TEST(faster.low <= faster.ratio);
  BOOST_TEST(faster.ratio <= faster.high);
  BOOST_TEST((compare(fast, slow, 0.02).verdict == Verdict::slower));
  // Real, but below what is asked for.
  BOOST_TEST((compare(slow, fast, 0.3).verdict == Verdict::same));
}

BOOST_AUTO_TEST_CASE(noise_is_not_a_difference) {
  const std::vector<double> a = {100, 110, 90, 105, 95, 101};
  const std::vector<double> b = {99, 108, 91, 104, 94, 103};
  BOOST_TEST((compare(a, b).verdict == Verdict::same));
  BOOST_TEST((compare(a, a).verdict == Verdict::same));
}

BOOST_AUTO_TEST_CASE(few_values_say_what_they_are_worth) {
  const Comparison three = compare({10, 11, 12}, {5, 6, 7});
  BOOST_TEST((three.verdict == Verdict::faster));
  BOOST_TEST(three.confidence_ratio == 0.9, tt::tolerance(1e-12));
  BOOST_TEST(three.low == 5.0 / 12.0);
  BOOST_TEST(three.high == 0.7);
  BOOST_TEST(compare({10}, {5}).confidence_ratio == 0.0);
  // The Mann-Whitney table: for 4 and 4 the two-sided 5 % point is U = 0, coverage 1 - 2/70.
  BOOST_TEST(compare(one_to(4), one_to(4)).confidence_ratio == 1.0 - 2.0 / 70.0,
             tt::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(interval_of_the_ratio_as_tabulated) {
  // 7 and 7 values: the critical U at 5 % is 8, so the interval starts at the 9th smallest ratio.
  // These are all the powers of two from -48 to 0.
  std::vector<double> baseline, candidate;
  for (int i = 1; i <= 7; ++i) {
    baseline.push_back(std::exp2(7 * i));
    candidate.push_back(std::exp2(i));
  }
  const Comparison c = compare(baseline, candidate);
  BOOST_TEST(c.low == std::exp2(-40));
  BOOST_TEST(c.high == std::exp2(-8));
  BOOST_TEST(c.ratio == std::exp2(-24));
}

BOOST_AUTO_TEST_CASE(normal_approximation_takes_over_smoothly) {
  const Comparison exact = compare(one_to(20), one_to(20));
  const Comparison approximate = compare(one_to(20), one_to(21));
  BOOST_TEST(exact.low == approximate.low, tt::tolerance(0.15));
  BOOST_TEST(exact.high == approximate.high, tt::tolerance(0.15));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::profiler
