// A step of the engine beside its program, played with the durations and routes that the engine has
// recorded.
#pragma once

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/plan/compile.h"
#include "engine/plan/player.h"
#include "tests/engine/parity_fixture.h"
#include "tests/engine/recorded_routes.h"

namespace moetune::engine::testing {

/// The record of each launch of a rank's program, by position.
using Launches = std::map<std::pair<size_t, size_t>, const profiler::TraceRecord*>;
inline Launches launches(const plan::StepProgram& program, const profiler::StepTrace& trace) {
  Launches found;
  size_t next = 0;
  for (size_t item = 0; item < program.items.size(); ++item) {
    const plan::Segment& segment =
        *program.segments[static_cast<size_t>(program.items[item].segment)];
    for (size_t i = 0; i < segment.code.size(); ++i) {
      const plan::Instr& instr = segment.code[i];
      if (instr.op == plan::Op::count || instr.device_only) continue;
      BOOST_TEST_REQUIRE(next < trace.records.size());
      found[{item, i}] = &trace.records[next++];
    }
  }
  return found;
}

/// The program has every record's times, all of its producers, its partners and costs.
inline void check_played(const spec::TrialSpec& trial) {
  RecordedRoutes routes;
  TrainerHooks hooks;
  hooks.observers.route = &routes;
  const TrainingRun run = train(trial, 1, hooks);
  BOOST_TEST_REQUIRE(run.traces.size() == static_cast<size_t>(trial.knobs.world_size()));
  std::vector<plan::StepProgram> programs;
  for (size_t rank = 0; rank < run.traces.size(); ++rank) {
    programs.push_back(plan::compile(trial, static_cast<int>(rank)));
    plan::check(programs.back());
  }
  std::vector<plan::PlayedRank> ranks;
  std::vector<Launches> recorded;
  for (const plan::StepProgram& program : programs) {
    ranks.push_back({&program, routes.of(program.rank)});
    recorded.push_back(launches(program, run.traces[static_cast<size_t>(program.rank)]));
  }
  plan::PlayOptions options;
  options.level = profiler::TraceLevel::ops;
  const plan::PlayResult played = plan::play(
      trial.hardware, ranks,
      [&](const plan::Position& at, const plan::Instr&, const plan::OpCost&) {
        const auto* record = recorded[static_cast<size_t>(at.rank)].at({at.item, at.instr});
        return record->end_ns - record->start_ns;
      },
      options);
  BOOST_TEST(played.step_ns == run.steps.front().step_ns);
  for (size_t rank = 0; rank < run.traces.size(); ++rank) {
    const auto& expected = run.traces[rank].records;
    const auto& found = played.traces[rank].records;
    BOOST_TEST((played.traces[rank].further_waits == run.traces[rank].further_waits));
    BOOST_TEST_REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      BOOST_TEST_CONTEXT("rank " << rank << ", " << i << ": " << expected[i].name) {
        BOOST_TEST_REQUIRE(found[i].name == expected[i].name);
        BOOST_TEST_REQUIRE(found[i].start_ns == expected[i].start_ns);
        BOOST_TEST_REQUIRE(found[i].end_ns == expected[i].end_ns);
        BOOST_TEST_REQUIRE(found[i].launch_end_ns == expected[i].launch_end_ns);
        BOOST_TEST_REQUIRE(found[i].transfer_ns == expected[i].transfer_ns);
        BOOST_TEST_REQUIRE(found[i].producer_id == expected[i].producer_id);
        BOOST_TEST_REQUIRE(found[i].device == expected[i].device);
        BOOST_TEST_REQUIRE(found[i].communicator == expected[i].communicator);
        BOOST_TEST_REQUIRE(found[i].peer == expected[i].peer);
        BOOST_TEST_REQUIRE(found[i].flops == expected[i].flops);
        BOOST_TEST_REQUIRE(found[i].bytes == expected[i].bytes);
      }
    }
  }
}

}  // namespace moetune::engine::testing
