// Reading clusters, and the price of communication on them by hand.
#include "engine/spec/hardware_spec.h"

#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <ostream>

#include "engine/spec/document.h"
#include "tests/spec/spec_samples.h"

namespace moetune::spec {

using samples::cluster;
using samples::contains;
using samples::json;
using samples::usage_error;

BOOST_AUTO_TEST_SUITE(hardware_spec)

namespace {

// Intra-node: 1000 ns and 1 byte/ns. Inter-node: 5000 ns and 0.1 bytes/ns.
HardwareSpec hardware() { return hardware_from_json(cluster(), "h.json"); }

const std::vector<int> kNode = {0, 1, 2, 3};
const std::vector<int> kAcross = {2, 6};
const std::vector<int> kAll = {0, 1, 2, 3, 4, 5, 6, 7};

std::string error_with(const std::string& pointer, const json& value) {
  json document = cluster();
  document[json::json_pointer(pointer)] = value;
  return usage_error([&] { hardware_from_json(document, "h.json"); });
}

}  // namespace

BOOST_AUTO_TEST_CASE(round_trip_and_nodes) {
  const HardwareSpec h = hardware();
  BOOST_TEST(to_json(hardware_from_json(to_json(h), "x")) == to_json(h));
  BOOST_TEST(h.num_devices() == 8);
  BOOST_TEST(h.node_of(3) == 0);
  BOOST_TEST(h.node_of(4) == 1);
  BOOST_TEST(h.inter_node.latency_ns == 5000);
  BOOST_TEST(h.launch_ns == 2000);
  const json single = {{"name", "laptop"}, {"num_nodes", 1}, {"devices_per_node", 1}};
  const HardwareSpec laptop = hardware_from_json(single, "x");
  BOOST_TEST(to_json(hardware_from_json(to_json(laptop), "x")) == to_json(laptop));
}

BOOST_AUTO_TEST_CASE(kernels_of_a_kind_may_reach_a_share_of_the_peaks) {
  BOOST_TEST(!to_json(hardware()).contains("efficiency"));
  json document = cluster();
  document["efficiency"] = {{"grouped", 0.5}, {"attention", 0.25}, {"light", 1}};
  const HardwareSpec h = hardware_from_json(document, "h.json");
  BOOST_TEST(h.efficiency[static_cast<size_t>(Work::grouped)] == 0.5);
  BOOST_TEST(h.efficiency[static_cast<size_t>(Work::attention)] == 0.25);
  BOOST_TEST(h.efficiency[static_cast<size_t>(Work::product)] == 1.0);
  BOOST_TEST(to_json(h)["efficiency"] == json({{"grouped", 0.5}, {"attention", 0.25}}));
  BOOST_TEST(to_json(hardware_from_json(to_json(h), "x")) == to_json(h));
  BOOST_TEST(contains(error_with("/efficiency", 0.5), "'efficiency' is 0.5"));
  BOOST_TEST(contains(error_with("/efficiency/grouped", 0), "'efficiency.grouped' is 0"));
  BOOST_TEST(contains(error_with("/efficiency/grouped", 1.5), "'efficiency.grouped' is 1.5"));
  BOOST_TEST(contains(error_with("/efficiency/atention", 0.5), "did you mean 'attention'"));
}

BOOST_AUTO_TEST_CASE(products_may_reach_half_of_their_rate_at_some_rows) {
  BOOST_TEST(!to_json(hardware()).contains("half_rows"));
  json document = cluster();
  document["half_rows"] = {{"grouped", 30}};
  const HardwareSpec h = hardware_from_json(document, "h.json");
  BOOST_TEST(h.half_rows[static_cast<size_t>(Work::grouped)] == 30);
  BOOST_TEST(h.half_rows[static_cast<size_t>(Work::product)] == 0);
  BOOST_TEST(to_json(h)["half_rows"] == json({{"grouped", 30}}));
  BOOST_TEST(to_json(hardware_from_json(to_json(h), "x")) == to_json(h));
  BOOST_TEST(contains(error_with("/half_rows/grouped", -1), "'half_rows.grouped' is -1"));
  BOOST_TEST(contains(error_with("/half_rows/attention", 5), "attention"));
}

BOOST_AUTO_TEST_CASE(what_only_plans_read_may_be_left_out) {
  for (const char* key : {"fp8_flops_per_s", "fp4_flops_per_s", "host_link_bytes_per_s", "vendor",
                          "host_slowness", "power_watts", "source", "sources"}) {
    BOOST_TEST(!to_json(hardware()).contains(key), key);
  }
  BOOST_TEST(hardware().host_slowness == 1.0);
  json document = cluster();
  document.update({{"fp8_flops_per_s", "1979TF"},
                   {"fp4_flops_per_s", 1e16},
                   {"host_link_bytes_per_s", "64GB/s"},
                   {"vendor", "amd"},
                   {"host_slowness", 0.5},
                   {"power_watts", "1.2kW"},
                   {"source", "a data sheet"}});
  const HardwareSpec h = hardware_from_json(document, "h.json");
  BOOST_TEST(h.fp8_flops_per_s == 1.979e15);
  BOOST_TEST(h.fp4_flops_per_s == 1e16);
  BOOST_TEST(h.host_link_bytes_per_s == 6.4e10);
  BOOST_TEST(is_of_amd(h));
  BOOST_TEST(!is_of_amd(hardware()));
  BOOST_TEST(h.host_slowness == 0.5);
  BOOST_TEST(h.power_watts == 1200);
  BOOST_TEST(h.source == "a data sheet");
  BOOST_TEST(to_json(hardware_from_json(to_json(h), "x")) == to_json(h));
  BOOST_TEST(usage_error([&] { check_plausible(h, "h.json"); }) == "");
  BOOST_TEST(contains(error_with("/host_slowness", 0), "'host_slowness' is 0"));
  BOOST_TEST(contains(error_with("/power_watts", -1), "'power_watts' is -1"));
  BOOST_TEST(contains(error_with("/vendor", "Intel"), "'vendor' is \"Intel\", expected "));
  BOOST_TEST(contains(error_with("/vendor", "Intel"), "nvidia"));
  BOOST_TEST(contains(error_with("/vendor", "AMD"), "amd"));
  BOOST_TEST(contains(error_with("/vendor", 3), "'vendor' is 3"));
  const std::string escape = error_with("/name", "H100\x1B[31m");
  BOOST_TEST(contains(escape, "'name': it has control characters"));
  BOOST_TEST(!contains(escape, "\x1B"));
  BOOST_TEST(contains(error_with("/power_kw", 1.2), "write \"power_watts\": \"1.2kW\""));
  BOOST_TEST(contains(error_with("/fp8_tflops", 1979), "write \"fp8_flops_per_s\": \"1979TF\""));
}

BOOST_AUTO_TEST_CASE(each_figure_may_have_a_source) {
  json document = cluster();
  document["sources"] = {{"memory_bytes", "seen on a card"}, {"intra_node", "assumed"}};
  const HardwareSpec h = hardware_from_json(document, "h.json");
  BOOST_TEST(h.sources.size() == 2U);
  BOOST_TEST(h.sources.at("memory_bytes") == "seen on a card");
  BOOST_TEST(to_json(h)["sources"] == document["sources"]);
  BOOST_TEST(to_json(hardware_from_json(to_json(h), "x")) == to_json(h));
  BOOST_TEST(contains(error_with("/sources", "a data sheet"), "'sources' is \"a data sheet\""));
  BOOST_TEST(contains(error_with("/sources/memory_bytes", 3), "'sources.memory_bytes' is 3"));
  BOOST_TEST(contains(error_with("/sources/lauch_ns", "x"), "did you mean 'launch_ns'"));
  // What is no figure has none.
  for (const char* key : {"name", "vendor", "source", "sources"}) {
    BOOST_TEST(contains(error_with(std::string("/sources/") + key, "x"), key), key);
    BOOST_TEST(std::ranges::count(figure_keys(), std::string_view(key)) == 0, key);
  }
}

BOOST_AUTO_TEST_CASE(bad_clusters_are_refused) {
  BOOST_TEST(contains(error_with("/num_nodes", 0), "h.json: key 'num_nodes' is 0, expected"));
  BOOST_TEST(contains(error_with("/num_nodes", 1e15), "'num_nodes'"));
  BOOST_TEST(contains(error_with("/memory_bytes", "1 GiX"), "'memory_bytes' is \"1 GiX\""));
  BOOST_TEST(contains(error_with("/intra_node/bytes_per_s", 0), "'intra_node.bytes_per_s' is 0"));
  BOOST_TEST(contains(error_with("/inter_node/latency", 1), "did you mean 'latency_ns'"));
  BOOST_TEST(contains(error_with("/inter_node", 7), "'inter_node' is 7"));
  BOOST_TEST(contains(error_with("/comm_sm_ratio", 0.6), "'comm_sm_ratio' is 0.6"));
  BOOST_TEST(contains(error_with("/lauch_ns", 1), "did you mean 'launch_ns'"));
  json document = cluster();
  document.erase("inter_node");
  BOOST_TEST(contains(usage_error([&] { hardware_from_json(document, "h.json"); }),
                      "'inter_node' is missing"));
}

BOOST_AUTO_TEST_CASE(figures_may_have_units) {
  json document = cluster();
  document["memory_bytes"] = "80GB";
  document["peak_flops_per_s"] = "989TF";
  document["launch_ns"] = "2.5us";
  document["intra_node"] = {{"latency_ns", "1us"}, {"bytes_per_s", "450GB/s"}};
  document["inter_node"] = {{"latency_ns", 5000}, {"bytes_per_s", "400 Gb/s"}};
  const HardwareSpec h = hardware_from_json(document, "h.json");
  BOOST_TEST(h.memory_bytes == 80'000'000'000);
  BOOST_TEST(h.peak_flops_per_s == 9.89e14);
  BOOST_TEST(h.launch_ns == 2500);
  BOOST_TEST(h.intra_node.latency_ns == 1000);
  BOOST_TEST(h.intra_node.bytes_per_s == 4.5e11);
  BOOST_TEST(h.inter_node.bytes_per_s == 5e10);
  BOOST_TEST(contains(error_with("/memory_bytes", "80GB/s"), "such as \"80GB\""));
  BOOST_TEST(contains(error_with("/num_nodes", "2 nodes"), "an integer from 1 to 65536"));
  BOOST_TEST(!contains(error_with("/num_nodes", "2 nodes"), "unit"));
}

BOOST_AUTO_TEST_CASE(figures_of_no_machine_are_refused_with_what_was_meant) {
  const auto refusal = [](const std::string& pointer, const json& value) {
    json document = cluster();
    document[json::json_pointer(pointer)] = value;
    const HardwareSpec h = hardware_from_json(document, "h.json");
    return usage_error([&] { check_plausible(h, "h.json"); });
  };
  BOOST_TEST(refusal("/intra_node/bytes_per_s", 450) ==
             "h.json: key 'intra_node.bytes_per_s' is 450.0, 450B/s in bytes/s: no machine has "
             "that; did you mean \"450GB/s\"?");
  BOOST_TEST(contains(refusal("/memory_bytes", 80), "did you mean \"80GB\"?"));
  BOOST_TEST(contains(refusal("/peak_flops_per_s", 989), "did you mean \"989TF\"?"));
  BOOST_TEST(contains(refusal("/launch_ns", 900'000'000'000), "did you mean \"900ns\"?"));
  BOOST_TEST(contains(refusal("/intra_node/bytes_per_s", 1e18), "did you mean \"1TB/s\"?"));
  BOOST_TEST(contains(refusal("/intra_node/bytes_per_s", 450'000), "did you mean \"450GB/s\"?"));
  BOOST_TEST(contains(refusal("/intra_node/bytes_per_s", 4.5e14), "did you mean \"450GB/s\"?"));
  BOOST_TEST(contains(refusal("/memory_bytes", 81'920), "did you mean \"80GiB\"?"));
  BOOST_TEST(contains(refusal("/launch_ns", 4'000'000), "did you mean \"4us\"?"));
  BOOST_TEST(contains(refusal("/fp8_flops_per_s", 1979), "did you mean \"1.979PF\"?"));
  BOOST_TEST(contains(refusal("/power_watts", 0.7), "did you mean \"700W\"?"));
  BOOST_TEST(refusal("/host_slowness", 50) ==
             "h.json: key 'host_slowness' is 50.0: no machine has that; expected 0.1 to 10");
  // What real devices have at most, with another prefix.
  BOOST_TEST(contains(refusal("/memory_bytes", "80TB"), "did you mean \"80GB\"?"));
  BOOST_TEST(contains(refusal("/peak_flops_per_s", "989PF"), "did you mean \"989TF\"?"));
  BOOST_TEST(refusal("/memory_bytes", "1TB") == "");
  // Links between nodes may take longer than those in a node.
  BOOST_TEST(refusal("/intra_node/latency_ns", "1ms") ==
             "h.json: key 'intra_node.latency_ns' is 1000000, 1ms in ns: no machine has that; did "
             "you mean \"1us\"?");
  BOOST_TEST(contains(refusal("/intra_node/latency_ns", "900us"), "did you mean \"900ns\"?"));
  BOOST_TEST(refusal("/intra_node/latency_ns", "700us") == "");
  BOOST_TEST(refusal("/inter_node/latency_ns", "1ms") == "");
  check_plausible(hardware(), "h.json");
}

namespace {

/// The figures of an H100 with one key changed, and what is said of it.
struct Pair {
  const char* pointer;
  json value;
  const char* message;
};
std::ostream& operator<<(std::ostream& out, const Pair& row) {
  return out << row.pointer << " " << row.value;
}

// Ratios: 989e12 / 3.35e9 = 295,224; 3.35e12 / 450e6 = 7,444; 98.9e15 / 3.35e12 = 29,522.
const Pair kPairs[] = {
    {"/memory_bytes_per_s", "3.35GB/s",
     "h.json: key 'peak_flops_per_s' is 989TF and key 'memory_bytes_per_s' is 3.35GB/s: no machine "
     "has 295224 FLOPs for a byte of memory, expected at most 20000; did you mean \"3.35TB/s\" "
     "for 'memory_bytes_per_s'?"},
    {"/intra_node/bytes_per_s", "450MB/s",
     "h.json: key 'memory_bytes_per_s' is 3.35TB/s and key 'intra_node.bytes_per_s' is 450MB/s: no "
     "machine has 7444 bytes of memory for one of the link, expected at most 2000; did you "
     "mean \"450GB/s\" for 'intra_node.bytes_per_s'?"},
    {"/peak_flops_per_s", "98.9PF", "did you mean \"98.9TF\" for 'peak_flops_per_s'?"},
    {"/inter_node/bytes_per_s", "4TB/s",
     "h.json: key 'inter_node.bytes_per_s' is 4TB/s and key 'memory_bytes_per_s' is 3.35TB/s: no "
     "link between nodes is faster than a device's memory; did you mean \"4GB/s\" for "
     "'inter_node.bytes_per_s'?"},
    {"/inter_node/bytes_per_s", "900GB/s", ""},
    // Devices that PCIe 3.0 joins are slow, not mistaken: 3.35e12 / 8e9 = 419.
    {"/intra_node/bytes_per_s", "8GB/s", ""},
    {"/memory_bytes_per_s", 0, ""},
};

}  // namespace

BOOST_DATA_TEST_CASE(figures_that_no_machine_has_together_are_refused,
                     boost::unit_test::data::make(kPairs)) {
  json document = cluster();
  document["peak_flops_per_s"] = "989TF";
  document["memory_bytes_per_s"] = "3.35TB/s";
  document["intra_node"]["bytes_per_s"] = "450GB/s";
  document[json::json_pointer(sample.pointer)] = sample.value;
  const HardwareSpec h = hardware_from_json(document, "h.json");
  const std::string message = usage_error([&] { check_plausible(h, "h.json"); });
  BOOST_TEST(message.empty() == (std::string_view(sample.message).empty()));
  BOOST_TEST(contains(message, sample.message), message);
}

BOOST_AUTO_TEST_CASE(figures_out_of_range_are_refused_with_what_was_meant) {
  BOOST_TEST(error_with("/efficiency/product", 45) ==
             "h.json: key 'efficiency.product' is 45, expected a number from 1e-06 to 1; did you "
             "mean 0.45?");
  BOOST_TEST(contains(error_with("/comm_sm_ratio", 15), "to 0.5; did you mean 0.15?"));
  BOOST_TEST(!contains(error_with("/comm_sm_ratio", 60), "did you mean"));
  BOOST_TEST(!contains(error_with("/efficiency/product", -45), "did you mean"));
  const std::string seconds = error_with("/intra_node/latency_ns", 0.0000035);
  BOOST_TEST(contains(seconds, "such as \"25us\"; did you mean \"3.5us\"?"), seconds);
  BOOST_TEST(contains(error_with("/launch_ns", 2.5), "did you mean \"2.5us\"?"));
  BOOST_TEST(!contains(error_with("/launch_ns", -4), "did you mean"));
}

BOOST_AUTO_TEST_CASE(a_link_inside_a_node_of_one_device_is_not_judged) {
  HardwareSpec h = hardware();
  h.memory_bytes_per_s = 3.35e12;  // beside a link of 1 GB/s
  BOOST_TEST(contains(usage_error([&] { check_plausible(h, "h.json"); }), "3350 bytes of memory"));
  h.devices_per_node = 1;
  BOOST_TEST(usage_error([&] { check_plausible(h, "h.json"); }) == "");
}

namespace {

HardwareSpec shipped(const std::string& name) {
  const Document document = read_document(samples::read_file("sweeps/hardware/" + name), name);
  return hardware_from_json(document.json, document.source);
}

const char* const kPlannedMachines[] = {"a100-80g", "b200",        "b300", "gb200-nvl72",
                                        "h100-80g", "gb300-nvl72", "h200", "mi300x"};

}  // namespace

BOOST_AUTO_TEST_CASE(shipped_clusters_are_plausible) {
  const std::string folder = std::string(MOETUNE_SOURCE_DIR) + "/sweeps/hardware";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    const HardwareSpec h = shipped(name);
    BOOST_TEST(usage_error([&] { check_plausible(h, name); }) == "");
  }
}

// One node or NVLink domain and how several are joined, so that plans can have as many as they
// want.
BOOST_DATA_TEST_CASE(shipped_machines_are_one_node_that_says_where_its_figures_are_from,
                     boost::unit_test::data::make(kPlannedMachines)) {
  HardwareSpec h = shipped(std::string(sample) + ".json");
  BOOST_TEST(h.num_nodes == 1);
  // Of all figures that its file has, but how many nodes are described.
  const std::string file = samples::read_file("sweeps/hardware/" + std::string(sample) + ".json");
  const json document = parse_json(file, sample);
  for (const std::string_view key : figure_keys()) {
    if (key == "num_nodes" || !document.contains(key)) continue;
    BOOST_TEST(h.sources.contains(std::string(key)), key);
    BOOST_TEST(!h.sources[std::string(key)].empty(), key);
  }
  BOOST_TEST(h.power_watts > 0);
  BOOST_TEST(h.inter_node.bytes_per_s > 0);
  BOOST_TEST(h.intra_node.bytes_per_s > h.inter_node.bytes_per_s);
  BOOST_TEST(h.memory_bytes > int64_t{79} << 30);
  if (h.fp8_flops_per_s > 0) {
    BOOST_TEST(h.fp8_flops_per_s == 2 * h.peak_flops_per_s, boost::test_tools::tolerance(1e-3));
  }
  const bool has_grace = h.devices_per_node == 64;
  BOOST_TEST(h.host_slowness == (has_grace ? 0.5 : 1));
  BOOST_TEST(contains(h.sources["devices_per_node"], "72 GPUs, of which runs use 64") == has_grace);
  BOOST_TEST(h.host_link_bytes_per_s >= 3.2e10);
  BOOST_TEST(is_of_amd(h) == (std::string_view(sample) == "mi300x"));
  BOOST_TEST(with_devices(h, 1024).num_devices() == 1024);
}

BOOST_AUTO_TEST_CASE(a_machine_has_as_many_devices_as_are_wanted) {
  const HardwareSpec h = hardware();
  for (const int64_t wanted : {1, 2, 3, 4, 8, 12, 400, 4 * 65536}) {
    const HardwareSpec resized = with_devices(h, wanted);
    BOOST_TEST(resized.num_devices() == wanted);
    BOOST_TEST(resized.devices_per_node == std::min<int64_t>(wanted, 4));
    json rest = to_json(resized);
    rest.update({{"num_nodes", 2}, {"devices_per_node", 4}});
    BOOST_TEST(rest == to_json(h));
  }
}

BOOST_AUTO_TEST_CASE(nodes_that_are_not_full_have_one_size) {
  HardwareSpec h = hardware();
  h.devices_per_node = 8;
  const auto nodes = [&](int64_t wanted) {
    const HardwareSpec resized = with_devices(h, wanted);
    BOOST_TEST(resized.num_devices() == wanted);
    return resized.num_nodes;
  };
  BOOST_TEST(nodes(12) == 2);
  BOOST_TEST(nodes(20) == 4);
  BOOST_TEST(nodes(24) == 3);
  BOOST_TEST(nodes(36) == 6);
  // A whole NVLink domain, of which most runs use a part, and what is between.
  h.domain_devices = 9;
  BOOST_TEST(nodes(9) == 1);
  BOOST_TEST(nodes(16) == 2);
  BOOST_TEST(nodes(18) == 2);
  BOOST_TEST(nodes(20) == 4);
  BOOST_TEST(nodes(72) == 9);  // as runs fill them
  h.inter_node = {};
  BOOST_TEST(nodes(9) == 1);
  BOOST_TEST(contains(usage_error([&] { with_devices(h, 18); }), "expected at most 9"));
  // Nothing joins two halves of a domain.
  h.domain_devices = 16;
  BOOST_TEST(nodes(16) == 1);
}

BOOST_AUTO_TEST_CASE(counts_that_fill_no_nodes_are_refused) {
  const auto refusal = [](const HardwareSpec& h, int64_t wanted) {
    return usage_error([&] { with_devices(h, wanted); });
  };
  const HardwareSpec h = hardware();
  BOOST_TEST(
      refusal(h, 13) ==
      "two-by-four: 13 devices: they fill no nodes of 4, and split into none of one size that is "
      "at least half of that; the nearest counts that do are 12 and 14");
  BOOST_TEST(contains(refusal(h, 5), "the nearest counts that do are 4 and 6"));
  BOOST_TEST(contains(refusal(h, 7919), "the nearest counts that do are 7918 and 7920"));
  // What is named is taken.
  for (const int64_t count : {4, 6, 12, 14, 7918, 7920}) {
    BOOST_TEST(with_devices(h, count).num_devices() == count);
  }
  BOOST_TEST(contains(refusal(h, 0), "0 devices: expected at least 1"));
  BOOST_TEST(contains(refusal(h, -8), "-8 devices: expected at least 1"));
  BOOST_TEST(contains(refusal(h, int64_t{1} << 40), "expected at most 262144, 65536 nodes"));
  HardwareSpec alone = h;
  alone.inter_node = {};
  BOOST_TEST(refusal(alone, 4) == "");
  BOOST_TEST(contains(refusal(alone, 8), "key 'inter_node' is missing; expected at most 4"));
}

namespace {

/// A key of another unit, its value, and what the message says to write.
struct OtherUnit {
  const char* pointer;
  json value;
  const char* advice;
};
std::ostream& operator<<(std::ostream& out, const OtherUnit& row) { return out << row.pointer; }

const OtherUnit kOtherUnits[] = {
    {"/intra_node/bandwidth_gbps", 400, "write \"bytes_per_s\": \"400Gb/s\""},
    {"/intra_node/bandwidth_GBps", 450, "write \"bytes_per_s\": \"450GB/s\""},
    {"/intra_node/gbps", 400, "write \"bytes_per_s\": \"400Gb/s\""},
    {"/intra_node/gb_per_s", 450, "write \"bytes_per_s\": \"450GB/s\""},
    {"/intra_node/latency_s", 1e-5, "write \"latency_ns\": \"1e-05s\""},
    {"/memory_bandwidth_gbps", 26800, "write \"memory_bytes_per_s\": \"26800Gb/s\""},
    {"/memory_GB", 80, "write \"memory_bytes\": \"80GB\""},
    {"/peak_tflops", 989, "write \"peak_flops_per_s\": \"989TF\""},
    {"/peak_tflops", 98e9, "write \"peak_flops_per_s\": 98000000000.0"},
};

}  // namespace

BOOST_DATA_TEST_CASE(keys_of_other_units_name_the_one_that_is_right,
                     boost::unit_test::data::make(kOtherUnits)) {
  const std::string message = error_with(sample.pointer, sample.value);
  BOOST_TEST(contains(message, sample.advice), message);
}

BOOST_AUTO_TEST_CASE(all_mistakes_are_told_with_their_lines) {
  const Document document = read_document(R"({
  // a comment, which JSON does not have
  "name": "x", "num_nodes": 0, /* none */
  "devices_per_node": 8,
  "launch_us": 4,
  "intra_node": {
    "latency_ns": -1
  }
})",
                                          "h.json");
  const std::string message =
      usage_error([&] { hardware_from_json(document.json, document.source); });
  BOOST_TEST(message.starts_with("4 mistakes:\n"));
  // In the order of the lines.
  size_t last = 0;
  for (const char* line : {"line 3", "line 5", "line 6", "line 7"}) {
    const size_t at = message.find(line);
    BOOST_TEST(at != std::string::npos);
    BOOST_TEST(at > last, line);
    last = at;
  }
  BOOST_TEST(contains(message, "h.json: line 3: key 'num_nodes' is 0"));
  BOOST_TEST(contains(message, "h.json: line 7: key 'intra_node.latency_ns' is -1"));
  BOOST_TEST(contains(message, "h.json: line 6: key 'intra_node.bytes_per_s' is missing"));
  BOOST_TEST(contains(message,
                      "h.json: line 5: unknown key 'launch_us' with value 4; the key is "
                      "'launch_ns', in ns; write \"launch_ns\": \"4us\""));
}

BOOST_AUTO_TEST_CASE(a_key_of_another_unit_is_one_mistake) {
  json document = cluster();
  document["intra_node"] = {{"latency_us", 3}, {"gigabytes_per_s", 450}};
  BOOST_TEST(usage_error([&] { hardware_from_json(document, "h.json"); }) ==
             "2 mistakes:\n"
             "  h.json: unknown key 'intra_node.gigabytes_per_s' with value 450; the key is "
             "'bytes_per_s', in bytes/s; write \"bytes_per_s\": \"450GB/s\"\n"
             "  h.json: unknown key 'intra_node.latency_us' with value 3; the key is 'latency_ns', "
             "in ns; write \"latency_ns\": \"3us\"");
  // What is missing otherwise is told.
  document["intra_node"] = {{"latency_us", 3}};
  const std::string message = usage_error([&] { hardware_from_json(document, "h.json"); });
  BOOST_TEST(contains(message, "'intra_node.bytes_per_s' is missing"));
  BOOST_TEST(!contains(message, "'intra_node.latency_ns' is missing"));
}

BOOST_AUTO_TEST_CASE(a_key_that_names_no_unit_is_one_mistake) {
  json document = cluster();
  document["intra_node"] = {{"latency_ns", 3000}, {"bandwidth", "400Gb/s"}};
  BOOST_TEST(usage_error([&] { hardware_from_json(document, "h.json"); }) ==
             "h.json: unknown key 'intra_node.bandwidth' with value \"400Gb/s\"; did you mean "
             "'bytes_per_s', in bytes/s; write \"bytes_per_s\": \"400Gb/s\"");
  document["intra_node"] = {{"latency", "3us"}, {"bandwidth", 400}};
  BOOST_TEST(usage_error([&] { hardware_from_json(document, "h.json"); }) ==
             "2 mistakes:\n"
             "  h.json: unknown key 'intra_node.bandwidth' with value 400; did you mean "
             "'bytes_per_s', in bytes/s\n"
             "  h.json: unknown key 'intra_node.latency' with value \"3us\"; did you mean "
             "'latency_ns', in ns; write \"latency_ns\": \"3us\"");
}

BOOST_AUTO_TEST_CASE(what_is_implausible_is_told_beside_other_mistakes) {
  json document = cluster();
  document["intra_node"] = {{"latency_us", 10}, {"bytes_per_s", 450}};
  const std::string message = usage_error([&] { hardware_from_json(document, "h.json"); });
  BOOST_TEST(message.starts_with("2 mistakes:\n"), message);
  BOOST_TEST(contains(message, "write \"latency_ns\": \"10us\""), message);
  BOOST_TEST(contains(message, "key 'intra_node.bytes_per_s' is 450"), message);
  BOOST_TEST(contains(message, "did you mean \"450GB/s\"?"), message);
}

BOOST_AUTO_TEST_CASE(collectives_inside_a_node) {
  const HardwareSpec h = hardware();
  // 4 ranks: 2 latency steps; 4000 bytes x 3/4 at 1 byte/ns.
  BOOST_TEST(collective_ns(h, CollectiveKind::all_gather, kNode, 4000) == 2000 + 3000);
  BOOST_TEST(collective_ns(h, CollectiveKind::reduce_scatter, kNode, 4000) == 2000 + 3000);
  BOOST_TEST(collective_ns(h, CollectiveKind::all_reduce, kNode, 4000) == 2 * (2000 + 3000));
  BOOST_TEST(collective_ns(h, CollectiveKind::all_to_all, kNode, 4000) == 3 * 1000 + 3000);
  // Three ranks need two steps as well.
  BOOST_TEST(collective_ns(h, CollectiveKind::all_gather, {0, 1, 2}, 0) == 2000);
}

BOOST_AUTO_TEST_CASE(across_nodes_every_member_of_a_node_has_a_rail) {
  const HardwareSpec h = hardware();
  BOOST_TEST(collective_ns(h, CollectiveKind::all_gather, kAcross, 4000) == 5000 + 20000);
  // Four rings, each with a quarter of the 7000 bytes over its own 0.1 bytes/ns.
  constexpr int64_t kLatency = 2 * 1000 + 5000;
  BOOST_TEST(collective_ns(h, CollectiveKind::all_gather, kAll, 8000) == kLatency + 17500);
  BOOST_TEST(collective_ns(h, CollectiveKind::all_reduce, kAll, 8000) == 2 * (kLatency + 17500));
  // The node with the fewest members decides how many rings there are: 3/4 of 4000 on one rail.
  BOOST_TEST(collective_ns(h, CollectiveKind::all_gather, {0, 1, 2, 4}, 4000) == kLatency + 30000);
  // Where the rails together are faster, the links inside decide.
  HardwareSpec fast = h;
  fast.inter_node.bytes_per_s = h.intra_node.bytes_per_s;
  BOOST_TEST(collective_ns(fast, CollectiveKind::all_gather, kAll, 8000) == kLatency + 7000);
}

BOOST_AUTO_TEST_CASE(between_two_ranks_an_all_to_all_is_a_message) {
  const HardwareSpec h = hardware();
  for (const int other : {3, 4}) {
    for (const int64_t bytes : {int64_t{1}, int64_t{500}, int64_t{70000}}) {
      const int64_t message = p2p_ns(h, 0, other, bytes);
      BOOST_TEST(all_to_all_ns(h, {0, other}, {0, bytes, bytes, 0}) == message);
      BOOST_TEST(all_to_all_ns(h, {0, other}, {0, bytes, 0, 0}) == message);
      BOOST_TEST(collective_ns(h, CollectiveKind::all_to_all, {0, other}, 2 * bytes) == message);
    }
  }
}

// Latency is not shared; of two kinds of link the slower one counts.
BOOST_AUTO_TEST_CASE(a_shared_link_takes_its_bytes_longer) {
  HardwareSpec h = hardware();
  const LinkShare intra{2, 1};
  const LinkShare inter{1, 2};
  BOOST_TEST(collective_ns(h, CollectiveKind::all_gather, kNode, 4000, intra) == 2000 + 6000);
  BOOST_TEST(collective_ns(h, CollectiveKind::all_reduce, kNode, 4000, intra) == 2 * 8000);
  BOOST_TEST(collective_ns(h, CollectiveKind::all_to_all, kNode, 4000, intra) == 3000 + 6000);
  BOOST_TEST(collective_ns(h, CollectiveKind::all_gather, kNode, 4000, inter) == 2000 + 3000);
  BOOST_TEST(collective_ns(h, CollectiveKind::all_gather, kAcross, 4000, inter) == 5000 + 40000);
  BOOST_TEST(p2p_ns(h, 2, 6, 4000, inter) - 5000 == 2 * (p2p_ns(h, 2, 6, 4000) - 5000));
  BOOST_TEST(p2p_ns(h, 2, 6, 4000, intra) == p2p_ns(h, 2, 6, 4000));
  BOOST_TEST((wider(intra, inter) == LinkShare{2, 2}));
  h.comm_sm_ratio = 0.15;
  BOOST_TEST(hardware_from_json(to_json(h), "x").comm_sm_ratio == 0.15);
}

// Rings: S (n-1)/n within a node, 1/k of it on each rail; twice for a sum that all get.
BOOST_AUTO_TEST_CASE(bytes_on_the_links_of_a_device) {
  const HardwareSpec h = hardware();
  const auto check = [&](CollectiveKind kind, const std::vector<int>& ranks, double intra,
                         double inter) {
    const LinkBytes bytes = link_bytes(h, kind, ranks, 8000);
    BOOST_TEST(bytes.intra == intra);
    BOOST_TEST(bytes.inter == inter);
  };
  check(CollectiveKind::all_gather, kNode, 6000, 0);
  check(CollectiveKind::all_reduce, kNode, 12000, 0);
  check(CollectiveKind::all_gather, kAcross, 0, 4000);
  check(CollectiveKind::all_gather, kAll, 7000, 1750);
  check(CollectiveKind::all_to_all, kAll, 3000, 4000);
  check(CollectiveKind::all_gather, {3}, 0, 0);
}

BOOST_AUTO_TEST_CASE(alone_is_free) {
  const HardwareSpec h = hardware();
  for (const auto kind : {CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
                          CollectiveKind::all_reduce, CollectiveKind::all_to_all}) {
    BOOST_TEST(collective_ns(h, kind, {5}, 1 << 20) == 0);
  }
  BOOST_TEST(all_to_all_ns(h, {5}, {1 << 20}) == 0);
  BOOST_TEST(p2p_ns(h, 5, 5, 1 << 20) == 0);
}

BOOST_AUTO_TEST_CASE(messages) {
  BOOST_TEST(p2p_ns(hardware(), 0, 3, 500) == 1000 + 500);
  BOOST_TEST(p2p_ns(hardware(), 0, 4, 500) == 5000 + 5000);
  BOOST_CHECK_THROW(p2p_ns(hardware(), 0, 4, -1), base::Error);
}

BOOST_AUTO_TEST_CASE(all_to_all_follows_the_busiest_link) {
  const HardwareSpec h = hardware();
  // Bytes to oneself are free; nothing else moves.
  BOOST_TEST(all_to_all_ns(h, {0, 1}, {900, 0, 0, 900}) == 0);
  // Rank 1 receives 300 + 400 inside its node, from two peers.
  BOOST_TEST(all_to_all_ns(h, {0, 1, 2}, {9, 300, 0, 0, 9, 10, 0, 400, 9}) == 2 * 1000 + 700);
  // Ranks 0 and 1 in one node, 4 in the other: 0 sends 100 inside and 20 across, 1 sends 30 across,
  // 4 receives 50 across, from two peers.
  BOOST_TEST(all_to_all_ns(h, {0, 1, 4}, {0, 100, 20, 0, 0, 30, 0, 0, 0}) == 2 * 5000 + 500);
  // Few across do not slow down many inside.
  BOOST_TEST(all_to_all_ns(h, {0, 1, 4}, {0, 9000, 1, 0, 0, 0, 0, 0, 0}) == 1000 + 9000);
  BOOST_CHECK_THROW(all_to_all_ns(h, {0, 1}, {1, 2, 3}), base::Error);
  BOOST_CHECK_THROW(all_to_all_ns(h, {0, 1}, {0, -2, 0, 0}), base::Error);
}

BOOST_AUTO_TEST_CASE(a_balanced_all_to_all_costs_the_same_both_ways) {
  const HardwareSpec h = hardware();
  const std::vector<int64_t> bytes(16, 1000);
  BOOST_TEST(all_to_all_ns(h, kNode, bytes) ==
             collective_ns(h, CollectiveKind::all_to_all, kNode, 4000));
}

BOOST_AUTO_TEST_CASE(huge_transfers_do_not_overflow) {
  HardwareSpec h = hardware();
  h.inter_node.bytes_per_s = 1.0;
  BOOST_TEST(collective_ns(h, CollectiveKind::all_reduce, kAll, int64_t{1} << 62) > 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
