// Whole hunts over synthetic histories: which metric is followed, what is confirmed, what becomes
// of failing commits, and that an interrupted hunt goes on without repeating anything.
#include "sweeps/bisect/hunt.h"

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "sweeps/bisect/commit_source.h"
#include "sweeps/bisect/metric_names.h"
#include "sweeps/bisect/old_runs.h"
#include "tests/bisect/git_fixture.h"
#include "tests/bisect/whole_hunts.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(hunt)

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
  void discard_build(int position) override { built.erase(position); }

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

BOOST_AUTO_TEST_CASE(a_counter_does_not_hide_a_second_culprit) {
  int num_both = 0;
  for (unsigned seed = 1; seed <= 5; ++seed) {
    FakeSource source(
        [](int p, CommitRun& run, std::mt19937_64& random) {
          run.metrics["step_ns"] =
              1e6 * (100 + (p >= 40 ? 8 : 0) + (p >= 12 ? 8 : 0) + noise(random, 2));
          run.metrics["num_launches"] = p >= 40 ? 4100 : 3000;
        },
        seed);
    const HuntAnswer answer = run_hunt(setup_of(64), source);
    std::set<int> named;
    for (const tuner::Culprit& culprit : answer.result.culprits) named.insert(culprit.position);
    num_both += named == std::set<int>{12, 40};
  }
  BOOST_TEST(num_both >= 4);
}

BOOST_AUTO_TEST_CASE(the_counter_that_changed_most_need_not_be_the_one) {
  FakeSource source([](int p, CommitRun& run, std::mt19937_64& random) {
    run.metrics["step_ns"] = 1e6 * ((p >= 40 ? 108 : 100) + noise(random, 2));
    run.metrics["num_kernels"] = p >= 10 ? 9000 : 3000;
    run.metrics["num_launches"] = p >= 40 ? 4100 : 3000;
  });
  const HuntAnswer answer = run_hunt(setup_of(64), source);
  BOOST_REQUIRE(answer.result.culprits.size() == 1U);
  BOOST_TEST(answer.result.culprits[0].position == 40);
  BOOST_TEST(answer.hunted_metric == "num_launches");
}

BOOST_AUTO_TEST_CASE(a_changed_default_shows_the_place) {
  FakeSource source([](int p, CommitRun& run, std::mt19937_64& random) {
    run.metrics["step_ns"] = 1e6 * ((p >= 21 ? 106 : 100) + noise(random, 2));
    run.config["data_path"] = p % 2 == 0 ? "\"here\"" : "\"there\"";
    run.config["knobs.recompute"] = p >= 21 ? "\"full\"" : "\"none\"";
    if (p >= 5) run.config["knobs.new_option"] = "1";
    run.config["a_run_id"] = fmt::format("{}", random());
  });
  const HuntSetup setup = setup_of(64);
  const HuntAnswer answer = run_hunt(setup, source);
  BOOST_REQUIRE(answer.result.culprits.size() == 1U);
  BOOST_TEST(answer.result.culprits[0].position == 21);
  BOOST_TEST(answer.result.culprits[0].effect_ratio > 0.03);
  BOOST_TEST(answer.hunted_metric == "config knobs.recompute");
  BOOST_TEST(answer.config_changes.size() == 2U);
  const std::string text = to_text(answer, setup);
  BOOST_TEST(text.find("config: knobs.recompute: \"none\" -> \"full\"") != std::string::npos);
  BOOST_TEST(text.find("knobs.new_option: (none) -> 1") != std::string::npos);
  const nlohmann::json document = to_json(answer, setup);
  BOOST_TEST(document.at("culprits").at(0).at("config").at(0).at("name") == "knobs.recompute");
}

BOOST_AUTO_TEST_CASE(a_metric_that_is_only_called_exact_is_taken_as_noisy) {
  FakeSource source([](int p, CommitRun& run, std::mt19937_64& random) {
    run.value = std::round((p >= 23 ? 108e6 : 100e6) + noise(random, 2e6));
  });
  const HuntAnswer answer = run_hunt(setup_of(32, "peak_memory"), source);
  BOOST_REQUIRE(answer.result.culprits.size() == 1U);
  BOOST_TEST(answer.result.culprits[0].position == 23);
  BOOST_TEST(answer.result.noise_ratio > 0.005);
  BOOST_TEST(answer.note.find("counts as noisy") != std::string::npos);
  for (const char* name : {"peak_tflops", "num_tokens_per_s", "process_rss_bytes", "step_ns"}) {
    BOOST_TEST(!is_exact_metric(name));
  }
  for (const char* name : {"peak_bytes", "memory_weights_bytes", "num_launches", "flops"}) {
    BOOST_TEST(is_exact_metric(name));
  }
}

BOOST_AUTO_TEST_CASE(other_failures_are_not_the_one_that_is_hunted) {
  FakeSource source([](int p, CommitRun& run, std::mt19937_64& random) {
    run.value = 100 + noise(random, 1);
    run.status = p >= 13 ? RunStatus::oom : p >= 6 && p <= 8 ? RunStatus::crashed : RunStatus::ok;
    if (run.status != RunStatus::ok) run.value.reset();
    run.message = name_of(run.status);
  });
  const HuntSetup setup = setup_of(16);
  const HuntAnswer answer = run_hunt(setup, source);
  BOOST_REQUIRE(answer.result.culprits.size() == 1U);
  BOOST_TEST(answer.result.culprits[0].position == 13);
  BOOST_TEST(answer.failure == "oom");
  BOOST_REQUIRE(!answer.skipped.empty());
  BOOST_TEST(answer.skipped[0].status == "crashed");
  // The culprit and its parent were looked at twice.
  for (const int position : {12, 13}) {
    BOOST_TEST(std::count_if(source.made.begin(), source.made.end(),
                             [&](const HuntRun& run) { return run.position == position; }) >= 2);
  }
  BOOST_TEST(to_text(answer, setup).find("ends as oom") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_first_commit_that_does_not_build_is_a_culprit) {
  FakeSource source([](int p, CommitRun& run, std::mt19937_64&) {
    run.value = 1.0;
    if (p < 20) return;
    run.status = RunStatus::build_failed;
    run.value.reset();
    run.message = "error: expected ';'";
  });
  const HuntAnswer answer = run_hunt(setup_of(32), source);
  BOOST_REQUIRE(answer.result.culprits.size() == 1U);
  BOOST_TEST(answer.result.culprits[0].position == 20);
  BOOST_TEST(answer.failure == "build_failed");
}

// From the second build on none succeeds: the network is gone, not a commit to blame.
BOOST_AUTO_TEST_CASE(builds_that_fail_since_an_outage_blame_no_commit) {
  int num_built = 0;
  FakeSource source([&](int, CommitRun& run, std::mt19937_64&) {
    run.value = 100.0;
    if (!run.was_built_now || ++num_built == 1) return;
    run.status = RunStatus::build_failed;
    run.value.reset();
    run.message = "Could not resolve host";
  });
  const HuntSetup setup = setup_of(32);
  const HuntAnswer answer = run_hunt(setup, source);
  BOOST_TEST((answer.result.verdict == tuner::HuntVerdict::unresolved));
  BOOST_TEST(answer.result.culprits.empty());
  BOOST_TEST(answer.result.suspects.empty());
  BOOST_TEST(to_text(answer, setup).find("--fresh") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_bad_end_that_cannot_be_checked_out_is_not_the_regression) {
  const auto model = [](int missing) {
    return [missing](int p, CommitRun& run, std::mt19937_64& random) {
      run.value = (p >= 20 ? 110.0 : 100.0) + noise(random, 1);
      if (p != missing) return;
      run.status = RunStatus::not_prepared;
      run.value.reset();
      run.message = "a submodule is gone";
    };
  };
  FakeSource at_the_end(model(32));
  HuntAnswer answer = run_hunt(setup_of(32), at_the_end);
  BOOST_TEST((answer.result.verdict == tuner::HuntVerdict::unresolved));
  BOOST_TEST(answer.result.reason.find("bad end cannot be measured") != std::string::npos);
  FakeSource inside(model(16));
  answer = run_hunt(setup_of(32), inside);
  BOOST_REQUIRE(answer.result.culprits.size() == 1U);
  BOOST_TEST(answer.result.culprits[0].position == 20);
  BOOST_REQUIRE(answer.skipped.size() == 1U);
  BOOST_TEST(answer.skipped[0].status == "not_prepared");
}

BOOST_AUTO_TEST_CASE(a_failure_that_comes_and_goes_is_no_culprit) {
  FakeSource source([](int p, CommitRun& run, std::mt19937_64& random) {
    run.value = 100.0;
    const bool fails = p == 16 || (p >= 5 && std::bernoulli_distribution(0.5)(random));
    if (!fails) return;
    run.status = RunStatus::hung;
    run.value.reset();
    run.message = "no end";
  });
  int num_named = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    source.made.clear();
    const HuntAnswer answer = run_hunt(setup_of(16), source);
    num_named += !answer.result.culprits.empty() && answer.result.culprits[0].position != 5;
  }
  BOOST_TEST(num_named <= 8);  // of about 16 places with one look
}

BOOST_AUTO_TEST_CASE(commits_that_cannot_be_measured_around_the_place_end_the_hunt) {
  FakeSource source([](int p, CommitRun& run, std::mt19937_64& random) {
    if (p >= 14 && p <= 18) {
      run.status = RunStatus::crashed;
      run.message = "no such option";
      return;
    }
    run.value = (p >= 16 ? 110 : 100) + noise(random, 1);
  });
  const HuntAnswer answer = run_hunt(setup_of(32), source);
  BOOST_TEST((answer.result.verdict == tuner::HuntVerdict::unresolved));
  BOOST_TEST(answer.result.culprits.empty());
  BOOST_TEST(answer.result.suspects == (std::vector<int>{14, 15, 16, 17, 18, 19}),
             boost::test_tools::per_element());
  BOOST_TEST(answer.num_runs <= 40);
  BOOST_TEST(answer.skipped.size() == 5U);
}

BOOST_AUTO_TEST_CASE(a_bad_end_that_fails_now_and_then_is_measured_all_the_same) {
  FakeSource source([](int p, CommitRun& run, std::mt19937_64& random) {
    run.value = (p >= 23 ? 110.0 : 100.0) + noise(random, 1.5);
    if (p < 23 || !std::bernoulli_distribution(0.3)(random)) return;
    run.status = RunStatus::oom;
    run.value.reset();
  });
  const HuntAnswer answer = run_hunt(setup_of(32), source);
  BOOST_REQUIRE(answer.result.culprits.size() == 1U);
  BOOST_TEST(answer.result.culprits[0].position == 23);
}

BOOST_AUTO_TEST_CASE(counters_of_other_programs_are_followed_by_what_they_are) {
  FakeSource source(
      [](int p, CommitRun& run, std::mt19937_64& random) {
        run.value = (p >= 40 ? 106.0 : 100.0) + noise(random, 1);
        run.metrics["kernels"] = p >= 40 ? 520 : 500;
        run.metrics["layers"] = 24;
        run.metrics["temperature"] = 60 + noise(random, 1);
      },
      2);
  const HuntAnswer answer = run_hunt(setup_of(64), source);
  BOOST_REQUIRE(answer.result.culprits.size() == 1U);
  BOOST_TEST(answer.result.culprits[0].position == 40);
  BOOST_TEST(answer.hunted_metric == "kernels");
  BOOST_REQUIRE(answer.moved[0].size() == 1U);
  BOOST_TEST(answer.moved[0][0].name == "kernels");
}

// A build's number or a checksum is the same in all runs of a commit and differs in all commits.
BOOST_AUTO_TEST_CASE(counters_that_change_with_every_commit_cost_few_builds) {
  for (const bool is_checksum : {false, true}) {
    FakeSource source([&](int p, CommitRun& run, std::mt19937_64& random) {
      run.value = (p >= 23 ? 110.0 : 100.0) + noise(random, 2);
      run.metrics["build_number"] = is_checksum ? (p * 7919) % 1000 + 1 : 100 + 10 * p;
    });
    const HuntAnswer answer = run_hunt(setup_of(64), source);
    BOOST_REQUIRE(answer.result.culprits.size() == 1U);
    BOOST_TEST(answer.result.culprits[0].position == 23);
    BOOST_TEST(answer.num_builds <= 12);
  }
}

BOOST_AUTO_TEST_CASE(phases_of_other_programs_are_followed_too) {
  FakeSource source([](int p, CommitRun& run, std::mt19937_64& random) {
    const double part = (p >= 30 ? 0.24 : 0.2) + noise(random, 0.002);
    run.metrics["dispatch_ms"] = 1e3 * part;
    run.value = run.metrics["step_time"] = 0.8 + noise(random, 0.02) + part;
  });
  const HuntAnswer answer = run_hunt(setup_of(64), source);
  BOOST_REQUIRE(answer.result.culprits.size() == 1U);
  BOOST_TEST(answer.result.culprits[0].position == 30);
  BOOST_REQUIRE(!answer.moved[0].empty());
  BOOST_TEST(answer.moved[0][0].name == "dispatch_ms");
}

// The benchmark has a thousand hunts of each.
BOOST_AUTO_TEST_CASE(whole_hunts_are_as_right_as_they_claim) {
  const tests::WholeHuntCase cases[] = {
      {.name = "plain"},
      {.name = "a counter shows it", .has_counter = true},
      {.name = "another counter", .has_other_counter = true},
      {.name = "a part shows it", .has_part = true},
      // In one of 25 of these the step does not follow, which only the plain step time can say.
      {.name = "all parts show the noise",
       .shift = 0.7,
       .has_common_speed = true,
       .min_effect_ratio = 0.007,
       .wander = 2},
      {.name = "some parts of them change",
       .shift = 0.7,
       .has_common_speed = true,
       .is_spread = true,
       .min_effect_ratio = 0.007},
  };
  for (const tests::WholeHuntCase& c : cases) {
    const tests::HuntStatistics statistics = tests::run_whole_hunts(c, 60);
    BOOST_TEST_CONTEXT(c.name << ": right " << statistics.right() << ", claimed "
                              << statistics.mean_claimed() << ", delivered "
                              << statistics.delivered()) {
      BOOST_TEST(statistics.right() >= (c.has_common_speed ? 0.86 : 0.92));
      BOOST_TEST(statistics.delivered() >= statistics.mean_claimed() - 0.05);
    }
  }
}

BOOST_AUTO_TEST_CASE(old_runs_are_used_while_the_machine_is_the_same) {
  const auto model = [](double machine) {
    return [machine](int p, CommitRun& run, std::mt19937_64& random) {
      run.value = machine * ((p >= 9 ? 105.0 : 100.0) + noise(random, 1));
    };
  };
  for (const double machine : {1.0, 1.2}) {
    FakeSource before(model(1.0), 2);
    HuntSetup setup = setup_of(32);
    run_hunt(setup, before);
    setup.earlier = before.made;
    for (HuntRun& run : setup.earlier) run.num_pauses = 1;
    FakeSource now(model(machine), 3);
    const HuntAnswer answer = run_hunt(setup, now);
    BOOST_REQUIRE(answer.result.culprits.size() == 1U);
    BOOST_TEST(answer.result.culprits[0].position == 9);
    BOOST_TEST(answer.has_dropped_earlier == (machine > 1));
    if (machine > 1) {
      BOOST_TEST(now.made.size() > 10U);
      BOOST_TEST(answer.result.culprits[0].before > 115);
    } else {
      BOOST_TEST(now.made.size() <= 12U);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_bad_end_that_fails_no_more_is_measured_anew) {
  HuntSetup setup = setup_of(32);
  for (int i = 0; i < 8; ++i) {
    HuntRun run{i % 2 == 0 ? 0 : 32, "ends", {}, 1};
    if (i % 2 == 0) {
      run.run.value = 100;
    } else {
      run.run.status = RunStatus::oom;
    }
    setup.earlier.push_back(run);
  }
  FakeSource now([](int p, CommitRun& run, std::mt19937_64& random) {
    run.value = (p >= 9 ? 106.0 : 100.0) + noise(random, 1);
  });
  const HuntAnswer answer = run_hunt(setup, now);
  BOOST_TEST(answer.failure == "");
  BOOST_REQUIRE(answer.result.culprits.size() == 1U);
  BOOST_TEST(answer.result.culprits[0].position == 9);
}

BOOST_AUTO_TEST_CASE(a_hunt_that_is_stopped_shows_what_was_asked_for) {
  FakeSource source([](int p, CommitRun& run, std::mt19937_64& random) {
    run.metrics["step_ns"] = 1e6 * ((p >= 40 ? 106 : 100) + noise(random, 1));
    run.metrics["num_launches"] = p >= 40 ? 9000 : 3000;
  });
  HuntSetup setup = setup_of(64);
  setup.max_runs = 14;
  const HuntAnswer answer = run_hunt(setup, source);
  BOOST_TEST(answer.is_interrupted);
  BOOST_TEST(answer.result.effect_ratio < 0.2);
  BOOST_TEST(answer.result.noise_ratio > 0);
  BOOST_TEST(answer.result.reason.find("used up") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(another_machine_without_a_slower_commit_is_the_environment) {
  HuntSetup setup = setup_of(32);
  for (int i = 0; i < 16; ++i) {
    HuntRun run{i % 2 == 0 ? 0 : 32, "ends", {}, 1};
    run.run.value = (i % 2 == 0 ? 80 : 90) + 0.1 * i;
    setup.earlier.push_back(run);
  }
  FakeSource now(
      [](int, CommitRun& run, std::mt19937_64& random) { run.value = 100.0 + noise(random, 1); });
  const HuntAnswer answer = run_hunt(setup, now);
  BOOST_TEST(answer.has_dropped_earlier);
  BOOST_TEST((answer.result.verdict == tuner::HuntVerdict::environment_changed));
}

BOOST_AUTO_TEST_CASE(a_slower_commit_is_found_while_the_speed_wanders) {
  int num_right = 0;
  for (unsigned seed = 1; seed <= 5; ++seed) {
    double speed = 0;
    FakeSource source(
        [&speed](int p, CommitRun& run, std::mt19937_64& random) {
          speed = 0.9 * speed + noise(random, 0.44);
          run.metrics["step_ns"] = 1e6 * ((p >= 20 ? 103 : 100) + 3 * speed + noise(random, 0.5));
        },
        seed);
    const HuntAnswer answer = run_hunt(setup_of(32), source);
    num_right += answer.result.culprits.size() == 1U && answer.result.culprits[0].position == 20;
  }
  BOOST_TEST(num_right >= 4);
}

BOOST_AUTO_TEST_CASE(the_settings_of_the_cards_are_part_of_the_machine) {
  const tests::TempFolder folder;
  const std::string program = folder.file("nvidia-smi");
  std::ofstream(program) << "#!/bin/sh\necho 'Some Card, 580.1, 1980 MHz, \033[31m700 W'\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const tests::Variable path("PATH", folder.file("") + ":" + std::getenv("PATH"));
  const std::string identity = machine_identity();
  BOOST_TEST(identity.find("GPUs Some Card, 580.1, 1980 MHz") != std::string::npos);
  BOOST_TEST(identity.find('\x1b') == std::string::npos);
}

/// A hunt that is cut at several places goes on with the same questions to the same answer.
void check_resuming(const HuntSetup& planned, const FakeSource::Model& model, unsigned seed) {
  FakeSource whole(model, seed);
  const HuntAnswer expected = run_hunt(planned, whole);
  BOOST_REQUIRE(expected.result.culprits.size() == 1U);
  const size_t num_runs = whole.made.size();
  for (const size_t cut :
       {size_t{1}, size_t{7}, size_t{15}, num_runs / 2, num_runs * 3 / 4, num_runs - 1}) {
    HuntSetup setup = planned;
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
    BOOST_TEST(answer.note == expected.note);
  }
}

BOOST_AUTO_TEST_CASE(an_interrupted_hunt_repeats_nothing) {
  check_resuming(
      setup_of(32),
      [](int p, CommitRun& run, std::mt19937_64& random) {
        run.value = (p >= 9 ? 105.0 : 100.0) + noise(random, 2);
      },
      5);
}

BOOST_AUTO_TEST_CASE(an_interrupted_hunt_goes_on_while_the_machine_drifts) {
  int num_runs = 0;
  check_resuming(
      setup_of(32),
      [&](int p, CommitRun& run, std::mt19937_64& random) {
        run.value = (p >= 9 ? 106.0 : 100.0) + 0.2 * num_runs++ + noise(random, 2);
      },
      6);
}

BOOST_AUTO_TEST_CASE(an_interrupted_hunt_goes_on_with_a_part) {
  HuntSetup setup = setup_of(32);
  setup.min_effect_ratio = 0.01;
  check_resuming(
      setup,
      [](int p, CommitRun& run, std::mt19937_64& random) {
        const double work = p >= 20 ? 2.0 : 0.0;
        run.metrics["op_a.forward_ns"] = 1e6 * (10 + work + noise(random, 0.05));
        run.metrics["step_ns"] = 1e6 * (100 + work + noise(random, 3));
      },
      2);
}

BOOST_AUTO_TEST_CASE(an_end_is_compared_with_what_it_was) {
  const EndRuns now{{100, 101, 99, 300, 300, 300}, 0};
  BOOST_TEST(is_as_it_was({{100, 99, 101}, 0}, now, 0.02, 0.95));
  BOOST_TEST(!is_as_it_was({{120, 119, 121}, 0}, now, 0.02, 0.95));
  // Nothing is known of then; it failed then, and does no more; it fails now.
  BOOST_TEST(is_as_it_was({}, now, 0.02, 0.95));
  BOOST_TEST(!is_as_it_was({{}, 2}, now, 0.02, 0.95));
  BOOST_TEST(is_as_it_was({{}, 2}, {{}, 3}, 0.02, 0.95));
  BOOST_TEST(!is_as_it_was({{100, 99, 101}, 0}, {{}, 3}, 0.02, 0.95));
  // Too few to tell.
  BOOST_TEST(is_as_it_was({{120, 121}, 0}, now, 0.02, 0.95));
}

BOOST_AUTO_TEST_CASE(long_pauses_divide_the_runs) {
  const std::vector<int> pauses = pauses_since({{"2026-01-01T00:00:00.000Z", 10},
                                                {"2026-01-01T00:30:00.000Z", 10},
                                                {"2026-01-01T03:00:00.000Z", 7200},
                                                {"2026-01-01T06:00:00.000Z", 10},
                                                {"not a time", 10}});
  BOOST_TEST(pauses == (std::vector<int>{2, 2, 2, 1, 1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_used_up_budget_leaves_the_culprits_that_were_verified) {
  const auto model = [](int p, CommitRun& run, std::mt19937_64& random) {
    run.value = (p >= 9 ? 112.0 : 100.0) + (p >= 24 ? 4.0 : 0.0) + noise(random, 1);
  };
  FakeSource whole(model);
  const HuntAnswer both = run_hunt(setup_of(32), whole);
  BOOST_REQUIRE(both.result.culprits.size() == 2U);
  bool has_one = false;
  for (double most = 100; most < both.seconds; most += 10) {
    FakeSource source(model);
    HuntSetup setup = setup_of(32);
    setup.max_seconds = most;
    const HuntAnswer answer = run_hunt(setup, source);
    BOOST_TEST((answer.result.verdict == tuner::HuntVerdict::unresolved));
    BOOST_TEST(answer.result.reason.find("used up") != std::string::npos);
    for (const tuner::Culprit& culprit : answer.result.culprits) {
      BOOST_TEST((culprit.position == 9 || culprit.position == 24));
      has_one = true;
    }
  }
  BOOST_TEST(has_one);
}

BOOST_AUTO_TEST_CASE(what_another_metric_found_is_told_where_it_could_not_be_confirmed) {
  // It grows at 20, hidden by other work; the step grows at 8, and there are too few runs for that.
  const auto model = [](int p, CommitRun& run, std::mt19937_64& random) {
    const double work = p >= 20 ? 3.0 : 0.0;
    run.metrics["op_a.forward_ns"] = 1e6 * (10 + work + noise(random, 0.05));
    run.metrics["step_ns"] = 1e6 * ((p >= 8 ? 104 : 100) + noise(random, 2));
  };
  bool has_told = false;
  for (unsigned seed = 1; seed <= 5; ++seed) {
    FakeSource source(model, seed);
    HuntSetup setup = setup_of(32);
    setup.max_runs = 40;
    const HuntAnswer answer = run_hunt(setup, source);
    for (const tuner::Culprit& culprit : answer.result.culprits) {
      BOOST_TEST(culprit.position == 8);
    }
    if (answer.result.verdict != tuner::HuntVerdict::unresolved) continue;
    has_told = has_told || answer.note.find("op_a.forward_ns changes at") == 0;
  }
  BOOST_TEST(has_told);
}

BOOST_AUTO_TEST_CASE(a_part_shows_what_the_step_is_too_noisy_to_show) {
  int num_right = 0;
  int num_by_part = 0;
  for (unsigned seed = 1; seed <= 10; ++seed) {
    FakeSource source(
        [](int p, CommitRun& run, std::mt19937_64& random) {
          const double work = p >= 20 ? 2.0 : 0.0;
          run.metrics["op_a.forward_ns"] = 1e6 * (10 + work + noise(random, 0.05));
          run.metrics["step_ns"] = 1e6 * (100 + work + noise(random, 5));
        },
        seed);
    HuntSetup setup = setup_of(32);
    setup.min_effect_ratio = 0.01;
    const HuntAnswer answer = run_hunt(setup, source);
    for (const tuner::Culprit& culprit : answer.result.culprits) {
      BOOST_TEST(culprit.position == 20);
    }
    if (answer.result.culprits.size() != 1U) continue;
    ++num_right;
    num_by_part += answer.hunted_metric == "op_a.forward_ns";
    BOOST_TEST(answer.result.culprits[0].confidence >= 0.95);
  }
  BOOST_TEST(num_right >= 5);
  BOOST_TEST(num_by_part >= 3);
}

BOOST_AUTO_TEST_CASE(a_change_beyond_all_doubt_has_a_finite_confidence) {
  FakeSource source([](int p, CommitRun& run, std::mt19937_64& random) {
    const double work = p >= 20 ? 50.0 : 0.0;
    run.metrics["op_a.forward_ns"] = 1e6 * (10 + work + noise(random, 1e-5));
    run.metrics["step_ns"] = 1e6 * (100 + work + noise(random, 1e-3));
  });
  const HuntAnswer answer = run_hunt(setup_of(32), source);
  BOOST_REQUIRE(answer.result.culprits.size() == 1U);
  BOOST_TEST(answer.result.culprits[0].position == 20);
  BOOST_TEST(answer.hunted_metric == "op_a.forward_ns");
  BOOST_TEST(answer.result.culprits[0].confidence >= 0.95);
  BOOST_TEST(answer.result.culprits[0].confidence <= 1.0);
}

BOOST_AUTO_TEST_CASE(progress_says_how_far_it_is) {
  std::vector<std::string> lines;
  const auto hunt = [&](const std::string& metric, const FakeSource::Model& model) {
    lines.clear();
    FakeSource source(model);
    HuntSetup setup = setup_of(64, metric);
    setup.on_progress = [&](const std::string& line) {
      if (line.starts_with("[")) lines.push_back(line);
    };
    BOOST_TEST(run_hunt(setup, source).result.culprits.size() == 1U);
    BOOST_REQUIRE(lines.size() == source.made.size());
    BOOST_TEST(lines.back().find("about ") == std::string::npos);
  };
  const auto holds = [&](const std::string& part) {
    return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.find(part) != std::string::npos;
    });
  };
  hunt("peak_memory", [](int p, CommitRun& run, std::mt19937_64&) {
    run.metrics["peak_bytes"] = p >= 40 ? 2e9 : 1e9;
  });
  for (const char* part : {"; 32 commits left", "; 4 commits left", "; 1 commit left", "to go"}) {
    BOOST_TEST(holds(part), part);
  }
  hunt("step_time", [](int p, CommitRun& run, std::mt19937_64& random) {
    run.metrics["step_ns"] = 1e6 * ((p >= 40 ? 106 : 100) + noise(random, 4));
    run.metrics["num_launches"] = p >= 40 ? 4100 : 3000;
  });
  BOOST_TEST(holds("(verify): step_time"));
  BOOST_TEST(holds("; at most "));
  BOOST_TEST(holds(" %; at most "));
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
  // The ends have been run: what they say by then is told.
  BOOST_TEST(answer.result.is_known);
  BOOST_TEST(answer.result.effect_ratio > 0.0);
  BOOST_TEST(to_json(answer, setup).at("no_change").is_null());

  FakeSource hardly_begun(model);
  setup.is_stop_asked = [&] { return hardly_begun.made.size() >= 2; };
  answer = run_hunt(setup, hardly_begun);
  BOOST_TEST(!answer.result.is_known);
  BOOST_TEST(to_json(answer, setup).at("effect").is_null());
  BOOST_TEST(to_json(answer, setup).at("no_change").is_null());
  BOOST_TEST(to_text(answer, setup).find(" between the ends") == std::string::npos);

  FakeSource short_of_time(model);
  setup = setup_of(32);
  setup.max_seconds = 300;
  answer = run_hunt(setup, short_of_time);
  BOOST_TEST((answer.result.verdict == tuner::HuntVerdict::unresolved));
  BOOST_TEST(answer.result.reason.find("used up") != std::string::npos);
  BOOST_TEST(answer.seconds < 400);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
