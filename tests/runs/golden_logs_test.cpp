// Logs as frameworks print them, and every fact that has to come out.
#include "tests/runs/golden_logs.h"

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <set>

#include "engine/spec/dialects/run_config.h"
#include "sweeps/runs/failure_forms.h"
#include "sweeps/runs/line_forms.h"

namespace moetune::sweeps {

BOOST_AUTO_TEST_SUITE(golden_logs_of_frameworks)

namespace {

using nlohmann::json;

const json& expected_facts() {
  static const json facts = json::parse(golden_logs::text_of("expected.json"));
  return facts;
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : expected_facts().items()) names.push_back(name);
  return names;
}

/// What is expected is a part of what is there.
void check_part(const std::string& path, const json& expected, const json& found) {
  if (expected.is_object()) {
    for (const auto& [key, value] : expected.items()) {
      BOOST_TEST_CONTEXT(path << "." << key) {
        BOOST_REQUIRE(found.is_object());
        BOOST_REQUIRE(found.contains(key));
        check_part(path + "." + key, value, found.at(key));
      }
    }
  } else if (expected.is_array() && !expected.empty() && expected[0].is_object()) {
    BOOST_REQUIRE_MESSAGE(found.size() >= expected.size(), path << " is " << found.dump());
    for (size_t i = 0; i < expected.size(); ++i) {
      check_part(path + "[" + std::to_string(i) + "]", expected[i], found[i]);
    }
  } else if (expected.is_number() && found.is_number()) {
    BOOST_TEST(found.get<double>() == expected.get<double>(), boost::test_tools::tolerance(1e-9));
  } else {
    BOOST_TEST(found == expected, path << " is " << found.dump() << ", not " << expected.dump());
  }
}

}  // namespace

BOOST_DATA_TEST_CASE(facts, boost::unit_test::data::make(case_names())) {
  const json row = expected_facts().at(sample);
  std::vector<std::string> paths;
  for (const auto& file : row.at("files")) {
    paths.push_back(golden_logs::folder() + file.get<std::string>());
  }
  check_part(sample, row.at("expected"), to_json(read_run(paths)));
}

BOOST_AUTO_TEST_CASE(every_log_has_its_facts) {
  std::set<std::string> files;
  for (const auto& [name, entry] : expected_facts().items()) {
    for (const auto& file : entry.at("files")) files.insert(file.get<std::string>());
  }
  for (const std::string& name : golden_logs::all_names()) BOOST_TEST(files.contains(name), name);
}

BOOST_AUTO_TEST_CASE(every_log_is_known_as_one) {
  for (const std::string& name : golden_logs::all_names()) {
    BOOST_TEST(looks_like_log(golden_logs::text_of(name)), name);
  }
}

// A row whose anchor is misspelt would never be read.
BOOST_AUTO_TEST_CASE(every_row_of_the_tables_occurs) {
  std::string all;
  for (const std::string& name : golden_logs::all_names()) all += golden_logs::text_of(name);
  for (const LineForm& form : line_forms()) {
    BOOST_TEST((all.find(form.anchor) != std::string::npos), form.name << ": " << form.anchor);
  }
}

BOOST_AUTO_TEST_CASE(names_of_failures_are_of_one_status_and_blame) {
  std::set<std::string_view> names;
  for (const FailureForm& form : failure_forms()) {
    BOOST_TEST(!form.name.empty());
    // What is told of it needs words; what only helps to read others has none.
    BOOST_TEST((!form.words.empty() || form.read != nullptr), form.name);
    if (form.anchor.empty()) BOOST_TEST(names.insert(form.name).second, form.name);
  }
}

BOOST_AUTO_TEST_CASE(torchtitan_in_the_form_of_primus_has_loss_and_memory) {
  const RunFacts facts = golden_logs::facts_of(
      " iteration        7/      50 | consumed samples:          896 | elapsed time per iteration "
      "(ms): 950.5 | memory usage/free/total: 96.50GiB/90.25GiB/(50.26%) | throughput per GPU "
      "(TFLOP/s/GPU): 310.5 | tokens per GPU (tokens/s/GPU): 6700.5 | global batch size:   128 | "
      "loss: 1.150000E+01 | grad norm: 3.250 | mfu: 31.05% |\n");
  BOOST_TEST_REQUIRE(facts.loss.has_value());
  BOOST_TEST(*facts.loss == 11.5);
  BOOST_TEST_REQUIRE(facts.memory.size() == 1U);
  BOOST_TEST(facts.memory[0].bytes == int64_t{193} << 29);
}

// A build of the release that is read, and a version that nobody has set, are no other release.
BOOST_AUTO_TEST_CASE(another_release_of_torchtitan_is_told) {
  const auto notes_of = [](const std::string& version) {
    const std::string titan = "[rank0]:[titan] 2026-03-04 05:05:00,000 - root - INFO - ";
    return golden_logs::facts_of(titan + "torchtitan version: " + version +
                                 " (0.0.0 means __version__ is not defined correctly).\n" + titan +
                                 "step:  1  loss: 11.9000  memory: 61.25GiB(77.43%)  tps: 500\n" +
                                 titan + "Training completed\n")
        .notes;
  };
  const std::string_view ours =
      spec::dialects::dialect_row(spec::dialects::Dialect::torchtitan).release;
  const std::string number(ours.substr(0, ours.find(' ')));
  BOOST_TEST(notes_of(number).empty());
  BOOST_TEST(notes_of(number + "+cu128").empty());
  BOOST_TEST(notes_of("0.0.0+unknown").empty());
  BOOST_TEST_REQUIRE(notes_of("0.1.0").size() == 1u);
  BOOST_TEST(notes_of("0.1.0").front().starts_with("the log is of torchtitan 0.1.0: "));
}

// The stages of a pipeline cut it into micro-batches of a size that the log does not say.
BOOST_AUTO_TEST_CASE(a_local_batch_is_a_micro_batch_without_stages) {
  const auto micro_batch_of = [](const std::string& pp) {
    const std::string titan = "[rank0]:[titan] 2026-03-04 05:05:00,000 - root - INFO - ";
    return golden_logs::facts_of(titan + "Building device mesh with parallelism: pp=" + pp +
                                 ", dp_replicate=1, dp_shard=4, cp=1, tp=2, ep=1, etp=1\n" + titan +
                                 "Trainer is initialized with local batch size 2, global batch "
                                 "size 8, gradient accumulation steps 1, sequence length 8192, "
                                 "total steps 30 (warmup 2)\n")
        .micro_batch_size.value_or(0);
  };
  BOOST_TEST(micro_batch_of("1") == 2);
  BOOST_TEST(micro_batch_of("2") == 0);
}

// What a log echoes is as good as the command: a round trip through the dialect.
BOOST_AUTO_TEST_CASE(an_argument_dump_is_the_command) {
  const RunFacts facts = read_run({golden_logs::folder() + "megatron_lm.log"});
  BOOST_REQUIRE(facts.config.has_value());
  const spec::PlanKnobs& k = facts.config->knobs;
  BOOST_TEST(k.recompute.text() == "layernorm,moe_act");
  BOOST_TEST((k.dispatcher == spec::Dispatcher::alltoall));
  BOOST_TEST((k.precision == spec::PrecisionRecipe::bf16));
  BOOST_TEST((k.cross_entropy == spec::CrossEntropy::unfused));
  BOOST_TEST(k.distributed_optimizer);
  BOOST_TEST(k.fused_attention);
  BOOST_TEST(k.gradient_accumulation_fusion);
  BOOST_TEST(facts.config->model.at("num_hidden_layers") == 48);
  const std::string command = spec::dialects::export_run(*facts.config, facts.config->dialect);
  const auto again = spec::dialects::import_run(command, facts.config->dialect);
  BOOST_TEST((again.knobs == k));
}

// As Python prints tuples and lists; switches that are off, and what Megatron made of the letters.
BOOST_AUTO_TEST_CASE(layers_of_an_argument_dump) {
  const auto model_of = [](const std::vector<std::pair<const char*, const char*>>& arguments) {
    std::string text = "------------------------ arguments ------------------------\n";
    for (const auto& [name, value] : arguments) {
      const std::string key = name;
      text += "  " + key + " " + std::string(48 - key.size(), '.') + " " + value + "\n";
    }
    text += "-------------------- end of arguments ---------------------\n";
    const RunFacts facts = golden_logs::facts_of(text + golden_logs::megatron_steps(1, 3));
    BOOST_REQUIRE(facts.config.has_value());
    return facts.config->model;
  };
  const nlohmann::json windows = model_of({{"num_layers", "3"},
                                           {"hidden_size", "64"},
                                           {"num_attention_heads", "8"},
                                           {"tensor_model_parallel_size", "1"},
                                           {"normalization", "RMSNorm"},
                                           {"swiglu", "True"},
                                           {"add_bias_linear", "False"},
                                           {"quick_geglu", "False"},
                                           {"hybrid_layer_pattern", "None"},
                                           {"is_hybrid_model", "False"},
                                           {"softmax_type", "learnable"},
                                           {"window_size", "(127, 0)"},
                                           {"window_attn_skip_freq", "[1, 1, 0]"}});
  BOOST_TEST(windows.at("sliding_window") == 128);
  BOOST_TEST(windows.at("layer_types") ==
             nlohmann::json({"sliding_attention", "sliding_attention", "full_attention"}));
  BOOST_TEST(windows.at("attention_sinks") == true);
  const nlohmann::json hybrid = model_of({{"num_layers", "4"},
                                          {"hidden_size", "64"},
                                          {"num_attention_heads", "8"},
                                          {"tensor_model_parallel_size", "1"},
                                          {"squared_relu", "True"},
                                          {"num_experts", "8"},
                                          {"hybrid_override_pattern", "MEM*/*E"},
                                          {"hybrid_layer_pattern", "MEM*/*E"},
                                          {"mamba_num_heads", "4"},
                                          {"mamba_num_groups", "2"},
                                          {"mtp_num_layers", "1"}});
  BOOST_TEST(hybrid.at("hybrid_override_pattern") == "MEM*");
  BOOST_TEST(hybrid.at("mtp_hybrid_override_pattern") == "*E");
  BOOST_TEST(hybrid.at("mamba_num_heads") == 4);
}

BOOST_AUTO_TEST_CASE(a_summary_of_bridge_is_its_overrides) {
  const RunFacts facts = read_run({golden_logs::folder() + "megatron_bridge.log"});
  BOOST_REQUIRE(facts.config.has_value());
  BOOST_TEST(facts.config->knobs.recompute.text() == "moe_act");
  BOOST_TEST(facts.config->knobs.vpp == 3);
  BOOST_TEST((facts.config->dialect == spec::dialects::Dialect::megatron_bridge));
  BOOST_TEST(facts.config->is_echo);
}

BOOST_AUTO_TEST_CASE(a_command_stands_in_for_the_echo) {
  const RunFacts facts = golden_logs::facts_of(
      "+ torchrun --nproc_per_node=8 pretrain_gpt.py --tensor-model-parallel-size 2 "
      "--pipeline-model-parallel-size 2 --seq-length 4096 --micro-batch-size 2\n" +
      golden_logs::megatron_steps(1, 3));
  BOOST_REQUIRE(facts.config.has_value());
  BOOST_TEST(!facts.config->is_echo);
  BOOST_TEST(facts.world_size.value_or(0) == 8);
  BOOST_TEST(facts.parallel.tp.value_or(0) == 2);
  BOOST_TEST(facts.parallel.dp.value_or(0) == 2);
  BOOST_TEST(facts.seq_length.value_or(0) == 4096);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
