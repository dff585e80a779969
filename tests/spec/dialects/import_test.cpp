// Texts as people have them: what is understood, what is passed on, and what is refused.
#include <fmt/format.h>

#include <array>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/knobs.h"
#include "engine/spec/model_spec.h"
#include "tests/spec/dialects/dialect_samples.h"

namespace moetune::spec::dialects {
BOOST_AUTO_TEST_SUITE(imports_of_dialects)

namespace {

using samples::contains;
using samples::golden;
using samples::has_note;
using samples::refusal;

constexpr Dialect kLm = Dialect::megatron_lm;
constexpr Dialect kBridge = Dialect::megatron_bridge;
constexpr Dialect kTitan = Dialect::torchtitan;
constexpr Dialect kPrimus = Dialect::primus;

RunConfig flags(const std::string& text, int64_t world_size = 0) {
  return import_run("--tensor-model-parallel-size 1 " + text, kLm, {.world_size = world_size});
}

std::string value_of(const RunConfig& run, const std::string& key) {
  for (const UnknownSetting& setting : run.unknown) {
    if (setting.key == key) return setting.value;
  }
  return "missing";
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_script_of_megatron) {
  const std::string text = golden("qwen3_235b.sh");
  BOOST_TEST((detect_dialect(text) == kLm));
  const RunConfig run = import_run(text, kLm);
  const PlanKnobs& k = run.knobs;
  BOOST_TEST(run.world_size == 256);
  BOOST_TEST(k.tp == 2);
  BOOST_TEST(k.pp == 8);
  BOOST_TEST(k.vpp == 4);
  BOOST_TEST(k.dp == 16);
  BOOST_TEST(k.ep == 32);
  BOOST_TEST(k.etp == 1);
  BOOST_TEST(run.pipeline_layout == "Et*2|(t*3|)*30t*2L");
  BOOST_TEST((k.precision == PrecisionRecipe::fp8_blockwise));
  BOOST_TEST((k.dispatcher == Dispatcher::deepep));
  BOOST_TEST(k.recompute.text() == "layernorm,moe_act");
  BOOST_TEST(k.cuda_graphs.text() == "attn,moe_router");
  BOOST_TEST((k.exp_avg == StateType::bf16));
  BOOST_TEST((k.cross_entropy == CrossEntropy::unfused));
  BOOST_TEST(!k.tp_comm_overlap);
  BOOST_TEST(run.global_batch_size == 1024);
  BOOST_TEST(run.environment.at("CUDA_DEVICE_MAX_CONNECTIONS") == "32");
  BOOST_TEST(k.cuda_device_max_connections == 32);
  BOOST_TEST(run.environment.size() == 2U);
  BOOST_TEST(value_of(run, "--lr") == "1e-4");
  BOOST_TEST(value_of(run, "--data-path") == "\"$DATA_PATH/my data\"");
  BOOST_TEST(run.unknown.front().key == "--moe-router-load-balancing-type");
  const ModelSpec model = model_from_json(run.model, "the script");
  BOOST_TEST(model.family == "qwen3_moe");
  BOOST_TEST(model.num_layers == 94);
  BOOST_TEST(model.num_experts == 128);
  BOOST_TEST(model.num_kv_heads == 4);
}

BOOST_AUTO_TEST_CASE(the_defaults_of_megatron) {
  const RunConfig run = import_run("--tensor-model-parallel-size 4", kLm, {.world_size = 8});
  const PlanKnobs& k = run.knobs;
  BOOST_TEST(k.etp == 4);  // not 1
  BOOST_TEST(k.dp == 2);
  BOOST_TEST((k.dispatcher == Dispatcher::allgather));
  BOOST_TEST((k.precision == PrecisionRecipe::fp32));
  BOOST_TEST(!k.sequence_parallel);
  BOOST_TEST(!k.distributed_optimizer);
  BOOST_TEST(!k.moe_grouped_gemm);
  BOOST_TEST(k.gradient_accumulation_fusion);
  BOOST_TEST(run.global_batch_size == 2);  // micro-batch x replicas
  BOOST_TEST(has_note(run, "fp32"));
}

BOOST_AUTO_TEST_CASE(old_spellings_of_megatron) {
  BOOST_TEST((flags("--moe-token-dispatcher-type flex --moe-enable-deepep").knobs.dispatcher ==
              Dispatcher::deepep));
  BOOST_TEST(flags("--external-cuda-graph --cuda-graph-scope attn").knobs.cuda_graphs.text() ==
             "attn");
  BOOST_TEST(flags("--enable-cuda-graph --cuda-graph-scope full_iteration "
                   "--no-check-for-nan-in-loss-and-grad")
                 .knobs.cuda_graphs.text() == "full_iteration");
  BOOST_TEST(flags("--recompute-activations").knobs.recompute.text() == "core_attn");
  BOOST_TEST((flags("--use-custom-fsdp").knobs.fsdp == Fsdp::megatron));
  BOOST_TEST(flags("--moe-deepep-num-sms 20").knobs.moe_flex_dispatcher_num_sms == 20);
}

// It is no size of the model: what is said is kept apart, and so is that nothing is said.
BOOST_AUTO_TEST_CASE(the_depth_of_multi_token_prediction_is_kept) {
  BOOST_TEST(!flags("").mtp_depth.has_value());
  BOOST_TEST((flags("--mtp-num-layers 0").mtp_depth == 0));
  BOOST_TEST((flags("--mtp-num-layers 2").mtp_depth == 2));
  const std::string bridge = "model.tensor_model_parallel_size=1 model.mtp_num_layers=";
  BOOST_TEST((import_run(bridge + "1", kBridge).mtp_depth == 1));
  BOOST_TEST(!import_run(bridge + "null", kBridge).mtp_depth.has_value());
  const std::string primus = "tensor_model_parallel_size: 1\nmtp_num_layers: 1\n";
  BOOST_TEST((import_run(primus, kPrimus).mtp_depth == 1));
}

BOOST_AUTO_TEST_CASE(virtual_stages_by_layers) {
  const RunConfig run = flags(
      "--pipeline-model-parallel-size 4 --num-layers 32 --num-layers-per-virtual-pipeline-stage 2");
  BOOST_TEST(run.knobs.vpp == 4);
  const RunConfig unknown =
      flags("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2");
  BOOST_TEST(value_of(unknown, "--num-layers-per-virtual-pipeline-stage") == "2");
  // Embedding and loss may count as layers.
  const std::string counted =
      "--pipeline-model-parallel-size 8 --num-layers 94 --num-layers-per-virtual-pipeline-stage 3 "
      "--account-for-loss-in-pipeline-split ";
  const RunConfig ends = flags(counted + "--account-for-embedding-in-pipeline-split");
  BOOST_TEST(ends.knobs.vpp == 4);
  BOOST_TEST(value_of(ends, "--account-for-embedding-in-pipeline-split") != "missing");
  BOOST_CHECK_THROW(flags(counted), base::UsageError);
  BOOST_CHECK_THROW(flags("--pipeline-model-parallel-size 8 --decoder-first-pipeline-num-layers 4 "
                          "--account-for-loss-in-pipeline-split"),
                    base::UsageError);
  // Of a model that is named beside the command.
  const RunConfig named =
      import_run("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2", kLm,
                 {.num_layers = 48});
  BOOST_TEST(named.knobs.vpp == 6);
  BOOST_TEST(value_of(named, "--num-layers-per-virtual-pipeline-stage") == "missing");
}

// What it does in another order than prices stand for is kept in its words, and told elsewhere.
BOOST_AUTO_TEST_CASE(schedules_of_torchtitan_are_kept) {
  struct Schedule {
    const char* name;
    int vpp;
    bool holds_all;
    const char* note;
  };
  for (const Schedule& row :
       {Schedule{"1F1B", 1, false, nullptr},
        {"Interleaved1F1B", 2, false, nullptr},
        {"GPipe", 1, true, "'GPipe': taken as 1F1B, but memory holds all micro-batches"},
        {"LoopedBFS", 2, true, "'LoopedBFS': taken as Interleaved1F1B, but memory"},
        {"ZBVZeroBubble", 2, false, "'ZBVZeroBubble': taken as Interleaved1F1B, with its time"},
        {"DualPipeV", 2, false, "'DualPipeV': taken as Interleaved1F1B, with its time"}}) {
    RunConfig run = import_run(fmt::format("[parallelism]\npipeline_parallel_degree = 4\n"
                                           "pipeline_parallel_schedule = \"{}\"\n",
                                           row.name),
                               kTitan);
    BOOST_TEST_CONTEXT(row.name) {
      BOOST_TEST(run.knobs.vpp == row.vpp);
      BOOST_TEST(holds_all_micro_batches(run, run.knobs) == row.holds_all);
      BOOST_TEST(has_note(run, "pipeline_parallel_schedule") == (row.note != nullptr));
      if (row.note != nullptr) BOOST_TEST(has_note(run, row.note));
      const std::string again = export_run(run, kTitan);
      BOOST_TEST(import_run(again, kTitan).pipeline_schedule == run.pipeline_schedule, again);
      const std::string theirs = export_run(run, kLm);
      BOOST_TEST(contains(theirs, fmt::format("cannot be told pipeline_schedule={}", row.name)) ==
                     (row.note != nullptr),
                 theirs);
      // With stages of another kind it cannot run.
      run.knobs.vpp = row.vpp == 1 ? 2 : 1;
      BOOST_TEST(!holds_all_micro_batches(run, run.knobs));
      BOOST_TEST(import_run(export_run(run, kTitan), kTitan).pipeline_schedule.empty());
    }
  }
}

// How many stages torchtitan makes follows from the layers of the model, with those that the first
// and the last stage have less.
BOOST_AUTO_TEST_CASE(stages_of_torchtitan_by_layers) {
  const auto run_of = [](const char* schedule, int64_t of_stage, int64_t less, int64_t layers) {
    return import_run(fmt::format("[parallelism]\npipeline_parallel_degree = 16\n"
                                  "pipeline_parallel_schedule = \"{}\"\n"
                                  "pipeline_parallel_layers_per_stage = {}\n"
                                  "pipeline_parallel_first_stage_less_layers = {}\n"
                                  "pipeline_parallel_last_stage_less_layers = {}\n",
                                  schedule, of_stage, less, less),
                      kTitan, {.num_layers = layers});
  };
  constexpr const char* kKey = "parallelism.pipeline_parallel_layers_per_stage";
  const RunConfig run = run_of("Interleaved1F1B", 1, 0, 48);
  BOOST_TEST(run.knobs.vpp == 3);
  BOOST_TEST(value_of(run, kKey) == "missing");
  BOOST_TEST(!has_note(run, "how many there are is not said"));
  BOOST_TEST(run_of("1F1B", 3, 0, 48).knobs.vpp == 1);
  BOOST_TEST(run_of("Interleaved1F1B", 2, 1, 62).knobs.vpp == 2);  // 64 of 2
  BOOST_TEST(run_of("Interleaved1F1B", 3, 0, 95).knobs.vpp == 2);  // 31.7, rounded up
  const RunConfig unknown = run_of("Interleaved1F1B", 1, 0, 0);
  BOOST_TEST(unknown.knobs.vpp == 2);
  BOOST_TEST(value_of(unknown, kKey) == "1");
  BOOST_TEST(has_note(unknown, "how many there are is not said"));
  const auto message_of = [&](const char* schedule, int64_t of_stage, int64_t less) -> std::string {
    try {
      run_of(schedule, of_stage, less, 48);
    } catch (const base::UsageError& error) {
      return error.what();
    }
    return "";
  };
  for (const auto& [message, part] :
       {std::pair{
            message_of("Interleaved1F1B", 2, 0),
            "2 makes 24 stages of 48 layers, which 'parallelism.pipeline_parallel_degree' 16"},
        {message_of("Interleaved1F1B", 3, 0), "1 stages a rank of 48 layers, and "},
        {message_of("1F1B", 1, 0), "'1F1B' takes one"},
        {message_of("1F1B", 0, 0), "0 makes 0 stages"},
        {message_of("1F1B", 1, 49), "is 49, and the model has 48 layers"}}) {
    BOOST_TEST(contains(message, part), message);
  }
}

BOOST_AUTO_TEST_CASE(a_configuration_of_bridge) {
  const std::string text = golden("run_config.yaml");
  BOOST_TEST((detect_dialect(text) == kBridge));
  const RunConfig run = import_run(text, kBridge, {.world_size = 64});
  const PlanKnobs& k = run.knobs;
  BOOST_TEST((k.precision == PrecisionRecipe::mxfp8));
  BOOST_TEST((k.dispatcher == Dispatcher::hybridep));
  BOOST_TEST(k.cuda_graphs.text() == "attn,moe_router");
  BOOST_TEST(k.recompute.text() == "moe_act");
  BOOST_TEST((k.exp_avg == StateType::bf16));
  BOOST_TEST((k.exp_avg_sq == StateType::fp32));
  BOOST_TEST(k.overlap_moe_expert_parallel_comm);
  BOOST_TEST(k.overlap_grad_reduce);
  BOOST_TEST(!k.overlap_param_gather);  // comm_overlap says nothing, ddp does
  BOOST_TEST(k.dp == 64);
  BOOST_TEST(k.etp == 1);
  BOOST_TEST(run.seq_length == 8192);
  BOOST_TEST(run.model_name == "Qwen3MoEModelProvider");
  BOOST_TEST(run.model.at("model_type") == "qwen3_moe");
  BOOST_TEST(run.environment.at("NVTE_FWD_LAYERNORM_SM_MARGIN") == "20");
  BOOST_TEST(value_of(run, "train.manual_gc") == "true");
}

BOOST_AUTO_TEST_CASE(overrides_of_bridge) {
  const std::string text =
      "NVTE_CPU_OFFLOAD_V1=1 torchrun --nproc-per-node=8 --nnodes=2 run_recipe.py --recipe "
      "qwen3_30b model.tensor_model_parallel_size=2 +model.recompute_modules=[moe_act,mlp] "
      "model.recompute_granularity=selective mixed_precision=bf16-with-nvfp4-mixed "
      "'optimizer.lr=1e-4' model.virtual_pipeline_model_parallel_size=null";
  BOOST_TEST((detect_dialect(text) == kBridge));
  const RunConfig run = import_run(text, kBridge);
  BOOST_TEST(run.knobs.tp == 2);
  BOOST_TEST(run.knobs.dp == 8);
  BOOST_TEST(run.knobs.recompute.text() == "moe_act,mlp");
  BOOST_TEST((run.knobs.precision == PrecisionRecipe::nvfp4));
  BOOST_TEST(run.model_name == "qwen3_30b");
  BOOST_TEST(value_of(run, "--recipe") == "qwen3_30b");
  BOOST_TEST(value_of(run, "optimizer.lr") == "1e-4");
  BOOST_TEST(contains(export_run(run, kBridge), "run_recipe.py --recipe qwen3_30b"));
}

// Presets say more than a precision.
BOOST_AUTO_TEST_CASE(presets_of_bridge_keep_weights_in_8_bits) {
  const auto knobs_of = [](const std::string& words) {
    return import_run("run_recipe.py model.tensor_model_parallel_size=1 " + words, kBridge).knobs;
  };
  for (const char* preset : {"bf16_with_fp8_current_scaling_mixed", "bf16-with-mxfp8-mixed",
                             "bf16_with_fp8_delayed_scaling_mixed"}) {
    const std::string words = std::string("mixed_precision=") + preset;
    BOOST_TEST(knobs_of(words).fp8_param_gather, preset);
    BOOST_TEST(!knobs_of(words + " mixed_precision.fp8_param_gather=false").fp8_param_gather);
    // Megatron would not start.
    BOOST_TEST(!knobs_of(words + " ddp.use_distributed_optimizer=false "
                                 "optimizer.use_distributed_optimizer=false")
                    .fp8_param_gather);
    // The preset's name says it.
    RunConfig run =
        import_run("run_recipe.py model.tensor_model_parallel_size=1 " + words, kBridge);
    BOOST_TEST(!contains(export_run(run, kBridge), "fp8_param_gather"));
    run.knobs.fp8_param_gather = false;
    BOOST_TEST(contains(export_run(run, kBridge), "cannot be told fp8_param_gather=false"));
  }
  for (const char* preset :
       {"bf16_mixed", "bf16_with_fp8_subchannel_scaling_mixed", "bf16_with_nvfp4_mixed"}) {
    BOOST_TEST(!knobs_of(std::string("mixed_precision=") + preset).fp8_param_gather, preset);
  }
  // Fields of their own have Megatron's defaults.
  BOOST_TEST(!knobs_of("mixed_precision.bf16=true mixed_precision.fp8=hybrid").fp8_param_gather);
}

// Three ways to ask for adapters, and what says of which rank they are.
BOOST_AUTO_TEST_CASE(adapters_of_bridge_and_primus) {
  const std::string sizes = " model.tensor_model_parallel_size=1 ";
  for (const char* words : {"--peft_scheme lora", "--peft LoRA", "peft=lora",
                            "peft._target_=megatron.bridge.peft.lora.LoRA"}) {
    const bool is_option = words[0] == '-';
    const std::string text = std::string("torchrun run_recipe.py ") + (is_option ? words : "") +
                             sizes + (is_option ? "" : words);
    BOOST_TEST_CONTEXT(text) {
      const RunConfig silent = import_run(text, kBridge);
      BOOST_TEST((silent.knobs.task == TrainingTask::lora));
      BOOST_TEST(silent.knobs.lora_rank == 32);
      BOOST_TEST(has_note(silent, "'peft.dim' is not said: rank 32 is taken"));
      const RunConfig said = import_run(text + " peft.dim=16", kBridge);
      BOOST_TEST(said.knobs.lora_rank == 16);
      BOOST_TEST(!has_note(said, "'peft.dim' is not said: rank 32 is taken"));
      BOOST_TEST(value_of(said, "peft.dim") == "missing");
      const std::string again = export_run(said, kBridge);
      BOOST_TEST(contains(again, "run_recipe.py --peft_scheme lora"), again);
      BOOST_TEST(contains(again, " peft.dim=16"), again);
      BOOST_TEST(contains(export_run(said, kPrimus), "dim: 16"));
      BOOST_TEST(contains(export_run(said, kLm), "lora_rank=16"));
    }
  }
  // The recipe brings the adapters.
  const RunConfig implied = import_run("torchrun run_recipe.py" + sizes + "peft.dim=8", kBridge);
  BOOST_TEST((implied.knobs.task == TrainingTask::lora));
  BOOST_TEST(implied.knobs.lora_rank == 8);
  // What is none of that goes along.
  for (const char* scheme : {"none", "dora"}) {
    const RunConfig other = import_run(
        std::string("torchrun run_recipe.py --peft_scheme ") + scheme + sizes + "peft.dim=8",
        kBridge);
    BOOST_TEST((other.knobs.task == TrainingTask::pretrain));
    BOOST_TEST(value_of(other, "--peft_scheme") == scheme);
    BOOST_TEST(value_of(other, "peft.dim") == "8");
    BOOST_TEST(has_note(other, "all weights are trained") == (scheme == std::string("dora")));
  }
  BOOST_TEST(contains(refusal("run_recipe.py --peft_scheme lora" + sizes + "peft.dim=0", kBridge),
                      "'peft.dim' is '0', expected"));
  const std::string primus = "tensor_model_parallel_size: 1\nstage: sft\nlora:\n  enabled: true\n";
  BOOST_TEST((import_run(primus, kPrimus).knobs.task == TrainingTask::lora));
  BOOST_TEST(import_run(primus, kPrimus).knobs.lora_rank == 32);
  BOOST_TEST(import_run(primus + "  dim: 64\n", kPrimus).knobs.lora_rank == 64);
}

BOOST_AUTO_TEST_CASE(padding_is_a_knob) {
  const auto pads = [](const char* text, Dialect dialect) {
    return import_run(text, dialect).knobs.pad_to_capacity;
  };
  const std::string plain = "--moe-token-dispatcher-type alltoall --moe-expert-capacity-factor 2";
  BOOST_TEST(!pads(plain.c_str(), kLm));
  BOOST_TEST(pads((plain + " --moe-pad-expert-input-to-capacity").c_str(), kLm));
  BOOST_TEST(pads("model.moe_pad_expert_input_to_capacity=true", kBridge));
  BOOST_TEST(pads("moe_pad_expert_input_to_capacity: true\n", kPrimus));
  // A recipe may say it: without it no graph of the experts would start.
  const std::string captured =
      "model.moe_token_dispatcher_type=alltoall model.moe_expert_capacity_factor=2 "
      "model.cuda_graph_impl=full_iteration";
  BOOST_TEST(pads(captured.c_str(), kBridge));
  BOOST_TEST(!pads((captured + " model.moe_pad_expert_input_to_capacity=false").c_str(), kBridge));
}

BOOST_AUTO_TEST_CASE(an_experiment_of_primus) {
  const std::string text = golden("primus.yaml");
  BOOST_TEST((detect_dialect(text) == kPrimus));
  const ImportOptions files = {
      .world_size = 8,
      .files = {{"mixtral_8x7B_v0.1.yaml", golden("primus_mixtral.yaml")},
                {"mixtral_base.yaml", golden("primus_mixtral_base.yaml")}}};
  const RunConfig run = import_run(text, kPrimus, files);
  const PlanKnobs& k = run.knobs;
  BOOST_TEST(k.ep == 8);
  BOOST_TEST(k.micro_batch_size == 2);
  BOOST_TEST((k.dispatcher == Dispatcher::deepep));  // Turbo's
  BOOST_TEST((k.precision == PrecisionRecipe::bf16));
  BOOST_TEST(k.moe_grouped_gemm);
  BOOST_TEST(k.distributed_optimizer);
  BOOST_TEST(k.recompute.text() == "full");
  BOOST_TEST((k.recompute_method == RecomputeMethod::block));
  BOOST_TEST(k.recompute_num_layers == 4);
  BOOST_TEST(!has_note(run, "recompute_method"));
  BOOST_TEST(run.model.at("model_type") == "mixtral");
  BOOST_TEST(run.model.at("num_hidden_layers") == 32);
  BOOST_TEST(run.model.at("num_key_value_heads") == 8);
  BOOST_TEST(value_of(run, "wandb_project") == "\"Primus: Mixtral\"");
  BOOST_TEST(value_of(run, "/work_group") == "amd");
  // The defaults of the preset, not those of Megatron-LM.
  const RunConfig bare =
      import_run("modules:\n  pre_trainer:\n    overrides:\n      bf16: true\n", kPrimus);
  BOOST_TEST(bare.knobs.micro_batch_size == 2);
  BOOST_TEST(bare.global_batch_size == 16);
  BOOST_TEST(bare.seq_length == 1024);
  const RunConfig unseen = import_run(text, kPrimus);
  BOOST_TEST(has_note(unseen, "mixtral_8x7B_v0.1.yaml"));
  BOOST_TEST(unseen.model.empty());
}

BOOST_AUTO_TEST_CASE(a_configuration_of_torchtitan) {
  const std::string text = golden("torchtitan.toml");
  BOOST_TEST((detect_dialect(text) == kTitan));
  const RunConfig run = import_run(text, kTitan, {.world_size = 256});
  const PlanKnobs& k = run.knobs;
  BOOST_TEST(k.dp == 32);
  BOOST_TEST(k.optimizer_instances == 2);
  BOOST_TEST((k.fsdp == Fsdp::torch));
  BOOST_TEST(k.vpp == 2);
  BOOST_TEST(k.micro_batch_size == 1);
  BOOST_TEST(run.global_batch_size == 4096);
  BOOST_TEST((k.precision == PrecisionRecipe::fp8_current));
  BOOST_TEST((k.cross_entropy == CrossEntropy::native));
  BOOST_TEST(k.recompute.text() == "full");
  BOOST_TEST(run.model_name == "deepseek_v3/671B");
  BOOST_TEST(has_note(run, "rowwise"));
  const RunConfig command = import_run(
      "NGPU=512 ./run_train.sh --job.config_file ./deepseek.toml "
      "--parallelism.tensor-parallel-degree=2 --training.seq_len 8192 "
      "--compile.no-enable --model.converters mx",
      kTitan, {.files = {{"deepseek.toml", text}}});
  BOOST_TEST(command.knobs.tp == 2);
  BOOST_TEST(command.seq_length == 8192);
  BOOST_TEST((command.knobs.precision == PrecisionRecipe::mxfp8));
  BOOST_TEST((command.knobs.cross_entropy == CrossEntropy::unfused));
}

// What it recomputes by itself has no knob of its own; the text stays what it was.
BOOST_AUTO_TEST_CASE(selective_checkpoints_of_torchtitan) {
  const std::string training = "[training]\nlocal_batch_size = 1\nseq_len = 4096\n";
  const std::string table = "[activation_checkpoint]\nmode = \"selective\"\n";
  struct Choice {
    std::string text;
    const char* recompute;
    const char* note;  ///< empty: none
    const char* written;
    const char* not_written;
  };
  const Choice kChoices[] = {
      {training, "layernorm,moe_act", "one layer in 2", "mode = \"selective\"", "_ac_option"},
      {training + table + "selective_ac_option = \"op\"\n", "layernorm,moe_act", "by operation",
       "selective_ac_option = \"op\"", "\"none\""},
      {training + table + "selective_ac_option = \"4\"\n", "layernorm,moe_act", "one layer in 4",
       "selective_ac_option = \"4\"", "\"op\""},
      {training + table + "selective_ac_option = \"1\"\n", "full", "", "mode = \"full\"",
       "\"none\""},
      {training + "[activation_checkpoint]\nmode = \"memory_budget\"\n", "layernorm,moe_act",
       "no word", "mode = \"memory_budget\"", "\"selective\""},
      {training + "[activation_checkpoint]\nmode = \"none\"\n", "none", "", "mode = \"none\"",
       "selective"},
  };
  for (const Choice& choice : kChoices) {
    const RunConfig run = import_run(choice.text, kTitan, {.world_size = 4});
    const std::string written = export_run(run, kTitan);
    BOOST_TEST_CONTEXT(choice.text << written) {
      BOOST_TEST(run.knobs.recompute.text() == choice.recompute);
      const std::string note = choice.note;
      BOOST_TEST(has_note(run, "activation_checkpoint.mode") == !note.empty());
      if (!note.empty()) BOOST_TEST(has_note(run, note));
      BOOST_TEST(contains(written, choice.written));
      BOOST_TEST(!contains(written, choice.not_written));
      BOOST_TEST(!contains(written, "cannot be told"));
      const RunConfig again = import_run(written, kTitan);
      BOOST_TEST((again.knobs == run.knobs));
      BOOST_TEST(export_run(again, kTitan) == written);
    }
  }
  // Another choice is said with its option, and what was said before is not.
  RunConfig none = import_run(kChoices[5].text, kTitan, {.world_size = 4});
  none.knobs.recompute = {PlanRecompute::layernorm, PlanRecompute::moe_act};
  BOOST_TEST(contains(export_run(none, kTitan), "selective_ac_option = \"op\""));
}

// Only a model with experts has products of experts to convert.
BOOST_AUTO_TEST_CASE(models_of_torchtitan_without_experts) {
  const auto is_dense = [](const char* name, const char* flavor) {
    RunConfig run = import_run(std::string("[model]\nname = \"") + name + "\"\nflavor = \"" +
                                   flavor + "\"\n[training]\nlocal_batch_size = 1\n",
                               kTitan);
    run.knobs.precision = PrecisionRecipe::fp8_current;
    const std::string text = export_run(run, kTitan);
    BOOST_TEST(contains(text, "quantize.linear.float8"), text);
    BOOST_TEST(contains(text, "quantize.grouped_mm") != names_dense_model(run), text);
    BOOST_TEST(contains(text, "\"experts\"") != names_dense_model(run), text);
    BOOST_TEST((import_run(text, kTitan).knobs == run.knobs), text);
    return names_dense_model(run);
  };
  BOOST_TEST(is_dense("llama3", "8B"));
  BOOST_TEST(is_dense("qwen3", "32B"));
  BOOST_TEST(!is_dense("qwen3", "30B-A3B"));
  BOOST_TEST(!is_dense("deepseek_v3", "16B"));
  BOOST_TEST(!is_dense("llama4", "17bx16e"));
}

BOOST_AUTO_TEST_CASE(tokens_of_torchtitan_main) {
  const RunConfig run = import_run(
      "torchrun --nproc_per_node=8 -m torchtitan.train --module deepseek_v3 --config dsv3_16b "
      "--training.num_tokens_per_microbatch_per_dp_rank 16384 --training.max_context_length 4096 "
      "--training.num_tokens_per_train_step 1048576 --parallelism.expert_parallel_degree 8",
      kTitan);
  BOOST_TEST(run.world_size == 8);
  BOOST_TEST(run.knobs.micro_batch_size == 4);
  BOOST_TEST(run.seq_length == 4096);
  BOOST_TEST(run.global_batch_size == 256);
  BOOST_TEST(run.model_name == "deepseek_v3/dsv3_16b");
}

/// What is refused, and the two settings that the message names.
struct Contradiction {
  Dialect dialect;
  const char* text;
  const char* one;
  const char* other;
  int64_t world_size = 0;
};
std::ostream& operator<<(std::ostream& out, const Contradiction& row) { return out << row.text; }

const std::vector<Contradiction> kContradictions = {
    {kLm,
     "--pipeline-model-parallel-size 2 --num-layers 8 --num-layers-per-virtual-pipeline-stage 2 "
     "--num-virtual-stages-per-pipeline-rank 2",
     "'--num-virtual-stages-per-pipeline-rank'", "'--num-layers-per-virtual-pipeline-stage'"},
    {kLm,
     "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|tL' "
     "--decoder-first-pipeline-num-layers 1",
     "'--pipeline-model-parallel-layout'", "'--decoder-first-pipeline-num-layers'"},
    {kLm,
     "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|t|t|tL' "
     "--num-virtual-stages-per-pipeline-rank 2",
     "'--pipeline-model-parallel-layout'", "'--num-virtual-stages-per-pipeline-rank'"},
    {kLm, "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|t|tL'", "3 stages",
     "'--pipeline-model-parallel-size' (2)"},
    {kLm, "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2",
     "'--tensor-model-parallel-size' 4", "12 ranks", 12},
    {kLm, "--expert-model-parallel-size 8", "'--expert-model-parallel-size' 8", "4 ranks", 4},
    {kLm, "--tensor-model-parallel-size 1 --bf16 --fp16", "'--bf16'", "'--fp16'"},
    {kLm, "--bf16 --fp8-format hybrid --fp4-format e2m1", "'--fp8-format'", "'--fp4-format'"},
    {kLm, "--recompute-granularity selective --recompute-method uniform",
     "'--recompute-granularity'", "'--recompute-method'"},
    {kLm, "--recompute-granularity full", "'--recompute-granularity' full needs",
     "'--recompute-method' and '--recompute-num-layers'"},
    {kLm, "--recompute-granularity full --recompute-method uniform", "full needs",
     "'--recompute-num-layers'"},
    {kLm, "--recompute-granularity full --recompute-method blocks --recompute-num-layers 1",
     "'--recompute-method' is 'blocks'", "expected uniform or block"},
    {kLm, "--recompute-granularity full --recompute-method uniform --recompute-num-layers 0",
     "'--recompute-num-layers' is '0'", "expected an integer from 1"},
    {kPrimus,
     "recompute_granularity: full\nrecompute_method: block\nrecompute_num_layers: 0\n"
     "recompute_layer_ids: [0, 1]\n",
     "'recompute_num_layers' is '0'", "expected an integer from 1"},
    {kLm, "--recompute-granularity full --recompute-num-layers 1", "full needs",
     "'--recompute-method'"},
    {kLm, "--use-megatron-fsdp --use-torch-fsdp2", "'--use-megatron-fsdp'", "'--use-torch-fsdp2'"},
    {kLm, "--overlap-grad-reduce --overlap-param-gather", "'--overlap-param-gather' needs",
     "'--use-distributed-optimizer' or '--use-megatron-fsdp'"},
    {kLm, "--overlap-grad-reduce --overlap-param-gather --use-torch-fsdp2",
     "'--overlap-param-gather'", "'--use-distributed-optimizer'"},
    {kLm, "--exp-avg-dtype bf16", "'--exp-avg-dtype' is bf16",
     "needs '--use-precision-aware-optimizer'"},
    {kLm, "--exp-avg-sq-dtype fp8", "'--exp-avg-sq-dtype' is fp8",
     "needs '--use-precision-aware-optimizer'"},
    {kLm, "--main-params-dtype fp16", "'--main-params-dtype' is fp16",
     "needs '--use-precision-aware-optimizer'"},
    {kLm,
     "--moe-token-dispatcher-type flex --moe-expert-capacity-factor 1 "
     "--moe-pad-expert-input-to-capacity",
     "'--moe-pad-expert-input-to-capacity' contradicts", "'--moe-flex-dispatcher-backend' deepep"},
    {kLm, "--moe-token-dispatcher-type flex --moe-enable-deepep --moe-pad-expert-input-to-capacity",
     "'--moe-pad-expert-input-to-capacity'", "deepep"},
    {kLm, "--moe-token-dispatcher-type alltoall --moe-enable-deepep", "'alltoall'", "'flex'"},
    {kBridge, "model.seq_length=4096 dataset.seq_length=8192", "'model.seq_length' is '4096'",
     "'dataset.seq_length' is '8192'"},
    {kBridge, "ddp.use_distributed_optimizer=true optimizer.use_distributed_optimizer=false",
     "'ddp.use_distributed_optimizer'", "'optimizer.use_distributed_optimizer'"},
    {kBridge, "optimizer.exp_avg_dtype=bf16 optimizer.use_precision_aware_optimizer=false",
     "'optimizer.exp_avg_dtype' is bf16", "needs 'optimizer.use_precision_aware_optimizer'"},
    {kBridge,
     "model.moe_token_dispatcher_type=flex model.moe_flex_dispatcher_backend=deepep "
     "model.moe_pad_expert_input_to_capacity=true",
     "'model.moe_pad_expert_input_to_capacity'", "'model.moe_flex_dispatcher_backend' deepep"},
    {kPrimus, "overlap_param_gather: true\nuse_distributed_optimizer: false\n",
     "'overlap_param_gather' needs", "'use_distributed_optimizer'"},
    {kPrimus, "recompute_granularity: full\n", "'recompute_granularity' full",
     "'recompute_method'"},
    {kTitan, "[parallelism]\ndata_parallel_shard_degree = 4\ntensor_parallel_degree = 2\n",
     "'parallelism.data_parallel_shard_degree' 4 x 'parallelism.tensor_parallel_degree' 2 x "
     "'parallelism.context_parallel_degree' 1 x 'parallelism.pipeline_parallel_degree' 1",
     "8 ranks, not 16", 16},
    {kTitan, "[parallelism]\ntensor_parallel_degree = 2\ntensor_parallel_degree = 4\n", "line 3",
     "line 2"},
    {kPrimus, "fp8: hybrid\nfp4: e2m1\n", "'fp8'", "'fp4'"},
};

BOOST_DATA_TEST_CASE(contradictions_are_told, boost::unit_test::data::make(kContradictions), row) {
  const std::string message = refusal(row.text, row.dialect, row.world_size);
  BOOST_TEST_CONTEXT(message) {
    BOOST_TEST(contains(message, row.one));
    BOOST_TEST(contains(message, row.other));
  }
}

// What Megatron takes: settings that stand in a recipe or in files that were not given, other
// backends, layers by their numbers, and whatever a log echoes.
BOOST_AUTO_TEST_CASE(what_only_looks_contradictory_is_read) {
  struct Legal {
    Dialect dialect;
    const char* text;
  };
  const Legal kLegal[] = {
      {kLm, "--overlap-grad-reduce --overlap-param-gather --use-distributed-optimizer"},
      {kLm, "--overlap-grad-reduce --overlap-param-gather --use-megatron-fsdp"},
      {kLm, "--exp-avg-dtype fp32 --exp-avg-sq-dtype fp32"},
      {kLm, "--exp-avg-dtype bf16 --use-precision-aware-optimizer --use-distributed-optimizer"},
      {kLm, "--moe-token-dispatcher-type alltoall --moe-pad-expert-input-to-capacity"},
      {kLm,
       "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep "
       "--moe-pad-expert-input-to-capacity"},
      {kBridge, "ddp.use_distributed_optimizer=false optimizer.use_distributed_optimizer=false"},
      {kBridge, "model.recompute_granularity=full"},
      {kBridge, "model.moe_token_dispatcher_type=flex model.moe_pad_expert_input_to_capacity=true"},
      {kPrimus, "recompute_granularity: full\nrecompute_layer_ids: [0, 1]\n"},
  };
  for (const Legal& legal : kLegal) {
    BOOST_TEST(refusal(legal.text, legal.dialect) == "", legal.text);
  }
  const RunConfig both = flags(
      "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
      "--recompute-modules moe_act");
  BOOST_TEST(both.knobs.recompute.text() == "full");
  BOOST_TEST(has_note(both, "'--recompute-modules' says nothing beside"));
  // The optimizer that it needs is the recipe's.
  const RunConfig narrow = import_run("optimizer.exp_avg_dtype=bf16", kBridge, {.world_size = 8});
  BOOST_TEST(narrow.knobs.precision_aware_optimizer);
  BOOST_TEST(has_note(narrow, "'optimizer.use_precision_aware_optimizer', which is not said"));
  const RunConfig echo =
      import_run("--overlap-param-gather --exp-avg-dtype bf16", kLm, {.is_echo = true});
  BOOST_TEST(echo.knobs.overlap_param_gather);
}

struct Wrong {
  const char* flags;
  const char* message;
};
std::ostream& operator<<(std::ostream& out, const Wrong& row) { return out << row.flags; }

const std::vector<Wrong> kWrong = {
    {"--context-parallel-size -2", "'--context-parallel-size' is '-2', expected an integer from 1"},
    {"--context-parallel-size 99999999999999999999", "expected an integer from 1 to 1000000"},
    {"--context-parallel-size", "'--context-parallel-size' is '', expected a value behind it"},
    {"--num-layers -1", "'--num-layers' is '-1', expected an integer from 0"},
    {"--seq-length 1e400", "'--seq-length' is '1e400'"},
    {"--bf16 yes", "'--bf16' is 'yes', expected nothing behind it"},
    {"--cp-comm-type ring", "'--cp-comm-type' is 'ring', expected one of p2p, allgather"},
    {"--exp-avg-dtype int8", "expected one of fp32, bf16"},
    {"--recompute-granularity some", "expected full or selective"},
    {"--cuda-graph-impl some", "expected one of none, local"},
    {"--moe-token-dispatcher-type ring", "expected one of allgather, alltoall, flex"},
    {"--optimizer-cpu-offload --optimizer-offload-fraction 2", "expected from 0 to 1"},
    {"--moe-expert-capacity-factor nan", "expected a number from 0"},
    {"--num-layers 4 --hidden-size 8 --num-attention-heads 2 --num-experts 4 --moe-layer-freq "
     "'([0]*1+[1]*4)'",
     "has 5 layers, and the model 4"},
    {"--moe-layer-freq '[0]*999999999' --num-layers 4 --hidden-size 8 --num-attention-heads 2 "
     "--num-experts 4",
     "the pattern of layers with experts"},
};

BOOST_DATA_TEST_CASE(wrong_values_are_told, boost::unit_test::data::make(kWrong), row) {
  const std::string message =
      refusal(std::string("--tensor-model-parallel-size 1 ") + row.flags, kLm);
  BOOST_TEST_CONTEXT(message) { BOOST_TEST(contains(message, row.message)); }
}

BOOST_AUTO_TEST_CASE(values_without_a_word_are_passed_on) {
  const RunConfig run = flags(
      "--cp-comm-type a2a+p2p --optimizer lion --recompute-granularity "
      "selective --recompute-modules mhc mlp");
  BOOST_TEST(value_of(run, "--cp-comm-type") == "a2a+p2p");
  BOOST_TEST(value_of(run, "--optimizer") == "lion");
  BOOST_TEST(run.knobs.recompute.text() == "mlp");
  BOOST_TEST(has_note(run, "mhc"));
}

BOOST_AUTO_TEST_CASE(every_flag_is_known_or_passed_on) {
  std::istringstream flags_of_megatron(golden("megatron_flags.txt"));
  size_t count = 0;
  for (std::string flag; std::getline(flags_of_megatron, flag); ++count) {
    if (is_known(flag, kLm)) continue;
    const RunConfig run = import_run("--tensor-model-parallel-size 1 " + flag + " 7", kLm);
    BOOST_TEST(value_of(run, flag) == "7", flag);
    BOOST_TEST(contains(export_run(run, kLm), flag + " 7"), flag);
  }
  BOOST_TEST(count == 148U);
  // What the engine's own trials are written as is understood as well.
  for (const KnobRow& row : knob_table()) {
    const std::string flags_of_row(row.megatron_flag);
    if (!flags_of_row.starts_with("--") || contains(flags_of_row, ",")) continue;
    BOOST_TEST(is_known(flags_of_row, kLm), flags_of_row);
  }
}

// Choices that nothing prices have words in other dialects; what has none is lost by name.
BOOST_AUTO_TEST_CASE(settings_that_no_knob_stands_for_are_translated_or_named) {
  const RunConfig run = flags(
      "--moe-router-force-load-balancing --moe-shared-expert-overlap --manual-gc "
      "--manual-gc-interval 50 --ddp-bucket-size 40000000 --no-overlap-p2p-communication "
      "--moe-router-load-balancing-type aux_loss --moe-paged-stash --lr 1e-4 --weight-decay 0.1");
  const UnpricedSettings settings = unpriced_settings(run);
  BOOST_TEST(settings.known.size() == 8U);
  BOOST_TEST(settings.unknown == (std::vector<std::string>{"--lr", "--weight-decay"}),
             boost::test_tools::per_element());
  const std::string bridge = export_run(run, kBridge);
  for (const char* words :
       {"model.moe_router_force_load_balancing=true", "model.moe_shared_expert_overlap=true",
        "train.manual_gc=true", "train.manual_gc_interval=50", "comm_overlap.bucket_size=40000000",
        "comm_overlap.overlap_p2p_comm=false", "model.moe_router_load_balancing_type=aux_loss",
        "# 2 settings of megatron-lm are not translated: --lr, --weight-decay"}) {
    BOOST_TEST(contains(bridge, words), words << "\n" << bridge);
  }
  const std::string titan = export_run(run, kTitan);
  BOOST_TEST(contains(titan, "moe_force_load_balance = true"), titan);
  BOOST_TEST(contains(titan, "gc_freq = 50"), titan);
  BOOST_TEST(contains(titan, "--moe-paged-stash"), titan);
  const std::string primus = export_run(run, kPrimus);
  BOOST_TEST(contains(primus, "overlap_p2p_comm: false"), primus);
  // A value that no form has is named, too.
  const std::string odd = export_run(flags("--ddp-bucket-size many --manual-gc 3 4"), kBridge);
  BOOST_TEST(contains(odd,
                      "2 settings of megatron-lm are not translated: --ddp-bucket-size, "
                      "--manual-gc"),
             odd);
  // And back, with the contrary of a switch.
  const RunConfig of_bridge = import_run(
      "model.tensor_model_parallel_size=1 comm_overlap.overlap_p2p_comm=false "
      "train.manual_gc=false optimizer.lr=1e-4",
      kBridge);
  const std::string command = export_run(of_bridge, kLm);
  BOOST_TEST(contains(command, "--no-overlap-p2p-communication"), command);
  BOOST_TEST(!contains(command, "--manual-gc"), command);
  BOOST_TEST(contains(command, "1 settings of megatron-bridge are not translated: optimizer.lr"),
             command);
}

BOOST_AUTO_TEST_CASE(of_many_keys_some_are_named) {
  std::vector<std::string> keys(kMostNamed + 3, "--x");
  BOOST_TEST(contains(text_of_keys(keys), " and 3 more"));
  keys.resize(2);
  BOOST_TEST(text_of_keys(keys) == "--x, --x");
}

// A key of two tables would be read as a knob and counted as unpriced.
BOOST_AUTO_TEST_CASE(no_key_stands_in_two_tables) {
  for (const Row& row : carried_rows()) {
    for (const Dialect dialect : samples::kDialects) {
      const std::string key = key_of(row, dialect);
      if (key.empty()) continue;
      BOOST_TEST(!is_known(key, dialect), key);
      BOOST_TEST(find_carried(key, dialect) == &row, key);
    }
  }
}

BOOST_AUTO_TEST_CASE(texts_that_are_none) {
  BOOST_TEST(!detect_dialect("Dear all, see you on Monday.").has_value());
  BOOST_TEST(!detect_dialect("").has_value());
  for (const Dialect dialect : samples::kDialects) {
    BOOST_TEST(!refusal("hello world", dialect).empty());
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec::dialects
