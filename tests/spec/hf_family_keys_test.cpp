// What the keys of single families mean, by the example of a small config.
#include <boost/test/unit_test.hpp>

#include "tests/spec/family_samples.h"

namespace moetune::spec {

using samples::contains;
using samples::json;
using samples::usage_error;
using namespace family_samples;

BOOST_AUTO_TEST_SUITE(hf_family_keys)

namespace {

ModelSpec read(const json& config) { return model_from_json(config, "config.json"); }

std::string error_of(const json& config) {
  return usage_error([&] { read(config); });
}

using Windows = std::vector<int64_t>;
using Layers = std::vector<bool>;

}  // namespace

BOOST_AUTO_TEST_CASE(glm_has_heads_of_its_own_and_experts_as_deepseek) {
  const ModelSpec m = read(glm4_moe());
  BOOST_TEST(m.q_size() == 64);
  BOOST_TEST((m.is_moe_layer == Layers{false, true, true, true}));
  BOOST_TEST(m.shared_ffn_size == 16);
  BOOST_TEST(m.has_router_bias);
  BOOST_TEST(m.normalizes_topk);
  BOOST_TEST(!m.has_qk_norm);
  BOOST_TEST(!m.has_attention_bias);
  BOOST_TEST(m.rope.rotary_ratio == 0.5);
  BOOST_TEST((m.mtp.layers == std::vector<LayerKind>{{Mixer::gqa, FeedForward::moe}}));
  const ModelSpec large = read(with(glm4_moe(), {{"attention_bias", true}, {"use_qk_norm", true}}));
  BOOST_TEST(large.has_qk_norm);
  BOOST_TEST(large.has_attention_bias);
  BOOST_TEST(!large.has_attention_output_bias);
}

BOOST_AUTO_TEST_CASE(layers_with_experts_may_be_told_one_by_one) {
  const json types = {{"mlp_layer_types", {"sparse", "dense", "sparse", "sparse"}}};
  BOOST_TEST((read(with(glm4_moe(), types)).is_moe_layer == Layers{true, false, true, true}));
  BOOST_TEST((read(without(with(deepseek_v3(), types), "first_k_dense_replace")).is_moe_layer ==
              Layers{true, false, true, true}));
  BOOST_TEST(contains(error_of(with(glm4_moe(), {{"mlp_layer_types", {"sparse"}}})), "4 entries"));
  BOOST_TEST(contains(
      error_of(with(glm4_moe(), {{"mlp_layer_types", {"sparse", "dense", "moe", "sparse"}}})),
      "'mlp_layer_types[2]': is \"moe\""));
}

BOOST_AUTO_TEST_CASE(ernie_has_experts_from_a_layer_to_a_layer) {
  const ModelSpec m = read(ernie());
  BOOST_TEST(m.num_experts == 8);
  BOOST_TEST(m.experts_per_token == 2);
  BOOST_TEST(m.shared_ffn_size == 32);
  BOOST_TEST(m.ties_embeddings);
  BOOST_TEST(m.has_router_bias);
  BOOST_TEST((m.is_moe_layer == Layers{false, true, true, true}));
  BOOST_TEST((read(with(ernie(), {{"moe_layer_end_index", 2}})).is_moe_layer ==
              Layers{false, true, true, false}));
  BOOST_TEST((
      read(with(ernie(), {{"moe_layer_start_index", 0}, {"moe_layer_interval", 2}})).is_moe_layer ==
      Layers{false, true, false, true}));
  BOOST_TEST(read(with(ernie(), {{"moe_num_shared_experts", 0}})).shared_ffn_size == 0);
  BOOST_TEST(contains(error_of(with(ernie(), {{"moe_k", 9}})), "'moe_k' is 9"));
  BOOST_TEST(contains(error_of(with(ernie(), {{"use_bias", true}})), "'use_bias' is true"));
  BOOST_TEST(contains(error_of(with(ernie(), {{"moe_layer_end_index", -2}})),
                      "'moe_layer_end_index' is -2"));
}

// Ling 2.0 is published under the name of the first Ling, with keys that say what it has.
BOOST_AUTO_TEST_CASE(both_versions_of_ling) {
  const ModelSpec first = read(bailing());
  BOOST_TEST(!first.has_qk_norm);
  BOOST_TEST(!first.has_router_bias);
  BOOST_TEST(first.shared_ffn_size == 16);
  BOOST_TEST(first.normalizes_topk);
  const ModelSpec second = read(with(bailing(), {{"use_qk_norm", true},
                                                 {"moe_router_enable_expert_bias", true},
                                                 {"use_qkv_bias", true},
                                                 {"output_dropout", 0.1}}));
  BOOST_TEST(second.has_qk_norm);
  BOOST_TEST(second.has_router_bias);
  BOOST_TEST(second.has_attention_bias);
  BOOST_TEST(!second.has_attention_output_bias);
  BOOST_TEST(second.hidden_dropout == 0.1);
  const ModelSpec named = read(with(bailing(), {{"model_type", "bailing_moe_v2"}}));
  BOOST_TEST(named.has_qk_norm);
  BOOST_TEST(named.has_router_bias);
}

BOOST_AUTO_TEST_CASE(a_number_for_each_layer_must_be_the_same) {
  const ModelSpec m = read(hunyuan());
  BOOST_TEST(m.experts_per_token == 2);
  BOOST_TEST(m.moe_ffn_size == 16);
  BOOST_TEST(m.shared_ffn_size == 16);
  BOOST_TEST(m.num_moe_layers() == 4);
  BOOST_TEST(m.has_qk_norm);
  BOOST_TEST(error_of(with(hunyuan(), {{"use_cla", false}})) == "");
  BOOST_TEST(contains(error_of(with(hunyuan(), {{"use_cla", true}})), "'use_cla' is true"));
  const ModelSpec plain_width = read(without(hunyuan(), "moe_intermediate_size"));
  BOOST_TEST(plain_width.moe_ffn_size == 48);
  for (const char* key : {"moe_topk", "moe_intermediate_size", "num_shared_expert"}) {
    for (const json& value : {json::array({2, 2, 1, 2}), json::array()}) {
      const std::string message = error_of(with(hunyuan(), {{key, value}}));
      BOOST_TEST(contains(message, std::string("'") + key + "': has a number for each layer"),
                 message);
    }
  }
  // Families of the engine have one number.
  BOOST_TEST(contains(error_of(with(samples::mixtral(), {{"num_experts_per_tok", {2, 2, 2, 2}}})),
                      "'num_experts_per_tok' is an array"));
}

BOOST_AUTO_TEST_CASE(llama4_has_chunks_of_keys_and_two_widths) {
  const ModelSpec m = read(llama4());
  BOOST_TEST((m.is_moe_layer == Layers{false, true, false, true}));
  BOOST_TEST(m.ffn_size == 96);
  BOOST_TEST(m.moe_ffn_size == 48);
  BOOST_TEST(m.shared_ffn_size == 48);
  BOOST_TEST(m.attention_window == (Windows{8, 8, 8, 0}), boost::test_tools::per_element());
  BOOST_TEST(m.has_chunked_windows);
  BOOST_TEST(engine_gap(m) == "attention in chunks is planned, not run, by the engine yet");
  BOOST_TEST((read(with(llama4(), {{"moe_layers", {0, 3}}})).is_moe_layer ==
              Layers{true, false, false, true}));
  const auto windows = [](const json& changes) {
    return read(with(llama4(), changes)).attention_window;
  };
  BOOST_TEST(windows({{"no_rope_layers", {0, 1, 1, 0}}}) == (Windows{0, 8, 8, 0}),
             boost::test_tools::per_element());
  BOOST_TEST(windows({{"no_rope_layers", json::array()}}) == (Windows{8, 8, 8, 0}),
             boost::test_tools::per_element());
  BOOST_TEST(windows({{"no_rope_layer_interval", 2}}) == (Windows{8, 0, 8, 0}),
             boost::test_tools::per_element());
  BOOST_TEST(
      windows({{"layer_types",
                {"full_attention", "chunked_attention", "full_attention", "chunked_attention"}}}) ==
          (Windows{0, 8, 0, 8}),
      boost::test_tools::per_element());
  BOOST_TEST(windows({{"attention_chunk_size", nullptr}}) == Windows(4, 0),
             boost::test_tools::per_element());
  BOOST_TEST(read(without(llama4(), "attention_chunk_size")).attention_window.front() == 8192);
  BOOST_TEST(contains(error_of(with(llama4(), {{"no_rope_layers", {1}}})), "4 entries"));
  // A sliding window is no chunk.
  const json sliding = {
      {"sliding_window", 8},
      {"layer_types", {"chunked_attention", "full_attention", "full_attention", "full_attention"}}};
  BOOST_TEST(contains(error_of(with(plain("mistral"), sliding)), "layer_types[0]"));
}

// Of 20 tokens in chunks of 8 the queries see 4 keys in the mean of two chunks and 2 in the last.
BOOST_AUTO_TEST_CASE(chunks_make_less_work_than_windows) {
  const ModelSpec chunked = read(llama4());
  ModelSpec sliding = chunked;
  sliding.has_chunked_windows = false;
  ModelSpec all = chunked;
  all.attention_window.assign(4, 0);
  const auto core = [](double context) { return 3 * 2 * 2 * 32 * context; };
  const double less = all.training_flops_per_token(20) - chunked.training_flops_per_token(20);
  BOOST_TEST(less == 3 * core(10 - (16 * 4 + 4 * 2) / 20.0), boost::test_tools::tolerance(1e-9));
  BOOST_TEST(sliding.training_flops_per_token(20) > chunked.training_flops_per_token(20));
  // Sequences that one chunk holds see all keys.
  BOOST_TEST(chunked.training_flops_per_token(8) == all.training_flops_per_token(8));
}

BOOST_AUTO_TEST_CASE(multimodal_files_have_their_text_part_read) {
  const ModelSpec llama = read({{"model_type", "llama4"}, {"text_config", llama4()}});
  BOOST_TEST(llama.family == "llama4_text");
  const json qwen = {{"model_type", "qwen3_vl_moe"},
                     {"tie_word_embeddings", true},
                     {"text_config", qwen3_vl_moe()},
                     {"vision_config", {{"depth", 27}}}};
  BOOST_TEST(read(qwen).family == "qwen3_vl_moe_text");
  BOOST_TEST(read(qwen).ties_embeddings);
  const ModelSpec dense =
      read({{"model_type", "qwen3_vl"}, {"text_config", plain("qwen3_vl_text")}});
  BOOST_TEST(dense.family == "qwen3_vl_text");
  BOOST_TEST(dense.has_qk_norm);
  BOOST_TEST(dense.num_experts == 0);
  // Always, whatever the file says.
  BOOST_TEST(read(with(qwen3_vl_moe(), {{"norm_topk_prob", false}})).normalizes_topk);
}

BOOST_AUTO_TEST_CASE(an_indexer_adds_its_weights_and_no_work) {
  const ModelSpec v3 = read(deepseek_v3());
  const ModelSpec v32 = read(deepseek_v32());
  // Queries from the latent, one head of keys, its LayerNorm, a weight for each head.
  const int64_t indexer = 16 * 2 * 8 + 32 * 8 + 2 * 8 + 32 * 2;
  BOOST_TEST(v32.num_parameters() == v3.num_parameters() + 4 * indexer);
  BOOST_TEST(v32.training_flops_per_token(64) == v3.training_flops_per_token(64));
  BOOST_TEST(model_assumption(v3) == "");
  BOOST_TEST(model_assumption(v32).starts_with("deepseek_v32: attention to the keys that an"));
  BOOST_TEST(
      contains(error_of(without(deepseek_v32(), "index_n_heads")), "'index_n_heads' is missing"));
  BOOST_TEST(contains(error_of(with(deepseek_v32(), {{"index_topk_freq", 4}})),
                      "'index_topk_freq' is 4, expected 1"));
  BOOST_TEST(contains(
      error_of(with(deepseek_v32(), {{"indexer_types", {"full", "shared", "full", "full"}}})),
      "'indexer_types': has \"shared\""));
  BOOST_TEST(error_of(with(deepseek_v32(), {{"indexer_types", {"full", "full"}}})) == "");
}

BOOST_AUTO_TEST_CASE(dbrx_has_keys_in_inner_parts) {
  const ModelSpec m = read(dbrx());
  BOOST_TEST(m.hidden_size == 32);
  BOOST_TEST(m.num_kv_heads == 2);
  BOOST_TEST(m.num_experts == 8);
  BOOST_TEST(m.experts_per_token == 2);
  BOOST_TEST(m.moe_ffn_size == 48);
  BOOST_TEST(m.max_position_embeddings == 64);
  BOOST_TEST(m.has_layer_norm);
  json config = dbrx();
  config["ffn_config"]["moe_top_k"] = 9;
  BOOST_TEST(contains(error_of(config), "'moe_top_k' is 9"));
  BOOST_TEST(contains(error_of(with(dbrx(), {{"attn_config", 3}})), "'attn_config' is 3"));
  // What is missing has the name that such a file would have.
  config["ffn_config"].erase("moe_num_experts");
  BOOST_TEST(contains(error_of(config), "'moe_num_experts' is missing"));
  BOOST_TEST(contains(error_of(without(dbrx(), "d_model")), "'d_model' is missing"));
  // Not of other families.
  const json llama = with(samples::llama(), {{"ffn_config", {{"hidden_act", "mish"}}}});
  BOOST_TEST(read(llama).hidden_act == "silu");
}

BOOST_AUTO_TEST_CASE(dense_families) {
  const ModelSpec phi = read(with(plain("phi3"), {{"resid_pdrop", 0.1}, {"sliding_window", 6}}));
  BOOST_TEST(phi.hidden_dropout == 0.1);
  BOOST_TEST(phi.attention_window == Windows(4, 6), boost::test_tools::per_element());
  BOOST_TEST(contains(error_of(with(plain("phi3"), {{"attention_bias", true}})),
                      "'attention_bias' is true"));
  const ModelSpec nemotron = read(with(plain("nemotron"), {{"norm_eps", 1e-4}}));
  BOOST_TEST(nemotron.rms_norm_eps == 1e-4);
  BOOST_TEST(!nemotron.has_gated_mlp);
  BOOST_TEST(nemotron.has_layer_norm);
  BOOST_TEST(nemotron.hidden_act == "relu2");
  BOOST_TEST(nemotron.rope.rotary_ratio == 0.5);
}

BOOST_AUTO_TEST_CASE(experts_as_wide_as_the_files_one_width) {
  for (const char* family : {"minimax_m2", "phimoe", "granitemoe", "granitemoeshared"}) {
    const ModelSpec m = read(with_local_experts(family));
    BOOST_TEST(m.moe_ffn_size == 48, family);
    BOOST_TEST(m.num_moe_layers() == 4, family);
    BOOST_TEST(m.shared_ffn_size == 0, family);
    BOOST_TEST(model_assumption(m).starts_with(family), family);
  }
  BOOST_TEST(read(olmoe()).moe_ffn_size == 48);
  BOOST_TEST(!read(olmoe()).normalizes_topk);
  BOOST_TEST(read(with(with_local_experts("granitemoeshared"), {{"shared_intermediate_size", 24}}))
                 .shared_ffn_size == 24);
  BOOST_TEST(read(with_local_experts("minimax_m2")).has_router_bias);
  BOOST_TEST(
      !read(with(with_local_experts("minimax_m2"), {{"use_routing_bias", false}})).has_router_bias);
  BOOST_TEST(read(with_local_experts("phimoe")).has_layer_norm);
}

BOOST_AUTO_TEST_CASE(noise_on_the_router_is_left_out_where_it_is_told) {
  const json noise = {{"router_jitter_noise", 0.01}};
  BOOST_TEST(error_of(with(with_local_experts("phimoe"), noise)) == "");
  BOOST_TEST(contains(model_assumption(read(with_local_experts("phimoe"))), "noise"));
  BOOST_TEST(contains(error_of(with(with_local_experts("granitemoe"), noise)),
                      "'router_jitter_noise' is 0.01"));
}

// Factors of positions change no cost: where nothing is run, those of longrope may be anything.
BOOST_AUTO_TEST_CASE(positions_that_only_plans_may_have) {
  for (const char* type : {"longrope", "su"}) {
    const json scaling = {{"rope_scaling", {{"type", type}, {"short_factor", {1, 2}}}}};
    BOOST_TEST(read(with(plain("phi3"), scaling)).rope.type == "longrope");
    BOOST_TEST(contains(error_of(with(samples::llama(), scaling)), "'rope_scaling.type' is"));
  }
  const json equal = {{"rope_scaling",
                       {{"rope_type", "llama3"},
                        {"factor", 16},
                        {"low_freq_factor", 1},
                        {"high_freq_factor", 1},
                        {"original_max_position_embeddings", 8192}}}};
  BOOST_TEST(read(with(llama4(), equal)).rope.type == "llama3");
  BOOST_TEST(contains(error_of(with(samples::llama(), equal)), "more than low_freq_factor"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
