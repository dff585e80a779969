// Gains and noise, and the words for them.
#include "tuner/judgement.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <ostream>

namespace moetune::tuner {
namespace {

namespace data = boost::unit_test::data;

TrialOutcome timed(int64_t step_ns, int64_t half_width_ns) {
  TrialOutcome outcome;
  outcome.status = spec::TrialStatus::ok;
  outcome.step_ns = step_ns;
  outcome.step_low_ns = step_ns - half_width_ns;
  outcome.step_high_ns = step_ns + half_width_ns;
  return outcome;
}

struct Case {
  const char* name;
  TrialOutcome before;
  TrialOutcome after;
  double min_gain;
  double gain;
  double noise;
  bool is_gain;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const std::vector<Case> kCases = {
    {"twice as fast", timed(2000, 0), timed(1000, 0), 0.01, 1.0, 0.0, true},
    {"slower", timed(1000, 0), timed(2000, 0), 0.01, -0.5, 0.0, false},
    {"the same", timed(1000, 0), timed(1000, 0), 0.0, 0.0, 0.0, false},
    {"exactly the smallest gain", timed(1500, 0), timed(1000, 0), 0.5, 0.5, 0.0, false},
    {"errors add up in squares", timed(1000, 30), timed(1000, 40), 0.01, 0.0, 0.05, false},
    {"below the noise", timed(1040, 0), timed(1000, 50), 0.01, 0.04, 0.05, false},
    {"above the noise", timed(1060, 0), timed(1000, 50), 0.01, 0.06, 0.05, true},
    {"nothing measured before", timed(0, 5), timed(1000, 50), 0.01, 0.0, 0.0, false},
    {"nothing measured after", timed(1000, 50), TrialOutcome{}, 0.0, 0.0, 0.0, false},
};

BOOST_AUTO_TEST_SUITE(judgement)

BOOST_DATA_TEST_CASE(a_gain_exceeds_both_the_noise_and_the_smallest_gain, data::make(kCases), c) {
  const Comparison found = compare(c.before, c.after, c.min_gain);
  BOOST_TEST(found.gain_ratio == c.gain, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(found.noise_ratio == c.noise, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(found.is_gain == c.is_gain);
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
  knobs.recompute = "norm";
  BOOST_TEST(describe(knobs) == "dp 4, cp 1, ep 4, pp 2, micro-batch 2, recompute norm");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::tuner
