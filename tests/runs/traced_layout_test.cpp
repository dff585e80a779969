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
  const std::vector<std::string> taken = take_traced_sizes(groups, {}, 24, knobs);
  BOOST_TEST(taken == (std::vector<std::string>{"tp 2", "pp 4"}), boost::test_tools::per_element());
  BOOST_TEST(knobs.tp == 2);
  BOOST_TEST(knobs.pp == 4);
  BOOST_TEST(knobs.ep == 1);
  // A log that says it knows better.
  spec::PlanKnobs logged;
  ParallelSizes said;
  said.pp = 1;
  BOOST_TEST(take_traced_sizes(groups, said, 24, logged) == std::vector<std::string>{"tp 2"},
             boost::test_tools::per_element());
  // 8 ranks of a replica do not make 12.
  spec::PlanKnobs others;
  BOOST_TEST(take_traced_sizes(groups, {}, 12, others).empty());
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
