// What models may have beside what the engine runs: biases, sinks, gates, LayerNorm, learned
// positions, plain MLPs. Each is declared, used and counted.
#include <boost/test/unit_test.hpp>
#include <set>

#include "tests/plan/planned_models.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(model_options)

namespace {

using testing::ModelSpec;

constexpr int64_t kLength = 128;

/// Whether every instruction of an op and pass has that parameter, or its gradient, among its
/// operands; and there is one.
bool all_have(const ModelSpec& model, Op op, Pass pass, ParamKind kind, Space space) {
  int num_seen = 0;
  bool has_all = true;
  for_each(compile(testing::trial_of(model), 0),
           [&](const Item&, const Segment&, const Instr& instr) {
             if (instr.op != op || instr.pass != pass) return;
             ++num_seen;
             has_all = has_all && std::ranges::any_of(instr.refs, [&](const Ref& ref) {
                         return ref.space == space && ref.id == static_cast<uint8_t>(kind);
                       });
           });
  return has_all && num_seen > 0;
}

bool is_used(const ModelSpec& model, Op forward, Op backward, ParamKind kind) {
  return all_have(model, forward, Pass::forward, kind, Space::weight) &&
         all_have(model, backward, Pass::backward, kind, Space::grad);
}

BOOST_AUTO_TEST_CASE(gpt_oss_has_sinks_and_biases_of_experts) {
  const ModelSpec model = testing::small_gpt_oss();
  BOOST_TEST(is_used(model, Op::core_attn, Op::core_attn, ParamKind::attn_sinks));
  BOOST_TEST(is_used(model, Op::router_gemm, Op::router_bias, ParamKind::router_bias));
  BOOST_TEST(
      all_have(model, Op::expert_fc1, Pass::forward, ParamKind::expert_fc1_bias, Space::weight));
  BOOST_TEST(
      all_have(model, Op::expert_fc2, Pass::forward, ParamKind::expert_fc2_bias, Space::weight));
  std::set<uint8_t> grads;
  for_each(compile(testing::trial_of(model), 0),
           [&](const Item&, const Segment&, const Instr& instr) {
             if (instr.op == Op::expert_bias) grads.insert(instr.refs[1].id);
           });
  BOOST_TEST((grads == std::set{static_cast<uint8_t>(ParamKind::expert_fc1_bias),
                                static_cast<uint8_t>(ParamKind::expert_fc2_bias)}));
}

int64_t gpt_oss_parameters(const ModelSpec& m) {
  const int64_t h = m.hidden_size;
  const int64_t attention = (h + 1) * (m.q_size() + 2 * m.kv_size()) + (m.q_size() + 1) * h;
  const int64_t expert = (h + 1) * 2 * m.moe_ffn_size + (m.moe_ffn_size + 1) * h;
  return m.num_layers * (attention + m.num_heads + 2 * h + m.num_experts * (expert + h + 1)) + h +
         2 * m.vocab_size * h;
}

int64_t gpt_parameters(const ModelSpec& m) {
  const int64_t h = m.hidden_size;
  const int64_t attention = (h + 1) * 3 * h + (h + 1) * h;
  const int64_t mlp = (h + 1) * m.ffn_size + (m.ffn_size + 1) * h;
  return m.num_layers * (attention + mlp + 4 * h) + 2 * h + m.padded_vocab_size * h +
         m.max_position_embeddings * h;
}

BOOST_AUTO_TEST_CASE(ranks_hold_the_parameters_of_the_formula) {
  for (const char* knobs : {"{}", R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2})",
                            R"({"pipeline_model_parallel_size": 2, "context_parallel_size": 2})"}) {
    BOOST_TEST(testing::sum_of(testing::parameters_of(testing::small_gpt_oss(), knobs)) ==
                   gpt_oss_parameters(testing::small_gpt_oss()),
               knobs);
    BOOST_TEST(testing::sum_of(testing::parameters_of(testing::small_gpt(), knobs)) ==
                   gpt_parameters(testing::small_gpt()),
               knobs);
  }
  // A slice of an expert has a part of each of its biases.
  const char* const sliced = R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2,
      "expert_model_parallel_size": 2, "expert_tensor_parallel_size": 2})";
  BOOST_TEST(testing::sum_of(testing::parameters_of(testing::small_gpt_oss(), sliced)) ==
             gpt_oss_parameters(testing::small_gpt_oss()));
}

BOOST_AUTO_TEST_CASE(gpt_has_plain_mlps_and_norms_with_biases) {
  const ModelSpec model = testing::small_gpt();
  BOOST_TEST(is_used(model, Op::attn_norm, Op::attn_norm, ParamKind::attn_norm_bias));
  BOOST_TEST(is_used(model, Op::mlp_norm, Op::mlp_norm, ParamKind::mlp_norm_bias));
  BOOST_TEST(is_used(model, Op::final_norm, Op::final_norm, ParamKind::final_norm_bias));
  BOOST_TEST(
      is_used(model, Op::embed_positions, Op::embed_positions, ParamKind::position_embedding));
  const spec::TrialSpec trial = testing::trial_of(model);
  const int64_t h = model.hidden_size;
  BOOST_TEST(testing::forward_flops(trial, BlockKind::dense_mlp) ==
             4 * 2 * kLength * 2 * h * model.ffn_size);
  BOOST_TEST(testing::forward_flops(trial, BlockKind::head) ==
             2 * kLength * h * model.padded_vocab_size);
  int num_ropes = 0;
  for_each(compile(trial, 0), [&](const Item&, const Segment&, const Instr& instr) {
    num_ropes += instr.op == Op::rope ? 1 : 0;
  });
  BOOST_TEST(num_ropes == 0);
  // LayerNorm keeps a row's mean beside its deviation.
  const LayerDims dims = layer_dims(model, trial.knobs, kLength, 0);
  BOOST_TEST(buffer_row(Buf::attn_norm_rstd).cols(dims) == 2);
}

// The bias that balances experts is added to what they are chosen by, and no gradient changes it.
BOOST_AUTO_TEST_CASE(the_balancing_bias_is_state) {
  const ModelSpec model = testing::small_deepseek();
  BOOST_TEST(all_have(model, Op::router, Pass::forward, ParamKind::balance_bias, Space::weight));
  BOOST_TEST(!all_have(model, Op::router, Pass::backward, ParamKind::balance_bias, Space::grad));
  const ParamPlan plan = make_param_plan(model, {}, 0);
  int num_states = 0;
  for (const ParamDesc& param : plan.params) {
    BOOST_TEST(plan.has_gradient(param) == (param.kind != ParamKind::balance_bias), param.name);
    num_states += param.kind == ParamKind::balance_bias ? 1 : 0;
  }
  BOOST_TEST(num_states == 4);  // three layers with experts, and one behind them
}

// Gated shared experts are written by themselves and scaled onto the residual, also backward.
BOOST_AUTO_TEST_CASE(the_shared_experts_gate_scales_their_output) {
  for (const char* knobs : {"{}", R"({"tensor_model_parallel_size": 2})"}) {
    const spec::TrialSpec trial = testing::trial_of(testing::small_qwen3_next(), knobs);
    std::map<std::pair<Op, Pass>, int> count;
    for_each(compile(trial, 0), [&](const Item& item, const Segment&, const Instr& instr) {
      if (instr.verb == Verb::op && item.micro_batch == 0) ++count[{instr.op, instr.pass}];
    });
    constexpr int kNumMoe = 4;
    for (const Op op : {Op::shared_gate, Op::shared_scale}) {
      BOOST_TEST((count[{op, Pass::forward}] == kNumMoe), knobs);
      BOOST_TEST((count[{op, Pass::backward}] == kNumMoe), knobs);
    }
    BOOST_TEST((count[{Op::shared_gate, Pass::wgrad}] == kNumMoe), knobs);
  }
}

BOOST_AUTO_TEST_CASE(a_layer_of_nothing_is_refused) {
  ModelSpec model = testing::small_nemotron();
  model.layer_kinds[1].feed_forward = spec::FeedForward::none;
  BOOST_CHECK_THROW(compile(testing::trial_of(model), 0), base::Error);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan
