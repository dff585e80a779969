// Places groups of the rank grid on nodes and prices what they send, in closed form.
#include "engine/spec/planned_links.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/base/error.h"

namespace moetune::spec {

namespace {

/// ceil(log2(n)).
double num_rounds(int64_t n) {
  return static_cast<double>(std::bit_width(static_cast<uint64_t>(n) - 1));
}

/// `num_peers` messages one after the other that bring `bytes` in all.
double exchange_ns(const LinkSpec& link, int64_t num_peers, double bytes, double times) {
  if (num_peers == 0) return 0;
  return static_cast<double>(num_peers * link.latency_ns) + link.transfer_ns(bytes) * times;
}

/// What rings move over each kind of link: reducing and gathering one after the other twice as
/// much.
LinkBytes ring_bytes(CollectiveKind kind, const Placement& placement, int64_t bytes) {
  const auto n = static_cast<double>(placement.num_ranks);
  const double times = kind == CollectiveKind::all_reduce ? 2 : 1;
  const double moved = times * static_cast<double>(bytes) * (n - 1) / n;
  const auto num_rails = static_cast<double>(placement.fewest_in_a_node);
  return {placement.most_in_a_node > 1 ? moved : 0,
          placement.num_nodes > 1 ? moved / num_rails : 0};
}

int64_t ring_ns(const HardwareSpec& hardware, CollectiveKind kind, const Placement& placement,
                int64_t bytes, const LinkShare& share) {
  const double latency =
      num_rounds(placement.most_in_a_node) * static_cast<double>(hardware.intra_node.latency_ns) +
      num_rounds(placement.num_nodes) * static_cast<double>(hardware.inter_node.latency_ns);
  const LinkBytes moved = ring_bytes(kind, placement, bytes);
  const double transfer = std::max(hardware.intra_node.transfer_ns(moved.intra) * share.intra,
                                   hardware.inter_node.transfer_ns(moved.inter) * share.inter);
  return rounded_ns((kind == CollectiveKind::all_reduce ? 2 * latency : latency) + transfer);
}

/// Every member has as much for each other one. Who shares its node with the most is the busiest
/// inside, who shares it with the fewest across.
int64_t even_all_to_all_ns(const HardwareSpec& hardware, const Placement& placement, int64_t bytes,
                           const LinkShare& share) {
  const int64_t each = bytes / placement.num_ranks;
  if (each == 0) return 0;
  const int64_t inside = placement.most_in_a_node - 1;
  const int64_t across = placement.num_ranks - placement.fewest_in_a_node;
  return rounded_ns(
      std::max(exchange_ns(hardware.intra_node, inside,
                           static_cast<double>(inside) * static_cast<double>(each), share.intra),
               exchange_ns(hardware.inter_node, across,
                           static_cast<double>(across) * static_cast<double>(each), share.inter)));
}

/// A member exchanges with the one before and the one behind it, which between two is the same.
int64_t ring_shift_ns(const HardwareSpec& hardware, const Placement& placement, int64_t bytes,
                      const LinkShare& share) {
  if (bytes == 0) return 0;
  const int64_t num_neighbours = std::min<int64_t>(placement.num_ranks - 1, 2);
  const bool is_on_one = placement.num_nodes == 1;
  const int64_t inside =
      is_on_one ? num_neighbours : std::min<int64_t>(placement.most_in_a_node - 1, 2);
  const int64_t across = is_on_one ? 0 : placement.fewest_in_a_node == 1 ? num_neighbours : 1;
  const auto moved = static_cast<double>(bytes);
  return rounded_ns(std::max(exchange_ns(hardware.intra_node, inside, moved, share.intra),
                             exchange_ns(hardware.inter_node, across, moved, share.inter)));
}

}  // namespace

int64_t rounded_ns(double ns) {
  constexpr double kMax = 9e18;
  return std::llround(std::min(ns, kMax));
}

Placement placement_of(const HardwareSpec& hardware, const GridGroup& group) {
  const int64_t n = group.size;
  const int64_t stride = group.stride;
  const int64_t in_node = hardware.devices_per_node;
  if (n <= 1) return {};
  if (stride >= in_node) return {n, n, 1, 1};
  const int64_t last = group.first + (n - 1) * stride;
  const int64_t first_node = group.first / in_node;
  const int64_t num_nodes = last / in_node - first_node + 1;
  if (num_nodes == 1) return {n, 1, n, n};
  const int64_t in_first = (in_node - group.first % in_node + stride - 1) / stride;
  const int64_t in_last = last % in_node / stride + 1;
  Placement placement{n, num_nodes, std::max(in_first, in_last), std::min(in_first, in_last)};
  const int64_t num_between = num_nodes - 2;
  if (num_between == 0) return placement;
  // Of the nodes between, one whose first member stands at its device p < rest has a member more
  // than the others. In the next node the first one stands at p - rest, or at p - rest + stride.
  const int64_t rest = in_node % stride;
  const int64_t fewer = in_node / stride;
  bool has_more = false;
  bool has_fewer = true;
  if (rest > 0) {
    const int64_t p = group.first + in_first * stride - (first_node + 1) * in_node;
    const int64_t nodes_before_more = p / rest;
    const int64_t nodes_before_fewer =
        p >= rest ? 0 : (rest - p + stride - rest - 1) / (stride - rest);
    has_more = nodes_before_more < num_between;
    has_fewer = nodes_before_fewer < num_between;
  }
  placement.most_in_a_node = std::max(placement.most_in_a_node, has_more ? fewer + 1 : fewer);
  placement.fewest_in_a_node = std::min(placement.fewest_in_a_node, has_fewer ? fewer : fewer + 1);
  return placement;
}

int64_t placed_collective_ns(const HardwareSpec& hardware, CollectiveKind kind,
                             const Placement& placement, int64_t bytes, const LinkShare& share) {
  MOETUNE_CHECK(bytes >= 0, "{} of {} bytes", name_of(kind), bytes);
  if (placement.num_ranks < 2) return 0;
  switch (kind) {
    case CollectiveKind::all_to_all:
      return even_all_to_all_ns(hardware, placement, bytes, share);
    case CollectiveKind::ring_shift:
      return ring_shift_ns(hardware, placement, bytes, share);
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_reduce:
      break;
  }
  return ring_ns(hardware, kind, placement, bytes, share);
}

LinkBytes placed_link_bytes(CollectiveKind kind, const Placement& placement, int64_t bytes) {
  if (placement.num_ranks < 2) return {};
  const auto whole = static_cast<double>(bytes);
  if (kind == CollectiveKind::all_to_all) {
    const auto n = static_cast<double>(placement.num_ranks);
    const auto in_node = static_cast<double>(placement.most_in_a_node);
    return {whole / n * (in_node - 1), whole / n * (n - in_node)};
  }
  if (kind == CollectiveKind::ring_shift) {
    return {placement.most_in_a_node > 1 ? whole : 0, placement.num_nodes > 1 ? whole : 0};
  }
  return ring_bytes(kind, placement, bytes);
}

int64_t links_ns(const HardwareSpec& hardware, const LinkBytes& bytes, const LinkShare& share) {
  if (bytes.intra + bytes.inter <= 0) return 0;
  const LinkSpec& farther = bytes.inter > 0 ? hardware.inter_node : hardware.intra_node;
  return rounded_ns(static_cast<double>(farther.latency_ns) +
                    std::max(hardware.intra_node.transfer_ns(bytes.intra) * share.intra,
                             hardware.inter_node.transfer_ns(bytes.inter) * share.inter));
}

double expected_parts(int64_t num_experts, int64_t top_k, int64_t num_parts) {
  MOETUNE_CHECK(top_k >= 1 && top_k <= num_experts && num_parts >= 1 && num_parts <= num_experts,
                "{} of {} experts on {} parts", top_k, num_experts, num_parts);
  const auto experts = static_cast<double>(num_experts);
  const auto parts = static_cast<double>(num_parts);
  const double elsewhere = experts - experts / parts;
  double none_here = 1;
  for (int64_t i = 0; i < top_k; ++i) {
    const auto taken = static_cast<double>(i);
    none_here *= std::max(0.0, elsewhere - taken) / (experts - taken);
  }
  return parts * (1 - none_here);
}

LinkBytes dispatch_bytes(Dispatcher dispatcher, const Placement& placement,
                         const ExpertTraffic& traffic) {
  const int64_t bytes = traffic.num_tokens * traffic.token_bytes;
  switch (dispatcher) {
    case Dispatcher::alltoall:
      return placed_link_bytes(CollectiveKind::all_to_all, placement, bytes * traffic.top_k);
    case Dispatcher::allgather:
      return placed_link_bytes(CollectiveKind::all_gather, placement, bytes * placement.num_ranks);
    case Dispatcher::deepep:
    case Dispatcher::hybridep:
      break;
  }
  if (placement.num_ranks < 2) return {};
  const auto num_nodes = static_cast<double>(placement.num_nodes);
  const auto in_node = static_cast<double>(placement.most_in_a_node);
  const double to_nodes = expected_parts(traffic.num_experts, traffic.top_k, placement.num_nodes);
  const double to_ranks = expected_parts(traffic.num_experts, traffic.top_k, placement.num_ranks);
  const auto once = static_cast<double>(bytes);
  return {once * to_ranks * (in_node - 1) / in_node, once * to_nodes * (num_nodes - 1) / num_nodes};
}

}  // namespace moetune::spec
