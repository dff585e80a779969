// What is said to have moved between two commits: what did, and no more.
#include "sweeps/bisect/moved.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <random>

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(moved)

namespace {

using Metrics = std::map<std::string, double>;

/// Runs of two commits whose metrics a function gives.
struct Pair {
  template <typename Model>
  Pair(int num_runs, const Model& metrics_of) {
    for (int i = 0; i < 2 * num_runs; ++i) {
      CommitRun run;
      run.metrics = metrics_of(i % 2 == 1);
      runs.push_back(run);
    }
    for (size_t i = 0; i < runs.size(); ++i) (i % 2 == 1 ? after : before).emplace_back(runs[i]);
  }

  [[nodiscard]] std::vector<std::string> moved(const std::string& metric = "step_time") const {
    std::vector<std::string> names;
    for (const Moved& m : moved_between(before, after, metric, 0.02)) {
      names.push_back(m.name);
    }
    return names;
  }

  std::vector<CommitRun> runs;
  RunList before;
  RunList after;
};

BOOST_AUTO_TEST_CASE(operations_are_named_and_not_what_they_add_up_to) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  const Pair pair(4, [&](bool is_after) {
    Metrics metrics;
    double step = 0;
    for (int op = 0; op < 40; ++op) {
      const bool is_slower = is_after && (op == 3 || op == 4);
      const double duration = 1e6 * (is_slower ? 1.6 : 1.0) * (1 + 0.03 * normal(random));
      metrics[fmt::format("op_{}.forward_ns", op)] = duration;
      step += duration;
    }
    metrics["op_host_sync.update_ns"] = 0.2 * step;
    for (const char* name : {"step_ns", "traced_step_ns", "wall_total_ns", "device_busy_ns"}) {
      metrics[name] = step;
    }
    metrics["memory_total_bytes"] = metrics["peak_bytes"] = is_after ? 3e9 : 2e9;
    metrics["memory_activations_bytes"] = is_after ? 2e9 : 1e9;
    metrics["memory_weights_bytes"] = 1e9;
    return metrics;
  });
  const std::vector<std::string> expected = {"memory_activations_bytes", "peak_bytes"};
  std::vector<std::string> names = pair.moved();
  BOOST_REQUIRE(names.size() == 4U);
  BOOST_TEST(std::vector<std::string>(names.begin(), names.begin() + 2) == expected,
             boost::test_tools::per_element());
  std::sort(names.begin() + 2, names.end());
  BOOST_TEST(names[2] == "op_3.forward_ns");
  BOOST_TEST(names[3] == "op_4.forward_ns");
}

BOOST_AUTO_TEST_CASE(what_did_not_move_is_seldom_named) {
  int num_named = 0;
  for (unsigned seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    const Pair pair(3 + static_cast<int>(seed % 3), [&](bool is_after) {
      Metrics metrics;
      for (int phase = 0; phase < 6; ++phase) {
        metrics[fmt::format("phase_{}_ms", phase)] = 10 + 0.1 * normal(random);
      }
      metrics["step_time"] = (is_after ? 102 : 100) + normal(random);
      return metrics;
    });
    num_named += !pair.moved().empty();
  }
  BOOST_TEST(num_named <= 32);  // of 5 % of 400, and four standard deviations
}

BOOST_AUTO_TEST_CASE(rounding_is_no_move) {
  int num_named = 0;
  for (unsigned seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    const Pair pair(3, [&](bool is_after) {
      Metrics metrics;
      for (int phase = 0; phase < 8; ++phase) {
        metrics[fmt::format("phase_{}_ms", phase)] = std::round(5.5 + 0.3 * normal(random));
      }
      metrics["step_time"] = is_after ? 102 : 100;
      return metrics;
    });
    num_named += !pair.moved().empty();
  }
  BOOST_TEST(num_named <= 20);
  // Without noise, but not rounded either.
  const Pair exact(2, [](bool is_after) {
    return Metrics{{"a_ms", is_after ? 5.3017 : 3.4301}, {"step_time", is_after ? 102 : 100.0}};
  });
  BOOST_TEST(exact.moved().size() == 1U);
}

BOOST_AUTO_TEST_CASE(units_are_compared_and_a_small_share_is_left_out) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  const Pair pair(6, [&](bool is_after) {
    const auto level = [&](double before, double after) {
      return (is_after ? after : before) * (1 + 1e-4 * normal(random));
    };
    return Metrics{{"step_ms", level(100, 110)},      {"dispatch_us", level(5000, 9000)},
                   {"combine_s", level(5e-3, 0.011)}, {"tiny_ns", level(1000, 1500)},
                   {"phases.warm", level(7, 9)},      {"tokens_per_s", level(100, 90)}};
  });
  const std::vector<std::string> expected = {"combine_s", "dispatch_us", "phases.warm"};
  BOOST_TEST(pair.moved("step_ms") == expected, boost::test_tools::per_element());
}

// A command's "step_time" has a unit that nobody knows: then no share of it is either.
BOOST_AUTO_TEST_CASE(without_a_unit_of_the_metric_no_share_is_too_small) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  const Pair pair(6, [&](bool is_after) {
    return Metrics{{"step_time", (is_after ? 2e8 : 1e8) + normal(random)},
                   {"dispatch_us", (is_after ? 60 : 50) + 0.01 * normal(random)}};
  });
  BOOST_TEST(pair.moved().size() == 1U);
}

BOOST_AUTO_TEST_CASE(one_run_of_each_shows_what_is_exact_by_its_name) {
  const Pair pair(1, [](bool is_after) {
    return Metrics{{"peak_bytes", is_after ? 2e9 : 1e9},
                   {"num_launches", is_after ? 9 : 8.0},
                   {"layers", is_after ? 9 : 8.0},
                   {"attention_ms", is_after ? 9 : 8.0}};
  });
  const std::vector<std::string> expected = {"num_launches"};
  BOOST_TEST(pair.moved("peak_memory") == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(odd_numbers_do_no_harm) {
  constexpr double kHuge = std::numeric_limits<double>::max();
  for (const double odd :
       {0.0, -1.0, 1e-320, 1e99, -1e100, kHuge, std::numeric_limits<double>::quiet_NaN()}) {
    const Pair pair(3, [&](bool is_after) {
      return Metrics{{"step_ns", is_after ? odd : 1.0},
                     {"a_ms", is_after ? odd : -odd},
                     {"num_b", is_after ? odd : 1.0}};
    });
    static_cast<void>(pair.moved());
    static_cast<void>(pair.moved("a_ms"));
  }
  BOOST_TEST(moved_between({}, {}, "step_time", 0.02).empty());
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
