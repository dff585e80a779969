// Prices communication on a cluster: latency plus bytes over the bandwidth of the link spanned.
#include <algorithm>
#include <map>

#include "engine/spec/hardware_spec.h"
#include "engine/spec/planned_links.h"
#include "kernels/base/error.h"

namespace moetune::spec {

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

Placement placement_of_ranks(const HardwareSpec& hardware, const std::vector<int>& ranks) {
  std::map<int64_t, int64_t> members;
  for (const int rank : ranks) ++members[hardware.node_of(rank)];
  const auto num_ranks = static_cast<int64_t>(ranks.size());
  Placement placement{num_ranks, static_cast<int64_t>(members.size()), 0, num_ranks};
  for (const auto& [node, count] : members) {
    placement.most_in_a_node = std::max(placement.most_in_a_node, count);
    placement.fewest_in_a_node = std::min(placement.fewest_in_a_node, count);
  }
  return placement;
}

LinkBytes link_bytes(const HardwareSpec& hardware, CollectiveKind kind,
                     const std::vector<int>& ranks, int64_t bytes) {
  return placed_link_bytes(kind, placement_of_ranks(hardware, ranks), bytes);
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
  return placed_collective_ns(hardware, kind, placement_of_ranks(hardware, ranks), bytes, share);
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
             link.transfer_ns(std::max(sent, received)) * times;
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
                    link.transfer_ns(static_cast<double>(bytes)) *
                        (is_inter ? share.inter : share.intra));
}

}  // namespace moetune::spec
