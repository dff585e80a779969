// Mamba-2, layers with one half, experts on latent vectors: their work and their parameters are
// those of the formulas.
#include <boost/test/unit_test.hpp>

#include "tests/plan/planned_models.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(mamba_block)

namespace {

using testing::ModelSpec;

constexpr int64_t kLength = 128;

int64_t conv_columns(const ModelSpec& m) {
  return m.mamba.inner_size() + 2 * m.mamba.num_groups * m.mamba.state_size;
}
int64_t in_proj(const ModelSpec& m) {
  return m.hidden_size * (m.mamba.inner_size() + conv_columns(m) + m.mamba.num_heads);
}

/// FLOPs a token and layer: Megatron-LM's mamba_layer_flops (megatron/training/training.py), with
/// the model's own inner size, and the convolution, which it leaves out.
int64_t mamba_flops(const ModelSpec& m) {
  return 2 * in_proj(m) + 2 * m.mamba.conv_kernel * conv_columns(m) +
         7 * m.mamba.inner_size() * m.mamba.state_size + 2 * m.mamba.inner_size() * m.hidden_size;
}

/// Multiply-adds a token and layer, models-and-formulas.md, section 2: experts of two matrices on
/// latent vectors.
int64_t moe_work(const ModelSpec& m) {
  const int64_t latent = m.moe_latent_size;
  return 2 * latent * m.moe_ffn_size * m.experts_per_token + 2 * m.hidden_size * latent +
         2 * m.hidden_size * m.shared_ffn_size;
}

const char* const kLayouts[] = {"{}", R"({"tensor_model_parallel_size": 2})",
                                R"({"context_parallel_size": 2})",
                                R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2})",
                                R"({"pipeline_model_parallel_size": 2})"};

BOOST_AUTO_TEST_CASE(forward_work_is_that_of_the_formula) {
  const ModelSpec model = testing::small_nemotron();
  for (const char* knobs : kLayouts) {
    const spec::TrialSpec trial = testing::trial_of(model, knobs);
    BOOST_TEST(testing::forward_flops(trial, BlockKind::mamba) ==
                   2 * kLength * mamba_flops(model),  // of two layers
               knobs);
    // Of two layers, and in each of two depths one.
    BOOST_TEST(testing::forward_flops(trial, BlockKind::moe) == 4 * kLength * 2 * moe_work(model),
               knobs);
    BOOST_TEST(testing::forward_flops(trial, BlockKind::dense_mlp) ==
                   2 * kLength * 2 * model.hidden_size * model.ffn_size,
               knobs);
  }
}

int64_t parameters_of_half(const ModelSpec& m, const spec::LayerKind& kind) {
  const int64_t h = m.hidden_size;
  const int64_t inner = m.mamba.inner_size();
  int64_t sum = h;  // its norm
  if (kind.mixer == spec::Mixer::mamba) {
    sum += in_proj(m) + (m.mamba.conv_kernel + 1) * conv_columns(m) + 3 * m.mamba.num_heads +
           inner + inner * h;
  }
  if (kind.mixer == spec::Mixer::gqa) sum += h * (2 * m.q_size() + 2 * m.kv_size());
  if (kind.feed_forward == spec::FeedForward::dense) sum += 2 * h * m.ffn_size;
  if (kind.feed_forward == spec::FeedForward::moe) {
    sum += m.num_experts * (2 * m.moe_latent_size * m.moe_ffn_size + h + 1) +
           2 * h * m.moe_latent_size + 2 * h * m.shared_ffn_size;
  }
  return sum;
}

int64_t parameters(const ModelSpec& m) {
  const int64_t h = m.hidden_size;
  int64_t sum = 2 * m.vocab_size * h + h;
  for (const spec::LayerKind& kind : m.layer_kinds) sum += parameters_of_half(m, kind);
  // All depths have the same.
  sum += 3 * h + 2 * h * h;
  for (const spec::LayerKind& kind : m.mtp.layers) sum += parameters_of_half(m, kind);
  return sum;
}

BOOST_AUTO_TEST_CASE(ranks_hold_the_parameters_of_the_formula) {
  for (const char* knobs : {"{}", R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2,
                  "expert_model_parallel_size": 2, "expert_tensor_parallel_size": 2})",
                            R"({"tensor_model_parallel_size": 2, "context_parallel_size": 2,
            "expert_model_parallel_size": 4, "pipeline_model_parallel_size": 3})"}) {
    const ModelSpec model = testing::small_nemotron();
    BOOST_TEST(testing::sum_of(testing::parameters_of(model, knobs)) == parameters(model), knobs);
  }
  const ModelSpec full = testing::nemotron_super();
  const auto held =
      testing::parameters_of(full, R"({"tensor_model_parallel_size": 2, "data_parallel_size": 4,
                "expert_model_parallel_size": 8, "pipeline_model_parallel_size": 4})");
  BOOST_TEST(testing::sum_of(held) == parameters(full));
  ModelSpec without = full;
  without.mtp = {};
  BOOST_TEST(static_cast<double>(parameters(without)) / 1e9 == 120.8,
             boost::test_tools::tolerance(5e-3));
}

BOOST_AUTO_TEST_CASE(a_layer_with_one_half_has_one_norm_and_no_middle) {
  const ModelSpec model = testing::small_nemotron();
  const StepProgram program = compile(testing::trial_of(model), 0);
  std::map<int32_t, std::vector<BlockKind>> blocks;
  for_each(program, [&](const Item& item, const Segment& segment, const Instr& instr) {
    if (item.micro_batch != 0 || item.layer < 0 || item.layer >= model.num_layers) return;
    if (!segment.is_backward &&
        (blocks[item.layer].empty() || blocks[item.layer].back() != segment.block)) {
      blocks[item.layer].push_back(segment.block);
    }
    for (const Ref& ref : instr.refs) {
      const bool is_buffer = ref.space == Space::frame || ref.space == Space::next;
      BOOST_TEST((!is_buffer || static_cast<Buf>(ref.id) != Buf::mid));
    }
  });
  const auto of_layer = [&](int32_t layer, BlockKind block) {
    return blocks.at(layer) == std::vector<BlockKind>{block};
  };
  BOOST_TEST(of_layer(0, BlockKind::mamba));
  BOOST_TEST(of_layer(1, BlockKind::moe));
  BOOST_TEST(of_layer(2, BlockKind::gqa));
  BOOST_TEST(of_layer(5, BlockKind::dense_mlp));
}

// Rows that travel to the experts are as wide as the latent.
BOOST_AUTO_TEST_CASE(latent_vectors_travel_to_the_experts) {
  ModelSpec model = testing::small_nemotron();
  const char* const knobs = R"({"data_parallel_size": 2, "expert_model_parallel_size": 2})";
  const auto row_bytes = [&] {
    int64_t bytes = 0;
    for_each(compile(testing::trial_of(model, knobs), 0),
             [&](const Item&, const Segment& segment, const Instr& instr) {
               if (instr.verb == Verb::comm && instr.op == Op::combine && !segment.is_backward) {
                 bytes = instr.cost_per_row.bytes;
               }
             });
    return bytes;
  };
  BOOST_TEST(row_bytes() == 2 * model.moe_latent_size);
  model.moe_latent_size = 0;
  BOOST_TEST(row_bytes() == 2 * model.hidden_size);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan
