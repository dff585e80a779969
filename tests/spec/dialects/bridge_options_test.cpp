// The options of Megatron-Bridge's launcher of benchmarks, and what its recipes have in common.
#include <boost/test/unit_test.hpp>

#include "engine/spec/dialects/run_config.h"
#include "tests/spec/dialects/dialect_samples.h"

namespace moetune::spec::dialects {

BOOST_AUTO_TEST_SUITE(bridge_options)

namespace {

constexpr auto kBridge = Dialect::megatron_bridge;

const std::string kLauncher =
    "python scripts/performance/setup_experiment.py --account x -p y -i nemo.sqsh --gpu h100 -ng "
    "16 "
    "--model_family_name qwen --model_recipe_name qwen3_30b_a3b ";

RunConfig launched(const std::string& options) { return import_run(kLauncher + options, kBridge); }
RunConfig overridden(const std::string& overrides) {
  return import_run(
      "run_recipe.py --num_gpus 16 --recipe qwen3_30b_a3b_pretrain_config " + overrides, kBridge);
}

std::vector<std::string> unknown_of(const RunConfig& run) {
  std::vector<std::string> keys;
  for (const UnknownSetting& setting : run.unknown) keys.push_back(setting.key);
  return keys;
}

}  // namespace

BOOST_AUTO_TEST_CASE(options_are_the_overrides_that_they_stand_for) {
  BOOST_TEST((detect_dialect(kLauncher) == kBridge));
  const struct {
    const char* options;
    const char* overrides;
  } rows[] = {
      {"--compute_dtype fp8_cs -tp 2 -pp 2 -vp 3 -cp 2 -ep 4 -et 1 -mb 2 -gb 1024 -sl 8192",
       "mixed_precision=bf16_with_fp8_current_scaling_mixed model.tensor_model_parallel_size=2 "
       "model.sequence_parallel=true model.pipeline_model_parallel_size=2 "
       "model.virtual_pipeline_model_parallel_size=3 model.context_parallel_size=2 "
       "model.expert_model_parallel_size=4 model.expert_tensor_parallel_size=1 "
       "train.micro_batch_size=2 train.global_batch_size=1024 model.seq_length=8192"},
      {"-c fp8_mx --tensor_model_parallel_size=1 -vp None -et -gb 32",
       "mixed_precision=bf16_with_mxfp8_mixed model.tensor_model_parallel_size=1 "
       "train.global_batch_size=32"},
      {"-c nvfp4 --moe_flex_dispatcher_backend hybridep --moe_a2a_overlap y -ep 8",
       "mixed_precision=bf16_with_nvfp4_mixed model.moe_token_dispatcher_type=flex "
       "model.moe_flex_dispatcher_backend=hybridep model.expert_model_parallel_size=8 "
       "comm_overlap.overlap_moe_expert_parallel_comm=true comm_overlap.delay_wgrad_compute=true"},
      {"--moe_flex_dispatcher_backend None --moe_a2a_overlap false",
       "model.moe_token_dispatcher_type=alltoall"},
      {"--recompute_modules moe_act,layernorm -rl 4",
       "model.recompute_granularity=selective 'model.recompute_modules=[moe_act,layernorm]'"},
      {"-rl 4",
       "model.recompute_granularity=full model.recompute_method=block "
       "model.recompute_num_layers=4"},
      {"--cuda_graph_impl transformer_engine --cuda_graph_scope attn,moe_router",
       "model.cuda_graph_impl=transformer_engine 'model.cuda_graph_scope=[attn,moe_router]'"},
      {"-vp -1 --nccl_ub false", "model.context_parallel_size=1"},
      {"--use_tokendrop true",
       "model.moe_expert_capacity_factor=1 model.moe_pad_expert_input_to_capacity=true"},
      {"--use_tokendrop 0 model.moe_expert_capacity_factor=2", "model.context_parallel_size=1"},
      {"--use_megatron_fsdp true", "ddp.use_megatron_fsdp=true"},
      {"--use_megatron_fsdp 0 model.context_parallel_size=2", "model.context_parallel_size=2"}};
  for (const auto& row : rows) {
    const RunConfig ours = launched(row.options);
    const RunConfig theirs = overridden(row.overrides);
    BOOST_TEST((ours.knobs == theirs.knobs), row.options);
    BOOST_TEST(ours.global_batch_size == theirs.global_batch_size, row.options);
    BOOST_TEST(ours.seq_length == theirs.seq_length, row.options);
    BOOST_TEST(ours.world_size == 16, row.options);
    BOOST_TEST(ours.model_name == "qwen3_30b_a3b_pretrain_config", row.options);
  }
}

BOOST_AUTO_TEST_CASE(what_starts_the_job_is_no_setting_of_the_run) {
  using Keys = std::vector<std::string>;
  const RunConfig run = launched("-ce CUDA_DEVICE_MAX_CONNECTIONS=1,A=b -cv v1 -wdk secret -d");
  BOOST_TEST(unknown_of(run) == (Keys{"--recipe", "--config_variant"}),
             boost::test_tools::per_element());
  BOOST_TEST(run.knobs.cuda_device_max_connections == 1);
  BOOST_TEST((launched("--task sft").knobs.task == TrainingTask::sft));
  BOOST_TEST((launched("--task lora").knobs.task == TrainingTask::lora));
  BOOST_TEST((launched("").knobs.precision == PrecisionRecipe::bf16));
}

// Options are applied last, but for the precision; other scripts' letters are their own.
BOOST_AUTO_TEST_CASE(options_and_overrides_of_one_thing) {
  const RunConfig both = launched(
      "model.context_parallel_size=4 model.sequence_parallel=false -tp 2 -cp 1 -ep 4 -ep 8");
  BOOST_TEST(both.knobs.sequence_parallel);
  BOOST_TEST(both.knobs.cp == 1);
  BOOST_TEST(both.knobs.ep == 8);
  BOOST_TEST((launched("mixed_precision=bf16_with_mxfp8_mixed").knobs.precision ==
              PrecisionRecipe::mxfp8));
  const RunConfig other = import_run(
      "train.py --recipe qwen3_30b_a3b_pretrain_config -tp 4 model.context_parallel_size=2",
      kBridge);
  BOOST_TEST(other.knobs.tp == 1);
  BOOST_TEST(other.knobs.cp == 2);
}

// The library's script for recipes has fewer, and overrides win over them.
BOOST_AUTO_TEST_CASE(options_of_the_script_for_recipes) {
  const std::string script =
      "torchrun --nproc-per-node 8 --nnodes 2 scripts/training/run_recipe.py ";
  const std::string recipe = script + "--recipe qwen3_30b_a3b_pretrain_config --mode pretrain ";
  const std::string options =
      "-tp 2 -pp 2 -vp 3 -cp 2 -ep 4 -etp 2 -mb 2 -gb 64 -sl 8192 --lr 1e-4";
  BOOST_TEST((detect_dialect(recipe + options) == kBridge));
  const RunConfig ours = import_run(recipe + options, kBridge);
  const RunConfig theirs =
      import_run(recipe +
                     "model.tensor_model_parallel_size=2 model.pipeline_model_parallel_size=2 "
                     "model.virtual_pipeline_model_parallel_size=3 model.context_parallel_size=2 "
                     "model.expert_model_parallel_size=4 model.expert_tensor_parallel_size=2 "
                     "train.micro_batch_size=2 train.global_batch_size=64 dataset.seq_length=8192",
                 kBridge);
  BOOST_TEST((ours.knobs == theirs.knobs));
  BOOST_TEST(ours.knobs.etp == 2);
  // Nothing is turned on along with slices.
  BOOST_TEST(!ours.knobs.sequence_parallel);
  BOOST_TEST(ours.global_batch_size == 64);
  BOOST_TEST(ours.seq_length == 8192);
  BOOST_TEST(ours.world_size == 16);
  BOOST_TEST(ours.model_name == "qwen3_30b_a3b_pretrain_config");
  using Keys = std::vector<std::string>;
  BOOST_TEST(unknown_of(ours) == (Keys{"optimizer.lr", "--recipe", "--mode"}),
             boost::test_tools::per_element());
  const RunConfig both = import_run(
      recipe + "-gb 64 -tp 2 train.global_batch_size=128 ++model.tensor_model_parallel_size=4",
      kBridge);
  BOOST_TEST(both.global_batch_size == 128);
  BOOST_TEST(both.knobs.tp == 4);
  // Its launcher takes them, too.
  const std::string launcher =
      "./scripts/training/train.sh --nodes 2 --gpus-per-node 8 --account a --partition p "
      "--recipe qwen3_30b_a3b_pretrain_config -ep 8";
  BOOST_TEST((detect_dialect(launcher) == kBridge));
  const RunConfig submitted = import_run(launcher, kBridge);
  BOOST_TEST(submitted.knobs.ep == 8);
  BOOST_TEST(submitted.world_size == 16);
}

BOOST_AUTO_TEST_CASE(the_script_for_recipes_is_told_the_task) {
  using enum TrainingTask;
  const auto run_of = [](const std::string& words) {
    return import_run("run_recipe.py " + words + " -ep 4", kBridge);
  };
  BOOST_TEST((run_of("--model qwen3_30b_a3b --mode pretrain").knobs.task == pretrain));
  BOOST_TEST((run_of("--model qwen3_30b_a3b --mode sft").knobs.task == sft));
  BOOST_TEST((run_of("--model qwen3_30b_a3b --mode sft peft.dim=8").knobs.task == sft));
  const RunConfig adapters = run_of("--model qwen3_30b_a3b --mode lora peft.dim=8");
  BOOST_TEST((adapters.knobs.task == TrainingTask::lora));
  BOOST_TEST(adapters.knobs.lora_rank == 8);
  BOOST_TEST((run_of("--model qwen3_30b_a3b --mode dora").knobs.task == sft));
  for (const char* mode : {"pretrain", "sft", "lora", "dora"}) {
    const RunConfig run = run_of(std::string("--model qwen3_30b_a3b --mode ") + mode);
    BOOST_TEST(run.model_name == "qwen3_30b_a3b");
    const std::string text = export_run(run, kBridge);
    BOOST_TEST(samples::contains(text, std::string("--mode ") + mode), text);
    BOOST_TEST(samples::contains(text, "--model qwen3_30b_a3b"), text);
    BOOST_TEST(!samples::contains(text, "--recipe NAME"), text);
    BOOST_TEST((import_run(text, kBridge).knobs == run.knobs), text);
  }
  // From other words.
  const RunConfig tuned = import_run("--tensor-model-parallel-size 1 --sft", Dialect::megatron_lm);
  const std::string text = export_run(tuned, kBridge);
  BOOST_TEST(samples::contains(text, "--mode sft"), text);
  BOOST_TEST((import_run(text, kBridge).knobs.task == sft));
}

// All recipes for experts have slices of one rank; the framework itself has those of attention.
BOOST_AUTO_TEST_CASE(experts_of_a_recipe_are_not_sliced_unless_it_is_said) {
  const std::string tp = "model.tensor_model_parallel_size=4 ";
  BOOST_TEST(overridden(tp).knobs.etp == 1);
  BOOST_TEST(!overridden(tp).is_etp_derived);
  BOOST_TEST(overridden(tp + "model.expert_tensor_parallel_size=2").knobs.etp == 2);
  BOOST_TEST(overridden(tp + "model.expert_tensor_parallel_size=null").knobs.etp == 4);
  const std::string echoed = "model:\n  tensor_model_parallel_size: 4\n";
  BOOST_TEST(import_run(echoed, kBridge, {.is_echo = true}).knobs.etp == 4);
  BOOST_TEST(import_run("--tensor-model-parallel-size 4", Dialect::megatron_lm).knobs.etp == 4);
  // 8 stages and 32 ranks of experts beside tp 2 are all of 256.
  const RunConfig published = import_run(
      kLauncher + "-ng 256 --compute_dtype fp8_cs -tp 2 -pp 8 -vp 4 -ep 32 -mb 1 -gb 2048",
      kBridge);
  BOOST_TEST(published.world_size == 256);
  BOOST_TEST(published.knobs.dp == 16);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec::dialects
