// How much faster a configuration is, by runs on machines that are noisy between runs, drift or are
// used by others: the interval holds the truth as often as it says, and becomes narrow with runs.
#include "tuner/stats/run_comparison.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <random>

#include "kernels/base/error.h"

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(run_comparison)

namespace {

namespace tt = boost::test_tools;

constexpr int kRounds = 300;

/// A machine that runs configurations, one a second.
class Machine {
 public:
  Machine(uint64_t seed, double noise_between, double noise_within)
      : random_(seed), between_(noise_between), within_(noise_within) {}

  /// Eight steps of a configuration that takes exp(`log_ns`) on a quiet machine.
  RunReading run(double log_ns) {
    time_ += 1;
    const double off = between_ * normal_(random_) + course(time_);
    std::vector<double> steps;
    for (int i = 0; i < 8; ++i) {
      steps.push_back(std::exp(log_ns + off + within_ * normal_(random_)));
    }
    std::sort(steps.begin(), steps.end());
    return reading_of((steps[3] + steps[4]) / 2, steps[0], steps[7], steps, time_);
  }
  std::function<double(double)> course = [](double) { return 0.0; };

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  double between_;
  double within_;
  double time_ = 0.0;
};

/// How often an interval held the truth, and how wide it was.
struct Coverage {
  double covered = 0.0;
  double width = 0.0;
  double bias = 0.0;

  void add(const LogGain& gain, double truth) {
    covered += (gain.low <= truth && truth <= gain.high) / double{kRounds};
    width += (gain.high - gain.low) / kRounds;
    bias += (gain.mean - truth) / kRounds;
  }
};

BOOST_AUTO_TEST_CASE(a_reading_is_what_its_steps_say) {
  const RunReading few = reading_of(100, 90, 130, {100, 90}, 7);
  BOOST_TEST(few.log_ns == std::log(100.0), tt::tolerance(1e-12));
  BOOST_TEST(few.time == 7);
  BOOST_TEST(few.error == 20 / 1.96 / 100, tt::tolerance(1e-9));
  BOOST_TEST(reading_of(100, 100, 100, {}, 0).error == 0);
  // A single slow step is no noise, however wide it makes the interval of the median.
  const RunReading calm = reading_of(100, 99, 900, {99, 100, 101, 100, 99, 100, 101, 900}, 0);
  BOOST_TEST(calm.error < 0.01);
  BOOST_TEST(calm.error > 0.002);
  BOOST_CHECK_THROW(static_cast<void>(reading_of(0, 0, 0, {}, 0)), base::Error);
  BOOST_CHECK_THROW(static_cast<void>(reading_of(std::nan(""), 0, 0, {}, 0)), base::Error);
}

BOOST_AUTO_TEST_CASE(several_runs_have_one_level) {
  const auto run = [](double ns) { return reading_of(ns, ns, ns, {}, 0); };
  const StepLevel level = level_of_runs({run(100), run(110), run(105)});
  BOOST_TEST(level.ns == 105, tt::tolerance(1e-9));
  BOOST_TEST(level.low_ns < 101);
  BOOST_TEST(level.high_ns > 109);
  const StepLevel one = level_of_runs({reading_of(100, 90, 110, {}, 0)});
  BOOST_TEST(one.low_ns == 100 * std::exp(-0.1), tt::tolerance(1e-6));
  BOOST_CHECK_THROW(static_cast<void>(level_of_runs({})), base::Error);
}

// One run of each says nothing of the noise between runs: that comes from what was run repeatedly.
BOOST_AUTO_TEST_CASE(the_noise_between_runs_counts) {
  constexpr double kTruth = 0.05;
  Coverage one;
  Coverage several;
  Coverage unknown;
  for (uint64_t seed = 0; seed < kRounds; ++seed) {
    Machine machine(seed, 0.02, 0.002);
    RunLog log;
    for (int i = 0; i < 3; ++i) log.add(0, machine.run(16));
    log.add(1, machine.run(16 - kTruth));
    RunLog blind;
    blind.add(0, machine.run(16));
    blind.add(1, machine.run(16 - kTruth));
    unknown.add(blind.gain(0, 1), kTruth);
    one.add(log.gain(0, 1), kTruth);
    BOOST_TEST(log.noise().has_value());
    for (int i = 0; i < 5; ++i) log.add(1, machine.run(16 - kTruth));
    for (int i = 0; i < 3; ++i) log.add(0, machine.run(16));
    several.add(log.gain(0, 1), kTruth);
  }
  BOOST_TEST(one.covered >= 0.9);
  BOOST_TEST(several.covered >= 0.92);
  BOOST_TEST(several.width < 0.6 * one.width);
  BOOST_TEST(std::abs(several.bias) < 0.003);
  // Nobody can know what nobody has measured.
  BOOST_TEST(unknown.covered < 0.5);
}

BOOST_AUTO_TEST_CASE(repeats_of_any_configuration_tell) {
  Coverage coverage;
  for (uint64_t seed = 0; seed < kRounds; ++seed) {
    Machine machine(1000 + seed, 0.02, 0.002);
    RunLog log;
    for (int configuration = 2; configuration < 5; ++configuration) {
      for (int i = 0; i < 3; ++i) log.add(configuration, machine.run(15 + configuration));
    }
    log.add(0, machine.run(16));
    log.add(1, machine.run(16));
    coverage.add(log.gain(0, 1), 0.0);
  }
  BOOST_TEST(coverage.covered >= 0.92);
}

// A machine that becomes slower all the time: the later one looks worse, unless they are run in
// turns.
BOOST_AUTO_TEST_CASE(in_turns_drift_makes_no_difference) {
  constexpr double kTruth = 0.03;
  Coverage apart;
  Coverage in_turns;
  for (uint64_t seed = 0; seed < kRounds; ++seed) {
    Machine machine(2000 + seed, 0.004, 0.004);
    machine.course = [](double time) { return 0.02 * time; };
    RunLog log;
    log.add(0, machine.run(16));
    log.add(0, machine.run(16));
    log.add(1, machine.run(16 - kTruth));
    apart.add(log.gain(0, 1), kTruth);
    for (const int configuration : {0, 1, 0, 1, 0}) {
      log.add(configuration, machine.run(configuration == 1 ? 16 - kTruth : 16));
    }
    in_turns.add(log.gain_in_turns(0, 1, {3, 4, 5, 6, 7}), kTruth);
  }
  BOOST_TEST(apart.bias < -0.02);
  BOOST_TEST(std::abs(in_turns.bias) < 0.002);
  BOOST_TEST(in_turns.covered >= 0.92);
  RunLog log;
  log.add(0, {});
  log.add(1, {});
  BOOST_CHECK_THROW(static_cast<void>(log.gain_in_turns(0, 1, {1})), base::Error);
  BOOST_CHECK_THROW(static_cast<void>(log.gain(0, 2)), base::Error);
}

// With enough runs the course of a machine that wanders is seen and taken off.
BOOST_AUTO_TEST_CASE(a_wandering_machine_is_followed) {
  constexpr double kTruth = 0.04;
  double error = 0.0;
  double blind_error = 0.0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Machine machine(3000 + seed, 0.004, 0.004);
    machine.course = [](double time) { return 0.1 * std::sin(time / 4); };
    RunLog log;
    double before = 0.0;
    double after = 0.0;
    for (int i = 0; i < 20; ++i) {
      const bool is_after = i == 5 || i == 7;
      log.add(is_after, machine.run(is_after ? 16 - kTruth : 16));
    }
    Machine same(3000 + seed, 0.004, 0.004);
    same.course = machine.course;
    for (int i = 0; i < 20; ++i) {
      const bool is_after = i == 5 || i == 7;
      (is_after ? after : before) += same.run(is_after ? 16 - kTruth : 16).log_ns;
    }
    error += std::abs(log.gain(0, 1).mean - kTruth) / 60;
    blind_error += std::abs(before / 18 - after / 2 - kTruth) / 60;
  }
  BOOST_TEST(error < 0.02);
  BOOST_TEST(error < 0.4 * blind_error);
}

// Ten configurations twice, each slower the second time: a trend shows, but none was run often
// enough for a course to be read from it.
BOOST_AUTO_TEST_CASE(a_trend_without_a_course_is_left_in) {
  RunLog log;
  for (int i = 0; i < 20; ++i) {
    log.add(i % 10, {16 - 0.1 * (i % 10) + 0.01 * (i / 10), 0.001, double(i)});
  }
  const LogGain gain = log.gain(0, 1);
  BOOST_TEST(gain.mean == 0.1, tt::tolerance(0.05));
  BOOST_TEST(gain.low < gain.mean);
  BOOST_TEST(log.noise().value() > 0);
}

BOOST_AUTO_TEST_CASE(runs_are_counted) {
  RunLog log;
  BOOST_TEST(!log.noise().has_value());
  // Times may be missing, or the same.
  for (int i = 0; i < 20; ++i) log.add(i % 2, {16.0 + 0.001 * (i / 2 % 3) + 0.1 * (i % 2), 0, 0});
  BOOST_TEST(log.num_runs() == 20U);
  BOOST_TEST(log.num_runs(1) == 10U);
  BOOST_TEST(log.gain(0, 1).mean == -0.1, tt::tolerance(0.05));
  BOOST_TEST(log.noise().value() < 0.003);
  log.clear();
  BOOST_TEST(log.num_runs() == 0U);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
