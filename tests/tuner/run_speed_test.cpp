// The machine's speed in a run, from the durations of its parts.
#include "tuner/stats/run_speed.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <random>

#include "kernels/base/error.h"

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(run_speed)

namespace {

BOOST_AUTO_TEST_CASE(parts_that_all_take_longer_are_the_machine) {
  const RunSpeed speed({{10, 20, 30, 40}, {10, 20, 30, 40}, {11, 22, 33, 44}});
  BOOST_TEST(std::abs(speed.log_slowness({10, 20, 30, 40})) < 1e-12);
  BOOST_TEST(std::abs(speed.log_slowness({12, 24, 36, 48}) - std::log(1.2)) < 1e-12);
  BOOST_TEST(std::abs(speed.largest_share() - 0.4) < 1e-12);
}

BOOST_AUTO_TEST_CASE(a_part_that_takes_longer_alone_is_not) {
  const RunSpeed speed({{10, 20, 30, 20, 20}});
  BOOST_TEST(std::abs(speed.log_slowness({30, 20, 30, 20, 20})) < 1e-12);
  BOOST_TEST(std::abs(speed.log_slowness({10, 20, 30, 1, 20})) < 1e-12);
  // With the machine beside it.
  BOOST_TEST(std::abs(speed.log_slowness({33, 22, 33, 22, 22}) - std::log(1.1)) < 1e-12);
}

// The weight is time: many short parts say less than a few long ones.
BOOST_AUTO_TEST_CASE(short_parts_say_little) {
  const RunSpeed speed({{1, 1, 1, 1, 1, 50, 50, 50}});
  BOOST_TEST(std::abs(speed.log_slowness({2, 2, 2, 2, 2, 50, 50, 50})) < 1e-12);
}

BOOST_AUTO_TEST_CASE(the_noise_of_parts_averages_out) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  const auto run = [&](double slowness) {
    std::vector<double> parts;
    for (int part = 0; part < 20; ++part) {
      parts.push_back(5.0 * slowness * std::exp(0.02 * normal(random)));
    }
    return parts;
  };
  std::vector<std::vector<double>> runs;
  for (int i = 0; i < 12; ++i) runs.push_back(run(1 + 0.1 * normal(random)));
  const RunSpeed speed(runs);
  double squares = 0.0;
  double offset = 0.0;
  for (int i = 0; i < 100; ++i) {
    const double slowness = std::exp(0.1 * normal(random));
    const double error = speed.log_slowness(run(slowness)) - std::log(slowness);
    offset += error / 100;
    squares += error * error / 100;
  }
  // Of 20 parts by 2 %, the mean of all would be off by 0.45 %; usual is the machine of the runs
  // that were given.
  BOOST_TEST(std::sqrt(squares - offset * offset) < 0.008);
}

BOOST_AUTO_TEST_CASE(what_makes_no_sense_is_refused) {
  using Runs = std::vector<std::vector<double>>;
  BOOST_CHECK_THROW(RunSpeed{Runs{}}, base::Error);
  BOOST_CHECK_THROW(RunSpeed{Runs(1)}, base::Error);
  BOOST_CHECK_THROW(RunSpeed({{1, 2}, {1}}), base::Error);
  BOOST_CHECK_THROW(RunSpeed({{1, 0}}), base::Error);
  const RunSpeed speed({{1, 2}});
  BOOST_CHECK_THROW(static_cast<void>(speed.log_slowness({1})), base::Error);
  BOOST_CHECK_THROW(static_cast<void>(speed.log_slowness({1, -1})), base::Error);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
