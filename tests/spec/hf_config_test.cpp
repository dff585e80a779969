// What the fields of a Hugging Face config mean for each family, and what is refused.
#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "engine/spec/fields.h"
#include "tests/spec/spec_samples.h"

namespace moetune::spec {

using samples::contains;
using samples::json;
using samples::llama;
using samples::mixtral;
using samples::qwen3_moe;
using samples::usage_error;

BOOST_AUTO_TEST_SUITE(hf_config)

namespace {

ModelSpec read(const json& config) { return model_from_json(config, "config.json"); }

json with(json config, const json& changes) {
  config.update(changes);
  return config;
}

std::string error_of(const json& config) {
  return usage_error([&] { read(config); });
}

using Windows = std::vector<int64_t>;

}  // namespace

BOOST_AUTO_TEST_CASE(llama_fields_and_defaults) {
  const ModelSpec m = read(llama());
  BOOST_TEST(m.family == "llama");
  BOOST_TEST(m.head_dim == 8);
  BOOST_TEST(m.ffn_size == 48);
  BOOST_TEST(m.num_experts == 0);
  BOOST_TEST(m.num_moe_layers() == 0);
  BOOST_TEST(m.rope.type == "default");
  BOOST_TEST(m.rope.theta == 10000.0);
  BOOST_TEST(!m.ties_embeddings);
  BOOST_TEST(!m.has_attention_bias);
  BOOST_TEST(!m.has_qk_norm);
  BOOST_TEST(m.attention_window == Windows(4, 0), boost::test_tools::per_element());
  const ModelSpec biased = read(
      with(llama(), {{"attention_bias", true}, {"mlp_bias", true}, {"tie_word_embeddings", true}}));
  BOOST_TEST(biased.has_attention_bias);
  BOOST_TEST(biased.has_attention_output_bias);
  BOOST_TEST(biased.has_mlp_bias);
  BOOST_TEST(biased.ties_embeddings);
}

BOOST_AUTO_TEST_CASE(absent_and_null_sizes_follow_the_heads) {
  json config = llama();
  config.erase("num_key_value_heads");
  config["head_dim"] = nullptr;
  BOOST_TEST(read(config).num_kv_heads == 4);
  BOOST_TEST(read(config).head_dim == 8);
  BOOST_TEST(read(with(config, {{"head_dim", 20}})).q_size() == 80);
}

BOOST_AUTO_TEST_CASE(mixtral_experts) {
  const ModelSpec m = read(with(mixtral(), {{"shared_expert_intermediate_size", 12}}));
  BOOST_TEST(m.num_experts == 8);
  BOOST_TEST(m.moe_ffn_size == 48);
  BOOST_TEST(m.shared_ffn_size == 12);
  BOOST_TEST(m.num_moe_layers() == 4);
  BOOST_TEST(m.normalizes_topk);
  BOOST_TEST(m.rope.theta == 1e6);
  BOOST_TEST(!m.has_qk_norm);
  // Not a field of this family.
  BOOST_TEST(!read(with(mixtral(), {{"attention_bias", true}})).has_attention_bias);
}

BOOST_AUTO_TEST_CASE(qwen3_moe_layers_and_options) {
  const ModelSpec m = read(qwen3_moe());
  BOOST_TEST(m.has_qk_norm);
  BOOST_TEST(m.moe_ffn_size == 16);
  BOOST_TEST(m.normalizes_topk);
  json plain = qwen3_moe();
  plain.erase("norm_topk_prob");
  BOOST_TEST(!read(plain).normalizes_topk);
  const ModelSpec mixed =
      read(with(qwen3_moe(), {{"decoder_sparse_step", 2}, {"mlp_only_layers", {3}}}));
  const std::vector<bool> expected = {false, true, false, false};
  BOOST_TEST(mixed.is_moe_layer == expected);
  BOOST_TEST(mixed.ffn_size == 48);
  const ModelSpec dense = read(with(qwen3_moe(), {{"num_experts", 0}}));
  BOOST_TEST(dense.num_moe_layers() == 0);
  BOOST_TEST(dense.experts_per_token == 0);
  BOOST_TEST(read(with(qwen3_moe(), {{"attention_bias", true}})).has_attention_output_bias);
}

BOOST_AUTO_TEST_CASE(both_spellings_of_the_expert_count) {
  json renamed = qwen3_moe();
  renamed.erase("num_experts");
  renamed["num_local_experts"] = 8;
  BOOST_TEST(read(renamed).num_experts == 8);
  BOOST_TEST(contains(error_of(with(renamed, {{"num_experts", 4}})), "num_experts"));
}

BOOST_AUTO_TEST_CASE(the_page_has_the_window_that_reading_takes) {
  const std::vector<FieldPage> pages = model_pages();
  const auto page = std::ranges::find(pages, "sliding_window",
                                      [](const FieldPage& each) { return each.info.key; });
  BOOST_REQUIRE((page != pages.end()));
  const ModelSpec model = read(with(qwen3_moe(), {{"use_sliding_window", true}}));
  BOOST_TEST(page->default_text.starts_with(
      fmt::format("{} qwen3_moe, ", model.attention_window.front())));
  BOOST_TEST(page->default_text.ends_with("; none elsewhere"));
}

BOOST_AUTO_TEST_CASE(sliding_windows) {
  BOOST_TEST(read(with(mixtral(), {{"sliding_window", 6}})).attention_window == Windows(4, 6),
             boost::test_tools::per_element());
  BOOST_TEST(read(with(mixtral(), {{"sliding_window", nullptr}})).attention_window == Windows(4, 0),
             boost::test_tools::per_element());
  const json qwen = with(qwen3_moe(), {{"sliding_window", 6}, {"max_window_layers", 2}});
  BOOST_TEST(read(qwen).attention_window == Windows(4, 0), boost::test_tools::per_element());
  BOOST_TEST(read(with(qwen, {{"use_sliding_window", true}})).attention_window == Windows(4, 6),
             boost::test_tools::per_element());
  BOOST_TEST(
      read(with(qwen3_moe(), {{"use_sliding_window", true}})).attention_window == Windows(4, 4096),
      boost::test_tools::per_element());
  const json typed =
      with(mixtral(),
           {{"sliding_window", 6},
            {"layer_types",
             {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}}});
  BOOST_TEST(read(typed).attention_window == (Windows{6, 0, 6, 0}),
             boost::test_tools::per_element());
  BOOST_TEST(contains(error_of(with(typed, {{"layer_types", {"full_attention"}}})), "4 entries"));
  BOOST_TEST(contains(error_of(with(typed, {{"sliding_window", nullptr}})), "sliding_window"));
  BOOST_TEST(contains(
      error_of(with(typed, {{"layer_types", {"full_attention", "linear_attention", 1, 2}}})),
      "layer_types[1]"));
}

BOOST_AUTO_TEST_CASE(rope_in_older_and_newer_spelling) {
  const json scaling = {{"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 32}};
  const RopeSpec older =
      read(with(llama(),
                {{"rope_theta", 5e5}, {"rope_scaling", with(scaling, {{"type", "llama3"}})}}))
          .rope;
  const RopeSpec newer =
      read(with(llama(), {{"rope_parameters",
                           with(scaling, {{"rope_type", "llama3"}, {"rope_theta", 5e5}})}}))
          .rope;
  for (const RopeSpec& rope : {older, newer}) {
    BOOST_TEST(rope.type == "llama3");
    BOOST_TEST(rope.theta == 5e5);
    BOOST_TEST(rope.factor == 8.0);
    BOOST_TEST(rope.original_max_position_embeddings == 32);
  }
  BOOST_TEST(read(with(llama(), {{"rope_theta", 7e4}, {"rope_scaling", nullptr}})).rope.theta ==
             7e4);
  // The older object wins as a whole when both are there, and an empty one counts as absent.
  const json both =
      with(llama(), {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}},
                     {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7.0}}}});
  BOOST_TEST(read(both).rope.type == "linear");
  BOOST_TEST(read(both).rope.theta == 1e4);
  BOOST_TEST(read(with(both, {{"rope_scaling", json::object()}})).rope.theta == 7.0);
}

BOOST_AUTO_TEST_CASE(yarn_fields) {
  const json yarn = {{"rope_type", "yarn"},
                     {"factor", nullptr},
                     {"beta_fast", 0},
                     {"original_max_position_embeddings", 64},
                     {"truncate", false}};
  const RopeSpec rope = read(with(llama(), {{"rope_parameters", yarn}})).rope;
  BOOST_TEST(rope.factor == 4.0);
  BOOST_TEST(rope.beta_fast == 32.0);
  BOOST_TEST(!rope.truncate);
  const json outer =
      with(llama(), {{"rope_parameters", yarn}, {"original_max_position_embeddings", 100}});
  BOOST_TEST(read(outer).rope.original_max_position_embeddings == 100);
}

BOOST_AUTO_TEST_CASE(activations) {
  const std::pair<const char*, const char*> rows[] = {{"silu", "silu"},
                                                      {"gelu", "gelu"},
                                                      {"gelu_new", "gelu_tanh"},
                                                      {"gelu_pytorch_tanh", "gelu_tanh"},
                                                      {"relu", "relu"}};
  for (const auto& [config_name, name] : rows) {
    BOOST_TEST(read(with(llama(), {{"hidden_act", config_name}})).hidden_act == name);
  }
}

BOOST_DATA_TEST_CASE(families_that_are_not_built,
                     boost::unit_test::data::make({"gemma4", "kimi_k25", "x"})) {
  // The family comes first: nothing else of such a config has to make sense.
  const std::string message = error_of({{"model_type", sample}});
  BOOST_TEST(message.starts_with(std::string("config.json: key 'model_type': model family '") +
                                 sample +
                                 "' is not supported yet (supported: llama, mixtral, qwen3_moe; "
                                 "only in plans: "));
  BOOST_TEST(contains(message, ", deepseek_v3, "), message);
}

struct Refusal {
  const char* name;
  json config;
  const char* expected;
};
std::ostream& operator<<(std::ostream& out, const Refusal& row) { return out << row.name; }

const Refusal kRefusals[] = {
    {"array", json::array(), "expected a JSON object"},
    {"no family", {{"vocab_size", 3}}, "'model_type' is missing"},
    {"family type", {{"model_type", 3}}, "'model_type' is 3"},
    {"jitter", with(mixtral(), {{"router_jitter_noise", 0.01}}), "'router_jitter_noise'"},
    {"quantized", with(llama(), {{"quantization_config", {{"bits", 4}}}}), "'quantization_config'"},
    {"activation", with(llama(), {{"hidden_act", "relu2"}}), "'hidden_act' is \"relu2\""},
    {"rope type", with(llama(), {{"rope_scaling", {{"type", "longrope"}}}}),
     "'rope_scaling.type' is \"longrope\""},
    {"rope shape", with(llama(), {{"rope_parameters", 7}}), "'rope_parameters' is 7"},
    {"rope factor", with(llama(), {{"rope_parameters", {{"rope_type", "linear"}}}}),
     "'rope_parameters.factor' is missing"},
    {"rope theta", with(llama(), {{"rope_theta", -1.0}}), "'rope_theta' is -1"},
    {"rope partial", with(llama(), {{"partial_rotary_factor", 0.5}}), "'partial_rotary_factor'"},
    {"rope order",
     with(llama(), {{"rope_parameters",
                     {{"rope_type", "llama3"},
                      {"factor", 8},
                      {"low_freq_factor", 4},
                      {"high_freq_factor", 4}}}}),
     "more than low_freq_factor"},
    {"zero layers", with(llama(), {{"num_hidden_layers", 0}}), "'num_hidden_layers' is 0"},
    {"many layers", with(llama(), {{"num_hidden_layers", 1e12}}), "from 1 to 1024"},
    {"huge vocab", with(llama(), {{"vocab_size", 1LL << 40}}), "'vocab_size'"},
    {"negative hidden", with(llama(), {{"hidden_size", -32}}), "'hidden_size' is -32"},
    {"text size", with(llama(), {{"hidden_size", "32"}}), "'hidden_size' is \"32\""},
    {"missing ffn",
     [] {
       json c = llama();
       c.erase("intermediate_size");
       return c;
     }(),
     "'intermediate_size' is missing"},
    {"Megatron's layers",
     [] {
       json c = llama();
       c.erase("num_hidden_layers");
       c["num_layers"] = 4;
       return c;
     }(),
     "'num_hidden_layers' is missing, expected an integer from 1 to 1024; you wrote 'num_layers'"},
    {"kv heads", with(llama(), {{"num_key_value_heads", 3}}), "a divisor of num_attention_heads"},
    {"more kv heads", with(llama(), {{"num_key_value_heads", 8}}), "'num_key_value_heads' is 8"},
    {"odd head", with(llama(), {{"head_dim", 7}}), "even head_dim"},
    {"odd derived head", with(llama(), {{"hidden_size", 36}}), "even head_dim"},
    {"ragged heads", with(llama(), {{"hidden_size", 34}}), "a divisor of hidden_size"},
    {"top-k", with(mixtral(), {{"num_experts_per_tok", 9}}), "'num_experts_per_tok' is 9"},
    {"no experts", with(mixtral(), {{"num_local_experts", 0}}), "'num_local_experts' is 0"},
    {"sparse step", with(qwen3_moe(), {{"decoder_sparse_step", 0}}), "'decoder_sparse_step' is 0"},
    {"dense layers", with(qwen3_moe(), {{"mlp_only_layers", {1, "x"}}}), "'mlp_only_layers[1]'"},
    {"bias type", with(llama(), {{"attention_bias", 1}}), "'attention_bias' is 1"},
    {"too large",
     with(qwen3_moe(), {{"num_hidden_layers", 1024},
                        {"hidden_size", 1 << 20},
                        {"head_dim", 8},
                        {"num_experts", 1 << 14},
                        {"moe_intermediate_size", 1 << 22}}),
     "parameters, expected at most"},
};

BOOST_DATA_TEST_CASE(refusals_name_the_key, boost::unit_test::data::make(kRefusals)) {
  const std::string message = error_of(sample.config);
  BOOST_TEST_INFO(message);
  BOOST_TEST(contains(message, "config.json: "));
  BOOST_TEST(contains(message, sample.expected));
}

BOOST_AUTO_TEST_CASE(writing_and_reading_again_changes_nothing) {
  const json yarn = {{"rope_type", "yarn"},     {"factor", 4.0},
                     {"mscale", 1.0},           {"mscale_all_dim", 0.5},
                     {"attention_factor", 1.5}, {"original_max_position_embeddings", 64}};
  const json configs[] = {
      llama(),
      with(llama(), {{"attention_bias", true}, {"mlp_bias", true}, {"rope_parameters", yarn}}),
      with(llama(), {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}),
      with(mixtral(), {{"sliding_window", 6}, {"shared_expert_intermediate_size", 8}}),
      with(mixtral(), {{"hidden_act", "gelu_new"}, {"tie_word_embeddings", true}}),
      with(qwen3_moe(), {{"mlp_only_layers", {0, 2}}, {"norm_topk_prob", false}}),
      with(qwen3_moe(), {{"num_experts", 0}}),
      with(qwen3_moe(),
           {{"use_sliding_window", true},
            {"sliding_window", 5},
            {"layer_types",
             {"full_attention", "sliding_attention", "full_attention", "full_attention"}}}),
  };
  for (const json& config : configs) {
    const ModelSpec once = read(config);
    const ModelSpec twice = read(to_json(once));
    BOOST_TEST(to_json(once) == to_json(twice));
    BOOST_TEST(once.num_parameters() == twice.num_parameters());
    BOOST_TEST(once.attention_window == twice.attention_window, boost::test_tools::per_element());
    BOOST_TEST(once.is_moe_layer == twice.is_moe_layer);
    BOOST_TEST(once.hidden_act == twice.hidden_act);
    BOOST_TEST(once.normalizes_topk == twice.normalizes_topk);
    BOOST_TEST(once.rope.attention_factor == twice.rope.attention_factor);
    BOOST_TEST(once.has_attention_output_bias == twice.has_attention_output_bias);
  }
}

/// Every field of every sample replaced by every kind of value: a spec or a message, never anything
/// else.
BOOST_AUTO_TEST_CASE(no_value_of_any_field_gets_past_the_checks) {
  const json values[] = {nullptr,
                         true,
                         0,
                         -1,
                         1,
                         3,
                         1e308,
                         -1e308,
                         (1LL << 62),
                         ~0ULL,
                         0.5,
                         "",
                         "x",
                         json::array(),
                         json::array({1, nullptr}),
                         json::object(),
                         json{{"rope_type", "yarn"}, {"factor", 0}}};
  for (const json& base : {llama(), mixtral(), qwen3_moe()}) {
    json keys = base;
    for (const char* key : {"head_dim", "rope_scaling", "rope_parameters", "rope_theta",
                            "sliding_window", "use_sliding_window", "layer_types", "hidden_act",
                            "mlp_only_layers", "decoder_sparse_step", "tie_word_embeddings",
                            "shared_expert_intermediate_size", "initializer_range"}) {
      keys[key] = 0;
    }
    for (const auto& [key, unused] : keys.items()) {
      for (const json& value : values) {
        BOOST_TEST_CONTEXT(key << " = " << value) {
          try {
            const ModelSpec model = read(with(base, {{key, value}}));
            BOOST_TEST(model.num_parameters() > 0);
            BOOST_TEST(model.training_flops_per_token(128) > 0);
            BOOST_TEST(make_rope_table(model, 8).cos.size() ==
                       static_cast<size_t>(8 * model.head_dim / 2));
          } catch (const base::UsageError& error) {
            BOOST_TEST(contains(error.what(), "config.json"));
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
