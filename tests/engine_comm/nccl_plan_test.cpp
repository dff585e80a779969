// Which communicators a layout needs: the same splits in the same order on every rank, the right
// members, and resources shared only where streams are, too.
#include "engine/comm/nccl_plan.h"

#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <map>
#include <set>

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(nccl_plan)

namespace {

const std::vector<plan::Layout> kLayouts = {{},
                                            {.dp = 2},
                                            {.dp = 4, .ep = 2},
                                            {.cp = 2, .dp = 2, .ep = 4},
                                            {.pp = 3},
                                            {.cp = 2, .dp = 2, .pp = 2, .ep = 2},
                                            {.dp = 4, .pp = 4, .ep = 4},
                                            {.dp = 8, .ep = 8},
                                            {.tp = 2},
                                            {.tp = 2, .cp = 2, .ep = 4},
                                            {.tp = 2, .dp = 2, .pp = 2, .etp = 2}};

BOOST_DATA_TEST_CASE(splits_fit_the_layout, boost::unit_test::data::xrange(kLayouts.size()),
                     index) {
  const plan::Layout layout = kLayouts[index];
  const std::vector<NcclSplit> first = nccl_splits(layout, 0);
  std::map<NcclRole, std::map<int, std::vector<int>>> members;  // by role and color
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const std::vector<NcclSplit> splits = nccl_splits(layout, rank);
    BOOST_REQUIRE(splits.size() == first.size());
    std::set<NcclRole> made = {NcclRole::world};
    for (size_t i = 0; i < splits.size(); ++i) {
      BOOST_TEST(name_of(splits[i].role) == name_of(first[i].role));
      BOOST_TEST(made.contains(splits[i].parent));
      // The replicas of experts are the one group that is split from another than the world.
      const bool is_of_experts = splits[i].role == role_of(plan::Group::edp);
      BOOST_TEST(has_sharing_child(splits[i].parent) == is_of_experts);
      made.insert(splits[i].role);
      if (splits[i].color) members[splits[i].role][*splits[i].color].push_back(rank);
    }
    for (const plan::Group group : plan::all_groups()) {
      const std::vector<int> ranks = layout.group_ranks(group, rank);
      const bool is_member = std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
      const std::optional<NcclRole> role = nccl_role(layout, group, rank);
      BOOST_TEST(role.has_value() == is_member);
      if (role) BOOST_TEST((made.contains(*role)));
    }
  }
  std::map<NcclRole, plan::Group> groups = {{NcclRole::pp_down, plan::Group::pp}};
  for (const plan::Group group : plan::all_groups()) groups[role_of(group)] = group;
  for (const auto& [role, by_color] : members) {
    if (role == NcclRole::self) continue;
    for (const auto& [color, ranks] : by_color) {
      BOOST_TEST(ranks == layout.group_ranks(groups.at(role), ranks.front()),
                 boost::test_tools::per_element());
      BOOST_TEST(ranks.size() > 1U);
    }
  }
}

BOOST_AUTO_TEST_CASE(one_rank_needs_no_split) {
  BOOST_TEST(nccl_splits({}, 0).empty());
  BOOST_TEST((nccl_role({}, plan::Group::ep, 0) == NcclRole::world));
}

BOOST_AUTO_TEST_CASE(names_are_there) {
  std::set<std::string> names;
  for (int i = 0; i < static_cast<int>(NcclRole::count); ++i) {
    names.insert(name_of(static_cast<NcclRole>(i)));
  }
  BOOST_TEST(names.size() == static_cast<size_t>(NcclRole::count));
  BOOST_TEST(!names.contains("?"));
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
