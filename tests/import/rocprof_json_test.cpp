// JSON of rocprofv3: names that stand before and behind what they name, copies, calls and ranges
// that the shared file lacks, and files that are damaged.
#include "profiler/import/rocprof_json.h"

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "profiler/analysis/trace_windows.h"
#include "profiler/import/trace_files.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(traces_of_rocprof)

namespace {

using tests::says;
using tests::TempFolder;
using tests::write_text;

std::string dispatch(int64_t start, int64_t end, int kernel, int64_t correlation, int agent = 20) {
  return fmt::format(
      R"({{"size":184,"kind":11,"operation":2,"thread_id":908,)"
      R"("correlation_id":{{"internal":{},"external":0}},"start_timestamp":{},"end_timestamp":{},)"
      R"("dispatch_info":{{"size":72,"agent_id":{{"handle":{}}},"queue_id":{{"handle":3}},)"
      R"("kernel_id":{},"dispatch_id":1,"workgroup_size":{{"x":256,"y":1,"z":1}},)"
      R"("grid_size":{{"x":1000,"y":2,"z":1}}}},"stream_id":{{"handle":77}}}})",
      correlation, start, end, agent, kernel);
}
std::string api(int kind, int operation, int64_t correlation, int64_t start, int64_t end) {
  return fmt::format(
      R"({{"size":56,"kind":{},"operation":{},"correlation_id":{{"internal":{},"external":0}},)"
      R"("start_timestamp":{},"end_timestamp":{},"thread_id":908}})",
      kind, operation, correlation, start, end);
}
std::string copy(int operation, int64_t correlation) {
  return fmt::format(
      R"({{"size":80,"kind":2,"operation":{},"thread_id":908,)"
      R"("correlation_id":{{"internal":{},"external":0}},"start_timestamp":50,"end_timestamp":60,)"
      R"("dst_agent_id":{{"handle":{}}},"src_agent_id":{{"handle":{}}},"bytes":4096}})",
      operation, correlation, operation == 3 ? 10 : 20, operation == 3 ? 20 : 10);
}

const std::string kAgents = R"("agents":[{"id":{"handle":10},"type":1,"name":"a CPU"},)"
                            R"({"id":{"handle":20},"type":2,"name":"gfx950"}])";
const std::string kSymbols = R"("kernel_symbols":[{"kernel_id":8,"kernel_name":"gemm.kd",)"
                             R"_("formatted_kernel_name":"gemm(int)"},)_"
                             R"({"kernel_id":9,"kernel_name":"_Z1f.kd"}])";
const std::string kStrings =
    R"("strings":{"buffer_records":[{"kind":"NONE","operations":[]},)"
    R"({"kind":"HIP_RUNTIME_API","operations":["hipNone","hipLaunchKernel","hipMemcpyAsync"]},)"
    R"({"kind":"MARKER_CORE_RANGE_API","operations":["roctxMarkA","roctxThreadRangeA"]},)"
    R"({"kind":"RCCL_API","operations":["ncclAllReduce"]}],)"
    R"("marker_api":[{"key":31,"value":"step 4"},{"key":32,"value":"a mark"}],)"
    R"("att_filenames":[]})";

std::string process(const std::vector<std::string>& members) {
  return fmt::format(R"({{"metadata":{{"pid":908,"command":["secret"]}},{}}})",
                     fmt::join(members, ","));
}
std::string document(const std::vector<std::string>& processes) {
  return fmt::format(R"({{"rocprofiler-sdk-tool":[{}]}})", fmt::join(processes, ","));
}
std::string records(const std::vector<std::string>& lists) {
  return fmt::format(R"("buffer_records":{{{}}})", fmt::join(lists, ","));
}
std::string list(const std::string& name, const std::vector<std::string>& rows) {
  return fmt::format(R"("{}":[{}])", name, fmt::join(rows, ","));
}

std::vector<ImportedTrace> read(const std::string& text) {
  const TempFolder folder;
  write_text(folder.file("a.json"), text);
  return read_trace_file(folder.file("a.json"));
}

}  // namespace

BOOST_AUTO_TEST_CASE(everything_is_joined_wherever_it_stands) {
  const std::string all =
      records({list("kernel_dispatch",
                    {dispatch(100, 200, 8, 41), dispatch(10, 20, 9, 42), dispatch(70, 65, 5, 43)}),
               list("hip_api", {api(1, 1, 41, 1, 2), api(1, 2, 44, 3, 4)}),
               list("marker_api", {api(2, 1, 31, 0, 300), api(2, 0, 32, 5, 5)}),
               list("rccl_api", {api(3, 0, 50, 6, 7)}),
               list("memory_copy", {copy(2, 44), copy(3, 45), copy(1, 46)}),
               list("hsa_api", {api(9, 9, 1, 1, 2), api(9, 9, 2, 1, 2)})});
  for (const bool is_behind : {false, true}) {
    const std::vector<std::string> order =
        is_behind ? std::vector<std::string>{all, kStrings, kSymbols, kAgents}
                  : std::vector<std::string>{kAgents, kStrings, kSymbols, all};
    const std::vector<ImportedTrace> traces = read(document({process(order)}));
    BOOST_TEST_REQUIRE(traces.size() == 1);
    const ImportedTrace& trace = traces[0];
    std::string found;
    for (const ImportedOp& op : trace.ops) {
      found += fmt::format("{}@{}-{} ", trace.names[op.name], op.start_ns, op.end_ns);
    }
    BOOST_TEST(found ==
               "_Z1f.kd@10-20 Memcpy HtoD@50-60 Memcpy DtoH@50-60 (unnamed 5)@70-70 "
               "gemm(int)@100-200 ");
    const ImportedOp& gemm = trace.ops[4];
    BOOST_TEST_REQUIRE(trace.launch_of(gemm) != nullptr);
    BOOST_TEST(trace.names[trace.launch_of(gemm)->name] == "hipLaunchKernel");
    BOOST_TEST((trace.launch_of(gemm)->kind == CallKind::launch));
    BOOST_TEST(trace.streams[gemm.stream].id == 3);  // the queue, not stream_id
    BOOST_TEST(trace.streams[gemm.stream].device == 20);
    const LaunchShape& shape = trace.shapes[gemm.detail];
    BOOST_TEST(shape.grid[0] == 4U);  // 1,000 threads in blocks of 256
    BOOST_TEST(shape.grid[1] == 2U);
    BOOST_TEST(shape.block[0] == 256U);
    const ImportedOp& upload = trace.ops[1];
    BOOST_TEST((upload.kind == ActivityKind::copy && upload.path == CopyPath::to_device));
    BOOST_TEST(upload.bytes == 4096);
    BOOST_TEST(trace.names[trace.launch_of(upload)->name] == "hipMemcpyAsync");
    std::string ranges;
    for (const HostRange& range : trace.ranges) ranges += trace.names[range.name] + " ";
    BOOST_TEST(ranges == "step 4 ncclAllReduce ");
    BOOST_TEST_REQUIRE(trace.steps.size() == 1);
    BOOST_TEST(trace.steps[0].number == 4);
    BOOST_TEST(trace.threads[trace.calls[0].thread].id == 908);
    BOOST_TEST(trace.facts.format == "rocprofiler-sdk");
    BOOST_TEST(trace.facts.device_names.at(0) == "gfx950");
    BOOST_TEST(trace.facts.num_events == 13);
    BOOST_TEST(trace.facts.num_clipped == 1);
    BOOST_TEST(trace.facts.notes.empty());
  }
}

// Figures are compared with those of others, who count kernels alone.
BOOST_AUTO_TEST_CASE(copies_are_for_the_verdict_and_not_in_figures) {
  const std::string both =
      records({list("kernel_dispatch", {dispatch(100, 200, 8, 41), dispatch(10, 20, 9, 42)}),
               list("memory_copy", {copy(2, 44), copy(3, 45)})});
  const std::vector<ImportedTrace> traces = read(document({process({kAgents, both})}));
  BOOST_TEST_REQUIRE(traces.size() == 1);
  const auto budget = [&](const TraceWindows& windows) {
    return windows.measure(*windows.make(WindowKind::whole)).wide;
  };
  const WindowBudget figures = budget(TraceWindows(traces[0]));
  BOOST_TEST(figures.window_ns == 190);
  BOOST_TEST(figures.busy_ns == 110);
  BOOST_TEST(figures.num_copies == 0);
  BOOST_TEST(figures.copy_busy_ns == 0);
  BOOST_TEST(figures.num_kernels == 2);
  const WindowBudget all = budget(TraceWindows(traces[0], DeviceOps::all));
  BOOST_TEST(all.busy_ns == 120);  // both copies run from 50 to 60
  BOOST_TEST(all.num_copies == 2);
}

BOOST_AUTO_TEST_CASE(each_device_of_each_process_is_a_rank) {
  const std::string first = process(
      {kSymbols,
       records({list("kernel_dispatch", {dispatch(5, 6, 8, 1, 30), dispatch(1, 2, 8, 2, 20)})})});
  const std::string second = process({records({list("kernel_dispatch", {dispatch(3, 4, 8, 1)})})});
  const std::vector<ImportedTrace> traces = read(document({first, second}));
  BOOST_TEST_REQUIRE(traces.size() == 3);
  const int64_t starts[] = {1, 5, 3};
  for (size_t i = 0; i < 3; ++i) {
    BOOST_TEST(traces[i].ops[0].start_ns == starts[i]);
    BOOST_TEST(traces[i].facts.rank.value_or(-1) == static_cast<int64_t>(i));
  }
  // Numbers of kernels are those of a process.
  BOOST_TEST(traces[2].names[traces[2].ops[0].name] == "(unnamed 8)");
  BOOST_TEST(traces[2].facts.notes.at(0).find("--hip-trace") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_thread_trace_is_told) {
  const std::string strings = R"("strings":{"att_filenames":["a.att"]})";
  const auto traces = read(
      document({process({strings, records({list("kernel_dispatch", {dispatch(1, 2, 8, 1)})})})}));
  BOOST_TEST(traces[0].facts.notes.at(0).find("thread trace") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(bad_files_end_in_a_sentence) {
  const auto expect = [](const std::string& text, const std::string& sentence) {
    BOOST_TEST_CONTEXT(text.substr(0, 120)) {
      BOOST_CHECK_EXCEPTION(read(text), base::UsageError, says("a.json", sentence));
    }
  };
  expect(R"({"rocprofiler-sdk-tool":[]})", "holds no device work");
  expect(R"({"rocprofiler-sdk-tool":7})", "holds no device work");
  expect(R"({"rocprofiler-sdk-tool":[7]})", "a process is an object");
  expect(document({process({kAgents, kSymbols})}), "holds no device work");
  const std::string good =
      document({process({kAgents, records({list("kernel_dispatch", {dispatch(1, 2, 8, 1)})})})});
  expect(good + "x", "behind the end of the document");
  std::string text = good;
  text.replace(text.find("\"start_timestamp\":1"), 19, "\"start_timestamp\":9223372036854775808");
  expect(text, "start_timestamp is '9223372036854775808', expected whole nanoseconds");
  // A value that is missing beside a text that never ends.
  expect(document({process({R"("strings":{"buffer_records":[{"operations":["a",,b"]}]})"})}), "");
  text = good;
  text.replace(text.find("\"start_timestamp\":1"), 19, "\"start_timestamp\":\"a\\nb\"");
  expect(text, "start_timestamp is 'a b'");
  for (size_t size = 30; size + 1 < good.size(); ++size) {
    BOOST_CHECK_THROW(read(good.substr(0, size)), base::UsageError);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
