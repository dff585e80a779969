// Messages in exports of Nsight Systems, which say neither a kernel's purpose nor its other rank:
// NCCL's own ranges tell a send from a receive, and the ends tell which belong together.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/analysis/imported_steps.h"
#include "profiler/analysis/imported_wall.h"
#include "profiler/analysis/matched_collectives.h"
#include "profiler/analysis/messages_by_ends.h"
#include "profiler/import/trace_files.h"
#include "tests/import/nsys_export.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(messages_of_nccl)

namespace {

using tests::NsysExport;
using tests::TempFolder;

enum MessageName : int64_t { kLaunchCall = 10, kSendRecv, kReduce, kForward, kBackward };

void add_names(NsysExport& file) {
  file.text(kLaunchCall, "cuLaunchKernelEx")
      .text(kSendRecv, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)")
      .text(kReduce, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)")
      .text(kForward, "forward_gemm")
      .text(kBackward, "backward_gemm");
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

enum class Does : uint8_t { forward, backward, send, receive, both };

/// What a stage does next, and when.
struct StageOp {
  Does does = Does::forward;
  size_t peer = 0;  ///< of a message: the other stage
  int64_t start_ns = 0;
  int64_t end_ns = 0;

  [[nodiscard]] bool is_message() const { return does >= Does::send; }
};
using StageOps = std::vector<StageOp>;

/// One forward, one backward, in the order of Megatron-LM: alone are the messages of the first
/// forward passes and of the last backward ones, and in between a stage exchanges with its
/// neighbours by turns.
StageOps one_forward_one_backward(size_t stage, size_t num_stages, size_t num_micro_batches) {
  StageOps ops;
  const bool has_before = stage > 0;
  const bool has_next = stage + 1 < num_stages;
  const auto add = [&](bool is_there, Does does, size_t peer) {
    if (is_there) ops.push_back({does, peer});
  };
  const size_t warm_up = std::min(num_stages - stage - 1, num_micro_batches);
  const size_t rest = num_micro_batches - warm_up;
  for (size_t i = 0; i < warm_up; ++i) {
    add(has_before, Does::receive, stage - 1);
    add(true, Does::forward, stage);
    add(has_next, Does::send, stage + 1);
  }
  add(has_before && rest > 0, Does::receive, stage - 1);
  for (size_t i = 0; i < rest; ++i) {
    add(true, Does::forward, stage);
    add(has_next, Does::both, stage + 1);
    add(true, Does::backward, stage);
    add(has_before, i + 1 < rest ? Does::both : Does::send, stage - 1);
  }
  for (size_t i = 0; i < warm_up; ++i) {
    add(has_next, Does::receive, stage + 1);
    add(true, Does::backward, stage);
    add(has_before, Does::send, stage - 1);
  }
  return ops;
}

/// Several steps of a pipeline. A forward pass takes 10 ms and a backward one 20, a message 200 us
/// once both of its stages have come to it.
std::vector<StageOps> played_pipeline(size_t num_stages, size_t num_micro_batches, int num_steps) {
  std::vector<StageOps> stages(num_stages);
  for (size_t i = 0; i < num_stages; ++i) {
    const StageOps step = one_forward_one_backward(i, num_stages, num_micro_batches);
    for (int k = 0; k < num_steps; ++k) stages[i].insert(stages[i].end(), step.begin(), step.end());
  }
  std::vector<size_t> at(num_stages);
  std::vector<int64_t> now(num_stages);
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (size_t i = 0; i < num_stages; ++i) {
      for (; at[i] < stages[i].size() && !stages[i][at[i]].is_message(); ++at[i]) {
        StageOp& op = stages[i][at[i]];
        op.start_ns = now[i];
        op.end_ns = now[i] += op.does == Does::forward ? 10'000'000 : 20'000'000;
        has_moved = true;
      }
      if (at[i] == stages[i].size()) continue;
      StageOp& own = stages[i][at[i]];
      const size_t peer = own.peer;
      if (at[peer] == stages[peer].size()) continue;
      StageOp& other = stages[peer][at[peer]];
      if (!other.is_message() || other.peer != i) continue;
      own.start_ns = now[i];
      other.start_ns = now[peer];
      own.end_ns = other.end_ns = now[i] = now[peer] = std::max(now[i], now[peer]) + 200'000;
      ++at[i];
      ++at[peer];
      has_moved = true;
    }
  }
  return stages;
}

/// Processes from 10 on of one file, in steps of equally many operations. The host launches a step
/// 2 ms before the one ahead of it ends, and marks it as an iteration.
std::vector<ImportedTrace> read_stages(const std::vector<StageOps>& stages, size_t num_steps,
                                       int64_t message_stream = 20) {
  constexpr int64_t kFirstNs = 50'000;
  constexpr int64_t kAheadNs = 2'000'000;
  const TempFolder folder;
  const std::string path = folder.file("a.sqlite");
  {
    NsysExport file(path);
    file.run("UPDATE TARGET_INFO_GPU SET name = 'GPU'");  // ranks of one run have like devices
    add_names(file);
    for (size_t i = 0; i < stages.size(); ++i) {
      const auto pid = static_cast<int64_t>(i) + 10;
      const size_t length = stages[i].size() / num_steps;
      int64_t id = 0;
      int64_t begun = 0;
      for (size_t step = 0; step < num_steps; ++step) {
        const int64_t end = kFirstNs + stages[i][(step + 1) * length - 1].end_ns - kAheadNs;
        file.range(pid, pid, begun, end - 1000, "iteration " + std::to_string(step + 1));
        for (size_t k = 0; k < length; ++k) {
          const StageOp& op = stages[i][step * length + k];
          const int64_t call = begun + 20'000 * static_cast<int64_t>(k) + 10'000;
          const auto nccl = [&](int64_t from, int64_t to, const char* name) {
            file.range(pid, pid, call + from, call + to, name);
          };
          if (op.is_message()) {
            nccl(0, 1000, "ncclGroupStart");
            if (op.does != Does::receive) nccl(1500, 2500, "ncclSend");
            if (op.does != Does::send) nccl(3000, 4000, "ncclRecv");
            nccl(5000, 15'000, "ncclGroupEnd");
          }
          const int64_t name = op.is_message()            ? kSendRecv
                               : op.does == Does::forward ? kForward
                                                          : kBackward;
          ++id;
          file.call(pid, pid, call + 6000, call + 11'000, id, kLaunchCall)
              .kernel(pid, pid - 10, kFirstNs + op.start_ns, kFirstNs + op.end_ns,
                      op.is_message() ? message_stream : 7, id, name);
        }
        begun = end;
      }
    }
  }
  return read_trace_file(path);
}

/// From each of `num_ranks` to the next one around, all at once: 10 ms of work and 5 of exchange.
void add_shifts(std::vector<StageOps>& ranks, int num_rounds, int64_t begin_ns) {
  for (int round = 0; round < num_rounds; ++round) {
    const int64_t start = begin_ns + round * int64_t{15'000'000};
    for (size_t i = 0; i < ranks.size(); ++i) {
      const int64_t end = start + 15'000'000 + 1000 * static_cast<int64_t>(i);
      ranks[i].push_back({Does::forward, i, start, start + 10'000'000});
      ranks[i].push_back({Does::both, i, start + 10'000'000, end});
    }
  }
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
       "send_recv"},
      {"to two others",
       {{100, 110, "ncclGroupStart"},
        {120, 130, "ncclSend"},
        {131, 135, "ncclSend"},
        {140, 200, "ncclGroupEnd"}},
       150,
       ""},
      {"with two others",
       {{100, 110, "ncclGroupStart"},
        {120, 122, "ncclSend"},
        {123, 125, "ncclRecv"},
        {126, 128, "ncclSend"},
        {129, 131, "ncclRecv"},
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

// Three stages of two ranks each, which end together: 0 and 1, 2 and 3, 4 and 5. Half of the time
// the end next to a rank's is that of the other one.
BOOST_AUTO_TEST_CASE(ranks_of_one_stage_have_one_partner_each_way) {
  std::vector<LooseEnd> sent;
  std::vector<LooseEnd> received;
  int64_t end = 0;
  for (uint32_t round = 0; round < 4; ++round) {
    for (const auto& [from, to] : kForthAndBack) {
      end += 1'000'000;
      for (uint32_t i = 0; i < 2; ++i) {
        const auto sender = static_cast<uint32_t>(2 * (from - 10)) + i;
        const auto receiver = static_cast<uint32_t>(2 * (to - 10)) + (round % 2 == 0 ? i : 1 - i);
        sent.push_back({sender, round, end + 10'000 * i});
        received.push_back({receiver, round, end + 10'000 * i + 1000});
      }
    }
  }
  std::map<std::pair<uint32_t, uint32_t>, int> num_of;
  for (const auto& [one, other] : pair_by_ends(sent, received)) ++num_of[{one.trace, other.trace}];
  BOOST_TEST(num_of.size() == 8U);
  for (const auto& [from, to] : kForthAndBack) {
    for (uint32_t i = 0; i < 2; ++i) {
      const std::pair<uint32_t, uint32_t> hop(2 * (from - 10) + i, 2 * (to - 10) + i);
      BOOST_TEST(num_of[hop] == 4);
    }
  }
}

// Of two communicators: two kernels of one group, one sends and one receives.
BOOST_AUTO_TEST_CASE(two_kernels_of_one_group_are_no_exchange) {
  const TempFolder folder;
  const std::string path = folder.file("a.sqlite");
  {
    NsysExport file(path);
    add_names(file);
    file.range(7, 70, 100, 110, "ncclGroupStart").range(7, 70, 120, 130, "ncclSend");
    file.range(7, 70, 131, 135, "ncclRecv").range(7, 70, 140, 200, "ncclGroupEnd");
    for (const int64_t id : {1, 2}) {
      file.call(7, 70, 140 + 10 * id, 145 + 10 * id, id, kLaunchCall);
      file.kernel(7, 0, 1000 * id, 1000 * id + 900, 20 + id, id, kSendRecv);
    }
  }
  const std::vector<ImportedTrace> traces = read_trace_file(path);
  BOOST_TEST_REQUIRE(traces.size() == 1U);
  BOOST_TEST_REQUIRE(traces[0].ops.size() == 2U);
  for (const ImportedOp& op : traces[0].ops) BOOST_TEST(said_of(traces[0], op).empty());
}

// Three stages and four micro-batches, in each of three steps: six messages of one kernel each, two
// exchanges of the first two stages and three of the last two.
BOOST_AUTO_TEST_CASE(stages_that_send_and_receive_at_once_are_matched) {
  const std::vector<ImportedTrace> traces = read_stages(played_pipeline(3, 4, 3), 3);
  BOOST_TEST_REQUIRE(traces.size() == 3U);
  const CollectiveMatching matching = match_across_ranks(traces);
  BOOST_TEST(matching.matched.empty());
  BOOST_TEST(matching.num_ops == 0);
  BOOST_TEST(matching.num_loose_exchanges == 0);
  BOOST_TEST(matching.messages.size() == 33U);
  std::map<std::pair<uint32_t, uint32_t>, int> num_of;  // exchanges by both stages
  for (const MatchedCollective& one : matching.messages) {
    BOOST_TEST_REQUIRE(one.parts.size() == 2U);
    const ImportedTrace& first = traces[one.parts[0].trace];
    const ImportedTrace& second = traces[one.parts[1].trace];
    BOOST_TEST(first.ops[one.parts[0].op].end_ns == second.ops[one.parts[1].op].end_ns);
    BOOST_TEST(one.transfer_ns == 200'000);
    const bool is_exchange = said_of(first, first.ops[one.parts[0].op]) == "send_recv";
    BOOST_TEST((said_of(second, second.ops[one.parts[1].op]) == "send_recv") == is_exchange);
    if (is_exchange) ++num_of[{one.parts[0].trace, one.parts[1].trace}];
  }
  BOOST_TEST(num_of.size() == 2U);
  BOOST_TEST((num_of[{0, 1}] == 6));
  BOOST_TEST((num_of[{1, 2}] == 9));
  // Of the middle stage all communication is of the pipeline.
  const StepTrace step = ImportedSteps(traces, matching).make(0).at(1);
  BOOST_TEST(std::ranges::count(step.records, RecordKind::p2p, &TraceRecord::kind) == 11);
  BOOST_TEST(std::ranges::count(step.records, RecordKind::collective, &TraceRecord::kind) == 0);
}

// Six passes of 30 ms and not four: a third of the step is filling and draining.
BOOST_AUTO_TEST_CASE(stages_that_send_and_receive_at_once_are_pipeline) {
  const ImportedWall wall = classify_imported(read_stages(played_pipeline(3, 4, 3), 3));
  BOOST_TEST(name_of(wall.label) == "pipeline", wall.summary);
  BOOST_TEST(wall.sub_cause == "bubble", wall.summary);
  BOOST_TEST(std::abs(wall.share_ratio - 0.33) < 0.03, wall.summary);
}

// Who each one sends to is not known, and no message of one kernel tells it.
BOOST_AUTO_TEST_CASE(ranks_that_all_send_and_receive_at_once_are_communication) {
  std::vector<StageOps> ranks(4);
  add_shifts(ranks, 12, 0);
  // On the stream of the work, which so waits for them.
  const std::vector<ImportedTrace> traces = read_stages(ranks, 3, 7);
  const CollectiveMatching matching = match_across_ranks(traces);
  BOOST_TEST(matching.messages.empty());
  BOOST_TEST(matching.matched.size() == 12U);
  BOOST_TEST(matching.num_unmatched == 0);
  BOOST_TEST(matching.num_loose_exchanges == 48);
  const ImportedWall wall = classify_imported(traces);
  BOOST_TEST(name_of(wall.label) == "communication", wall.summary);
  const auto said = std::ranges::find(wall.evidence, "loose_exchanges", &Evidence::name);
  BOOST_TEST_REQUIRE((said != wall.evidence.end()));
  BOOST_TEST(said->value == 48);
  BOOST_TEST(said->text ==
             "48 kernels send and receive in one group of calls, and are not of neighbouring "
             "stages as far as their ends tell: they count as communication");
}

// An interleaved pipeline: each stage sends to the next one and receives from the one before, so
// that all end together. By turns no four fifths of them have a partner.
BOOST_AUTO_TEST_CASE(stages_that_pass_on_around_a_ring_are_not_matched) {
  std::vector<StageOps> stages = played_pipeline(4, 1, 1);
  add_shifts(stages, 6, 200'000'000);
  const CollectiveMatching matching = match_across_ranks(read_stages(stages, 1));
  BOOST_TEST(matching.messages.size() == 6U);  // those of one kernel each
  BOOST_TEST(matching.matched.size() == 6U);
  BOOST_TEST(matching.num_loose_exchanges == 24);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
