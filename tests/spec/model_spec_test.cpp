// Parameter counts and training FLOPs by hand on tiny models; of public ones in
// model_counts_test.cpp.
#include "engine/spec/model_spec.h"

#include <boost/test/unit_test.hpp>

#include "tests/spec/spec_samples.h"

namespace moetune::spec {

using samples::committed_model;

BOOST_AUTO_TEST_SUITE(model_spec)

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
