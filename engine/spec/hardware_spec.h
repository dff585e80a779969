// A cluster as numbers: devices, links, what the host pays for a launch. Emulated clusters and real
// ones look alike.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace moetune::spec {

/// One kind of link. A transfer costs latency_ns + bytes / bytes_per_s.
struct LinkSpec {
  int64_t latency_ns = 0;
  double bytes_per_s = 0;
};

struct HardwareSpec {
  std::string name;
  int64_t num_nodes = 1;
  int64_t devices_per_node = 1;
  int64_t memory_bytes = 0;       ///< capacity of one device, 0: unlimited
  double peak_flops_per_s = 0;    ///< of one device, for the cost model and modelled time
  double memory_bytes_per_s = 0;  ///< of one device's memory
  LinkSpec intra_node;            ///< per device and direction
  LinkSpec inter_node;            ///< per device and direction
  int64_t launch_ns = 0;          ///< host time per kernel launch
  int64_t graph_launch_ns = 0;    ///< host time per graph replay
  int64_t sync_ns = 0;            ///< host time of a device synchronisation
  int64_t kernel_floor_ns = 0;    ///< modelled time: the shortest kernel
  /// What the kernels of a real device take for workspaces, per rank; the memory model adds it, and
  /// what attention needs beside it (attention_workspace.h).
  int64_t workspace_bytes = 0;

  [[nodiscard]] int64_t num_devices() const { return num_nodes * devices_per_node; }
  [[nodiscard]] int64_t node_of(int64_t rank) const { return rank / devices_per_node; }
};

HardwareSpec hardware_from_json(const nlohmann::json& json, const std::string& source);
nlohmann::json to_json(const HardwareSpec& hardware);

enum class CollectiveKind : uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  broadcast,
  barrier
};
const char* name_of(CollectiveKind kind);

/// Time of a collective after all have arrived. `bytes` is the full payload S: the gathered result
/// (all_gather), the input of each rank (reduce_scatter, all_reduce, broadcast).
///   all-gather, reduce-scatter: A + max(S (n-1)/n / B_intra, S (n-1)/n / (k B_inter)),
///   all-reduce: both one after the other; broadcast: S in place of S (n-1)/n; barrier: A alone,
/// with n members, at least k of them in each of m nodes and at most l. Bandwidth is that of rings
/// (Patarasuk & Yuan 2009): over several nodes NCCL builds one for each device of a node, each of
/// which crosses on its own rail with 1/k of the data. Latency A = log2(l) a_intra + log2(m)
/// a_inter, both logarithms rounded up: recursive doubling within and across nodes (Thakur,
/// Rabenseifner & Gropp 2005). A link that the group does not span has no part in it.
int64_t collective_ns(const HardwareSpec& hardware, CollectiveKind kind,
                      const std::vector<int>& ranks, int64_t bytes);

/// Time of an uneven all-to-all after all have arrived. bytes[i * n + j] goes from ranks[i] to
/// ranks[j]. On each kind of link a rank exchanges with one peer after the other (pairwise
/// exchange, Thakur, Rabenseifner & Gropp 2005): a latency for every peer that sends or receives
/// anything, and the larger of what is sent and received over the bandwidth. Both kinds of link
/// work at the same time, and the busiest of all ranks' ends last. Between two ranks it is p2p_ns.
int64_t all_to_all_ns(const HardwareSpec& hardware, const std::vector<int>& ranks,
                      const std::vector<int64_t>& bytes);

/// Time of one message between two ranks.
int64_t p2p_ns(const HardwareSpec& hardware, int from, int to, int64_t bytes);

}  // namespace moetune::spec
