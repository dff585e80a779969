// Prices communication on a cluster: latency plus bytes over the bandwidth of the link spanned.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "engine/spec/hardware_spec.h"
#include "kernels/base/error.h"

namespace moetune::spec {

namespace {

/// A link without a bandwidth is free: single-device machines leave it out.
double transfer_ns(const LinkSpec& link, double bytes) {
  return link.bytes_per_s > 0 ? bytes / link.bytes_per_s * 1e9 : 0.0;
}

int64_t rounded_ns(double ns) {
  constexpr double kMax = 9e18;
  return std::llround(std::min(ns, kMax));
}

/// How a group lies on the nodes.
struct Placement {
  size_t num_nodes = 0;
  size_t most_in_a_node = 0;
  size_t fewest_in_a_node = 0;  ///< so many rings can cross the nodes, each on a device of its own
};

Placement placement_of(const HardwareSpec& hardware, const std::vector<int>& ranks) {
  std::map<int64_t, size_t> members;
  for (const int rank : ranks) ++members[hardware.node_of(rank)];
  Placement placement{members.size(), 0, ranks.size()};
  for (const auto& [node, count] : members) {
    placement.most_in_a_node = std::max(placement.most_in_a_node, count);
    placement.fewest_in_a_node = std::min(placement.fewest_in_a_node, count);
  }
  return placement;
}

/// What rings move over each kind of link: reducing and gathering one after the other twice as
/// much.
LinkBytes ring_bytes(const Placement& placement, CollectiveKind kind, size_t num_ranks,
                     int64_t bytes) {
  const auto n = static_cast<double>(num_ranks);
  const double times = kind == CollectiveKind::all_reduce ? 2 : 1;
  const double moved = times * static_cast<double>(bytes) * (n - 1) / n;
  const auto num_rails = static_cast<double>(placement.fewest_in_a_node);
  return {placement.most_in_a_node > 1 ? moved : 0,
          placement.num_nodes > 1 ? moved / num_rails : 0};
}

/// ceil(log2(n)).
double num_rounds(size_t n) { return static_cast<double>(std::bit_width(n - 1)); }

}  // namespace

const char* name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_gather:
      return "all_gather";
    case CollectiveKind::reduce_scatter:
      return "reduce_scatter";
    case CollectiveKind::all_reduce:
      return "all_reduce";
    case CollectiveKind::all_to_all:
      return "all_to_all";
    case CollectiveKind::ring_shift:
      return "ring_shift";
  }
  return "?";
}

LinkShare wider(const LinkShare& a, const LinkShare& b) {
  return {std::max(a.intra, b.intra), std::max(a.inter, b.inter)};
}

LinkBytes link_bytes(const HardwareSpec& hardware, CollectiveKind kind,
                     const std::vector<int>& ranks, int64_t bytes) {
  if (ranks.size() < 2) return {};
  const auto n = static_cast<double>(ranks.size());
  const Placement placement = placement_of(hardware, ranks);
  const auto whole = static_cast<double>(bytes);
  if (kind == CollectiveKind::all_to_all) {
    const auto in_node = static_cast<double>(placement.most_in_a_node);
    return {whole / n * (in_node - 1), whole / n * (n - in_node)};
  }
  if (kind == CollectiveKind::ring_shift) {
    return {placement.most_in_a_node > 1 ? whole : 0, placement.num_nodes > 1 ? whole : 0};
  }
  return ring_bytes(placement, kind, ranks.size(), bytes);
}

int64_t collective_ns(const HardwareSpec& hardware, CollectiveKind kind,
                      const std::vector<int>& ranks, int64_t bytes, const LinkShare& share) {
  MOETUNE_CHECK(bytes >= 0, "{} of {} bytes", name_of(kind), bytes);
  if (ranks.size() < 2) return 0;
  if (kind == CollectiveKind::all_to_all) {
    const auto n = static_cast<int64_t>(ranks.size());
    return all_to_all_ns(hardware, ranks,
                         std::vector<int64_t>(static_cast<size_t>(n * n), bytes / n), share);
  }
  if (kind == CollectiveKind::ring_shift) {
    const size_t num_ranks = ranks.size();
    std::vector<int64_t> to_next(num_ranks * num_ranks, 0);
    for (size_t i = 0; i < num_ranks; ++i) to_next[i * num_ranks + (i + 1) % num_ranks] = bytes;
    return all_to_all_ns(hardware, ranks, to_next, share);
  }
  const Placement placement = placement_of(hardware, ranks);
  const double latency =
      num_rounds(placement.most_in_a_node) * static_cast<double>(hardware.intra_node.latency_ns) +
      num_rounds(placement.num_nodes) * static_cast<double>(hardware.inter_node.latency_ns);
  const LinkBytes moved = ring_bytes(placement, kind, ranks.size(), bytes);
  const double transfer = std::max(transfer_ns(hardware.intra_node, moved.intra) * share.intra,
                                   transfer_ns(hardware.inter_node, moved.inter) * share.inter);
  return rounded_ns((kind == CollectiveKind::all_reduce ? 2 * latency : latency) + transfer);
}

int64_t all_to_all_ns(const HardwareSpec& hardware, const std::vector<int>& ranks,
                      const std::vector<int64_t>& bytes, const LinkShare& share) {
  const size_t n = ranks.size();
  MOETUNE_CHECK(bytes.size() == n * n, "all_to_all of {} ranks needs {} byte counts, got {}", n,
                n * n, bytes.size());
  /// What goes over one kind of link of one rank.
  struct Traffic {
    double sent = 0;
    double received = 0;
    double num_peers = 0;

    [[nodiscard]] double on(const LinkSpec& link, double times) const {
      return num_peers * static_cast<double>(link.latency_ns) +
             transfer_ns(link, std::max(sent, received)) * times;
    }
  };
  double busiest = 0;
  for (size_t i = 0; i < n; ++i) {
    Traffic intra;
    Traffic inter;
    for (size_t j = 0; j < n; ++j) {
      const int64_t sent = bytes[i * n + j];
      const int64_t received = bytes[j * n + i];
      MOETUNE_CHECK(sent >= 0, "all_to_all of {} bytes", sent);
      if (i == j || (sent == 0 && received == 0)) continue;
      const bool is_inter = hardware.node_of(ranks[i]) != hardware.node_of(ranks[j]);
      Traffic& traffic = is_inter ? inter : intra;
      traffic.sent += static_cast<double>(sent);
      traffic.received += static_cast<double>(received);
      ++traffic.num_peers;
    }
    busiest = std::max({busiest, intra.on(hardware.intra_node, share.intra),
                        inter.on(hardware.inter_node, share.inter)});
  }
  return rounded_ns(busiest);
}

int64_t p2p_ns(const HardwareSpec& hardware, int from, int to, int64_t bytes,
               const LinkShare& share) {
  MOETUNE_CHECK(bytes >= 0, "message of {} bytes", bytes);
  if (from == to) return 0;
  const bool is_inter = hardware.node_of(from) != hardware.node_of(to);
  const LinkSpec& link = is_inter ? hardware.inter_node : hardware.intra_node;
  return rounded_ns(static_cast<double>(link.latency_ns) +
                    transfer_ns(link, static_cast<double>(bytes)) *
                        (is_inter ? share.inter : share.intra));
}

}  // namespace moetune::spec
