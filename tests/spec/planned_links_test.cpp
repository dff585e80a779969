// Closed forms of plans against the prices of lists of ranks, and dispatchers against enumeration.
#include "engine/spec/planned_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <set>

#include "kernels/base/error.h"
#include "tests/spec/spec_samples.h"

namespace moetune::spec {

BOOST_AUTO_TEST_SUITE(planned_links)

namespace {

/// Inside a node 1000 ns and 1 byte/ns, across 5000 ns and 0.1 bytes/ns.
HardwareSpec nodes_of(int64_t devices_per_node) {
  HardwareSpec hardware = hardware_from_json(samples::cluster(), "h.json");
  hardware.devices_per_node = devices_per_node;
  return hardware;
}

std::vector<int> ranks_of(const GridGroup& group) {
  std::vector<int> ranks;
  for (int64_t i = 0; i < group.size; ++i) {
    ranks.push_back(static_cast<int>(group.first + i * group.stride));
  }
  return ranks;
}

std::string text_of(const HardwareSpec& hardware, const GridGroup& group) {
  return fmt::format("{} ranks from {}, {} apart, {} in a node", group.size, group.first,
                     group.stride, hardware.devices_per_node);
}

std::string text_of(const Placement& placement) {
  return fmt::format("{} ranks on {} nodes, {} to {} in each", placement.num_ranks,
                     placement.num_nodes, placement.fewest_in_a_node, placement.most_in_a_node);
}

/// Sizes of axes, fastest first: tp, cp, dp, pp.
using Grid = std::vector<int64_t>;

/// Calls `visit` with every group along axes that lie side by side.
template <class Visit>
void for_each_group(const Grid& grid, Visit&& visit) {
  int64_t num_ranks = 1;
  for (const int64_t size : grid) num_ranks *= size;
  int64_t stride = 1;
  for (size_t from = 0; from < grid.size(); ++from) {
    int64_t size = 1;
    for (size_t to = from; to < grid.size(); ++to) {
      size *= grid[to];
      for (int64_t rank = 0; rank < num_ranks; ++rank) {
        if (rank / stride % size == 0) visit(GridGroup{size, stride, rank});
      }
    }
    stride *= grid[from];
  }
}

std::vector<Grid> small_grids() {
  std::vector<Grid> grids;
  for (const int64_t tp : {1, 2, 3}) {
    for (const int64_t cp : {1, 2}) {
      for (const int64_t dp : {1, 2, 3, 4}) {
        for (const int64_t pp : {1, 2, 3}) grids.push_back({tp, cp, dp, pp});
      }
    }
  }
  return grids;
}

const int64_t kInNode[] = {1, 2, 3, 4, 6, 8};

}  // namespace

BOOST_AUTO_TEST_CASE(groups_lie_where_their_ranks_do) {
  size_t num_wrong = 0;
  for (int64_t in_node = 1; in_node <= 12; ++in_node) {
    const HardwareSpec hardware = nodes_of(in_node);
    for (int64_t stride = 1; stride <= 13; ++stride) {
      for (int64_t size = 1; size <= 20; ++size) {
        for (int64_t first = 0; first < 13; ++first) {
          const GridGroup group{size, stride, first};
          const Placement placement = placement_of(hardware, group);
          const Placement listed = placement_of_ranks(hardware, ranks_of(group));
          if (placement == listed || ++num_wrong > 5) continue;
          BOOST_ERROR(text_of(hardware, group)
                      << ": " << text_of(placement) << ", not " << text_of(listed));
        }
      }
    }
  }
  BOOST_TEST(num_wrong == 0u);
}

BOOST_DATA_TEST_CASE(every_group_of_a_grid_costs_what_its_ranks_do,
                     boost::unit_test::data::make(kInNode)) {
  const HardwareSpec hardware = nodes_of(sample);
  const LinkShare share{1.5, 2.5};
  size_t num_wrong = 0;
  size_t num_groups = 0;
  for (const Grid& grid : small_grids()) {
    for_each_group(grid, [&](const GridGroup& group) {
      ++num_groups;
      const std::vector<int> ranks = ranks_of(group);
      const Placement placement = placement_of(hardware, group);
      for (const CollectiveKind kind :
           {CollectiveKind::all_gather, CollectiveKind::reduce_scatter, CollectiveKind::all_reduce,
            CollectiveKind::all_to_all, CollectiveKind::ring_shift}) {
        for (const int64_t bytes : {0, 5, 1'000'003}) {
          const int64_t planned = placed_collective_ns(hardware, kind, placement, bytes, share);
          const int64_t listed = collective_ns(hardware, kind, ranks, bytes, share);
          if (planned == listed || ++num_wrong > 5) continue;
          BOOST_ERROR(text_of(hardware, group) << ": " << name_of(kind) << " of " << bytes
                                               << " bytes takes " << planned << ", not " << listed);
        }
      }
    });
  }
  BOOST_TEST(num_wrong == 0u);
  BOOST_TEST(num_groups > 1000u);
}

/// All groups of this size and stride that tile the grid lie like this one.
bool groups_are_alike(const HardwareSpec& hardware, const GridGroup& group) {
  const int64_t in_node = hardware.devices_per_node;
  if (group.size <= 1 || group.stride >= in_node) return true;
  const int64_t span = group.size * group.stride;
  return in_node % group.stride == 0 && (span % in_node == 0 || in_node % span == 0);
}

BOOST_AUTO_TEST_CASE(groups_that_are_alike_have_one_placement) {
  size_t num_alike = 0;
  for (int64_t in_node = 1; in_node <= 12; ++in_node) {
    const HardwareSpec hardware = nodes_of(in_node);
    for (int64_t stride = 1; stride <= 13; ++stride) {
      for (int64_t size = 1; size <= 13; ++size) {
        const GridGroup group{size, stride};
        if (!groups_are_alike(hardware, group)) continue;
        ++num_alike;
        const Placement placement = placement_of(hardware, group);
        BOOST_TEST(placement.most_in_a_node == std::clamp<int64_t>(in_node / stride, 1, size));
        BOOST_TEST(placement.fewest_in_a_node == placement.most_in_a_node);
        for (int64_t tile = 0; tile < 4; ++tile) {
          for (int64_t place = 0; place < stride; ++place) {
            const GridGroup other{size, stride, tile * size * stride + place};
            BOOST_TEST((placement_of(hardware, other) == placement), text_of(hardware, other));
          }
        }
      }
    }
  }
  BOOST_TEST(num_alike > 100u);
  BOOST_TEST(!groups_are_alike(nodes_of(8), {35, 1}));
  BOOST_TEST(!groups_are_alike(nodes_of(8), {4, 3}));
  BOOST_TEST(groups_are_alike(nodes_of(8), {8, 35}));
}

BOOST_AUTO_TEST_CASE(large_groups_are_no_slower_to_place) {
  const HardwareSpec hardware = nodes_of(64);
  const Placement placement = placement_of(hardware, {int64_t{1} << 20, 8});
  BOOST_TEST(placement.num_nodes == 1 << 17);
  BOOST_TEST(placement.most_in_a_node == 8);
  BOOST_TEST(placed_collective_ns(hardware, CollectiveKind::all_reduce, placement, 0) ==
             2 * (3 * 1000 + 17 * 5000));
}

BOOST_AUTO_TEST_CASE(negative_sizes_are_refused) {
  const Placement placement = placement_of(nodes_of(4), GridGroup{4, 1});
  BOOST_CHECK_THROW(placed_collective_ns(nodes_of(4), CollectiveKind::all_gather, placement, -1),
                    base::Error);
  BOOST_CHECK_THROW(expected_parts(8, 9, 2), base::Error);
  BOOST_CHECK_THROW(expected_parts(8, 2, 16), base::Error);
}

namespace {

/// Calls `visit` with the experts of every choice of top_k ones, as bits; how many there are.
template <class Visit>
int for_each_choice(int num_experts, int top_k, Visit&& visit) {
  int num_choices = 0;
  for (unsigned experts = 0; experts < 1U << num_experts; ++experts) {
    if (std::popcount(experts) != top_k) continue;
    ++num_choices;
    visit(experts);
  }
  return num_choices;
}

std::set<int> parts_of(unsigned experts, int num_experts, int num_parts) {
  std::set<int> parts;
  for (int e = 0; e < num_experts; ++e) {
    if ((experts >> e & 1U) != 0) parts.insert(e / (num_experts / num_parts));
  }
  return parts;
}

}  // namespace

BOOST_AUTO_TEST_CASE(expected_parts_are_those_of_all_choices) {
  for (const int num_experts : {4, 6, 8, 12}) {
    for (int num_parts = 1; num_parts <= num_experts; ++num_parts) {
      if (num_experts % num_parts != 0) continue;
      for (int top_k = 1; top_k <= num_experts; ++top_k) {
        double sum = 0;
        const int num_choices = for_each_choice(num_experts, top_k, [&](unsigned experts) {
          sum += static_cast<double>(parts_of(experts, num_experts, num_parts).size());
        });
        BOOST_TEST(expected_parts(num_experts, top_k, num_parts) == sum / num_choices,
                   boost::test_tools::tolerance(1e-12));
      }
    }
  }
  // 256 experts on 8 ranks, 8 of them a token.
  BOOST_TEST(expected_parts(256, 8, 8) == 5.29, boost::test_tools::tolerance(0.01));
}

// Follows each token from its rank over the nodes to the ranks of its experts.
BOOST_AUTO_TEST_CASE(a_deduplicated_token_goes_once_to_a_node_and_once_to_a_rank) {
  constexpr int kExperts = 8;
  constexpr int64_t kTokenBytes = 100;
  for (const int num_ranks : {1, 2, 4, 8}) {
    for (const int in_node : {1, 2, 4, 8}) {
      const HardwareSpec hardware = nodes_of(in_node);
      const Placement placement = placement_of(hardware, GridGroup{num_ranks, 1});
      for (const int top_k : {1, 2, 3, 8}) {
        int64_t inside = 0;
        int64_t across = 0;
        int num_tokens = 0;
        for (int rank = 0; rank < num_ranks; ++rank) {
          num_tokens += for_each_choice(kExperts, top_k, [&](unsigned experts) {
            std::set<int> nodes;
            for (const int to : parts_of(experts, kExperts, num_ranks)) {
              nodes.insert(to / in_node);
              if (to % in_node != rank % in_node) ++inside;
            }
            nodes.erase(rank / in_node);
            across += static_cast<int64_t>(nodes.size());
          });
        }
        for (const Dispatcher dispatcher : {Dispatcher::deepep, Dispatcher::hybridep}) {
          const LinkBytes bytes = dispatch_bytes(dispatcher, placement,
                                                 {.num_tokens = 1,
                                                  .token_bytes = kTokenBytes,
                                                  .num_experts = kExperts,
                                                  .top_k = top_k});
          const double times = static_cast<double>(kTokenBytes) / num_tokens;
          BOOST_TEST(bytes.intra == times * static_cast<double>(inside),
                     boost::test_tools::tolerance(1e-12));
          BOOST_TEST(bytes.inter == times * static_cast<double>(across),
                     boost::test_tools::tolerance(1e-12));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(other_dispatchers_are_collectives) {
  const HardwareSpec hardware = nodes_of(4);
  const Placement placement = placement_of(hardware, GridGroup{8, 1});
  const ExpertTraffic traffic{.num_tokens = 10, .token_bytes = 100, .num_experts = 8, .top_k = 2};
  BOOST_TEST(dispatch_bytes(Dispatcher::alltoall, placement, traffic).inter == 1000);
  BOOST_TEST(dispatch_bytes(Dispatcher::allgather, placement, traffic).inter == 1750);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
