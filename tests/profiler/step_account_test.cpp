// Synthetic steps with known parts: the sums and sentences of their accounts.
#include "profiler/analysis/step_account.h"

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
BOOST_AUTO_TEST_SUITE(step_account)

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

void check_account(const StepAccount& account) {
  double sum = 0;
  int64_t sum_ns = 0;
  for (const StepShare& share : account.shares) {
    BOOST_TEST(share.ratio >= 0.0);
    sum += share.ratio;
    sum_ns += share.ns;
  }
  BOOST_TEST(std::abs(sum - 1.0) < 1e-12);
  BOOST_TEST(std::abs(sum_ns - account.step_ns) <= 4);  // each mean is rounded
  for (const Evidence& evidence : account.evidence) {
    BOOST_TEST(!evidence.name.empty());
    BOOST_TEST(evidence.text.back() == '.');
  }
}

std::string text_of(const StepAccount& account, const std::string& name) {
  const auto found = std::ranges::find(account.evidence, name, &Evidence::name);
  return found == account.evidence.end() ? std::string() : found->text;
}

BOOST_AUTO_TEST_CASE(the_group_that_blocks_longest_is_told) {
  const StepAccount account = account_of({expert_bound(0), expert_bound(1)});
  check_account(account);
  BOOST_TEST(account.dominant_group == "ep");
  BOOST_TEST(account.dominant_ratio == 0.5);
  BOOST_TEST(account.num_ranks == 2);
  BOOST_TEST(text_of(account, "dominant_group_blocking_ratio") ==
             "Blocking expert-parallel communication (mostly ep_op) takes 50.0 % of the step on "
             "average over 2 ranks.");
}

BOOST_AUTO_TEST_CASE(a_bubble_has_its_own_share) {
  const StepAccount account = account_of({bubble_bound(0), all_compute(1)});
  check_account(account);
  BOOST_TEST(account.dominant_group == "pp");
  BOOST_TEST(account.slowest_rank == 1);
  BOOST_TEST(account.ratio_of(base::StepPart::pipeline_bubble) == 0.24);
  BOOST_TEST(text_of(account, "dominant_group_blocking_ratio").starts_with("Pipeline bubbles"));
}

BOOST_AUTO_TEST_CASE(where_nothing_blocks_no_group_is_told) {
  const StepAccount account = account_of({host_bound(0)});
  check_account(account);
  BOOST_TEST(account.dominant_group.empty());
  BOOST_TEST(text_of(account, "dominant_group_blocking_ratio").empty());
  BOOST_TEST(account.ratio_of(base::StepPart::launch_starved) == 0.6);
}

BOOST_AUTO_TEST_CASE(a_step_without_ranks_is_an_error) {
  BOOST_CHECK_THROW(account_of({}), base::Error);
}

BOOST_AUTO_TEST_CASE(random_steps_have_shares_that_add_up) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 500; ++round) {
    std::vector<StepBudget> budgets;
    for (int rank = 0; rank < 3; ++rank) {
      budgets.push_back(compute_budget(random_timeline_trace(random), kRules));
    }
    const StepAccount account = account_of(budgets);
    if (account.step_ns > 0) check_account(account);
  }
}

BOOST_AUTO_TEST_CASE(shares_are_the_parts_of_the_vocabulary) {
  const StepAccount v = account_of({expert_bound(0), bubble_bound(1), recompute_bound(2)});
  check_account(v);
  const std::map<std::string, int64_t> expected = {
      {"compute", 567},     {"recompute", 100}, {"launch_starved", 0}, {"bubble", 160},
      {"blocking_ep", 167}, {"blocking_pp", 7}, {"device_shared", 0},  {"dependency_stalled", 0}};
  BOOST_TEST(v.shares.size() == expected.size());
  BOOST_TEST(v.shares.front().name == "compute");
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
