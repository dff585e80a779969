// Every figure of real traces, against those that a slow and plain reference computed: times to a
// microsecond (they agree to the nanosecond), counts exactly.
#include "profiler/analysis/trace_figures.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "profiler/analysis/trace_windows.h"
#include "profiler/import/trace_files.h"
#include "profiler/store/db.h"
#include "tests/import/reference_figures.h"
#include "tests/import/shared_traces.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(figures_of_real_traces)

namespace {

using nlohmann::json;

/// Of values that are microseconds with three decimals; half of the last one.
constexpr double kToleranceUs = 0.0006;

json us(int64_t ns) { return static_cast<double>(ns) / 1000; }
json us(const std::optional<int64_t>& ns) { return ns ? us(*ns) : json(); }

json to_json(const WindowBudget& budget) {
  json document;
  for (const BudgetKey& key : budget_keys()) {
    const int64_t value = budget.*key.value;
    document[key.name] = key.is_time ? us(value) : json(value);
  }
  const auto overlap = budget.overlap_pct();
  document["overlap_pct"] = overlap ? json(*overlap) : json();
  return document;
}

json to_json(const IdleSplit& idle) {
  return {{"idle_before_launch_us", us(idle.before_launch_ns)},
          {"idle_after_launch_us", us(idle.after_launch_ns)},
          {"idle_unknown_us", us(idle.unknown_ns)},
          {"num_idle_gaps", idle.num_gaps}};
}

json text_or_none(const std::string& text) { return text.empty() ? "None" : text; }

json collectives_of(const ImportedTrace& trace, const WorkClasses& wide) {
  json list = json::array();
  for (const CollectiveSum& sum : collective_sums(trace, wide)) {
    list.push_back({{"kernel", sum.kernel},
                    {"collective", text_or_none(sum.collective)},
                    {"group", text_or_none(sum.group)},
                    {"dtype", text_or_none(sum.dtype)},
                    {"group_size", sum.group_size < 0 ? json() : json(sum.group_size)},
                    {"count", sum.count},
                    {"sum_us", us(sum.sum_ns)},
                    {"min_us", us(sum.min_ns)},
                    {"max_us", us(sum.max_ns)},
                    {"in_nelems", sum.in_nelems},
                    {"out_nelems", sum.out_nelems}});
  }
  return list;
}

struct NamedSum {
  std::string name;
  int64_t count = 0;
  int64_t sum_ns = 0;
};

/// By full names the short ones, which the importer does not keep since they say too little.
std::map<std::string, std::string> short_names_of(const std::string& nsys_export) {
  std::map<std::string, std::string> names;
  store::Database file(nsys_export, store::OpenMode::foreign);
  store::Statement rows(file,
                        "SELECT DISTINCT long.value, short.value FROM CUPTI_ACTIVITY_KIND_KERNEL "
                        "JOIN StringIds long ON long.id = demangledName "
                        "JOIN StringIds short ON short.id = shortName");
  while (rows.step()) names[rows.get_text(0)] = rows.get_text(1);
  return names;
}

/// Kernels by the names that the reference takes, which of Nsight Systems are the short ones.
std::vector<NamedSum> reference_kernels(const ImportedTrace& trace, std::span<const uint32_t> ops,
                                        size_t count) {
  std::map<std::string, std::string> short_names;
  if (trace.facts.format == "nsys") short_names = short_names_of(trace.facts.file);
  std::vector<NamedSum> sums;
  for (const KernelSum& sum : top_kernels(trace, ops, trace.names.size())) {
    const auto known = short_names.find(trace.names[sum.name]);
    const std::string& name = known == short_names.end() ? trace.names[sum.name] : known->second;
    const auto place = std::ranges::find(sums, name, &NamedSum::name);
    NamedSum& one = place == sums.end() ? sums.emplace_back() : *place;
    one.name = name;
    one.count += sum.count;
    one.sum_ns += sum.sum_ns;
  }
  std::ranges::stable_sort(sums, std::greater<>(), &NamedSum::sum_ns);
  sums.resize(std::min(sums.size(), count));
  return sums;
}

json window_of(const ImportedTrace& trace, const TraceWindows& windows, const TraceWindow& window) {
  const WindowFigures figures = windows.measure(window);
  json document = {{"window", window.name},
                   {"nccl", to_json(figures.nccl)},
                   {"wide", to_json(figures.wide)},
                   {"idle", to_json(figures.idle)}};
  if (window.kind == WindowKind::step_by_host) return document;
  json& top = document["top_kernels"] = json::array();
  for (const NamedSum& sum :
       reference_kernels(trace, window.ops, window.kind == WindowKind::whole ? 10 : 3)) {
    top.push_back({{"name", first_characters(sum.name, 160)},
                   {"count", sum.count},
                   {"sum_us", us(sum.sum_ns)}});
  }
  if (window.kind == WindowKind::step_by_launch) return document;
  json& idle = document["stream_idle"] = json::object();
  for (const auto& [stream, gaps] : stream_idle(trace, window.ops)) {
    idle[stream] = {{"host_wait_us", us(gaps.host_wait_ns)},
                    {"kernel_wait_us", us(gaps.kernel_wait_ns)},
                    {"other_us", us(gaps.other_ns)},
                    {"num_ops", gaps.num_ops}};
  }
  json& queues = document["queue_length"] = json::object();
  for (const auto& [stream, queue] : queue_lengths(trace, window.ops)) {
    queues[stream] = {
        {"max", queue.max}, {"min", queue.min}, {"mean", queue.mean}, {"points", queue.num_points}};
  }
  if (window.kind == WindowKind::launched) return document;
  json& copies = document["copies"] = json::object();
  for (const auto& [path, sum] : copy_sums(trace)) {
    std::string name = path;
    // One word in all formats here; the reference keeps the file's.
    if (trace.facts.format == "nsys") std::ranges::transform(name, name.begin(), ::toupper);
    copies[name] = {{"count", sum.count}, {"bytes", sum.bytes}, {"sum_us", us(sum.sum_ns)}};
  }
  document["collectives"] = collectives_of(trace, windows.wide());
  document["host_sync_us"] = us(host_sync_ns(trace));
  return document;
}

json steps_of(const ImportedTrace& trace) {
  json list = json::array();
  for (const StepFigures& step : step_figures(trace)) {
    list.push_back({{"step", step.number},
                    {"host_us", us(step.host_ns)},
                    {"start_to_start_us", us(step.start_to_start_ns)},
                    {"num_launched", step.num_launched},
                    {"device_end_after_host_end_us", us(step.device_end_after_host_end_ns)},
                    {"launch_to_start_median_us", us(step.launch_to_start_median_ns)},
                    {"launch_to_start_max_us", us(step.launch_to_start_max_ns)},
                    {"host_sync_us", us(step.host_sync_ns)}});
  }
  return list;
}

json facts_of(const ImportedTrace& trace) {
  int64_t num_without_launch = 0;
  int64_t num_in_graphs = 0;
  std::set<std::string> devices;
  std::set<std::pair<int64_t, int64_t>> streams;
  for (const ImportedOp& op : trace.ops) {
    num_without_launch += op.call == kNoRow;
    num_in_graphs += is_in_graph(trace, op);
    const ImportedStream& stream = trace.streams[op.stream];
    devices.insert(std::to_string(stream.device));
    streams.emplace(stream.device, stream.id);
  }
  return {{"num_device_ops", trace.ops.size()},
          {"num_ops_without_launch", num_without_launch},
          {"num_ops_in_graphs", num_in_graphs},
          {"devices", devices},
          {"num_streams", streams.size()}};
}

json kineto_facts_of(const ImportedTrace& trace) {
  json facts = facts_of(trace);
  const TraceFacts& said = trace.facts;
  const auto sync = said.num_of.find("cuda_sync");
  facts["world_size"] = said.world_size ? json(*said.world_size) : json();
  facts["num_events"] = said.num_events;
  facts["cuda_sync_events"] = sync == said.num_of.end() ? 0 : sync->second;
  facts["device_name"] = said.device_names.empty() ? json() : json(said.device_names.front());
  return facts;
}

json nsys_facts_of(const ImportedTrace& trace) {
  json facts = facts_of(trace);
  const std::string& version = trace.facts.version;
  const std::string between = ", schema ";
  const size_t at = version.find(between);
  BOOST_TEST_REQUIRE(at != std::string::npos, "version is " << version);
  facts["EXPORT_PRODUCT_VERSION"] = version.substr(0, at);
  facts["EXPORT_SCHEMA_VERSION"] = version.substr(at + between.size());
  return facts;
}

json facts_by_format(const ImportedTrace& trace) {
  if (trace.facts.format == "kineto") return kineto_facts_of(trace);
  return trace.facts.format == "nsys" ? nsys_facts_of(trace) : facts_of(trace);
}

/// Compares all that is expected; what is not expected is not looked at.
void compare(const json& expected, const json& found, const std::string& path) {
  if (expected.is_object()) {
    for (const auto& [key, value] : expected.items()) {
      BOOST_REQUIRE_MESSAGE(found.contains(key), path << "." << key << " is missing");
      compare(value, found.at(key), path + "." + key);
    }
  } else if (expected.is_array()) {
    BOOST_REQUIRE_MESSAGE(found.size() == expected.size(),
                          path << " has " << found.size() << " elements, not " << expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      compare(expected[i], found.at(i), path + "[" + std::to_string(i) + "]");
    }
  } else if (expected.is_number_float()) {
    BOOST_REQUIRE_MESSAGE(found.is_number(), path << " is " << found << ", not " << expected);
    const double distance = std::abs(found.get<double>() - expected.get<double>());
    BOOST_TEST(distance <= kToleranceUs, path << " is " << found << ", not " << expected);
  } else {
    BOOST_TEST(found == expected, path << " is " << found << ", not " << expected);
  }
}

/// Returns how many ranks were compared.
int compare_all(const std::string& folder) {
  int num_compared = 0;
  const json expected = tests::expected_of(folder);
  for (const auto& [name, entry] : expected.at("traces").items()) {
    const std::vector<ImportedTrace> traces = read_trace_file(folder + "/" + name);
    BOOST_TEST_REQUIRE(traces.size() == entry.at("ranks").size());
    for (size_t i = 0; i < traces.size(); ++i) {
      const ImportedTrace& trace = traces[i];
      const json& rank = entry.at("ranks")[i];
      BOOST_TEST(trace.facts.format == entry.at("format").get<std::string>());
      const TraceWindows windows(trace);
      json list = json::array();
      windows.for_each(
          [&](const TraceWindow& window) { list.push_back(window_of(trace, windows, window)); });
      compare(rank.at("windows"), list, name + " windows");
      compare(rank.at("steps"), steps_of(trace), name + " steps");
      const json facts = facts_by_format(trace);
      for (const auto& [key, value] : rank.at("facts").items()) {
        if (facts.contains(key)) compare(value, facts.at(key), name + " facts." + key);
      }
      compare(rank.at("rank"), trace.facts.rank ? json(*trace.facts.rank) : json(), name + " rank");
      ++num_compared;
    }
  }
  return num_compared;
}

}  // namespace

BOOST_AUTO_TEST_CASE(are_those_of_the_reference) {
  BOOST_TEST(compare_all(std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/traces") == 2);
  const std::string shared = tests::shared_traces();
  if (shared.empty()) {
    BOOST_TEST_MESSAGE("skipped: there is no folder shared/traces beside the checkout");
    return;
  }
  BOOST_TEST(compare_all(shared) >= 13);
}

// Six kernels of 2.3e18 ns each, on as many streams: together they are longer than 64 bits hold.
BOOST_AUTO_TEST_CASE(a_sum_of_broken_times_stays_the_longest) {
  ImportedTrace trace;
  const uint32_t broken = trace.names.intern("broken");
  const uint32_t sound = trace.names.intern("sound");
  std::vector<uint32_t> rows;
  for (int i = 0; i < 7; ++i) {
    rows.push_back(static_cast<uint32_t>(trace.ops.size()));
    const bool is_sound = i == 6;
    trace.ops.add(
        {.end_ns = is_sound ? 5 : 2'300'000'000'000'000'000, .name = is_sound ? sound : broken});
  }
  const std::vector<KernelSum> sums = top_kernels(trace, rows, 2);
  BOOST_REQUIRE(sums.size() == 2u);
  BOOST_TEST(sums[0].name == broken);
  BOOST_TEST(sums[0].count == 6);
  BOOST_TEST(sums[0].sum_ns == std::numeric_limits<int64_t>::max());
  BOOST_TEST(sums[1].sum_ns == 5);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
