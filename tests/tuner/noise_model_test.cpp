// The likelihood that every grid of levels and noises is made of, against its formula.
#include "tuner/stats/noise_model.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "tuner/stats/fast_exp.h"

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(noise_model)

namespace {

namespace data = boost::unit_test::data;
namespace tt = boost::test_tools;

/// Of a mixture of two normal parts, 0.95 of them with `noise`, the others with ten times that.
double density(double off, double noise) {
  const auto part = [&](double share, double width) {
    return share / width * std::exp(-0.5 * off * off / (width * width));
  };
  return part(0.95, noise) + part(0.05, 10 * noise);
}

BOOST_AUTO_TEST_CASE(the_exponential_is_one) {
  double worst = 0.0;
  for (double x = -299.9; x < 699.9; x += 0.00731) {
    worst = std::max(worst, std::abs(fast_exp(x) / std::exp(x) - 1));
  }
  BOOST_TEST(worst < 1e-15);
  BOOST_TEST(fast_exp(0.0) == 1.0);
  BOOST_TEST(fast_exp(-1e300) == std::exp(-300.0), tt::tolerance(1e-14));
  BOOST_TEST(fast_exp(-std::numeric_limits<double>::infinity()) > 0.0);
}

// As few as one and more than are multiplied at a time; levels near and far.
BOOST_DATA_TEST_CASE(readings_are_as_likely_as_their_densities_say,
                     data::make({0, 1, 2, 64, 65, 200}), num_values) {
  constexpr double kNoise = 0.7;
  constexpr double kWeight = 0.95;
  std::vector<double> values;
  for (int i = 0; i < num_values; ++i) values.push_back(100 + std::sin(i) + (i % 17 == 0 ? 6 : 0));
  const std::vector<double> levels = {93, 99, 99.5, 100, 100.5, 101, 112};
  std::vector<double> sums(levels.size(), 1.5);
  add_log_likelihoods(values, kNoise, kWeight, levels, sums);
  for (size_t i = 0; i < levels.size(); ++i) {
    double expected = 1.5;
    for (const double value : values) {
      expected += kWeight * std::log(density(value - levels[i], kNoise));
    }
    BOOST_TEST(sums[i] == expected, tt::tolerance(1e-12));
  }
}

// Fewer, as many and more than are compared at a time; the largest anywhere.
BOOST_DATA_TEST_CASE(weights_are_those_of_the_largest, data::make({1, 15, 16, 17, 40}), num_logs) {
  for (int at = 0; at < num_logs; ++at) {
    std::vector<double> logs;
    for (int i = 0; i < num_logs; ++i) logs.push_back(i == at ? -1000 : -1001 - std::abs(i - at));
    std::vector<double> weights(logs.size());
    BOOST_TEST(scale_by_largest(logs, weights) == -1000);
    for (size_t i = 0; i < logs.size(); ++i) {
      BOOST_TEST(weights[i] == std::exp(logs[i] + 1000), tt::tolerance(1e-14));
    }
  }
}

// So far off that the formula's logarithm would be that of 0.
BOOST_AUTO_TEST_CASE(far_off_there_are_only_outliers) {
  const std::vector<double> values = {0.0, 5000.0};
  const std::vector<double> levels = {0.0, 5000.0};
  std::vector<double> sums(2, 0.0);
  add_log_likelihoods(values, 1.0, 1.0, levels, sums);
  const double far = std::log(0.05 / 10) - 0.5 * 500 * 500;
  BOOST_TEST(sums[0] == far + std::log(0.955), tt::tolerance(1e-12));
  BOOST_TEST(sums[0] == sums[1]);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
