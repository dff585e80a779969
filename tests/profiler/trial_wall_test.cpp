// Synthetic steps of several ranks whose wall is known: which one a trial gets, with how many steps
// behind it and in which words.
#include "profiler/analysis/trial_wall.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "profiler/analysis/replayed_run.h"
#include "tests/profiler/synthetic_trace.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(trial_wall)

namespace {

constexpr int64_t kUs = 1'000;
constexpr const char* kToRecord = "more";

/// One millisecond of each rank; times of `fill` in nanoseconds.
std::vector<StepTrace> ranks(int num, const std::function<void(int, TraceBuilder&)>& fill) {
  std::vector<StepTrace> traces;
  for (int rank = 0; rank < num; ++rank) {
    TraceBuilder builder(0, 1000 * kUs, rank);
    fill(rank, builder);
    traces.push_back(builder.trace());
  }
  return traces;
}

StepVerdict judged(const std::vector<StepTrace>& traces, const MemoryFacts& memory = {}) {
  StepFacts facts;
  facts.memory = memory;
  return judge_step(ReplayedRun(traces, {}), facts);
}

TrialWall wall_of(const std::vector<StepTrace>& traces, const MemoryFacts& memory = {}) {
  return judge_trial({judged(traces, memory)}, {}, memory, kToRecord);
}

const Evidence* find(const TrialWall& wall, const std::string& name) {
  const auto found = std::ranges::find(wall.evidence, name, &Evidence::name);
  return found == wall.evidence.end() ? nullptr : &*found;
}

std::vector<StepTrace> all_compute() {
  return ranks(1, [](int, TraceBuilder& t) { t.kernel("gemm", 0, 0, 0, 1000 * kUs); });
}

/// An all-to-all of `transfer_us` that all begin at once.
std::vector<StepTrace> expert_bound(int64_t transfer_us = 500) {
  return ranks(2, [&](int, TraceBuilder& t) {
    const int64_t end_ns = 300 * kUs + transfer_us * kUs;
    t.kernel("gemm", 0, 0, 0, 300 * kUs);
    t.collective("ep", 1, 0, 300 * kUs, end_ns, transfer_us * kUs, 0).sequence = 0;
    t.kernel("expert", 0, 0, end_ns, 1000 * kUs, 1);
  });
}

/// Rank 1 computes 800 us, the others 300 and wait for it in a collective of 100.
std::vector<StepTrace> late_rank() {
  return ranks(4, [](int rank, TraceBuilder& t) {
    const int64_t work_ns = (rank == 1 ? 800 : 300) * kUs;
    t.kernel("gemm", 0, 0, 0, work_ns);
    t.collective("dp_cp", 0, 0, work_ns, 900 * kUs, 100 * kUs).sequence = 0;
    t.kernel("gemm2", 0, 0, 900 * kUs, 1000 * kUs);
  });
}

std::vector<StepTrace> host_bound() {
  return ranks(1, [](int, TraceBuilder& t) {
    for (int64_t i = 0; i < 10; ++i) {
      const int64_t start_ns = (100 * i + 60) * kUs;
      t.kernel("tiny", 0, start_ns, start_ns, start_ns + 40 * kUs);
    }
  });
}

std::vector<StepTrace> recomputing() {
  return ranks(1, [](int, TraceBuilder& t) {
    t.kernel("attention", 0, 0, 0, 700 * kUs);
    t.kernel("attention", 0, 0, 700 * kUs, 1000 * kUs).is_recompute = true;
  });
}

/// Work that was launched long before, and starts late for no reason that is in the trace.
std::vector<StepTrace> unexplained() {
  return ranks(1, [](int, TraceBuilder& t) {
    t.kernel("gemm", 0, 0, 0, 300 * kUs);
    t.kernel("gemm", 0, 10, 800 * kUs, 1000 * kUs);
  });
}

}  // namespace

BOOST_AUTO_TEST_CASE(communication_is_what_the_step_is_shorter_without) {
  const TrialWall wall = wall_of(expert_bound());
  BOOST_TEST((wall.wall == Wall::communication), wall.summary);
  BOOST_TEST(wall.sub_cause == "transfer");
  BOOST_TEST(wall.summary ==
             "Communication (transfer): without it the step would be 50.0 % shorter.");
  BOOST_REQUIRE(wall.steps);
  BOOST_TEST(std::abs(wall.steps->verdict.ceiling_ratio() - 0.5) < 0.005);
}

BOOST_AUTO_TEST_CASE(a_late_rank_is_imbalance_and_no_communication_of_those_that_wait) {
  const TrialWall wall = wall_of(late_rank());
  BOOST_TEST((wall.wall == Wall::imbalance), wall.summary);
  BOOST_REQUIRE(wall.steps);
  BOOST_TEST((wall.steps->verdict.rank == 1), wall.summary);
  BOOST_TEST(wall.summary.find("most of it is rank 1's") != std::string::npos, wall.summary);
}

BOOST_AUTO_TEST_CASE(late_launches_are_the_host_s) {
  const TrialWall wall = wall_of(host_bound());
  BOOST_TEST((wall.wall == Wall::host), wall.summary);
  BOOST_TEST(wall.sub_cause == "launch");
}

BOOST_AUTO_TEST_CASE(recomputation_is_memory_s_only_where_memory_is_short) {
  const TrialWall is_short = wall_of(recomputing(), {900, 1000});
  BOOST_TEST((is_short.wall == Wall::memory), is_short.summary);
  BOOST_TEST(is_short.sub_cause == "recompute");
  BOOST_TEST(is_short.evidence.front().name == "memory_used_ratio");
  BOOST_TEST(is_short.evidence.front().value == 0.9);
  for (const MemoryFacts& memory : {MemoryFacts{500, 1000}, MemoryFacts{900, 0}}) {
    const TrialWall has_room = wall_of(recomputing(), memory);
    BOOST_TEST((has_room.wall == Wall::compute), has_room.summary);
  }
}

BOOST_AUTO_TEST_CASE(running_out_of_memory_is_memory_whatever_the_steps_say) {
  const MemoryFacts memory = {990, 1000, true,
                              "out of memory on rank 3: allocation 'expert.w1' does not fit"};
  const TrialWall untraced = judge_trial({}, {}, memory, kToRecord);
  BOOST_TEST((untraced.wall == Wall::memory));
  BOOST_TEST(!untraced.steps);
  BOOST_TEST(untraced.summary == "Out of memory on rank 3: allocation 'expert.w1' does not fit.");
  const TrialWall traced = wall_of(expert_bound(), memory);
  BOOST_TEST((traced.wall == Wall::memory));
  BOOST_TEST(traced.sub_cause.empty());
  BOOST_TEST(traced.summary == untraced.summary);
}

BOOST_AUTO_TEST_CASE(compute_is_left_where_nothing_else_is) {
  const TrialWall wall = wall_of(all_compute());
  BOOST_TEST((wall.wall == Wall::compute), wall.summary);
  BOOST_TEST(wall.sub_cause.empty());  // the device's peaks are not known
}

BOOST_AUTO_TEST_CASE(what_nothing_explains_is_unknown_with_what_to_record) {
  const TrialWall wall = wall_of(unexplained());
  BOOST_TEST((wall.wall == Wall::unknown), wall.summary);
  const Evidence* advice = find(wall, "unknown_ratio");
  BOOST_REQUIRE(advice != nullptr);
  BOOST_TEST(advice->text == "To tell what it is, record more.");
  BOOST_TEST(advice->value == 0.5, boost::test_tools::tolerance(0.01));
  BOOST_TEST(find(wall_of(host_bound()), "unknown_ratio") == nullptr);
}

BOOST_AUTO_TEST_CASE(most_steps_decide_and_all_of_them_give_the_interval) {
  const TrialWall wall = judge_trial(
      {judged(expert_bound(400)), judged(all_compute()), judged(expert_bound(600))}, {}, {}, "");
  BOOST_TEST((wall.wall == Wall::communication), wall.summary);
  BOOST_REQUIRE(wall.steps);
  BOOST_TEST(wall.steps->num_steps == 3);
  BOOST_TEST(wall.steps->num_agreeing == 2);
  BOOST_TEST(wall.steps->low_ratio == 0.0);
  BOOST_TEST(wall.steps->high_ratio == 0.6, boost::test_tools::tolerance(0.01));
  const Evidence* agreement = find(wall, "agreeing_ratio");
  BOOST_REQUIRE(agreement != nullptr);
  BOOST_TEST(agreement->text ==
             "2 of 3 replayed steps have this wall; without it they would be 0.0 % to 60.0 % "
             "shorter.");
}

// The first step is the one that people see.
BOOST_AUTO_TEST_CASE(the_told_step_is_judged_where_the_others_do_not_outvote_it) {
  const auto wall_of_steps = [](std::vector<StepVerdict> steps) {
    return judge_trial(std::move(steps), {}, {}, "");
  };
  const auto share_of = [](const TrialWall& wall) { return wall.steps->verdict.ceiling_ratio(); };
  const auto is_near = boost::test_tools::tolerance(0.01);
  // Its own ceiling, though it is not that in the middle.
  const TrialWall first = wall_of_steps(
      {judged(expert_bound(600)), judged(expert_bound(400)), judged(expert_bound(500))});
  BOOST_TEST(share_of(first) == 0.6, is_near);
  BOOST_TEST(find(first, "disagreeing_steps") == nullptr);
  // Of two its own label.
  const TrialWall tied = wall_of_steps({judged(all_compute()), judged(expert_bound())});
  BOOST_TEST((tied.wall == Wall::compute), tied.summary);
  const TrialWall other = wall_of_steps({judged(expert_bound()), judged(all_compute())});
  BOOST_TEST((other.wall == Wall::communication), other.summary);
  // Outvoted: the middle of the others.
  const TrialWall outvoted = wall_of_steps({judged(all_compute()), judged(expert_bound(600)),
                                            judged(expert_bound(400)), judged(expert_bound(500))});
  BOOST_TEST((outvoted.wall == Wall::communication), outvoted.summary);
  BOOST_TEST(share_of(outvoted) == 0.5, is_near);
}

BOOST_AUTO_TEST_CASE(steps_with_other_walls_are_told) {
  const TrialWall wall =
      judge_trial({judged(expert_bound(400)), judged(all_compute()), judged(expert_bound(600)),
                   judged(unexplained()), judged(expert_bound(500))},
                  {}, {}, "");
  const Evidence* others = find(wall, "disagreeing_steps");
  BOOST_REQUIRE(others != nullptr);
  BOOST_TEST(others->value == 2);
  BOOST_TEST(others->text == "The other steps have other walls: 1 compute, 1 unknown.");
  BOOST_REQUIRE(wall.steps);
  for (size_t label = 0; label < kNumWalls; ++label) {
    const double ceiling = wall.steps->verdict.ceilings[label];
    BOOST_TEST(wall.steps->low_ceilings[label] <= ceiling);
    BOOST_TEST(ceiling <= wall.steps->high_ceilings[label]);
  }
  const auto unknown = static_cast<size_t>(Wall::unknown);
  BOOST_TEST(wall.steps->low_ceilings[unknown] < wall.steps->high_ceilings[unknown]);
  BOOST_TEST(wall.steps->low_ratio == 0.0);
  BOOST_TEST(wall.steps->high_ratio == 0.6, boost::test_tools::tolerance(0.01));
}

BOOST_AUTO_TEST_CASE(the_steps_to_replay_are_spread_and_fewer_where_they_are_large) {
  BOOST_TEST((steps_to_replay(3, 10) == std::vector<size_t>{0, 1, 2}));
  BOOST_TEST(steps_to_replay(100, 10).size() == 9U);
  BOOST_TEST((steps_to_replay(100, 10'000'000) == std::vector<size_t>{0}));
  BOOST_TEST((steps_to_replay(4, 150'000) == std::vector<size_t>{0, 2}));
  BOOST_TEST((steps_to_replay(1, 0) == std::vector<size_t>{0}));
}

BOOST_AUTO_TEST_CASE(nothing_to_judge_is_an_error) {
  BOOST_CHECK_THROW(judge_trial({}, {}, {}, kToRecord), base::Error);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
