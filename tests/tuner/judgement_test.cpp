// The words for what was measured.
#include "tuner/judgement.h"

#include <boost/test/unit_test.hpp>

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(judgement)

namespace {

BOOST_AUTO_TEST_CASE(intervals_are_told_with_signs) {
  BOOST_TEST(interval_text(0.389, 0.471) == "(+38.9 to +47.1 %)");
  BOOST_TEST(interval_text(-0.02, 0.005) == "(-2.0 to +0.5 %)");
}

BOOST_AUTO_TEST_CASE(shares_are_told_largest_first_and_in_words) {
  TrialOutcome outcome;
  BOOST_TEST(describe_shares(outcome) == "");
  outcome.shares = {{"blocking_ep", 0.25},
                    {"compute", 0.5},
                    {"launch_starved", 0.2},
                    {"recompute", 0.045},
                    {"dependency_stalled", 0.005}};
  BOOST_TEST(describe_shares(outcome) ==
             "compute 50.0 %, blocking ep communication 25.0 %, waiting for the host's launches "
             "20.0 %, recomputation 4.5 %");
}

BOOST_AUTO_TEST_CASE(a_configuration_is_its_layout_micro_batch_and_recompute) {
  spec::Knobs knobs;
  knobs.data_parallel_size = 4;
  knobs.pipeline_model_parallel_size = 2;
  knobs.expert_model_parallel_size = 4;
  knobs.micro_batch_size = 2;
  knobs.recompute = spec::RecomputeSet("norm");
  BOOST_TEST(describe(knobs) == "dp 4, cp 1, ep 4, pp 2, micro-batch 2, recompute norm");
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
