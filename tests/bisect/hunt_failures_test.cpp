// What becomes of commits that do not build, run out of memory, crash, or cannot be checked out.
#include <boost/test/unit_test.hpp>
#include <random>

#include "sweeps/bisect/hunt.h"
#include "tests/bisect/fake_source.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(hunt_failures)

namespace {

using tests::FakeSource;
using tests::noise;
using tests::setup_of;

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

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
