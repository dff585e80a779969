// What frameworks make of settings that are said by halves, that older releases had, or that they
// work out themselves.
#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "tests/spec/dialects/dialect_samples.h"

namespace moetune::spec::dialects {
BOOST_AUTO_TEST_SUITE(defaults_of_dialects)

namespace {

using samples::contains;
using samples::has_note;
using samples::refusal;
using enum Dialect;

const std::string kSizes =
    "--num-layers 4 --hidden-size 64 --num-attention-heads 8 --vocab-size 256 --swiglu "
    "--max-position-embeddings 128 ";
const std::string kPrimusSizes =
    "num_layers: 4\nhidden_size: 64\nnum_attention_heads: 8\nvocab_size: 256\n";

RunConfig of_megatron(const std::string& flags) { return import_run(kSizes + flags, megatron_lm); }

}  // namespace

BOOST_AUTO_TEST_CASE(groups_of_heads_that_nobody_counts) {
  const RunConfig one = of_megatron("--group-query-attention");
  BOOST_TEST(one.model.at("num_key_value_heads") == 1);
  BOOST_TEST(has_note(one, "'--group-query-attention' without '--num-query-groups'"));
  BOOST_TEST(contains(export_run(one, megatron_lm), "--num-query-groups 1"));
  const RunConfig said = of_megatron("--group-query-attention --num-query-groups 2");
  BOOST_TEST(said.model.at("num_key_value_heads") == 2);
  BOOST_TEST(!has_note(said, "num-query-groups"));
  const RunConfig off = of_megatron("--num-query-groups 2");
  BOOST_TEST(off.model.at("num_key_value_heads") == 8);
  BOOST_TEST(has_note(off, "'--num-query-groups' says nothing without '--group-query-attention'"));
  BOOST_TEST(!has_note(of_megatron(""), "query"));
  // Primus says itself that it is none.
  const RunConfig primus = import_run(
      kPrimusSizes + "group_query_attention: true\nnum_query_groups: null\n", Dialect::primus);
  BOOST_TEST(primus.model.at("num_key_value_heads") == 8);
  const RunConfig again = import_run(export_run(primus, megatron_lm), megatron_lm);
  BOOST_TEST(again.model.at("num_key_value_heads") == 8);
  // Of a model that is named elsewhere nothing is counted.
  const RunConfig change = import_run("--bf16 --group-query-attention", megatron_lm);
  BOOST_TEST(!change.model_flags.contains("num_query_groups"));
}

BOOST_AUTO_TEST_CASE(an_older_switch_turns_heads_by_their_positions) {
  BOOST_TEST(of_megatron("").model.at("position_embedding") == "learned");
  const RunConfig run = of_megatron("--use-rotary-position-embeddings");
  BOOST_TEST(run.model.at("position_embedding") == "rope");
  BOOST_TEST(run.unknown.empty());
  BOOST_TEST(contains(export_run(run, megatron_lm), "--position-embedding-type rope"));
  const RunConfig both =
      of_megatron("--use-rotary-position-embeddings --position-embedding-type rope");
  BOOST_TEST(both.model.at("position_embedding") == "rope");
  const auto of_primus = [](const char* word) {
    return import_run(kPrimusSizes + "use_rotary_position_embeddings: " + word + "\n",
                      Dialect::primus)
        .model.at("position_embedding");
  };
  BOOST_TEST(of_primus("true") == "rope");
  BOOST_TEST(of_primus("false") == "learned");
  BOOST_TEST(of_primus("null") == "learned");
}

BOOST_AUTO_TEST_CASE(an_older_switch_computes_experts_again) {
  const auto recompute_of = [](const std::string& flags) {
    return of_megatron("--moe-layer-recompute " + flags).knobs.recompute.text();
  };
  BOOST_TEST(recompute_of("") == "core_attn,moe");
  BOOST_TEST(recompute_of("--recompute-granularity selective") == "core_attn,moe");
  BOOST_TEST(recompute_of("--recompute-granularity selective --recompute-modules layernorm moe") ==
             "layernorm,moe");
  const RunConfig run = of_megatron("--moe-layer-recompute");
  BOOST_TEST(run.unknown.empty());
  const std::string written = export_run(run, megatron_lm);
  BOOST_TEST(contains(written, "--recompute-modules core_attn moe"), written);
  BOOST_TEST(contains(refusal(kSizes + "--moe-layer-recompute --recompute-granularity full "
                                       "--recompute-method uniform --recompute-num-layers 1",
                              megatron_lm),
                      "'--recompute-granularity' and '--moe-layer-recompute' contradict"));
  BOOST_TEST(
      import_run("moe_layer_recompute: true\ntensor_model_parallel_size: 1\n", Dialect::primus)
          .knobs.recompute.text() == "core_attn,moe");
  BOOST_TEST(
      import_run("moe_layer_recompute: false\ntensor_model_parallel_size: 1\n", Dialect::primus)
          .knobs.recompute.empty());
}

// Their runner takes the brackets off.
BOOST_AUTO_TEST_CASE(lists_in_brackets_of_megatrons_tests) {
  const auto run_of = [](const std::string& lines) {
    return import_run("MODEL_ARGS:\n  --num-layers: 4\n" + lines, megatron_lm);
  };
  const std::string selective = "  --recompute-granularity: selective\n";
  for (const char* list : {"\"[layernorm moe_act]\"", "[layernorm moe_act]", "[layernorm, moe_act]",
                           "layernorm moe_act", "'[layernorm moe_act ]'"}) {
    const RunConfig run = run_of(selective + "  --recompute-modules: " + list + "\n");
    BOOST_TEST(run.knobs.recompute.text() == "layernorm,moe_act", list);
    BOOST_TEST(!has_note(run, "left out"), list);
  }
  const RunConfig other = run_of("  --others: \"[a b]\"\n");
  BOOST_TEST_REQUIRE(other.unknown.size() == 1U);
  BOOST_TEST(other.unknown[0].value == "a b");
  // Brackets within a pattern stay.
  const RunConfig pattern = run_of("  --num-experts: 8\n  --moe-layer-freq: ([0]*1+[1]*3)\n");
  BOOST_TEST(pattern.model_flags.at("moe_layer_freq") == "([0]*1+[1]*3)");
}

BOOST_AUTO_TEST_CASE(what_a_model_of_primus_extends) {
  const std::string text = "extends:\n  - base.yaml\nnum_layers: 4\nhidden_size: 64\n";
  const RunConfig alone = import_run(text, Dialect::primus);
  BOOST_TEST(has_note(alone, "base.yaml has settings of its own and was not given"));
  BOOST_TEST(alone.is_partial);
  const std::string base =
      "extends:\n  - language_model.yaml\nnum_layers: 8\nnum_attention_heads: 8\n";
  for (const std::string& spelled :
       {text, "extends: base.yaml\n" + text.substr(text.find("num"))}) {
    const RunConfig run = import_run(spelled, Dialect::primus, {.files = {{"base.yaml", base}}});
    BOOST_TEST(run.model.at("num_hidden_layers") == 4);
    BOOST_TEST(run.model.at("num_attention_heads") == 8);
    BOOST_TEST(!has_note(run, "was not given"));
    BOOST_TEST(!run.is_partial);
  }
  // One that is missing further on is told as well; those with the defaults are not.
  const RunConfig chain =
      import_run(text, Dialect::primus,
                 {.files = {{"base.yaml", "extends:\n  - deeper.yaml\nswiglu: true\n"}}});
  BOOST_TEST(has_note(chain, "deeper.yaml has settings of its own and was not given"));
  const auto behind_defaults = [&](const std::string& name) {
    return import_run(
        text, Dialect::primus,
        {.files = {{"base.yaml", base},
                   {"language_model.yaml", "extends:\n  - " + name + "\nseed: 1\n"}}});
  };
  const RunConfig defaults = behind_defaults("primus_megatron_model.yaml");
  BOOST_TEST(!has_note(defaults, "was not given"));
  BOOST_TEST(has_note(behind_defaults("mine.yaml"), "mine.yaml has settings of its own"));
}

// Megatron-LM sets it itself, from the number of stages or their layout.
BOOST_AUTO_TEST_CASE(virtual_stages_that_primus_cannot_say) {
  const std::string stages = "pipeline_model_parallel_size: 2\n";
  const std::string computed = "virtual_pipeline_model_parallel_size: ";
  const auto vpp_of = [&](const std::string& lines, bool is_echo = false) {
    return import_run(stages + lines, Dialect::primus, {.is_echo = is_echo}).knobs.vpp;
  };
  BOOST_TEST(vpp_of(computed + "2\n") == 1);
  BOOST_TEST(has_note(import_run(stages + computed + "2\n", Dialect::primus),
                      "'virtual_pipeline_model_parallel_size' (2) changes nothing"));
  BOOST_TEST(vpp_of("num_virtual_stages_per_pipeline_rank: 3\n") == 3);
  BOOST_TEST(vpp_of(computed + "2\nnum_virtual_stages_per_pipeline_rank: 3\n") == 3);
  BOOST_TEST(vpp_of(computed + "2\npipeline_model_parallel_layout: 'Et|t|t|tL'\n") == 2);
  BOOST_TEST(vpp_of(computed + "null\n") == 1);
  BOOST_TEST(vpp_of(computed + "2\n", true) == 2);
  BOOST_TEST(contains(refusal(stages + "num_virtual_stages_per_pipeline_rank: 2\n"
                                       "pipeline_model_parallel_layout: 'Et|t|t|tL'\n",
                              Dialect::primus),
                      "contradict each other"));
}

// Older releases shard nothing unless they are told to.
BOOST_AUTO_TEST_CASE(what_the_fsdp_of_megatron_shards_unasked_is_told) {
  const std::string told = "'--data-parallel-sharding-strategy' is not said: optim_grads_params";
  for (const char* flag : {"--use-megatron-fsdp", "--use-custom-fsdp"}) {
    const RunConfig run = of_megatron(flag);
    BOOST_TEST((run.knobs.fsdp == Fsdp::megatron));
    BOOST_TEST(has_note(run, told), flag);
    BOOST_TEST(has_note(run, dialect_row(megatron_lm).release), flag);
  }
  BOOST_TEST(!has_note(of_megatron("--use-megatron-fsdp --data-parallel-sharding-strategy "
                                   "optim_grads_params"),
                       "sharding-strategy"));
  BOOST_TEST(!has_note(of_megatron("--use-torch-fsdp2"), "sharding-strategy"));
  BOOST_TEST(!has_note(of_megatron(""), "sharding-strategy"));
}

// Each file is read once: these have ten million ways to the last one.
BOOST_AUTO_TEST_CASE(models_of_primus_that_extend_each_other_often) {
  constexpr int kLevels = 7;
  ImportOptions options;
  for (int level = 0; level < kLevels; ++level) {
    std::string file = "extends:\n";
    for (int i = 0; i < 10; ++i) {
      file += fmt::format("  - level{}{}.yaml\n", level + 1, level + 1 < kLevels ? i : 0);
    }
    for (int i = 0; i < 10; ++i) options.files[fmt::format("level{}{}.yaml", level, i)] = file;
  }
  options.files[fmt::format("level{}0.yaml", kLevels)] = "hidden_size: 96\nseed: 1\n";
  const RunConfig run = import_run("extends: level00.yaml\n" + kPrimusSizes, primus, options);
  BOOST_TEST(run.model["hidden_size"] == 64);
  BOOST_TEST(run.unknown.size() == 1U);
  // Of two the later counts, also where it stands twice.
  options.files = {{"a.yaml", "seed: 1\n"}, {"b.yaml", "seed: 2\n"}};
  const auto seed_of = [&](const std::string& bases) {
    const RunConfig found =
        import_run("extends: [" + bases + "]\n" + kPrimusSizes, primus, options);
    return found.unknown.empty() ? std::string() : found.unknown.front().value;
  };
  BOOST_TEST(seed_of("a.yaml, b.yaml") == "2");
  BOOST_TEST(seed_of("b.yaml, a.yaml") == "1");
  BOOST_TEST(seed_of("a.yaml, b.yaml, a.yaml") == "1");
}

BOOST_AUTO_TEST_CASE(models_of_primus_that_extend_themselves_are_refused) {
  const ImportOptions options = {.files = {{"a.yaml", "extends: [b.yaml, c.yaml]\n"},
                                           {"b.yaml", "seed: 1\n"},
                                           {"c.yaml", "extends: [b.yaml, a.yaml]\n"}}};
  try {
    import_run("extends: a.yaml\n" + kPrimusSizes, primus, options);
    BOOST_TEST(false, "is not refused");
  } catch (const base::UsageError& error) {
    BOOST_TEST(contains(error.what(), "'a.yaml' extends itself"), error.what());
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec::dialects
