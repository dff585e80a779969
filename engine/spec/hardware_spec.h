// A cluster as numbers: devices, links, what the host pays for a launch. Emulated clusters and real
// ones look alike.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/names.h"
#include "engine/spec/source.h"

namespace moetune::spec {

struct FieldPage;

/// One kind of link. A transfer costs latency_ns + bytes / bytes_per_s.
struct LinkSpec {
  int64_t latency_ns = 0;
  double bytes_per_s = 0;

  /// Without the latency. A link without a bandwidth is free: single-device machines leave it out.
  [[nodiscard]] double transfer_ns(double bytes) const {
    return bytes_per_s > 0 ? bytes / bytes_per_s * 1e9 : 0.0;
  }
};

/// What a kernel works at: how its FLOPs follow from its operands (plan/ops.h), and which share of
/// a device's peaks it reaches.
enum class Work : uint8_t {
  none,     ///< moves or fills memory
  product,  ///< {x, w, y}, {dy, w, dx}, {dy, x, dw}: 2 m n k
  grouped,  ///< the same, with the weights of all local experts below each other
  attention,
  light,  ///< a FLOP or two an element
  heavy,  ///< norms, activations, softmax: some eight
  scan,   ///< along the sequence: causal convolutions and chunked scans
  count
};
template <>
struct NameTable<Work> {
  static constexpr Named<Work> kRows[] = {
      {Work::none, "none"},       {Work::product, "product"},
      {Work::grouped, "grouped"}, {Work::attention, "attention"},
      {Work::light, "light"},     {Work::heavy, "heavy"},
      {Work::scan, "scan"}};
};

using ByWork = std::array<double, static_cast<size_t>(Work::count)>;

/// Who makes the devices.
enum class Vendor : uint8_t { nvidia, amd };
template <>
struct NameTable<Vendor> {
  static constexpr Named<Vendor> kRows[] = {{Vendor::nvidia, "nvidia"}, {Vendor::amd, "amd"}};
};

struct HardwareSpec {
  std::string name;
  int64_t num_nodes = 1;
  int64_t devices_per_node = 1;
  int64_t domain_devices = 0;     ///< that intra_node joins at most; 0: devices_per_node
  int64_t memory_bytes = 0;       ///< capacity of one device, 0: unlimited
  double peak_flops_per_s = 0;    ///< of one device, for the cost model and modelled time
  double fp8_flops_per_s = 0;     ///< the same of 8 bits, for plans; 0: the device has none
  double fp4_flops_per_s = 0;     ///< the same of 4 bits, for plans; 0: the device has none
  double memory_bytes_per_s = 0;  ///< of one device's memory
  /// Share of both peaks that kernels of a kind reach.
  ByWork efficiency = [] {
    ByWork all{};
    all.fill(1);
    return all;
  }();
  /// Rows for each matrix at which products and grouped products reach half of that share: n1/2 of
  /// Hockney & Jesshope 1981. 0: a row costs the same in every product.
  ByWork half_rows{};
  LinkSpec intra_node;  ///< per device and direction
  LinkSpec inter_node;  ///< per device and direction
  /// Between a device and its host's memory, in one direction, for plans; 0: not stated.
  double host_link_bytes_per_s = 0;
  Vendor vendor = Vendor::nvidia;  ///< of the devices, for plans
  int64_t launch_ns = 0;           ///< host time per kernel launch
  int64_t graph_launch_ns = 0;     ///< host time per graph replay
  int64_t sync_ns = 0;             ///< host time of a device synchronisation
  int64_t kernel_floor_ns = 0;     ///< modelled time: the shortest kernel
  /// Of a device's multiprocessors, what a collective in flight takes from the kernels beside it.
  double comm_sm_ratio = 0;
  /// What the kernels of a real device take for workspaces, per rank; the memory model adds it, and
  /// what attention needs beside it (attention_workspace.h).
  int64_t workspace_bytes = 0;
  /// What plans know of a host's work was seen on x86 servers; here it takes this many times as
  /// long. The times above are this machine's own.
  double host_slowness = 1;
  double power_watts = 0;  ///< of one device at most; for people, nothing is computed from it
  std::string source;      ///< where the figures are from; for people
  /// The same of single figures, by their key. Plans take the curves of a file that says that a
  /// probe measured them: is_probed_here().
  std::map<std::string, std::string> sources;

  [[nodiscard]] int64_t num_devices() const { return num_nodes * devices_per_node; }
  [[nodiscard]] int64_t node_of(int64_t rank) const { return rank / devices_per_node; }
  /// Number of the rank's device on its node.
  [[nodiscard]] int64_t local_device_of(int64_t rank) const { return rank % devices_per_node; }
};

inline bool is_of_amd(const HardwareSpec& hardware) { return hardware.vendor == Vendor::amd; }
/// Why HybridEP's kernels do not run on a machine, a sentence; empty where they do.
std::string hybridep_refusal(const HardwareSpec& hardware);

/// The source of what moetune probe has measured on the machine of a file. Files that come with
/// moetune name the machine instead.
inline constexpr std::string_view kProbedHere = "moetune probe on the machine at hand";
/// Whether the shares that kernels reach were measured so.
bool is_probed_here(const HardwareSpec& hardware);

/// Throws base::UsageError with all that is wrong.
HardwareSpec hardware_from_json(const nlohmann::json& json, const Source& source);
nlohmann::json to_json(const HardwareSpec& hardware);
/// How many devices intra_node joins at most.
int64_t domain_devices(const HardwareSpec& hardware);
/// The same machine with so many devices. Up to domain_devices() they are one node. More are nodes
/// of one size, so that all groups of ranks can lie alike: full ones, else the fullest, of at least
/// half. Throws base::UsageError with the reason and the nearest counts that fill nodes.
HardwareSpec with_devices(const HardwareSpec& hardware, int64_t num_devices);
/// The keys of a hardware file that are figures, each of which may have a source.
std::vector<std::string_view> figure_keys();
/// The rows of a hardware file's table.
std::vector<FieldPage> hardware_pages();
/// Throws base::UsageError for figures that no machine has by orders of magnitude, with what was
/// likely meant. For files that people write: emulated ideals need not be plausible.
void check_plausible(const HardwareSpec& hardware, const Source& source);

enum class CollectiveKind : uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  ring_shift  ///< each member's bytes to the next one
};
const char* name_of(CollectiveKind kind);

/// How many times longer than alone bytes take on each kind of link, because others use it
/// meanwhile (plan/passes/contention.cpp says when).
struct LinkShare {
  double intra = 1;
  double inter = 1;

  auto operator<=>(const LinkShare&) const = default;
};
/// The larger of both, by kind.
LinkShare wider(const LinkShare& a, const LinkShare& b);

/// Bytes that go over one device's links in one direction.
struct LinkBytes {
  double intra = 0;
  double inter = 0;
};
/// Of a collective, where bytes are spread evenly; `bytes` as for collective_ns.
LinkBytes link_bytes(const HardwareSpec& hardware, CollectiveKind kind,
                     const std::vector<int>& ranks, int64_t bytes);

/// Time of a collective after all have arrived. `bytes` is the full payload S: the gathered result
/// (all_gather), the input of each rank (reduce_scatter, all_reduce).
///   all-gather, reduce-scatter: A + max(S (n-1)/n / B_intra, S (n-1)/n / (k B_inter)),
///   all-reduce: both one after the other,
/// with n members, at least k of them in each of m nodes and at most l. Bandwidth is that of rings
/// (Patarasuk & Yuan 2009): over several nodes NCCL builds one for each device of a node, each of
/// which crosses on its own rail with 1/k of the data. Latency A = log2(l) a_intra + log2(m)
/// a_inter, both logarithms rounded up: recursive doubling within and across nodes (Thakur,
/// Rabenseifner & Gropp 2005). A link that the group does not span has no part in it.
int64_t collective_ns(const HardwareSpec& hardware, CollectiveKind kind,
                      const std::vector<int>& ranks, int64_t bytes, const LinkShare& share = {});

/// Time of an uneven all-to-all after all have arrived. bytes[i * n + j] goes from ranks[i] to
/// ranks[j]. On each kind of link a rank exchanges with one peer after the other (pairwise
/// exchange, Thakur, Rabenseifner & Gropp 2005): a latency for every peer that sends or receives
/// anything, and the larger of what is sent and received over the bandwidth. Both kinds of link
/// work at the same time, and the busiest of all ranks' ends last. Between two ranks it is p2p_ns.
int64_t all_to_all_ns(const HardwareSpec& hardware, const std::vector<int>& ranks,
                      const std::vector<int64_t>& bytes, const LinkShare& share = {});

/// Time of one message between two ranks.
int64_t p2p_ns(const HardwareSpec& hardware, int from, int to, int64_t bytes,
               const LinkShare& share = {});

}  // namespace moetune::spec
