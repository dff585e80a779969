// Families that only plans know: what their fields mean, that writing and reading again changes
// nothing, and what is refused.
#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <limits>

#include "tests/spec/family_samples.h"

namespace moetune::spec {

using samples::contains;
using samples::json;
using samples::usage_error;
using namespace family_samples;
namespace data = boost::unit_test::data;

BOOST_AUTO_TEST_SUITE(hf_families)

namespace {

ModelSpec read(const json& config) { return model_from_json(config, "config.json"); }

std::string error_of(const json& config) {
  return usage_error([&] { read(config); });
}

using Windows = std::vector<int64_t>;

}  // namespace

// A llama with a window on all layers: 4096 keys where nothing is said, null for none.
BOOST_AUTO_TEST_CASE(mistral_is_a_llama_with_windows) {
  const json config = {
      {"model_type", "mistral"},    {"vocab_size", 32000},         {"hidden_size", 4096},
      {"intermediate_size", 14336}, {"num_hidden_layers", 32},     {"num_attention_heads", 32},
      {"num_key_value_heads", 8},   {"head_dim", nullptr},         {"rms_norm_eps", 1e-5},
      {"rope_theta", 10000.0},      {"attention_dropout", 0.0},    {"hidden_act", "silu"},
      {"sliding_window", nullptr},  {"tie_word_embeddings", false}};
  const ModelSpec m = read(config);
  // Embedding and head, norms, and of each layer q and o, k and v, the MLP.
  constexpr int64_t kLayer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096;
  BOOST_TEST(m.num_parameters() == 2 * 32000 * 4096 + 4096 + 32 * kLayer);
  BOOST_TEST(m.num_parameters() == 7'241'732'096);  // as its card counts them
  const ModelSpec llama = read(with(config, {{"model_type", "llama"}}));
  BOOST_TEST(m.num_parameters() == llama.num_parameters());
  BOOST_TEST(m.training_flops_per_token(4096) == llama.training_flops_per_token(4096));
  BOOST_TEST(m.attention_window == Windows(32, 0), boost::test_tools::per_element());
  BOOST_TEST(!m.has_attention_bias);
  BOOST_TEST(!m.has_qk_norm);
  BOOST_TEST(read(with(config, {{"sliding_window", 512}})).attention_window == Windows(32, 512),
             boost::test_tools::per_element());
  const ModelSpec first = read(without(config, "sliding_window"));
  BOOST_TEST(first.attention_window == Windows(32, 4096), boost::test_tools::per_element());
  BOOST_TEST(first.max_position_embeddings == 131072);
  BOOST_TEST(read(plain("mistral")).rms_norm_eps == 1e-6);
  // What has no window is written so that it comes back without.
  BOOST_TEST(to_json(m)["sliding_window"].is_null());
  BOOST_TEST(to_json(m).contains("sliding_window"));
}

BOOST_AUTO_TEST_CASE(qwen2_and_qwen3) {
  const ModelSpec qwen2 = read(plain("qwen2"));
  BOOST_TEST(qwen2.has_attention_bias);
  BOOST_TEST(!qwen2.has_attention_output_bias);
  BOOST_TEST(!qwen2.has_qk_norm);
  BOOST_TEST(!read(with(plain("qwen2"), {{"attention_bias", false}})).has_attention_bias);
  const ModelSpec qwen3 = read(plain("qwen3"));
  BOOST_TEST(!qwen3.has_attention_bias);
  BOOST_TEST(qwen3.has_qk_norm);
  BOOST_TEST(qwen3.layer_kinds.empty());
  const json used = with(plain("qwen3"), {{"use_sliding_window", true}, {"sliding_window", 6}});
  BOOST_TEST(read(used).attention_window == Windows(4, 0), boost::test_tools::per_element());
  BOOST_TEST(read(with(used, {{"max_window_layers", 2}})).attention_window == (Windows{0, 0, 6, 6}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(qwen2_moe_has_a_gated_shared_expert) {
  const ModelSpec m = read(qwen2_moe());
  BOOST_TEST(m.has_shared_gate);
  BOOST_TEST(m.shared_ffn_size == 24);
  BOOST_TEST(m.has_attention_bias);
  BOOST_TEST(!m.normalizes_topk);
  BOOST_TEST(!read(with(qwen2_moe(), {{"shared_expert_gate", false}})).has_shared_gate);
  BOOST_TEST(!read(with(qwen2_moe(), {{"qkv_bias", false}})).has_attention_bias);
  const ModelSpec alone = read(with(qwen2_moe(), {{"shared_expert_intermediate_size", 0}}));
  BOOST_TEST(!alone.has_shared_gate);
  const json used = with(qwen2_moe(), {{"use_sliding_window", true}, {"max_window_layers", 3}});
  BOOST_TEST(read(used).attention_window == (Windows{4096, 0, 4096, 0}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(qwen3_next_layers) {
  const ModelSpec m = read(qwen3_next());
  BOOST_TEST(m.has_attention_gate);
  BOOST_TEST(m.has_qk_norm);
  BOOST_TEST(m.has_shared_gate);
  BOOST_TEST(m.normalizes_topk);
  BOOST_TEST(m.rope.rotary_ratio == 0.25);
  BOOST_TEST(m.gdn.key_size() == 16);
  BOOST_TEST(m.gdn.value_size() == 32);
  BOOST_TEST((m.kind_of(2) == LayerKind{Mixer::gdn, FeedForward::moe}));
  BOOST_TEST((m.kind_of(3) == LayerKind{Mixer::gqa, FeedForward::moe}));
  BOOST_TEST(m.num_moe_layers() == 4);
  const ModelSpec typed = read(with(
      qwen3_next(), {{"layer_types",
                      {"full_attention", "linear_attention", "linear_attention", "full_attention"}},
                     {"mlp_only_layers", {0}},
                     {"mtp_num_hidden_layers", 1}}));
  BOOST_TEST((typed.kind_of(0) == LayerKind{Mixer::gqa, FeedForward::dense}));
  BOOST_TEST((typed.kind_of(1) == LayerKind{Mixer::gdn, FeedForward::moe}));
  BOOST_REQUIRE(typed.mtp.layers.size() == 1U);
  BOOST_TEST((typed.mtp.layers[0] == LayerKind{Mixer::gqa, FeedForward::moe}));
  const ModelSpec dense = read(with(qwen3_next(), {{"model_type", "qwen3_5_text"}}));
  BOOST_TEST(dense.num_experts == 0);
  BOOST_TEST((dense.kind_of(0) == LayerKind{Mixer::gdn, FeedForward::dense}));
  BOOST_TEST(read(with(qwen3_next(), {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}}))
                 .rope.rotary_ratio == 0.5);
}

BOOST_AUTO_TEST_CASE(the_text_part_of_a_multimodal_model) {
  json text = with(qwen3_next(), {{"model_type", "qwen3_5_moe_text"}});
  const json config = {{"model_type", "qwen3_5_moe"},
                       {"tie_word_embeddings", true},
                       {"text_config", text},
                       {"vision_config", {{"depth", 27}}}};
  const ModelSpec m = read(config);
  BOOST_TEST(m.family == "qwen3_5_moe_text");
  BOOST_TEST(m.ties_embeddings);
  text["tie_word_embeddings"] = false;
  BOOST_TEST(!read(with(config, {{"text_config", text}})).ties_embeddings);
  // Flat, as published runs have it.
  const ModelSpec flat = read(with(text, {{"model_type", "qwen3_5_moe"}}));
  BOOST_TEST(flat.num_parameters() == read(with(config, {{"text_config", text}})).num_parameters());
  text["hidden_size"] = 0;
  BOOST_TEST(contains(error_of(with(config, {{"text_config", text}})),
                      "config.json: key 'text_config.hidden_size' is 0"));
  BOOST_TEST(contains(error_of(with(config, {{"text_config", 3}})), "'text_config' is 3"));
  text["model_type"] = "gemma3_text";
  BOOST_TEST(contains(error_of(with(config, {{"text_config", text}})),
                      "key 'text_config.model_type': model family 'gemma3_text'"));
  const json kimi = {{"model_type", "kimi_k25"},
                     {"text_config", with(deepseek_v3(), {{"model_type", "kimi_k2"}})}};
  BOOST_TEST(read(kimi).family == "kimi_k2");
  // Not a key of other families.
  BOOST_TEST(read(with(samples::llama(), {{"text_config", text}})).family == "llama");
}

BOOST_AUTO_TEST_CASE(deepseek_layers_heads_and_experts) {
  const ModelSpec m = read(deepseek_v3());
  BOOST_TEST(m.mla.qk_head_dim() == 12);
  BOOST_TEST(m.head_dim == 12);
  BOOST_TEST(m.num_kv_heads == 4);
  BOOST_TEST(m.shared_ffn_size == 32);
  BOOST_TEST(m.has_router_bias);
  BOOST_TEST(m.normalizes_topk);
  const std::vector<bool> expected = {false, true, true, true};
  BOOST_TEST(m.is_moe_layer == expected);
  BOOST_TEST((m.kind_of(0) == LayerKind{Mixer::mla, FeedForward::dense}));
  BOOST_TEST((m.kind_of(3) == LayerKind{Mixer::mla, FeedForward::moe}));
  BOOST_TEST(m.mtp.depth == 0);
  const ModelSpec v2 = read(with(deepseek_v3(), {{"model_type", "deepseek_v2"},
                                                 {"q_lora_rank", nullptr},
                                                 {"n_shared_experts", nullptr},
                                                 {"moe_layer_freq", 2},
                                                 {"num_nextn_predict_layers", 2}}));
  BOOST_TEST(v2.mla.q_lora_rank == 0);
  BOOST_TEST(v2.shared_ffn_size == 0);
  BOOST_TEST(!v2.has_router_bias);
  BOOST_TEST(v2.num_moe_layers() == 1);
  BOOST_TEST(v2.mtp.depth == 2);
  BOOST_TEST((v2.mtp.layers == std::vector<LayerKind>{{Mixer::mla, FeedForward::dense}}));
  BOOST_TEST(read(with(deepseek_v3(), {{"topk_method", "greedy"}})).has_router_bias == false);
  // The published files have their weights in 8 bits.
  BOOST_TEST(read(with(deepseek_v3(), {{"quantization_config", {{"bits", 8}}}})).num_experts == 8);
  const ModelSpec dense = read(with(deepseek_v3(), {{"first_k_dense_replace", 9}}));
  BOOST_TEST(dense.num_experts == 0);
}

BOOST_AUTO_TEST_CASE(gpt_oss_windows_sinks_and_biases) {
  const ModelSpec m = read(gpt_oss());
  BOOST_TEST(m.has_attention_sinks);
  BOOST_TEST(m.has_expert_bias);
  BOOST_TEST(!m.has_mlp_bias);
  BOOST_TEST(m.has_attention_bias);
  BOOST_TEST(m.has_attention_output_bias);
  BOOST_TEST(m.moe_ffn_size == 48);
  BOOST_TEST(m.ffn_size == 0);
  BOOST_TEST(m.rope.theta == 150000.0);
  BOOST_TEST(m.attention_window == (Windows{128, 0, 128, 0}), boost::test_tools::per_element());
  BOOST_TEST(read(with(gpt_oss(), {{"sliding_window", nullptr}})).attention_window == Windows(4, 0),
             boost::test_tools::per_element());
  BOOST_TEST(!read(with(gpt_oss(), {{"mlp_bias", false}})).has_expert_bias);
}

BOOST_AUTO_TEST_CASE(nemotron_patterns) {
  const ModelSpec m = read(nemotron_h());
  BOOST_TEST(m.num_layers == 5);
  const std::vector<LayerKind> expected = {{Mixer::mamba, FeedForward::none},
                                           {Mixer::none, FeedForward::moe},
                                           {Mixer::gqa, FeedForward::none},
                                           {Mixer::none, FeedForward::dense},
                                           {Mixer::mamba, FeedForward::none}};
  BOOST_TEST((m.layer_kinds == expected));
  const std::vector<bool> is_moe = {false, true, false, false, false};
  BOOST_TEST(m.is_moe_layer == is_moe);
  BOOST_TEST(m.ffn_size == 48);
  BOOST_TEST(m.mamba.inner_size() == 32);
  BOOST_TEST(!m.has_gated_mlp);
  BOOST_TEST(m.has_router_bias);
  BOOST_TEST(m.hidden_act == "relu2");
  BOOST_TEST(m.rope.type == "none");
  BOOST_TEST(!m.has_learned_positions);
  json words = without(nemotron_h(), "hybrid_override_pattern");
  words["layers_block_type"] = {"mamba", "moe", "full_attention", "mlp", "linear_attention"};
  BOOST_TEST((read(words).layer_kinds == expected));
  const ModelSpec mtp = read(with(nemotron_h(), {{"num_nextn_predict_layers", 2},
                                                 {"mtp_use_repeated_layer", true},
                                                 {"moe_latent_size", 8},
                                                 {"n_shared_experts", 0}}));
  BOOST_TEST(mtp.mtp.depth == 2);
  BOOST_TEST(mtp.mtp.repeats_layer);
  BOOST_TEST((mtp.mtp.layers == std::vector<LayerKind>{{Mixer::gqa, FeedForward::none},
                                                       {Mixer::none, FeedForward::moe}}));
  BOOST_TEST(mtp.moe_latent_size == 8);
  BOOST_TEST(mtp.shared_ffn_size == 0);
  // No keys of what the pattern does not have.
  json dense = plain("nemotron_h");
  dense["hybrid_override_pattern"] = "*-*-";
  BOOST_TEST(read(dense).num_experts == 0);
  dense["mlp_hidden_act"] = "silu";
  dense["hidden_act"] = "gelu";
  BOOST_TEST(read(dense).hidden_act == "silu");
}

BOOST_AUTO_TEST_CASE(plain_gpt) {
  const ModelSpec m = read(gpt2());
  BOOST_TEST(m.has_layer_norm);
  BOOST_TEST(m.has_learned_positions);
  BOOST_TEST(!m.has_gated_mlp);
  BOOST_TEST(m.has_mlp_bias);
  BOOST_TEST(m.has_attention_output_bias);
  BOOST_TEST(m.ties_embeddings);
  BOOST_TEST(m.hidden_dropout == 0.1);
  BOOST_TEST(m.attention_dropout == 0.1);
  const ModelSpec published = read(gpt2_as_published());
  BOOST_TEST(published.hidden_size == 32);
  BOOST_TEST(published.num_layers == 2);
  BOOST_TEST(published.ffn_size == 128);
  BOOST_TEST(published.max_position_embeddings == 16);
  BOOST_TEST(published.hidden_dropout == 0.2);
  BOOST_TEST(published.attention_dropout == 0.3);
  BOOST_TEST(published.rms_norm_eps == 1e-4);
  BOOST_TEST(published.hidden_act == "gelu_tanh");
  BOOST_TEST(contains(error_of(with(gpt2_as_published(), {{"n_embd", -1}})), "'n_embd' is -1"));
  const ModelSpec other = read(with(plain("megatron_gpt"), {{"norm", "rmsnorm"},
                                                            {"position_embedding", "rope"},
                                                            {"use_bias", false},
                                                            {"gated_mlp", true},
                                                            {"tie_word_embeddings", false},
                                                            {"hidden_dropout", 0},
                                                            {"attention_dropout", 0.0},
                                                            {"hidden_act", "relu2"},
                                                            {"padded_vocab_size", 128}}));
  BOOST_TEST(!other.has_layer_norm);
  BOOST_TEST(other.rope.type == "default");
  BOOST_TEST(!other.has_mlp_bias);
  BOOST_TEST(other.has_gated_mlp);
  BOOST_TEST(other.vocab_rows() == 128);
  BOOST_TEST(other.hidden_act == "relu2");
  const ModelSpec moe = read(megatron_moe());
  BOOST_TEST(moe.moe_ffn_size == 48);
  BOOST_TEST(moe.num_moe_layers() == 4);
  BOOST_TEST(!moe.has_attention_bias);
}

BOOST_AUTO_TEST_CASE(keys_of_plans_in_a_family_of_the_engine) {
  const json as_published = with(samples::mixtral(), {{"gated_mlp", true},
                                                      {"norm", "rmsnorm"},
                                                      {"use_bias", false},
                                                      {"use_qk_norm", false},
                                                      {"position_embedding", "rope"},
                                                      {"padded_vocab_size", 64},
                                                      {"hidden_dropout", 0.0}});
  BOOST_TEST(engine_gap(read(as_published)) == "");
  BOOST_TEST(to_json(read(as_published)) == to_json(read(samples::mixtral())));
  const std::pair<json, const char*> gaps[] = {
      {{{"gated_mlp", false}}, "an MLP without a gate"},
      {{{"norm", "layernorm"}}, "LayerNorm"},
      {{{"position_embedding", "learned"}}, "a learned embedding of positions"},
      {{{"position_embedding", "none"}}, "a model without positions"},
      {{{"padded_vocab_size", 128}}, "a padded vocabulary"},
      {{{"hidden_dropout", 0.1}}, "dropout"},
      {{{"attention_dropout", 0.1}}, "dropout"},
      {{{"num_nextn_predict_layers", 1}}, "multi-token prediction"},
      {{{"moe_latent_size", 16}}, "an expert on a latent width"},
  };
  for (const auto& [changes, what] : gaps) {
    BOOST_TEST(engine_gap(read(with(samples::mixtral(), changes))) ==
               std::string(what) + " is planned, not run, by the engine yet");
  }
}

BOOST_AUTO_TEST_CASE(what_the_engine_does_not_run) {
  const std::pair<json, const char*> gaps[] = {
      {plain("mistral"), "the family mistral"}, {plain("qwen2"), "the family qwen2"},
      {plain("qwen3"), "the family qwen3"},     {qwen2_moe(), "a gate on the shared expert"},
      {qwen3_next(), "Gated DeltaNet"},         {deepseek_v3(), "multi-head latent attention"},
      {gpt_oss(), "attention with sinks"},      {nemotron_h(), "Mamba-2"},
      {gpt2(), "an MLP without a gate"},
  };
  for (const auto& [config, what] : gaps) {
    BOOST_TEST(engine_gap(read(config)) ==
               std::string(what) + " is planned, not run, by the engine yet");
  }
  for (const json& config : {samples::llama(), samples::mixtral(), samples::qwen3_moe()}) {
    BOOST_TEST(engine_gap(read(config)) == "");
    refuse_engine_gap(read(config), "config.json");
  }
  BOOST_TEST(contains(
      usage_error([] { refuse_engine_gap(read(gpt_oss()), "config.json"); }),
      "config.json: key 'model_type' is \"gpt_oss\": attention with sinks is planned, not run"));
}

BOOST_DATA_TEST_CASE(writing_and_reading_again_changes_nothing, data::make(all_samples())) {
  const json changes[] = {
      json::object(),
      {{"num_nextn_predict_layers", 1}, {"padded_vocab_size", 128}},
      {{"attention_dropout", 0.5}, {"hidden_dropout", 0}, {"tie_word_embeddings", true}},
      {{"use_qk_norm", true}, {"gated_mlp", true}, {"norm", "layernorm"}},
      {{"position_embedding", "rope"}, {"partial_rotary_factor", 1}, {"topk_method", "noaux_tc"}},
      {{"position_embedding", "none"}, {"attn_output_gate", true}, {"attention_sinks", true}},
      {{"moe_latent_size", 16}, {"norm_topk_prob", false}, {"shared_expert_gate", false}},
      {{"use_sliding_window", true}, {"sliding_window", 5}, {"max_window_layers", 1}},
      {{"sliding_window", nullptr}, {"n_shared_experts", 0}, {"num_experts_per_tok", 1}},
      {{"mtp_num_hidden_layers", 2}, {"mtp_hybrid_override_pattern", "M*-E"}},
      {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 4}}}},
      {{"first_k_dense_replace", 2}, {"moe_layer_freq", 2}, {"decoder_sparse_step", 2}},
      {{"first_k_dense_replace", 3}, {"moe_layer_freq", 3}, {"mlp_only_layers", {0}}},
      {{"first_k_dense_replace", 0}, {"moe_layer_freq", 7}},
      {{"first_k_dense_replace", 7}, {"n_routed_experts", 0}, {"num_experts", 0}},
      {{"use_bias", false}, {"attention_bias", false}},
      {{"mlp_layer_types", {"sparse", "dense", "sparse", "sparse"}}},
      {{"rope_scaling", {{"type", "su"}}}, {"use_routing_bias", true}},
      {{"no_rope_layers", {0, 1, 1, 0}}, {"attention_chunk_size", 9}},
      {{"moe_layers", {1, 2}}, {"moe_layer_start_index", 2}, {"moe_layer_end_index", 2}},
      {{"moe_layer_start_index", 0}, {"interleave_moe_layer_step", 2}},
  };
  for (const json& change : changes) {
    const json config = with(sample, change);
    if (!error_of(config).empty()) continue;
    BOOST_TEST_CONTEXT(change) {
      const ModelSpec once = read(config);
      const ModelSpec twice = read(to_json(once));
      BOOST_TEST(to_json(once) == to_json(twice));
      BOOST_TEST(once.num_parameters() == twice.num_parameters());
      BOOST_TEST(once.num_mtp_parameters() == twice.num_mtp_parameters());
      BOOST_TEST(once.training_flops_per_token(64) == twice.training_flops_per_token(64));
      BOOST_TEST(once.attention_window == twice.attention_window, boost::test_tools::per_element());
      BOOST_TEST(once.is_moe_layer == twice.is_moe_layer);
      BOOST_TEST((once.layer_kinds == twice.layer_kinds));
      BOOST_TEST((once.mtp.layers == twice.mtp.layers));
      BOOST_TEST(engine_gap(once) == engine_gap(twice));
      BOOST_TEST(once.rope.type == twice.rope.type);
      BOOST_TEST(once.rope.rotary_ratio == twice.rope.rotary_ratio);
      BOOST_TEST(once.has_router_bias == twice.has_router_bias);
      BOOST_TEST(once.has_expert_bias == twice.has_expert_bias);
      BOOST_TEST(once.has_attention_bias == twice.has_attention_bias);
      BOOST_TEST(once.has_attention_output_bias == twice.has_attention_output_bias);
      BOOST_TEST(once.normalizes_topk == twice.normalizes_topk);
      BOOST_TEST(once.attention_dropout == twice.attention_dropout);
      BOOST_TEST(once.hidden_dropout == twice.hidden_dropout);
      BOOST_TEST(once.hidden_act == twice.hidden_act);
    }
  }
}

BOOST_AUTO_TEST_CASE(shipped_models_are_read_and_written) {
  const std::string folder = std::string(MOETUNE_SOURCE_DIR) + "/engine/models";
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const ModelSpec model = samples::committed_model(entry.path().stem());
    BOOST_TEST(to_json(read(to_json(model))) == to_json(model), entry.path());
    ++count;
  }
  BOOST_TEST(count >= 20U);
}

namespace {

struct Refusal {
  const char* name;
  json config;
  const char* expected;
};
std::ostream& operator<<(std::ostream& out, const Refusal& row) { return out << row.name; }

const Refusal kRefusals[] = {
    {"deepseek_v4", with(deepseek_v3(), {{"model_type", "deepseek_v4"}}), "are not modelled"},
    {"no rank", without(deepseek_v3(), "kv_lora_rank"), "'kv_lora_rank' is missing"},
    {"no value heads", without(deepseek_v3(), "v_head_dim"), "'v_head_dim' is missing"},
    {"odd rope", with(deepseek_v3(), {{"qk_rope_head_dim", 3}}), "'qk_rope_head_dim' is 3"},
    {"no shared count", without(deepseek_v3(), "n_shared_experts"),
     "'n_shared_experts' is missing"},
    {"no dense count", without(deepseek_v3(), "first_k_dense_replace"),
     "'first_k_dense_replace' is missing"},
    {"no experts", without(deepseek_v3(), "n_routed_experts"), "'n_routed_experts' is missing"},
    {"two counts", with(deepseek_v3(), {{"num_experts", 4}}), "the same as n_routed_experts (8)"},
    {"top-k", with(deepseek_v3(), {{"num_experts_per_tok", 9}}), "'num_experts_per_tok' is 9"},
    {"mla bias", with(deepseek_v3(), {{"attention_bias", true}}), "'attention_bias' is true"},
    {"step", with(deepseek_v3(), {{"moe_layer_freq", 0}}), "'moe_layer_freq' is 0"},
    {"mtp depth", with(deepseek_v3(), {{"num_nextn_predict_layers", 65}}),
     "'num_nextn_predict_layers' is 65"},
    {"two depths",
     with(deepseek_v3(), {{"num_nextn_predict_layers", 1}, {"mtp_num_hidden_layers", 2}}),
     "the same as num_nextn_predict_layers (1)"},
    {"no shared width", without(qwen3_next(), "shared_expert_intermediate_size"),
     "'shared_expert_intermediate_size' is missing"},
    {"delta heads", with(qwen3_next(), {{"linear_num_value_heads", 3}}),
     "a multiple of linear_num_key_heads (2)"},
    {"no delta heads", without(qwen3_next(), "linear_num_key_heads"),
     "'linear_num_key_heads' is missing"},
    {"interval", with(qwen3_next(), {{"full_attention_interval", 0}}),
     "'full_attention_interval' is 0"},
    {"few types", with(qwen3_next(), {{"layer_types", {"full_attention"}}}), "4 entries"},
    {"type",
     with(qwen3_next(),
          {{"layer_types", {"full_attention", "sliding_attention", "full_attention", 1}}}),
     "layer_types[1]"},
    {"no pattern", without(nemotron_h(), "hybrid_override_pattern"),
     "'hybrid_override_pattern' is missing"},
    {"empty pattern", with(nemotron_h(), {{"hybrid_override_pattern", ""}}), "has 0 letters"},
    {"letter", with(nemotron_h(), {{"hybrid_override_pattern", "MX"}}), "letter 1 is \"X\""},
    {"byte", with(nemotron_h(), {{"hybrid_override_pattern", "M\xff"}}), "letter 1 is "},
    {"long pattern", with(nemotron_h(), {{"hybrid_override_pattern", std::string(1 << 20, 'M')}}),
     "has 1048576 letters, expected 1 to 1024"},
    {"pattern type", with(nemotron_h(), {{"hybrid_override_pattern", {"M"}}}),
     "'hybrid_override_pattern' is "},
    {"other layers", with(nemotron_h(), {{"num_hidden_layers", 4}}), "as many as the pattern has"},
    {"word", with(nemotron_h(), {{"layers_block_type", {"mamba", "rnn"}}}), "layers_block_type[1]"},
    {"many words",
     with(nemotron_h(), {{"layers_block_type", std::vector<std::string>(2000, "moe")}}),
     "has 2000 entries"},
    {"mtp pattern",
     with(nemotron_h(),
          {{"num_nextn_predict_layers", 1}, {"mtp_hybrid_override_pattern", std::string(65, 'E')}}),
     "has 65 letters, expected 1 to 64"},
    {"no mamba", without(nemotron_h(), "ssm_state_size"), "'ssm_state_size' is missing"},
    {"mamba groups", with(nemotron_h(), {{"n_groups", 3}}), "a multiple of n_groups (3)"},
    {"no E", with(nemotron_h(), {{"n_routed_experts", 0}}), "at least 1 with an E"},
    {"bias", with(nemotron_h(), {{"use_bias", true}}), "'use_bias' is true"},
    {"mlp bias", with(nemotron_h(), {{"mlp_bias", true}}), "'mlp_bias' is true"},
    {"expert bias", with(megatron_moe(), {{"use_bias", true}}), "'use_bias' is true"},
    {"positions", with(gpt2(), {{"position_embedding", "alibi"}}), "'position_embedding' is"},
    {"norm", with(gpt2(), {{"norm", "batchnorm"}}), "'norm' is \"batchnorm\""},
    {"padding", with(gpt2(), {{"padded_vocab_size", 63}}), "at least vocab_size (64)"},
    {"dropout", with(gpt2(), {{"hidden_dropout", 1.5}}), "'hidden_dropout' is 1.5"},
    {"nan", with(gpt2(), {{"hidden_dropout", std::numeric_limits<double>::quiet_NaN()}}),
     "'hidden_dropout' is "},
    {"activation", with(gpt2(), {{"hidden_act", "mish"}}), "'hidden_act' is \"mish\""},
};

/// Every size at its limit.
json largest(json config) {
  const std::pair<const char*, int64_t> sizes[] = {{"hidden_size", 1 << 20},
                                                   {"vocab_size", 1 << 22},
                                                   {"num_attention_heads", 1 << 14},
                                                   {"intermediate_size", 1 << 22},
                                                   {"moe_intermediate_size", 1 << 22},
                                                   {"q_lora_rank", 1 << 20},
                                                   {"kv_lora_rank", 1 << 20},
                                                   {"qk_nope_head_dim", 1 << 13},
                                                   {"qk_rope_head_dim", 1 << 13},
                                                   {"v_head_dim", 1 << 13},
                                                   {"linear_num_key_heads", 1 << 14},
                                                   {"linear_num_value_heads", 1 << 14},
                                                   {"linear_key_head_dim", 1 << 13},
                                                   {"linear_value_head_dim", 1 << 13},
                                                   {"mamba_num_heads", 1 << 14},
                                                   {"mamba_head_dim", 1 << 13},
                                                   {"ssm_state_size", 1 << 13},
                                                   {"n_groups", 1 << 14},
                                                   {"d_model", 1 << 20},
                                                   {"n_heads", 1 << 14}};
  for (const auto& [key, value] : sizes) {
    if (config.contains(key)) config[key] = value;
  }
  config["head_dim"] = 1 << 13;
  return config;
}

}  // namespace

BOOST_DATA_TEST_CASE(refusals_name_the_key, data::make(kRefusals)) {
  const std::string message = error_of(sample.config);
  BOOST_TEST_INFO(message);
  BOOST_TEST(message.starts_with("config.json: "));
  BOOST_TEST(contains(message, sample.expected));
  BOOST_TEST(message.size() < 2000U);
}

BOOST_DATA_TEST_CASE(sizes_that_are_legal_alone_are_too_large_together, data::make(all_samples())) {
  BOOST_TEST(contains(error_of(largest(sample)), "parameters, expected at most"));
}

/// As in hf_config_test: every field replaced by every kind of value gives a spec or a message.
BOOST_DATA_TEST_CASE(no_value_of_any_field_gets_past_the_checks, data::make(all_samples())) {
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
                         "M*",
                         1 << 13,
                         json::array({"full_attention", "moe"}),
                         json::array({2, 2, 2, 2}),
                         json::array({1, 0, 1, 1})};
  json keys = sample;
  for (const char* key : {"head_dim",
                          "rope_parameters",
                          "layer_types",
                          "hidden_act",
                          "gated_mlp",
                          "norm",
                          "padded_vocab_size",
                          "position_embedding",
                          "attention_dropout",
                          "moe_latent_size",
                          "num_nextn_predict_layers",
                          "mtp_hybrid_override_pattern",
                          "layers_block_type",
                          "partial_rotary_factor",
                          "topk_method",
                          "shared_expert_gate",
                          "max_window_layers",
                          "text_config",
                          "use_bias",
                          "mlp_only_layers",
                          "decoder_sparse_step",
                          "moe_layer_freq",
                          "mlp_layer_types",
                          "moe_layers",
                          "no_rope_layers",
                          "use_routing_bias",
                          "rope_scaling"}) {
    keys[key] = 0;
  }
  for (const auto& [key, unused] : keys.items()) {
    for (const json& value : values) {
      BOOST_TEST_CONTEXT(key << " = " << value) {
        try {
          const ModelSpec model = read(with(sample, {{key, value}}));
          BOOST_TEST(model.num_parameters() > 0);
          BOOST_TEST(model.num_mtp_parameters() >= 0);
          BOOST_TEST(model.training_flops_per_token(128) > 0);
          BOOST_TEST(to_json(read(to_json(model))) == to_json(model));
        } catch (const base::UsageError& error) {
          BOOST_TEST(contains(error.what(), "config.json"));
        }
      }
    }
  }
}

// A run may train another depth than its model's file has.
BOOST_AUTO_TEST_CASE(another_depth_is_as_a_file_with_it) {
  for (const json& config : {deepseek_v3(), nemotron_h()}) {
    const ModelSpec from_file = read(with(config, {{"num_nextn_predict_layers", 2}}));
    ModelSpec model = read(config);
    BOOST_TEST_REQUIRE(model.mtp.depth == 0);
    set_mtp_depth(model, 2);
    BOOST_TEST(model.mtp.depth == 2);
    BOOST_TEST((model.mtp.layers == from_file.mtp.layers));
    BOOST_TEST(model.num_mtp_parameters() == from_file.num_mtp_parameters());
    set_mtp_depth(model, 0);
    BOOST_TEST(model.num_mtp_parameters() == 0);
    for (const int64_t depth : {-1, 65}) {
      const std::string message = usage_error([&] { set_mtp_depth(model, depth); });
      BOOST_TEST(contains(message, "expected 0 to 64"), message);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec
