// What the engine runs is what the program says: the trace of a real step has the program's
// operations in its order, and the program played with the same durations has its times.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "engine/plan/compile.h"
#include "engine/plan/player.h"
#include "tests/engine/parity_fixture.h"
#include "tests/engine/recorded_routes.h"

namespace moetune::engine {
namespace {

const char* const kMoreLayouts[] = {
    "{}",
    R"({"recompute": "full"})",
    R"({"recompute": "norm,core_attn,moe_act,experts"})",
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "ep_chunks_forward": 2,
        "ep_chunks_backward": 3, "recompute": "full"})",
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "ep_chunks_backward": 2,
        "cuda_graph_modules": "attn,moe_router,moe_preprocess", "recompute": "norm,experts"})",
    R"({"context_parallel_size": 2, "cuda_graph_modules": "attn,moe_router"})",
    R"({"data_parallel_size": 2, "cuda_graph_modules": "full_iteration",
        "overlap_grad_reduce": true})"};

std::vector<std::string> layouts() {
  std::vector<std::string> all(std::begin(kMoreLayouts), std::end(kMoreLayouts));
  all.insert(all.end(), std::begin(testing::kLayouts), std::end(testing::kLayouts));
  return all;
}

/// The record of each launch of a rank's program, by position.
std::map<std::pair<size_t, size_t>, const profiler::TraceRecord*> launches(
    const plan::StepProgram& program, const profiler::StepTrace& trace) {
  std::map<std::pair<size_t, size_t>, const profiler::TraceRecord*> found;
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

BOOST_AUTO_TEST_SUITE(program)

BOOST_AUTO_TEST_CASE(trace_follows_the_program) {
  for (const spec::ModelSpec& model : {testing::tiny_model(), testing::mixed_model()}) {
    for (const std::string& layout : layouts()) {
      const spec::TrialSpec trial = testing::tiny_trial(model, testing::knobs_of(layout));
      const testing::TrainingRun run = testing::train(trial, 1);
      for (size_t rank = 0; rank < run.traces.size(); ++rank) {
        const plan::StepProgram program = plan::compile(trial, static_cast<int>(rank));
        const auto& records = run.traces[rank].records;
        size_t at = 0;
        BOOST_TEST_CONTEXT(layout << " rank " << rank) {
          for (const plan::Item& item : program.items) {
            for (const plan::Instr& instr :
                 program.segments[static_cast<size_t>(item.segment)]->code) {
              if (instr.op == plan::Op::count || instr.device_only) continue;
              BOOST_TEST_REQUIRE(at < records.size());
              BOOST_TEST_REQUIRE(records[at].name == plan::op_label(instr.op, instr.pass));
              BOOST_TEST_REQUIRE(records[at].layer == item.layer);
              BOOST_TEST_REQUIRE(records[at].micro_batch == item.micro_batch);
              ++at;
            }
          }
          BOOST_TEST(at == records.size());
        }
      }
    }
  }
}

// With the durations that the engine has recorded, and the rows that the router has sent.
BOOST_AUTO_TEST_CASE(played_programs_have_the_times_of_the_engine) {
  for (const char* clock : {"virtual_modelled", "virtual_measured"}) {
    for (const spec::ModelSpec& model : {testing::tiny_model(), testing::mixed_model()}) {
      for (const std::string& layout : layouts()) {
        spec::TrialSpec trial = testing::tiny_trial(model, testing::knobs_of(layout));
        trial.clock = clock;
        testing::RecordedRoutes routes;
        TrainerHooks hooks;
        hooks.observers.route = &routes;
        const testing::TrainingRun run = testing::train(trial, 1, hooks);
        std::vector<plan::StepProgram> programs;
        for (size_t rank = 0; rank < run.traces.size(); ++rank) {
          programs.push_back(plan::compile(trial, static_cast<int>(rank)));
        }
        std::vector<plan::PlayedRank> ranks;
        std::vector<std::map<std::pair<size_t, size_t>, const profiler::TraceRecord*>> recorded;
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
        BOOST_TEST_CONTEXT(clock << " " << layout) {
          BOOST_TEST(played.step_ns == run.steps.front().step_ns);
          for (size_t rank = 0; rank < run.traces.size(); ++rank) {
            const auto& expected = run.traces[rank].records;
            const auto& found = played.traces[rank].records;
            BOOST_TEST_REQUIRE(found.size() == expected.size());
            for (size_t i = 0; i < found.size(); ++i) {
              BOOST_TEST_CONTEXT("rank " << rank << ", " << i << ": " << expected[i].name) {
                BOOST_TEST_REQUIRE(found[i].name == expected[i].name);
                BOOST_TEST_REQUIRE(found[i].start_ns == expected[i].start_ns);
                BOOST_TEST_REQUIRE(found[i].end_ns == expected[i].end_ns);
                BOOST_TEST_REQUIRE(found[i].launch_end_ns == expected[i].launch_end_ns);
                BOOST_TEST_REQUIRE(found[i].transfer_ns == expected[i].transfer_ns);
                BOOST_TEST_REQUIRE(found[i].producer_id == expected[i].producer_id);
                BOOST_TEST_REQUIRE(found[i].flops == expected[i].flops);
                BOOST_TEST_REQUIRE(found[i].bytes == expected[i].bytes);
              }
            }
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::engine
