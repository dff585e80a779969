// Chrome traces: valid JSON with the times, rows and names of the records.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "profiler/export/chrome_json.h"

namespace moetune::profiler {
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

json exported(const std::vector<StepTrace>& traces, const ChromeJsonOptions& options = {}) {
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

BOOST_AUTO_TEST_SUITE(export_test)

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

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::profiler
