// Hunts on a machine whose speed is most of the noise, where each run tells its parts.
#include "sweeps/bisect/even_speed.h"

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "sweeps/bisect/hunt.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(even_speed)

namespace {

using Metrics = std::map<std::string, double>;

/// Twelve operations of 8 ms and one of 4 on a machine whose speed has a noise; `change` edits what
/// a run of a commit has printed.
class SharedMachine : public HuntSource {
 public:
  using Change = std::function<void(int position, Metrics& metrics)>;

  SharedMachine(double noise, Change change, unsigned seed = 1)
      : noise_(noise), change_(std::move(change)), random_(seed) {}

  CommitRun measure(int position, const std::string& purpose) override {
    CommitRun run;
    run.run_seconds = 10;
    run.was_built_now = built_.insert(position).second;
    run.build_seconds = run.was_built_now ? 50 : 0;
    const double slowness = 1 + noise_ * normal_(random_);
    double step = 0.0;
    for (int op = 0; op < 13; ++op) {
      const double own = 1 + 0.01 * normal_(random_);
      const double added = op == 0 && position >= kCulprit ? 2e6 : 0.0;
      const double duration = ((op == 0 ? 4e6 : 8e6) + added) * slowness * own;
      run.metrics[fmt::format("op_{}.forward_ns", op)] = duration;
      step += duration;
    }
    run.metrics["traced_step_ns"] = step;
    run.metrics["step_ns"] = step * (1 + 0.005 * normal_(random_));
    change_(position, run.metrics);
    made.push_back({position, purpose, run});
    return run;
  }
  [[nodiscard]] bool is_built(int position) const override { return built_.contains(position); }

  static constexpr int kCulprit = 20;
  std::vector<HuntRun> made;

 private:
  double noise_;
  Change change_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::set<int> built_;
};

HuntSetup setup_of_hunt() {
  HuntSetup setup;
  for (int i = 0; i <= 32; ++i) {
    setup.commits.push_back({fmt::format("{:040x}", 0xabc000 + i), fmt::format("commit {}", i),
                             "A. Author", "2026-01-01T00:00:00+00:00"});
  }
  setup.min_effect_ratio = 0.01;
  return setup;
}

const SharedMachine::Change kAsItIs = [](int, Metrics&) {};

BOOST_AUTO_TEST_CASE(a_slower_operation_is_found_in_few_runs) {
  int num_found = 0;
  for (unsigned seed = 1; seed <= 10; ++seed) {
    SharedMachine source(0.05, kAsItIs, seed);
    const HuntAnswer answer = run_hunt(setup_of_hunt(), source);
    if (answer.result.culprits.empty()) continue;
    BOOST_TEST(answer.result.culprits.size() == 1U);
    BOOST_TEST(answer.result.culprits[0].position == SharedMachine::kCulprit);
    if (answer.effect_metric != "traced_step_ns" || answer.num_runs > 80) continue;
    ++num_found;
    BOOST_TEST(answer.note.find("corrected for the machine's speed") != std::string::npos);
    BOOST_TEST(answer.result.culprits[0].effect_low_ratio > 0);
  }
  BOOST_TEST(num_found >= 7);
}

// Only what is traced has become dearer: the step that was asked for tells.
BOOST_AUTO_TEST_CASE(what_the_plain_step_denies_is_not_named) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    const auto untraced = [](int position, Metrics& metrics) {
      if (position >= SharedMachine::kCulprit) metrics["step_ns"] -= 2e6;
    };
    SharedMachine source(0.006, untraced, seed);
    const HuntAnswer answer = run_hunt(setup_of_hunt(), source);
    BOOST_TEST(answer.result.culprits.empty());
  }
}

// Twelve operations became faster by what one became slower.
BOOST_AUTO_TEST_CASE(what_the_other_parts_make_up_for_is_not_named) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    const auto faster = [](int position, Metrics& metrics) {
      if (position < SharedMachine::kCulprit) return;
      for (int op = 1; op < 13; ++op) {
        const double saved = 2e6 / 12;
        metrics[fmt::format("op_{}.forward_ns", op)] -= saved;
        metrics["traced_step_ns"] -= saved;
        metrics["step_ns"] -= saved;
      }
    };
    SharedMachine source(0.006, faster, seed);
    const HuntAnswer answer = run_hunt(setup_of_hunt(), source);
    BOOST_TEST(answer.result.culprits.empty());
  }
}

// What a run prints is not to be trusted: no value ends the hunt but the runs' own.
BOOST_AUTO_TEST_CASE(odd_durations_do_no_harm) {
  for (const double odd : {0.0, -1.0, 1e-320, 1e-300, 1e300, 1.7e308}) {
    for (const int where : {0, 19, 20, 32}) {
      for (const int num_ops : {1, 13}) {
        int num_runs = 0;
        const auto change = [&](int position, Metrics& metrics) {
          if (position != where || ++num_runs > 4) return;
          for (int op = 0; op < num_ops; ++op) {
            metrics[fmt::format("op_{}.forward_ns", op)] = odd;
          }
          metrics["traced_step_ns"] = odd;
        };
        SharedMachine source(0.05, change);
        HuntSetup setup = setup_of_hunt();
        setup.max_runs = 60;
        BOOST_TEST_CONTEXT(odd << " at " << where << ", of " << num_ops) {
          const HuntAnswer answer = run_hunt(setup, source);
          for (const tuner::Culprit& culprit : answer.result.culprits) {
            BOOST_TEST(std::isfinite(culprit.effect_ratio));
          }
        }
      }
    }
  }
}

// Their number neither: what is looked at is bounded.
BOOST_AUTO_TEST_CASE(thousands_of_phases_are_no_burden) {
  const auto more = [](int, Metrics& metrics) {
    for (int i = 0; i < 3000; ++i) metrics[fmt::format("op_more{}.forward_ns", i)] = 1e3 + i;
  };
  SharedMachine source(0.05, more);
  HuntSetup setup = setup_of_hunt();
  setup.max_runs = 60;
  static_cast<void>(run_hunt(setup, source));
  BOOST_TEST(source.made.size() <= 60U);
}

BOOST_AUTO_TEST_CASE(a_hunt_that_is_cut_goes_on_as_it_would_have) {
  SharedMachine whole(0.05, kAsItIs, 2);
  const HuntAnswer expected = run_hunt(setup_of_hunt(), whole);
  BOOST_REQUIRE(expected.effect_metric == "traced_step_ns");
  for (size_t cut = 1; cut < whole.made.size(); cut += 4) {
    HuntSetup setup = setup_of_hunt();
    setup.earlier.assign(whole.made.begin(), whole.made.begin() + static_cast<std::ptrdiff_t>(cut));
    size_t next = cut;
    class Rest : public HuntSource {
     public:
      Rest(const std::vector<HuntRun>& runs, size_t& next) : runs_(runs), next_(next) {}
      CommitRun measure(int position, const std::string&) override {
        BOOST_REQUIRE(next_ < runs_.size());
        BOOST_TEST(runs_[next_].position == position);
        return runs_[next_++].run;
      }
      [[nodiscard]] bool is_built(int) const override { return false; }

     private:
      const std::vector<HuntRun>& runs_;
      size_t& next_;
    } rest(whole.made, next);
    const HuntAnswer answer = run_hunt(setup, rest);
    BOOST_TEST(next == whole.made.size());
    BOOST_TEST(answer.note == expected.note);
    BOOST_REQUIRE(answer.result.culprits.size() == 1U);
    BOOST_TEST(answer.result.culprits[0].confidence == expected.result.culprits[0].confidence);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
