// Every change of a program that a device could see makes it differ from what was recorded: what
// recorded_program_test shows is worth as much as this.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <iterator>
#include <map>
#include <set>

#include "tests/engine/parity_fixture.h"
#include "tests/engine/program_changes.h"
#include "tests/engine/program_on_tape.h"
#include "tests/engine/recorded_layouts.h"
#include "tests/engine/recorded_run.h"
#include "tests/fakes/recording/ordering.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(recorded_changes)

namespace {

using testing::RecordedRun;

/// One program with its tape, which many programs are compared with.
class Judged {
 public:
  Judged(const spec::TrialSpec& trial, int rank)
      : trial_(trial), run_(testing::record_rank(trial, rank)) {}

  [[nodiscard]] const RecordedRun& run() const { return run_; }

  [[nodiscard]] std::vector<std::string> differences(const plan::StepProgram& program) const {
    return testing::follow(trial_, run_, program, 1).differences();
  }

  [[nodiscard]] bool is_true(const plan::StepProgram& program) const {
    return differences(program).empty();
  }

  void check_instructions() const {
    plan::StepProgram program = run_.program;
    std::set<int32_t> used;
    for (const auto* items : {&program.setup, &program.items}) {
      for (const plan::Item& item : *items) used.insert(item.segment);
    }
    for (const int32_t index : used) {
      std::shared_ptr<const plan::Segment>& place = program.segments[static_cast<size_t>(index)];
      const std::shared_ptr<const plan::Segment> original = place;
      for (size_t at = 0; at < original->code.size(); ++at) {
        if (is_of_padding(original->code[at])) continue;
        for (const testing::InstrChange& change : testing::instr_changes()) {
          const size_t num_operands = original->code[at].refs.size();
          for (size_t i = 0; i < (change.apply_to != nullptr ? num_operands : 1); ++i) {
            plan::Segment changed = *original;
            const bool is_changed = change.apply_to != nullptr ? change.apply_to(changed, at, i)
                                                               : change.apply(changed, at);
            if (!is_changed) continue;
            place = std::make_shared<const plan::Segment>(std::move(changed));
            ++num_changes_;
            if (is_true(program)) report(change.name, *original, at, i);
          }
        }
      }
      place = original;
    }
  }

  void check_items() const {
    for (size_t at = 0; at < run_.program.items.size(); ++at) {
      for (const testing::ItemChange& change : testing::item_changes()) {
        plan::StepProgram program = run_.program;
        if (!change.apply(program, at)) continue;
        ++num_changes_;
        if (!is_true(program)) continue;
        const plan::Item& item = run_.program.items[at];
        BOOST_ERROR("nobody sees "
                    << change.name << ": item " << at << ", "
                    << plan::name_of(
                           run_.program.segments[static_cast<size_t>(item.segment)]->block)
                    << " of layer " << item.layer << " and micro-batch " << item.micro_batch);
      }
    }
  }

  [[nodiscard]] int64_t num_changes() const { return num_changes_; }

 private:
  static void report(const char* change, const plan::Segment& segment, size_t at, size_t operand) {
    const plan::Instr& instr = segment.code[at];
    const char* label = instr.op == plan::Op::count ? "" : plan::op_label(instr.op, instr.pass);
    BOOST_ERROR("nobody sees " << change << ": instruction " << at << " of "
                               << plan::name_of(segment.block) << ", " << plan::name_of(instr.verb)
                               << " " << label << " of chunk " << instr.chunk << ", operand "
                               << operand);
  }

  /// A part of a bucket in which this rank updates nothing but what fills the bucket up: nobody
  /// ever looks there.
  [[nodiscard]] bool is_of_padding(const plan::Instr& instr) const {
    const bool is_alloc = instr.verb == plan::Verb::alloc;
    if (!is_alloc || instr.refs.front().space != plan::Space::bucket) return false;
    if (!trial_.knobs.use_distributed_optimizer) return false;
    const std::vector<plan::ShardPiece> pieces =
        plan::shard_pieces(run_.program.params, run_.program.layout, run_.program.rank);
    return std::none_of(pieces.begin(), pieces.end(), [&](const plan::ShardPiece& piece) {
      return run_.program.params.params[piece.param].bucket == instr.refs.front().row;
    });
  }

  spec::TrialSpec trial_;
  RecordedRun run_;
  mutable int64_t num_changes_ = 0;
};

BOOST_AUTO_TEST_CASE(every_change_is_seen) {
  struct Row {
    spec::ModelSpec model;
    const char* layout;
    spec::DType dtype;
    int64_t global_batch_size;
    int rank;
  };
  spec::ModelSpec tied = testing::tiny_model();
  tied.ties_embeddings = true;
  const Row kRows[] = {
      {testing::tiny_model(),
       R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "ep_chunks_forward": 2,
           "ep_chunks_backward": 3, "recompute": "norm,moe_act,experts"})",
       spec::DType::bf16, 4, 1},
      {testing::mixed_model(),
       R"({"context_parallel_size": 2, "pipeline_model_parallel_size": 2,
           "recompute": "core_attn", "linear_ce_chunk_tokens": 5})",
       spec::DType::f32, 2, 3},
      {tied,
       R"({"data_parallel_size": 2, "pipeline_model_parallel_size": 2, "recompute": "full",
           "expert_model_parallel_size": 2, "use_distributed_optimizer": false,
           "overlap_grad_reduce": true})",
       spec::DType::f32, 4, 0},
      {testing::mixed_model(),
       R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2, "micro_batch_size": 2,
           "expert_model_parallel_size": 2})",
       spec::DType::f32, 4, 1},
      {testing::tiny_model(),
       R"({"context_parallel_size": 2, "cp_comm_type": "p2p", "expert_tensor_parallel_size": 2,
           "recompute": "core_attn"})",
       spec::DType::bf16, 2, 1},
      {testing::with_layers(testing::mixed_model(), 4),
       R"({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2})",
       spec::DType::f32, 4, 1},
  };
  for (const Row& row : kRows) {
    spec::TrialSpec trial = testing::tiny_trial(row.model, testing::knobs_of(row.layout));
    trial.dtype = row.dtype;
    trial.training.global_batch_size = row.global_batch_size;
    const Judged judged(trial, row.rank);
    BOOST_TEST_CONTEXT(row.layout) {
      for (const std::string& text : judged.differences(judged.run().program)) BOOST_FAIL(text);
      judged.check_instructions();
      judged.check_items();
      BOOST_TEST_MESSAGE(judged.num_changes() << " changes of " << row.layout);
    }
  }
}

// The waits are not only those of the program, they are needed: without one of them two calls that
// touch the same memory have no order. Which streams wait for which is what the row says; uploads
// alone wait for nothing that the host has not waited for.
BOOST_AUTO_TEST_CASE(a_missing_wait_leaves_calls_without_order) {
  const spec::TrialSpec trial = testing::tiny_trial(
      testing::tiny_model(),
      testing::knobs_of(R"({"context_parallel_size": 2, "pipeline_model_parallel_size": 2,
                            "expert_model_parallel_size": 2, "ep_chunks_forward": 2})"));
  const RecordedRun run = testing::record_rank(trial, 0, 2);
  BOOST_TEST_REQUIRE(recording::unordered_pairs(run.tape).empty());
  using Pair = std::pair<int, int>;  // who waits for whom
  std::map<int64_t, int> recorded_on;
  std::set<Pair> all;
  std::set<Pair> needed;
  for (size_t i = 0; i < run.tape.size(); ++i) {
    const recording::Entry& entry = run.tape[i];
    if (entry.name == "record_event") recorded_on[entry.number("event").value()] = entry.stream;
    if (entry.name != "wait_event") continue;
    const Pair pair = {entry.stream, recorded_on.at(entry.number("event").value())};
    all.insert(pair);
    if (needed.contains(pair)) continue;
    recording::Tape without = run.tape;
    without.erase(without.begin() + static_cast<int64_t>(i));
    if (!recording::unordered_pairs(without, 1).empty()) needed.insert(pair);
  }
  std::set<Pair> unneeded;
  std::set_difference(all.begin(), all.end(), needed.begin(), needed.end(),
                      std::inserter(unneeded, unneeded.end()));
  using plan::Stream;
  const std::set<Pair> uploads = {
      {static_cast<int>(Stream::copy), static_cast<int>(Stream::compute)}};
  BOOST_TEST((unneeded == uploads));
  BOOST_TEST(needed.size() >= 11U);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
