// What the engine runs is what the program says: the trace of a real step has the program's
// operations in its order, and the program played with the same durations has its times.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "tests/engine/played_fixture.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(program)

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

/// Communicators have the number of their first rank, messages the rank of the other side.
void check_partners(const profiler::TraceRecord& record, const plan::StepProgram& program,
                    const plan::Instr& instr) {
  const bool is_message = instr.verb == plan::Verb::send || instr.verb == plan::Verb::recv;
  const bool communicates = is_message || instr.verb == plan::Verb::comm;
  const std::vector<int> ranks = program.layout.group_ranks(instr.group, program.rank);
  BOOST_TEST_REQUIRE(record.communicator == (communicates ? ranks.front() : -1));
  BOOST_TEST_REQUIRE(record.peer == (is_message ? ranks.at(static_cast<size_t>(instr.peer)) : -1));
  BOOST_TEST_REQUIRE(record.thread == 0);
  BOOST_TEST_REQUIRE((record.device >= 0) == (record.stream != profiler::kHostStream));
}

BOOST_AUTO_TEST_CASE(trace_follows_the_program) {
  for (const spec::ModelSpec& model : {testing::tiny_model(), testing::mixed_model()}) {
    for (const std::string& layout : layouts()) {
      const spec::TrialSpec trial = testing::tiny_trial(model, testing::knobs_of(layout));
      const testing::TrainingRun run = testing::train(trial, 1);
      BOOST_TEST_REQUIRE(run.traces.size() == static_cast<size_t>(trial.knobs.world_size()));
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
              check_partners(records[at], program, instr);
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
  for (const auto clock : {spec::ClockMode::virtual_modelled, spec::ClockMode::virtual_measured}) {
    for (const spec::ModelSpec& model : {testing::tiny_model(), testing::mixed_model()}) {
      for (const std::string& layout : layouts()) {
        spec::TrialSpec trial = testing::tiny_trial(model, testing::knobs_of(layout));
        trial.clock = clock;
        BOOST_TEST_CONTEXT(spec::name_of(clock) << " " << layout) { testing::check_played(trial); }
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
