// Closed forms of plans against the prices of lists of ranks, and dispatchers against enumeration.
#include "engine/spec/planned_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <ostream>
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

BOOST_AUTO_TEST_CASE(a_message_to_the_next_member_takes_the_slowest_way) {
  for (const int64_t in_node : kInNode) {
    const HardwareSpec hardware = nodes_of(in_node);
    for_each_group({2, 2, 3, 2}, [&](const GridGroup& group) {
      const std::vector<int> ranks = ranks_of(group);
      int64_t slowest = 0;
      for (size_t i = 1; i < ranks.size(); ++i) {
        slowest = std::max(slowest, p2p_ns(hardware, ranks[i - 1], ranks[i], 4000, {1, 2}));
      }
      BOOST_TEST(placed_p2p_ns(hardware, placement_of(hardware, group), 4000, {1, 2}) == slowest);
    });
  }
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
  BOOST_CHECK_THROW(placed_p2p_ns(nodes_of(4), placement, -1), base::Error);
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
  const std::vector<int> ranks = ranks_of({8, 1});
  BOOST_TEST(dispatch_ns(hardware, Dispatcher::alltoall, placement, traffic) ==
             collective_ns(hardware, CollectiveKind::all_to_all, ranks, 2000));
  BOOST_TEST(dispatch_ns(hardware, Dispatcher::allgather, placement, traffic) ==
             collective_ns(hardware, CollectiveKind::all_gather, ranks, 8000));
  BOOST_TEST(dispatch_bytes(Dispatcher::alltoall, placement, traffic).inter == 1000);
  BOOST_TEST(dispatch_bytes(Dispatcher::allgather, placement, traffic).inter == 1750);
  for (const Dispatcher dispatcher :
       {Dispatcher::alltoall, Dispatcher::allgather, Dispatcher::deepep, Dispatcher::hybridep}) {
    BOOST_TEST(dispatch_ns(hardware, dispatcher, Placement{}, traffic) == 0);
  }
}

BOOST_AUTO_TEST_CASE(copies_are_passed_on_while_they_arrive) {
  // Both experts of a token: it goes to the other node, where both ranks have one.
  const HardwareSpec hardware = nodes_of(2);
  const Placement placement = placement_of(hardware, GridGroup{4, 1});
  const ExpertTraffic traffic{.num_tokens = 10, .token_bytes = 100, .num_experts = 4, .top_k = 4};
  const LinkBytes bytes = dispatch_bytes(Dispatcher::deepep, placement, traffic);
  BOOST_TEST(bytes.inter == 1000);
  BOOST_TEST(bytes.intra == 2000);
  BOOST_TEST(dispatch_ns(hardware, Dispatcher::deepep, placement, traffic) == 1000 + 5000 + 10000);
  BOOST_TEST(dispatch_ns(hardware, Dispatcher::deepep, placement, traffic, {8, 1}) ==
             1000 + 5000 + 16000);
  const Placement in_node = placement_of(hardware, GridGroup{2, 1});
  BOOST_TEST(dispatch_ns(hardware, Dispatcher::deepep, in_node, traffic) == 1000 + 1000);
}

namespace {

/// A measured dispatch of 4096 tokens a rank, hidden size 7168, bf16, 256 experts, 8 a token:
/// table 7 of arXiv 2603.07685, as a third party transcribed it.
struct Measured {
  const char* machine;
  Dispatcher dispatcher;
  int64_t num_ranks;
  double us;
  double tolerance;
};
std::ostream& operator<<(std::ostream& out, const Measured& row) {
  return out << row.machine << " " << name_of(row.dispatcher) << " " << row.num_ranks;
}

const Measured kMeasured[] = {
    {"gb200-nvl72", Dispatcher::hybridep, 8, 391, 0.2},
    {"gb200-nvl72", Dispatcher::hybridep, 16, 578, 0.2},
    {"gb200-nvl72", Dispatcher::hybridep, 32, 612, 0.2},
    {"gb200-nvl72", Dispatcher::hybridep, 64, 675, 0.2},
    {"h100-80g", Dispatcher::hybridep, 8, 661, 0.2},
    {"h100-80g", Dispatcher::hybridep, 16, 1485, 0.4},
    {"h100-80g", Dispatcher::hybridep, 32, 3064, 0.2},
    {"h100-80g", Dispatcher::hybridep, 64, 4626, 0.2},
    // A latency for each peer is more than NCCL needs inside a node, above all for many peers.
    {"gb200-nvl72", Dispatcher::alltoall, 8, 735, 0.2},
    {"gb200-nvl72", Dispatcher::alltoall, 16, 743, 0.35},
    {"gb200-nvl72", Dispatcher::alltoall, 32, 769, 0.55},
    {"gb200-nvl72", Dispatcher::alltoall, 64, 930, 0.65},
    {"h100-80g", Dispatcher::alltoall, 8, 1265, 0.3},
    {"h100-80g", Dispatcher::alltoall, 16, 5774, 0.2},
    {"h100-80g", Dispatcher::alltoall, 32, 8059, 0.2},
    {"h100-80g", Dispatcher::alltoall, 64, 9164, 0.2},
};

}  // namespace

// With the shares of the links that such kernels reach: HybridEP 0.78 of NVLink and 1.1 of the NIC,
// NCCL 0.6 and 0.9, both from the same table.
BOOST_DATA_TEST_CASE(dispatch_takes_about_what_was_measured,
                     boost::unit_test::data::make(kMeasured)) {
  const std::string path = fmt::format("sweeps/hardware/{}.json", sample.machine);
  const HardwareSpec hardware =
      with_devices(hardware_from_json(parse_json(samples::read_file(path), path), path),
                   std::max<int64_t>(sample.num_ranks, 64));
  const LinkShare share = sample.dispatcher == Dispatcher::hybridep ? LinkShare{1 / 0.78, 1 / 1.1}
                                                                    : LinkShare{1 / 0.6, 1 / 0.9};
  const int64_t ns = dispatch_ns(
      hardware, sample.dispatcher, placement_of(hardware, GridGroup{sample.num_ranks, 1}),
      {.num_tokens = 4096, .token_bytes = int64_t{7168} * 2, .num_experts = 256, .top_k = 8},
      share);
  BOOST_TEST(static_cast<double>(ns) / 1e3 == sample.us,
             boost::test_tools::tolerance(sample.tolerance));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
