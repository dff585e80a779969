// Four synthetic walls, and the sums and sentences of their verdicts.
#include "profiler/analysis/wall.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <map>
#include <string>

#include "kernels/base/error.h"
#include "profiler/analysis/budget_terms.h"
#include "profiler/store/metrics.h"
#include "tests/profiler/synthetic_trace.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(wall)

namespace {

const ClassificationRules kRules = {{"permute"}, {"pp"}};

StepBudget budget_of(int32_t rank, const std::function<void(TraceBuilder&)>& fill) {
  TraceBuilder builder(0, 1000, rank);
  fill(builder);
  return compute_budget(builder.trace(), kRules);
}

StepBudget all_compute(int32_t rank) {
  return budget_of(rank, [](TraceBuilder& t) { t.kernel("gemm", 0, 0, 0, 1000); });
}
/// 400 transfer and 100 wait in an all-to-all.
StepBudget expert_bound(int32_t rank) {
  return budget_of(rank, [](TraceBuilder& t) {
    t.kernel("gemm", 0, 0, 0, 300);
    t.collective("ep", 1, 0, 300, 800, 400, 0);
    t.kernel("expert", 0, 0, 800, 1000, 1);
  });
}
StepBudget bubble_bound(int32_t rank) {
  return budget_of(rank, [](TraceBuilder& t) {
    t.collective("pp", 1, 0, 0, 500, 20).kind = RecordKind::p2p;
    t.kernel("gemm", 0, 0, 500, 1000, 0);
  });
}
StepBudget host_bound(int32_t rank) {
  return budget_of(rank, [](TraceBuilder& t) {
    for (int i = 0; i < 10; ++i) t.kernel("tiny", 0, 100 * i + 60, 100 * i + 60, 100 * i + 100);
  });
}
StepBudget recompute_bound(int32_t rank) {
  return budget_of(rank, [](TraceBuilder& t) {
    t.kernel("attention", 0, 0, 0, 700);
    t.kernel("attention", 0, 0, 700, 1000).is_recompute = true;
  });
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void check_verdict(const WallEvidence& verdict) {
  double sum = 0;
  int64_t sum_ns = 0;
  for (const StepShare& share : verdict.shares) {
    BOOST_TEST(share.ratio >= 0.0);
    sum += share.ratio;
    sum_ns += share.ns;
  }
  BOOST_TEST(std::abs(sum - 1.0) < 1e-12);
  BOOST_TEST(std::abs(sum_ns - verdict.step_ns) <= 4);  // each mean is rounded
  BOOST_TEST(verdict.summary.back() == '.');
  for (const Evidence& evidence : verdict.evidence) {
    BOOST_TEST(!evidence.name.empty());
    BOOST_TEST(evidence.text.back() == '.');
  }
}

const WallBound& bound(const WallEvidence& verdict, Wall wall) {
  return verdict.bounds[static_cast<size_t>(wall)];
}

double share_of(const WallEvidence& verdict, const std::string& name) {
  const auto found = std::ranges::find(verdict.shares, name, &StepShare::name);
  return found == verdict.shares.end() ? 0.0 : found->ratio;
}

BOOST_AUTO_TEST_CASE(communication_wall) {
  const WallEvidence v = classify_wall({expert_bound(0), expert_bound(1)}, {});
  check_verdict(v);
  BOOST_TEST((v.wall == Wall::communication));
  BOOST_TEST(v.dominant_group == "ep");
  BOOST_TEST(v.dominant_ratio == 0.5);
  BOOST_TEST(bound(v, Wall::communication).mean_ns == 500);
  BOOST_TEST(bound(v, Wall::communication).gain_ceiling_ratio == 1.0);
  BOOST_TEST(v.summary ==
             "Blocking expert-parallel communication (mostly ep_op) takes 50.0 % of the step on "
             "average over 2 ranks; removing all of it would raise throughput by at most 100.0 %.");
}

BOOST_AUTO_TEST_CASE(pipeline_bubble_is_communication_with_its_own_share) {
  const WallEvidence v = classify_wall({bubble_bound(0), all_compute(1)}, {});
  check_verdict(v);
  BOOST_TEST((v.wall == Wall::communication));
  BOOST_TEST(v.dominant_group == "pp");
  BOOST_TEST(v.slowest_rank == 1);
  BOOST_TEST(bound(v, Wall::communication).slowest_ns == 0);
  BOOST_TEST(share_of(v, "bubble") == 0.24);
  BOOST_TEST(mentions(v.summary, "Pipeline bubbles"));
}

BOOST_AUTO_TEST_CASE(host_wall) {
  const WallEvidence v = classify_wall({host_bound(0)}, {});
  check_verdict(v);
  BOOST_TEST((v.wall == Wall::host));
  BOOST_TEST(bound(v, Wall::host).mean_ratio == 0.6);
  BOOST_TEST(bound(v, Wall::host).gain_ceiling_ratio == 1.5);
  BOOST_TEST(mentions(v.summary, "For 60.0 % of the step on its one rank no compute runs"));
}

BOOST_AUTO_TEST_CASE(memory_wall_by_recomputation) {
  const WallEvidence v = classify_wall({recompute_bound(0)}, {900, 1000});
  check_verdict(v);
  BOOST_TEST((v.wall == Wall::memory));
  BOOST_TEST(bound(v, Wall::memory).mean_ns == 300);
  BOOST_TEST(mentions(v.summary, "Recomputation"));
  BOOST_TEST(v.evidence.front().name == "memory_used_ratio");
  BOOST_TEST(v.evidence.front().value == 0.9);
}

BOOST_AUTO_TEST_CASE(memory_wall_by_running_out) {
  const MemoryFacts memory = {990, 1000, true,
                              "out of memory on rank 3: allocation 'expert.w1' does not fit"};
  const WallEvidence v = classify_wall({}, memory);
  BOOST_TEST((v.wall == Wall::memory));
  BOOST_TEST(mentions(v.summary, "expert.w1"));
  BOOST_TEST(v.shares.empty());
  // Even a trial that got as far as a traced step with a communication wall.
  BOOST_TEST((classify_wall({expert_bound(0)}, memory).wall == Wall::memory));
}

BOOST_AUTO_TEST_CASE(compute_wall_when_nothing_else_is_left) {
  const WallEvidence v = classify_wall({all_compute(0)}, {});
  check_verdict(v);
  BOOST_TEST((v.wall == Wall::compute));
  BOOST_TEST(v.dominant_group.empty());
  BOOST_TEST(mentions(v.summary, "nothing else costs time"));
}

BOOST_AUTO_TEST_CASE(threshold_decides) {
  // One of four ranks is bound by experts: 12.5 % on average.
  const std::vector<StepBudget> budgets = {expert_bound(0), all_compute(1), all_compute(2),
                                           all_compute(3)};
  BOOST_TEST((classify_wall(budgets, {}, {0.125}).wall == Wall::communication));
  const WallEvidence v = classify_wall(budgets, {}, {0.13});
  BOOST_TEST((v.wall == Wall::compute));
  BOOST_TEST(mentions(v.summary, "no other cost reaches 13.0 % (largest: communication, 12.5 %)"));
}

BOOST_AUTO_TEST_CASE(the_largest_wall_wins) {
  BOOST_TEST((classify_wall({host_bound(0), expert_bound(1)}, {}).wall == Wall::host));
  BOOST_TEST(
      (classify_wall({recompute_bound(0), expert_bound(1)}, {}).wall == Wall::communication));
}

BOOST_AUTO_TEST_CASE(nothing_to_judge_is_an_error) {
  BOOST_CHECK_THROW(classify_wall({}, {}), base::Error);
}

BOOST_AUTO_TEST_CASE(a_step_of_no_compute_has_a_finite_ceiling) {
  const WallEvidence v = classify_wall(
      {budget_of(0, [](TraceBuilder& t) { t.collective("ep", 0, 0, 0, 1000, 1000); })}, {});
  check_verdict(v);
  BOOST_TEST(std::isfinite(bound(v, Wall::communication).gain_ceiling_ratio));
}

BOOST_AUTO_TEST_CASE(random_steps_have_shares_that_add_up) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 500; ++round) {
    std::vector<StepBudget> budgets;
    for (int rank = 0; rank < 3; ++rank) {
      budgets.push_back(compute_budget(random_timeline_trace(random), kRules));
    }
    const WallEvidence v = classify_wall(budgets, {});
    if (v.step_ns > 0) check_verdict(v);
  }
}

BOOST_AUTO_TEST_CASE(shares_are_the_parts_of_the_vocabulary) {
  const WallEvidence v = classify_wall({expert_bound(0), bubble_bound(1), recompute_bound(2)}, {});
  check_verdict(v);
  const std::map<std::string, int64_t> expected = {
      {"compute", 567},     {"recompute", 100}, {"launch_starved", 0}, {"bubble", 160},
      {"blocking_ep", 167}, {"blocking_pp", 7}, {"device_shared", 0},  {"dependency_stalled", 0}};
  BOOST_TEST(v.shares.size() == expected.size());
  BOOST_TEST(v.shares.front().name == "compute");
  BOOST_TEST(v.compute_ratio() == v.shares.front().ratio);
  for (const StepShare& share : v.shares) {
    BOOST_TEST_CONTEXT(share.name) {
      BOOST_TEST(base::part_from_name(share.name).has_value());
      BOOST_TEST(share.ns == expected.at(share.name));
    }
  }
}

BOOST_AUTO_TEST_CASE(every_part_has_its_term_and_its_metric) {
  for (const base::StepPartRow& row : base::step_parts()) {
    BOOST_CHECK_NO_THROW(budget_term(StepBudget(), row.metric));
    if (row.subtracted[0] != '\0') BOOST_CHECK_NO_THROW(budget_term(StepBudget(), row.subtracted));
  }
  for (const BudgetTerm& term : budget_terms()) {
    BOOST_CHECK_NO_THROW(store::metric_info(term.name));
  }
  BOOST_CHECK_THROW(budget_term(StepBudget(), "luck_ns"), base::Error);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
