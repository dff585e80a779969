// The model on the way: what a config.json says comes back from the words of Megatron.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "engine/spec/dialects/layer_pattern.h"
#include "tests/spec/dialects/dialect_samples.h"

namespace moetune::spec::dialects {
BOOST_AUTO_TEST_SUITE(models_of_dialects)

namespace {

using nlohmann::json;

json decoder(json others) {
  json model = {{"hidden_size", 64},           {"num_hidden_layers", 4}, {"num_attention_heads", 8},
                {"num_key_value_heads", 2},    {"head_dim", 16},         {"intermediate_size", 192},
                {"vocab_size", 1000},          {"hidden_act", "silu"},   {"rope_theta", 1e6},
                {"tie_word_embeddings", false}};
  model.update(others);
  return model;
}

/// A letter for each layer: f for full attention, s for sliding.
json with_windows(std::string_view letters) {
  json types = json::array();
  for (const char letter : letters) {
    types.push_back(letter == 's' ? "sliding_attention" : "full_attention");
  }
  return types;
}

json hybrid(json others) {
  json model = {{"model_type", "nemotron_h"},
                {"hidden_size", 64},
                {"num_hidden_layers", 4},
                {"hybrid_override_pattern", "MEM*"},
                {"num_attention_heads", 8},
                {"num_key_value_heads", 2},
                {"head_dim", 16},
                {"mamba_num_heads", 4},
                {"mamba_head_dim", 16},
                {"ssm_state_size", 8},
                {"n_groups", 2},
                {"conv_kernel", 4},
                {"n_routed_experts", 16},
                {"num_experts_per_tok", 4},
                {"moe_intermediate_size", 48},
                {"n_shared_experts", 1},
                {"moe_shared_expert_intermediate_size", 96},
                {"moe_latent_size", 32},
                {"mlp_hidden_act", "relu2"},
                {"norm_topk_prob", true},
                {"vocab_size", 1000},
                {"rms_norm_eps", 1e-5},
                {"tie_word_embeddings", false}};
  model.update(others);
  return model;
}

/// As published runs are written down; each key comes back as it is.
const std::vector<json>& models() {
  static const std::vector<json> kModels = {
      decoder({{"model_type", "llama"}}),
      decoder({{"model_type", "llama"}, {"num_key_value_heads", 8}, {"tie_word_embeddings", true}}),
      decoder({{"model_type", "qwen2"}, {"attention_bias", true}}),
      decoder({{"model_type", "qwen3"}, {"use_qk_norm", true}}),
      decoder({{"model_type", "mixtral"}, {"num_local_experts", 8}, {"num_experts_per_tok", 2}}),
      decoder({{"model_type", "qwen3_moe"},
               {"num_experts", 16},
               {"num_experts_per_tok", 4},
               {"moe_intermediate_size", 48},
               {"mlp_only_layers", {0, 2}},
               {"norm_topk_prob", false},
               {"use_qk_norm", true}}),
      decoder({{"model_type", "qwen2_moe"},
               {"num_experts", 16},
               {"num_experts_per_tok", 4},
               {"moe_intermediate_size", 48},
               {"shared_expert_intermediate_size", 96},
               {"shared_expert_gate", true},
               {"attention_bias", true}}),
      decoder({{"model_type", "qwen3_next"},
               {"num_experts", 16},
               {"num_experts_per_tok", 4},
               {"moe_intermediate_size", 48},
               {"shared_expert_intermediate_size", 48},
               {"shared_expert_gate", true},
               {"full_attention_interval", 4},
               {"attn_output_gate", true},
               {"linear_conv_kernel_dim", 4},
               {"linear_key_head_dim", 16},
               {"linear_value_head_dim", 16},
               {"linear_num_key_heads", 4},
               {"linear_num_value_heads", 8}}),
      {{"model_type", "deepseek_v3"},
       {"hidden_size", 64},
       {"num_hidden_layers", 4},
       {"num_attention_heads", 8},
       {"num_key_value_heads", 8},
       {"q_lora_rank", 24},
       {"kv_lora_rank", 16},
       {"qk_nope_head_dim", 12},
       {"qk_rope_head_dim", 4},
       {"v_head_dim", 12},
       {"intermediate_size", 192},
       {"moe_intermediate_size", 48},
       {"n_routed_experts", 16},
       {"num_experts_per_tok", 4},
       {"n_shared_experts", 2},
       {"first_k_dense_replace", 1},
       {"n_group", 4},
       {"topk_group", 2},
       {"scoring_func", "sigmoid"},
       {"topk_method", "noaux_tc"},
       {"routed_scaling_factor", 2.5},
       {"num_nextn_predict_layers", 1},
       {"vocab_size", 1000},
       {"hidden_act", "silu"},
       {"tie_word_embeddings", false}},
      decoder({{"model_type", "megatron_gpt_moe"},
               {"num_experts", 8},
               {"num_experts_per_tok", 1},
               {"moe_intermediate_size", 192},
               {"hidden_act", "gelu"},
               {"gated_mlp", false},
               {"norm", "layernorm"},
               {"use_bias", true},
               {"use_qk_norm", false},
               {"position_embedding", "learned"},
               {"hidden_dropout", 0.1},
               {"attention_dropout", 0.1}}),
      decoder({{"model_type", "megatron_gpt"},
               {"hidden_act", "relu2"},
               {"gated_mlp", false},
               {"norm", "layernorm"},
               {"use_bias", false},
               {"position_embedding", "rope"},
               {"hidden_dropout", 0.0}}),
      decoder({{"model_type", "megatron_gpt"},
               {"hidden_act", "gelu"},
               {"gated_mlp", false},
               {"sliding_window", 64},
               {"layer_types", with_windows("fssf")}}),
      decoder({{"model_type", "mistral"},
               {"sliding_window", 512},
               {"layer_types", with_windows("ssss")}}),
      decoder({{"model_type", "qwen3"},
               {"use_qk_norm", true},
               {"use_sliding_window", true},
               {"sliding_window", 256},
               {"layer_types", with_windows("sssf")}}),
      decoder({{"model_type", "mixtral"},
               {"num_local_experts", 8},
               {"num_experts_per_tok", 2},
               {"attn_output_gate", true},
               {"attention_sinks", true}}),
      decoder({{"model_type", "gpt_oss"},
               {"num_local_experts", 8},
               {"num_experts_per_tok", 2},
               {"attention_bias", true},
               {"attention_sinks", true},
               {"sliding_window", 128},
               {"layer_types", with_windows("sfsf")}}),
      decoder({{"model_type", "qwen3_5_text"},
               {"use_qk_norm", true},
               {"full_attention_interval", 4},
               {"attn_output_gate", true},
               {"linear_conv_kernel_dim", 4},
               {"linear_key_head_dim", 16},
               {"linear_value_head_dim", 16},
               {"linear_num_key_heads", 4},
               {"linear_num_value_heads", 8}}),
      hybrid({{"num_nextn_predict_layers", 2},
              {"mtp_hybrid_override_pattern", "*E"},
              {"mtp_use_repeated_layer", true}}),
  };
  return kModels;
}

}  // namespace

BOOST_DATA_TEST_CASE(a_model_comes_back, boost::unit_test::data::make(samples::kDialects),
                     dialect) {
  if (dialect == Dialect::torchtitan) return;  // names its models, and has no sizes
  for (const json& model : models()) {
    RunConfig run;
    run.model = model;
    run.global_batch_size = run.seq_length = 8;
    const std::string text = export_run(run, dialect);
    BOOST_TEST_CONTEXT(text) {
      const RunConfig found = import_run(text, dialect);
      for (const auto& [key, value] : model.items()) {
        BOOST_TEST(found.model.value(key, json()).dump() == value.dump(), key);
      }
      // Padded so that every rank gets as much, by Megatron's default of 128.
      BOOST_TEST(found.model.at("padded_vocab_size") == 1024);
    }
  }
}

// Forks of Megatron-LM say the rows of the table of words, often without the words.
BOOST_AUTO_TEST_CASE(a_padded_vocabulary_is_read) {
  const std::string sizes =
      "--num-layers 4 --hidden-size 64 --num-attention-heads 8 --swiglu --disable-bias-linear "
      "--normalization RMSNorm --position-embedding-type rope --max-position-embeddings 128 "
      "--untie-embeddings-and-output-weights --tensor-model-parallel-size 2 ";
  const auto vocab_of = [&](const std::string& flags) {
    const RunConfig run = import_run(sizes + flags, Dialect::megatron_lm);
    return std::pair(run.model.value("vocab_size", 0), run.model.value("padded_vocab_size", 0));
  };
  BOOST_TEST((vocab_of("--vocab-size 1000") == std::pair(1000, 1024)));
  BOOST_TEST((vocab_of("--padded-vocab-size 1000") == std::pair(1000, 1000)));
  BOOST_TEST((vocab_of("--vocab-size 1000 --padded-vocab-size 1002") == std::pair(1000, 1002)));
  // One of another model's is none.
  BOOST_TEST((vocab_of("--vocab-size 1000 --padded-vocab-size 512") == std::pair(1000, 1024)));
  const RunConfig run = import_run(sizes + "--padded-vocab-size 1000", Dialect::megatron_lm);
  BOOST_TEST(run.unknown.empty());
  for (const std::string& note : run.notes)
    BOOST_TEST(!samples::contains(note, "vocabulary"), note);
  BOOST_TEST(samples::contains(export_run(run, Dialect::megatron_lm), "--padded-vocab-size 1000"));
  BOOST_TEST(samples::contains(export_run(run, Dialect::megatron_bridge), "model.vocab_size=1000"));
}

// Families that the reference has flags for only in part: the rest is told.
BOOST_AUTO_TEST_CASE(sizes_are_written_and_the_rest_is_told) {
  const auto written = [](const json& model) {
    RunConfig run;
    run.model = model;
    return export_run(run, Dialect::megatron_lm);
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  const std::string with_sinks = written(decoder({{"model_type", "gpt_oss"},
                                                  {"num_local_experts", 8},
                                                  {"num_experts_per_tok", 2},
                                                  {"attention_bias", true},
                                                  {"sliding_window", 128}}));
  for (const char* words :
       {"--num-layers 4", "--num-query-groups 2", "--num-experts 8", "--moe-ffn-hidden-size 192",
        "--quick-geglu", "--add-qkv-bias", "--window-size 127,0", "--window-attn-skip-freq 2",
        "--softmax-type learnable", "# clamped activations, their offset and YaRN",
        "add them by hand"}) {
    BOOST_TEST(has(with_sinks, words), words << "\n" << with_sinks);
  }
  BOOST_TEST(!has(with_sinks, "--swiglu"), with_sinks);
  BOOST_TEST(!has(with_sinks, "--disable-bias-linear"), with_sinks);
  for (const auto& [family, window, flag] :
       {std::tuple{"mistral", json(512), "--window-size 511,0"},
        {"mixtral", json(64), "--window-size 63,0"},
        {"mistral", json(), ""}}) {
    json model = decoder({{"model_type", family}, {"sliding_window", window}});
    if (model["model_type"] == "mixtral") model["num_local_experts"] = 8;
    const std::string text = written(model);
    BOOST_TEST(has(text, "--ffn-hidden-size 192"), text);
    BOOST_TEST(has(text, "--num-query-groups 2"), text);
    BOOST_TEST(has(text, flag), text);
    BOOST_TEST(has(text, "--window-size") == (*flag != 0), text);
    BOOST_TEST(!has(text, "--window-attn-skip-freq"), text);
  }
  const std::string usual = written(decoder({{"model_type", "mistral"}}));
  BOOST_TEST(has(usual, "--window-size 4095,0"), usual);
  const std::string letters = written(hybrid({{"conv_kernel", 3}}));
  for (const char* words :
       {"--num-layers 4", "--num-experts 16", "--moe-shared-expert-intermediate-size 96",
        "--moe-latent-size 32", "--squared-relu", "--position-embedding-type none",
        "--disable-bias-linear", "--hybrid-layer-pattern 'MEM*'", "--is-hybrid-model",
        "--mamba-num-heads 4", "--mamba-head-dim 16", "--mamba-state-dim 8", "--mamba-num-groups 2",
        "--moe-router-enable-expert-bias", "# Mamba's convolution has 4 taps in Megatron, here 3",
        "# a hybrid needs the framework's script"}) {
    BOOST_TEST(has(letters, words), words << "\n" << letters);
  }
  BOOST_TEST(!has(letters, "--swiglu"), letters);
}

// Megatron-LM's parser has groups and sizes of linear attention, whether they are used or not.
BOOST_AUTO_TEST_CASE(defaults_of_what_is_off_are_no_traits) {
  const std::string command =
      "--num-layers 4 --hidden-size 64 --num-attention-heads 8 --num-query-groups 2 "
      "--linear-conv-kernel-dim 4 --linear-num-key-heads 16 --swiglu --normalization RMSNorm "
      "--position-embedding-type rope --disable-bias-linear ";
  const json off = import_run(command, Dialect::megatron_lm, {}).model;
  BOOST_TEST(off.at("num_key_value_heads") == 8);
  BOOST_TEST(!off.contains("linear_conv_kernel_dim"));
  const RunConfig on = import_run(command + "--group-query-attention", Dialect::megatron_lm, {});
  BOOST_TEST(on.model.at("num_key_value_heads") == 2);
  const std::string again = export_run(on, Dialect::megatron_lm);
  BOOST_TEST((again.find("--group-query-attention") != std::string::npos), again);
}

BOOST_AUTO_TEST_CASE(patterns_of_layers) {
  const std::vector<bool> one_in_three = {true, false, false, true};
  BOOST_TEST(moe_layers_of("3", 4) == one_in_three);
  const std::vector<bool> dense_first = {false, true, true, true};
  BOOST_TEST(moe_layers_of("([0]*1+[1]*3)", 4) == dense_first);
  BOOST_TEST(moe_layers_of("[0, 1, 1, 1]", 4) == dense_first);
  BOOST_TEST(moe_layers_of("0,1,1,1", 4) == dense_first);
  BOOST_TEST(moe_layers_of("([0]+[1]*3)", 4) == dense_first);
  const std::vector<bool> in_groups = {true, true, false, true, true, false};
  for (const char* pattern :
       {"([1]*2+[0]*1)*2", "[1,1,0]*2", "(([1])*2+[0])*2", "[1,1]+[0,1]+[1,0]"}) {
    BOOST_TEST(moe_layers_of(pattern, 6) == in_groups, pattern);
    BOOST_TEST(mixed_layers_of(pattern, 6, "layers") == in_groups, pattern);
  }
  BOOST_TEST(mixed_layers_of("3", 6, "layers") == in_groups);
  BOOST_TEST(mixed_pattern_of(in_groups) == "3");
  BOOST_TEST(mixed_pattern_of(dense_first) == "([0]*1+[1]*3)");
  BOOST_TEST(mixed_pattern_of({true, true}) == "([1]*2)");
  BOOST_TEST(pattern_of(dense_first) == "([0]*1+[1]*3)");
  BOOST_CHECK_THROW(moe_layers_of("0", 4), base::UsageError);
  BOOST_CHECK_THROW(moe_layers_of("[2]*4", 4), base::UsageError);
  BOOST_CHECK_THROW(moe_layers_of("[1]*-4", 4), base::UsageError);
  BOOST_CHECK_THROW(moe_layers_of("1", 1'000'000'000), base::UsageError);
  BOOST_CHECK_THROW(mixed_layers_of("0", 4, "layers"), base::UsageError);
  for (const char* pattern :
       {"", "[", "[1]*", "([1]*4", "[1]*4)", "[1]+", "[1 1 1 1]", "[1,,1,1,1]", "4*[1]", "[[1]*4]",
        "__import__('os')", "[1]*99999999999999999999"}) {
    BOOST_CHECK_THROW(moe_layers_of(pattern, 4), base::UsageError);
  }
  BOOST_CHECK_THROW(moe_layers_of(std::string(50000, '(') + "[1]*4", 4), base::UsageError);
  BOOST_CHECK_THROW(moe_layers_of("([1]*9999)*9999", 4), base::UsageError);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec::dialects
