// Whole hunts over synthetic histories: which metric is followed, and what is confirmed.
#include "sweeps/bisect/hunt.h"

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "sweeps/bisect/metric_names.h"
#include "tests/bisect/fake_source.h"
#include "tests/bisect/whole_hunts.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(hunt)

namespace {

using tests::FakeSource;
using tests::noise;
using tests::setup_of;

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

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
