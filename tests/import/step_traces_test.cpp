// Our own Chrome JSON, written and read back: nothing is lost on the way.
#include "profiler/import/step_traces.h"

#include <boost/test/unit_test.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "kernels/base/error.h"
#include "profiler/export/chrome_json.h"
#include "profiler/export/perfetto.h"
#include "tests/profiler/synthetic_trace.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(step_traces_test)

namespace {

using tests::says;
using tests::TempFolder;
using tests::write_text;

std::string json_of(const std::vector<StepTrace>& traces) {
  std::ostringstream out;
  write_chrome_json(out, traces);
  return out.str();
}

std::vector<StepTrace> read(const std::string& text) {
  const TempFolder folder;
  write_text(folder.file("t.json"), text);
  return read_step_traces(folder.file("t.json"));
}

void check_equal(const StepTrace& a, const StepTrace& b) {
  BOOST_TEST(a.rank == b.rank);
  BOOST_TEST(a.step == b.step);
  BOOST_TEST(a.start_ns == b.start_ns);
  BOOST_TEST(a.end_ns == b.end_ns);
  BOOST_TEST((a.further_waits == b.further_waits));
  BOOST_TEST_REQUIRE(a.records.size() == b.records.size());
  for (size_t i = 0; i < a.records.size(); ++i) {
    const auto tied = [](const TraceRecord& r) {
      return std::tie(r.id, r.rank, r.step, r.kind, r.stream, r.name, r.layer, r.micro_batch,
                      r.launch_start_ns, r.launch_end_ns, r.start_ns, r.end_ns, r.group, r.bytes,
                      r.flops, r.transfer_ns, r.sequence, r.graph_id, r.producer_id, r.is_recompute,
                      r.thread, r.device, r.kernel, r.grid, r.block, r.communicator, r.peer);
    };
    BOOST_TEST((tied(a.records[i]) == tied(b.records[i])), "record " << i);
  }
}

void check_round_trip(const std::vector<StepTrace>& traces) {
  const std::vector<StepTrace> back = read(json_of(traces));
  BOOST_TEST_REQUIRE(back.size() == traces.size());
  for (size_t i = 0; i < traces.size(); ++i) check_equal(back[i], traces[i]);
}

/// One record with every member set, at times that a double of microseconds just holds.
TraceRecord full_record() {
  TraceRecord record;
  record.id = 5;
  record.rank = 3;
  record.step = 2;
  record.kind = RecordKind::p2p;
  record.stream = 4;
  record.name = "send \"\\\n\u00e4\u4e2d {}[]";
  record.layer = 7;
  record.micro_batch = 1;
  record.launch_start_ns = 1'000'000'000'000'001;
  record.launch_end_ns = 1'000'000'000'000'777;
  record.start_ns = 1'000'000'000'001'003;
  record.end_ns = 1'000'000'123'456'789;
  record.group = "pp";
  record.bytes = int64_t{1} << 60;
  record.flops = std::numeric_limits<int64_t>::max();
  record.transfer_ns = -3;
  record.sequence = 0;
  record.graph_id = -9;
  record.producer_id = 0;
  record.is_recompute = true;
  record.thread = 0;
  record.device = 3;
  record.kernel = "void k<float, 2>(float*)";
  record.grid = {2'147'483'647, 0, 1};
  record.block = {0, 0, 64};
  record.communicator = int64_t{1} << 40;
  record.peer = 2;
  return record;
}

StepTrace trace_of(std::vector<TraceRecord> records) {
  return {3, 2, 1'000'000'000'000'000, 1'000'000'200'000'000, std::move(records), {{5, 0}, {5, 4}}};
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_member_comes_back) {
  TraceRecord backwards = full_record();
  backwards.end_ns = backwards.start_ns - 5;
  TraceRecord host;
  host.rank = 3;
  host.step = 2;
  host.kind = RecordKind::host_work;
  host.stream = kHostStream;
  host.name = "step";  // as the category of a step's slice is called
  check_round_trip({trace_of({full_record(), backwards, host, TraceRecord(host)})});
  BOOST_TEST(read(json_of({trace_of({full_record()})})).at(0).further_waits.size() == 2U);
  check_round_trip({});
  check_round_trip({{0, 1, 5, 9, {}}, {1, 1, 4, 9, {}}, {0, 2, 9, 12, {}}});
  // Beyond what a double of microseconds holds.
  check_round_trip(
      {{0, 1, 0, 9, {}}, {1, 1, 1'711'964'646'123'456'789, 1'711'964'646'123'456'791, {}}});
}

BOOST_AUTO_TEST_CASE(random_traces_come_back) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 50; ++i) {
    check_round_trip({random_timeline_trace(random)});
    check_round_trip({random_garbage_trace(random)});
  }
}

// So the file of one format can be made from that of the other.
BOOST_AUTO_TEST_CASE(what_was_read_is_written_as_before) {
  std::mt19937_64 random(8);
  const std::vector<StepTrace> traces = {random_timeline_trace(random)};
  const std::string text = json_of(traces);
  BOOST_TEST(json_of(read(text)) == text);
  std::ostringstream before;
  std::ostringstream after;
  write_perfetto(before, traces);
  write_perfetto(after, read(text));
  BOOST_TEST((before.str() == after.str()));
}

// Whoever calls a kernel, or a file, like us has not become us by that.
BOOST_AUTO_TEST_CASE(our_files_are_known_by_their_writer) {
  constexpr size_t kHeadBytes = 4096;
  const std::string text = json_of({trace_of({full_record()})});
  BOOST_TEST(is_step_traces(text));
  BOOST_TEST(is_step_traces(text.substr(0, std::min(text.size(), kHeadBytes) / 2)));
  BOOST_TEST(
      is_step_traces("\xef\xbb\xbf\n { \"displayTimeUnit\" : \"ns\", \"a\": [1, {}], \"b\": 2,"
                     " \"otherData\" : {\"origin_ns\": 5,\n \"writer\" : \"moetune 1\"} ,"));
  for (const char* other : {
           "",
           "{",
           "[{\"name\": \"moetune 1\"}]",
           "{\"traceEvents\": [{\"name\": \"moetune 1\"}]}",
           "{\"traceEvents\": [{\"otherData\": {\"writer\": \"moetune 1\"}}]}",
           "{\"writer\": \"moetune 1\", \"traceEvents\": []}",
           "{\"otherData\": {\"made by\": \"moetune 1\"}, \"traceEvents\": []}",
           "{\"otherData\": {\"args\": {\"writer\": \"moetune 1\"}}, \"traceEvents\": []}",
           "{\"otherData\": {\"writer\": \"moetune import 1\"}, \"traceEvents\": []}",
           "{\"otherData\": \"moetune 1\", \"traceEvents\": []}",
           "{\"otherData\": {\"writer\": \"moetune 1\"",
       }) {
    BOOST_TEST(!is_step_traces(other), other);
  }
}

BOOST_AUTO_TEST_CASE(other_files_are_refused) {
  const std::string text = json_of({trace_of({full_record()})});
  BOOST_TEST(read(text).size() == 1U);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    const size_t at = other.find(from);
    BOOST_TEST_REQUIRE(at != std::string::npos, from);
    return other.replace(at, from.size(), to);
  };
  const auto refused = [](const std::string& other, const auto&... words) {
    BOOST_CHECK_EXCEPTION(read(other), base::UsageError, says("t.json", words...));
  };
  refused("", "moetune");
  refused("[]", "moetune");
  refused(R"({"traceEvents": []})", "moetune");
  refused(R"({"otherData": 3, "traceEvents": []})", "moetune");
  refused(changed("moetune 1", "another 2"), "moetune");
  refused(text.substr(0, text.size() / 2), "t.json");
  refused(changed("\"ph\":\"X\",\"pid\":3,\"tid\":5", "\"ph\":\"X\",\"pid\":3,\"tid\":-2"), "tid");
  refused(changed("\"layer\":7", "\"layer\":\"x\""), "layer");
  refused(changed("\"layer\":7", "\"layer\":70000000000"), "layer", "32 bits");
  refused(changed("\"grid\":[2147483647,0,1]", "\"grid\":[1,2]"), "grid", "2 numbers");
  refused(changed("\"grid\":[2147483647,0,1]", "\"grid\":[1,2,3000000000]"), "32 bits");
  refused(changed("_ids\":[0,4]", "_ids\":[0,\"x\"]"), "further_producer_ids");
  refused(changed("\"cat\":\"step\"", "\"cat\":\"stop\""), "step 2 of rank 3");
  refused(changed("\"dur\":200000.000", "\"dur\":1e300"), "dur");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
