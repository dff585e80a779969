// Who is faster, by how much, and what has to be measured once more to know it: against runs whose
// true step times are known.
#include "tuner/contest.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <map>
#include <random>

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(contest)

namespace {

namespace tt = boost::test_tools;

constexpr double kMinGain = 0.02;

/// Measures configurations one after another, with noise between runs.
class Bench {
 public:
  explicit Bench(double noise, uint64_t seed = 1, bool is_exact = false)
      : contests(kMinGain, is_exact), noise_(noise), random_(seed) {}

  void set(const std::string& hash, double step_ns) { truth_[hash] = step_ns; }
  /// `luck`: what this run is off by, in place of noise.
  void run(const std::string& hash, Purpose purpose = Purpose::first, const std::string& rival = {},
           std::optional<double> luck = {}) {
    TrialRequest request;
    request.hash = hash;
    request.purpose = purpose;
    request.attempt = attempts_[hash]++;
    TrialOutcome outcome;
    outcome.status = spec::TrialStatus::ok;
    const double off = luck ? *luck : noise_ * normal_(random_) + drift * (time_ - 1000);
    outcome.step_ns = std::llround(truth_.at(hash) * std::exp(off));
    outcome.step_low_ns = outcome.step_ns - outcome.step_ns / 1000;
    outcome.step_high_ns = outcome.step_ns + outcome.step_ns / 1000;
    outcome.started_s = time_;
    outcome.ended_s = time_ += 1;
    contests.add(request, outcome, rival);
  }
  Judgement judge(std::optional<double> predicted = {}) {
    return contests.judge("a", "b", predicted);
  }
  std::optional<NextRun> next() { return contests.next_run("a", "b", judge()); }
  /// Runs whatever is asked for, at most `most` times; what was asked.
  std::string follow(int most = 20) {
    std::string asked;
    for (int i = 0; i < most; ++i) {
      const std::optional<NextRun> wanted = next();
      if (!wanted) return asked;
      asked += std::string(wanted->is_candidate ? " b " : " a ") + name_of(wanted->purpose);
      run(wanted->is_candidate ? "b" : "a", wanted->purpose, wanted->is_candidate ? "a" : "b");
    }
    return asked + " ...";
  }

  Contests contests;
  double drift = 0;  ///< of each run over the one before

 private:
  double noise_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::map<std::string, double> truth_;
  std::map<std::string, int64_t> attempts_;
  double time_ = 1000;
};

BOOST_AUTO_TEST_CASE(a_clear_gain_is_measured_again_before_it_counts) {
  Bench bench(0.002);
  bench.set("a", 1e7);
  bench.set("b", 8e6);
  bench.run("a");
  bench.run("b");
  BOOST_TEST((bench.judge().verdict == Verdict::gain));
  BOOST_TEST(bench.follow() == " b again a again");
  const Judgement judgement = bench.judge();
  BOOST_TEST((judgement.verdict == Verdict::gain));
  BOOST_TEST(judgement.gain_ratio == 0.25, tt::tolerance(0.05));
  BOOST_TEST(judgement.low_ratio < judgement.gain_ratio);
  BOOST_TEST(judgement.high_ratio > judgement.gain_ratio);
  BOOST_TEST(judgement.num_runs_before == 2);
  BOOST_TEST(judgement.num_runs_after == 2);
}

BOOST_AUTO_TEST_CASE(a_clear_loss_is_not_measured_again) {
  Bench bench(0.002);
  bench.set("a", 8e6);
  bench.set("b", 1e7);
  bench.run("a");
  bench.run("b");
  BOOST_TEST((bench.judge().verdict == Verdict::no_gain));
  BOOST_TEST(bench.follow() == "");
}

BOOST_AUTO_TEST_CASE(nothing_wins_by_one_lucky_run) {
  Bench bench(0.004);
  bench.set("a", 1e7);
  bench.set("b", 1e7);
  bench.run("a");
  bench.run("b", Purpose::first, {}, -0.2);
  BOOST_TEST((bench.judge().verdict == Verdict::gain));
  bench.follow();
  BOOST_TEST((bench.judge().verdict != Verdict::gain));
  // Nor does the incumbent lose by one unlucky run of its own.
  Bench other(0.004);
  other.set("a", 1e7);
  other.set("b", 1e7);
  other.run("a", Purpose::first, {}, 0.05);
  other.run("b");
  other.follow();
  BOOST_TEST((other.judge().verdict != Verdict::gain));
}

BOOST_AUTO_TEST_CASE(one_run_against_what_was_expected_is_surprising) {
  Bench bench(0.002);
  bench.set("a", 1e7);
  bench.set("b", 9e6);
  bench.run("a");
  bench.run("b", Purpose::first, {}, 0.3);
  BOOST_TEST(bench.contests.is_surprising("b", bench.judge(0.1)));
  BOOST_TEST(!bench.contests.is_surprising("b", bench.judge(kMinGain / 2)));
  BOOST_TEST(!bench.contests.is_surprising("b", bench.judge()));
  bench.run("b", Purpose::again);
  BOOST_TEST(!bench.contests.is_surprising("b", bench.judge(0.1)));
  Bench exact(0, 1, true);
  exact.set("a", 9e6);
  exact.set("b", 1e7);
  exact.run("a");
  exact.run("b");
  BOOST_TEST(!exact.contests.is_surprising("b", exact.judge(0.1)));
}

// What crosses the threshold: more steps of both, then in turns, the incumbent first and last; and
// no more than helps.
BOOST_AUTO_TEST_CASE(what_crosses_the_threshold_gets_more_steps_then_turns) {
  Bench bench(0.03, 5);
  bench.set("a", 1e7);
  bench.set("b", 1e7 / (1 + kMinGain));
  bench.run("a");
  bench.run("a", Purpose::again);
  bench.run("b");
  BOOST_REQUIRE((bench.judge().verdict == Verdict::undecided));
  const double width = bench.judge().high_ratio - bench.judge().low_ratio;
  BOOST_TEST(bench.follow() ==
             " b longer a longer a in_turns b in_turns a in_turns b in_turns a in_turns");
  const Judgement judgement = bench.judge();
  BOOST_TEST((judgement.verdict == Verdict::undecided));
  BOOST_TEST(judgement.has_turns);
  BOOST_TEST(judgement.high_ratio - judgement.low_ratio < width);
  BOOST_TEST(judgement.low_ratio < kMinGain);
  BOOST_TEST(judgement.high_ratio > kMinGain);
  BOOST_TEST(judgement.run_noise_ratio > 0.01);
}

BOOST_AUTO_TEST_CASE(turns_decide_what_a_drifting_machine_hides) {
  int num_right = 0;
  constexpr int kRounds = 20;
  for (uint64_t seed = 0; seed < kRounds; ++seed) {
    Bench bench(0.004, seed);
    bench.drift = 0.01;
    bench.set("a", 1e7);
    bench.set("b", 1e7 / 1.05);
    bench.run("a");
    bench.run("b");
    bench.follow();
    num_right += bench.judge().verdict == Verdict::gain;
  }
  BOOST_TEST(num_right >= 0.8 * kRounds);
}

BOOST_AUTO_TEST_CASE(what_was_gained_is_what_was_measured) {
  Bench bench(0.0);
  bench.set("a", 3e7);
  bench.set("b", 1e7);
  for (const double luck : {-0.04, 0.04}) {
    bench.run("a", Purpose::again, {}, luck);
    bench.run("b", Purpose::again, {}, luck);
  }
  const Judgement gain = bench.contests.gain_over("a", "b");
  BOOST_TEST(gain.gain_ratio == 2.0, tt::tolerance(0.01));
  BOOST_TEST((gain.low_ratio < 1.9 && gain.high_ratio > 2.1));
  // A decision is drawn towards what is likely.
  BOOST_TEST(bench.judge().gain_ratio < 1.97);
}

BOOST_AUTO_TEST_CASE(nothing_is_gained_over_itself) {
  Bench bench(0.01);
  bench.set("a", 1e7);
  bench.run("a");
  bench.run("a", Purpose::again);
  const Judgement gain = bench.contests.gain_over("a", "a");
  BOOST_TEST((gain.verdict == Verdict::no_gain));
  BOOST_TEST((gain.gain_ratio == 0 && gain.low_ratio == 0 && gain.high_ratio == 0));
  BOOST_TEST(gain.num_runs_after == 2);
}

BOOST_AUTO_TEST_CASE(an_exact_clock_decides_at_once) {
  Bench bench(0, 1, true);
  bench.set("a", 1e7);
  bench.set("b", 1e7 / 1.021);
  bench.run("a");
  bench.run("b");
  BOOST_TEST((bench.judge().verdict == Verdict::gain));
  BOOST_TEST(bench.follow() == "");
  Bench other(0, 1, true);
  other.set("a", 1e7);
  other.set("b", 1e7 / 1.019);
  other.run("a");
  other.run("b");
  BOOST_TEST((other.judge().verdict == Verdict::no_gain));
}

// Of many that are all the same some look better by luck: what is kept of them is kept wrongly.
BOOST_AUTO_TEST_CASE(of_many_that_are_the_same_hardly_any_wins) {
  constexpr int kCandidates = 100;
  int num_wins = 0;
  for (uint64_t seed = 0; seed < kCandidates; ++seed) {
    Bench bench(0.03, 100 + seed);
    bench.set("a", 1e7);
    bench.set("b", 1e7);
    bench.run("a");
    bench.run("a", Purpose::again);
    bench.run("b");
    bench.follow();
    num_wins += bench.judge(0.0).verdict == Verdict::gain;
  }
  BOOST_TEST(num_wins <= 3);
}

BOOST_AUTO_TEST_CASE(what_is_gone_through_once_more_gives_the_same) {
  const auto gone_through = [](Contests& contests) {
    Bench bench(0.03, 7);
    bench.set("a", 1e7);
    bench.set("b", 9.7e6);
    bench.run("a");
    bench.run("b");
    bench.follow();
    std::swap(contests, bench.contests);
  };
  Contests first(kMinGain, false);
  gone_through(first);
  Contests second(kMinGain, false);
  gone_through(second);
  BOOST_TEST(first.judge("a", "b", 0.1).gain_ratio == second.judge("a", "b", 0.1).gain_ratio);
  first.restart();
  BOOST_TEST(first.num_runs("a") == 0);
  BOOST_TEST(!first.run_noise().has_value());
}

// What is asked for is that of a_clear_gain_is_measured_again_before_it_counts.
BOOST_AUTO_TEST_CASE(settling_ends_with_the_verdict_a_failure_or_for_lack_of_room) {
  struct Case {
    const char* failing;  ///< whose further run fails
    bool has_room;
    const char* asked;
    bool has_failure;
  };
  for (const Case& c :
       {Case{"", true, " b again a again", false}, Case{"b", true, " b again", true},
        Case{"a", true, " b again a again", false}, Case{"", false, " b again", false}}) {
    Bench bench(0.002);
    bench.set("a", 1e7);
    bench.set("b", 8e6);
    bench.run("a");
    bench.run("b");
    std::string asked;
    const Settled settled = bench.contests.settle(
        "a", "b", [&] { return bench.judge(); },
        [&](const NextRun& next) -> std::optional<TrialOutcome> {
          const std::string hash = next.is_candidate ? "b" : "a";
          asked += " " + hash + " " + name_of(next.purpose);
          if (!c.has_room) return std::nullopt;
          TrialOutcome outcome;
          outcome.status = hash == c.failing ? spec::TrialStatus::oom : spec::TrialStatus::ok;
          if (hash != c.failing) bench.run(hash, next.purpose);
          return outcome;
        });
    BOOST_TEST(asked == c.asked);
    BOOST_TEST(settled.failure.has_value() == c.has_failure);
    BOOST_TEST((settled.judgement.verdict == Verdict::gain));
  }
}

BOOST_AUTO_TEST_CASE(a_repeat_is_the_same_run_for_another_purpose) {
  TrialRequest request;
  request.hash = "a";
  request.title = "tp 2";
  request.is_baseline = true;
  request.spec.num_steps = 10;
  const TrialRequest again = repeat_of(request, Purpose::again, 2);
  BOOST_TEST(again.hash == "a");
  BOOST_TEST(again.attempt == 2);
  BOOST_TEST((again.purpose == Purpose::again));
  BOOST_TEST(!again.is_baseline);
  BOOST_TEST(again.num_steps == request.num_steps);
  BOOST_TEST(again.title.starts_with("tp 2, "));
  BOOST_TEST(repeat_of(request, Purpose::longer, 3).num_steps == 30);
  BOOST_TEST(repeat_of(request, Purpose::in_turns, 4).num_steps == 30);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
