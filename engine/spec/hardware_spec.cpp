// Reads cluster descriptions: the table of their keys.
#include "engine/spec/hardware_spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/spec/fields.h"
#include "kernels/base/error.h"
#include "kernels/base/utf8.h"

namespace moetune::spec {

using nlohmann::json;

namespace {

constexpr double kMaxNs = 1e12;  // a quarter of an hour: more is a mistake
constexpr double kMaxBytes = static_cast<double>(int64_t{1} << 60);
constexpr double kMaxRate = 1e21;
constexpr double kMinEfficiency = 1e-6;
constexpr double kMaxHalfRows = 1e6;
constexpr int64_t kMaxNodes = 65536;

// What machines have, from an emulated device on one core to a rack that does not exist yet.
constexpr Limits kRealMemory{1e5, 4e12};
constexpr Limits kRealLink{1e6, 1e14};
constexpr Limits kRealMemoryRate{1e7, 1e15};
constexpr Limits kRealFlops{1e7, 1e17};
constexpr Limits kRealLatency{100, 2e6};  // links within a building
// A link in a node takes some 10 us, where the host's memory lies between some 100. The emulated
// one of a small model's miniature comes to 670.
constexpr Limits kRealLatencyInNode{100, 8e5};
constexpr Limits kRealHostTime{100, 1e6};
constexpr Limits kRealSlowness{0.1, 10};
constexpr Limits kRealPower{1, 1e5};

constexpr std::array<Field<LinkSpec>, 2> link_fields(Limits real_latency) {
  return {{field<&LinkSpec::latency_ns>({.key = "latency_ns",
                                         .quantity = Quantity::nanoseconds,
                                         .limits = {0, kMaxNs},
                                         .help = "What each message costs beside its bytes.",
                                         .presence = Presence::required,
                                         .plausible = real_latency}),
           field<&LinkSpec::bytes_per_s>({.key = "bytes_per_s",
                                          .quantity = Quantity::bytes_per_s,
                                          .limits = {1, kMaxRate},
                                          .help = "Bandwidth of one device in one direction.",
                                          .presence = Presence::required,
                                          .plausible = kRealLink})}};
}

std::span<const Field<LinkSpec>> intra_node_fields() {
  static constexpr auto kRows = link_fields(kRealLatencyInNode);
  return kRows;
}

std::span<const Field<LinkSpec>> inter_node_fields() {
  static constexpr auto kRows = link_fields(kRealLatency);
  return kRows;
}

template <Work Kind>
constexpr Field<ByWork> by_work(Limits limits, std::string_view help) {
  return element<ByWork, static_cast<size_t>(Kind)>({.key = name_of(Kind),
                                                     .quantity = Quantity::count,
                                                     .limits = limits,
                                                     .help = help,
                                                     .presence = Presence::written_if_set});
}

std::span<const Field<ByWork>> efficiency_fields() {
  constexpr Limits kShare{kMinEfficiency, 1};
  static constexpr Field<ByWork> kRows[] = {
      by_work<Work::none>(kShare, "Of the memory's bandwidth, where bytes are only moved."),
      by_work<Work::product>(kShare, "Of the peaks, in dense products."),
      by_work<Work::grouped>(kShare, "In the grouped products of experts."),
      by_work<Work::attention>(kShare, "In the core of attention."),
      by_work<Work::light>(kShare, "In operations of a FLOP or two an element."),
      by_work<Work::heavy>(kShare, "In norms, activations and softmax."),
      by_work<Work::scan>(kShare, "In scans and convolutions along the sequence."),
  };
  static_assert(std::size(kRows) == static_cast<size_t>(Work::count));
  return kRows;
}

std::span<const Field<ByWork>> half_rows_fields() {
  constexpr Limits kRows_{0, kMaxHalfRows};
  static constexpr Field<ByWork> kRows[] = {
      by_work<Work::product>(kRows_, "In dense products."),
      by_work<Work::grouped>(kRows_, "In grouped products."),
  };
  return kRows;
}

constexpr FieldInfo host_time(std::string_view key, std::string_view help) {
  return {.key = key,
          .quantity = Quantity::nanoseconds,
          .limits = {0, kMaxNs},
          .help = help,
          .plausible = kRealHostTime};
}

constexpr FieldInfo narrow_peak(std::string_view key, std::string_view help) {
  return {.key = key,
          .quantity = Quantity::flops_per_s,
          .limits = {0, kMaxRate},
          .help = help,
          .presence = Presence::written_if_set,
          .plausible = kRealFlops};
}

constexpr FieldInfo link_info(std::string_view key, std::string_view help) {
  return {
      .key = key, .quantity = Quantity::text, .help = help, .presence = Presence::written_if_set};
}

void read_sources(JsonReader& reader, const FieldInfo& info, HardwareSpec& hardware) {
  JsonReader sources = reader.object(info.key);
  Problems problems;
  for (const std::string_view key : figure_keys()) {
    sources.ignore(key);
    if (!sources.has(key)) continue;
    problems.attempt([&] { hardware.sources[std::string(key)] = sources.text(key); });
  }
  problems.attempt([&] { sources.refuse_unknown_keys(); });
  problems.throw_if_any();
}

std::span<const Field<HardwareSpec>> hardware_fields() {
  static constexpr Field<HardwareSpec> kRows[] = {
      field<&HardwareSpec::name>({.key = "name",
                                  .quantity = Quantity::text,
                                  .help = "What reports call it.",
                                  .presence = Presence::required}),
      field<&HardwareSpec::num_nodes>({.key = "num_nodes",
                                       .limits = {1, kMaxNodes},
                                       .help = "Nodes of the cluster.",
                                       .presence = Presence::required}),
      field<&HardwareSpec::devices_per_node>(
          {.key = "devices_per_node",
           .limits = {1, 1024},
           .help = "Devices that intra_node joins: of a node, or as many as runs use of an NVLink "
                   "domain (64 of 72).",
           .presence = Presence::required}),
      field<&HardwareSpec::domain_devices>(
          {.key = "domain_devices",
           .limits = {0, 1024},
           .help = "Devices that intra_node joins at most, where most runs use fewer; 0: "
                   "devices_per_node.",
           .presence = Presence::written_if_set}),
      field<&HardwareSpec::memory_bytes>({.key = "memory_bytes",
                                          .quantity = Quantity::bytes,
                                          .limits = {0, kMaxBytes},
                                          .help = "Memory of one device; 0: unlimited.",
                                          .plausible = kRealMemory}),
      field<&HardwareSpec::peak_flops_per_s>(
          {.key = "peak_flops_per_s",
           .quantity = Quantity::flops_per_s,
           .limits = {0, kMaxRate},
           .help = "Peak of one device in the precision that is trained in, without sparsity.",
           .plausible = kRealFlops}),
      field<&HardwareSpec::fp8_flops_per_s>(
          narrow_peak("fp8_flops_per_s", "The same of 8 bits, for plans; 0: there is none.")),
      field<&HardwareSpec::fp4_flops_per_s>(
          narrow_peak("fp4_flops_per_s", "The same of 4 bits, for plans; 0: there is none.")),
      field<&HardwareSpec::memory_bytes_per_s>({.key = "memory_bytes_per_s",
                                                .quantity = Quantity::bytes_per_s,
                                                .limits = {0, kMaxRate},
                                                .help = "Bandwidth of one device's memory.",
                                                .plausible = kRealMemoryRate}),
      object_field<&HardwareSpec::efficiency, &efficiency_fields>(
          link_info("efficiency", "Share of the peaks that kernels of a kind reach.")),
      object_field<&HardwareSpec::half_rows, &half_rows_fields>(
          link_info("half_rows",
                    "Rows for each matrix at which products reach half of that share; 0: a row "
                    "costs the same in every product.")),
      object_field<&HardwareSpec::intra_node, &intra_node_fields>(link_info(
          "intra_node", "Link between devices of a node; required where a node has several.")),
      object_field<&HardwareSpec::inter_node, &inter_node_fields>(link_info(
          "inter_node", "Link of a device to other nodes; required where there are several.")),
      field<&HardwareSpec::host_link_bytes_per_s>(
          {.key = "host_link_bytes_per_s",
           .quantity = Quantity::bytes_per_s,
           .limits = {0, kMaxRate},
           .help = "Bandwidth between a device and its host's memory in one direction, for plans; "
                   "0: that of PCIe 4.0.",
           .presence = Presence::written_if_set,
           .plausible = kRealLink}),
      field<&HardwareSpec::vendor>({.key = "vendor",
                                    .help = "Who makes the devices, for plans.",
                                    .presence = Presence::written_if_set}),
      field<&HardwareSpec::launch_ns>(host_time("launch_ns", "Host time of a kernel launch.")),
      field<&HardwareSpec::graph_launch_ns>(
          host_time("graph_launch_ns", "Host time of a graph replay.")),
      field<&HardwareSpec::sync_ns>(host_time("sync_ns", "Host time of waiting for the device.")),
      field<&HardwareSpec::kernel_floor_ns>(
          host_time("kernel_floor_ns", "Shortest kernel, in modelled time.")),
      field<&HardwareSpec::comm_sm_ratio>(
          {.key = "comm_sm_ratio",
           .quantity = Quantity::ratio,
           .limits = {0, 0.5},
           .help = "Share of a device that a collective takes from the kernels beside it.",
           .presence = Presence::written_if_set}),
      field<&HardwareSpec::workspace_bytes>(
          {.key = "workspace_bytes",
           .quantity = Quantity::bytes,
           .limits = {0, kMaxBytes},
           .help = "What the kernels of a real device take for workspaces, on each rank.",
           .presence = Presence::written_if_set}),
      field<&HardwareSpec::host_slowness>(
          {.key = "host_slowness",
           .quantity = Quantity::count,
           .limits = {0.001, 1000},
           .help = "Time of the host's work in plans, as a multiple of that on an x86 server; the "
                   "times above are the machine's own.",
           .presence = Presence::written_if_set,
           .plausible = kRealSlowness}),
      field<&HardwareSpec::power_watts>(
          {.key = "power_watts",
           .quantity = Quantity::watts,
           .limits = {0, 1e9},
           .help = "What one device takes at most; nothing is computed from it.",
           .presence = Presence::written_if_set,
           .plausible = kRealPower}),
      field<&HardwareSpec::source>({.key = "source",
                                    .quantity = Quantity::text,
                                    .help = "Where the figures are from, and what is assumed.",
                                    .presence = Presence::written_if_set}),
      Field<HardwareSpec>{
          {.key = "sources",
           .quantity = Quantity::text,
           .help = "The same of single figures, by their key: a page, a measurement, or that they "
                   "are assumed.",
           .presence = Presence::written_if_set},
          FieldKind::texts_by_key,
          read_sources,
          [](const HardwareSpec& hardware) { return json(hardware.sources); },
          nullptr,
          nullptr},
  };
  return kRows;
}

/// A figure of a machine, for messages.
struct Figure {
  const char* key;
  Quantity quantity;
  double value;
};

/// Two figures of which emulated and real machines differ, but whose ratio they have in common.
struct Ratio {
  Figure larger;
  Figure smaller;
  double most;
  const char* meaning;
};

std::vector<Ratio> ratios_of(const HardwareSpec& hardware) {
  constexpr double kMostFlopsPerByte = 20'000;  // an H100 has 295, an emulated device 4
  // An H100 has 7, and 130 where PCIe joins it; a miniature of that may have three times as many.
  constexpr double kMostOfLink = 2'000;
  const Figure peak{"peak_flops_per_s", Quantity::flops_per_s, hardware.peak_flops_per_s};
  const Figure memory{"memory_bytes_per_s", Quantity::bytes_per_s, hardware.memory_bytes_per_s};
  std::vector<Ratio> ratios = {{peak, memory, kMostFlopsPerByte, "FLOPs for a byte of memory"}};
  // A device that is alone in its node does not use that link.
  if (hardware.devices_per_node > 1) {
    ratios.push_back(
        {memory,
         {"intra_node.bytes_per_s", Quantity::bytes_per_s, hardware.intra_node.bytes_per_s},
         kMostOfLink,
         "bytes of memory for one of the link"});
  }
  return ratios;
}

/// The figure with another prefix that brings the ratio within bounds: of both, the one that leaves
/// the pair nearer to what is usual.
Figure meant_by(const Ratio& ratio) {
  double factor = 1e3;
  while (ratio.larger.value / ratio.smaller.value / factor > ratio.most) factor *= 1e3;
  Figure smaller = ratio.smaller;
  Figure larger = ratio.larger;
  smaller.value *= factor;
  larger.value /= factor;
  const auto distance = [](const Figure& figure) {
    return distance_from_usual(figure.quantity, figure.value);
  };
  const bool is_smaller =
      distance(smaller) + distance(ratio.larger) <= distance(larger) + distance(ratio.smaller);
  return is_smaller ? smaller : larger;
}

/// Adds the pairs of figures that no machine has together, though each alone is possible.
void check_ratios(const HardwareSpec& hardware, const Source& source, Problems& problems) {
  for (const Ratio& ratio : ratios_of(hardware)) {
    // Zero says that a figure is not known.
    if (ratio.larger.value <= 0 || ratio.smaller.value <= 0) continue;
    const double value = ratio.larger.value / ratio.smaller.value;
    if (value <= ratio.most) continue;
    const Figure meant = meant_by(ratio);
    problems.add(fmt::format(
        "{}key '{}' is {} and key '{}' is {}: no machine has {:.0f} {}, expected at most {:.0f}; "
        "did you mean \"{}\" for '{}'?",
        source.prefix(meant.key), ratio.larger.key,
        quantity_text(ratio.larger.quantity, ratio.larger.value), ratio.smaller.key,
        quantity_text(ratio.smaller.quantity, ratio.smaller.value), value, ratio.meaning,
        ratio.most, quantity_text(meant.quantity, meant.value), meant.key));
  }
}

/// A device takes from a link what its memory can hold: a link that is faster is another prefix's.
void check_link_between_nodes(const HardwareSpec& hardware, const Source& source,
                              Problems& problems) {
  const double memory = hardware.memory_bytes_per_s;
  const double link = hardware.inter_node.bytes_per_s;
  if (memory <= 0 || link <= memory) return;
  double meant = link;
  while (meant > memory) meant /= 1e3;
  constexpr const char* kKey = "inter_node.bytes_per_s";
  problems.add(fmt::format(
      "{}key '{}' is {} and key 'memory_bytes_per_s' is {}: no link between nodes is faster than a "
      "device's memory; did you mean \"{}\" for '{}'?",
      source.prefix(kKey), kKey, quantity_text(Quantity::bytes_per_s, link),
      quantity_text(Quantity::bytes_per_s, memory), quantity_text(Quantity::bytes_per_s, meant),
      kKey));
}

}  // namespace

HardwareSpec hardware_from_json(const json& document, const Source& source) {
  JsonReader reader(document, source);
  HardwareSpec hardware;
  Problems problems;
  read_fields(reader, hardware_fields(), hardware, problems);
  // A link that the machine has no use for may be left out.
  if (!reader.has("intra_node") && hardware.devices_per_node > 1) {
    problems.attempt([&] { reader.object("intra_node"); });
  }
  if (!reader.has("inter_node") && hardware.num_nodes > 1) {
    problems.attempt([&] { reader.object("inter_node"); });
  }
  // Reports and messages print it.
  if (base::one_line(hardware.name) != hardware.name) {
    problems.attempt([&] { reader.refuse("name", "it has control characters, expected text"); });
  }
  problems.attempt([&] { reader.refuse_unknown_keys(); });
  // Who has to mend the file is told at once of what is to be seen only when it is read.
  if (!problems.empty()) {
    check_plausible(source, hardware_pages(), to_json(hardware), problems);
  }
  problems.throw_if_any();
  return hardware;
}

bool is_probed_here(const HardwareSpec& hardware) {
  const auto found = hardware.sources.find("efficiency");
  return found != hardware.sources.end() && found->second == kProbedHere;
}

std::string hybridep_refusal(const HardwareSpec& hardware) {
  if (!is_of_amd(hardware)) return "";
  return fmt::format("{} has no HybridEP, whose kernels are for NVIDIA's devices", hardware.name);
}

int64_t domain_devices(const HardwareSpec& hardware) {
  return std::max(hardware.devices_per_node, hardware.domain_devices);
}

namespace {

/// Devices of each node where so many fill nodes of one size, see with_devices(); 0: they do not.
int64_t filled_node(const HardwareSpec& hardware, int64_t num_devices) {
  const int64_t in_node = hardware.devices_per_node;
  if (num_devices <= domain_devices(hardware)) return num_devices;
  // Nodes that are as runs fill them before larger and smaller ones.
  int64_t node = num_devices % in_node == 0 ? in_node : domain_devices(hardware);
  while (num_devices % node != 0) --node;
  return 2 * node < in_node ? 0 : node;
}

}  // namespace

HardwareSpec with_devices(const HardwareSpec& hardware, int64_t num_devices) {
  const int64_t in_node = hardware.devices_per_node;
  const auto refuse = [&](const std::string& why) {
    throw base::UsageError(fmt::format("{}: {} devices: {}", hardware.name, num_devices, why));
  };
  if (num_devices < 1) refuse("expected at least 1");
  const int64_t most = in_node * kMaxNodes;
  if (num_devices > most) refuse(fmt::format("expected at most {}, {} nodes", most, kMaxNodes));
  const int64_t domain = domain_devices(hardware);
  if (num_devices > domain && hardware.inter_node.bytes_per_s <= 0) {
    refuse(fmt::format("nothing joins nodes, as key 'inter_node' is missing; expected at most {}",
                       domain));
  }
  const int64_t node = filled_node(hardware, num_devices);
  if (node == 0) {
    // Whole nodes are never far.
    int64_t below = num_devices;
    while (filled_node(hardware, below) == 0) --below;
    int64_t above = num_devices;
    while (filled_node(hardware, above) == 0) ++above;
    refuse(
        fmt::format("they fill no nodes of {}, and split into none of one size that is at least "
                    "half of that; the nearest counts that do are {} and {}",
                    in_node, below, above));
  }
  HardwareSpec resized = hardware;
  resized.num_nodes = num_devices / node;
  resized.devices_per_node = node;
  return resized;
}

json to_json(const HardwareSpec& hardware) { return write_fields(hardware_fields(), hardware); }

std::vector<std::string_view> figure_keys() {
  std::vector<std::string_view> keys;
  for (const Field<HardwareSpec>& row : hardware_fields()) {
    const bool is_number = row.kind == FieldKind::integer || row.kind == FieldKind::number;
    if (is_number || row.kind == FieldKind::object) keys.push_back(row.info.key);
  }
  return keys;
}

std::vector<FieldPage> hardware_pages() { return pages_of(hardware_fields(), HardwareSpec{}); }

void check_plausible(const HardwareSpec& hardware, const Source& source) {
  Problems problems;
  check_plausible(source, hardware_pages(), to_json(hardware), problems);
  // Ratios of a figure that is wrong by itself say the same again.
  if (problems.empty()) check_ratios(hardware, source, problems);
  // That of a memory that was found wrong, too.
  if (problems.empty()) check_link_between_nodes(hardware, source, problems);
  problems.throw_if_any();
}

}  // namespace moetune::spec
