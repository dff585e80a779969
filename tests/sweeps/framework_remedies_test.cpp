// Remedies that hang on the framework and on the model: torchtitan's own words, rules that a
// command's sizes are enough for, and models without experts.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sweeps/planning/named_files.h"
#include "sweeps/runs/remedies.h"
#include "tests/import/trace_texts.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {

namespace dialects = spec::dialects;
using Flags = std::vector<std::string>;

namespace {

RunToMend run_in_words(const std::string& text, dialects::Dialect dialect) {
  RunToMend run;
  run.config = dialects::import_run(text, dialect, {.world_size = 8});
  return run;
}

RunToMend titan_to_mend(const std::string& more) {
  return run_in_words("[training]\nlocal_batch_size = 1\nseq_len = 4096\n" + more,
                      dialects::Dialect::torchtitan);
}

/// Of sizes that leave the vocabulary to a tokenizer.
RunToMend megatron_to_mend(const std::string& more) {
  return run_in_words(
      "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 "
      "--num-attention-heads 16 --micro-batch-size 2 --global-batch-size 32 --seq-length 4096 "
      "--max-position-embeddings 4096 --bf16 " +
          more,
      dialects::Dialect::megatron_lm);
}

const std::string kWithExperts =
    "--num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 1408 "
    "--expert-model-parallel-size 8 --moe-token-dispatcher-type alltoall ";

FoundWall found_wall(const std::string& label, const std::string& sub_cause, double share) {
  return {base::wall_from_name(label).value(), sub_cause, {{label, share}}};
}

std::optional<Remedy> remedy_of(const FoundWall& wall, const RunToMend& run,
                                std::string_view rule) {
  for (const Remedy& remedy : remedies_of(wall, run)) {
    if (remedy.rule == rule) return remedy;
  }
  return std::nullopt;
}

/// Empty: the rule has no remedy.
Flags flags_of_rule(const FoundWall& wall, const RunToMend& run, std::string_view rule) {
  const std::optional<Remedy> remedy = remedy_of(wall, run, rule);
  return remedy ? remedy->flags : Flags{};
}

void check_flags(const Flags& found, const Flags& expected) {
  BOOST_TEST(found == expected, boost::test_tools::per_element());
}

bool has_part(const Flags& flags, std::string_view part) {
  return std::ranges::any_of(
      flags, [&](const std::string& flag) { return flag.find(part) != std::string::npos; });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(framework_remedies)

// What is on already frees no more memory, also where it is on unasked.
BOOST_AUTO_TEST_CASE(of_torchtitans_checkpoints_the_next_mode_is_proposed) {
  const FoundWall oom = found_wall("memory", "oom", 1);
  const auto proposed = [&](const std::string& more) {
    return flags_of_rule(oom, titan_to_mend(more), "more_recomputation");
  };
  const std::string table = "[activation_checkpoint]\nmode = ";
  const Flags full = {"activation_checkpoint.mode = \"full\""};
  check_flags(proposed(""), full);
  check_flags(proposed(table + "\"selective\"\nselective_ac_option = \"op\"\n"), full);
  check_flags(proposed(table + "\"selective\"\nselective_ac_option = \"4\"\n"), full);
  check_flags(proposed(table + "\"none\"\n"),
              {"activation_checkpoint.mode = \"selective\"",
               "activation_checkpoint.selective_ac_option = \"op\""});
  check_flags(proposed(table + "\"full\"\n"), {});
  // The other way, too.
  check_flags(
      flags_of_rule(found_wall("memory", "recompute", 0.3), titan_to_mend(""), "no_recomputation"),
      {"activation_checkpoint.mode = \"none\""});
}

// By operation, each operator of the forward pass goes through Python, which ends with it.
BOOST_AUTO_TEST_CASE(recomputation_by_operation_costs_the_host_as_well) {
  FoundWall wall = found_wall("compute", "FLOPs", 0.8);
  wall.ceilings["host"] = 0.1;
  wall.cause_ceilings = {{"FLOPs", 0.8}, {"launch", 0.1}};
  wall.needless_recompute_ratio = 0.13;
  const auto ceiling_with = [&](const std::string& settings) {
    const auto none =
        remedy_of(wall, titan_to_mend("[activation_checkpoint]\nmode = " + settings + "\n"),
                  "no_recomputation");
    BOOST_TEST_REQUIRE(none.has_value(), settings);
    return none->ceiling_ratio;
  };
  BOOST_TEST(std::abs(ceiling_with("\"selective\"\nselective_ac_option = \"op\"") - 0.18) < 1e-9);
  BOOST_TEST(std::abs(ceiling_with("\"selective\"\nselective_ac_option = \"2\"") - 0.13) < 1e-9);
  BOOST_TEST(std::abs(ceiling_with("\"full\"") - 0.13) < 1e-9);
  BOOST_TEST(std::abs(ceiling_with("\"memory_budget\"") - 0.13) < 1e-9);
}

// The command says all that these rules ask for, with any vocabulary.
BOOST_AUTO_TEST_CASE(rules_of_a_command_are_those_of_its_model) {
  const FoundWall launch = found_wall("host", "launch", 0.5);
  const auto refused = [&](const std::string& more) {
    const auto graphs =
        remedy_of(launch, megatron_to_mend(kWithExperts + more), "graphs_of_static_parts");
    BOOST_TEST_REQUIRE(graphs.has_value());
    return graphs->refused.substr(0, graphs->refused.find(':'));
  };
  BOOST_TEST(refused("") == "");
  BOOST_TEST(refused("--recompute-granularity selective --recompute-modules moe") ==
             "router_graph_or_recompute");
  BOOST_TEST(refused("--recompute-granularity full --recompute-method uniform "
                     "--recompute-num-layers 1") == "graphs_or_recompute");
}

BOOST_AUTO_TEST_CASE(a_dense_model_has_remedies_of_its_own_parts) {
  const FoundWall launch = found_wall("host", "launch", 0.5);
  const RunToMend dense = megatron_to_mend("");
  const Flags graphs = flags_of_rule(launch, dense, "graphs_of_static_parts");
  BOOST_TEST(has_part(graphs, "--cuda-graph-modules attn mlp"));
  BOOST_TEST(!has_part(graphs, "moe"));
  RunToMend named = dense;
  named.model = model_named("llama3-8b");
  check_flags(flags_of_rule(launch, named, "graphs_of_static_parts"), graphs);
  BOOST_TEST(
      has_part(flags_of_rule(launch, megatron_to_mend(kWithExperts), "graphs_of_static_parts"),
               "moe_router"));
  // Norms are recomputed, and then whole layers: there is no activation of experts.
  const FoundWall oom = found_wall("memory", "oom", 1);
  const auto modules = remedy_of(oom, dense, "more_recomputation");
  BOOST_TEST_REQUIRE(modules.has_value());
  BOOST_TEST(modules->knobs.value().recompute.text() == "layernorm");
  BOOST_TEST(modules->refused == "");
  const auto layers = remedy_of(
      oom, megatron_to_mend("--recompute-granularity selective --recompute-modules layernorm"),
      "more_recomputation");
  BOOST_TEST_REQUIRE(layers.has_value());
  BOOST_TEST(layers->knobs.value().recompute.text() == "full");
  // Room has to be made by something: a larger micro-batch alone is none.
  const FoundWall capped = found_wall("memory", "capped micro-batch", 0.5);
  BOOST_TEST(remedy_of(capped, dense, "room_by_recomputation").has_value());
  BOOST_TEST(!remedy_of(capped,
                        megatron_to_mend(
                            "--recompute-granularity selective --recompute-modules layernorm"),
                        "room_by_recomputation")
                  .has_value());
}

BOOST_AUTO_TEST_CASE(a_dense_model_of_torchtitan_converts_linear_layers_only) {
  const FoundWall products = found_wall("compute", "FLOPs", 0.5);
  const auto flags = [&](const char* model) {
    return flags_of_rule(products, titan_to_mend(model), "products_in_fp8");
  };
  const Flags dense = flags("[model]\nname = \"llama3\"\nflavor = \"8B\"\n");
  BOOST_TEST(has_part(dense, "quantize.linear.float8"));
  BOOST_TEST(!has_part(dense, "grouped_mm"));
  BOOST_TEST(has_part(flags("[model]\nname = \"deepseek_v3\"\nflavor = \"16B\"\n"), "grouped_mm"));
  RunToMend logged = titan_to_mend("");
  logged.config->model_name = "qwen3 8B";
  BOOST_TEST(!has_part(flags_of_rule(products, logged, "products_in_fp8"), "grouped_mm"));
  RunToMend stated = titan_to_mend("");
  BOOST_TEST(has_part(flags_of_rule(products, stated, "products_in_fp8"), "grouped_mm"));
  stated.model = model_named("llama3-8b");
  BOOST_TEST(!has_part(flags_of_rule(products, stated, "products_in_fp8"), "grouped_mm"));
  const FoundWall imbalance = found_wall("imbalance", "experts", 0.5);
  BOOST_TEST(remedies_of(imbalance, titan_to_mend("[model]\nname = \"llama3\"\nflavor = \"8B\"\n"))
                 .empty());
}

// 8 ranks share the weights, which each micro-batch gathers for the forward pass and once more.
BOOST_AUTO_TEST_CASE(gathers_of_fsdp_have_remedies_in_torchtitans_words) {
  const FoundWall transfer = found_wall("communication", "transfer", 0.3);
  const auto kept = remedy_of(transfer, titan_to_mend(""), "weights_kept_gathered");
  BOOST_TEST_REQUIRE(kept.has_value());
  check_flags(kept->flags, {"parallelism.fsdp_reshard_after_forward = \"never\""});
  BOOST_TEST(kept->ceiling_ratio == 0.15);  // half of the gathers
  const auto more = remedy_of(transfer, titan_to_mend(""), "more_work_for_each_gather");
  BOOST_TEST_REQUIRE(more.has_value());
  check_flags(more->flags, {"training.local_batch_size = 2"});
  BOOST_TEST(more->ceiling_ratio == 0.3);
  RunToMend halves = titan_to_mend("");
  check_flags(flags_of_rule(transfer, halves, "shards_in_halves"),
              {"parallelism.data_parallel_replicate_degree = 2",
               "parallelism.data_parallel_shard_degree = 4"});
  halves.is_on_one_node = true;
  check_flags(flags_of_rule(transfer, halves, "shards_in_halves"), {});
  // What is so already: said, by itself beside stages, or without shards.
  const auto has_rule = [&](const FoundWall& wall, const std::string& table, const char* rule) {
    return remedy_of(wall, titan_to_mend("[parallelism]\n" + table), rule).has_value();
  };
  const std::string reshard = "fsdp_reshard_after_forward = ";
  const std::string stages = "pipeline_parallel_degree = 2\n";
  BOOST_TEST(!has_rule(transfer, reshard + "\"never\"\n", "weights_kept_gathered"));
  BOOST_TEST(has_rule(transfer, reshard + "\"default\"\n", "weights_kept_gathered"));
  BOOST_TEST(!has_rule(transfer, stages, "weights_kept_gathered"));
  BOOST_TEST(!has_rule(transfer, stages, "more_work_for_each_gather"));
  const std::string copies = "data_parallel_replicate_degree = 8\ndata_parallel_shard_degree = 1\n";
  for (const char* rule :
       {"weights_kept_gathered", "more_work_for_each_gather", "shards_in_halves"}) {
    BOOST_TEST(!has_rule(transfer, copies, rule), rule);
  }
  // Two shards are the fewest, and experts are spread over the shards of one copy.
  BOOST_TEST(!has_rule(transfer,
                       "data_parallel_replicate_degree = 4\ndata_parallel_shard_degree = 2\n",
                       "shards_in_halves"));
  BOOST_TEST(!has_rule(transfer, "expert_parallel_degree = 8\n", "shards_in_halves"));
  // Memory asks for the contrary.
  const FoundWall oom = found_wall("memory", "oom", 1);
  BOOST_TEST(has_rule(oom, stages, "weights_freed_after_forward"));
  BOOST_TEST(has_rule(oom, reshard + "\"never\"\n", "weights_freed_after_forward"));
  BOOST_TEST(!has_rule(oom, reshard + "\"always\"\n", "weights_freed_after_forward"));
  BOOST_TEST(!has_rule(oom, "tensor_parallel_degree = 1\n", "weights_freed_after_forward"));
  // Megatron has no such words.
  BOOST_TEST(!remedy_of(transfer, megatron_to_mend("--use-torch-fsdp2"), "weights_kept_gathered")
                  .has_value());
  BOOST_TEST(
      !remedy_of(transfer, megatron_to_mend("--use-torch-fsdp2"), "shards_in_halves").has_value());
}

BOOST_AUTO_TEST_CASE(launches_of_torchtitan_are_compiled_away) {
  const FoundWall launch = found_wall("host", "launch", 0.8);
  const auto compiled = [&](const std::string& more) {
    return flags_of_rule(launch, titan_to_mend(more), "fewer_small_kernels");
  };
  const Flags flags = {"compile.enable = true", "compile.components = [\"model\"]"};
  check_flags(compiled(""), flags);
  check_flags(compiled("[compile]\nenable = false\n"), flags);
  check_flags(compiled("[compile]\nenable = true\n"), {});
}

// Twice the rows take as long as those of today at best, and half of the launches stay.
BOOST_AUTO_TEST_CASE(a_larger_micro_batch_saves_half_at_most) {
  const RunToMend run = megatron_to_mend("");
  const auto ceiling = [&](const char* label, const char* cause, double share, const char* rule) {
    const auto remedy = remedy_of(found_wall(label, cause, share), run, rule);
    return remedy ? remedy->ceiling_ratio : 0;
  };
  BOOST_TEST(ceiling("compute", "occupancy", 0.9, "larger_products") == 0.45);
  BOOST_TEST(ceiling("host", "launch", 0.9, "larger_micro_batch") == 0.5);
  BOOST_TEST(ceiling("host", "launch", 0.3, "larger_micro_batch") == 0.3);
}

// 40 us of a product and 50 of another kernel, by turns, of a run that nobody describes.
BOOST_FIXTURE_TEST_CASE(without_a_command_traces_tell_whether_there_are_experts, tests::Cli) {
  const auto has_words_for_experts = [&](const std::string& kernel) {
    tests::EventText events;
    for (int i = 0; i < 50; ++i) {
      events.call(i, 0.4, 2 * i + 1).kernel(10'000 + 91 * i, 40, 2 * i + 1);
      events.call(i + 0.5, 0.2, 2 * i + 2).kernel(10'040 + 91 * i, 50, 2 * i + 2, kernel);
    }
    const std::string trace = folder.file("trace.json");
    tests::write_text(trace, events.json());
    const tests::Answer answer = run({"diagnose", trace, "--format", "json"});
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    const nlohmann::json document = nlohmann::json::parse(answer.out);
    BOOST_TEST(document["wall"]["label"] == "compute", document["wall"].dump());
    BOOST_TEST(!document["remedies"].empty());
    return document["remedies"].dump().find("--moe-") != std::string::npos;
  };
  BOOST_TEST(!has_words_for_experts("void at::native::vectorized_elementwise_kernel<4>(x)"));
  BOOST_TEST(has_words_for_experts("_permute_kernel(x)"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
