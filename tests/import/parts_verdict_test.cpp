// The verdict on a trace without steps, from those on its parts.
#include "profiler/analysis/parts_verdict.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(parts_verdict)

namespace {

StepVerdict part(int64_t ms, Wall label, SubCause cause, double ratio) {
  StepVerdict verdict;
  verdict.step_ns = ms * 1'000'000;
  verdict.label = label;
  verdict.sub_cause = cause;
  verdict.ceilings[static_cast<size_t>(label)] = ratio;
  verdict.sub_ceilings[static_cast<size_t>(cause)] = ratio;
  return verdict;
}

StepVerdict computing(int64_t ms) { return part(ms, Wall::compute, SubCause::flops, 0.9); }

bool is_about(double value, double expected) { return std::abs(value - expected) < 1e-9; }

}  // namespace

BOOST_AUTO_TEST_CASE(a_few_long_parts_outweigh_many_short_ones) {
  // By their number most are of compute. By time the host takes half of what it takes in its part.
  std::vector<StepVerdict> parts(5, computing(100));
  parts.push_back(part(500, Wall::host, SubCause::loader, 0.6));
  parts.back().rank = 3;
  StepVerdict verdict = verdict_of_parts(parts).verdict;
  BOOST_TEST((verdict.label == Wall::host));
  BOOST_TEST((verdict.sub_cause == SubCause::loader));
  BOOST_TEST(verdict.rank.value_or(-1) == 3);
  BOOST_TEST(verdict.step_ns == 1'000'000'000);
  BOOST_TEST(is_about(verdict.ceiling_ratio(), 0.3));
  BOOST_TEST(is_about(verdict.sub_ceilings[static_cast<size_t>(SubCause::loader)], 0.3));
  BOOST_TEST(verdict.summary ==
             "host (loader): without it what was replayed would be 30.0 % shorter");
  // Of records that are missing in one part.
  parts.front().num_lost = 7;
  const StepsVerdict lossy = verdict_of_parts(parts);
  BOOST_TEST(lossy.verdict.summary ==
             "host (loader): without it what was replayed would be up to 30.0 % shorter");
  BOOST_TEST_REQUIRE(lossy.with_unexplained().has_value());
  BOOST_TEST(lossy.with_unexplained()->name == "lost_records");
  BOOST_TEST(lossy.with_unexplained()->value == 7);
  // Too little of the whole, however much of its part.
  parts.back().step_ns = 50'000'000;
  verdict = verdict_of_parts(parts).verdict;
  BOOST_TEST((verdict.label == Wall::compute));
  BOOST_TEST(!verdict.rank.has_value());
}

BOOST_AUTO_TEST_CASE(a_cause_may_be_second_in_every_part) {
  StepVerdict one = part(100, Wall::communication, SubCause::transfer, 0.3);
  StepVerdict other = part(100, Wall::imbalance, SubCause::rank, 0.3);
  for (StepVerdict* verdict : {&one, &other}) {
    verdict->ceilings[static_cast<size_t>(Wall::host)] = 0.25;
    verdict->sub_ceilings[static_cast<size_t>(SubCause::sync)] = 0.2;
    verdict->sub_ceilings[static_cast<size_t>(SubCause::launch)] = 0.05;
  }
  const StepVerdict verdict = verdict_of_parts(std::vector<StepVerdict>{one, other}).verdict;
  BOOST_TEST((verdict.label == Wall::host));
  BOOST_TEST((verdict.sub_cause == SubCause::sync));
  BOOST_TEST(is_about(verdict.ceiling_ratio(), 0.25));
}

BOOST_AUTO_TEST_CASE(the_largest_loss_tells_the_cause) {
  // Of the same label the part that loses most, which need not be the longest.
  const std::vector<StepVerdict> parts = {part(300, Wall::host, SubCause::sync, 0.1),
                                          part(100, Wall::host, SubCause::launch, 0.5),
                                          computing(100)};
  BOOST_TEST((verdict_of_parts(parts).verdict.sub_cause == SubCause::launch));
}

BOOST_AUTO_TEST_CASE(a_wall_that_is_hidden_in_each_part_is_named) {
  StepVerdict hidden = part(100, Wall::communication, SubCause::transfer, 0.02);
  hidden.joint_ratio = 0.8;
  hidden.hidden_by = SubCause::launch;
  StepVerdict verdict = verdict_of_parts(std::vector<StepVerdict>{hidden, computing(300)}).verdict;
  BOOST_TEST((verdict.label == Wall::communication));
  BOOST_TEST((verdict.sub_cause == SubCause::transfer));
  BOOST_TEST(is_about(verdict.joint_ratio, 0.2));
  BOOST_TEST(is_about(verdict.ceiling_ratio(), 0.005));
  BOOST_TEST(verdict.summary.find("only without both") != std::string::npos, verdict.summary);
  BOOST_TEST((verdict.hidden_by == SubCause::launch));
  BOOST_TEST(both_causes(verdict) == "communication (transfer) and host (launch)");
  BOOST_TEST(text_of_unsure(verdict, 0.5, 0.08) ==
             "compute: 50.0 % of the time; communication costs 20.0 % of the step where host "
             "(launch), which hides it, is gone, too, which is 8.0 % of the time alone: too little "
             "to be sure");
  // Too little of the whole.
  verdict = verdict_of_parts(std::vector<StepVerdict>{hidden, computing(1000)}).verdict;
  BOOST_TEST((verdict.label == Wall::compute));
  BOOST_TEST(!verdict.is_hidden());
}

BOOST_AUTO_TEST_CASE(what_nothing_explains_counts_over_all_parts) {
  const StepVerdict lost = part(100, Wall::unknown, SubCause::unexplained, 0.9);
  const StepVerdict known = part(100, Wall::host, SubCause::launch, 0.4);
  // 0.2 could be more than 0.2 with 0.45 that nothing explains.
  const StepVerdict verdict = verdict_of_parts(std::vector<StepVerdict>{lost, known}).verdict;
  BOOST_TEST((verdict.label == Wall::unknown));
  BOOST_TEST(is_about(verdict.unknown_ratio(), 0.45));
  BOOST_TEST(verdict.summary ==
             "unknown: nothing in the records explains the waits in 45.0 % of the replayed time");
  std::vector<StepVerdict> mostly(9, known);
  mostly.push_back(lost);
  BOOST_TEST((verdict_of_parts(mostly).verdict.label == Wall::host));
}

BOOST_AUTO_TEST_CASE(parts_without_length_count_alike) {
  const std::vector<StepVerdict> parts = {part(0, Wall::unknown, SubCause::unexplained, 1),
                                          part(0, Wall::unknown, SubCause::unexplained, 0.5)};
  BOOST_TEST(is_about(verdict_of_parts(parts).verdict.unknown_ratio(), 0.75));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
