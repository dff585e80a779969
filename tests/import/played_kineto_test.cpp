// Steps with known faults, written as PyTorch's profiler would, imported and judged. The whole
// table is label_bench's.
#include "tests/import/played_kineto.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "profiler/analysis/imported_replay.h"
#include "profiler/analysis/imported_steps.h"
#include "profiler/analysis/imported_wall.h"
#include "tests/profiler/temp_folder.h"
#include "tests/tuner/faulty_steps.h"

namespace moetune::tests {
BOOST_AUTO_TEST_SUITE(played_kineto_test)

namespace {

using profiler::ImportedTrace;
using profiler::ImportedWall;
using profiler::RecordKind;
using profiler::Wall;
using tuner::testing::Fault;
using tuner::testing::FaultyStep;

constexpr size_t kExperts = 1;     // dp4 ep4
constexpr size_t kOverlapped = 4;  // dp8, all waits at the end of a step
constexpr size_t kPipeline = 8;    // pp2 dp2 ep2

struct Judged {
  FaultyStep step;
  ImportedWall wall;
};

Judged judged(size_t layout, Fault fault, double strength) {
  tuner::testing::FaultyCase faulty{layout, {}, 3, 0.03};
  if (fault != Fault::none) faulty.faults = {{fault, strength}};
  const TempFolder folder;
  FaultyStep step = tuner::testing::play_faulty(faulty);
  const std::vector<ImportedTrace> traces =
      through_kineto(step.traces, step.communicators, folder.file(""));
  const profiler::MemoryFacts memory = step.facts.memory;
  return {std::move(step), profiler::classify_imported(traces, {}, memory)};
}

size_t count_of(const FaultyStep& step, RecordKind kind) {
  size_t count = 0;
  for (const profiler::StepTrace& rank : step.traces) {
    count +=
        static_cast<size_t>(std::ranges::count(rank.records, kind, &profiler::TraceRecord::kind));
  }
  return count;
}

}  // namespace

BOOST_AUTO_TEST_CASE(files_hold_what_was_played) {
  const FaultyStep step = tuner::testing::play_faulty({kPipeline, {}, 1, 0.03});
  const TempFolder folder;
  const auto written = as_recorded(step.traces, step.communicators);
  auto traces = through_kineto(step.traces, step.communicators, folder.file(""));
  BOOST_TEST_REQUIRE(traces.size() == step.traces.size());
  for (size_t rank = 0; rank < traces.size(); ++rank) {
    const ImportedTrace& a = written[rank];
    const ImportedTrace& b = traces[rank];
    BOOST_TEST_REQUIRE(a.ops.size() == b.ops.size());
    BOOST_TEST(a.calls.size() == b.calls.size());
    BOOST_TEST(a.syncs.size() == b.syncs.size());
    BOOST_TEST(!b.syncs.empty());
    BOOST_TEST((b.facts.rank == static_cast<int64_t>(rank)));
    BOOST_TEST_REQUIRE(b.steps.size() == 1U);
    BOOST_TEST(b.steps[0].number == 3);
    BOOST_TEST(b.steps[0].start_ns == step.traces[rank].start_ns);
    int num_different = 0;
    for (size_t i = 0; i < a.ops.size(); ++i) {
      const bool is_same = a.ops[i].start_ns == b.ops[i].start_ns &&
                           a.ops[i].end_ns == b.ops[i].end_ns &&
                           b.ops[i].call != profiler::kNoRow &&
                           a.launch_of(a.ops[i])->start_ns == b.launch_of(b.ops[i])->start_ns;
      num_different += is_same ? 0 : 1;
    }
    BOOST_TEST(num_different == 0);
  }
  const auto matching = profiler::match_across_ranks(traces);
  BOOST_TEST(matching.num_ops > 0);
  BOOST_TEST(matching.num_unmatched == 0);
  BOOST_TEST(matching.residual_ns == 0);
  BOOST_TEST(2 * matching.messages.size() == count_of(step, RecordKind::p2p));
  const auto replay = profiler::replay_imported(traces, matching);
  BOOST_TEST_REQUIRE(replay.has_value());
  BOOST_TEST(replay->num_steps == 1);
  BOOST_TEST(replay->error_ratio < 0.05);
  // Events for waits are read, and calls alone tell most of them.
  const double stated = replay->verdict.inferred_ratio;
  forget_waits(traces);
  const auto without = profiler::replay_imported(traces, matching);
  BOOST_TEST_REQUIRE(without.has_value());
  BOOST_TEST(without->verdict.inferred_ratio > stated);
}

// Of pp 2 and dp 2, ranks 0 and 2 are one pipeline, 1 and 3 the other.
BOOST_AUTO_TEST_CASE(each_pipeline_is_one) {
  const FaultyStep step = tuner::testing::play_faulty({kPipeline, {}, 1, 0.03});
  const auto traces = as_recorded(step.traces, step.communicators);
  const auto matching = profiler::match_across_ranks(traces);
  const profiler::ImportedSteps steps(traces, matching);
  const auto pipeline_of = [&](int32_t rank) {
    return steps.communicators().at({rank, "pipeline"});
  };
  BOOST_TEST(pipeline_of(0) == pipeline_of(2));
  BOOST_TEST(pipeline_of(1) == pipeline_of(3));
  BOOST_TEST(pipeline_of(0) != pipeline_of(1));
}

// The messages of a stage whose neighbours' traces are missing say nothing about links.
BOOST_AUTO_TEST_CASE(a_missing_stage_is_no_slow_link) {
  constexpr size_t kStages = 7;  // pp4
  const FaultyStep step = tuner::testing::play_faulty({kStages, {}, 1, 0.03});
  auto traces = as_recorded(step.traces, step.communicators);
  traces.erase(traces.begin() + 2);
  const ImportedWall wall = profiler::classify_imported(traces);
  BOOST_TEST((wall.label != Wall::communication), wall.summary);
  BOOST_TEST(wall.sub_ceilings[static_cast<size_t>(profiler::SubCause::one_link)] == 0);
}

// Gaps before work whose launch is lost are the host's doing or not: by the rest it would be
// compute.
BOOST_AUTO_TEST_CASE(where_lost_launches_may_be_the_wall_there_is_no_verdict) {
  const double strength = tuner::testing::strength_for(kExperts, Fault::syncs, 0.15).value();
  const FaultyStep step =
      tuner::testing::play_faulty({kExperts, {{Fault::syncs, strength}}, 1, 0.03});
  auto traces = as_recorded(step.traces, step.communicators);
  BOOST_TEST((profiler::classify_imported(traces).label == Wall::host));
  forget_launches(traces, 30);
  const ImportedWall wall = profiler::classify_imported(traces);
  BOOST_TEST((wall.label == Wall::unknown), wall.summary);
  BOOST_TEST(wall.summary.find("compute is the wall, but host would be it") != std::string::npos,
             wall.summary);
  BOOST_TEST(wall.unknown_ratio > 0.05);
  const auto advice = std::ranges::find(wall.evidence, "to_record", &profiler::Evidence::name);
  BOOST_TEST_REQUIRE((advice != wall.evidence.end()));
  BOOST_TEST(advice->text.find("every record of the steps") != std::string::npos, advice->text);
}

BOOST_AUTO_TEST_CASE(nothing_is_compute) {
  const Judged nothing = judged(kExperts, Fault::none, 1);
  BOOST_TEST((nothing.wall.label == Wall::compute), nothing.wall.summary);
}

/// `strength` is such that without the fault the step is a quarter shorter, or two fifths.
struct FaultWallRow {
  size_t layout;
  Fault fault;
  double strength;
  Wall label;
  const char* sub_cause;
  bool is_of_rank;
};
constexpr FaultWallRow kFaultWalls[] = {
    {kExperts, Fault::slow_links, 740, Wall::communication, "transfer", false},
    {kExperts, Fault::launches, 535, Wall::host, "launch", false},
    {kExperts, Fault::syncs, 1350, Wall::host, "sync", false},
    {kOverlapped, Fault::loader, 6.86, Wall::host, "loader", true},
    {kExperts, Fault::slow_rank, 1.34, Wall::imbalance, "rank", true},
    {kExperts, Fault::uneven_experts, 1.55, Wall::imbalance, "experts", false},
    {kPipeline, Fault::uneven_experts, 1.55, Wall::imbalance, "experts", false},
    {kPipeline, Fault::offload, 4.38, Wall::memory, "offload", false},
    {kPipeline, Fault::capped_memory, 1, Wall::memory, "recompute", false},
};

BOOST_AUTO_TEST_CASE(faults_have_their_walls) {
  for (const FaultWallRow& row : kFaultWalls) {
    const Judged one = judged(row.layout, row.fault, row.strength);
    BOOST_TEST_CONTEXT(tuner::testing::row_of(row.fault).name << ": " << one.wall.summary) {
      BOOST_TEST((one.wall.label == row.label));
      BOOST_TEST(one.wall.sub_cause == row.sub_cause);
      BOOST_TEST((!row.is_of_rank || one.wall.rank == one.step.faulty_rank));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tests
