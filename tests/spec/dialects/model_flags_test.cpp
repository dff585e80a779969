// What a run itself says of its model goes along in the same dialect, and is said or named in any
// other.
#include <fmt/format.h>

#include <algorithm>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <map>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/layer_pattern.h"
#include "engine/spec/hf_family.h"
#include "tests/spec/dialects/dialect_samples.h"
#include "tests/spec/family_samples.h"

namespace moetune::spec::dialects {
BOOST_AUTO_TEST_SUITE(model_flags_of_dialects)

namespace {

using nlohmann::json;
using samples::contains;
using enum Dialect;

constexpr std::array kOfMegatron = {megatron_lm, megatron_bridge, primus};

/// Values by the names of the rows.
using Values = std::vector<std::pair<std::string, std::string>>;

/// Another one than any default.
std::string value_of(const Row& row, Dialect dialect) {
  static const std::map<std::string, std::string, std::less<>> kWords = {
      {"position_embedding_type", "yarn"},
      {"normalization", "RMSNorm"},
      {"activation_func", "silu"},
      {"softmax_type", "off-by-one"},
      {"window_size", "127,0"},
      {"window_attn_skip_freq", "2"},
      {"experimental_attention_variant", "dsa"},
      {"linear_attention_freq", "2"},
      {"hybrid_layer_pattern", "M*-*"},
      {"mtp_hybrid_override_pattern", "*"},
      {"moe_layer_freq", "([0]*1+[1]*3)"},
      {"moe_router_score_function", "sigmoid"}};
  switch (kind_of(row)) {
    case Kind::flag:
      return fallback_of(row, dialect) == "true" ? "false" : "true";
    case Kind::integer:
      return "16";
    case Kind::number:
      return "0.25";
    default:
      return kWords.at(std::string(row.name));
  }
}

/// A text that says these values and three settings more.
std::string text_with(const Values& values, Dialect dialect) {
  Values all = {{"tp", "1"}, {"micro_batch_size", "1"}, {"seq_length", "64"}};
  all.insert(all.end(), values.begin(), values.end());
  std::string text = dialect == primus
                         ? "modules:\n  pre_trainer:\n    framework: megatron\n"
                           "    config: pre_trainer.yaml\n    model: some.yaml\n    overrides:\n"
                         : "torchrun script.py";
  for (const auto& [name, ours] : all) {
    const Row& row = row_of(name);
    const std::string key = key_of(row, dialect);
    const bool is_flag = kind_of(row) == Kind::flag;
    const bool is_on = (ours == "true") != is_inverted(row, dialect);
    const std::string value = !is_flag ? ours : (is_on ? "true" : "false");
    const std::string in_file = kind_of(row) == Kind::list   ? "[" + value + "]"
                                : kind_of(row) == Kind::word ? "'" + value + "'"
                                                             : value;
    if (dialect == primus) {
      text += fmt::format("      {}: {}\n", key, in_file);
    } else if (dialect == megatron_bridge) {
      text += fmt::format(" \"{}={}\"", key, in_file);
    } else if (!is_flag) {
      text += fmt::format(" {} '{}'", key, value);
    } else if (is_on) {
      text += " " + key;
    }
  }
  return text;
}

/// What says nothing by itself.
Values with_companions(const Row& row, Dialect dialect) {
  Values values = {{std::string(row.name), value_of(row, dialect)}};
  if (row.name == "num_query_groups" && dialect != megatron_bridge) {
    values.emplace_back("group_query_attention", "true");
  }
  if (row.name == "is_hybrid_model") values.emplace_back("hybrid_layer_pattern", "M*-*");
  return values;
}

/// What holds of a trait: what is said, else the dialect's default; in our words.
std::string holds(const RunConfig& run, const Row& row) {
  const json value = run.model_flags.value(std::string(row.name), json());
  if (value.is_null()) return std::string(fallback_of(row, run.dialect));
  // A sum of lists is the list that it makes.
  return value.is_string() ? written_out(value.get<std::string>()) : value.dump();
}

void check_goes_along(const Values& values, const Row& row, Dialect from) {
  const std::string text = text_with(values, from);
  const RunConfig run = import_run(text, from);
  BOOST_TEST_REQUIRE(run.model_flags.contains(row.name), text);
  for (const Dialect to : kOfMegatron) {
    const std::string written = export_run(run, to);
    BOOST_TEST_CONTEXT(row.name << "\n" << text << "\n" << written) {
      const std::string_view key = row.keys[static_cast<size_t>(to)];
      if (key == kByParts) continue;  // tested by itself
      if (key.empty()) {
        BOOST_TEST(
            (contains(written, "are not translated: ") && contains(written, key_of(row, from))));
        continue;
      }
      const RunConfig again = import_run(written, to);
      BOOST_TEST(holds(again, row) == holds(run, row));
      if (to == from) BOOST_TEST(again.model.dump() == run.model.dump());
    }
  }
  const std::string titan = export_run(run, torchtitan);
  BOOST_TEST(contains(titan, key_of(row, from)), titan);
}

}  // namespace

BOOST_DATA_TEST_CASE(each_flag_goes_along, boost::unit_test::data::make(kOfMegatron), dialect) {
  const Values sizes = {{"num_layers", "4"}, {"hidden_size", "512"}, {"num_attention_heads", "16"}};
  for (const Row& row : trait_rows()) {
    if (key_of(row, dialect).empty()) continue;
    const Values alone = with_companions(row, dialect);
    check_goes_along(alone, row, dialect);
    // Beside sizes there is a model with a family, which has words for some flags only.
    Values sized = alone;
    for (const auto& size : sizes) {
      if (size.first != row.name) sized.push_back(size);
    }
    check_goes_along(sized, row, dialect);
  }
}

// Only the parser of Megatron-LM computes sums.
BOOST_AUTO_TEST_CASE(lists_of_layers_are_written_out_for_overrides) {
  for (const char* pattern : {"([0]*1+[1]*3)", "[0]*1+[1]*3", "[0,1,1,1]"}) {
    const RunConfig run = import_run(
        fmt::format("--num-layers 4 --hidden-size 64 --num-attention-heads 4 --num-experts 8 "
                    "--moe-layer-freq '{}'",
                    pattern),
        megatron_lm);
    const std::string text = export_run(run, megatron_bridge);
    BOOST_TEST(contains(text, "model.moe_layer_freq=[0,1,1,1]"), text);
    const RunConfig again = import_run(text, megatron_bridge);
    BOOST_TEST(again.model.at("mlp_only_layers") == json({0}));
    BOOST_TEST(contains(export_run(run, megatron_lm), std::string(pattern).substr(0, 4)), pattern);
  }
  const RunConfig step =
      import_run("--tensor-model-parallel-size 1 --moe-layer-freq 2", megatron_lm);
  BOOST_TEST(contains(export_run(step, megatron_bridge), "model.moe_layer_freq=2"));
}

// One switch or two, by the dialect.
BOOST_AUTO_TEST_CASE(activations_and_groups_are_said_as_each_dialect_does) {
  const auto bridge_of = [](const char* flags) {
    return export_run(
        import_run(fmt::format("--tensor-model-parallel-size 1 {}", flags), megatron_lm),
        megatron_bridge);
  };
  BOOST_TEST(contains(bridge_of("--squared-relu"), "model.activation_func=squared_relu"));
  BOOST_TEST(contains(bridge_of("--quick-geglu"), "model.activation_func=quick_gelu"));
  BOOST_TEST(contains(bridge_of("--quick-geglu"), "model.gated_linear_unit=true"));
  const std::string groups = "--num-query-groups 2 ";
  BOOST_TEST(contains(bridge_of((groups + "--group-query-attention").c_str()),
                      "model.num_query_groups=2"));
  // Without the switch there are none.
  BOOST_TEST(!contains(bridge_of(groups.c_str()), "model.num_query_groups"));
  const auto lm_of = [](const char* settings) {
    return export_run(
        import_run(fmt::format("model.tensor_model_parallel_size=1 {}", settings), megatron_bridge),
        megatron_lm);
  };
  BOOST_TEST(contains(lm_of("model.activation_func=squared_relu"), "--squared-relu"));
  const std::string quick = lm_of("model.gated_linear_unit=true model.activation_func=quick_gelu");
  BOOST_TEST(contains(quick, "--quick-geglu"), quick);
  BOOST_TEST(!contains(quick, "--swiglu"), quick);
  BOOST_TEST(contains(lm_of("model.gated_linear_unit=true model.activation_func=gelu"),
                      "cannot be told activation_func=gelu"));
  BOOST_TEST(contains(lm_of("model.num_query_groups=2"), "--group-query-attention"));
}

// Of several words for a value the run's own is written, as long as that is its value.
BOOST_AUTO_TEST_CASE(words_stay_the_runs_own) {
  const auto written = [](const std::string& flags, auto&& change) {
    RunConfig run = import_run("--tensor-model-parallel-size 1 " + flags, megatron_lm);
    change(run.knobs);
    return export_run(run, megatron_lm);
  };
  const auto nothing = [](PlanKnobs&) {};
  for (const char* flags :
       {"--attention-backend fused", "--attention-backend flash", "--attention-backend local",
        "--optimizer dist_muon", "--cp-comm-type all_gather", "--optimizer lion"}) {
    BOOST_TEST(contains(written(flags, nothing), flags), flags);
  }
  const std::string other =
      written("--attention-backend fused", [](PlanKnobs& k) { k.fused_attention = false; });
  BOOST_TEST(contains(other, "--attention-backend unfused"), other);
  const std::string sgd =
      written("--optimizer lion", [](PlanKnobs& k) { k.optimizer = OptimizerKind::sgd; });
  BOOST_TEST(contains(sgd, "--optimizer sgd"), sgd);
  BOOST_TEST(!contains(sgd, "lion"), sgd);
  // Also where defaults are said.
  const std::string bridge = export_run(
      import_run("model.tensor_model_parallel_size=1 optimizer.optimizer=lion", megatron_bridge),
      megatron_bridge);
  BOOST_TEST(contains(bridge, "optimizer.optimizer=lion"), bridge);
  BOOST_TEST(!contains(bridge, "optimizer.optimizer=adam"), bridge);
  // Another dialect has the usual one.
  const RunConfig muon =
      import_run("--tensor-model-parallel-size 1 --optimizer dist_muon", megatron_lm);
  BOOST_TEST(contains(export_run(muon, primus), "optimizer: muon"));
}

BOOST_AUTO_TEST_CASE(experts_are_not_said_of_runs_that_show_none) {
  const auto written = [](const char* flags) {
    return export_run(import_run(fmt::format("--tensor-model-parallel-size 1 {}", flags),
                                 megatron_lm, {.world_size = 8}),
                      megatron_lm);
  };
  BOOST_TEST(!contains(written("--use-checkpoint-args"), "--moe-"));
  for (const char* flags : {"--num-experts 8", "--expert-model-parallel-size 2",
                            "--moe-token-dispatcher-type alltoall"}) {
    BOOST_TEST(contains(written(flags), "--moe-token-dispatcher-type"), flags);
  }
}

// Behind a command that says another one it has to be said.
BOOST_AUTO_TEST_CASE(a_stated_exchange_of_rows_is_changed_by_words) {
  for (const char* experts : {"", " --num-experts 8"}) {
    const RunConfig run = import_run(
        fmt::format("--tensor-model-parallel-size 1 --moe-token-dispatcher-type alltoall{}",
                    experts),
        megatron_lm);
    RunConfig other = run;
    other.knobs.dispatcher = Dispatcher::allgather;
    const auto changes = changed_settings(run, other, megatron_lm);
    BOOST_TEST_REQUIRE(changes.size() == 1U);
    BOOST_TEST(text_of(changes[0], megatron_lm) == "--moe-token-dispatcher-type allgather");
  }
}

// A sweep may have an axis of a setting that is one of the model.
BOOST_AUTO_TEST_CASE(a_setting_passed_on_wins_over_the_models_own) {
  RunConfig run =
      import_run("--tensor-model-parallel-size 1 --moe-router-score-function sigmoid", megatron_lm);
  run.unknown.push_back({"--moe-router-score-function", "softmax"});
  const std::string text = export_run(run, megatron_lm);
  BOOST_TEST(contains(text, "--moe-router-score-function softmax"), text);
  BOOST_TEST(!contains(text, "sigmoid"), text);
}

// Parsers print all that they have: no statement of the run.
BOOST_AUTO_TEST_CASE(what_is_echoed_is_no_statement) {
  const std::string text = "--tensor-model-parallel-size 1 --linear-conv-kernel-dim 4";
  BOOST_TEST(import_run(text, megatron_lm, {.is_echo = true}).model_flags.empty());
  BOOST_TEST(!import_run(text, megatron_lm).model_flags.empty());
}

// Of two runs with the same knobs, the model is no change.
BOOST_AUTO_TEST_CASE(flags_of_the_model_are_no_changes) {
  const RunConfig run = import_run(
      "--tensor-model-parallel-size 1 --norm-epsilon 1e-6 --num-layers "
      "4 --hidden-size 64 --num-attention-heads 4",
      megatron_lm);
  RunConfig other = run;
  other.knobs.micro_batch_size = 2;
  const auto changes = changed_settings(run, other, megatron_lm);
  BOOST_TEST_REQUIRE(changes.size() == 1U);
  BOOST_TEST(changes[0].key == "--micro-batch-size");
}

BOOST_AUTO_TEST_CASE(flags_go_along_to_another_run) {
  const RunConfig changed =
      import_run("--tensor-model-parallel-size 1 --norm-epsilon 1e-4", megatron_lm);
  RunConfig plan;
  plan.model = family_samples::with(family_samples::plain("llama"), {{"rms_norm_eps", 1e-6}});
  take_model_flags(changed, true, plan);
  BOOST_TEST(contains(export_run(plan, megatron_lm), "--norm-epsilon 0.0001"));
  // A model that was given beside that of the command counts.
  const RunConfig sized = import_run(
      "--tensor-model-parallel-size 1 --num-layers 4 --hidden-size 32 --num-attention-heads 4 "
      "--norm-epsilon 1e-4 --moe-router-score-function sigmoid",
      megatron_lm);
  take_model_flags(sized, true, plan);
  const std::string text = export_run(plan, megatron_lm);
  BOOST_TEST(contains(text, "--norm-epsilon 1e-06"), text);
  BOOST_TEST(contains(text, "--moe-router-score-function sigmoid"), text);
}

// Latent attention says nothing of the MLP. What Megatron-Bridge's recipes say is not known.
BOOST_AUTO_TEST_CASE(latent_attention_beside_any_mlp) {
  const Values sizes = {{"num_layers", "4"},          {"hidden_size", "512"},
                        {"num_attention_heads", "8"}, {"multi_latent_attention", "true"},
                        {"kv_lora_rank", "64"},       {"vocab_size", "128"}};
  const auto model_of = [&](const Values& more, Dialect dialect) {
    Values all = sizes;
    all.insert(all.end(), more.begin(), more.end());
    return model_from_json(import_run(text_with(all, dialect), dialect).model, Source("run"));
  };
  Values sparse = sizes;
  sparse.emplace_back("experimental_attention_variant", "dsa");
  const RunConfig run = import_run(text_with(sparse, megatron_lm), megatron_lm);
  BOOST_TEST(std::ranges::any_of(run.notes, [](const std::string& note) {
    return contains(note, "sparse attention is taken as attention to all keys");
  }));
  const ModelSpec bare = model_of({}, megatron_lm);
  BOOST_TEST(!bare.has_gated_mlp);
  BOOST_TEST(bare.has_layer_norm);
  for (const Dialect dialect : kOfMegatron) {
    const ModelSpec usual = model_of({{"swiglu", "true"}, {"normalization", "RMSNorm"}}, dialect);
    BOOST_TEST(usual.has_gated_mlp);
    BOOST_TEST(!usual.has_layer_norm);
  }
  const ModelSpec of_recipe = model_of({}, megatron_bridge);
  BOOST_TEST(of_recipe.has_gated_mlp);
  BOOST_TEST(!of_recipe.has_layer_norm);
  const std::string text =
      export_run(import_run(text_with(sizes, megatron_bridge), megatron_bridge), megatron_lm);
  BOOST_TEST(contains(text, "--swiglu"), text);
  BOOST_TEST(contains(text, "--normalization RMSNorm"), text);
}

// Each family either comes back as it was, or the text says what it does not write.
BOOST_AUTO_TEST_CASE(families_are_written_or_told) {
  for (json model : family_samples::all_samples()) {
    model["vocab_size"] = 128;  // no rows to pad
    const ModelSpec before = model_from_json(model, Source("before"));
    RunConfig run;
    run.model = model;
    run.global_batch_size = run.seq_length = 8;
    for (const Dialect dialect : kOfMegatron) {
      const std::string text = export_run(run, dialect);
      BOOST_TEST_CONTEXT(text) {
        const ModelSpec after = model_from_json(import_run(text, dialect).model, Source("after"));
        const bool has_indexer = before.mla.index_heads > 0;
        BOOST_TEST(contains(text, "# the indexer that chooses keys") == has_indexer);
        BOOST_TEST(contains(text, "# chunks of keys have no flag") == before.has_chunked_windows);
        BOOST_TEST(contains(text, find_family(before.family)->assumed));
        if (!has_indexer) {
          BOOST_TEST(after.num_parameters() == before.num_parameters());
          BOOST_TEST(after.num_active_parameters() == before.num_active_parameters());
        }
        BOOST_TEST((after.is_moe_layer == before.is_moe_layer));
        BOOST_TEST((after.has_router_bias == before.has_router_bias ||
                    contains(text, "enable_expert_bias") ||
                    contains(text, "--moe-router-enable-expert-bias")));
        const bool is_turned_in_part = before.rope.type != "none" && before.rope.rotary_ratio != 1;
        const bool says_share = contains(text, "rotary-percent 0.") ||
                                contains(text, "rotary_percent=0.") ||
                                contains(text, "rotary_percent: 0.");
        BOOST_TEST(says_share == is_turned_in_part);
        if (!before.has_chunked_windows) {
          BOOST_TEST((after.attention_window == before.attention_window));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec::dialects
