// Parameter counts and training FLOPs of public models against published figures, and by hand on a
// tiny model.
#include "engine/spec/model_spec.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "tests/spec/spec_samples.h"

namespace moetune::spec {

using samples::committed_model;
namespace data = boost::unit_test::data;

BOOST_AUTO_TEST_SUITE(model_spec)

namespace {

struct Size {
  const char* name;
  double total_billions;
  double active_billions;
};
std::ostream& operator<<(std::ostream& out, const Size& row) { return out << row.name; }

const Size kSizes[] = {
    {"qwen3_30b_a3b", 30.53, 3.35}, {"qwen3_235b_a22b", 235.09, 22.19},
    {"mixtral_8x7b", 46.70, 12.88}, {"mixtral_8x22b", 140.63, 39.16},
    {"llama3_8b", 8.03, 8.03},      {"llama3_70b", 70.55, 70.55},
};

/// Trained GFLOP per token implied by published TFLOP/s and tokens/s of Megatron runs.
struct Work {
  const char* name;
  int64_t seq_length;
  double gflops;
};
std::ostream& operator<<(std::ostream& out, const Work& row) { return out << row.name; }

const Work kWork[] = {
    {"qwen3_30b_a3b", 4096, 23.006},
    {"qwen3_235b_a22b", 4096, 148.03},
    {"llama3_8b", 8192, 51.47},
    {"llama3_70b", 8192, 449.22},
};

}  // namespace

BOOST_DATA_TEST_CASE(published_sizes, data::make(kSizes)) {
  const ModelSpec model = committed_model(sample.name);
  BOOST_TEST(std::abs(static_cast<double>(model.num_parameters()) / 1e9 - sample.total_billions) <
             0.0051);
  BOOST_TEST(std::abs(static_cast<double>(model.num_active_parameters()) / 1e9 -
                      sample.active_billions) < 0.0051);
}

BOOST_DATA_TEST_CASE(published_work_per_token, data::make(kWork)) {
  const double gflops =
      committed_model(sample.name).training_flops_per_token(sample.seq_length) / 1e9;
  BOOST_TEST(gflops == sample.gflops, boost::test_tools::tolerance(1e-3));
}

BOOST_AUTO_TEST_CASE(llama_405b_from_its_dimensions) {
  ModelSpec model = committed_model("llama3_70b");
  model.num_layers = 126;
  model.hidden_size = 16384;
  model.num_heads = 128;
  model.ffn_size = 53248;
  model.is_moe_layer.assign(126, false);
  model.attention_window.assign(126, 0);
  BOOST_TEST(model.training_flops_per_token(8192) / 1e9 == 2523.96,
             boost::test_tools::tolerance(1e-3));
  BOOST_TEST(static_cast<double>(model.num_parameters()) / 1e9 == 405.85,
             boost::test_tools::tolerance(1e-4));
}

BOOST_AUTO_TEST_CASE(tiny_models_by_hand) {
  samples::json config = samples::llama();
  config["num_hidden_layers"] = 1;
  config["attention_bias"] = true;
  config["mlp_bias"] = true;
  // h 32, q 32, kv 16, ffn 48, vocab 64.
  const int64_t attention = 32 * (32 + 16 + 16) + 32 * 32 + (32 + 16 + 16) + 32;
  const int64_t mlp = 3 * 32 * 48 + 2 * 48 + 32;
  const ModelSpec dense = model_from_json(config, "c");
  BOOST_TEST(dense.num_parameters() == 64 * 32 * 2 + attention + mlp + 2 * 32 + 32);
  config["tie_word_embeddings"] = true;
  BOOST_TEST(model_from_json(config, "c").num_parameters() == dense.num_parameters() - 64 * 32);
  const double linear = 32 * 64 + 32 * (32 + 16 + 16) + 32 * 32 + 3 * 32 * 48;
  BOOST_TEST(dense.training_flops_per_token(10) == 6 * (linear + 10 * 32));
}

BOOST_AUTO_TEST_CASE(shared_expert_and_windows_count) {
  samples::json config = samples::mixtral();
  const ModelSpec plain = model_from_json(config, "c");
  config["shared_expert_intermediate_size"] = 8;
  config["sliding_window"] = 4;
  const ModelSpec model = model_from_json(config, "c");
  BOOST_TEST(model.num_parameters() - plain.num_parameters() == 4 * 3 * 32 * 8);
  BOOST_TEST(model.num_active_parameters() - plain.num_active_parameters() == 4 * 3 * 32 * 8);
  // Ten queries see 1, 2, 3, 4, 4, ... keys: 34 in all instead of 10 x 10 / 2.
  const double per_key = 6 * 4 * 2.0 * 32;
  const double shared = 6 * 4 * 3.0 * 32 * 8;
  BOOST_TEST(model.training_flops_per_token(10) - plain.training_flops_per_token(10) ==
                 shared + per_key * (3.4 - 5.0),
             boost::test_tools::tolerance(1e-9));
  // A window as long as the sequence is no window.
  BOOST_TEST(model.training_flops_per_token(4) - plain.training_flops_per_token(4) == shared,
             boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(quick_start_model_is_a_small_moe) {
  const ModelSpec model = committed_model("quickstart_moe");
  BOOST_TEST(model.num_parameters() >= 1'000'000);
  BOOST_TEST(model.num_layers >= 4);
  BOOST_TEST(model.num_experts >= 8);
  BOOST_TEST(model.num_moe_layers() == model.num_layers);
  BOOST_TEST(model.vocab_size == 256);
  BOOST_TEST(model.has_qk_norm);
  BOOST_TEST(!model.ties_embeddings);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
