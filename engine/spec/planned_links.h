// Prices of communication for plans, which look at a hundred thousand configurations a second:
// groups are a size and a stride on the rank grid instead of lists, and nothing loops over ranks or
// allocates. Prices are those of collective_ns.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/spec/hardware_spec.h"
#include "engine/spec/plan_knobs.h"

namespace moetune::spec {

/// A computed time as a whole number; what is past its range is the largest.
int64_t rounded_ns(double ns);

/// The ranks first, first + stride, first + 2 stride, ...: a group that differs along one axis of
/// the rank grid, or along axes that lie side by side (plan/layout.h).
struct GridGroup {
  int64_t size = 1;
  int64_t stride = 1;
  int64_t first = 0;
};

/// How a group lies on the nodes.
struct Placement {
  int64_t num_ranks = 1;
  int64_t num_nodes = 1;
  int64_t most_in_a_node = 1;
  int64_t fewest_in_a_node = 1;  ///< so many rings can cross the nodes, each on its own device

  bool operator==(const Placement&) const = default;
};

/// With s = stride and d = devices_per_node: d / s members in a node, at least 1 and at most all,
/// where the group lies evenly. Exact where it does not, too.
Placement placement_of(const HardwareSpec& hardware, const GridGroup& group);
/// The same of ranks that are listed.
Placement placement_of_ranks(const HardwareSpec& hardware, const std::vector<int>& ranks);

/// collective_ns of a group whose members are in ascending order; `bytes` as there.
int64_t placed_collective_ns(const HardwareSpec& hardware, CollectiveKind kind,
                             const Placement& placement, int64_t bytes,
                             const LinkShare& share = {});

/// link_bytes of a group.
LinkBytes placed_link_bytes(CollectiveKind kind, const Placement& placement, int64_t bytes);

/// Both kinds of link move their bytes at the same time, after one latency of the farther one.
int64_t links_ns(const HardwareSpec& hardware, const LinkBytes& bytes, const LinkShare& share = {});

/// What the tokens of a rank bring to the experts of a group of ranks. All ranks have as many.
struct ExpertTraffic {
  int64_t num_tokens = 0;   ///< of a rank
  int64_t token_bytes = 0;  ///< a token's vector
  int64_t num_experts = 1;  ///< of all ranks of the group together
  int64_t top_k = 1;
};

/// On how many of n parts with E/n experts each the k experts of a token lie, on average, where
/// every set of k different ones is as likely (balanced routing):
///   n (1 - C(E - E/n, k) / C(E, k)),
/// since a part has none of them with the probability C(E - E/n, k) / C(E, k) (hypergeometric).
/// Needs num_parts and top_k from 1 to num_experts.
double expected_parts(int64_t num_experts, int64_t top_k, int64_t num_parts);

/// Bytes over the links of a device in one direction to bring tokens to their experts. Bringing the
/// results back moves as many. T tokens of b bytes, n ranks on m nodes, c of them in each:
///   alltoall: a copy for each of k experts: T k b (c-1)/n inside, T k b (n-c)/n across,
///   allgather: all tokens to all ranks, as rings do,
///   deepep, hybridep: a copy for each node that has any of the experts, to the rank of the
///   sender's place there, which passes on a copy to each other rank of its node that has any:
///   T b N(m) (m-1)/m across, T b N(n) (c-1)/c inside, with N = expected_parts
/// (DeepEP's "normal" kernels, github.com/deepseek-ai/DeepEP; HybridEP is NVIDIA's branch of it.)
LinkBytes dispatch_bytes(Dispatcher dispatcher, const Placement& placement,
                         const ExpertTraffic& traffic);

}  // namespace moetune::spec
