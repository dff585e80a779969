// Whole hunts over synthetic histories: which metric is followed, what is confirmed, what becomes
// of failing commits, and that an interrupted hunt goes on without repeating anything.
#include "sweeps/bisect/hunt.h"

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <random>
#include <set>

namespace moetune::sweeps {
namespace {

/// Commits whose runs a function writes.
class FakeSource : public HuntSource {
 public:
  using Model = std::function<void(int position, CommitRun& run, std::mt19937_64& random)>;

  explicit FakeSource(Model model, unsigned seed = 1) : model_(std::move(model)), random_(seed) {}

  CommitRun measure(int position, const std::string& purpose) override {
    CommitRun run;
    run.status = RunStatus::ok;
    run.run_seconds = 10;
    if (built.insert(position).second) {
      run.was_built_now = true;
      run.build_seconds = 50;
    }
    model_(position, run, random_);
    made.push_back({position, purpose, run});
    return run;
  }
  [[nodiscard]] bool is_built(int position) const override { return built.contains(position); }

  std::vector<HuntRun> made;
  std::set<int> built;

 private:
  Model model_;
  std::mt19937_64 random_;
};

HuntSetup setup_of(int num_commits, const std::string& metric = "step_time") {
  HuntSetup setup;
  for (int i = 0; i <= num_commits; ++i) {
    setup.commits.push_back({fmt::format("{:040x}", 0xabc000 + i), fmt::format("commit {}", i),
                             "A. Author", "2026-01-01T00:00:00+00:00"});
  }
  setup.metric = metric;
  return setup;
}

double noise(std::mt19937_64& random, double scale) {
  return std::normal_distribution<double>(0.0, scale)(random);
}

BOOST_AUTO_TEST_SUITE(hunt)

BOOST_AUTO_TEST_CASE(a_slower_commit_is_found_in_noise) {
  FakeSource source([](int p, CommitRun& run, std::mt19937_64& random) {
    run.value = (p >= 23 ? 104.0 : 100.0) + noise(random, 1.5);
  });
  const HuntSetup setup = setup_of(32);
  const HuntAnswer answer = run_hunt(setup, source);
  BOOST_REQUIRE(answer.result.culprits.size() == 1U);
  BOOST_TEST(answer.result.culprits[0].position == 23);
  BOOST_TEST(answer.num_runs == static_cast<int>(source.made.size()));
  BOOST_TEST(answer.num_builds == static_cast<int>(source.built.size()));
  const nlohmann::json document = to_json(answer, setup);
  BOOST_TEST(document.at("verdict") == "culprit");
  BOOST_TEST(document.at("culprits").at(0).at("commit") == setup.commits[23].id);
  BOOST_TEST(to_text(answer, setup).find("commit 23") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_memory_group_that_grew_is_found_exactly_and_named) {
  for (const int culprit : {1, 17, 63, 64}) {
    FakeSource source([&](int p, CommitRun& run, std::mt19937_64& random) {
      const double grown = p >= culprit ? 300e6 : 0;
      run.metrics["memory_weights_bytes"] = 900e6;
      run.metrics["memory_activations_bytes"] = 2e9 + grown;
      run.metrics["peak_bytes"] = 2.9e9 + grown;
      run.metrics["step_ns"] = 1e6 * (100 + noise(random, 3));
    });
    const HuntAnswer answer = run_hunt(setup_of(64, "peak_memory"), source);
    BOOST_REQUIRE(answer.result.culprits.size() == 1U);
    BOOST_TEST(answer.result.culprits[0].position == culprit);
    BOOST_TEST(answer.num_runs <= 6 + 2);
    BOOST_REQUIRE(!answer.moved[0].empty());
    BOOST_TEST(answer.moved[0][0].name == "memory_activations_bytes");
  }
}

BOOST_AUTO_TEST_CASE(a_counter_that_changed_with_the_time_shows_the_place) {
  FakeSource source([](int p, CommitRun& run, std::mt19937_64& random) {
    run.metrics["step_ns"] = 1e6 * ((p >= 40 ? 106 : 100) + noise(random, 2));
    run.metrics["num_launches"] = p >= 40 ? 4100 : 3000;
    run.metrics["peak_bytes"] = 1e9;
  });
  const HuntAnswer answer = run_hunt(setup_of(64), source);
  BOOST_REQUIRE(answer.result.culprits.size() == 1U);
  BOOST_TEST(answer.result.culprits[0].position == 40);
  BOOST_TEST(answer.hunted_metric == "num_launches");
  // The effect is that of the metric that was asked for.
  BOOST_TEST(answer.result.culprits[0].effect_ratio > 0.03);
  BOOST_TEST(answer.result.culprits[0].effect_ratio < 0.09);
  BOOST_TEST(answer.result.culprits[0].confidence >= 0.95);
  BOOST_REQUIRE(!answer.moved[0].empty());
  BOOST_TEST(answer.moved[0][0].name == "num_launches");
}

BOOST_AUTO_TEST_CASE(a_counter_that_changed_elsewhere_is_not_believed) {
  FakeSource source([](int p, CommitRun& run, std::mt19937_64& random) {
    run.metrics["step_ns"] = 1e6 * ((p >= 40 ? 106 : 100) + noise(random, 2));
    run.metrics["num_launches"] = p >= 10 ? 4100 : 3000;
  });
  const HuntAnswer answer = run_hunt(setup_of(64), source);
  BOOST_REQUIRE(answer.result.culprits.size() == 1U);
  BOOST_TEST(answer.result.culprits[0].position == 40);
  BOOST_TEST(answer.hunted_metric == "step_time");
}

BOOST_AUTO_TEST_CASE(a_part_with_less_noise_is_followed_and_confirmed) {
  FakeSource source([](int p, CommitRun& run, std::mt19937_64& random) {
    const double part = 1e6 * ((p >= 30 ? 24 : 20) + noise(random, 0.2));
    run.metrics["op_dispatch.forward_ns"] = part;
    run.metrics["step_ns"] = 1e6 * (80 + noise(random, 2)) + part;
  });
  const HuntAnswer answer = run_hunt(setup_of(64), source);
  BOOST_REQUIRE(answer.result.culprits.size() == 1U);
  BOOST_TEST(answer.result.culprits[0].position == 30);
  BOOST_TEST(answer.hunted_metric == "op_dispatch.forward_ns");
  BOOST_REQUIRE(!answer.moved[0].empty());
  BOOST_TEST(answer.moved[0][0].name == "op_dispatch.forward_ns");
}

BOOST_AUTO_TEST_CASE(running_out_of_memory_is_a_regression_itself) {
  FakeSource source([](int p, CommitRun& run, std::mt19937_64& random) {
    run.value = 100 + noise(random, 1);
    if (p >= 13) {
      run.status = RunStatus::oom;
      run.value.reset();
      run.message = "out of memory on rank 0";
    }
  });
  const HuntAnswer answer = run_hunt(setup_of(16), source);
  BOOST_REQUIRE(answer.result.culprits.size() == 1U);
  BOOST_TEST(answer.result.culprits[0].position == 13);
  BOOST_TEST(answer.note.find("out of memory on rank 0") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(commits_that_do_not_build_are_passed_by) {
  FakeSource source([](int p, CommitRun& run, std::mt19937_64& random) {
    if (p >= 14 && p <= 18) {
      run.status = RunStatus::build_failed;
      run.message = "no rule to make target";
      return;
    }
    run.value = (p >= 22 ? 110 : 100) + noise(random, 1);
  });
  const HuntAnswer answer = run_hunt(setup_of(32), source);
  BOOST_REQUIRE(answer.result.culprits.size() == 1U);
  BOOST_TEST(answer.result.culprits[0].position == 22);
}

BOOST_AUTO_TEST_CASE(when_nothing_builds_that_is_the_answer) {
  FakeSource source([](int, CommitRun& run, std::mt19937_64&) {
    run.status = RunStatus::build_failed;
    run.message = "no compiler";
  });
  const HuntAnswer answer = run_hunt(setup_of(32), source);
  BOOST_TEST((answer.result.verdict == tuner::HuntVerdict::unresolved));
  BOOST_TEST(answer.result.reason.find("no compiler") != std::string::npos);
  BOOST_TEST(source.made.size() <= 2U);
}

BOOST_AUTO_TEST_CASE(an_interrupted_hunt_repeats_nothing) {
  const auto model = [](int p, CommitRun& run, std::mt19937_64& random) {
    run.value = (p >= 9 ? 105.0 : 100.0) + noise(random, 2);
  };
  FakeSource whole(model, 5);
  const HuntAnswer expected = run_hunt(setup_of(32), whole);
  BOOST_REQUIRE(expected.result.culprits.size() == 1U);
  for (const size_t cut : {size_t{1}, size_t{7}, size_t{15}, whole.made.size() - 1}) {
    HuntSetup setup = setup_of(32);
    setup.earlier.assign(whole.made.begin(), whole.made.begin() + static_cast<std::ptrdiff_t>(cut));
    // What is still to come, as it came the first time.
    size_t next = cut;
    FakeSource rest([&](int p, CommitRun& run, std::mt19937_64&) {
      BOOST_REQUIRE(next < whole.made.size());
      BOOST_TEST(whole.made[next].position == p);
      run = whole.made[next++].run;
    });
    const HuntAnswer answer = run_hunt(setup, rest);
    BOOST_TEST(answer.num_runs == expected.num_runs);
    BOOST_REQUIRE(answer.result.culprits.size() == 1U);
    BOOST_TEST(answer.result.culprits[0].position == expected.result.culprits[0].position);
    BOOST_TEST(answer.result.culprits[0].confidence == expected.result.culprits[0].confidence);
  }
}

BOOST_AUTO_TEST_CASE(a_stop_and_a_used_up_budget_leave_what_is_known) {
  const auto model = [](int p, CommitRun& run, std::mt19937_64& random) {
    run.value = (p >= 9 ? 105.0 : 100.0) + noise(random, 2);
  };
  FakeSource stopped(model);
  HuntSetup setup = setup_of(32);
  setup.is_stop_asked = [&] { return stopped.made.size() >= 5; };
  HuntAnswer answer = run_hunt(setup, stopped);
  BOOST_TEST(answer.is_interrupted);
  BOOST_TEST(answer.num_runs == 5);

  FakeSource short_of_time(model);
  setup = setup_of(32);
  setup.max_seconds = 300;
  answer = run_hunt(setup, short_of_time);
  BOOST_TEST((answer.result.verdict == tuner::HuntVerdict::unresolved));
  BOOST_TEST(answer.result.reason.find("used up") != std::string::npos);
  BOOST_TEST(answer.seconds < 400);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::sweeps
