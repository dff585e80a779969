// Windows, gates, sinks and hybrids in Megatron's flags: what they make of a model, what
// contradicts what, and the way back.
#include <fmt/format.h>

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <random>

#include "engine/spec/model_spec.h"
#include "tests/spec/dialects/dialect_samples.h"

namespace moetune::spec::dialects {
BOOST_AUTO_TEST_SUITE(flags_of_layers)

namespace {

using nlohmann::json;
using samples::contains;
using samples::refusal;

constexpr Dialect kLm = Dialect::megatron_lm;

const std::string kDecoder =
    "--num-layers 6 --hidden-size 64 --num-attention-heads 8 --group-query-attention "
    "--num-query-groups 2 --kv-channels 16 --ffn-hidden-size 192 --vocab-size 1000 --swiglu "
    "--normalization RMSNorm --position-embedding-type rope --disable-bias-linear "
    "--attention-dropout 0 --hidden-dropout 0 ";
const std::string kExperts = "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 48 ";
const std::string kHybrid =
    "--hidden-size 64 --num-attention-heads 8 --group-query-attention --num-query-groups 2 "
    "--kv-channels 16 --ffn-hidden-size 192 --vocab-size 1000 --squared-relu --normalization "
    "RMSNorm --position-embedding-type none --disable-bias-linear --num-experts 8 "
    "--moe-router-topk 2 --moe-ffn-hidden-size 48 --mamba-num-heads 4 --mamba-head-dim 16 "
    "--mamba-num-groups 2 ";

RunConfig read(const std::string& flags, int64_t world_size = 0) {
  return import_run(flags, kLm, {.world_size = world_size});
}
ModelSpec model_of(const RunConfig& run) { return model_from_json(run.model, "the run"); }
ModelSpec model_of(const std::string& flags) { return model_of(read(flags)); }

std::string notes_of(const RunConfig& run) {
  std::string text;
  for (const std::string& note : run.notes) text += note + "\n";
  return text;
}

std::string letters(const ModelSpec& model) {
  std::string text;
  for (const LayerKind& kind : model.layer_kinds) {
    if (kind.mixer == Mixer::mamba) text += 'M';
    if (kind.mixer == Mixer::gqa) text += '*';
    if (kind.feed_forward == FeedForward::moe) text += 'E';
    if (kind.feed_forward == FeedForward::dense) text += '-';
  }
  return text;
}

}  // namespace

// is_layer_window_attention of megatron/core/transformer/utils.py counts layers from 1; the mask
// has as many keys as are said before a token, and the token itself.
BOOST_AUTO_TEST_CASE(windows_count_the_token_itself) {
  using Windows = std::vector<int64_t>;
  const std::string with = kDecoder + "--window-size ";
  const auto windows = [&](const std::string& rest) { return model_of(rest).attention_window; };
  BOOST_TEST((windows(kDecoder) == Windows(6, 0)));
  BOOST_TEST((windows(with + "127,0") == Windows(6, 128)));
  BOOST_TEST((windows(with + "'(127, 0)'") == Windows(6, 128)));
  BOOST_TEST((windows(with + "0,0") == Windows(6, 1)));
  BOOST_TEST((windows(with + "-1,0") == Windows(6, 0)));
  const std::string some = with + "127,0 --window-attn-skip-freq ";
  BOOST_TEST((windows(some + "2") == Windows{128, 0, 128, 0, 128, 0}));
  BOOST_TEST((windows(some + "4") == Windows{128, 128, 128, 0, 128, 128}));
  BOOST_TEST((windows(some + "1") == Windows(6, 0)));
  BOOST_TEST((windows(some + "[1,0,0,0,0,1]") == Windows{128, 0, 0, 0, 0, 128}));
  BOOST_TEST((windows(some + "'([1]*2+[0])*2'") == Windows{128, 128, 0, 128, 128, 0}));
  BOOST_TEST((windows(some + "'[1,1,0]*2'") == Windows{128, 128, 0, 128, 128, 0}));
  // In every family that the flags make.
  for (const char* others :
       {"--num-experts 8", "--qk-layernorm", "--add-qkv-bias", "--num-experts 8 --qk-layernorm",
        "--num-experts 8 --moe-shared-expert-intermediate-size 48",
        "--num-experts 8 --moe-layer-freq 2"}) {
    BOOST_TEST_CONTEXT(others) {
      const ModelSpec model = model_of(some + "2 " + others);
      BOOST_TEST((model.attention_window == Windows{128, 0, 128, 0, 128, 0}));
    }
  }
}

BOOST_AUTO_TEST_CASE(what_windows_cannot_be_is_told) {
  const RunConfig behind = read(kDecoder + "--window-size 128,128");
  BOOST_TEST(model_of(behind).attention_window[0] == 129);
  BOOST_TEST(contains(notes_of(behind), "no token sees what is behind it"), notes_of(behind));
  const RunConfig alone = read(kDecoder + "--window-attn-skip-freq 2");
  BOOST_TEST(
      contains(notes_of(alone), "'--window-attn-skip-freq' says nothing without '--window-size'"),
      notes_of(alone));
  const RunConfig latent = read(kDecoder + "--window-size 127,0 --multi-latent-attention");
  BOOST_TEST(contains(notes_of(latent), "sliding windows beside multi-head latent attention"),
             notes_of(latent));
}

BOOST_AUTO_TEST_CASE(gates_and_sinks) {
  const ModelSpec plain = model_of(kDecoder);
  BOOST_TEST(!plain.has_attention_gate);
  BOOST_TEST(!plain.has_attention_sinks);
  for (const std::string& others : {std::string(), kExperts, kExperts + "--qk-layernorm "}) {
    const ModelSpec model =
        model_of(kDecoder + others + "--attention-output-gate --softmax-type learnable");
    BOOST_TEST(model.has_attention_gate, others);
    BOOST_TEST(model.has_attention_sinks, others);
  }
  const RunConfig fixed = read(kDecoder + "--softmax-type off-by-one");
  BOOST_TEST(!model_of(fixed).has_attention_sinks);
  BOOST_TEST(contains(notes_of(fixed), "priced as vanilla"), notes_of(fixed));
}

// As Megatron-LM's examples of gpt-oss say it: a gated MLP, though nobody says --swiglu, and biases
// on all products.
BOOST_AUTO_TEST_CASE(experts_with_sinks_and_biases) {
  const std::string flags =
      "--num-layers 6 --hidden-size 64 --num-attention-heads 8 --group-query-attention "
      "--num-query-groups 2 --kv-channels 16 --ffn-hidden-size 48 --vocab-size 1000 --quick-geglu "
      "--normalization RMSNorm --position-embedding-type rope --window-size 127,0 "
      "--window-attn-skip-freq 2 --softmax-type learnable " +
      kExperts;
  const ModelSpec model = model_of(flags);
  BOOST_TEST(model.family == "gpt_oss");
  BOOST_TEST(model.has_gated_mlp);
  BOOST_TEST(model.has_expert_bias);
  BOOST_TEST(model.has_attention_bias);
  BOOST_TEST(model.has_attention_output_bias);
  BOOST_TEST(model.has_attention_sinks);
  BOOST_TEST(model.moe_ffn_size == 48);
  BOOST_TEST(model.num_moe_layers() == 6);
  BOOST_TEST((model.attention_window == std::vector<int64_t>{128, 0, 128, 0, 128, 0}));
  // Without windows it has none, whatever the family's files have.
  const std::string bare = "--swiglu --normalization RMSNorm --softmax-type learnable ";
  const ModelSpec open = model_of(
      "--num-layers 6 --hidden-size 64 --num-attention-heads 8 --position-embedding-type rope "
      "--vocab-size 1000 --ffn-hidden-size 48 " +
      bare + kExperts);
  BOOST_TEST(open.has_expert_bias);
  BOOST_TEST((open.attention_window == std::vector<int64_t>(6, 0)));
}

BOOST_AUTO_TEST_CASE(linear_attention_by_its_names) {
  const auto is_linear = [](const std::string& flags) {
    const ModelSpec model = model_of(kDecoder + "--qk-layernorm " + flags);
    std::string text;
    for (int64_t i = 0; i < model.num_layers; ++i) {
      text += model.kind_of(i).mixer == Mixer::gdn ? 'g' : '*';
    }
    return text;
  };
  for (const char* variant : {"gdn", "gated_delta_net"}) {
    const std::string flags =
        fmt::format("--experimental-attention-variant {} --linear-attention-freq ", variant);
    BOOST_TEST(is_linear(flags + "3") == "gg*gg*");
    BOOST_TEST(is_linear(flags + "'([1]*2+[0])*2'") == "gg*gg*");
    BOOST_TEST(is_linear(flags + "3 " + kExperts) == "gg*gg*");
  }
  BOOST_TEST(is_linear("--experimental-attention-variant dsa") == "******");
  // Megatron's own sizes, where nobody says any.
  const ModelSpec model =
      model_of(kDecoder + "--experimental-attention-variant gdn --linear-attention-freq 2");
  BOOST_TEST(model.gdn.conv_kernel == 4);
  BOOST_TEST(model.gdn.num_key_heads == 16);
  BOOST_TEST(model.gdn.num_value_heads == 32);
  BOOST_TEST(model.gdn.key_head_dim == 128);
  BOOST_TEST(model.gdn.value_head_dim == 128);
}

BOOST_AUTO_TEST_CASE(letters_of_a_hybrid) {
  const RunConfig run = read(kHybrid + "--hybrid-layer-pattern 'MEM*-E' --mamba-state-dim 8");
  const ModelSpec model = model_of(run);
  BOOST_TEST(letters(model) == "MEM*-E");
  BOOST_TEST(model.num_layers == 6);
  BOOST_TEST(model.mamba.num_heads == 4);
  BOOST_TEST(model.mamba.head_dim == 16);
  BOOST_TEST(model.mamba.state_size == 8);
  BOOST_TEST(model.mamba.num_groups == 2);
  BOOST_TEST(model.mamba.conv_kernel == 4);
  BOOST_TEST(model.num_experts == 8);
  BOOST_TEST(model.moe_ffn_size == 48);
  BOOST_TEST(model.ffn_size == 192);
  BOOST_TEST(!model.has_gated_mlp);
  BOOST_TEST(!model.has_router_bias);
  BOOST_TEST(model.hidden_act == "relu2");
  BOOST_TEST(model.rope.type == "none");
  BOOST_TEST(!contains(notes_of(run), "hybrid"), notes_of(run));
  BOOST_TEST(run.unknown.empty());
  // The older spelling, and a model that attends and has MLPs only.
  const ModelSpec older =
      model_of(kHybrid + "--hybrid-override-pattern 'M-*-' --is-hybrid-model --num-layers 4");
  BOOST_TEST(letters(older) == "M-*-");
  BOOST_TEST(letters(model_of(kHybrid + "--hybrid-layer-pattern '*-*-'")) == "*-*-");
  // Megatron's defaults: a mixer of twice the width, in heads of 64.
  const ModelSpec usual = model_of(
      "--hidden-size 1024 --num-attention-heads 8 --vocab-size 1000 --swiglu --normalization "
      "RMSNorm --disable-bias-linear --hybrid-layer-pattern M-M-");
  BOOST_TEST(usual.mamba.num_heads == 32);
  BOOST_TEST(usual.mamba.head_dim == 64);
  BOOST_TEST(usual.mamba.state_size == 128);
  BOOST_TEST(usual.mamba.num_groups == 8);
  BOOST_TEST(usual.has_gated_mlp);
  for (const char* positions : {"rope", "yarn", "mrope"}) {
    BOOST_TEST(
        model_of("--hidden-size 64 --num-attention-heads 8 --vocab-size 1000 --normalization "
                 "RMSNorm --disable-bias-linear --hybrid-layer-pattern '*-' "
                 "--position-embedding-type " +
                 std::string(positions))
            .rope.type == "default");
  }
  // Windows and sinks are those of layers that attend.
  const ModelSpec windowed = model_of(
      kHybrid + "--hybrid-layer-pattern 'M*E*' --window-size 63,0 --softmax-type learnable");
  BOOST_TEST((windowed.attention_window == std::vector<int64_t>{0, 64, 0, 64}));
  BOOST_TEST(windowed.has_attention_sinks);
}

BOOST_AUTO_TEST_CASE(layers_of_multi_token_prediction_behind_slashes) {
  const RunConfig run = read(kHybrid + "--hybrid-layer-pattern 'MEM*/*E/*E'");
  BOOST_TEST((run.mtp_depth == 2));
  const ModelSpec model = model_of(run);
  BOOST_TEST(model.mtp.depth == 2);
  BOOST_TEST(model.mtp.layers.size() == 2U);
  const RunConfig older =
      read(kHybrid +
           "--hybrid-layer-pattern 'MEM*' --mtp-hybrid-override-pattern 'M-' --mtp-num-layers 1 "
           "--mtp-use-repeated-layer");
  const ModelSpec other = model_of(older);
  BOOST_TEST(other.mtp.depth == 1);
  BOOST_TEST((other.mtp.layers[0].mixer == Mixer::mamba));
  BOOST_TEST(other.mtp.repeats_layer);
  const RunConfig both = read(kHybrid + "--hybrid-layer-pattern 'MEM*/*E' --mtp-num-layers 3");
  BOOST_TEST((both.mtp_depth == 1));
  BOOST_TEST(contains(notes_of(both), "'--mtp-num-layers' is 3, but '--hybrid-layer-pattern'"),
             notes_of(both));
  const RunConfig counted = read(kHybrid + "--hybrid-layer-pattern 'MEM*' --num-layers 5");
  BOOST_TEST(model_of(counted).num_layers == 4);
  BOOST_TEST(contains(notes_of(counted), "'--num-layers' is 5"), notes_of(counted));
}

// Megatron takes the segments chunk by chunk, as it takes the stages of a layout.
BOOST_AUTO_TEST_CASE(bars_are_stages) {
  const std::string on_two = kHybrid + "--pipeline-model-parallel-size 2 --hybrid-layer-pattern ";
  const RunConfig even = read(on_two + "'ME|M*|ME|M*'", 2);
  BOOST_TEST(even.knobs.vpp == 2);
  BOOST_TEST(even.pipeline_layout == "Ett|(tt|)*2ttL");
  BOOST_TEST(letters(model_of(even)) == "MEM*MEM*");
  const RunConfig uneven = read(on_two + "'MEM|M*|ME|/*E'", 2);
  BOOST_TEST(uneven.knobs.vpp == 2);
  BOOST_TEST(uneven.pipeline_layout == "Et*3|(tt|)*2mL");
  const RunConfig halves = read(on_two + "'MEM*|MEM*'", 2);
  const RunConfig whole = read(on_two + "'MEM*'", 2);
  for (const RunConfig* run : {&halves, &whole}) {
    BOOST_TEST(run->knobs.vpp == 1);
    BOOST_TEST(run->pipeline_layout.empty());
  }
  for (const RunConfig* run : {&even, &uneven, &halves, &whole}) {
    const std::string text = export_run(*run, kLm);
    BOOST_TEST_CONTEXT(text) {
      BOOST_TEST(!contains(text, "--num-virtual-stages-per-pipeline-rank"));
      BOOST_TEST(!contains(text, "--pipeline-model-parallel-layout"));
      const RunConfig again = import_run(text, kLm);
      BOOST_TEST(again.knobs.vpp == run->knobs.vpp);
      BOOST_TEST(again.pipeline_layout == run->pipeline_layout);
      BOOST_TEST((again.model == run->model));
    }
  }
  BOOST_TEST(contains(export_run(even, kLm), "'ME|M*|ME|M*'"), export_run(even, kLm));
  BOOST_TEST(contains(export_run(uneven, kLm), "'MEM|M*|ME|/*E'"), export_run(uneven, kLm));
  // The Megatron-LM of Primus has no bars.
  BOOST_TEST(contains(export_run(even, Dialect::primus), "# Primus cannot be told vpp=2"));
  BOOST_TEST(can_say(even, "vpp", kLm));
  BOOST_TEST(!can_say(even, "vpp", Dialect::primus));
}

// Whatever layers, windows and stages a run has, each dialect says them so that they come back.
BOOST_AUTO_TEST_CASE(layers_come_back) {
  std::mt19937 generator(20261127);
  const auto upto = [&](size_t most) { return static_cast<size_t>(generator() % (most + 1)); };
  for (int i = 0; i < 200; ++i) {
    const size_t pp = size_t{1} << upto(2);
    const bool is_hybrid = upto(1) == 0;
    std::string flags = is_hybrid ? kHybrid : kDecoder;
    if (is_hybrid) {
      const size_t stages = pp > 1 && upto(1) == 0 ? pp * (1 + upto(2)) : 1;
      std::string pattern = "M";  // "--" would begin a flag
      for (size_t stage = 0; stage < stages; ++stage) {
        if (stage > 0) pattern += '|';
        for (size_t layers = 1 + upto(5); layers > 0; --layers) pattern += "M*-E"[upto(3)];
      }
      for (size_t depth = upto(2); depth > 0; --depth) pattern += "/*E";
      flags += fmt::format("--hybrid-layer-pattern '{}' --pipeline-model-parallel-size {} ",
                           pattern, pp);
    }
    if (upto(1) == 0) flags += fmt::format("--window-size {},0 ", upto(300));
    if (!is_hybrid && upto(1) == 0) {
      std::string list;
      for (int layer = 0; layer < 6; ++layer) list += upto(1) == 0 ? ",1" : ",0";
      flags += fmt::format("--window-attn-skip-freq '[{}]' ", list.substr(1));
    }
    if (upto(1) == 0) flags += "--attention-output-gate ";
    if (upto(1) == 0) flags += "--softmax-type learnable ";
    const RunConfig run = read(flags, static_cast<int64_t>(pp));
    for (const Dialect dialect : samples::kDialects) {
      if (dialect == Dialect::torchtitan) continue;  // names its models
      const std::string text = export_run(run, dialect);
      BOOST_TEST_CONTEXT(flags << "\n" << text) {
        const RunConfig again = import_run(text, dialect);
        for (const char* key :
             {"model_type", "num_hidden_layers", "hybrid_override_pattern",
              "mtp_hybrid_override_pattern", "num_nextn_predict_layers", "mamba_num_heads",
              "sliding_window", "layer_types", "attention_sinks", "attn_output_gate"}) {
          BOOST_TEST(again.model.value(key, json()).dump() == run.model.value(key, json()).dump(),
                     key);
        }
        if (dialect == Dialect::primus) continue;  // its Megatron-LM has no bars
        BOOST_TEST(again.knobs.vpp == run.knobs.vpp);
        BOOST_TEST(again.pipeline_layout == run.pipeline_layout);
      }
    }
  }
}

// A run may train multi-token prediction that its model's file does not have, and the other way
// round.
BOOST_AUTO_TEST_CASE(a_run_says_its_depth) {
  RunConfig run = read(kHybrid + "--hybrid-layer-pattern 'MEM*'");
  run.mtp_depth = 2;
  BOOST_TEST(contains(export_run(run, kLm), "'MEM*/*E/*E'"), export_run(run, kLm));
  RunConfig other = read(kHybrid + "--hybrid-layer-pattern 'MEM*/*E'");
  other.mtp_depth = 0;
  BOOST_TEST(contains(export_run(other, kLm), "'MEM*'"), export_run(other, kLm));
}

BOOST_AUTO_TEST_CASE(the_words_of_other_dialects) {
  RunConfig run = read(kDecoder + "--window-size 127,0 --window-attn-skip-freq 2");
  const std::string bridge = export_run(run, Dialect::megatron_bridge);
  BOOST_TEST(contains(bridge, "model.window_size=[127, 0]"), bridge);
  const std::string primus = export_run(run, Dialect::primus);
  BOOST_TEST(contains(primus, "window_size: [127, 0]"), primus);
  BOOST_TEST(contains(primus, "window_attn_skip_freq: 2"), primus);
  run = read(kHybrid + "--hybrid-layer-pattern '*EM/*E'");
  const std::string letters = export_run(run, Dialect::primus);
  BOOST_TEST(contains(letters, "hybrid_override_pattern: \"*EM\"\n"), letters);
  BOOST_TEST(contains(letters, "mtp_hybrid_override_pattern: \"*E\""), letters);
  BOOST_TEST(contains(letters, "is_hybrid_model: true"), letters);
  BOOST_TEST(
      contains(export_run(run, Dialect::megatron_bridge), "'model.hybrid_layer_pattern=*EM/*E'"));
  const RunConfig older = import_run(
      "run_recipe.py --recipe some model.hybrid_override_pattern=MEM*", Dialect::megatron_bridge);
  BOOST_TEST(older.unknown.size() == 1U);  // the recipe
}

struct Wrong {
  std::string flags;
  const char* message;
};
std::ostream& operator<<(std::ostream& out, const Wrong& row) { return out << row.flags; }

const std::vector<Wrong> kWrong = {
    {kDecoder + "--window-size 128",
     "'--window-size' is '128', expected two numbers such as 127,0"},
    {kDecoder + "--window-size 1,2,3", "expected two numbers"},
    {kDecoder + "--window-size some,0", "expected two numbers"},
    {kDecoder + "--window-size -2,0", "expected from -1 (no limit) to 268435455 keys"},
    {kDecoder + "--window-size 9999999999,0", "expected from -1 (no limit) to 268435455 keys"},
    {kDecoder + "--window-size -1,5", "expected a limit before a token"},
    {kDecoder + "--window-size 127,0 --window-attn-skip-freq 0",
     "the pattern of layers with a window"},
    {kDecoder + "--window-size 127,0 --window-attn-skip-freq [1,0]",
     "the pattern of layers with a window, '[1,0]', has 2 layers, and the model 6"},
    {kDecoder + "--window-size 127,0 --window-attn-skip-freq '([1]*3'", "expected one such as 2"},
    {"--num-layers 1000000000000 --hidden-size 64 --num-attention-heads 8",
     "1000000000000 layers, expected at most 10000"},
    {kDecoder + "--experimental-attention-variant gdn",
     "the pattern of layers with linear attention"},
    {kDecoder + "--softmax-type some", "expected one of vanilla, learnable, off-by-one"},
    {kDecoder + "--attention-output-gate --multi-latent-attention",
     "'--multi-latent-attention' and '--attention-output-gate' contradict each other"},
    {kDecoder + "--quick-geglu", "'--swiglu' and '--quick-geglu' contradict each other"},
    {kDecoder + "--squared-relu", "'--swiglu' and '--squared-relu' contradict each other"},
    {kDecoder + "--is-hybrid-model", "'--is-hybrid-model' needs '--hybrid-layer-pattern'"},
    {kDecoder + "--hybrid-layer-pattern MEM*", "has an E, which needs '--num-experts'"},
    {kHybrid + "--hybrid-layer-pattern MXM", "has the letter 'X', expected M (Mamba-2)"},
    {kDecoder + "--window-size 9,0 --hybrid-layer-pattern MXMMMMMMMMMMMM", "has the letter 'X'"},
    {kHybrid + "--hybrid-layer-pattern MGM", "has the letter 'G' (Gated DeltaNet), which is not"},
    {kHybrid + "--hybrid-layer-pattern M+M", "has the letter '+' (multi-head latent attention)"},
    {kHybrid + "--hybrid-layer-pattern '|'", "has 0 layers, expected 1 to 1024"},
    {kHybrid + "--hybrid-layer-pattern " + std::string(1025, 'M'), "has 1025 layers"},
    {kHybrid + "--hybrid-layer-pattern MM/E/M", "all depths have to be the same"},
    {kHybrid + "--hybrid-layer-pattern MM/X", "has the letter 'X'"},
    {kHybrid + "--hybrid-layer-pattern 'M|M'",
     "has 2 stages, which '--pipeline-model-parallel-size' (1) has no ranks for"},
    {kHybrid + "--hybrid-layer-pattern 'M|M|M' --pipeline-model-parallel-size 2",
     "has 3 stages, which '--pipeline-model-parallel-size' (2) does not divide"},
    {kHybrid + "--hybrid-layer-pattern 'MM|MM' --pipeline-model-parallel-size 2 "
               "--num-virtual-stages-per-pipeline-rank 1",
     "'--num-virtual-stages-per-pipeline-rank' contradicts '--hybrid-layer-pattern'"},
    {kHybrid + "--hybrid-layer-pattern 'MM|MM' --pipeline-model-parallel-size 2 "
               "--decoder-first-pipeline-num-layers 1",
     "'--decoder-first-pipeline-num-layers' contradicts '--hybrid-layer-pattern'"},
    {kHybrid + "--hybrid-layer-pattern MM --hybrid-override-pattern M-", "stands twice"},
    {kHybrid + "--hybrid-layer-pattern MM* --multi-latent-attention", "together are not planned"},
    {kDecoder + "--hybrid-layer-pattern M- --mamba-num-heads 10",
     "'--mamba-num-heads' is 10, expected a multiple of '--mamba-num-groups' (8)"},
    {kDecoder + "--hybrid-layer-pattern M- --mamba-head-dim 48",
     "'--mamba-head-dim' (48) does not divide 2 x '--hidden-size' (64): say '--mamba-num-heads'"},
    {kDecoder + "--hybrid-layer-pattern M- --mamba-state-dim 0",
     "'--mamba-state-dim' is 0, expected at least 1"},
};

BOOST_DATA_TEST_CASE(wrong_flags_are_named, boost::unit_test::data::make(kWrong), row) {
  const std::string message = refusal(row.flags, kLm);
  BOOST_TEST(contains(message, row.message), message);
}

// What a log echoes has been taken by Megatron, which tells there also what it made of the flags.
BOOST_AUTO_TEST_CASE(what_a_log_echoes_is_not_refused) {
  const std::string echo = kHybrid +
                           "--hybrid-layer-pattern 'MM|MM' --pipeline-model-parallel-size 2 "
                           "--num-virtual-stages-per-pipeline-rank 1";
  BOOST_CHECK_NO_THROW(import_run(echo, kLm, {.is_echo = true}));
  const RunConfig older = import_run(kDecoder + "--is-hybrid-model", kLm, {.is_echo = true});
  BOOST_TEST(contains(notes_of(older), "'--is-hybrid-model' needs"), notes_of(older));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec::dialects
