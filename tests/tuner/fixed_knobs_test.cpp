// Knobs that people fix: what the search does not try by itself is looked at all the same.
#include <boost/test/unit_test.hpp>

#include "tests/tuner/planner_samples.h"
#include "tuner/planner/search.h"

namespace moetune::tuner::planner {

BOOST_AUTO_TEST_SUITE(fixed_knobs)

BOOST_AUTO_TEST_CASE(values_beside_the_lists_are_searched) {
  const spec::ModelSpec model = samples::moe_model();
  const spec::HardwareSpec hardware = samples::machine(8);
  const auto num_legal_with = [&](const char* knob, const char* value) {
    PlanQuestion question;
    question.model = &model;
    question.hardware = &hardware;
    question.global_batch_size = 64;
    question.seq_length = 4096;
    const spec::PlanKnobRow& row = *spec::find_plan_knob(knob);
    spec::set_plan_knob(question.base, row, value);
    const std::string fixed = spec::get_plan_knob(question.base, row);
    question.keeps = [&row, fixed](const spec::PlanKnobs& knobs) {
      return spec::get_plan_knob(knobs, row) == fixed;
    };
    return search_plans(question, {}).num_legal;
  };
  BOOST_TEST(num_legal_with("recompute", "core_attn") > 0);
  BOOST_TEST(num_legal_with("recompute", "moe_act") > 0);
  BOOST_TEST(num_legal_with("cross_entropy", "te") > 0);
  BOOST_TEST(num_legal_with("cross_entropy", "unfused") > 0);
  BOOST_TEST(num_legal_with("fsdp", "torch") > 0);
  BOOST_TEST(num_legal_with("cuda_graphs", "attn") > 0);
  BOOST_TEST(num_legal_with("dispatcher", "deepep") > 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::tuner::planner
