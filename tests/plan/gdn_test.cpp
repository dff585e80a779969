// Gated DeltaNet: its work and its parameters are those of the formulas.
#include <boost/test/unit_test.hpp>

#include "tests/plan/planned_models.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(gdn_block)

namespace {

using testing::ModelSpec;

constexpr int64_t kLength = 128;

/// Multiply-adds a token and layer, models-and-formulas.md, section 2.
int64_t work(const ModelSpec& m) {
  const int64_t h = m.hidden_size;
  const int64_t qk = m.gdn.key_size();
  const int64_t v = m.gdn.value_size();
  const int64_t heads = m.gdn.num_value_heads;
  return h * (2 * qk + 2 * v + 2 * heads) + m.gdn.conv_kernel * (2 * qk + v) +
         4 * heads * m.gdn.value_head_dim * m.gdn.value_head_dim + h * v;
}

int64_t num_layers_with(const ModelSpec& model, spec::Mixer mixer) {
  int64_t count = 0;
  for (int64_t i = 0; i < num_layers_with_mtp(model); ++i) {
    count += kind_of_layer(model, i).mixer == mixer ? 1 : 0;
  }
  return count;
}

BOOST_AUTO_TEST_CASE(forward_work_is_that_of_the_formula) {
  const ModelSpec model = testing::small_qwen3_next();
  const int64_t expected = 2 * kLength * num_layers_with(model, spec::Mixer::gdn) * work(model);
  for (const char* knobs :
       {"{}", R"({"tensor_model_parallel_size": 2})", R"({"context_parallel_size": 2})",
        R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2})",
        R"({"pipeline_model_parallel_size": 2})"}) {
    BOOST_TEST(testing::forward_flops(testing::trial_of(model, knobs), BlockKind::gdn) == expected,
               knobs);
  }
}

// By the same formula, which agrees with published rows where there are any, Qwen3.5-35B-A3B's text
// part takes 22.42 GFLOPs a trained token at 4096 tokens, 18.94 without multi-token prediction. The
// formula takes the layer of that for one more of the pattern, which is no full attention.
BOOST_AUTO_TEST_CASE(qwen35_trains_with_the_known_work) {
  ModelSpec model = testing::qwen35();
  model.mtp.layers = {{spec::Mixer::gdn, spec::FeedForward::moe}};
  BOOST_TEST(testing::trained_gflops(model, 4096) == 22.42, boost::test_tools::tolerance(1e-3));
  model.mtp = {};
  BOOST_TEST(testing::trained_gflops(model, 4096) == 18.94, boost::test_tools::tolerance(1e-3));
}

int64_t mixer_parameters(const ModelSpec& m, spec::Mixer mixer) {
  const int64_t h = m.hidden_size;
  if (mixer == spec::Mixer::gqa) {
    const int64_t gated = m.has_attention_gate ? 2 : 1;
    return h * (gated * m.q_size() + 2 * m.kv_size()) + m.q_size() * h + 2 * m.head_dim;
  }
  const int64_t qk = m.gdn.key_size();
  const int64_t v = m.gdn.value_size();
  const int64_t heads = m.gdn.num_value_heads;
  return h * (2 * qk + 2 * v + 2 * heads) + m.gdn.conv_kernel * (2 * qk + v) + 2 * heads +
         m.gdn.value_head_dim + h * v;
}

int64_t layer_parameters(const ModelSpec& m, const spec::LayerKind& kind) {
  const int64_t h = m.hidden_size;
  const int64_t experts = m.num_experts * (3 * h * m.moe_ffn_size + h) + 3 * h * m.shared_ffn_size +
                          h;  // and the shared experts' gate
  const bool is_moe = kind.feed_forward == spec::FeedForward::moe;
  return mixer_parameters(m, kind.mixer) + 2 * h + (is_moe ? experts : 3 * h * m.ffn_size);
}

int64_t parameters(const ModelSpec& m) {
  const int64_t h = m.hidden_size;
  int64_t sum = 2 * m.vocab_size * h + h;
  for (const spec::LayerKind& kind : m.layer_kinds) sum += layer_parameters(m, kind);
  for (const spec::LayerKind& kind : m.mtp.layers) {
    sum += m.mtp.depth * (3 * h + 2 * h * h + layer_parameters(m, kind));
  }
  return sum;
}

BOOST_AUTO_TEST_CASE(ranks_hold_the_parameters_of_the_formula) {
  for (const char* knobs : {"{}", R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2,
                  "expert_model_parallel_size": 4, "pipeline_model_parallel_size": 2})",
                            R"({"context_parallel_size": 2, "expert_tensor_parallel_size": 2})"}) {
    const ModelSpec model = testing::small_qwen3_next();
    BOOST_TEST(testing::sum_of(testing::parameters_of(model, knobs)) == parameters(model), knobs);
  }
  const ModelSpec full = testing::qwen3_next();
  const auto held =
      testing::parameters_of(full, R"({"tensor_model_parallel_size": 2, "data_parallel_size": 4,
                "expert_model_parallel_size": 8, "pipeline_model_parallel_size": 2})");
  BOOST_TEST(testing::sum_of(held) == parameters(full));
  ModelSpec without = full;
  without.mtp = {};
  BOOST_TEST(static_cast<double>(parameters(without)) / 1e9 == 79.67,
             boost::test_tools::tolerance(1e-4));
}

// The scan sees the whole sequence of a share of the heads, so that two exchanges are made in each
// direction, and nothing else of context parallelism.
BOOST_AUTO_TEST_CASE(context_parallel_ranks_exchange_sequences_for_heads) {
  const ModelSpec model = testing::small_qwen3_next();
  const spec::TrialSpec trial = testing::trial_of(model, R"({"context_parallel_size": 2})");
  const StepProgram program = compile(trial, 0);
  const int64_t proj =
      2 * model.gdn.key_size() + 2 * model.gdn.value_size() + 2 * model.gdn.num_value_heads;
  std::map<bool, std::multiset<int64_t>> exchanged;
  for_each(program, [&](const Item& item, const Segment& segment, const Instr& instr) {
    if (item.layer != 0 || item.micro_batch != 0 || segment.block != BlockKind::gdn) return;
    if (instr.verb == Verb::op && instr.op == Op::gdn_scan) {
      BOOST_TEST(instr.refs.front().num_cols == (segment.is_backward ? 0 : 64 / 2));
    }
    if (instr.verb != Verb::comm) return;
    BOOST_TEST((instr.op == Op::head_exchange));
    BOOST_TEST((instr.kind == spec::CollectiveKind::all_to_all));
    exchanged[segment.is_backward].insert(instr.cost.bytes / (2 * kLength / 2));
  });
  const std::multiset<int64_t> expected = {proj, model.gdn.value_size()};
  BOOST_TEST((exchanged[false] == expected));
  BOOST_TEST((exchanged[true] == expected));
}

BOOST_AUTO_TEST_CASE(the_output_gate_lies_behind_the_values) {
  const ModelSpec model = testing::small_qwen3_next();
  const spec::TrialSpec trial = testing::trial_of(model, R"({"tensor_model_parallel_size": 2})");
  const StepProgram program = compile(trial, 1);
  // Of 4 heads with 8 columns two, of 2 key-value groups one; then two heads of the gate.
  for (const ParamDesc& param : program.params.params) {
    if (param.kind != ParamKind::qkv) continue;
    BOOST_TEST(param.rows == 16 + 8 + 8 + 16);
    BOOST_TEST(param.runs.size() == 4U);
    BOOST_TEST(param.runs.back().global == 32 + 16 + 16 + 16);
    BOOST_TEST(param.runs.back().count == 16);
  }
  int num_gates = 0;
  for_each(program, [&](const Item&, const Segment&, const Instr& instr) {
    num_gates += instr.op == Op::attn_gate ? 1 : 0;
  });
  BOOST_TEST(num_gates == 2 * 2 * 8);  // layer 3 and multi-token prediction, 8 micro-batches
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan
