// What a run of somebody else may not do to the text that is written of it, and what goes along.
#include <fmt/format.h>

#include <algorithm>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/run_config.h"
#include "tests/spec/dialects/dialect_samples.h"

namespace moetune::spec::dialects {
BOOST_AUTO_TEST_SUITE(exports_of_dialects)

namespace {

using samples::contains;
using samples::refusal;

/// A run of two settings and what else is said.
RunConfig run_of_primus(const std::string& more) {
  return import_run(
      "modules:\n  pre_trainer:\n    framework: megatron\n    config: pre_trainer.yaml\n"
      "    model: language_model.yaml\n    overrides:\n      micro_batch_size: 1\n" +
          more,
      Dialect::primus, {.world_size = 8});
}

}  // namespace

BOOST_AUTO_TEST_CASE(bytes_that_are_no_text_are_refused) {
  const std::string command = "--tensor-model-parallel-size 1 --lr ";
  BOOST_TEST(
      contains(refusal(command + "\xFF", Dialect::megatron_lm), "line 1: byte 0xFF is not UTF-8"));
  // A character that ends too early, an overlong form, a surrogate.
  for (const char* bytes : {"\xE2\x82", "\xC0\xAF", "\xED\xA0\x80"}) {
    BOOST_TEST(contains(refusal(command + bytes, Dialect::megatron_lm), "is not UTF-8"));
  }
  BOOST_TEST(contains(refusal("micro_batch_size: 1\nx: '\xFE'\n", Dialect::primus),
                      "line 2: byte 0xFE is not UTF-8"));
  const RunConfig run = import_run(command + "\xC3\xA9", Dialect::megatron_lm, {});
  BOOST_TEST(run.unknown.at(0).value == "'\xC3\xA9'");
}

BOOST_AUTO_TEST_CASE(keys_are_told_without_control_characters) {
  BOOST_TEST(text_of_keys({"--foo\x1B[31mred", "--lr"}) == "--foo?[31mred, --lr");
}

// In a file, variables stand in comments of one line.
BOOST_AUTO_TEST_CASE(a_variable_cannot_leave_its_comment) {
  const RunConfig run = import_run(
      "PYTORCH_CUDA_ALLOC_CONF=\"a\nmodules: {}\nevil: 1\" NCCL_NVLS_ENABLE=0 torchrun "
      "pretrain_gpt.py --micro-batch-size 1 --bf16",
      Dialect::megatron_lm, {.world_size = 8});
  for (const Dialect dialect : {Dialect::primus, Dialect::torchtitan}) {
    const std::string text = export_run(run, dialect);
    BOOST_TEST_CONTEXT(text) {
      BOOST_TEST(!contains(text, "\nevil"));
      BOOST_TEST(!contains(text, "\nmodules: {}"));
      BOOST_TEST(contains(text, "\n# PYTORCH_CUDA_ALLOC_CONF is left out: "));
      BOOST_TEST(contains(text, "\n# moetune: NCCL_NVLS_ENABLE=0\n"));
      BOOST_TEST(!import_run(text, dialect).environment.contains("PYTORCH_CUDA_ALLOC_CONF"));
    }
  }
}

BOOST_AUTO_TEST_CASE(keys_of_any_kind_come_back_from_a_file) {
  const RunConfig run =
      run_of_primus("      \"foo\\ntouch x\": 3\n      \"a\\\"b\\u001b\": \"c\\u000Dd\"\n");
  BOOST_REQUIRE(run.unknown.size() == 2U);
  BOOST_TEST(run.unknown[0].key == "foo\ntouch x");
  BOOST_TEST(run.unknown[1].key == "a\"b\x1B");
  const std::string text = export_run(run, Dialect::primus);
  BOOST_TEST(!contains(text, "\ntouch"), text);
  BOOST_TEST((import_run(text, Dialect::primus).unknown == run.unknown), text);
  // The same of tables.
  const RunConfig titan =
      import_run("[training]\nlocal_batch_size = 2\n\"x\\ny\" = 3\n[\"a\\nb\"]\nc = 4\n",
                 Dialect::torchtitan, {});
  BOOST_REQUIRE(titan.unknown.size() == 2U);
  const std::string toml = export_run(titan, Dialect::torchtitan);
  BOOST_TEST((import_run(toml, Dialect::torchtitan).unknown == titan.unknown), toml);
}

BOOST_AUTO_TEST_CASE(a_command_of_somebody_else_runs_nothing) {
  const RunConfig run = import_run(
      "NCCL_NVLS_ENABLE=$(id) torchrun pretrain_gpt.py --micro-batch-size 1 --bar '$(rm)' "
      "--data-path '$DATA/x' '--foo;date' 1",
      Dialect::megatron_lm, {.world_size = 8});
  const std::string text = export_run(run, Dialect::megatron_lm);
  BOOST_TEST(contains(text, "NCCL_NVLS_ENABLE='$(id)'"), text);
  BOOST_TEST(contains(text, "--bar '$(rm)'"), text);
  BOOST_TEST(contains(text, "--data-path \"$DATA/x\""), text);
  BOOST_TEST(contains(text, "'--foo;date' 1"), text);
}

// Values of a YAML file are no text of a shell.
BOOST_AUTO_TEST_CASE(a_file_of_somebody_else_runs_nothing) {
  const RunConfig run = import_run(
      "MODEL_ARGS:\n  --micro-batch-size: 1\n  --lr: 1e-4\n  --foo: x; date\n"
      "  --bar: $(date)\n  --split: 9 1\n  --path: ${DATA}/x\n  --list: [a, $(date)]\n"
      "  --open: \"it's\"\n",
      Dialect::megatron_lm, {.world_size = 8});
  const std::string text = export_run(run, Dialect::megatron_lm);
  BOOST_TEST_CONTEXT(text) {
    BOOST_TEST(contains(text, "--lr 1e-4"));
    BOOST_TEST(contains(text, "--foo 'x; date'"));
    BOOST_TEST(contains(text, "--bar '$(date)'"));
    BOOST_TEST(contains(text, "--split 9 1"));
    BOOST_TEST(contains(text, "--path \"${DATA}/x\""));
    BOOST_TEST(contains(text, "--list a '$(date)'"));
    BOOST_TEST(contains(text, "--open 'it'\\''s'"));
  }
}

// Choices that imply a setting do not take the place of what is said in other words.
BOOST_AUTO_TEST_CASE(what_is_said_in_other_words_is_not_implied) {
  RunConfig run;
  run.model = {{"model_type", "llama"}, {"num_hidden_layers", 32}};
  run.knobs.dispatcher = Dispatcher::deepep;
  BOOST_TEST(contains(export_run(run, Dialect::primus), "moe_router_dtype: fp32\n"));
  run.unknown = {{"--moe-router-dtype", "fp64"}};
  const std::string text = export_run(run, Dialect::primus);
  BOOST_TEST(contains(text, "moe_router_dtype: fp64\n"), text);
  BOOST_TEST(!contains(text, "moe_router_dtype: fp32"), text);
  // What is not set is not said.
  run.dialect = Dialect::primus;
  run.unknown = {{"moe_pad_expert_input_to_capacity", "null"}};
  run.knobs.capacity_factor = 1.5F;
  run.knobs.dispatcher = Dispatcher::alltoall;
  run.knobs.cuda_graphs = {PlanGraph::moe};
  BOOST_TEST(contains(export_run(run, Dialect::megatron_lm), "--moe-pad-expert-input-to-capacity"));
}

BOOST_AUTO_TEST_CASE(which_layers_are_recomputed_is_written) {
  RunConfig run;
  run.knobs.recompute = {PlanRecompute::full};
  run.knobs.recompute_method = RecomputeMethod::block;
  run.knobs.recompute_num_layers = 4;
  const auto says = [&](Dialect dialect, const char* part) {
    const std::string text = export_run(run, dialect);
    BOOST_TEST(contains(text, part), text);
  };
  says(Dialect::megatron_lm, "--recompute-method block");
  says(Dialect::megatron_lm, "--recompute-num-layers 4");
  says(Dialect::megatron_bridge, "model.recompute_method=block");
  says(Dialect::megatron_bridge, "model.recompute_num_layers=4");
  says(Dialect::primus, "recompute_method: block");
  says(Dialect::primus, "recompute_num_layers: 4");
  says(Dialect::torchtitan, "torchtitan cannot be told recompute_method=block");
  says(Dialect::torchtitan, "torchtitan cannot be told recompute_num_layers=4");
}

BOOST_AUTO_TEST_CASE(settings_may_follow_the_layout) {
  using enum Dialect;
  BOOST_TEST(follows_layout({"--hierarchical-context-parallel-sizes", "2 2"}, megatron_lm));
  BOOST_TEST(follows_layout({"model.microbatch_group_size_per_vp_stage", "4"}, megatron_bridge));
  BOOST_TEST(follows_layout({"decoder_pipeline_manual_split_list", "[1, 2]"}, primus));
  BOOST_TEST(follows_layout({"recompute_layer_ids", "[1, 2]"}, primus));
  BOOST_TEST(!follows_layout({"recompute_layer_ids", "null"}, primus));
  BOOST_TEST(!follows_layout({"--manual-gc", ""}, megatron_lm));
  BOOST_TEST(!follows_layout({"--lr", "1"}, megatron_lm));
  RunConfig run;
  RunConfig other = run;
  other.knobs.precision = PrecisionRecipe::mxfp8;
  BOOST_TEST(have_same_layout(run, other));
  other.pipeline_layout = "Et|tL";
  BOOST_TEST(!have_same_layout(run, other));
  other = run;
  other.knobs.cp = 2;
  BOOST_TEST(!have_same_layout(run, other));
}

// A command may leave the model's sizes to another file and say this one by itself.
BOOST_AUTO_TEST_CASE(multi_token_prediction_goes_along_without_sizes) {
  for (const int64_t depth : {0, 1}) {
    const RunConfig run =
        import_run(fmt::format("--tensor-model-parallel-size 1 --mtp-num-layers {}", depth),
                   Dialect::megatron_lm, {.world_size = 8});
    const std::string flags = export_run(run, Dialect::megatron_lm);
    BOOST_TEST(contains(flags, fmt::format("--mtp-num-layers {}", depth)), flags);
    const std::string file = export_run(run, Dialect::primus);
    BOOST_TEST(contains(file, fmt::format("\n      mtp_num_layers: {}\n", depth)), file);
    const std::string titan = export_run(run, Dialect::torchtitan);
    BOOST_TEST(contains(titan, "1 settings of megatron-lm are not translated: --mtp-num-layers"),
               titan);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec::dialects
