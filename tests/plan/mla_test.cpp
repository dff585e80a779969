// Multi-head latent attention: its work and its parameters are those of the formulas.
#include <boost/test/unit_test.hpp>

#include "tests/plan/planned_models.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(mla_block)

namespace {

using testing::ModelSpec;

/// Multiply-adds a token and layer, models-and-formulas.md, section 2, without those of its norms.
int64_t linear(const ModelSpec& m) {
  const auto& mla = m.mla;
  const int64_t h = m.hidden_size;
  const int64_t queries = m.num_heads * mla.qk_head_dim();
  const int64_t q = mla.q_lora_rank > 0 ? mla.q_lora_rank * (h + queries) : h * queries;
  return q + mla.kv_lora_rank * (h + m.num_heads * (mla.qk_nope_head_dim + mla.v_head_dim)) +
         h * mla.qk_rope_head_dim + m.num_heads * mla.v_head_dim * h;
}

/// The same a pair of query and key.
int64_t core(const ModelSpec& m) { return m.num_heads * (m.mla.qk_head_dim() + m.mla.v_head_dim); }

constexpr int64_t kLength = 128;

BOOST_AUTO_TEST_CASE(forward_work_is_that_of_the_formula) {
  // An indexer adds none.
  for (const ModelSpec& model :
       {testing::small_deepseek(), testing::small_moonlight(), testing::small_deepseek_sparse()}) {
    const int64_t num_layers = num_layers_with_mtp(model);
    const int64_t expected =
        2 * num_layers * (kLength * linear(model) + testing::causal_pairs(kLength) * core(model));
    for (const char* knobs :
         {"{}", R"({"tensor_model_parallel_size": 2})", R"({"context_parallel_size": 2})",
          R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2,
              "cp_comm_type": "p2p"})",
          R"({"pipeline_model_parallel_size": 2})"}) {
      BOOST_TEST(
          testing::forward_flops(testing::trial_of(model, knobs), BlockKind::mla) == expected,
          knobs);
    }
  }
}

// Published TFLOP/s over tokens/s of DeepSeek-V3 at 4096 tokens: 259.99 GFLOPs a trained token with
// one depth of multi-token prediction, 249.81 without (models-and-formulas.md, section 2).
BOOST_AUTO_TEST_CASE(deepseek_v3_trains_with_the_published_work) {
  ModelSpec model = testing::deepseek_v3();
  BOOST_TEST(testing::trained_gflops(model, 4096) == 259.99, boost::test_tools::tolerance(1e-3));
  model.mtp = {};
  BOOST_TEST(testing::trained_gflops(model, 4096) == 249.81, boost::test_tools::tolerance(1e-3));
}

int64_t layer_parameters(const ModelSpec& m, bool is_moe) {
  const int64_t h = m.hidden_size;
  const int64_t latent_norms = m.mla.q_lora_rank + m.mla.kv_lora_rank;
  const int64_t index_dim = m.mla.index_head_dim;
  const int64_t indexer =
      m.mla.index_heads * (m.mla.q_lora_rank * index_dim + h) + index_dim * h + 2 * index_dim;
  const int64_t attention =
      linear(m) + latent_norms + indexer + (m.has_attention_output_bias ? h : 0);
  const int64_t experts = m.num_experts * 3 * h * m.moe_ffn_size + 3 * h * m.shared_ffn_size +
                          h * m.num_experts + m.num_experts;  // and a bias for each
  return attention + 2 * h + (is_moe ? experts : 3 * h * m.ffn_size);
}

int64_t parameters(const ModelSpec& m) {
  const int64_t h = m.hidden_size;
  int64_t sum = m.vocab_size * h * (m.ties_embeddings ? 1 : 2) + h;
  for (const bool is_moe : m.is_moe_layer) sum += layer_parameters(m, is_moe);
  return sum + m.mtp.depth * (3 * h + 2 * h * h + layer_parameters(m, true));
}

BOOST_AUTO_TEST_CASE(ranks_hold_the_parameters_of_the_formula) {
  for (const ModelSpec& model :
       {testing::small_deepseek(), testing::small_moonlight(), testing::small_deepseek_sparse()}) {
    for (const char* knobs : {"{}", R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2,
                    "expert_model_parallel_size": 2, "expert_tensor_parallel_size": 2})",
                              R"({"context_parallel_size": 2, "expert_model_parallel_size": 2,
              "pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2})"}) {
      BOOST_TEST(testing::sum_of(testing::parameters_of(model, knobs)) == parameters(model), knobs);
    }
  }
  const ModelSpec full = testing::deepseek_v3();
  const auto held =
      testing::parameters_of(full, R"({"tensor_model_parallel_size": 2, "data_parallel_size": 4,
                "expert_model_parallel_size": 8, "pipeline_model_parallel_size": 4})");
  BOOST_TEST(testing::sum_of(held) == parameters(full));
  ModelSpec without = full;
  without.mtp = {};
  BOOST_TEST(static_cast<double>(parameters(without)) / 1e9 == 671.03,
             boost::test_tools::tolerance(1e-5));
}

// What lies between the projections is split over heads; the latents are not.
BOOST_AUTO_TEST_CASE(latents_are_whole_on_every_rank) {
  const spec::TrialSpec trial =
      testing::trial_of(testing::small_deepseek(), R"({"tensor_model_parallel_size": 2})");
  const StepProgram program = compile(trial, 1);
  int num_seen = 0;
  for (const ParamDesc& param : program.params.params) {
    const bool is_whole =
        param.kind == ParamKind::mla_q_down || param.kind == ParamKind::mla_kv_down;
    const bool is_split = param.kind == ParamKind::mla_q_up || param.kind == ParamKind::mla_kv_up;
    if (!is_whole && !is_split) continue;
    ++num_seen;
    const BucketDesc& bucket = program.params.buckets[static_cast<size_t>(param.bucket)];
    BOOST_TEST((bucket.group == Group::stage) == is_whole, param.name);
    BOOST_TEST(param.global_rows == param.rows * (is_whole ? 1 : 2), param.name);
  }
  BOOST_TEST(num_seen == 4 * 5);
  // Three gatherings of latents beside those of the output's gradient: latents forward, and again
  // for the gradients of the matrices that read them.
  std::map<bool, std::multiset<int64_t>> gathered;
  for_each(program, [&](const Item& item, const Segment& segment, const Instr& instr) {
    if (item.layer != 1 || item.micro_batch != 0 || segment.block != BlockKind::mla) return;
    if (instr.op == Op::tp_gather) gathered[segment.is_backward].insert(instr.cost.bytes / 256);
  });
  BOOST_TEST((gathered[false] == std::multiset<int64_t>{16, 8 + 4}));
  BOOST_TEST((gathered[true] == std::multiset<int64_t>{16, 8 + 4, 32}));
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan
