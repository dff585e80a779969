// Words of rows that other people write, and ways to count FLOPs: what they mean, and that what is
// not understood is told.
#include "sweeps/planning/row_words.h"

#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "sweeps/planning/flops_accounting.h"
#include "sweeps/planning/named_files.h"
#include "sweeps/planning/published_rows.h"
#include "tests/sweeps/shipped_rows.h"

namespace moetune::sweeps {

namespace data = boost::unit_test::data;
using nlohmann::json;

BOOST_AUTO_TEST_SUITE(row_words)

BOOST_AUTO_TEST_CASE(spellings_of_one_thing) {
  BOOST_TEST(plain_word(" Torch.BFloat16 ") == "bfloat16");
  BOOST_TEST(plain_word("--") == "");
  for (const char* text : {"", "none", "No", "OFF", "false"}) BOOST_TEST(is_none_word(text), text);
  for (const char* text : {"bf16", "bfloat16", "torch.bfloat16"}) {
    BOOST_TEST((state_word(text) == spec::StateType::bf16), text);
  }
  BOOST_TEST((state_word("torch.float32") == spec::StateType::fp32));
  BOOST_TEST(!state_word("int3").has_value());
  BOOST_TEST((precision_word("fp8") == spec::PrecisionRecipe::fp8_current));
  BOOST_TEST((precision_word("fp8-blockwise") == spec::PrecisionRecipe::fp8_blockwise));
  BOOST_TEST((precision_word("FP8_Blockwise") == spec::PrecisionRecipe::fp8_blockwise));
  BOOST_TEST(!precision_word("fp2").has_value());
  BOOST_TEST((task_word("fine-tuning") == spec::TrainingTask::sft));
  BOOST_TEST((dispatcher_word("flex", "") == spec::Dispatcher::deepep));
  BOOST_TEST((dispatcher_word("flex", "hybridep") == spec::Dispatcher::hybridep));
  BOOST_TEST(!dispatcher_word("flex", "ncclep").has_value());
  BOOST_TEST(!dispatcher_word("ncclep", "").has_value());
}

struct PrecisionSample {
  const char* text;
  spec::PrecisionRecipe recipe;
};
std::ostream& operator<<(std::ostream& out, const PrecisionSample& row) { return out << row.text; }

const PrecisionSample kPrecisionSamples[] = {
    {"BF16", spec::PrecisionRecipe::bf16},
    {"bf16-mixed", spec::PrecisionRecipe::bf16},
    {"torch.float16", spec::PrecisionRecipe::fp16},
    {"float32", spec::PrecisionRecipe::fp32},
    {"fp8_cs", spec::PrecisionRecipe::fp8_current},
    {"fp8 tensorwise", spec::PrecisionRecipe::fp8_current},
    {"fp8-hybrid", spec::PrecisionRecipe::fp8_current},
    {"fp8_delayed_scaling", spec::PrecisionRecipe::fp8_delayed},
    {"fp8_sc", spec::PrecisionRecipe::fp8_blockwise},
    {"fp8-subchannel-scaling", spec::PrecisionRecipe::fp8_blockwise},
    {"FP8 (sub-channel scaling)", spec::PrecisionRecipe::fp8_blockwise},
    {"bf16_with_fp8_current_scaling_mixed", spec::PrecisionRecipe::fp8_current},
    {"fp8_mx", spec::PrecisionRecipe::mxfp8},
    {"bf16_with_mxfp8_mixed", spec::PrecisionRecipe::mxfp8},
    {"MXFP8 block scaling", spec::PrecisionRecipe::mxfp8},
    {"fp4", spec::PrecisionRecipe::nvfp4},
    {"nvfp4-mixed", spec::PrecisionRecipe::nvfp4},
};

BOOST_DATA_TEST_CASE(a_precision_is_its_words, data::make(kPrecisionSamples), row) {
  BOOST_TEST((precision_word(row.text) == row.recipe));
}

BOOST_AUTO_TEST_CASE(other_precisions_are_not_known) {
  for (const char* text : {"", "mixed", "mxfp4", "fp8 fp4", "fp8 mx delayed", "bf16 fp16",
                           "blockwise", "fp8-lunar", "nvfp8"}) {
    BOOST_TEST(!precision_word(text).has_value(), text);
  }
  BOOST_TEST(leaves_scaling_open("fp8-hybrid"));
  BOOST_TEST(!leaves_scaling_open("fp8_sc"));
  BOOST_TEST(!leaves_scaling_open("bf16"));
}

BOOST_AUTO_TEST_CASE(a_dispatcher_is_its_words) {
  using enum spec::Dispatcher;
  for (const char* text : {"hybridep", "flex (HybridEP)", "flex-hybridep", "hybrid_ep"}) {
    BOOST_TEST((dispatcher_word(text, "") == hybridep), text);
  }
  for (const char* text : {"DeepEP v2", "flex/deepep", "deep-ep", "DeepEP (flex backend)"}) {
    BOOST_TEST((dispatcher_word(text, "") == deepep), text);
  }
  BOOST_TEST((dispatcher_word("NCCL all-to-all", "") == alltoall));
  BOOST_TEST((dispatcher_word("flex (hybridep)", "deepep") == hybridep));
  for (const char* text : {"", "none", "deepep or alltoall", "flex alltoall", "nccl"}) {
    BOOST_TEST(!dispatcher_word(text, "").has_value(), text);
  }
  BOOST_TEST(leaves_backend_open("Flex dispatcher"));
  BOOST_TEST(!leaves_backend_open("flex (HybridEP)"));
}

BOOST_AUTO_TEST_CASE(what_is_shown_ends_with_a_whole_character) {
  BOOST_TEST(row_word_shown("abc") == "'abc'");
  // 39 letters, then a character of two bytes.
  BOOST_TEST(row_word_shown(std::string(39, 'a') + "\xc3\xa9") == "'" + std::string(39, 'a') + "'");
  BOOST_TEST(row_word_shown(std::string(41, 'a')) == "'" + std::string(40, 'a') + "'");
}

BOOST_AUTO_TEST_CASE(who_holds_what) {
  for (const char* text : {"none", "no", "zero-1", "ZeRO-2", "zero2"}) {
    const auto word = fsdp_word(text);
    BOOST_TEST_REQUIRE(word.has_value(), text);
    BOOST_TEST((word->fsdp == spec::Fsdp::none), text);
  }
  BOOST_TEST(fsdp_word("zero-2")->shards_gradients);
  BOOST_TEST(fsdp_word("zero-1")->distributed_optimizer.value_or(false));
  for (const char* text : {"fsdp (ZeRO-3)", "megatron-fsdp", "FSDP"}) {
    BOOST_TEST((fsdp_word(text)->fsdp == spec::Fsdp::megatron), text);
  }
  BOOST_TEST((fsdp_word("fsdp2")->fsdp == spec::Fsdp::torch));
  BOOST_TEST(!fsdp_word("sometimes").has_value());
  constexpr auto kMegatron = spec::Fsdp::megatron;
  BOOST_TEST((fsdp_sharding_word("optim_grads_params", kMegatron)->fsdp == kMegatron));
  BOOST_TEST((fsdp_sharding_word("optim", kMegatron)->fsdp == spec::Fsdp::none));
  BOOST_TEST(!fsdp_sharding_word("no_shard", kMegatron)->distributed_optimizer.value_or(true));
}

// 4 stages of 8 ranks.
BOOST_AUTO_TEST_CASE(ranks_are_of_stages) {
  const auto stage = [](const char* text) { return stage_word(text, 8, 4).value_or(-2); };
  BOOST_TEST(stage("") == kWorstStage);
  BOOST_TEST(stage("not stated") == kWorstStage);
  BOOST_TEST(stage("max over ranks") == kWorstStage);
  BOOST_TEST(stage("rank 0") == 0);
  BOOST_TEST(stage("rank 7") == 0);
  BOOST_TEST(stage("Rank 8") == 1);
  BOOST_TEST(stage("17") == 2);
  BOOST_TEST(stage("first pipeline stage") == 0);
  BOOST_TEST(stage("stage 2") == 2);
  BOOST_TEST(stage("last rank (last pipeline stage): the one that writes the log") == 3);
  BOOST_TEST(stage("pp rank 2") == 2);
  BOOST_TEST(stage("PP-rank-2") == 2);
  BOOST_TEST(stage("pipeline_parallel_rank 1") == 1);
  BOOST_TEST(stage("rank 9 (tp rank 1)") == 1);
  BOOST_TEST(stage("rank 3 (pp 4)") == 0);
  BOOST_TEST(stage("rank-9") == 1);
  BOOST_TEST(stage("rank -1") == 3);
  BOOST_TEST(stage("rank -9") == 2);
  BOOST_TEST(stage("-1") == 3);
  BOOST_TEST(stage("stage -4") == 0);
  BOOST_TEST(stage("stage -5") == -2);
  BOOST_TEST(stage("rank -33") == -2);
  BOOST_TEST(stage("tp rank 3") == -2);
  BOOST_TEST(stage("rank 32") == -2);
  BOOST_TEST(stage("the blue one") == -2);
}

// Figures of published rows: their TFLOP/s over their tokens/s, and what the collection derives.
BOOST_AUTO_TEST_CASE(flops_are_counted_as_the_source_counts_them) {
  const auto gflop = [](const char* model, int64_t length, const char* accounting) {
    return counted_flops(*model_named(model), length, accounting).flops_per_token / 1e9;
  };
  const auto within = boost::test_tools::tolerance(1e-3);
  BOOST_TEST(gflop("gpt-oss-120b", 4096, "") == 32.63, within);
  constexpr const char* kOld = "gpt-oss before container 26.06: two GEMMs per expert, no window";
  BOOST_TEST(gflop("gpt-oss-120b", 4096, kOld) == 27.164, within);
  BOOST_TEST(gflop("gpt-oss-120b", 8192, kOld) == 30.79, within);
  constexpr const char* kLora = "lora: frozen weights without weight gradient";
  BOOST_TEST(gflop("llama3-70b", 4096, kLora) == 288.744, within);
  BOOST_TEST(gflop("llama3-70b", 8192, "causal core not halved") == 481.435, within);
  const CountedFlops other =
      counted_flops(*model_named("llama3-70b"), 4096, std::string("automodel; ") + kLora);
  BOOST_TEST(!other.is_known);
  BOOST_TEST(other.flops_per_token / 1e9 == 288.744, within);
}

/// The first row of the shipped ones, of 256 devices in two stages.
json first_row() {
  std::ifstream file(std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/published/rows.json");
  return json::parse(file)[0];
}

PublishedRow read(const json& row) { return published_rows_of(json::array({row}), "test").front(); }

bool is_told(const PublishedRow& row, const std::string& part) {
  for (const std::string& line : row.assumed) {
    if (line.find(part) != std::string::npos) return true;
  }
  return false;
}

struct Substituted {
  const char* name;
  void (*change)(json& row);
  const char* told;  ///< part of a line
};
std::ostream& operator<<(std::ostream& out, const Substituted& row) { return out << row.name; }

const Substituted kSubstituted[] = {
    {"dispatcher", [](json& row) { row["dispatcher"] = "ncclep"; }, "'ncclep' is not known"},
    {"flex", [](json& row) { row["dispatcher"] = "flex"; }, "dispatcher deepep"},
    {"module",
     [](json& row) {
       row["recompute"] = {{"granularity", "selective"}, {"modules", {"soul"}}};
     },
     "'soul': the module is not known"},
    {"no module",
     [](json& row) {
       row["recompute"] = {{"granularity", "selective"}};
     },
     "recompute core_attn"},
    {"type", [](json& row) { row["optimizer"]["exp_avg_dtype"] = "int3"; }, "'int3'"},
    {"optimizer", [](json& row) { row["optimizer"]["type"] = "lion"; }, "'lion'"},
    {"main gradients", [](json& row) { row["optimizer"]["main_grads_dtype"] = "bf16"; },
     "main gradients fp32 though the row says bf16: the row's optimizer is assumed"},
    {"scaling", [](json& row) { row["precision"] = "fp8-hybrid"; },
     "precision fp8-current-scaling: 'fp8-hybrid' does not say how it is scaled"},
    {"memory",
     [](json& row) {
       row["hardware"] = "DGX A100";
       row["precision"] = "bf16";
     },
     "hardware a100-80g: 'DGX A100'"},
    {"graphs, yes", [](json& row) { row["cuda_graphs"] = true; }, "which parts is not stated"},
    {"switch", [](json& row) { row["other_knobs"]["moe_grouped_gemm"] = "soul"; },
     "moe_grouped_gemm not read: 'soul' is neither true nor false"},
    {"twice", [](json& row) { row["other_knobs"]["delay-wgrad-compute"] = false; },
     "delay_wgrad_compute as the first of two"},
    {"attention", [](json& row) { row["other_knobs"]["attention_backend"] = "soul"; },
     "attention_backend fused: 'soul' is not known"},
    {"keys' transport", [](json& row) { row["other_knobs"]["cp_comm_type"] = "mail"; },
     "cp_comm_type p2p: 'mail' is not known"},
    {"task", [](json& row) { row["task"] = "dreaming"; }, "task pretrain: 'dreaming'"},
    {"sharding of gradients", [](json& row) { row["fsdp"] = "zero-2"; }, "gradients are whole"},
    {"sharding", [](json& row) { row["fsdp"] = "sometimes"; }, "fsdp megatron"},
    {"rank", [](json& row) { row["memory_rank"] = "the blue one"; }, "the worst rank"},
    {"batch",
     [](json& row) {
       row.erase("global_batch_size");
       row.erase("num_microbatches");
     },
     "one micro-batch"},
    {"offload", [](json& row) { row["activation_offload"] = "24 layers"; }, "'24 layers'"},
    {"accounting",
     [](json& row) {
       row["flops_accounting"] = "by the moon";
       row.erase("derived");
       row.erase("tokens_per_s_per_gpu");
     },
     "'by the moon'"},
    {"graphs",
     [](json& row) {
       row["cuda_graphs"] = {"attn", "soul"};
     },
     "'soul'"},
    {"what is not stated",
     [](json& row) {
       row["software"] = {{"name", "Megatron-LM"}};
       for (const char* key : {"cuda_graphs", "recompute", "dispatcher", "routing"}) row.erase(key);
     },
     "recompute none: the row does not say"},
};

BOOST_DATA_TEST_CASE(what_is_taken_instead_is_told, data::make(kSubstituted), substituted) {
  json row = first_row();
  substituted.change(row);
  const PublishedRow result = read(row);
  BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
  BOOST_TEST(is_told(result, substituted.told), json(result.assumed).dump());
}

BOOST_AUTO_TEST_CASE(what_is_understood_is_taken) {
  json row = first_row();
  row["optimizer"] = {{"type", "adamw"}, {"exp_avg_dtype", "torch.bfloat16"}};
  row["optimizer"]["main_grads_dtype"] = "bfloat16";
  row.erase("assumed");
  row["fsdp"] = "none";
  row["capacity_factor"] = -1;
  row["memory_rank"] = 200;  // of 256 in two stages
  const PublishedRow result = read(row);
  BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
  BOOST_TEST((result.run.knobs.exp_avg == spec::StateType::bf16));
  BOOST_TEST((result.run.knobs.main_grads == spec::StateType::bf16));
  BOOST_TEST((result.run.knobs.fsdp == spec::Fsdp::none));
  BOOST_TEST(result.run.knobs.capacity_factor == 0);
  BOOST_TEST(result.memory_stage == 1);
}

/// The knobs of the first row with other other_knobs.
spec::PlanKnobs knobs_with(const json& other_knobs) {
  json row = first_row();
  row["other_knobs"] = other_knobs;
  const PublishedRow result = read(row);
  BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
  return result.run.knobs;
}

// Recipes of Megatron-Bridge have on what a command of Megatron-LM leaves out.
BOOST_AUTO_TEST_CASE(a_dash_makes_no_command) {
  const spec::PlanKnobs knobs = knobs_with(json::object());
  BOOST_TEST(knobs.moe_grouped_gemm);
  BOOST_TEST((knobs_with({{"nothing-known", true}}) == knobs));
  BOOST_TEST((knobs_with({{"moe-grouped-gemm", true}, {"overlap-grad-reduce", true}}) == knobs));
  const json off = {{"overlap_moe_expert_parallel_comm", false}};
  BOOST_TEST(knobs.overlap_moe_expert_parallel_comm);
  BOOST_TEST(!knobs_with(off).overlap_moe_expert_parallel_comm);
  BOOST_TEST((knobs_with({{"overlap-moe-expert-parallel-comm", false}}) == knobs_with(off)));
  BOOST_TEST((knobs_with({{"--overlap-moe-expert-parallel-comm", "False"}}) == knobs_with(off)));
}

BOOST_AUTO_TEST_CASE(padding_is_read_of_a_row) {
  const auto pads = [](const json& value) {
    json row = first_row();
    row["capacity_factor"] = 1.5;
    row["cuda_graphs"] = "none";
    row["other_knobs"] = {{"moe_pad_expert_input_to_capacity", true}};
    if (!value.is_null()) row["pad_to_capacity"] = value;
    return read(row);
  };
  BOOST_TEST(pads(nullptr).run.knobs.pad_to_capacity);
  BOOST_TEST(pads(true).run.knobs.pad_to_capacity);
  BOOST_TEST(!pads(false).run.knobs.pad_to_capacity);
  BOOST_TEST(!pads("False").run.knobs.pad_to_capacity);
  BOOST_TEST(is_told(pads("soon"), "pad_to_capacity not read: 'soon' is neither true nor false"));
  json row = first_row();
  row["capacity_factor"] = 1.5;
  row["cuda_graphs"] = "none";
  BOOST_TEST(!read(row).run.knobs.pad_to_capacity);
  row["cuda_graphs"] = "full_iteration";
  BOOST_TEST(read(row).run.knobs.pad_to_capacity);
}

struct SwitchSample {
  const char* name;
  bool spec::PlanKnobs::*member;
  bool when_off;  ///< of the member
};
std::ostream& operator<<(std::ostream& out, const SwitchSample& row) { return out << row.name; }

const SwitchSample kSwitchSamples[] = {
    {"moe_grouped_gemm", &spec::PlanKnobs::moe_grouped_gemm, false},
    {"moe_permute_fusion", &spec::PlanKnobs::moe_permute_fusion, false},
    {"overlap_grad_reduce", &spec::PlanKnobs::overlap_grad_reduce, false},
    {"overlap_param_gather", &spec::PlanKnobs::overlap_param_gather, false},
    {"overlap_moe_expert_parallel_comm", &spec::PlanKnobs::overlap_moe_expert_parallel_comm, false},
    {"delay_wgrad_compute", &spec::PlanKnobs::delay_wgrad_compute, false},
    {"tp_comm_overlap", &spec::PlanKnobs::tp_comm_overlap, false},
    {"moe_pad_expert_input_to_capacity", &spec::PlanKnobs::pad_to_capacity, false},
    {"no_gradient_accumulation_fusion", &spec::PlanKnobs::gradient_accumulation_fusion, true},
};

BOOST_DATA_TEST_CASE(a_switch_is_read_in_every_spelling, data::make(kSwitchSamples), row) {
  std::string dashed = row.name;
  std::ranges::replace(dashed, '_', '-');
  for (const std::string& name : {std::string(row.name), dashed}) {
    for (const json& off : {json(false), json("false"), json("False"), json(0)}) {
      const spec::PlanKnobs knobs = knobs_with({{name, off}});
      BOOST_TEST((knobs.*row.member == row.when_off), name);
    }
    for (const json& on : {json(true), json("true"), json("1")}) {
      const spec::PlanKnobs knobs = knobs_with({{name, on}});
      BOOST_TEST((knobs.*row.member != row.when_off), name);
    }
  }
}

BOOST_AUTO_TEST_CASE(words_beside_the_columns_are_read) {
  for (const char* name : {"attention-backend", "attention_backend"}) {
    for (const char* word : {"unfused", "AttnBackend.unfused", "local"}) {
      BOOST_TEST(!knobs_with({{name, word}}).fused_attention, name << " " << word);
    }
    BOOST_TEST(knobs_with({{name, "flash"}}).fused_attention, name);
  }
  BOOST_TEST(knobs_with({{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}}).cuda_device_max_connections == 1);
  BOOST_TEST(knobs_with({{"cuda-graph-warmup-steps", "0"}}).cuda_graph_warmup_steps == 0);
  BOOST_TEST(knobs_with({{"moe-deepep-num-sms", 24}}).moe_flex_dispatcher_num_sms == 24);
  BOOST_TEST((knobs_with({{"cp-comm-type", "a2a"}}).cp_comm_type == spec::PlanCp::a2a));
  BOOST_TEST(
      (knobs_with({{"cross-entropy-fusion-impl", "te"}}).cross_entropy == spec::CrossEntropy::te));
}

// What is left out is off only among flags of Megatron-LM, as its commands spell them.
BOOST_AUTO_TEST_CASE(flags_of_a_command_that_are_left_out_are_off) {
  json row = first_row();
  row["software"]["name"] = "Megatron-LM";
  row["other_knobs"] = {{"attention-softmax-in-fp32", true}, {"overlap-grad-reduce", true}};
  const PublishedRow command = read(row);
  BOOST_TEST_REQUIRE(command.reason.empty(), command.reason);
  BOOST_TEST(!command.run.knobs.moe_grouped_gemm);
  BOOST_TEST(!command.run.knobs.moe_permute_fusion);
  BOOST_TEST(!command.run.knobs.overlap_param_gather);
  BOOST_TEST(command.run.knobs.overlap_grad_reduce);
  constexpr const char* kTold = "flags that other_knobs leaves out are off";
  BOOST_TEST(is_told(command, kTold), json(command.assumed).dump());

  for (const json& flags : {json{{"overlap-grad-reduce", true}},
                            json{{"overlap-grad-reduce", true}, {"nothing-known", true}},
                            json{{"overlap_grad_reduce", true}, {"deterministic_mode", true}}}) {
    row["other_knobs"] = flags;
    const PublishedRow other = read(row);
    BOOST_TEST(other.run.knobs.moe_grouped_gemm, flags.dump());
    BOOST_TEST(!is_told(other, kTold), flags.dump());
  }
}

struct RecomputeSample {
  const char* name;
  json stated;
  const char* set;   ///< as the knob
  const char* told;  ///< part of a line; empty: nothing is
};
std::ostream& operator<<(std::ostream& out, const RecomputeSample& row) { return out << row.name; }

const RecomputeSample kRecomputeSamples[] = {
    {"to the letter",
     {{"granularity", "selective"}, {"modules", {"mlp", "moe_act"}}},
     "moe_act,mlp",
     ""},
    {"none", {{"granularity", "none"}, {"modules", json::array()}}, "none", ""},
    {"off", false, "none", ""},
    {"all", "full", "full", ""},
    {"a list", json::array({"core_attn"}), "core_attn", ""},
    {"modules alone",
     {{"modules", {"moe_act"}}},
     "moe_act",
     "recompute selective: modules without a granularity"},
    {"a text of modules",
     {{"granularity", "selective"}, {"modules", "moe_act"}},
     "moe_act",
     "recompute modules 'moe_act': a text is taken as a list"},
    {"a text of several",
     {{"granularity", "selective"}, {"modules", "moe_act, layernorm"}},
     "layernorm,moe_act",
     "a text is taken as a list"},
    {"a module as the whole", "mla-up-proj", "mla_up_proj",
     "recompute selective: modules without a granularity"},
    {"no module",
     {{"granularity", "selective"}, {"modules", json::array()}},
     "core_attn",
     "selective without modules, Megatron's default"},
    {"yes", true, "full", "recompute full: 'true' is taken for it"},
    {"granularity yes", {{"granularity", true}}, "full", "recompute full: 'true' is taken for it"},
    {"all, with more to it", "full, uniform", "full", "'full, uniform' is taken for it"},
    {"nothing in it", json::object(), "none", "recompute none: the row does not say"},
    {"a list of nothing", json::array(), "none", ""},
    {"modules of a kind that is not known",
     {{"granularity", "custom"}, {"modules", {"mlp"}}},
     "mlp",
     "recompute selective: 'custom' is not known, modules are stated"},
    {"modules of none",
     {{"granularity", "none"}, {"modules", {"moe_act"}}},
     "none",
     "modules count with granularity selective alone"},
    {"some layers", {{"granularity", "full"}, {"method", "block"}, {"num_layers", 8}}, "full", ""},
    {"nobody knows how many",
     {{"granularity", "full"}, {"method", "block"}},
     "full",
     "recompute of each layer: the method is 'block' with '1' layers"},
    {"the first none",
     {{"granularity", "full"}, {"method", "block"}, {"num_layers", 0}},
     "none",
     ""},
    {"none, by whatever method",
     {{"granularity", "full"}, {"num_layers", 0}},
     "none",
     "recompute none: full with 0 layers, the method is not stated"},
    {"groups of none",
     {{"granularity", "full"}, {"method", "uniform"}, {"num_layers", 0}},
     "full",
     "recompute of each layer: the method is 'uniform' with '0' layers"},
    {"nobody knows of what",
     {{"granularity", "full"}, {"num_layers", 4}},
     "full",
     "recompute of each layer: the method is 'not stated' with '4' layers"},
    {"each layer", {{"granularity", "full"}, {"method", "uniform"}, {"num_layers", 1}}, "full", ""},
    {"not known", "sometimes", "none", "recompute none: 'sometimes' is not known"},
};

BOOST_DATA_TEST_CASE(recomputation_is_read_as_it_is_written, data::make(kRecomputeSamples),
                     sample_row) {
  json row = first_row();
  row["recompute"] = sample_row.stated;
  const PublishedRow result = read(row);
  BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
  BOOST_TEST(result.run.knobs.recompute.text() == sample_row.set);
  const std::string told = sample_row.told;
  if (!told.empty()) {
    BOOST_TEST(is_told(result, told), json(result.assumed).dump());
    return;
  }
  const auto is_of_recompute = [](const std::string& line) {
    return line.starts_with("recompute");
  };
  BOOST_TEST(std::ranges::none_of(result.assumed, is_of_recompute), json(result.assumed).dump());
}

BOOST_AUTO_TEST_CASE(which_layers_are_recomputed_is_read) {
  json row = first_row();
  row["recompute"] = {{"granularity", "full"}, {"method", "block"}, {"num_layers", 8}};
  const spec::PlanKnobs block = read(row).run.knobs;
  BOOST_TEST((block.recompute_method == spec::RecomputeMethod::block));
  BOOST_TEST(block.recompute_num_layers == 8);
  row["recompute"] = {{"granularity", "full"}, {"method", "uniform"}, {"num_layers", 4}};
  const spec::PlanKnobs groups = read(row).run.knobs;
  BOOST_TEST((groups.recompute_method == spec::RecomputeMethod::uniform));
  BOOST_TEST(groups.recompute_num_layers == 4);
  row["recompute"] = {{"granularity", "full"}, {"method", "block"}};
  BOOST_TEST(read(row).run.knobs.recomputes_each_layer());
}

BOOST_AUTO_TEST_CASE(adapters_have_a_rank) {
  json row = first_row();
  row["lora_rank"] = 0;  // not asked for where all is trained
  BOOST_TEST_REQUIRE(read(row).reason.empty());
  row.erase("lora_rank");
  row["task"] = "lora";
  const PublishedRow silent = read(row);
  BOOST_TEST(silent.run.knobs.lora_rank == 32);
  BOOST_TEST(is_told(silent, "lora_rank 32: the row does not say"), json(silent.assumed).dump());
  BOOST_TEST(is_told(silent, "one for all experts of a rank"), json(silent.assumed).dump());
  row["other_knobs"]["lora-rank"] = "4";
  BOOST_TEST(read(row).run.knobs.lora_rank == 4);
  row["peft"] = {{"dim", 8}};
  BOOST_TEST(read(row).run.knobs.lora_rank == 8);
  row["lora_rank"] = 16;
  const PublishedRow stated = read(row);
  BOOST_TEST(stated.run.knobs.lora_rank == 16);
  BOOST_TEST(!is_told(stated, "lora_rank"), json(stated.assumed).dump());
}

// What recipes of Megatron-Bridge have, whatever the model.
BOOST_AUTO_TEST_CASE(recipes_keep_weights_in_8_bits) {
  const auto is_narrow = [](const char* precision, const auto& change) {
    json row = first_row();
    row["precision"] = precision;
    change(row);
    const PublishedRow result = read(row);
    BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
    const bool is_on = result.run.knobs.fp8_param_gather;
    const bool is_stated = row["other_knobs"].contains("fp8_param_gather");
    BOOST_TEST(is_told(result, "fp8_param_gather (recipe of the release)") == (is_on && !is_stated),
               json(result.assumed).dump());
    return is_on;
  };
  const auto as_it_is = [](json&) {};
  for (const char* precision : {"mxfp8", "fp8-current-scaling", "fp8-delayed"}) {
    BOOST_TEST(is_narrow(precision, as_it_is), precision);
  }
  for (const char* precision : {"bf16", "fp8-blockwise", "nvfp4"}) {
    BOOST_TEST(!is_narrow(precision, as_it_is), precision);
  }
  BOOST_TEST(
      !is_narrow("mxfp8", [](json& row) { row["other_knobs"]["fp8_param_gather"] = false; }));
  BOOST_TEST(!is_narrow("mxfp8", [](json& row) { row["optimizer"]["type"] = "muon"; }));
  BOOST_TEST(!is_narrow("mxfp8", [](json& row) { row["optimizer"]["distributed"] = false; }));
  BOOST_TEST(!is_narrow("mxfp8", [](json& row) { row["software"]["name"] = "Megatron-LM"; }));
}

BOOST_AUTO_TEST_CASE(recipes_for_finetuning_have_narrow_gradients) {
  const auto gradients_of = [](const char* task, const auto& change) {
    json row = first_row();
    row["task"] = task;
    change(row);
    const PublishedRow result = read(row);
    BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
    return result.run.knobs.main_grads;
  };
  const auto as_it_is = [](json&) {};
  const auto is_wide = [](json& row) { row["optimizer"]["main_grads_dtype"] = "fp32"; };
  const auto is_of_megatron = [](json& row) { row["software"]["name"] = "Megatron-LM"; };
  BOOST_TEST((gradients_of("sft", as_it_is) == spec::StateType::bf16));
  BOOST_TEST((gradients_of("lora", as_it_is) == spec::StateType::bf16));
  BOOST_TEST((gradients_of("pretrain", as_it_is) == spec::StateType::fp32));
  BOOST_TEST((gradients_of("sft", is_wide) == spec::StateType::fp32));
  BOOST_TEST((gradients_of("sft", is_of_megatron) == spec::StateType::fp32));
}

BOOST_AUTO_TEST_CASE(values_of_other_types_are_read) {
  json row = first_row();
  row["cuda_graphs"] = false;
  row["fsdp"] = 1;
  row["memory_rank"] = -1;
  row["sequence_parallel"] = "true";
  row["optimizer"]["distributed"] = "false";
  row["optimizer"]["precision_aware"] = "true";
  PublishedRow result = read(row);
  BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
  BOOST_TEST(result.run.knobs.cuda_graphs.empty());
  BOOST_TEST((result.run.knobs.fsdp == spec::Fsdp::megatron));
  BOOST_TEST(result.memory_stage == 1);
  BOOST_TEST(result.run.knobs.sequence_parallel);
  BOOST_TEST(!result.run.knobs.distributed_optimizer);
  BOOST_TEST(result.run.knobs.precision_aware_optimizer);
  row["cuda_graphs"] = true;
  row["fsdp"] = 0;
  result = read(row);
  BOOST_TEST(result.run.knobs.cuda_graphs.text() == "attn,moe_router,moe_preprocess");
  BOOST_TEST((result.run.knobs.fsdp == spec::Fsdp::none));
}

// A text stands for the part of an object that people name it by.
BOOST_AUTO_TEST_CASE(texts_in_the_place_of_objects_are_read) {
  json row = first_row();
  row["optimizer"] = "Muon";
  row["software"] = "torchtitan";
  PublishedRow result = read(row);
  BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
  BOOST_TEST((result.run.knobs.optimizer == spec::OptimizerKind::muon));
  BOOST_TEST(result.is_of_other_engine);
  row["optimizer"] = "unknown";
  row["software"] = "not stated";
  result = read(row);
  BOOST_TEST((result.run.knobs.optimizer == spec::OptimizerKind::adam));
  BOOST_TEST(is_told(result, "software Megatron-Core: the row does not say"));
  row["optimizer"] = "lion";
  BOOST_TEST(is_told(read(row), "optimizer.type adam: 'lion' is not known"));
}

BOOST_AUTO_TEST_CASE(kinds_of_tuning_are_read) {
  json row = first_row();
  row["task"] = "full_sft";
  BOOST_TEST((read(row).run.knobs.task == spec::TrainingTask::sft));
  for (const auto& [task, told] :
       {std::pair{"qlora", "task lora for 'qlora': that frozen weights have 4 bits is not priced"},
        {"DoRA", "task lora for 'DoRA': that lengths of rows are trained is not priced"}}) {
    row["task"] = task;
    const PublishedRow result = read(row);
    BOOST_TEST((result.run.knobs.task == spec::TrainingTask::lora));
    BOOST_TEST(is_told(result, told), json(result.assumed).dump());
  }
}

// Who sends tokens to experts is of no matter where there are none.
BOOST_AUTO_TEST_CASE(a_dispatcher_means_nothing_without_experts) {
  json row = tests::shipped_row("bridge-267");
  row["hardware"] = "MI300X";
  row["precision"] = "bf16";
  row["dispatcher"] = "hybridep";
  const PublishedRow result = read(row);
  BOOST_TEST(result.reason == "");
  BOOST_TEST(!is_told(result, "dispatcher"));
}

BOOST_AUTO_TEST_CASE(sizes_may_be_texts) {
  json row = first_row();
  row["vpp"] = "8";
  row["pp"] = "2";
  const PublishedRow result = read(row);
  BOOST_TEST(result.reason == "");
  BOOST_TEST(result.run.knobs.vpp == 8);
  row["vpp"] = "2+";
  BOOST_TEST(read(row).reason.starts_with("'vpp' is not a whole number"));
}

BOOST_AUTO_TEST_CASE(parts_in_graphs_may_stand_in_one_text) {
  const auto graphs_of = [](const json& stated) {
    json row = first_row();
    row["cuda_graphs"] = stated;
    return read(row).run.knobs.cuda_graphs.text();
  };
  const std::string parts = graphs_of({"attn", "moe_router"});
  BOOST_TEST(parts == "attn,moe_router");
  for (const char* text :
       {"attn,moe_router", "attn, MoE-router", "attn + moe_router", "attn,moe_router,"}) {
    BOOST_TEST(graphs_of(text) == parts, text);
  }
  BOOST_TEST(graphs_of("full iteration") == "full_iteration");
  json row = first_row();
  row["cuda_graphs"] = "attn, somehow";
  BOOST_TEST(is_told(read(row), "cuda_graphs without 'somehow': the part is not known"));
}

// The run is priced, and only what was measured of it is not known.
BOOST_AUTO_TEST_CASE(figures_that_are_no_numbers_are_told) {
  json row = first_row();
  row["memory_kind"] = "allocated";
  row["peak_memory_bytes"] = "65 GB";
  row["tokens_per_s_per_gpu"] = "12,000";
  row["step_time_s"] = {1, 2};
  row["tflops_per_gpu"] = -3;
  row["flops_accounting"] = 3;
  row["derived"] = {{"step_time_s", "2 s"}};
  const PublishedRow result = read(row);
  BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
  BOOST_TEST(!result.allocated_bytes.has_value());
  BOOST_TEST(!result.tokens_per_s.has_value());
  BOOST_TEST(!result.step_seconds.has_value());
  BOOST_TEST(!result.tflops.has_value());
  for (const char* told :
       {"peak_memory_bytes not read: '65 GB' is no number",
        "tokens_per_s_per_gpu not read: '12,000'", "step_time_s not read: '[1,2]'",
        "tflops_per_gpu not read: '-3'", "flops_accounting not read: '3' is no text",
        "derived.step_time_s not read: '2 s'"}) {
    BOOST_TEST(is_told(result, told), told);
  }
  row["step_time_s"] = 2.0;
  BOOST_TEST((read(row).step_seconds == 2.0));
  // What is asked for is no such figure.
  row["seq_length"] = "8k";
  BOOST_TEST(!read(row).reason.empty());
}

// Megatron's own is that of attention, of models without experts, too.
BOOST_AUTO_TEST_CASE(slices_of_experts_count_where_there_are_some) {
  json row = tests::shipped_row("simumax-037");
  const PublishedRow plain = read(row);
  row["etp"] = 2;
  const PublishedRow sliced = read(row);
  BOOST_TEST_REQUIRE(sliced.reason.empty(), sliced.reason);
  BOOST_TEST((sliced.run.knobs == plain.run.knobs));
  BOOST_TEST(is_told(sliced, "etp 1: the row says 2, and the model has no experts"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
