// What the engine runs is what the op list says: the trace of a real step and the planned program
// have the same ops in the same order, so predictions and measurements can be joined by op.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "engine/spec/schedule.h"
#include "tests/engine/training_fixture.h"

namespace moetune::engine {
namespace {

using Labels = std::vector<std::pair<std::string, int64_t>>;

void append(Labels& labels, const std::vector<spec::OpInstance>& ops) {
  for (const spec::OpInstance& op : ops) {
    labels.emplace_back(spec::op_label(op.op, op.pass), op.layer);
  }
}

void check_program(const spec::ModelSpec& model, const std::string& knobs) {
  const spec::TrialSpec trial =
      testing::tiny_trial(model, spec::knobs_from_json(nlohmann::json::parse(knobs), "test"));
  const testing::TrainingRun run = testing::train(trial, 1);
  const spec::Layout layout = spec::layout_of(trial.knobs);
  const int64_t m = spec::num_micro_batches(layout, trial.knobs, trial.training.global_batch_size);
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const spec::StageProgram program =
        spec::op_list(trial.model, trial.training, trial.knobs, rank);
    Labels expected;
    append(expected, {program.update.front()});  // zero_grads
    for (const auto& step : spec::one_f_one_b(layout.pp, layout.pp_rank(rank), m)) {
      append(expected, step.is_forward ? program.forward : program.backward);
    }
    append(expected, {program.update.begin() + 1, program.update.end()});
    Labels actual;
    for (const auto& record : run.traces[static_cast<size_t>(rank)].records) {
      actual.emplace_back(record.name, record.layer);
    }
    BOOST_TEST_CONTEXT(knobs << " rank " << rank) {
      for (size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
        BOOST_TEST_CONTEXT("op " << i) {
          BOOST_REQUIRE_EQUAL(actual[i].first, expected[i].first);
          BOOST_REQUIRE_EQUAL(actual[i].second, expected[i].second);
        }
      }
      BOOST_TEST(actual.size() == expected.size());
    }
  }
}

BOOST_AUTO_TEST_SUITE(program)

BOOST_AUTO_TEST_CASE(trace_follows_the_op_list) {
  const char* const kKnobs[] = {
      "{}",
      R"({"recompute": "full"})",
      R"({"recompute": "norm,core_attn,moe_act,experts", "data_parallel_size": 2})",
      R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "ep_chunks_forward": 2,
          "ep_chunks_backward": 3})",
      R"({"context_parallel_size": 2, "recompute": "core_attn"})",
      R"({"pipeline_model_parallel_size": 3, "use_distributed_optimizer": false})",
      R"({"data_parallel_size": 2, "context_parallel_size": 2, "expert_model_parallel_size": 4,
          "pipeline_model_parallel_size": 2, "recompute": "full"})",
  };
  spec::ModelSpec mixed = testing::tiny_model();
  mixed.is_moe_layer = {true, false, true};
  mixed.shared_ffn_size = 8;
  mixed.has_attention_bias = true;
  mixed.has_attention_output_bias = true;
  mixed.has_mlp_bias = true;
  mixed.ties_embeddings = true;
  for (const char* knobs : kKnobs) {
    check_program(testing::tiny_model(), knobs);
    check_program(mixed, knobs);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::engine
