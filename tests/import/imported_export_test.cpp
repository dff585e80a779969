// Traces of other tools, written for viewers: what an importer reads of them comes back to the
// nanosecond, with an arrow from each launch to its work.
#include <fmt/format.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "kernels/base/error.h"
#include "profiler/export/chrome_json.h"
#include "profiler/export/imported_events.h"
#include "profiler/export/perfetto.h"
#include "tests/import/shared_traces.h"
#include "tests/import/trace_texts.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(imported_export_test)

namespace {

using nlohmann::json;
using tests::EventText;
using tests::says;
using tests::TempFolder;
using tests::write_text;

std::string chrome_of(std::span<const ImportedTrace> traces) {
  std::ostringstream out;
  write_imported_chrome_json(out, traces, "viewer");
  return out.str();
}

ImportedTrace read(const std::string& text) {
  const TempFolder folder;
  write_text(folder.file("viewer.json"), text);
  std::vector<ImportedTrace> traces = read_trace_file(folder.file("viewer.json"));
  BOOST_TEST_REQUIRE(traces.size() == 1U);
  return std::move(traces[0]);
}

ImportedTrace written_and_read(const ImportedTrace& trace) {
  return read(chrome_of(std::span(&trace, 1)));
}

/// All that is kept of the events, in words; threads by the order in which they are named.
class TraceText {
 public:
  explicit TraceText(const ImportedTrace& trace) : trace_(trace) {}

  [[nodiscard]] std::vector<std::string> calls() {
    std::vector<std::string> lines;
    for (const HostCall& call : trace_.calls) lines.push_back(text_of(call));
    return lines;
  }

  [[nodiscard]] std::vector<std::string> ops() {
    std::vector<std::string> lines;
    for (const ImportedOp& op : trace_.ops) {
      std::ostringstream line;
      const ImportedStream& stream = trace_.streams[op.stream];
      line << times(op) << trace_.names[op.name] << " of kind " << static_cast<int>(op.kind)
           << " path " << static_cast<int>(op.path) << " bytes " << op.bytes << " on "
           << stream.device << "/" << stream.id;
      if (op.call != kNoRow) line << " launched by " << text_of(trace_.calls[op.call]);
      if (op.kind == ActivityKind::copy && op.detail != kNoRow) line << name(op.detail);
      if (op.kind == ActivityKind::kernel && op.detail != kNoRow) {
        const LaunchShape& shape = trace_.shapes[op.detail];
        for (const uint32_t extent : shape.grid) line << " g" << extent;
        for (const uint32_t extent : shape.block) line << " b" << extent;
        line << " graph " << shape.graph << "/" << shape.graph_node;
      }
      if (op.comm != kNoRow) {
        const CommCall& comm = trace_.comms[op.comm];
        line << name(comm.group) << name(comm.description) << name(comm.members)
             << name(comm.collective) << name(comm.dtype) << " " << comm.group_size << " "
             << comm.peer << " " << comm.in_nelems << " " << comm.out_nelems << " "
             << comm.sequence;
      }
      lines.push_back(line.str());
    }
    return lines;
  }

  [[nodiscard]] std::vector<std::string> others() {
    std::vector<std::string> lines;
    for (const HostRange& range : trace_.ranges) {
      lines.push_back(times(range) + trace_.names[range.name]);
    }
    for (const ImportedStep& step : trace_.steps) {
      lines.push_back(times(step) + std::to_string(step.number));
    }
    for (const ImportedSync& sync : trace_.syncs) {
      std::ostringstream line;
      line << times(sync) << static_cast<int>(sync.kind) << stream(sync.stream) << " for"
           << stream(sync.producer_stream) << " calls " << sync.correlation << " "
           << sync.record_correlation << " event " << sync.event;
      lines.push_back(line.str());
    }
    for (const KernelWork& work : trace_.works) {
      const ImportedOp& op = trace_.ops[work.op];
      lines.push_back(times(op) + trace_.names[op.name] + " does " + std::to_string(work.flops) +
                      " moves " + std::to_string(work.bytes) +
                      (work.is_eight_bit ? " in 8 bits" : ""));
    }
    for (const uint32_t row : trace_.recomputed) {
      lines.push_back(times(trace_.ops[row]) + trace_.names[trace_.ops[row].name] + " again");
    }
    return lines;
  }

 private:
  template <typename Timed>
  static std::string times(const Timed& row) {
    return std::to_string(row.start_ns) + ".." + std::to_string(row.end_ns) + " ";
  }
  [[nodiscard]] std::string name(uint32_t number) const {
    return number == kNoRow ? " -" : " '" + trace_.names[number] + "'";
  }
  [[nodiscard]] std::string stream(uint32_t row) const {
    return row == kNoRow ? " -" : " " + std::to_string(trace_.streams[row].id);
  }
  std::string text_of(const HostCall& call) {
    const size_t thread = threads_.try_emplace(call.thread, threads_.size()).first->second;
    return times(call) + trace_.names[call.name] + " by " + std::to_string(thread) + " for " +
           std::to_string(call.correlation) + " of kind " +
           std::to_string(static_cast<int>(call.kind));
  }

  const ImportedTrace& trace_;
  std::map<uint16_t, size_t> threads_;
};

void check_same(const ImportedTrace& a, const ImportedTrace& b) {
  TraceText first(a);
  TraceText second(b);
  BOOST_TEST(first.calls() == second.calls(), boost::test_tools::per_element());
  BOOST_TEST(first.ops() == second.ops(), boost::test_tools::per_element());
  BOOST_TEST(first.others() == second.others(), boost::test_tools::per_element());
  BOOST_TEST((a.facts.world_size == b.facts.world_size));
  BOOST_TEST((a.facts.device_names == b.facts.device_names));
  BOOST_TEST(a.facts.base_time_ns == b.facts.base_time_ns);
  BOOST_TEST(a.facts.has_stacks == b.facts.has_stacks);
  BOOST_TEST(a.facts.peak_allocated_bytes == b.facts.peak_allocated_bytes);
  BOOST_TEST(a.facts.peak_reserved_bytes == b.facts.peak_reserved_bytes);
}

/// A step on two threads and three streams: a kernel, a collective, a message, a copy each way, a
/// wait between streams, one of the host.
EventText one_step() {
  EventText events;
  events.range(1, 900, "ProfilerStep#7").range(2.125, 10, "forward \\\"<\\u00e4>");
  events.call(3.25, 4, 1)
      .kernel(10.001, 20.5, 1, "gemm", 7,
              R"(, "grid": [3, 2, 1], "block": [128, 1, 1], "graph id": 4)");
  events.call(11, 1.5, 2, "cudaLaunchKernelExC")
      .kernel(31, 7.007, 2, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", 20,
              R"(, "Collective name": "allreduce", "In msg nelems": 100, "Out msg nelems": 90,
                 "dtype": "BFloat16", "Process Group Name": "12", "Group size": 4, "Seq": 0,
                 "Process Group Description": "TENSOR_MODEL_PARALLEL_GROUP",
                 "Process Group Ranks": "[0, 1, 2, 3]")");
  events.call(13, 1.5, 3, "cudaLaunchKernelExC")
      .kernel(40, 5, 3, "ncclDevKernel_SendRecv(x)", 20,
              R"(, "Collective name": "recv", "In msg nelems": 8, "Out msg nelems": 8,
                 "dtype": "Float", "Process Group Name": "3", "Src Rank": 2, "Seq": 5)");
  events.call(15, 1, 4, "cudaMemcpyAsync", 2).copy(50, 2, 4);
  events.call(17, 1, 5, "cudaMemcpyAsync", 2).copy(53, 2, 5, "Memcpy DtoH (Device -> Pinned)");
  events.call(19, 1, 6, "cudaEventRecord").call(21, 1, 7, "cudaStreamWaitEvent");
  events.call(23, 40, 0, "cudaDeviceSynchronize");
  events.add(R"({"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 0, "tid": 20,
      "ts": 21, "dur": 1, "args": {"cuda_sync_kind": "Stream Wait Event", "stream": 20,
      "correlation": 7, "device": 0, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 6,
      "wait_on_cuda_event_id": 9}})");
  events.add(R"({"ph": "X", "cat": "cuda_sync", "name": "Context Sync", "pid": 0, "tid": -1,
      "ts": 23, "dur": 40, "args": {"cuda_sync_kind": "Context Sync", "stream": -1, "device": 0}})");
  // Without a call, and without length.
  events.kernel(60, 0, 0, "lost", 7);
  return events;
}

constexpr const char* kFacts =
    R"(, "distributedInfo": {"rank": 3, "world_size": 8}, "baseTimeNanoseconds": 1700000000000000000,
       "with_stack": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}])";

std::map<std::string, int> phases_of(const json& events) {
  std::map<std::string, int> phases;
  for (const json& event : events) ++phases[event.at("ph")];
  return phases;
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_was_imported_comes_back) {
  const ImportedTrace trace = one_step().read(kFacts);
  BOOST_TEST_REQUIRE(trace.ops.size() == 6U);
  BOOST_TEST_REQUIRE(trace.syncs.size() == 2U);
  const ImportedTrace back = written_and_read(trace);
  check_same(trace, back);
  BOOST_TEST((back.facts.rank == 3));
  BOOST_TEST(!back.facts.is_rank_guessed);
  // Rows of viewers are numbered from 0, threads are not.
  BOOST_TEST_REQUIRE(back.threads.size() == trace.threads.size());
  for (const ImportedThread& thread : trace.threads) {
    BOOST_TEST(std::ranges::count(back.threads, thread) == 1, thread.id);
  }
  const std::string viewed = chrome_of(std::span(&back, 1));
  BOOST_TEST(viewed.find(fmt::format("thread {}", trace.threads[0].id)) != std::string::npos);
  // And once more: the file of a file.
  check_same(trace, written_and_read(back));
}

// What the wall of compute and that of memory need; a file of ours has neither operators nor events
// of the allocator.
BOOST_AUTO_TEST_CASE(work_and_peaks_of_memory_come_back) {
  EventText events = one_step();
  const auto add_operator = [&](const char* start, const std::string& type) {
    events.add(R"({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "dur": 10,
                   "ts": )" +
               std::string(start) +
               R"(, "args": {"Input Dims": [[2, 3], [3, 4]], "Input type": [")" + type + R"(", ")" +
               type + R"("]}})");
  };
  // Each around its launch; the second one's kernel is the first that runs.
  add_operator("100", "c10::BFloat16");
  events.call(101, 2, 50).kernel(300, 5, 50, "wide", 9);
  add_operator("200", "c10::Float8_e4m3fn");
  events.call(201, 2, 51).kernel(250, 5, 51, "narrow", 11);
  events.add(R"({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 1, "args":
                 {"Device Type": 1, "Total Allocated": 500, "Total Reserved": 900}})");
  const ImportedTrace trace = events.read(kFacts);
  BOOST_TEST_REQUIRE(trace.works.size() == 2U);
  const ImportedTrace back = written_and_read(trace);
  check_same(trace, back);
  BOOST_TEST(back.facts.peak_allocated_bytes == 500);
  BOOST_TEST(back.facts.peak_reserved_bytes == 900);
  BOOST_TEST_REQUIRE(back.works.size() == 2U);
  const KernelWork& narrow = back.works[0];
  BOOST_TEST(back.names[back.ops[narrow.op].name] == "narrow");
  BOOST_TEST(narrow.flops == 48);  // 2 * 2 * 3 * 4
  BOOST_TEST(narrow.bytes == 34);  // 6 and 12 of one byte, 8 of two
  BOOST_TEST(narrow.is_eight_bit);
  const KernelWork& wide = back.works[1];
  BOOST_TEST(back.names[back.ops[wide.op].name] == "wide");
  BOOST_TEST(wide.bytes == 52);  // 26 of two bytes
  BOOST_TEST(!wide.is_eight_bit);
  check_same(trace, written_and_read(back));
}

BOOST_AUTO_TEST_CASE(what_was_computed_again_comes_back) {
  EventText events = one_step();
  events.add(R"({"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 2000, "dur": 100,
                 "name": "autograd::engine::evaluate_function: CheckpointFunctionBackward"})");
  events.call(2010, 2, 60).kernel(2900, 5, 60, "again", 9);
  events.call(2200, 2, 61).kernel(2800, 5, 61, "once", 9);
  const ImportedTrace trace = events.read(kFacts);
  BOOST_TEST_REQUIRE(trace.recomputed.size() == 1U);
  BOOST_TEST(trace.names[trace.ops[trace.recomputed[0]].name] == "again");
  check_same(trace, written_and_read(trace));
}

// Of others' files only shapes say it. The rows of a file need not be in the order of time.
BOOST_AUTO_TEST_CASE(work_is_read_from_our_own_files) {
  const auto written_by = [](const std::string& writer) {
    return R"({"otherData": {"writer": ")" + writer +
           R"(", "num_ranks": 1, "origin_ns": 0, "peak_allocated_bytes": 7}, "traceEvents": [
              {"ph": "X", "cat": "kernel", "name": "late", "pid": 0, "tid": 7, "ts": 9, "dur": 2,
               "args": {"flops": 5, "least bytes": 6}},
              {"ph": "X", "cat": "kernel", "name": "odd", "pid": 0, "tid": 7, "ts": 5, "dur": 2,
               "args": {"flops": -5, "least bytes": 6}},
              {"ph": "X", "cat": "kernel", "name": "early", "pid": 0, "tid": 7, "ts": 1, "dur": 2,
               "args": {"flops": 3, "least bytes": 4, "eight bit": true}}]})";
  };
  const ImportedTrace own = read(written_by("moetune import 1"));
  BOOST_TEST(own.facts.peak_allocated_bytes == 7);
  BOOST_TEST_REQUIRE(own.works.size() == 2U);
  BOOST_TEST(own.works[0].op == 0U);
  BOOST_TEST(own.works[0].flops == 3);
  BOOST_TEST(own.works[0].is_eight_bit);
  BOOST_TEST(own.works[1].op == 2U);
  BOOST_TEST(own.works[1].bytes == 6);
  const ImportedTrace other = read(written_by("another 1"));
  BOOST_TEST(other.works.empty());
  BOOST_TEST(other.facts.peak_allocated_bytes == 0);
}

// As PyTorch wrote until 2.2: doubles of such times would lose the nanoseconds. A stray event of
// another clock must not be where the others count from in doubles.
BOOST_AUTO_TEST_CASE(times_since_1970_come_back) {
  const std::string time = R"("ts": 1711964646123456.789, "dur": 12.345)";
  EventText events;
  events
      .add(R"({"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7,
              "args": {"device": 0, "stream": 7}, )" +
           time + "}")
      .add(R"({"ph": "X", "cat": "user_annotation", "name": "r", "pid": 0, "tid": 7, )" + time +
           "}");
  const auto check = [](const ImportedTrace& trace, int64_t origin_ns) {
    BOOST_TEST_REQUIRE(trace.ops[0].start_ns == 1'711'964'646'123'456'789);
    const std::string text = chrome_of(std::span(&trace, 1));
    const json document = json::parse(text);
    BOOST_TEST(document["otherData"]["origin_ns"] == origin_ns);
    const ImportedTrace back = read(text);
    BOOST_TEST(back.ops[0].start_ns == trace.ops[0].start_ns);
    BOOST_TEST(back.ops[0].end_ns == trace.ops[0].end_ns);
    BOOST_TEST(back.ranges[0].start_ns == trace.ranges[0].start_ns);
  };
  check(events.read(), 1'711'964'646'123'456'789);
  events.call(0, 1, 9, "cudaGetDevice");
  check(events.read(), 0);
}

// Whoever reads the file takes no times that are centuries apart.
BOOST_AUTO_TEST_CASE(times_that_could_not_be_read_back_are_known) {
  constexpr int64_t kMost = int64_t{1} << 61;
  const auto can_be = [](std::vector<std::pair<int64_t, int64_t>> times) {
    ImportedTrace trace;
    const uint16_t thread = trace.thread_row({1, 1});
    for (const auto& [start_ns, end_ns] : times) {
      trace.ranges.add({start_ns, end_ns, trace.names.intern("r"), thread});
    }
    trace.finish();
    const bool is_readable = can_be_read_back(std::span(&trace, 1));
    if (is_readable) check_same(trace, written_and_read(trace));
    return is_readable;
  };
  BOOST_TEST(can_be({}));
  BOOST_TEST(can_be({{-kMost, 0}, {0, kMost}}));
  BOOST_TEST(!can_be({{-kMost, 0}, {1, 2}}));
  BOOST_TEST(!can_be({{-kMost, 1}}));
}

BOOST_AUTO_TEST_CASE(random_traces_come_back) {
  tests::Random random(5);
  for (int round = 0; round < 50; ++round) {
    EventText events;
    const int num_ops = random.below(30);
    for (int i = 0; i < num_ops; ++i) {
      const int correlation = 1 + random.below(20);
      const double start = 100 * i + random.below(90) + 0.001 * random.below(1000);
      if (random.below(4) != 0) {
        events.call(10 * i + 0.5, random.below(9), correlation, "cudaLaunchKernel",
                    random.below(3));
      }
      if (random.below(3) == 0) {
        events.copy(start, random.below(30), correlation);
      } else {
        events.kernel(start, random.below(300) + 0.017, correlation, "gemm", random.below(3));
      }
    }
    const ImportedTrace trace = events.read();
    check_same(trace, written_and_read(trace));
  }
}

// Two calls may have one number; then that which launched the work need not be the first.
BOOST_AUTO_TEST_CASE(work_keeps_its_launch) {
  ImportedTrace trace;
  trace.facts.rank = 0;
  const uint16_t thread = trace.thread_row({1, 1});
  const uint32_t name = trace.names.intern("cudaLaunchKernel");
  trace.calls.add({0, 5, name, 9, thread, CallKind::launch});
  trace.calls.add({10, 15, name, 9, thread, CallKind::launch});
  ImportedOp op;
  op.start_ns = 20;
  op.end_ns = 30;
  op.correlation = 9;
  op.call = 1;
  op.name = trace.names.intern("gemm");
  op.stream = trace.stream_row({0, 7});
  trace.ops.add(op);
  trace.finish();
  const ImportedTrace back = written_and_read(trace);
  BOOST_TEST_REQUIRE(back.launch_of(back.ops[0]) != nullptr);
  BOOST_TEST(back.launch_of(back.ops[0])->start_ns == 10);
}

BOOST_AUTO_TEST_CASE(rows_arrows_and_counters_are_there) {
  const ImportedTrace trace = one_step().read(kFacts);
  const json document = json::parse(chrome_of(std::span(&trace, 1)));
  const json& events = document["traceEvents"];
  // 8 calls, 2 ranges, 6 pieces of device work, 2 waits; 5 of the pieces have a launch.
  std::map<std::string, int> phases = phases_of(events);
  BOOST_TEST(phases["X"] == 18);
  BOOST_TEST(phases["s"] == 5);
  BOOST_TEST(phases["f"] == 5);
  std::set<std::string> counters;
  std::map<int64_t, std::string> rows;
  std::map<int64_t, json> starts;
  std::map<int64_t, json> ends;
  for (const json& event : events) {
    const std::string phase = event["ph"];
    BOOST_TEST(event["pid"] == 3);
    if (event["name"] == "thread_name") rows[event["tid"]] = event["args"]["name"];
    if (event["name"] == "process_name") BOOST_TEST(event["args"]["name"] == "rank 3");
    if (phase == "C") counters.insert(event["name"]);
    if (phase == "s") starts[event["id"]] = event;
    if (phase == "f") ends[event["id"]] = event;
    if (event["name"] == "gemm" && phase == "X") {
      BOOST_TEST(event["ts"] == 9.001);  // from the step's start, 1 us
      BOOST_TEST(event["dur"] == 20.5);
      BOOST_TEST(event["cat"] == "kernel");
      BOOST_TEST(event["args"]["grid"] == (json{3, 2, 1}));
      BOOST_TEST(event["args"]["graph id"] == 4);
    }
  }
  BOOST_TEST((counters == std::set<std::string>{"communication B/s", "copied B/s"}));
  std::set<std::string> names;
  for (const auto& [row, name] : rows) names.insert(name);
  BOOST_TEST((names == std::set<std::string>{"thread 1", "thread 2", "stream 7", "stream 20",
                                             "waits of streams", "waits of the host"}));
  std::map<std::string, int> leads_to;
  for (const auto& [id, start] : starts) {
    BOOST_TEST(rows[start["tid"]].starts_with("thread"));
    ++leads_to[rows[ends.at(id)["tid"]]];
  }
  BOOST_TEST(leads_to["stream 7"] == 3);  // the GEMM and the copies
  BOOST_TEST(leads_to["stream 20"] == 2);
}

// One file shows all ranks of an export of Nsight Systems; it is no trace of one rank.
BOOST_AUTO_TEST_CASE(several_ranks_are_for_viewers_alone) {
  std::vector<ImportedTrace> traces;
  traces.push_back(one_step().read(R"(, "distributedInfo": {"rank": 4})"));
  traces.push_back(one_step().read(R"(, "distributedInfo": {"rank": 2})"));
  BOOST_TEST((shown_ranks(traces) == std::vector<int32_t>{4, 2}));
  const std::string text = chrome_of(traces);
  std::set<int> processes;
  const json events = json::parse(text)["traceEvents"];
  for (const json& event : events) processes.insert(event["pid"].get<int>());
  BOOST_TEST((processes == std::set<int>{2, 4}));
  BOOST_TEST(phases_of(events)["X"] == 36);
  BOOST_CHECK_EXCEPTION(read(text), base::UsageError, says("viewer.json", "of 2 ranks"));
  traces[1].facts.rank = 4;
  BOOST_TEST((shown_ranks(traces) == std::vector<int32_t>{0, 1}));
  traces[1].facts.rank.reset();
  BOOST_TEST((shown_ranks(traces) == std::vector<int32_t>{0, 1}));
}

// Only our own word counts for where times begin.
BOOST_AUTO_TEST_CASE(origins_are_those_of_our_own_files) {
  const auto with_other_data = [](const std::string& members) {
    return R"({"otherData": {)" + members +
           R"(}, "traceEvents": [{"ph": "X", "cat": "user_annotation", "name": "r", "pid": 1,
            "tid": 1, "ts": 1, "dur": 2}]})";
  };
  const std::string own = R"("writer": "moetune import 1", "num_ranks": 1, "origin_ns": )";
  BOOST_TEST(read(with_other_data(own + "500")).ranges[0].start_ns == 1500);
  BOOST_TEST(read(with_other_data(own + "-500")).ranges[0].end_ns == 2500);
  const std::string foreign = R"("writer": "another 1", "num_ranks": 7, "origin_ns": 500)";
  BOOST_TEST(read(with_other_data(foreign)).ranges[0].start_ns == 1000);
  BOOST_CHECK_EXCEPTION(read(with_other_data(own + "3000000000000000000")), base::UsageError,
                        says("viewer.json", "origin_ns is no time"));
  // Anybody may write anything there. What is ours is JSON of UTF-8 that is not deep.
  const std::string deep = R"("a": )" + std::string(100, '[') + std::string(100, ']');
  for (const std::string& broken : {std::string("\"a\": \"\xff\""), deep}) {
    BOOST_TEST(read(with_other_data(broken)).ranges[0].start_ns == 1000);
    BOOST_TEST(read(with_other_data(own + "500, " + broken)).ranges[0].start_ns == 1000);
  }
  for (const char* key : {"distributedInfo", "deviceProperties"}) {
    BOOST_CHECK_EXCEPTION(
        read("{\"" + std::string(key) + "\": [{\"name\": \"\xff\"}], \"traceEvents\": []}"),
        base::UsageError, says("viewer.json", key, "not UTF-8"));
  }
}

// A file that is sent to somebody does not say in whose folder its original lay.
BOOST_AUTO_TEST_CASE(only_the_last_part_of_a_path_is_written) {
  ImportedTrace trace = one_step().read(kFacts);
  trace.facts.file = "/home/somebody/secret/viewer.json";
  for (const char* path : {"/home/somebody/secret/viewer.json", "viewer.json"}) {
    std::ostringstream out;
    write_imported_chrome_json(out, std::span(&trace, 1), path);
    BOOST_TEST(json::parse(out.str())["traceName"] == "viewer.json");
    BOOST_TEST(out.str().find("secret") == std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(nothing_is_nothing_to_show) {
  const ImportedTrace trace = EventText().read();
  BOOST_TEST(!has_events(std::span(&trace, 1)));
  const ImportedTrace range = EventText().range(0, 1, "alone").read();
  BOOST_TEST(has_events(std::span(&range, 1)));
  std::ostringstream out;
  write_imported_perfetto(out, std::span(&range, 1));
  BOOST_TEST(out.str().find("alone") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(real_traces_come_back) {
  const std::string golden = std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/traces/";
  for (const char* file : {"cuda_event_sync.json.gz", "cuda_event_sync_multi_stream.json.gz"}) {
    const std::vector<ImportedTrace> traces = read_trace_file(golden + file);
    BOOST_TEST_CONTEXT(file) { check_same(traces.at(0), written_and_read(traces.at(0))); }
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
