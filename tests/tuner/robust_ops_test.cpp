// Durations that a busy machine does not move, and a slower operation does: against made-up trials
// whose true durations are known.
#include "tuner/stats/robust_ops.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/base/error.h"

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(robust_ops)

namespace {

namespace tt = boost::test_tools;

const OpClass kGemm{"qkv.forward", "128x384x128"};
const OpClass kExperts{"expert_fc1.forward", "128x256"};
constexpr double kGemmNs = 50'000;
constexpr double kExpertsBaseNs = 4'000;
constexpr double kExpertsPerRowNs = 120;

/// What a machine does to durations.
struct Machine {
  double noise = 0.03;           ///< of each duration, log-normal
  double neighbour_share = 0.0;  ///< of the durations that a neighbour doubles
  double tail_share = 0.0;       ///< of durations that take 2 to 40 times as long, Pareto
  double step_noise = 0.0;       ///< of all durations of one step of one rank together
};

/// A trial of 6 steps on 4 ranks: 24 products of one size and 12 of the experts' in each.
std::vector<OpSample> trial_on(const Machine& machine, uint64_t seed, double gemm_factor = 1,
                               double experts_factor = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  const auto disturbed = [&](double ns) {
    ns *= std::exp(machine.noise * normal(random));
    if (uniform(random) < machine.neighbour_share) ns *= 2;
    if (uniform(random) < machine.tail_share) {
      ns *= std::min(40.0, 2 / std::sqrt(1 - uniform(random)));
    }
    return ns;
  };
  std::vector<OpSample> samples;
  for (int step = 0; step < 6; ++step) {
    for (int rank = 0; rank < 4; ++rank) {
      const double slowness = std::exp(machine.step_noise * normal(random));
      for (int i = 0; i < 24; ++i) {
        samples.push_back({kGemm, step, rank, 0, slowness * disturbed(gemm_factor * kGemmNs)});
      }
      for (int i = 0; i < 12; ++i) {
        const double rows = std::floor(40 + 160 * uniform(random));
        const double ns = experts_factor * (kExpertsBaseNs + kExpertsPerRowNs * rows);
        samples.push_back({kExperts, step, rank, rows, slowness * disturbed(ns)});
      }
    }
  }
  return samples;
}

double gemm_ns(const RobustOps& ops) { return ops.duration(kGemm).value().ns; }
double experts_ns(const RobustOps& ops, double rows) {
  return ops.duration(kExperts, rows).value().ns;
}

BOOST_AUTO_TEST_CASE(alike_operations_share_one_estimate) {
  const RobustOps ops({{{"a", "1"}, 0, 0, 0, 10},
                       {{"a", "1"}, 0, 1, 0, 30},
                       {{"a", "1"}, 1, 0, 0, 20},
                       {{"a", "2"}, 1, 0, 0, 77},
                       {{"b", "1"}, 1, 0, 0, 5}});
  BOOST_TEST(ops.num_classes() == 3U);
  const OpDuration a = ops.duration({"a", "1"}).value();
  BOOST_TEST(a.ns == 20);
  BOOST_TEST(a.low_ns <= 10);
  BOOST_TEST(a.high_ns >= 30);
  BOOST_TEST(a.num_samples == 3);
  BOOST_TEST(ops.duration({"a", "2"}).value().ns == 77);
  BOOST_TEST(ops.duration({"b", "1"}).value().num_samples == 1);
  BOOST_TEST(!ops.duration({"b", "2"}).has_value());
}

BOOST_AUTO_TEST_CASE(experts_share_one_line_over_their_rows) {
  std::vector<OpSample> samples;
  for (int i = 0; i < 12; ++i) {
    const double rows = 7 * i % 12 * 10;
    samples.push_back({kExperts, i, 0, rows, 1000 + 5 * rows});
  }
  // Whatever becomes of a few of them.
  samples[3].duration_ns *= 9;
  samples[8].duration_ns = 1;
  const RobustOps ops(samples);
  for (const double rows : {0.0, 35.0, 60.0, 200.0}) {
    BOOST_TEST(experts_ns(ops, rows) == 1000 + 5 * rows, tt::tolerance(1e-9));
  }
}

BOOST_AUTO_TEST_CASE(rows_that_never_differ_give_no_line) {
  const RobustOps ops(
      {{kExperts, 0, 0, 100, 900}, {kExperts, 1, 0, 100, 1000}, {kExperts, 2, 0, 100, 1100}});
  BOOST_TEST(experts_ns(ops, 100) == 1000, tt::tolerance(1e-9));
  BOOST_TEST(experts_ns(ops, 50) == 500, tt::tolerance(1e-9));
  // And noise makes no line that falls.
  const RobustOps falling(
      {{kExperts, 0, 0, 100, 900}, {kExperts, 1, 0, 200, 800}, {kExperts, 2, 0, 300, 850}});
  BOOST_TEST(experts_ns(falling, 1000) >= experts_ns(falling, 0));
  BOOST_TEST(experts_ns(falling, 0) >= 0);
}

struct Trouble {
  const char* name;
  Machine machine;
  double tolerance;  ///< of the estimates
};
const Trouble kTroubles[] = {
    {"a quiet machine", {}, 0.007},
    {"a neighbour doubles a tenth", {.neighbour_share = 0.1}, 0.015},
    {"a heavy tail", {.noise = 0.05, .tail_share = 0.1}, 0.02},
    {"both, and steps that differ",
     {.noise = 0.05, .neighbour_share = 0.1, .tail_share = 0.05, .step_noise = 0.03},
     0.04},
};

BOOST_AUTO_TEST_CASE(a_busy_machine_moves_them_little) {
  for (const Trouble& trouble : kTroubles) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const RobustOps ops(trial_on(trouble.machine, seed));
      BOOST_TEST_CONTEXT(trouble.name << ", seed " << seed) {
        BOOST_TEST(gemm_ns(ops) == kGemmNs, tt::tolerance(trouble.tolerance));
        for (const double rows : {50.0, 100.0, 180.0}) {
          BOOST_TEST(experts_ns(ops, rows) == kExpertsBaseNs + kExpertsPerRowNs * rows,
                     tt::tolerance(2 * trouble.tolerance));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(an_operation_that_takes_a_fifth_longer_shows_it) {
  for (const Trouble& trouble : kTroubles) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const RobustOps before(trial_on(trouble.machine, seed));
      const RobustOps slow_gemm(trial_on(trouble.machine, seed + 100, 1.2));
      const RobustOps slow_experts(trial_on(trouble.machine, seed + 200, 1, 1.2));
      BOOST_TEST_CONTEXT(trouble.name << ", seed " << seed) {
        BOOST_TEST(gemm_ns(slow_gemm) / gemm_ns(before) == 1.2,
                   tt::tolerance(2 * trouble.tolerance));
        BOOST_TEST(experts_ns(slow_gemm, 100) / experts_ns(before, 100) == 1,
                   tt::tolerance(3 * trouble.tolerance));
        BOOST_TEST(experts_ns(slow_experts, 100) / experts_ns(before, 100) == 1.2,
                   tt::tolerance(3 * trouble.tolerance));
        BOOST_TEST(gemm_ns(slow_experts) / gemm_ns(before) == 1,
                   tt::tolerance(2 * trouble.tolerance));
      }
    }
  }
}

// Steps that differ as wholes leave fewer independent samples than there are operations.
BOOST_AUTO_TEST_CASE(intervals_hold_the_truth_as_often_as_they_say) {
  for (const Machine& machine : {Machine{}, Machine{.noise = 0.05, .step_noise = 0.05},
                                 Machine{.noise = 0.02, .tail_share = 0.03, .step_noise = 0.03}}) {
    int num_gemm = 0;
    int num_experts = 0;
    constexpr int kTrials = 200;
    for (uint64_t seed = 1; seed <= kTrials; ++seed) {
      const RobustOps ops(trial_on(machine, 1000 + seed));
      const OpDuration gemm = ops.duration(kGemm).value();
      num_gemm += gemm.low_ns <= kGemmNs && kGemmNs <= gemm.high_ns;
      const double truth = kExpertsBaseNs + kExpertsPerRowNs * 150;
      const OpDuration experts = ops.duration(kExperts, 150).value();
      num_experts += experts.low_ns <= truth && truth <= experts.high_ns;
    }
    BOOST_TEST_CONTEXT("steps differ by " << machine.step_noise) {
      BOOST_TEST(num_gemm >= 0.9 * kTrials);
      BOOST_TEST(num_experts >= 0.9 * kTrials);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_probe_takes_the_machines_speed_off) {
  std::vector<ProbeSample> probes;
  for (int step = 0; step < 6; ++step) {
    for (int rank = 0; rank < 4; ++rank) {
      // One was disturbed.
      const bool is_odd = step == 2 && rank == 1;
      probes.push_back({step, rank, is_odd ? 9000.0 : 1300.0 + rank});
    }
  }
  const MachineSpeed speed = machine_speed(probes, 1000);
  BOOST_TEST(speed.slowness == 1.3, tt::tolerance(0.01));
  BOOST_TEST(speed.low <= speed.slowness);
  BOOST_TEST(speed.high >= speed.slowness);
  BOOST_TEST(speed.high < 1.4);
  // A machine that is slow for a whole trial: all durations, and the probe's.
  const RobustOps slow(trial_on({}, 5, 1.3, 1.3), speed);
  BOOST_TEST(gemm_ns(slow) == kGemmNs, tt::tolerance(0.01));
  BOOST_TEST(experts_ns(slow, 100) == kExpertsBaseNs + kExpertsPerRowNs * 100, tt::tolerance(0.02));
  const OpDuration gemm = slow.duration(kGemm).value();
  BOOST_TEST(gemm.low_ns <= gemm.ns);
  BOOST_TEST(gemm.ns <= gemm.high_ns);
  // Without a probe nothing is known of it.
  const MachineSpeed unknown = machine_speed({}, 1000);
  BOOST_TEST(unknown.slowness == 1);
  // What is not known of the speed is not known of the durations.
  const RobustOps unsure(trial_on({}, 5), {1.0, 0.8, 1.25});
  BOOST_TEST(unsure.duration(kGemm)->low_ns < 0.85 * kGemmNs);
  BOOST_TEST(unsure.duration(kGemm)->high_ns > 1.2 * kGemmNs);
}

BOOST_AUTO_TEST_CASE(what_is_no_duration_is_refused) {
  const double nan = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {-1.0, nan, infinity}) {
    BOOST_CHECK_THROW(RobustOps({{kGemm, 0, 0, 0, bad}}), base::Error);
    BOOST_CHECK_THROW(RobustOps({{kGemm, 0, 0, bad, 1}}), base::Error);
    BOOST_CHECK_THROW(machine_speed({{0, 0, bad}}, 1), base::Error);
    BOOST_CHECK_THROW(machine_speed({{0, 0, 1}}, bad), base::Error);
    BOOST_CHECK_THROW(RobustOps({}, {bad, bad, bad}), base::Error);
  }
  BOOST_CHECK_THROW(machine_speed({{0, 0, 0}}, 1), base::Error);
  BOOST_CHECK_THROW(RobustOps({}, {1, 1.5, 2}), base::Error);
  BOOST_TEST(RobustOps({}).num_classes() == 0U);
  // No time at all is one, where a clock is coarse.
  BOOST_TEST(RobustOps({{kGemm, 0, 0, 0, 0}}).duration(kGemm)->ns == 0);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
