// Intervals of differences: how often they hold the truth when few readings speak, and what else is
// known of the noise does to them.
#include "tuner/stats/levels.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <random>

#include "kernels/base/error.h"

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(levels)

namespace {

namespace tt = boost::test_tools;

class Readings {
 public:
  explicit Readings(uint64_t seed) : random_(seed) {}
  std::vector<double> of(double level, double noise, int count) {
    std::vector<double> values;
    for (int i = 0; i < count; ++i) values.push_back(level + noise * normal_(random_));
    return values;
  }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
};

BOOST_AUTO_TEST_CASE(noise_is_pooled_over_levels) {
  BOOST_TEST(pooled_noise({{0, {1, 1.2}}, {1, {5, 5.2}}, {2, {9}}}) == 1.4826 * 0.1 * std::sqrt(2),
             tt::tolerance(1e-9));
  BOOST_TEST(pooled_noise({{0, {1}}, {1, {5}}}) == 0.0);
  BOOST_TEST(pooled_noise({}) == 0.0);
}

// One reading of each says nothing of the noise; those of others do.
BOOST_AUTO_TEST_CASE(repeats_of_others_tell_of_the_noise) {
  Readings readings(1);
  constexpr int kRounds = 400;
  constexpr double kTruth = 0.03;
  for (const double noise : {0.002, 0.02}) {
    int covered = 0;
    double width = 0.0;
    for (int round = 0; round < kRounds; ++round) {
      NoiseEvidence evidence;
      for (int i = 0; i < 4; ++i) evidence.repeats.push_back(readings.of(i, noise, 3));
      const LevelDifference difference = level_difference(
          readings.of(7, noise, 1), readings.of(7 + kTruth, noise, 1), 0, 0.95, 1.0, evidence);
      covered += difference.low <= kTruth && kTruth <= difference.high;
      width += (difference.high - difference.low) / kRounds;
    }
    BOOST_TEST_CONTEXT("noise " << noise) {
      BOOST_TEST(covered >= 0.92 * kRounds);
      BOOST_TEST(width > 2 * 1.96 * std::sqrt(2) * noise);
      BOOST_TEST(width < 3 * 1.96 * std::sqrt(2) * noise);
    }
  }
}

// Two that happen to agree are no proof of a quiet machine, where the parts of each say otherwise.
BOOST_AUTO_TEST_CASE(noise_is_never_less_than_is_known) {
  const std::vector<double> a = {1.0, 1.0001};
  const std::vector<double> b = {1.02, 1.0201};
  const LevelDifference lucky = level_difference(a, b, 0.01);
  BOOST_TEST(lucky.low > 0.015);
  NoiseEvidence evidence;
  evidence.least = 0.02;
  const LevelDifference known = level_difference(a, b, 0.01, 0.95, 1.0, evidence);
  BOOST_TEST(known.low < 0);
  BOOST_TEST(known.high > 0.04);
  BOOST_TEST(known.noise >= 0.02);
  BOOST_TEST(known.mean == 0.02, tt::tolerance(0.05));
}

BOOST_AUTO_TEST_CASE(differences_of_pairs_have_a_level) {
  Readings readings(2);
  constexpr int kRounds = 400;
  int covered = 0;
  for (int round = 0; round < kRounds; ++round) {
    NoiseEvidence evidence;
    evidence.repeats = {readings.of(0, 0.01, 8)};
    const LevelDifference level = level_from_zero(readings.of(0.05, 0.01, 2), 0.02, 0.95, evidence);
    covered += level.low <= 0.05 && 0.05 <= level.high;
    BOOST_TEST(level.above > level.below);
  }
  BOOST_TEST(covered >= 0.92 * kRounds);
  BOOST_CHECK_THROW(static_cast<void>(level_from_zero({}, 0)), base::Error);
  BOOST_CHECK_THROW(static_cast<void>(level_difference({}, {1}, 0)), base::Error);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
