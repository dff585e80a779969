// Reads cluster descriptions and prices communication on them: latency plus bytes over the
// bandwidth of the link spanned.
#include "engine/spec/hardware_spec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <map>
#include <span>

#include "engine/spec/json_reader.h"
#include "kernels/base/error.h"

namespace moetune::spec {

using nlohmann::json;

namespace {

constexpr int64_t kMaxNs = 1'000'000'000'000;  // a quarter of an hour: more is a mistake
constexpr int64_t kMaxBytes = int64_t{1} << 60;
constexpr double kMaxRate = 1e21;
constexpr double kMaxSmRatio = 0.5;
constexpr double kMinEfficiency = 1e-6;
constexpr double kMaxHalfRows = 1e6;

/// A figure by kind of kernel: its key, and what it is where nothing is said.
struct ByWorkKey {
  const char* key;
  ByWork HardwareSpec::*field;
  std::span<const Work> kinds;
  double absent;
  double min;
  double max;
};
constexpr Work kAllKinds[] = {Work::none,      Work::product, Work::grouped,
                              Work::attention, Work::light,   Work::heavy};
static_assert(std::size(kAllKinds) == static_cast<size_t>(Work::count));
constexpr Work kProducts[] = {Work::product, Work::grouped};
constexpr ByWorkKey kByWork[] = {
    {"efficiency", &HardwareSpec::efficiency, kAllKinds, 1, kMinEfficiency, 1},
    {"half_rows", &HardwareSpec::half_rows, kProducts, 0, 0, kMaxHalfRows}};

void read_by_work(const ByWorkKey& row, JsonReader reader, HardwareSpec& hardware) {
  for (const Work work : row.kinds) {
    (hardware.*row.field)[static_cast<size_t>(work)] =
        reader.number_or(std::string(name_of(work)), row.absent, row.min, row.max);
  }
  reader.refuse_unknown_keys();
}

/// Of the kinds for which something is said.
json by_work_json(const ByWorkKey& row, const HardwareSpec& hardware) {
  json document = json::object();
  for (const Work work : row.kinds) {
    const double value = (hardware.*row.field)[static_cast<size_t>(work)];
    if (value != row.absent) document[std::string(name_of(work))] = value;
  }
  return document;
}

LinkSpec link_from(JsonReader reader) {
  LinkSpec link;
  link.latency_ns = reader.integer("latency_ns", 0, kMaxNs);
  link.bytes_per_s = reader.number("bytes_per_s", 1.0, kMaxRate);
  reader.refuse_unknown_keys();
  return link;
}

json link_json(const LinkSpec& link) {
  return {{"latency_ns", link.latency_ns}, {"bytes_per_s", link.bytes_per_s}};
}

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

HardwareSpec hardware_from_json(const json& document, const std::string& source) {
  JsonReader reader(document, source);
  HardwareSpec hardware;
  hardware.name = reader.text("name");
  hardware.num_nodes = reader.integer("num_nodes", 1, 65536);
  hardware.devices_per_node = reader.integer("devices_per_node", 1, 1024);
  hardware.memory_bytes = reader.integer_or("memory_bytes", 0, 0, kMaxBytes);
  hardware.peak_flops_per_s = reader.number_or("peak_flops_per_s", 0, 0, kMaxRate);
  hardware.memory_bytes_per_s = reader.number_or("memory_bytes_per_s", 0, 0, kMaxRate);
  for (const ByWorkKey& row : kByWork) {
    if (reader.has(row.key)) read_by_work(row, reader.object(row.key), hardware);
  }
  // A link that the machine has no use for may be left out.
  if (reader.has("intra_node") || hardware.devices_per_node > 1) {
    hardware.intra_node = link_from(reader.object("intra_node"));
  }
  if (reader.has("inter_node") || hardware.num_nodes > 1) {
    hardware.inter_node = link_from(reader.object("inter_node"));
  }
  hardware.launch_ns = reader.integer_or("launch_ns", 0, 0, kMaxNs);
  hardware.graph_launch_ns = reader.integer_or("graph_launch_ns", 0, 0, kMaxNs);
  hardware.sync_ns = reader.integer_or("sync_ns", 0, 0, kMaxNs);
  hardware.kernel_floor_ns = reader.integer_or("kernel_floor_ns", 0, 0, kMaxNs);
  hardware.comm_sm_ratio = reader.number_or("comm_sm_ratio", 0, 0, kMaxSmRatio);
  hardware.workspace_bytes = reader.integer_or("workspace_bytes", 0, 0, kMaxBytes);
  for (const ByWorkKey& row : kByWork) reader.ignore(row.key);
  reader.ignore("intra_node");
  reader.ignore("inter_node");
  reader.refuse_unknown_keys();
  return hardware;
}

json to_json(const HardwareSpec& hardware) {
  json document = {{"name", hardware.name},
                   {"num_nodes", hardware.num_nodes},
                   {"devices_per_node", hardware.devices_per_node},
                   {"memory_bytes", hardware.memory_bytes},
                   {"peak_flops_per_s", hardware.peak_flops_per_s},
                   {"memory_bytes_per_s", hardware.memory_bytes_per_s},
                   {"launch_ns", hardware.launch_ns},
                   {"graph_launch_ns", hardware.graph_launch_ns},
                   {"sync_ns", hardware.sync_ns},
                   {"kernel_floor_ns", hardware.kernel_floor_ns}};
  for (const ByWorkKey& row : kByWork) {
    if (json figures = by_work_json(row, hardware); !figures.empty()) {
      document[row.key] = std::move(figures);
    }
  }
  if (hardware.comm_sm_ratio > 0) document["comm_sm_ratio"] = hardware.comm_sm_ratio;
  if (hardware.workspace_bytes > 0) document["workspace_bytes"] = hardware.workspace_bytes;
  // An absent link has no bandwidth; writing it would not read back.
  if (hardware.intra_node.bytes_per_s > 0) document["intra_node"] = link_json(hardware.intra_node);
  if (hardware.inter_node.bytes_per_s > 0) document["inter_node"] = link_json(hardware.inter_node);
  return document;
}

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
