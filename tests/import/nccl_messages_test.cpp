// Messages in exports of Nsight Systems, which say neither a kernel's purpose nor its other rank:
// NCCL's own ranges tell a send from a receive, and the ends tell which belong together.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/analysis/imported_steps.h"
#include "profiler/analysis/matched_collectives.h"
#include "profiler/import/trace_files.h"
#include "tests/import/nsys_export.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(messages_of_nccl)

namespace {

using tests::NsysExport;
using tests::TempFolder;

enum MessageName : int64_t { kLaunchCall = 10, kSendRecv, kReduce };

void add_names(NsysExport& file) {
  file.text(kLaunchCall, "cuLaunchKernelEx")
      .text(kSendRecv, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)")
      .text(kReduce, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)");
}

/// What the file says of an operation: "send", "recv" or nothing.
std::string said_of(const ImportedTrace& trace, const ImportedOp& op) {
  return op.comm == kNoRow ? "" : trace.names[trace.comms[op.comm].collective];
}

using Hops = std::vector<std::pair<int64_t, int64_t>>;
const Hops kForthAndBack = {{10, 11}, {11, 12}, {12, 11}, {11, 10}};
const Hops kRing = {{10, 11}, {11, 12}, {12, 10}};

/// Processes 10 to 12 of one file. In each of four rounds these messages are sent, from process to
/// process, one each millisecond; its receiver ends 3 us after its sender.
std::vector<ImportedTrace> ranks_with(const Hops& hops) {
  const TempFolder folder;
  const std::string path = folder.file("a.sqlite");
  {
    NsysExport file(path);
    add_names(file);
    std::map<int64_t, int64_t> correlation;
    const auto add_end = [&](int64_t pid, const char* call, int64_t launch, int64_t start,
                             int64_t end) {
      const int64_t id = ++correlation[pid];
      file.range(pid, pid, launch - 1000, launch + 9000, call)
          .call(pid, pid, launch, launch + 5000, id, kLaunchCall)
          .kernel(pid, pid - 10, start, end, 20, id, kSendRecv);
    };
    int64_t end = 0;
    for (int round = 0; round < 4; ++round) {
      for (const auto& [from, to] : hops) {
        end += 1'000'000;
        add_end(from, "ncclSend", end - 600'000, end - 100'000, end);
        add_end(to, "ncclRecv", end - 700'000, end - 500'000, end + 3000);
      }
    }
  }
  return read_trace_file(path);
}

}  // namespace

BOOST_AUTO_TEST_CASE(ranges_of_nccl_say_what_a_kernel_sends) {
  struct Range {
    int64_t start;
    int64_t end;
    const char* name;
    int64_t thread = 70;
  };
  struct Case {
    const char* what;
    std::vector<Range> ranges;
    int64_t launch;
    std::string expected;
    int64_t kernel = kSendRecv;
  };
  const std::vector<Case> cases = {
      {"alone", {{100, 200, "ncclSend"}}, 150, "send"},
      {"under PyTorch's words", {{90, 220, "nccl:recv 0<-1"}, {100, 200, "ncclRecv"}}, 150, "recv"},
      {"in a group",
       {{100, 110, "ncclGroupStart"}, {120, 130, "ncclRecv"}, {140, 200, "ncclGroupEnd"}},
       150,
       "recv"},
      {"an exchange",
       {{100, 110, "ncclGroupStart"},
        {120, 130, "ncclSend"},
        {131, 135, "ncclRecv"},
        {140, 200, "ncclGroupEnd"}},
       150,
       ""},
      {"of a collective", {{90, 220, "nccl:gather"}, {100, 200, "ncclSend"}}, 150, ""},
      {"launched behind it", {{100, 200, "ncclSend"}}, 201, ""},
      {"on another thread", {{100, 200, "ncclSend", 71}}, 150, ""},
      {"another kernel", {{100, 200, "ncclSend"}}, 150, "", kReduce},
  };
  for (const Case& one : cases) {
    const TempFolder folder;
    const std::string path = folder.file("a.sqlite");
    {
      NsysExport file(path);
      add_names(file);
      for (const Range& range : one.ranges) {
        file.range(7, range.thread, range.start, range.end, range.name);
      }
      file.call(7, 70, one.launch, one.launch + 5, 1, kLaunchCall);
      file.kernel(7, 0, 1000, 2000, 20, 1, one.kernel);
    }
    const std::vector<ImportedTrace> traces = read_trace_file(path);
    BOOST_TEST_REQUIRE(traces.size() == 1U);
    BOOST_TEST_REQUIRE(traces[0].ops.size() == 1U);
    BOOST_TEST(said_of(traces[0], traces[0].ops[0]) == one.expected, one.what);
  }
}

BOOST_AUTO_TEST_CASE(messages_without_a_peer_are_matched_by_their_ends) {
  std::vector<ImportedTrace> traces = ranks_with(kForthAndBack);
  BOOST_TEST_REQUIRE(traces.size() == 3U);
  const CollectiveMatching matching = match_across_ranks(traces);
  BOOST_TEST(matching.matched.empty());
  BOOST_TEST(matching.messages.size() == 16U);
  std::map<std::pair<uint32_t, uint32_t>, int> num_of;  // by sender and receiver
  for (const MatchedCollective& one : matching.messages) {
    BOOST_TEST_REQUIRE(one.parts.size() == 2U);
    ++num_of[{one.parts[0].trace, one.parts[1].trace}];
    const ImportedTrace& sender = traces[one.parts[0].trace];
    const ImportedTrace& receiver = traces[one.parts[1].trace];
    const ImportedOp& sent = sender.ops[one.parts[0].op];
    const ImportedOp& received = receiver.ops[one.parts[1].op];
    BOOST_TEST(said_of(sender, sent) == "send");
    BOOST_TEST(said_of(receiver, received) == "recv");
    BOOST_TEST(received.end_ns - sent.end_ns == 3000);
    BOOST_TEST(one.transfer_ns == 100'000);
  }
  BOOST_TEST(num_of.size() == 4U);
  for (const auto& [from, to] : kForthAndBack) {
    const std::pair<uint32_t, uint32_t> traces_of_hop(from - 10, to - 10);
    BOOST_TEST(num_of[traces_of_hop] == 4);
  }
  for (const auto& offset_ns : matching.clock_offsets_ns) BOOST_TEST((offset_ns == 0));
  // Of the first stage: what it sends forth and gets back.
  const StepTrace step = ImportedSteps(traces, matching).make(0).at(0);
  BOOST_TEST(std::ranges::count(step.records, RecordKind::p2p, &TraceRecord::kind) == 8);
  // Clocks of other files may differ.
  traces[1].facts.file = "b.sqlite";
  BOOST_TEST(match_across_ranks(traces).messages.empty());
}

// Who sends to one neighbour and receives from the other one is no stage.
BOOST_AUTO_TEST_CASE(messages_around_a_ring_are_communication) {
  const std::vector<ImportedTrace> traces = ranks_with(kRing);
  const CollectiveMatching matching = match_across_ranks(traces);
  BOOST_TEST(matching.messages.empty());
  BOOST_TEST(matching.matched.size() == 12U);
  BOOST_TEST(matching.num_ops == 24);
  BOOST_TEST(matching.num_unmatched == 0);
  const StepTrace step = ImportedSteps(traces, matching).make(0).at(0);
  BOOST_TEST(std::ranges::count(step.records, RecordKind::collective, &TraceRecord::kind) == 8);
}

// Most ends have to find another one: else they may be of anything.
BOOST_AUTO_TEST_CASE(few_ends_together_are_no_messages) {
  std::vector<ImportedTrace> traces = ranks_with(kForthAndBack);
  for (size_t row = 0; row < traces[0].ops.size(); ++row) {
    traces[0].ops[row].start_ns += 400'000;
    traces[0].ops[row].end_ns += 400'000;
  }
  BOOST_TEST(match_across_ranks(traces).messages.empty());  // 16 of 32 ends are left
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
