// Hunts that were interrupted, stopped or out of budget go on without repeating anything; old runs
// are used while the machine is the same.
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "sweeps/bisect/commit_source.h"
#include "sweeps/bisect/hunt.h"
#include "sweeps/bisect/old_runs.h"
#include "tests/bisect/fake_source.h"
#include "tests/bisect/git_fixture.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(hunt_resume)

namespace {

using tests::FakeSource;
using tests::noise;
using tests::setup_of;

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
