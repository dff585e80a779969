// The program of every rank is what its device, its communicators and its memory were asked for,
// written down below the executor (tests/fakes/recording): which function with which operands at
// which place, on which stream, after which events, from how many rows; and it is enough, as no two
// calls touch the same memory without an order between them.
#include <boost/test/unit_test.hpp>
#include <set>

#include "tests/engine/program_on_tape.h"
#include "tests/engine/recorded_layouts.h"
#include "tests/engine/recorded_run.h"
#include "tests/fakes/recording/ordering.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(recorded_program)

namespace {

using testing::ProgramOnTape;
using testing::RecordedRun;

/// Where graphs are captured.
const char* const kGraphLayouts[] = {
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "ep_chunks_backward": 2,
        "cuda_graph_modules": "attn,moe_router,moe_preprocess", "recompute": "norm,experts"})",
    R"({"context_parallel_size": 2, "cuda_graph_modules": "attn,moe_router"})",
    R"({"pipeline_model_parallel_size": 2, "cuda_graph_modules": "attn,moe_preprocess",
        "recompute": "full"})",
    R"({"data_parallel_size": 2, "cuda_graph_modules": "full_iteration",
        "overlap_grad_reduce": true})"};

void check_ledger(const testing::Booked& booked, const profiler::MemoryLedger& ledger) {
  BOOST_TEST(booked.peak_bytes == ledger.peak_bytes());
  BOOST_TEST(booked.peak_by_group == ledger.peak_by_group(), boost::test_tools::per_element());
  BOOST_TEST(booked.in_use_bytes == ledger.in_use_bytes());
  BOOST_TEST(booked.num_allocations == ledger.num_allocations());
}

/// Without a mark of a graph the program is another one.
void check_scopes_are_seen(const spec::TrialSpec& trial, const RecordedRun& run) {
  plan::StepProgram program = run.program;
  std::set<int32_t> used;
  for (const plan::Item& item : program.items) used.insert(item.segment);
  int64_t num_marks = 0;
  for (const int32_t index : used) {
    std::shared_ptr<const plan::Segment>& place = program.segments[static_cast<size_t>(index)];
    const std::shared_ptr<const plan::Segment> original = place;
    for (size_t at = 0; at < original->code.size(); ++at) {
      const plan::Instr& instr = original->code[at];
      const auto what = static_cast<plan::Mark>(instr.what);
      const bool is_graph = what == plan::Mark::graph_open || what == plan::Mark::graph_close;
      if (instr.verb != plan::Verb::mark || !is_graph) continue;
      plan::Segment changed = *original;
      changed.code.erase(changed.code.begin() + static_cast<int64_t>(at));
      place = std::make_shared<const plan::Segment>(std::move(changed));
      ++num_marks;
      BOOST_TEST(!testing::follow(trial, run, program, 1).differences().empty());
    }
    place = original;
  }
  BOOST_TEST(num_marks > 0);
}

BOOST_AUTO_TEST_CASE(programs_are_what_was_asked_for) {
  testing::for_recorded_ranks([](const spec::TrialSpec& trial, int rank) {
    const RecordedRun run = testing::record_rank(trial, rank);
    const ProgramOnTape on_tape = testing::follow(trial, run, run.program);
    for (const std::string& text : on_tape.differences()) BOOST_ERROR(text);
    for (const std::string& text : recording::unordered_pairs(run.tape)) BOOST_ERROR(text);
    check_ledger(on_tape.booked(), *run.ledger);
  });
}

// Work that is captured is one launch between two cuts of its scope, and what a replay runs is what
// the program says in that step, too.
BOOST_AUTO_TEST_CASE(graphs_hold_what_the_program_says) {
  for (const spec::ModelSpec& model : testing::recorded_models()) {
    for (const char* layout : kGraphLayouts) {
      const spec::TrialSpec trial = testing::recorded_trial(model, {layout});
      for (int rank = 0; rank < plan::layout_of(trial.knobs).world_size(); ++rank) {
        BOOST_TEST_CONTEXT(layout << " rank " << rank) {
          const RecordedRun run = testing::record_rank(trial, rank, testing::kStepsUntilReplayed);
          const ProgramOnTape on_tape = testing::follow(trial, run, run.program);
          for (const std::string& text : on_tape.differences()) BOOST_ERROR(text);
          for (const std::string& text : recording::unordered_pairs(run.tape)) BOOST_ERROR(text);
          check_ledger(on_tape.booked(), *run.ledger);
          check_scopes_are_seen(trial, run);
        }
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
