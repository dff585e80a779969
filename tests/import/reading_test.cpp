// The parts of the reader one by one: numbers by their digits, documents in pieces, names, and the
// join and order of an imported trace.
#include <boost/test/unit_test.hpp>
#include <limits>

#include "kernels/base/error.h"
#include "profiler/import/decimal.h"
#include "profiler/import/json_stream.h"
#include "profiler/import/kineto_event.h"
#include "profiler/import/trace_files.h"
#include "tests/import/reference_figures.h"
#include "tests/import/trace_texts.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(reading_traces)

namespace {

using tests::EventText;
using tests::TempFolder;

/// Gives a text out in pieces of a few bytes.
class Dribble : public ByteSource {
 public:
  Dribble(std::string text, size_t piece) : text_(std::move(text)), piece_(piece) {}
  size_t read(char* out, size_t size) override {
    const size_t length = std::min({size, piece_, text_.size() - at_});
    text_.copy(out, length, at_);
    at_ += length;
    return length;
  }

 private:
  std::string text_;
  size_t piece_;
  size_t at_ = 0;
};

}  // namespace

BOOST_AUTO_TEST_CASE(decimals_become_whole_numbers_by_their_digits) {
  const auto is = [](const char* text, int scale, std::optional<int64_t> expected) {
    BOOST_TEST_CONTEXT(text) BOOST_TEST((scaled_decimal(text, scale) == expected));
  };
  is("1711964646123456.789", 3, 1711964646123456789);
  is("1365627949868.561", 3, 1365627949868561);
  is("1682725898236567", 3, 1682725898236567000);
  is("0.5", 3, 500);
  is("-0.53", 3, -530);
  is("1.2345", 3, 1234);  // half to even
  is("1.2355", 3, 1236);
  is("1.23451", 3, 1235);
  is("1.5e3", 3, 1500000);
  is("15E-1", 0, 2);
  is("1e-400", 3, 0);
  is("0e400", 3, 0);
  is("9223372036854775807", 0, std::numeric_limits<int64_t>::max());
  is("-9223372036854775807", 0, -std::numeric_limits<int64_t>::max());
  is("9223372036854775807.5", 0, std::nullopt);
  is("9223372036854775808", 0, std::nullopt);
  is("9223372036854775", 4, std::nullopt);
  for (const char* bad :
       {"", "-", "1.", ".5", "1e", "1e+", "0x1", "1 ", " 1", "nan", "inf", "1,5"}) {
    is(bad, 3, std::nullopt);
  }
}

BOOST_AUTO_TEST_CASE(a_document_is_the_same_in_pieces_of_any_size) {
  const std::string text =
      "\xef\xbb\xbf{ \"a\\\"}\" : [1, {\"b\": \"]\\\\\"}, \"\" , true],\n\"skip\":{\"x\":[[\"}\"]]}"
      ",\"n\":-1.5e3 ,\"e\":[ ] }  ";
  for (size_t piece = 1; piece < 40; ++piece) {
    JsonStream json(std::make_unique<Dribble>(text, piece), "dribble");
    std::string seen;
    json.enter();
    for (std::string_view key; json.next_key(key);) {
      seen += std::string(key) + "=";
      if (key == "skip") {
        json.skip();
      } else if (json.peek() == '[') {
        json.enter();
        while (json.next_element()) seen += std::string(json.value()) + ";";
      } else {
        seen += json.value();
      }
      seen += "|";
    }
    json.expect_end();
    BOOST_TEST(seen == "a\\\"}=1;{\"b\": \"]\\\\\"};\"\";true;|skip=|n=-1.5e3|e=|");
  }
}

// Long runs of escapes and brackets, against a plain loop.
BOOST_AUTO_TEST_CASE(values_end_where_a_plain_loop_says) {
  tests::Random random(7);
  for (int round = 0; round < 300; ++round) {
    std::string text = "[";
    int depth = 1;
    while (depth > 0) {
      switch (random.below(6)) {
        case 0:
          text += '[';
          ++depth;
          break;
        case 1:
        case 2:
          text += ']';
          --depth;
          break;
        case 3:
          text += '"';
          for (int i = random.below(20); i > 0; --i) {
            text += std::string_view("]{\\\\ab}[")[random.below(8)] == '\\'
                        ? (random.below(2) == 0 ? "\\\\" : "\\\"")
                        : "]y";
          }
          text += '"';
          break;
        default:
          text += " y_Y1";
      }
    }
    const auto piece = static_cast<size_t>(1 + random.below(30));
    JsonStream json(std::make_unique<Dribble>("[" + text + ",0]", piece), "random");
    json.enter();
    BOOST_TEST_REQUIRE(json.next_element());
    BOOST_TEST(json.value() == text);
    BOOST_TEST(json.next_element());
  }
}

BOOST_AUTO_TEST_CASE(the_head_of_an_event_is_found_wherever_it_stands) {
  const auto check = [](const char* event, const char* phase, const char* category) {
    const KinetoHead head = head_of_event(event);
    BOOST_TEST_CONTEXT(event) {
      BOOST_TEST(head.phase == phase);
      BOOST_TEST(head.category == category);
    }
  };
  check(R"({"ph": "X", "cat": "kernel", "ts": 1})", "X", "kernel");
  check(R"({"ts": 1.5 ,"args": {"cat": "no", "x": [{"ph": 1}]}, "cat" : "kernel","ph":"i"})", "i",
        "kernel");
  check(R"({"name": "\"cat\": \"no\"", "cat": "yes"})", "", "yes");
  check(R"({"cat": 5, "ph": null})", "", "");
  check("{}", "", "");
  check("[]", "", "");
  check(R"({"ph")", "", "");
  check(R"({"ph": )", "", "");
}

BOOST_AUTO_TEST_CASE(a_bare_list_and_facts_around_the_list_are_read) {
  const TempFolder folder;
  const std::string events = EventText().kernel(1, 2, 3).json();
  const size_t start = events.find('[');
  tests::write_text(folder.file("rank_12.json"), events.substr(start, events.size() - start - 1));
  const ImportedTrace bare = std::move(read_trace_file(folder.file("rank_12.json")).at(0));
  BOOST_TEST(bare.ops.size() == 1U);
  BOOST_TEST((bare.facts.rank == 12));
  BOOST_TEST(bare.facts.is_rank_guessed);

  const ImportedTrace told = EventText().kernel(1, 2, 3).read(
      R"(, "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": "16",
            "pg_config": [{"pg_name": "0", "rank": 9, "ranks": [0, 1]}]},
          "deviceProperties": [{"id": 0, "name": "A"}, {"id": 1, "name": "B", "x": {"name": "C"}}],
          "baseTimeNanoseconds": 1711964646000000000, "with_stack": 1, "metadata": {"a": [{}]})");
  BOOST_TEST((told.facts.rank == 3));
  BOOST_TEST(!told.facts.is_rank_guessed);
  BOOST_TEST((told.facts.world_size == 16));
  BOOST_TEST((told.facts.device_names == std::vector<std::string>{"A", "B"}));
  BOOST_TEST(told.facts.base_time_ns == 1711964646000000000);
  BOOST_TEST(told.facts.has_stacks);

  const ImportedTrace alone =
      EventText().kernel(1, 2, 3).read(R"(, "distributedInfo": {"rank": -1})");
  BOOST_TEST(!alone.facts.rank.has_value());
}

BOOST_AUTO_TEST_CASE(ranks_are_read_from_names) {
  for (const auto& [path, rank] :
       std::initializer_list<std::pair<const char*, int>>{{"a/rank-3.json", 3},
                                                          {"rank_04.json.gz", 4},
                                                          {"sampled_rank-1.json.gz", 1},
                                                          {"trace.rank7.json", 7},
                                                          {"rank3/trace.json", -1},
                                                          {"frank3.json", -1},
                                                          {"ranks.json", -1},
                                                          {"rank-.json", -1},
                                                          {"rank99999999999.json", -1},
                                                          {"rank", -1},
                                                          {"", -1}}) {
    BOOST_TEST(rank_in_name(path) == rank, path);
  }
}

BOOST_AUTO_TEST_CASE(what_the_file_says_of_a_kernel_is_kept) {
  EventText events;
  events.kernel(1, 2, 3, "gemm", 7, R"(, "grid": [10, 2, 3], "block": [128, 1, 1])");
  events.kernel(2, 2, 3, "gemm", 7, R"(, "grid": [10, 2, 3], "block": [128, 1, 1])");
  events.kernel(3, 2, 3, "gemm", 7, R"(, "graph id": 4, "graph node id": 17179869185)");
  events.kernel(4, 2, 3, "ncclDevKernel_SendRecv(x)", 20,
                R"(, "Collective name": "send", "In msg nelems": 8, "Out msg nelems": 2,
                   "dtype": "BFloat16", "Group size": 4, "Process Group Name": "12",
                   "Process Group Description": "PIPELINE", "Process Group Ranks": "[0, 1]",
                   "Dst Rank": 1, "Seq": 77)");
  events.copy(5, 1, 4, "Memcpy DtoH (Device -> Pageable)");
  events.add(R"({"ph": "X", "cat": "cuda_sync", "name": "cuda_sync", "pid": 0, "tid": 7, "ts": 9,
                 "dur": 1, "args": {"cuda_sync_kind": "Stream Wait Event", "stream": 7,
                 "correlation": 5, "wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": 3,
                 "wait_on_cuda_event_id": 2, "device": 0}})");
  events.add(R"({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 1, "args":
                 {"Device Type": 1, "Total Allocated": 500, "Total Reserved": 900}})");
  const ImportedTrace trace = events.read();
  BOOST_TEST_REQUIRE(trace.ops.size() == 5U);
  BOOST_TEST(trace.ops[0].detail == trace.ops[1].detail);
  BOOST_TEST(trace.shapes[trace.ops[0].detail].grid[0] == 10U);
  BOOST_TEST(trace.shapes[trace.ops[0].detail].block[0] == 128U);
  BOOST_TEST(!is_in_graph(trace, trace.ops[0]));
  BOOST_TEST(is_in_graph(trace, trace.ops[2]));
  BOOST_TEST(trace.shapes[trace.ops[2].detail].graph_node == 17179869185U);
  const CommCall& comm = trace.comms[trace.ops[3].comm];
  BOOST_TEST(trace.names[comm.collective] == "send");
  BOOST_TEST(trace.names[comm.description] == "PIPELINE");
  BOOST_TEST(trace.names[comm.members] == "[0, 1]");
  BOOST_TEST(comm.peer == 1);
  BOOST_TEST(comm.sequence == 77);
  BOOST_TEST(comm.group_size == 4);
  BOOST_TEST(trace.ops[3].bytes == 16);
  BOOST_TEST((trace.ops[4].path == CopyPath::to_host));
  BOOST_TEST(trace.names[trace.ops[4].detail] == "DtoH");
  BOOST_TEST(trace.ops[4].bytes == 1'000'000);
  BOOST_TEST_REQUIRE(trace.syncs.size() == 1U);
  BOOST_TEST((trace.syncs[0].kind == SyncKind::stream_wait));
  BOOST_TEST(trace.syncs[0].stream == trace.ops[0].stream);
  BOOST_TEST(trace.syncs[0].producer_stream == trace.ops[3].stream);
  BOOST_TEST(trace.syncs[0].record_correlation == 3U);
  BOOST_TEST(trace.facts.peak_allocated_bytes == 500);
  BOOST_TEST(trace.facts.peak_reserved_bytes == 900);
}

BOOST_AUTO_TEST_CASE(a_messages_peer_is_its_other_rank) {
  const auto peer_of = [](const std::string& collective, const std::string& ranks) {
    EventText events;
    events.kernel(1, 2, 3, "ncclDevKernel_SendRecv(x)", 20,
                  R"(, "Collective name": ")" + collective + "\"" + ranks);
    return events.read().comms.at(0).peer;
  };
  const std::string both = R"(, "Src Rank": 4, "Dst Rank": 5)";
  BOOST_TEST(peer_of("send", both) == 5);
  BOOST_TEST(peer_of("recv", both) == 4);
  BOOST_TEST(peer_of("send", R"(, "Dst Rank": 5)") == 5);
  BOOST_TEST(peer_of("recv", R"(, "Src Rank": 4)") == 4);
  BOOST_TEST(peer_of("allreduce", "") == -1);
}

BOOST_AUTO_TEST_CASE(calls_are_told_apart_by_their_names) {
  for (const auto& [name, kind] : std::initializer_list<std::pair<const char*, CallKind>>{
           {"cudaLaunchKernel", CallKind::launch},
           {"cuLaunchKernelEx", CallKind::launch},
           {"hipExtModuleLaunchKernel", CallKind::launch},
           {"cudaGraphLaunch", CallKind::graph_launch},
           {"cudaMemcpy", CallKind::blocking_copy},
           {"cudaMemcpy_v3020", CallKind::blocking_copy},
           {"cudaMemcpyAsync", CallKind::copy},
           {"hipMemcpyWithStream", CallKind::blocking_copy},
           {"cudaMemsetAsync", CallKind::copy},
           {"cudaDeviceSynchronize", CallKind::sync},
           {"cuStreamSynchronize", CallKind::sync},
           {"hipEventSynchronize", CallKind::sync},
           {"cudaEventQuery", CallKind::query},
           {"cudaEventRecordWithFlags", CallKind::event_record},
           {"cudaStreamWaitEvent", CallKind::stream_wait},
           {"cudaMalloc", CallKind::allocation},
           {"cudaHostAlloc", CallKind::allocation},
           {"cuMemFree_v2", CallKind::allocation},
           {"cudaFuncGetAttributes", CallKind::other},
           {"malloc", CallKind::other},
           {"", CallKind::other}}) {
    BOOST_TEST((call_kind_of(name) == kind), name);
  }
}

// Rows in any order, against a plain search.
BOOST_AUTO_TEST_CASE(a_finished_trace_is_joined_and_sorted) {
  tests::Random random(3);
  ImportedTrace trace;
  trace.names.intern("x");
  struct Plain {
    int64_t start_ns;
    uint32_t correlation;
  };
  std::vector<Plain> calls;
  for (int i = 0; i < 40'000; ++i) {
    HostCall call;
    call.start_ns = random.below(5000);
    call.end_ns = i;
    call.correlation = static_cast<uint32_t>(random.below(30'000));
    calls.push_back({call.start_ns, call.correlation});
    trace.calls.add(call);
  }
  std::vector<int64_t> first_of(30'000, -1);
  for (size_t i = calls.size(); i-- > 0;) {
    if (calls[i].correlation != 0) first_of[calls[i].correlation] = static_cast<int64_t>(i);
  }
  for (int i = 0; i < 40'000; ++i) {
    ImportedOp op;
    op.start_ns = random.below(1000);
    op.end_ns = op.start_ns;
    op.correlation = static_cast<uint32_t>(random.below(30'000));
    op.bytes = i;
    trace.ops.add(op);
  }
  trace.finish();
  for (size_t row = 0; row < trace.ops.size(); ++row) {
    const ImportedOp& op = trace.ops[row];
    const HostCall* call = trace.launch_of(op);
    const int64_t expected = first_of[op.correlation];
    BOOST_TEST_REQUIRE((call == nullptr ? -1 : call->end_ns) == expected);
    if (row == 0) continue;
    const ImportedOp& before = trace.ops[row - 1];
    BOOST_TEST_REQUIRE(
        (std::pair(before.start_ns, before.bytes) < std::pair(op.start_ns, op.bytes)));
  }
  for (size_t row = 1; row < trace.calls.size(); ++row) {
    BOOST_TEST_REQUIRE(trace.calls[row - 1].start_ns <= trace.calls[row].start_ns);
  }
}

BOOST_AUTO_TEST_CASE(names_are_kept_once_and_within_bounds) {
  NameTable names;
  BOOST_TEST(names.intern("a") == 0U);
  BOOST_TEST(names.intern("b") == 1U);
  BOOST_TEST(names.intern("a") == 0U);
  BOOST_TEST(names[names.intern("x\xffy\xc3")] == "x\xef\xbf\xbdy\xef\xbf\xbd");
  BOOST_TEST(names[names.intern("\xf0\x9f\x98\x80 \xed\xa0\x80")] ==
             "\xf0\x9f\x98\x80 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  uint32_t last = 0;
  const size_t num_fitting = NameTable::kMaxTotalBytes / 10'000;
  for (size_t i = 0; i < num_fitting + 100; ++i) {
    last = names.intern(std::to_string(i) + std::string(10'000, 'z'));
  }
  BOOST_TEST(names[last] == NameTable::kOverflowName);
  BOOST_TEST(names.size() <= num_fitting + 6);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
