// Models of rows in other words than a config.json has, and what is taken for what they leave out.
#include "sweeps/planning/row_model.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <string>

#include "engine/spec/hf_family.h"
#include "engine/spec/model_spec.h"
#include "sweeps/planning/estimate.h"
#include "sweeps/planning/published_rows.h"
#include "sweeps/planning/rates_file.h"
#include "tests/sweeps/shipped_rows.h"

namespace moetune::sweeps {

using nlohmann::json;

BOOST_AUTO_TEST_SUITE(row_model)

namespace {

json model_in(const char* id) { return tests::shipped_row(id)["model"]; }

struct Read {
  spec::ModelSpec model;
  std::vector<std::string> assumed;
};
Read read(const json& stated) {
  Read result;
  const json model = model_of_row(stated, "test", result.assumed);
  result.model = spec::model_from_json(model, spec::Source("test"));
  return result;
}

/// The sizes that the named changes lead to.
spec::ModelSpec with(json model, const json& changes) {
  model.update(changes);
  return read(model).model;
}

}  // namespace

BOOST_AUTO_TEST_CASE(norms_and_activations_have_other_words) {
  const json gpt = model_in("golden-022");
  BOOST_TEST(with(gpt, {{"norm", "LayerNorm"}}).has_layer_norm);
  BOOST_TEST(with(gpt, {{"norm", "layernorm1p"}}).has_layer_norm);
  BOOST_TEST(!with(gpt, {{"norm", "RMSNorm"}}).has_layer_norm);
  BOOST_TEST(with(gpt, {{"hidden_act", "squared_relu"}}).hidden_act == "relu2");
  json open = gpt;
  open.erase("gated_mlp");
  const spec::ModelSpec gated = with(open, {{"hidden_act", "swiglu"}});
  BOOST_TEST(gated.hidden_act == "silu");
  BOOST_TEST(gated.has_gated_mlp);
  BOOST_TEST(with(model_in("bridge-101"), {{"hidden_act", "swiglu"}}).hidden_act == "silu");
}

BOOST_AUTO_TEST_CASE(layers_with_experts_may_be_a_list) {
  json model = model_in("skill-001");
  model["first_k_dense_replace"] = 1;
  const spec::ModelSpec usual = read(model).model;
  json layers = json::array();
  for (int layer = 0; layer < 27; ++layer) layers.push_back(layer == 0 ? 0 : 1);
  json listed = model;
  listed.erase("first_k_dense_replace");
  listed["moe_layer_freq"] = layers;
  BOOST_TEST(read(listed).model.is_moe_layer == usual.is_moe_layer,
             boost::test_tools::per_element());
  BOOST_TEST(read(listed).assumed.empty());
  listed["moe_layer_freq"] = "([0]*1+[1]*26)";
  BOOST_TEST(read(listed).model.is_moe_layer == usual.is_moe_layer,
             boost::test_tools::per_element());
  const spec::ModelSpec gpt = with(model_in("golden-022"), {{"moe_layer_freq", 2}});
  BOOST_TEST(gpt.num_moe_layers() == 6);
  BOOST_TEST(gpt.is_moe_layer[0]);
}

BOOST_AUTO_TEST_CASE(defaults_of_a_family_are_told) {
  json model = model_in("bridge-001");
  const spec::ModelSpec usual = read(model).model;
  model.erase("first_k_dense_replace");
  model.erase("n_shared_experts");
  const Read result = read(model);
  BOOST_TEST(result.model.num_parameters() == usual.num_parameters());
  BOOST_TEST_REQUIRE(result.assumed.size() == 2U);
  BOOST_TEST(result.assumed[0] ==
             "first_k_dense_replace 3: the row's model does not say, the default of deepseek_v3");
  const Read ernie = read({{"model_type", "ernie4_5_moe"},
                           {"hidden_size", 2560},
                           {"num_hidden_layers", 28},
                           {"num_attention_heads", 20},
                           {"num_key_value_heads", 4},
                           {"intermediate_size", 12288},
                           {"moe_intermediate_size", 1536},
                           {"moe_num_experts", 64},
                           {"moe_k", 6},
                           {"moe_layer_start_index", 1},
                           {"vocab_size", 103424}});
  BOOST_TEST(ernie.model.shared_ffn_size == 2 * 1536);
  BOOST_TEST(ernie.assumed.size() == 1U);
  // null is a statement.
  model["n_shared_experts"] = nullptr;
  BOOST_TEST(read(model).model.shared_ffn_size == 0);
}

// 0 is a size of what a family does not have.
BOOST_AUTO_TEST_CASE(a_size_of_nothing_is_no_mistake) {
  const json dense = model_in("bridge-101");
  BOOST_TEST(with(dense, {{"n_shared_experts", 0}}).shared_ffn_size == 0);
  const spec::ModelSpec model = with(dense, {{"intermediate_size", 0}});
  BOOST_TEST(model.num_experts > 0);
}

BOOST_AUTO_TEST_CASE(shared_experts_and_latent_attention_are_read) {
  const json gpt = model_in("golden-022");
  BOOST_TEST(with(gpt, {{"moe_shared_expert_intermediate_size", 4096}}).shared_ffn_size == 4096);
  const json qwen = model_in("bridge-101");
  BOOST_TEST(with(qwen, {{"n_shared_experts", 2}}).shared_ffn_size ==
             2 * qwen["moe_intermediate_size"].get<int64_t>());
  const json latent = {{"kv_lora_rank", 512},
                       {"q_lora_rank", 1536},
                       {"qk_head_dim", 128},
                       {"qk_pos_emb_head_dim", 64},
                       {"v_head_dim", 128},
                       {"moe_intermediate_size", 2048},
                       {"moe_shared_expert_intermediate_size", 4096}};
  const spec::ModelSpec model = with(gpt, latent);
  const spec::ModelSpec grouped = read(gpt).model;
  BOOST_TEST(model.mla.kv_lora_rank == 512);
  BOOST_TEST(model.mla.qk_head_dim() == 192);
  BOOST_TEST(model.shared_ffn_size == 4096);
  BOOST_TEST(model.num_moe_layers() == grouped.num_moe_layers());
  BOOST_TEST(model.num_experts == grouped.num_experts);
  BOOST_TEST(model.has_layer_norm == grouped.has_layer_norm);
  BOOST_TEST(model.has_gated_mlp == grouped.has_gated_mlp);
  BOOST_TEST(model.ties_embeddings == grouped.ties_embeddings);
}

// Left out in silence they would be another model.
BOOST_AUTO_TEST_CASE(sizes_that_are_none_are_refused) {
  const auto refusal_of = [](const char* id, const json& changes) {
    json row = tests::shipped_row(id);
    row["model"].update(changes);
    return published_rows_of(json::array({row}), "test").front().reason;
  };
  struct Sample {
    const char* id;
    json changes;
    const char* says;
  };
  json latent = {{"kv_lora_rank", 512},
                 {"qk_head_dim", 128},
                 {"qk_pos_emb_head_dim", 64},
                 {"v_head_dim", 128},
                 {"moe_intermediate_size", 2048}};
  const auto beside_latent = [&](const json& changes) {
    json all = latent;
    all.update(changes);
    return all;
  };
  for (const Sample& sample : {
           Sample{"bridge-101", {{"n_shared_experts", -3}}, "'n_shared_experts' is -3"},
           {"bridge-101", {{"n_shared_experts", int64_t{1} << 40}}, "is 1099511627776, expected"},
           {"bridge-101", {{"num_shared_experts", 1.5}}, "'num_shared_experts' is 1.5"},
           {"bridge-101", {{"n_shared_experts", "two"}}, "'n_shared_experts' is \"two\""},
           {"bridge-101", {{"n_shared_experts", json::array({1})}}, "'n_shared_experts' is "},
           {"bridge-101", {{"first_k_dense_replace", -5}}, "'first_k_dense_replace' is -5"},
           {"golden-022", beside_latent({{"mlp_only_layers", {0.5}}}), "'mlp_only_layers"},
           {"golden-022", beside_latent({{"mlp_only_layers", {9, -1, "x"}}}), "'mlp_only_layers"},
           {"golden-022", beside_latent({{"num_experts", 1.5}}), "'num_experts' is 1.5"},
       }) {
    const std::string reason = refusal_of(sample.id, sample.changes);
    BOOST_TEST(reason.find(sample.says) != std::string::npos, sample.says << ": " << reason);
  }
  const json qwen = model_in("bridge-101");
  BOOST_TEST(with(qwen, {{"n_shared_experts", "1"}}).shared_ffn_size ==
             qwen["moe_intermediate_size"].get<int64_t>());
  BOOST_TEST(with(qwen, {{"n_shared_experts", "not stated"}}).shared_ffn_size == 0);
  BOOST_TEST(with(qwen, {{"n_shared_experts", 0}}).shared_ffn_size == 0);
}

BOOST_AUTO_TEST_CASE(a_default_leaves_layers_with_experts) {
  json row = tests::shipped_row("bridge-001");
  row["model"].erase("first_k_dense_replace");
  row["model"]["num_hidden_layers"] = 3;
  const std::string reason = published_rows_of(json::array({row}), "test").front().reason;
  BOOST_TEST(reason.find("'first_k_dense_replace' is missing") != std::string::npos, reason);
}

BOOST_AUTO_TEST_CASE(plain_variants_of_known_blocks_are_priced) {
  json row = tests::shipped_row("bridge-267");
  for (const char* family :
       {"internlm2", "Yi", "yi", "baichuan", "seed_oss", "mimo", "gemma", "starcoder2"}) {
    row["model"]["model_type"] = family;
    const json answer = estimate_rows(published_rows_of(json::array({row}), "test"),
                                      default_calibration())["rows"][0];
    BOOST_TEST(answer["supported"] == true, family << ": " << answer["reason"].dump());
  }
  row = tests::shipped_row("bridge-101");
  row["model"].update({{"model_type", "qwen3_omni_moe"}});
  BOOST_TEST(published_rows_of(json::array({row}), "test").front().reason == "");
  row["model"].update({{"model_type", "dots1"},
                       {"n_routed_experts", 128},
                       {"n_shared_experts", 2},
                       {"first_k_dense_replace", 1}});
  BOOST_TEST(published_rows_of(json::array({row}), "test").front().reason == "");
  for (const char* family : {"exaone4", "gpt_neox", "falcon", "gemma2"}) {
    row["model"]["model_type"] = family;
    const std::string reason = published_rows_of(json::array({row}), "test").front().reason;
    BOOST_TEST(reason.find("is not planned yet") != std::string::npos, reason);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
