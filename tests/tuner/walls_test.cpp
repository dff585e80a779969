// Which wall a measured step stands at, from its shares and from the trial's own verdict.
#include "tuner/walls.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <ostream>

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(walls)

namespace {

namespace data = boost::unit_test::data;

struct Case {
  const char* name;
  std::map<std::string, double> shares;
  const char* verdict;
  Wall binding;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const std::vector<Case> kCases = {
    {"nothing known", {}, "", Wall::compute},
    {"only work", {{"compute", 0.95}, {"dependency_stalled", 0.05}}, "", Wall::compute},
    {"below the threshold", {{"compute", 0.91}, {"blocking_ep", 0.09}}, "", Wall::compute},
    {"at the threshold", {{"compute", 0.9}, {"blocking_ep", 0.1}}, "", Wall::communication},
    {"groups and bubble add up",
     {{"launch_starved", 0.2}, {"blocking_ep", 0.1}, {"blocking_cp", 0.06}, {"bubble", 0.05}},
     "",
     Wall::communication},
    {"host", {{"launch_starved", 0.2}, {"blocking_ep", 0.15}}, "", Wall::host},
    {"a part that nobody knows", {{"compute", 0.5}, {"weather", 0.5}}, "", Wall::compute},
    {"memory", {{"recompute", 0.25}, {"blocking_ep", 0.15}}, "", Wall::memory},
    {"a tie goes to communication",
     {{"launch_starved", 0.2}, {"blocking_ep", 0.2}, {"recompute", 0.2}},
     "",
     Wall::communication},
    {"a tie of host and memory", {{"launch_starved", 0.2}, {"recompute", 0.2}}, "", Wall::host},
    {"the trial's own verdict decides", {{"blocking_ep", 0.5}}, "host", Wall::host},
    {"an unknown verdict does not", {{"blocking_ep", 0.5}}, "weather", Wall::communication},
};

BOOST_DATA_TEST_CASE(the_largest_share_binds, data::make(kCases), c) {
  TrialOutcome outcome;
  outcome.shares = c.shares;
  outcome.wall = c.verdict;
  const WallReading reading = read_walls(outcome);
  BOOST_TEST(name_of(reading.binding) == std::string(name_of(c.binding)));
  const std::vector<Wall> order = reading.order();
  BOOST_REQUIRE(order.size() == kNumWalls);
  BOOST_TEST((order.front() == c.binding));
  BOOST_TEST((std::is_permutation(
      order.begin(), order.end(),
      std::vector<Wall>{Wall::communication, Wall::host, Wall::memory, Wall::compute}.begin())));
}

BOOST_AUTO_TEST_CASE(the_other_walls_follow_by_what_they_could_give_back) {
  TrialOutcome outcome;
  outcome.shares = {
      {"recompute", 0.3}, {"launch_starved", 0.2}, {"blocking_ep", 0.1}, {"bubble", 0.05}};
  outcome.wall = "host";
  const WallReading reading = read_walls(outcome);
  BOOST_TEST((reading.order() ==
              std::vector<Wall>{Wall::host, Wall::memory, Wall::communication, Wall::compute}));
  BOOST_TEST(reading.share(Wall::communication) == 0.15, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(reading.ceiling(Wall::host) == 0.25, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(reading.ceiling(Wall::compute) == 0.0);
}

BOOST_AUTO_TEST_CASE(impossible_shares_do_no_harm) {
  TrialOutcome outcome;
  outcome.shares = {{"recompute", -3}, {"launch_starved", 7}};
  const WallReading reading = read_walls(outcome);
  BOOST_TEST(reading.share(Wall::memory) == 0.0);
  BOOST_TEST(reading.share(Wall::host) == 1.0);
  BOOST_TEST(reading.ceiling(Wall::host) == 99.0, boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(a_group_owns_its_blocking_and_pipelines_their_bubble) {
  TrialOutcome outcome;
  outcome.shares = {{"blocking_ep", 0.2}, {"blocking_pp", 0.1}, {"bubble", 0.15}};
  BOOST_TEST(group_share(outcome, "ep") == 0.2);
  BOOST_TEST(group_share(outcome, "pp") == 0.25, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(group_share(outcome, "edp") == 0.0);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
