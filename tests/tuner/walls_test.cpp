// Which wall a measured step stands at, from its shares and from the trial's own verdict.
#include "tuner/walls.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <ostream>
#include <set>

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
    {"groups add up",
     {{"launch_starved", 0.2}, {"blocking_ep", 0.15}, {"blocking_cp", 0.06}, {"bubble", 0.05}},
     "",
     Wall::communication},
    {"a bubble is the pipeline's", {{"bubble", 0.2}, {"blocking_ep", 0.15}}, "", Wall::pipeline},
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
  outcome.wall = base::wall_from_name(c.verdict);
  const WallReading reading = read_walls(outcome);
  BOOST_TEST(name_of(reading.binding) == std::string(name_of(c.binding)));
  const std::vector<Wall> order = reading.order();
  BOOST_TEST((order.front() == c.binding));
  // All but unknown, each once.
  BOOST_TEST((std::set<Wall>(order.begin(), order.end()).size() == kNumWalls - 1));
  BOOST_TEST(order.size() == kNumWalls - 1);
  BOOST_TEST((std::ranges::find(order, Wall::unknown) == order.end()));
}

BOOST_AUTO_TEST_CASE(ceilings_by_replay_count_instead_of_shares) {
  TrialOutcome outcome;
  outcome.shares = {{"blocking_ep", 0.5}, {"launch_starved", 0.2}};
  outcome.ceilings = {{"imbalance", 0.3}, {"host", 0.1}, {"compute", 0.9}, {"unknown", 0.5}};
  const WallReading reading = read_walls(outcome);
  BOOST_TEST((reading.binding == Wall::imbalance));
  BOOST_TEST((reading.order() == std::vector<Wall>{Wall::imbalance, Wall::host, Wall::communication,
                                                   Wall::pipeline, Wall::memory, Wall::compute}));
  BOOST_TEST(reading.share(Wall::communication) == 0.0);
  BOOST_TEST(reading.share(Wall::unknown) == 0.0);
}

BOOST_AUTO_TEST_CASE(no_wall_comes_first_where_it_is_unknown) {
  TrialOutcome outcome;
  outcome.wall = Wall::unknown;
  outcome.ceilings = {{"host", 0.1}, {"unknown", 0.5}};
  const WallReading reading = read_walls(outcome);
  BOOST_TEST((reading.binding == Wall::unknown));
  BOOST_TEST((reading.order().front() == Wall::host));
}

BOOST_AUTO_TEST_CASE(the_other_walls_follow_by_what_they_could_give_back) {
  TrialOutcome outcome;
  outcome.shares = {
      {"recompute", 0.3}, {"launch_starved", 0.2}, {"blocking_ep", 0.15}, {"bubble", 0.05}};
  outcome.wall = Wall::host;
  const WallReading reading = read_walls(outcome);
  BOOST_TEST(
      (reading.order() == std::vector<Wall>{Wall::host, Wall::memory, Wall::communication,
                                            Wall::pipeline, Wall::imbalance, Wall::compute}));
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
  BOOST_TEST(blocking_group(outcome) == "ep");
  BOOST_TEST(blocking_group(TrialOutcome()).empty());
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner
