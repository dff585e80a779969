// Words of rows that other people write, and ways to count FLOPs: what they mean, and that what is
// not understood is told.
#include "sweeps/planning/row_words.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "sweeps/planning/flops_accounting.h"
#include "sweeps/planning/named_files.h"
#include "sweeps/planning/published_rows.h"

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

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
