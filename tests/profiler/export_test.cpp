// Chrome traces: valid JSON with the times, rows and names of the records.
#include <boost/test/unit_test.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "profiler/export/chrome_json.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(export_test)

namespace {

using nlohmann::json;

std::vector<StepTrace> sample() {
  TraceRecord gemm;
  gemm.name = "experts.forward";
  gemm.launch_start_ns = 1000;
  gemm.launch_end_ns = 1500;
  gemm.start_ns = 1501;
  gemm.end_ns = 3001;
  gemm.layer = 2;
  TraceRecord send = gemm;
  send.id = 1;
  send.kind = RecordKind::collective;
  send.stream = 1;
  send.name = "dispatch \"<\xff>";
  send.group = "ep";
  send.graph_id = 4;
  TraceRecord second = send;
  second.id = 2;
  TraceRecord sync;
  sync.id = 3;
  sync.kind = RecordKind::host_sync;
  sync.stream = kHostStream;
  sync.name = "wait";
  sync.launch_start_ns = 3000;
  sync.launch_end_ns = 3500;
  sync.start_ns = 3000;
  sync.end_ns = 3500;
  return {{3, 7, 1000, 5000, {gemm, send, second, sync}}, {4, 7, 900, 5000, {}}};
}

json exported(const std::vector<StepTrace>& traces, const TimelineOptions& options = {}) {
  std::ostringstream out;
  write_chrome_json(out, traces, options);
  return json::parse(out.str());
}

json find(const json& events, const std::string& name, const std::string& phase) {
  for (const json& event : events) {
    if (event["name"] == name && event["ph"] == phase) {
      return event;
    }
  }
  return nullptr;
}

BOOST_AUTO_TEST_CASE(slices_have_microseconds_from_the_first_start) {
  const json events = exported(sample())["traceEvents"];
  const json gemm = find(events, "experts.forward", "X");
  BOOST_TEST_REQUIRE(!gemm.is_null());
  BOOST_TEST(gemm["pid"] == 3);
  BOOST_TEST(gemm["tid"] == 1);
  BOOST_TEST(gemm["ts"].get<double>() == 0.601);
  BOOST_TEST(gemm["dur"].get<double>() == 1.5);
  BOOST_TEST(gemm["cat"] == "kernel");
  BOOST_TEST(gemm["args"]["layer"] == 2);
  BOOST_TEST(!gemm["args"].contains("group"));
  const json launch = find(events, "launch experts.forward", "X");
  BOOST_TEST(launch["tid"] == 0);
  BOOST_TEST(launch["dur"].get<double>() == 0.5);
  const json wait = find(events, "wait", "X");
  BOOST_TEST(wait["tid"] == 0);
  BOOST_TEST(find(events, "launch wait", "X").is_null());
  BOOST_TEST(find(events, "step 7", "X")["dur"].get<double>() == 4.0);
}

BOOST_AUTO_TEST_CASE(a_graph_is_launched_once) {
  const json events = exported(sample())["traceEvents"];
  int num_launches = 0;
  for (const json& event : events) {
    num_launches += event["name"] == "launch graph" ? 1 : 0;
  }
  BOOST_TEST(num_launches == 1);
}

BOOST_AUTO_TEST_CASE(arrows_lead_from_launches_and_across_streams) {
  std::vector<StepTrace> traces = sample();
  std::vector<TraceRecord>& records = traces[0].records;
  records[1].producer_id = 0;   // of another stream
  records[2].producer_id = 1;   // of the same stream: no arrow
  records[3].producer_id = 99;  // of nobody
  std::map<int, json> starts;
  std::map<int, json> ends;
  std::map<std::string, int> names;
  const json events = exported(traces)["traceEvents"];
  for (const json& event : events) {
    if (event["ph"] == "s") starts[event["id"]] = event;
    if (event["ph"] == "f") ends[event["id"]] = event;
    if (event["ph"] == "s") ++names[event["name"]];
  }
  BOOST_TEST(names["launches"] == 2);  // the GEMM and the graph
  BOOST_TEST(names["waits for"] == 1);
  BOOST_TEST(starts.size() == 3U);
  BOOST_TEST(ends.size() == 3U);
  for (const auto& [id, start] : starts) {
    const json& end = ends.at(id);
    BOOST_TEST(start["pid"] == 3);
    BOOST_TEST(end["pid"] == 3);
    if (start["name"] != "waits for") {
      BOOST_TEST(start["tid"] == 0);
      continue;
    }
    BOOST_TEST(start["tid"] == 1);
    BOOST_TEST(start["ts"].get<double>() == 2.1);  // within the producer, which ends at 2.101
    BOOST_TEST(end["tid"] == 2);
    BOOST_TEST(end["ts"].get<double>() == 0.601);
    BOOST_TEST(end["bp"] == "e");
  }
}

BOOST_AUTO_TEST_CASE(arrows_lead_from_all_that_was_waited_for) {
  std::vector<StepTrace> traces = sample();
  traces[0].records[1].producer_id = 0;
  traces[0].further_waits = {{1, 0}, {1, 2}, {1, 3}, {1, 77}};
  const json events = exported(traces)["traceEvents"];
  int num_waits = 0;
  for (const json& event : events) {
    if (event["ph"] == "s" && event["name"] == "waits for") ++num_waits;
    if (event["ph"] != "X" || !event["args"].contains("further_producer_ids")) continue;
    BOOST_TEST((event["args"]["further_producer_ids"] == json{0, 2, 3, 77}));
    BOOST_TEST(event["args"]["id"] == 1);
  }
  // From the producer and the host: 2 is of the same stream, and nobody is 77.
  BOOST_TEST(num_waits == 2);
}

// What waited for a message's memory has gone on before the message arrived.
BOOST_AUTO_TEST_CASE(arrows_never_lead_back_from_a_message) {
  std::vector<StepTrace> traces = sample();
  std::vector<TraceRecord>& records = traces[0].records;
  records[0].kind = RecordKind::p2p;
  records[1].producer_id = 0;
  int num_waits = 0;
  const json events = exported(traces)["traceEvents"];
  for (const json& event : events) {
    if (event["ph"] != "s" || event["name"] != "waits for") continue;
    BOOST_TEST(event["ts"].get<double>() == 0.601);
    ++num_waits;
  }
  BOOST_TEST(num_waits == 1);
}

BOOST_AUTO_TEST_CASE(rates_are_those_of_what_runs) {
  TraceRecord gemm;
  gemm.start_ns = 1000;
  gemm.end_ns = 3000;
  gemm.flops = 6000;  // 3 a ns
  TraceRecord other = gemm;
  other.start_ns = 2000;
  other.end_ns = 4000;
  other.flops = 2000;
  TraceRecord send;
  send.kind = RecordKind::p2p;
  send.start_ns = 1000;
  send.end_ns = 5000;
  send.transfer_ns = 1000;  // the rest was waiting
  send.bytes = 500;
  TraceRecord copy = send;  // bytes of what is no communication
  copy.kind = RecordKind::memcpy;
  std::map<std::string, std::vector<std::pair<double, double>>> counters;
  const json events = exported({{2, 0, 1000, 6000, {gemm, other, send, copy}}})["traceEvents"];
  for (const json& event : events) {
    if (event["ph"] != "C") continue;
    BOOST_TEST(event["pid"] == 2);
    counters[event["name"]].emplace_back(event["ts"], event["args"]["value"]);
  }
  const std::vector<std::pair<double, double>> flops = {{0, 3e9}, {1, 4e9}, {2, 1e9}, {3, 0}};
  const std::vector<std::pair<double, double>> sent = {{3, 5e8}, {4, 0}};
  BOOST_TEST(counters.size() == 2U);
  BOOST_TEST((counters["FLOP/s"] == flops));
  BOOST_TEST((counters["communication B/s"] == sent));
}

BOOST_AUTO_TEST_CASE(rows_have_names) {
  const json events = exported(
      sample(), {.trace_name = "t", .stream_names = {{1, "communication"}}})["traceEvents"];
  std::map<std::pair<int, int>, std::string> rows;
  std::map<int, std::string> processes;
  for (const json& event : events) {
    if (event["name"] == "thread_name") {
      rows[{event["pid"], event["tid"]}] = event["args"]["name"];
    } else if (event["name"] == "process_name") {
      processes[event["pid"]] = event["args"]["name"];
    }
  }
  BOOST_TEST((rows[{3, 0}] == "host"));
  BOOST_TEST((rows[{3, 1}] == "stream 0"));
  BOOST_TEST((rows[{3, 2}] == "communication"));
  BOOST_TEST((rows[{4, 0}] == "host"));
  BOOST_TEST(processes[3] == "rank 3");
  BOOST_TEST(processes.size() == 2U);
}

BOOST_AUTO_TEST_CASE(hostile_names_stay_names) {
  const json events = exported(sample())["traceEvents"];
  const json event = find(events, "dispatch \"<\xef\xbf\xbd>", "X");
  BOOST_TEST_REQUIRE(!event.is_null());
  BOOST_TEST(event["args"]["group"] == "ep");
  BOOST_TEST(exported(sample(), {.trace_name = "\"}\n\xfe"})["traceName"] == "\"}\n\xef\xbf\xbd");
}

BOOST_AUTO_TEST_CASE(nothing_is_still_a_trace) { BOOST_TEST(exported({})["traceEvents"].empty()); }

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
