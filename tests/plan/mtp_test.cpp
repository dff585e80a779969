// Multi-token prediction: where it runs, what it holds and what it costs.
#include <boost/test/unit_test.hpp>
#include <set>

#include "tests/plan/planned_models.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(mtp_block)

namespace {

using testing::ModelSpec;

constexpr int64_t kLength = 128;

ModelSpec two_depths(bool repeats_layer = false) {
  ModelSpec model = testing::small_deepseek();
  model.mtp.depth = 2;
  model.mtp.repeats_layer = repeats_layer;
  return model;
}

/// Block and layer of the items of the first micro-batch, in one direction.
std::vector<std::pair<BlockKind, int32_t>> items_of(const StepProgram& program, bool is_backward) {
  std::vector<std::pair<BlockKind, int32_t>> items;
  for (const Item& item : program.items) {
    const Segment& segment = *program.segments[static_cast<size_t>(item.segment)];
    if (item.micro_batch != 0 || segment.is_backward != is_backward) continue;
    items.emplace_back(segment.block, item.layer);
  }
  return items;
}

BOOST_AUTO_TEST_CASE(depths_follow_the_last_layer_and_each_other) {
  const StepProgram program = compile(testing::trial_of(two_depths()), 0);
  using B = BlockKind;
  const auto forward = items_of(program, false);
  const std::vector<std::pair<B, int32_t>> expected = {
      {B::moe, 3}, {B::mtp, 4}, {B::mla, 4}, {B::moe, 4},      {B::mtp_head, 4},
      {B::mtp, 5}, {B::mla, 5}, {B::moe, 5}, {B::mtp_head, 5}, {B::head, -1}};
  BOOST_TEST_REQUIRE(forward.size() > expected.size());
  BOOST_TEST((std::vector(forward.end() - static_cast<std::ptrdiff_t>(expected.size()),
                          forward.end()) == expected));
  const auto backward = items_of(program, true);
  const std::vector<std::pair<B, int32_t>> back = {{B::moe, 5}, {B::mla, 5}, {B::mtp, 5},
                                                   {B::moe, 4}, {B::mla, 4}, {B::mtp, 4},
                                                   {B::moe, 3}, {B::mla, 3}};
  BOOST_TEST((std::vector(backward.begin(),
                          backward.begin() + static_cast<std::ptrdiff_t>(back.size())) == back));
}

// The stream's end is the input of what goes on from it, and is there until its gradient is taken.
BOOST_AUTO_TEST_CASE(each_depth_goes_on_from_the_end_before_it) {
  const StepProgram program = compile(testing::trial_of(two_depths()), 0);
  int32_t end = -1;
  int num_seen = 0;
  for (const Item& item : program.items) {
    const Segment& segment = *program.segments[static_cast<size_t>(item.segment)];
    if (item.micro_batch != 0 || segment.is_backward) continue;
    if (segment.block == BlockKind::mtp) {
      ++num_seen;
      BOOST_TEST(item.frame == end);
      BOOST_TEST(item.edge != end);
      BOOST_TEST(item.next != item.edge);
    }
    if (item.layer >= 0) end = item.edge;
  }
  BOOST_TEST(num_seen == 2);
  BOOST_TEST(program.num_frames == 4 + 1 + 2 * 2);
}

BOOST_AUTO_TEST_CASE(each_depth_predicts_one_token_further) {
  const StepProgram program = compile(testing::trial_of(two_depths()), 0);
  std::map<int32_t, std::set<std::pair<uint8_t, int64_t>>> read;  // by layer: table and column
  for_each(program, [&](const Item& item, const Segment& segment, const Instr& instr) {
    if (segment.block != BlockKind::mtp && segment.block != BlockKind::mtp_head) return;
    if (segment.is_backward || instr.verb != Verb::op) return;
    for (const Ref& ref : instr.refs) {
      if (ref.space == Space::table) read[item.layer].insert({ref.id, ref.col});
    }
  });
  const auto targets = static_cast<uint8_t>(Table::targets);
  const auto further = static_cast<uint8_t>(Table::mtp_targets);
  using Read = std::set<std::pair<uint8_t, int64_t>>;
  BOOST_TEST((read.at(4) == Read{{targets, 0}, {further, 0}}));
  BOOST_TEST((read.at(5) == Read{{further, 0}, {further, 1}}));
}

BOOST_AUTO_TEST_CASE(the_last_stage_holds_it) {
  for (const char* knobs :
       {R"({"pipeline_model_parallel_size": 2})",
        R"({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2})",
        R"({"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": "Ettt|tmmL"})"}) {
    const spec::TrialSpec trial = testing::trial_of(two_depths(), knobs);
    for (const int rank : {0, 1}) {
      const ParamPlan plan = make_param_plan(trial.model, trial.knobs, rank);
      std::set<std::string> names;
      int num_copies = 0;
      for (const ParamDesc& param : plan.params) {
        names.insert(param.name);
        num_copies += param.is_tied_copy ? 1 : 0;
      }
      const bool is_last = rank == 1;
      BOOST_TEST(names.contains("layers.4.mtp_proj") == is_last, knobs);
      BOOST_TEST(names.contains("layers.5.mla_q_up") == is_last, knobs);
      // The last stage looks tokens up, too.
      BOOST_TEST(names.contains("embedding"), knobs);
      BOOST_TEST(num_copies == (is_last ? 1 : 0), knobs);
      int num_reduced = 0;
      for_each(compile(trial, rank), [&](const Item&, const Segment&, const Instr& instr) {
        num_reduced += instr.op == Op::embedding_grad_reduce ? 1 : 0;
      });
      BOOST_TEST(num_reduced == 1, knobs);
    }
  }
  // On one stage there is one table.
  const ParamPlan alone = make_param_plan(two_depths(), {}, 0);
  BOOST_TEST(std::ranges::count_if(alone.params, [](const ParamDesc& param) {
               return param.kind == ParamKind::embedding;
             }) == 1);
}

BOOST_AUTO_TEST_CASE(another_stage_cannot_have_it) {
  spec::Knobs knobs;
  knobs.pipeline_model_parallel_size = 3;
  knobs.pipeline_model_parallel_layout = "Ett|ttm|L";
  BOOST_CHECK_THROW(split_layers(testing::small_deepseek(), knobs), base::Error);
}

BOOST_AUTO_TEST_CASE(repeated_layers_are_held_once_and_run_each_time) {
  const spec::TrialSpec apart = testing::trial_of(two_depths(false));
  const spec::TrialSpec repeated = testing::trial_of(two_depths(true));
  const auto num_parameters = [](const spec::TrialSpec& trial, int64_t layer) {
    int64_t count = 0;
    for (const ParamDesc& param : make_param_plan(trial.model, trial.knobs, 0).params) {
      count += param.layer == layer ? param.numel() : 0;
    }
    return count;
  };
  BOOST_TEST(num_parameters(apart, 5) == num_parameters(apart, 4));
  BOOST_TEST(num_parameters(repeated, 4) == num_parameters(apart, 4));
  BOOST_TEST(num_parameters(repeated, 5) == 0);
  BOOST_TEST(items_of(compile(repeated, 0), false).size() ==
             items_of(compile(apart, 0), false).size());
}

BOOST_AUTO_TEST_CASE(each_depth_costs_a_projection_a_layer_and_a_head) {
  const ModelSpec model = two_depths();
  const int64_t h = model.hidden_size;
  for (const char* knobs :
       {"{}", R"({"tensor_model_parallel_size": 2})", R"({"context_parallel_size": 2})"}) {
    const spec::TrialSpec trial = testing::trial_of(model, knobs);
    BOOST_TEST(testing::forward_flops(trial, BlockKind::mtp) == 2 * 2 * kLength * 2 * h * h);
    const int64_t head = testing::forward_flops(trial, BlockKind::head);
    BOOST_TEST(head == 2 * kLength * h * model.vocab_size);
    BOOST_TEST(testing::forward_flops(trial, BlockKind::mtp_head) == 2 * head);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan
