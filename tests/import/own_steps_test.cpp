// What `moetune trace` has written of our own trials, given to what reads other tools' traces: the
// ranks come back with their groups, and the label is that of the steps.
#include "profiler/import/own_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <map>

#include "kernels/base/error.h"
#include "profiler/analysis/imported_wall.h"
#include "profiler/analysis/matched_collectives.h"
#include "profiler/analysis/trace_windows.h"
#include "profiler/export/chrome_json.h"
#include "profiler/import/trace_files.h"
#include "tests/profiler/synthetic_trace.h"
#include "tests/profiler/temp_folder.h"
#include "tests/tuner/faulty_steps.h"

namespace moetune::tests {
BOOST_AUTO_TEST_SUITE(own_steps_test)

namespace {

using profiler::CommCall;
using profiler::ImportedTrace;
using profiler::StepTrace;
using profiler::Wall;
using tuner::testing::Fault;
using tuner::testing::FaultyStep;

constexpr size_t kExperts = 1;           // dp4 ep4
constexpr size_t kSymmetric = 5;         // tp2 dp2
constexpr size_t kPipeline = 8;          // pp2 dp2 ep2
constexpr size_t kSymmetricStages = 11;  // tp2 pp2 dp2 ep4

std::vector<ImportedTrace> read_as_written(const std::vector<StepTrace>& steps) {
  const TempFolder folder;
  const std::string path = folder.file("own.json");
  std::ofstream file(path, std::ios::binary);
  profiler::write_chrome_json(file, steps);
  file.close();
  return profiler::read_trace_file(path);
}

/// Without communicators it is an older file, which says nothing of them and of peers.
std::vector<ImportedTrace> written_and_read(std::vector<StepTrace> steps,
                                            const profiler::CommunicatorKeys& communicators = {}) {
  for (StepTrace& step : steps) {
    for (profiler::TraceRecord& record : step.records) record.communicator = record.peer = -1;
    profiler::set_communicators(step, communicators);
  }
  return read_as_written(steps);
}

/// Of the communicator that a rank has in a group.
std::string members_of(const FaultyStep& step, int32_t rank, const std::string& group) {
  const int64_t own = step.communicators.at({rank, group});
  std::vector<int32_t> ranks;
  for (const auto& [key, instance] : step.communicators) {
    if (key.second == group && instance == own) ranks.push_back(key.first);
  }
  return fmt::format("[{}]", fmt::join(ranks, ", "));
}

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_and_their_groups_come_back) {
  const FaultyStep step = tuner::testing::play_faulty({kPipeline, {}, 1, 0.03});
  const std::vector<ImportedTrace> traces = written_and_read(step.traces);
  BOOST_TEST_REQUIRE(traces.size() == step.traces.size());
  int64_t num_messages = 0;
  for (size_t i = 0; i < traces.size(); ++i) {
    const ImportedTrace& trace = traces[i];
    BOOST_TEST((trace.facts.rank == static_cast<int64_t>(i)));
    BOOST_TEST((trace.facts.world_size == static_cast<int64_t>(traces.size())));
    BOOST_TEST(trace.facts.format == "moetune");
    BOOST_TEST_REQUIRE(trace.steps.size() == 1U);
    BOOST_TEST(trace.steps[0].start_ns == step.traces[i].start_ns);
    for (const CommCall& comm : trace.comms) {
      const std::string& group = trace.names[comm.description];
      const auto rank = static_cast<int32_t>(i);
      if (step.communicators.contains({rank, group})) {
        BOOST_TEST(trace.names[comm.members] == members_of(step, rank, group));
      }
      const std::string& collective = trace.names[comm.collective];
      const bool is_message = collective == "send" || collective == "recv";
      num_messages += is_message ? 1 : 0;
      // Of pp 2 and dp 2, ranks 0 and 2 are one pipeline, 1 and 3 the other.
      if (is_message) BOOST_TEST(comm.peer == static_cast<int32_t>((i + 2) % 4));
    }
    for (const profiler::ImportedOp& op : trace.ops) BOOST_TEST(op.call != profiler::kNoRow);
  }
  BOOST_TEST(num_messages > 0);
  const auto matching = profiler::match_across_ranks(traces);
  BOOST_TEST(matching.num_ops > 0);
  BOOST_TEST(matching.num_unmatched == 0);
  BOOST_TEST(static_cast<int64_t>(2 * matching.messages.size()) == num_messages);
}

// Without noise, on modelled clocks, groups of one layout end at the same nanosecond.
BOOST_AUTO_TEST_CASE(groups_that_end_together_come_back_from_what_the_file_says) {
  for (const size_t layout : {kSymmetric, kSymmetricStages}) {
    const FaultyStep step = tuner::testing::play_faulty({layout, {}, 1, 0});
    const std::vector<ImportedTrace> traces = written_and_read(step.traces, step.communicators);
    BOOST_TEST_REQUIRE(traces.size() == step.traces.size());
    int64_t num_told = 0;
    for (size_t i = 0; i < traces.size(); ++i) {
      const auto rank = static_cast<int32_t>(i);
      for (const CommCall& comm : traces[i].comms) {
        const std::string& group = traces[i].names[comm.description];
        if (!step.communicators.contains({rank, group})) continue;
        ++num_told;
        BOOST_TEST(traces[i].names[comm.members] == members_of(step, rank, group));
      }
    }
    BOOST_TEST(num_told > 0);
    const auto matching = profiler::match_across_ranks(traces);
    BOOST_TEST(matching.num_ops > 0);
    BOOST_TEST(matching.num_unmatched == 0);
  }
}

BOOST_AUTO_TEST_CASE(what_records_say_beyond_their_times_is_read) {
  profiler::TraceBuilder builder(0, 5000, 3);
  builder.kernel("norm.forward", 0, 10, 20, 1020);
  builder.kernel("router.forward", 1, 20, 30, 2020);
  profiler::TraceRecord& last = builder.kernel("experts.forward", 2, 30, 2030, 3030, 1);
  last.thread = 4;
  last.grid = {640, 2, 1};
  last.block = {128, 1, 1};
  profiler::TraceRecord& message =
      builder.add(profiler::RecordKind::p2p, "send", 3, 40, 3030, 4030);
  message.group = "pipeline";
  message.sequence = 0;
  message.communicator = 0;
  message.peer = 5;
  StepTrace step = builder.trace();
  step.further_waits = {{2, 0}};
  const std::vector<ImportedTrace> traces = read_as_written({step});
  BOOST_TEST_REQUIRE(traces.size() == 1U);
  const ImportedTrace& trace = traces[0];
  BOOST_TEST_REQUIRE(trace.syncs.size() == 2U);
  BOOST_TEST(trace.syncs[0].stream == trace.syncs[1].stream);
  BOOST_TEST(trace.syncs[0].producer_stream != trace.syncs[1].producer_stream);
  BOOST_TEST(trace.threads.size() == 2U);
  BOOST_TEST_REQUIRE(trace.ops.size() == 4U);
  BOOST_TEST(trace.ops[0].detail == profiler::kNoRow);
  BOOST_TEST_REQUIRE(trace.ops[2].detail != profiler::kNoRow);
  const profiler::LaunchShape& shape = trace.shapes[trace.ops[2].detail];
  BOOST_TEST((shape.grid == std::array<uint32_t, 3>{640, 2, 1}));
  BOOST_TEST((shape.block == std::array<uint32_t, 3>{128, 1, 1}));
  BOOST_TEST_REQUIRE(trace.comms.size() == 1U);
  BOOST_TEST(trace.comms[0].peer == 5);
}

// Four ranks that end together are one group, or two of two: an older file does not tell.
BOOST_AUTO_TEST_CASE(groups_that_end_together_are_not_guessed) {
  std::vector<StepTrace> steps;
  profiler::CommunicatorKeys communicators;
  for (int32_t rank = 0; rank < 4; ++rank) {
    profiler::TraceBuilder step(0, 5000, rank);
    step.kernel("gemm.forward", 0, 10, 20, 1020);
    step.collective("tp", 3, 20, 1020, 3020, 2000, 0).sequence = 0;
    communicators[{rank, "tp"}] = rank - rank % 2;
    steps.push_back(step.trace());
  }
  for (const ImportedTrace& trace : written_and_read(steps)) {
    BOOST_TEST_REQUIRE(trace.comms.size() == 1U);
    BOOST_TEST(trace.comms[0].members == profiler::kNoRow);
    BOOST_TEST(trace.comms[0].group_size == -1);
  }
  for (const ImportedTrace& trace : written_and_read(steps, communicators)) {
    BOOST_TEST_REQUIRE(trace.comms.size() == 1U);
    BOOST_TEST(trace.names[trace.comms[0].members] ==
               (*trace.facts.rank < 2 ? "[0, 1]" : "[2, 3]"));
    BOOST_TEST(trace.comms[0].group_size == 2);
  }
  // Two groups have two ranks that come last.
  steps[1].records[1].start_ns = steps[2].records[1].start_ns = 520;
  steps[3].records[1].start_ns = 720;
  for (const ImportedTrace& trace : written_and_read(steps)) {
    BOOST_TEST_REQUIRE(trace.comms.size() == 1U);
    BOOST_TEST(trace.names[trace.comms[0].members] == "[0, 1, 2, 3]");
  }
}

// On the clocks of devices one coincidence says nothing of the other groups: those of two ranks,
// whose ends differ by a microsecond.
BOOST_AUTO_TEST_CASE(ends_that_are_equal_once_are_chance) {
  std::vector<StepTrace> steps;
  for (int32_t rank = 0; rank < 2; ++rank) {
    profiler::TraceBuilder step(0, 9'000'000, rank);
    step.collective("dp", 3, 0, 0, 1'000'000, 1'000'000).sequence = 0;
    for (int64_t i = 1; i < 8; ++i) {
      const int64_t end_ns = 1'000'000 * (i + 1) + 1'000 * rank;
      step.collective("tp", 3, end_ns - 500'000, end_ns - 500'000, end_ns, 500'000).sequence = i;
    }
    steps.push_back(step.trace());
  }
  for (const ImportedTrace& trace : written_and_read(steps)) {
    for (const CommCall& comm : trace.comms) BOOST_TEST(trace.names[comm.members] == "[0, 1]");
  }
}

// A message ends on both sides at once: what ends a second later is another one.
BOOST_AUTO_TEST_CASE(a_message_that_ends_far_from_any_other_has_no_known_rank) {
  std::vector<StepTrace> steps;
  for (int32_t rank = 0; rank < 2; ++rank) {
    profiler::TraceBuilder step(0, 3'000'000'000, rank);
    const int64_t start_ns = 1'000'000'000 * (rank + 1);
    auto& record =
        step.add(profiler::RecordKind::p2p, rank == 0 ? "pp_send.forward" : "pp_recv.forward", 3,
                 start_ns, start_ns, start_ns + 1'000);
    record.group = "pp";
    record.sequence = 0;
    record.transfer_ns = 1'000;
    steps.push_back(step.trace());
  }
  for (const ImportedTrace& trace : written_and_read(steps)) {
    BOOST_TEST_REQUIRE(trace.comms.size() == 1U);
    BOOST_TEST(trace.comms[0].peer == -1);
  }
}

struct OwnWallRow {
  Fault fault;
  double strength;
  Wall label;
};
// As in played_kineto_test: without the fault the step is at least a quarter shorter.
constexpr OwnWallRow kOwnWalls[] = {
    {Fault::slow_links, 740, Wall::communication},
    {Fault::launches, 535, Wall::host},
    {Fault::none, 1, Wall::compute},
};

BOOST_AUTO_TEST_CASE(own_steps_have_their_label) {
  for (const OwnWallRow& row : kOwnWalls) {
    tuner::testing::FaultyCase faulty{kExperts, {}, 3, 0.03};
    if (row.fault != Fault::none) faulty.faults = {{row.fault, row.strength}};
    const FaultyStep step = tuner::testing::play_faulty(faulty);
    const std::vector<ImportedTrace> traces = written_and_read(step.traces);
    const auto wall = profiler::classify_imported(traces, {}, step.facts.memory);
    BOOST_TEST((wall.label == row.label), wall.summary);
  }
}

// The table of windows tells it, too: no name of a kernel does.
BOOST_AUTO_TEST_CASE(communication_is_known_by_what_it_is) {
  profiler::TraceBuilder step(0, 5000);
  step.kernel("gemm.forward", 0, 10, 20, 1020);
  step.collective("dp_cp", 3, 20, 1020, 3020, 500, 0).sequence = 7;
  const std::vector<ImportedTrace> traces = written_and_read({step.trace()});
  BOOST_TEST_REQUIRE(traces.size() == 1U);
  BOOST_TEST(!traces[0].facts.world_size.has_value());
  const profiler::TraceWindows windows(traces[0]);
  const auto whole = windows.make(profiler::WindowKind::whole);
  BOOST_TEST_REQUIRE(whole.has_value());
  const auto budget = windows.measure(*whole).wide;
  BOOST_TEST(budget.comm_busy_ns == 2000);
  BOOST_TEST(budget.compute_busy_ns == 1000);
  BOOST_TEST(budget.num_comm == 1);
  BOOST_TEST(traces[0].syncs.size() == 1U);
}

BOOST_AUTO_TEST_CASE(times_that_no_trace_has_are_refused) {
  profiler::TraceBuilder step(0, 5000);
  step.kernel("gemm.forward", 0, 10, 20, 1020).launch_start_ns = profiler::kMostImportedNs + 1;
  BOOST_CHECK_EXCEPTION(written_and_read({step.trace()}), base::UsageError,
                        says("own.json", "rank 0", "which no trace's is"));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tests
