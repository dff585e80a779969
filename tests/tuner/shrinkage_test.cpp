// The best of many: told as it is measured it disappoints, drawn towards its prediction it does
// not.
#include "tuner/stats/shrinkage.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <random>

#include "kernels/base/error.h"

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(shrinkage)

namespace {

namespace tt = boost::test_tools;

LogGain gain_of(double mean, double error) {
  return {mean, mean - 1.96 * error, mean + 1.96 * error, error};
}

BOOST_AUTO_TEST_CASE(noise_and_errors_of_predictions_share) {
  // Equally good: in the middle.
  const LogGain both = shrunk({gain_of(0.06, 0.02)}, 0.02, 0.02);
  BOOST_TEST(both.mean == 0.04, tt::tolerance(1e-9));
  BOOST_TEST(both.error() == 0.02 / std::sqrt(2), tt::tolerance(1e-9));
  // A quiet machine needs no prediction, a noisy one has little else.
  BOOST_TEST(shrunk({gain_of(0.10, 0.001)}, 0.02, 0.1).mean == 0.10, tt::tolerance(1e-3));
  BOOST_TEST(shrunk({gain_of(0.10, 0.5)}, 0.02, 0.02).mean == 0.02, tt::tolerance(0.02));
  // Three measurements outweigh one.
  const LogGain three =
      shrunk({gain_of(0.06, 0.02), gain_of(0.05, 0.02), gain_of(0.07, 0.02)}, 0.02, 0.02);
  BOOST_TEST(three.mean == 0.05, tt::tolerance(1e-9));
  BOOST_TEST(three.high - three.low < both.high - both.low);
  BOOST_TEST(three.noise == 0.02);
  BOOST_CHECK_THROW(static_cast<void>(shrunk({}, 0, 1)), base::Error);
  BOOST_CHECK_THROW(static_cast<void>(shrunk({gain_of(0, 1)}, 0, 0)), base::Error);
}

BOOST_AUTO_TEST_CASE(a_prediction_gives_way_to_what_contradicts_it) {
  // 15 % between them, with 2 % of noise and predictions that used to be right within 2 %.
  const LogGain gain = shrunk({gain_of(0.10, 0.02)}, -0.05, 0.02);
  BOOST_TEST(gain.mean > 0.03);
  BOOST_TEST(gain.high > 0.07);
  // The more they contradict each other, the less of the prediction is left.
  double last_left = 1;
  for (const double measured : {0.2, 0.3, 0.6, 2.0}) {
    const double left = 1 - shrunk({gain_of(measured, 0.04)}, 0, 0.02).mean / measured;
    BOOST_TEST(left < last_left);
    last_left = left;
  }
  BOOST_TEST(last_left < 0.01);
}

BOOST_AUTO_TEST_CASE(the_spread_is_learnt_without_the_noise) {
  std::mt19937_64 random(4);
  std::normal_distribution<double> normal;
  PredictionErrors errors;
  BOOST_TEST(errors.spread() == 0.25);
  for (int i = 0; i < 400; ++i) {
    const double truth = 0.05 + 0.08 * normal(random);
    errors.add(0.05, gain_of(truth + 0.06 * normal(random), 0.06));
  }
  BOOST_TEST(errors.spread() == 0.08, tt::tolerance(0.15));
  // A few wild ones are no rule, and a model that is always right is not believed blindly.
  PredictionErrors few;
  for (const double off : {0.01, -0.01, 0.012, 3.0}) few.add(0, gain_of(off, 0.001));
  BOOST_TEST(few.spread() < 0.03);
  for (int i = 0; i < 10; ++i) few.add(0, gain_of(0, 0));
  BOOST_TEST(few.spread() == 0.02);
  few.clear();
  BOOST_TEST(few.spread() == 0.25);
}

BOOST_AUTO_TEST_CASE(the_best_of_twenty_keeps_what_it_promised) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  constexpr int kSearches = 500;
  constexpr double kNoise = 0.06;
  double promised = 0.0;
  double told = 0.0;
  double kept = 0.0;
  double kept_by_told = 0.0;
  int covered = 0;
  for (int search = 0; search < kSearches; ++search) {
    PredictionErrors errors;
    struct Candidate {
      double truth;
      double predicted;
      LogGain measured;
    };
    std::vector<Candidate> candidates;
    for (int i = 0; i < 20; ++i) {
      const double predicted = 0.05 * normal(random);
      const double truth = predicted + 0.03 * normal(random);
      candidates.push_back({truth, predicted, gain_of(truth + kNoise * normal(random), kNoise)});
      errors.add(predicted, candidates.back().measured);
    }
    const auto by_measured = std::max_element(
        candidates.begin(), candidates.end(),
        [](const auto& a, const auto& b) { return a.measured.mean < b.measured.mean; });
    promised += by_measured->measured.mean / kSearches;
    kept += by_measured->truth / kSearches;
    const Candidate* best = nullptr;
    LogGain best_gain;
    for (const Candidate& candidate : candidates) {
      const LogGain gain = shrunk({candidate.measured}, candidate.predicted, errors.spread());
      if (best == nullptr || gain.mean > best_gain.mean) {
        best = &candidate;
        best_gain = gain;
      }
    }
    told += best_gain.mean / kSearches;
    kept_by_told += best->truth / kSearches;
    covered += best_gain.low <= best->truth && best->truth <= best_gain.high;
  }
  // The curse, and without it.
  BOOST_TEST(promised - kept > 0.05);
  BOOST_TEST(std::abs(told - kept_by_told) < 0.01);
  BOOST_TEST(covered >= 0.9 * kSearches);
  // And a better one is chosen.
  BOOST_TEST(kept_by_told > kept);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
