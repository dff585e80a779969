// The layout of a run by the sizes of the groups that its traces name.
#include "sweeps/runs/traced_layout.h"

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(traced_layouts)

namespace {

profiler::GroupCosts groups_with(std::map<std::string, int64_t, std::less<>> sizes) {
  profiler::GroupCosts groups;
  groups.sizes = std::move(sizes);
  return groups;
}

}  // namespace

BOOST_AUTO_TEST_CASE(sizes_that_nobody_says_are_those_of_the_groups) {
  const profiler::GroupCosts groups = groups_with({{"tp", 2}, {"pp", 4}, {"ep", 0}, {"dp_cp", 3}});
  spec::PlanKnobs knobs;
  const ParallelSizes taken = take_traced_sizes(groups, {}, 24, knobs);
  BOOST_TEST(taken.tp.value_or(0) == 2);
  BOOST_TEST(taken.pp.value_or(0) == 4);
  BOOST_TEST(!taken.ep.has_value());
  BOOST_TEST(!taken.cp.has_value());
  BOOST_TEST(knobs.tp == 2);
  BOOST_TEST(knobs.pp == 4);
  BOOST_TEST(knobs.ep == 1);
  // A log that says it knows better.
  spec::PlanKnobs logged;
  ParallelSizes said;
  said.pp = 1;
  const ParallelSizes beside_log = take_traced_sizes(groups, said, 24, logged);
  BOOST_TEST(beside_log.tp.value_or(0) == 2);
  BOOST_TEST(!beside_log.pp.has_value());
  // 8 ranks of a replica do not make 12.
  spec::PlanKnobs others;
  const ParallelSizes none = take_traced_sizes(groups, {}, 12, others);
  BOOST_TEST(!none.tp.has_value());
  BOOST_TEST(!none.pp.has_value());
  BOOST_TEST((others == spec::PlanKnobs{}));
}

BOOST_AUTO_TEST_CASE(a_configuration_of_other_sizes_is_told) {
  spec::PlanKnobs knobs;
  knobs.tp = 2;
  const std::vector<std::string> told =
      contradicted_sizes(groups_with({{"tp", 2}, {"pp", 4}, {"ep", 0}}), knobs);
  BOOST_TEST_REQUIRE(told.size() == 1U);
  BOOST_TEST(told[0].starts_with("the configuration says pp 1, the traces have such groups of 4"),
             told[0]);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
