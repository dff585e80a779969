// What is followed beside the metric that was asked for, and that metric freed of the machine.
#include "sweeps/bisect/leads.h"

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <random>

#include "sweeps/bisect/even_speed.h"
#include "sweeps/bisect/hunt_runs.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(leads)

namespace {

/// Runs of a good end (0) and a bad one (8), or of any commits between.
struct Runs {
  explicit Runs(const std::string& metric = "step_time") {
    setup.metric = metric;
    setup.commits.resize(9);
  }

  void add(int position, const std::map<std::string, double>& metrics,
           const std::map<std::string, std::string>& config = {}) {
    HuntRun run;
    run.position = position;
    run.run.metrics = metrics;
    run.run.config = config;
    runs.use(runs.keep(run));
  }

  HuntSetup setup;
  HuntRuns runs{setup};
};

tuner::HuntResult ends_of(double effect_ratio, double low_ratio, double noise_ratio,
                          bool is_too_noisy = false) {
  tuner::HuntResult ends;
  ends.effect_ratio = effect_ratio;
  ends.effect_low_ratio = low_ratio;
  ends.effect_high_ratio = 2 * effect_ratio - low_ratio;
  ends.noise_ratio = noise_ratio;
  ends.is_too_noisy = is_too_noisy;
  return ends;
}

BOOST_AUTO_TEST_CASE(counters_are_followed_by_how_much_they_changed) {
  Runs given;
  for (int i = 0; i < 2; ++i) {
    given.add(0, {{"step_ns", 100}, {"num_launches", 100}, {"comm_bytes", 1000}, {"flops", 7}});
    given.add(8, {{"step_ns", 100}, {"num_launches", 110}, {"comm_bytes", 500}, {"flops", 7}});
  }
  const std::vector<CounterLead> found = counters_to_follow(given.runs, given.setup);
  BOOST_REQUIRE(found.size() == 2U);
  BOOST_TEST(found[0].metric == "comm_bytes");
  BOOST_TEST(found[0].has_fallen);
  BOOST_TEST(found[1].metric == "num_launches");
  BOOST_TEST(!found[1].has_fallen);
}

BOOST_AUTO_TEST_CASE(a_counter_that_differs_within_an_end_is_none) {
  Runs given;
  given.add(0, {{"step_ns", 100}, {"num_launches", 100}});
  given.add(0, {{"step_ns", 100}, {"num_launches", 101}});
  given.add(8, {{"step_ns", 100}, {"num_launches", 200}});
  BOOST_TEST(counters_to_follow(given.runs, given.setup).empty());
}

BOOST_AUTO_TEST_CASE(a_changed_default_comes_first_and_a_new_option_not_at_all) {
  Runs given;
  given.add(0, {{"step_ns", 100}, {"num_launches", 100}}, {{"a", "1"}});
  given.add(8, {{"step_ns", 100}, {"num_launches", 200}}, {{"a", "2"}, {"new", "1"}});
  const std::vector<CounterLead> found = counters_to_follow(given.runs, given.setup);
  BOOST_REQUIRE(found.size() == 2U);
  BOOST_TEST(found[0].metric == "config a");
  BOOST_TEST(found[1].metric == "num_launches");
}

BOOST_AUTO_TEST_CASE(parts_are_operations_in_units_of_the_metric) {
  Runs own;
  own.add(0, {{"step_ns", 100}, {"compute_busy_ns", 90}, {"op_a_ns", 50}, {"op_host_sync_ns", 9}});
  own.add(8, {{"step_ns", 100}, {"compute_busy_ns", 90}, {"op_a_ns", 50}, {"op_host_sync_ns", 9}});
  const std::map<std::string, double> parts = parts_of(own.runs, own.setup);
  BOOST_REQUIRE(parts.size() == 1U);
  BOOST_TEST(parts.at("op_a_ns") == 1.0);

  Runs other("iteration_s");
  other.add(0, {{"iteration_s", 1.0}, {"forward_ms", 300}, {"loss", 2}});
  other.add(8, {{"iteration_s", 1.0}, {"forward_ms", 300}, {"loss", 2}});
  const std::map<std::string, double> phases = parts_of(other.runs, other.setup);
  BOOST_REQUIRE(phases.size() == 1U);
  BOOST_TEST(std::abs(phases.at("forward_ms") - 1e-3) < 1e-15);
}

BOOST_AUTO_TEST_CASE(the_part_with_most_noises_is_followed_if_it_explains_enough) {
  Runs given;
  for (int i = 0; i < 6; ++i) {
    const double jitter = i % 2 == 0 ? -1.0 : 1.0;
    for (const int position : {0, 8}) {
      const bool is_bad = position == 8;
      given.add(position, {{"step_ns", 1000 + 20 * jitter + (is_bad ? 40 : 0)},
                           {"op_small_ns", 10 + 0.01 * jitter + (is_bad ? 5 : 0)},
                           {"op_large_ns", 300 + 2 * jitter + (is_bad ? 35 : 0)},
                           {"busy_ns", 900 + 18 * jitter + (is_bad ? 40 : 0)}});
    }
  }
  // What is sure of the change counts: the ends may differ by more only because of the noise.
  const auto found = part_to_follow(given.runs, given.setup, ends_of(0.1, 0.02, 0.02));
  BOOST_REQUIRE(found);
  BOOST_TEST(found->metric == "op_large_ns");
  BOOST_TEST(found->scale.value() == 1.0);
  BOOST_TEST(!part_to_follow(given.runs, given.setup, ends_of(0.1, 0.08, 0.02)));
  // A rate gets worse where a duration grows: nothing is a part of it.
  given.setup.is_higher_better = true;
  BOOST_TEST(!part_to_follow(given.runs, given.setup, ends_of(0.1, 0.02, 0.02)));
}

BOOST_AUTO_TEST_CASE(where_the_ends_do_not_tell_only_a_clear_part_is_followed) {
  Runs given;
  for (int i = 0; i < 6; ++i) {
    const double jitter = i % 2 == 0 ? -1.0 : 1.0;
    for (const int position : {0, 8}) {
      const bool is_bad = position == 8;
      given.add(position, {{"step_ns", 1000 + 50 * jitter},
                           {"op_doubtful_ns", 300 + 8 * jitter + (is_bad ? 20 : 0)},
                           {"busy_ns", 900 + 1 * jitter + (is_bad ? 40 : 0)}});
    }
  }
  BOOST_TEST(!part_to_follow(given.runs, given.setup, ends_of(0.0, -0.05, 0.05, true)));
}

BOOST_AUTO_TEST_CASE(work_that_was_moved_is_made_up_for) {
  Runs given;
  for (int i = 0; i < 6; ++i) {
    const double jitter = i % 2 == 0 ? -0.1 : 0.1;
    for (const int position : {0, 3, 4, 8}) {
      const bool is_after = position >= 4;
      given.add(position, {{"step_ns", 1000 + jitter},
                           {"op_a_ns", 100 + jitter + (is_after ? 30 : 0)},
                           {"op_b_ns", 200 + jitter - (is_after ? 30 : 0)}});
    }
  }
  BOOST_TEST(is_made_up_for(given.runs, given.setup, 4, 30));
  BOOST_TEST(!is_made_up_for(given.runs, given.setup, 4, 300));
  BOOST_TEST(!is_made_up_for(given.runs, given.setup, 5, 30));
}

/// Operations on a machine whose speed has a noise of 5 %; `change` adds to some of them, by their
/// number, from position 5 on. `own_noise`: of the step, not of its operations. `first`: how long
/// the first one takes.
Runs shared_machine(const std::map<int, double>& change, int num_ops = 10, double own_noise = 0.005,
                    double first = 10.0) {
  Runs given;
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  for (int i = 0; i < 12; ++i) {
    for (const int position : {0, 4, 5, 8}) {
      const double slowness = 1 + 0.05 * normal(random);
      std::map<std::string, double> metrics;
      double step = 0.0;
      for (int op = 0; op < num_ops; ++op) {
        const auto added = change.find(op);
        const bool is_changed = position >= 5 && added != change.end();
        const double work = op == 0 ? first : 10 + op;
        const double duration =
            (work + (is_changed ? added->second : 0.0)) * slowness * (1 + 0.005 * normal(random));
        metrics[fmt::format("op_{}_ns", op)] = duration;
        step += duration;
      }
      metrics["step_ns"] = metrics["traced_step_ns"] = step * (1 + own_noise * normal(random));
      given.add(position, metrics);
    }
  }
  return given;
}

BOOST_AUTO_TEST_CASE(at_even_speed_a_small_change_is_seen) {
  const Runs given = shared_machine({{3, 3.0}});
  const auto even = EvenSpeed::of(given.runs, given.setup, "op_3_ns");
  BOOST_REQUIRE(even);
  BOOST_TEST(even->metric() == "traced_step_ns");
  const tuner::LevelDifference difference =
      tuner::level_difference(even->values_at(given.runs, 4), even->values_at(given.runs, 5), 0.0);
  BOOST_TEST(difference.low < 3.0);
  BOOST_TEST(difference.high > 3.0);
  BOOST_TEST(difference.low > 1.5);
  const tuner::LevelDifference raw = tuner::level_difference(
      given.runs.values_of("step_time", 4), given.runs.values_of("step_time", 5), 0.0);
  BOOST_TEST(raw.high - raw.low > 4 * (difference.high - difference.low));
  // A run without one of the operations has no such value.
  CommitRun run;
  run.metrics = {{"traced_step_ns", 100}, {"op_0_ns", 10}};
  BOOST_TEST(!even->value_of(given.runs, run));
}

BOOST_AUTO_TEST_CASE(even_speed_needs_many_parts_that_show_the_noise) {
  const auto of = [](const Runs& given) {
    return EvenSpeed::of(given.runs, given.setup, "op_3_ns").has_value();
  };
  BOOST_TEST(of(shared_machine({})));
  BOOST_TEST(!of(shared_machine({}, 6)));        // five beside the one it is to show
  BOOST_TEST(!of(shared_machine({}, 10, 0.1)));  // the noise is not in what was measured of them
  // One of them is most of the step.
  BOOST_TEST(!of(shared_machine({}, 10, 0.005, 100.0)));
  // All have changed: that would be taken for the machine.
  std::map<int, double> all;
  for (int op = 0; op < 10; ++op) all[op] = 2.0;
  BOOST_TEST(!of(shared_machine(all)));
}

// What a command prints may have any units; its weight is time all the same.
BOOST_AUTO_TEST_CASE(parts_of_other_programs_have_their_units) {
  const auto has_even_speed = [](double load_s) {
    Runs given("step_ms");
    std::mt19937_64 random(3);
    std::normal_distribution<double> normal;
    for (int i = 0; i < 24; ++i) {
      const double slowness = 1 + 0.05 * normal(random);
      std::map<std::string, double> metrics = {{"load_s", load_s * slowness}};
      metrics["step_ms"] = 1000 * metrics["load_s"];
      for (int phase = 0; phase < 8; ++phase) {
        const double ms = 10 * slowness * (1 + 0.005 * normal(random));
        const bool is_in_us = phase % 2 == 1;
        metrics[fmt::format("phase{}_{}", phase, is_in_us ? "us" : "ms")] =
            ms * (is_in_us ? 1e3 : 1);
        metrics["step_ms"] += ms;
      }
      given.add(i % 2 == 0 ? 0 : 8, metrics);
    }
    return EvenSpeed::of(given.runs, given.setup, "").has_value();
  };
  BOOST_TEST(has_even_speed(0.010));
  BOOST_TEST(!has_even_speed(0.080));  // half of the step
}

// Those that have changed are left out, one by one, from what tells the machine's speed.
BOOST_AUTO_TEST_CASE(a_change_of_several_parts_is_seen_at_even_speed) {
  const Runs given = shared_machine({{1, 1.0}, {4, 1.0}, {7, 1.0}});
  const auto even = EvenSpeed::of(given.runs, given.setup, "");
  BOOST_REQUIRE(even);
  const tuner::LevelDifference ends = even->ends_differ_by(given.runs, given.setup).value();
  BOOST_TEST(ends.low < 3.0);
  BOOST_TEST(ends.high > 3.0);
  BOOST_TEST(ends.low > 1.5);
}

BOOST_AUTO_TEST_CASE(parts_that_changed_between_two_commits_are_not_the_machine) {
  std::map<int, double> all;
  for (int op = 0; op < 10; ++op) all[op] = 4.0;
  const Runs same = shared_machine({});
  const auto even = EvenSpeed::of(same.runs, same.setup, "op_3_ns");
  BOOST_REQUIRE(even);
  BOOST_TEST(!even->differs(same.runs, 4, 5));
  const Runs changed = shared_machine(all);
  BOOST_TEST(even->differs(changed.runs, 4, 5));
  BOOST_TEST(!even->differs(changed.runs, 5, 8));
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
