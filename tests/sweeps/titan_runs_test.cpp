// Runs of torchtitan 0.2.2 (torch 2.11) that were measured on one H100 80 GB, against what is
// estimated for their commands.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {

namespace data = boost::unit_test::data;
using nlohmann::json;
using tests::Answer;
using tests::Cli;

BOOST_AUTO_TEST_SUITE(titan_runs)

namespace {

/// Llama 3 8B with eight layers.
const json kDense = {{"architectures", json::array({"LlamaForCausalLM"})},
                     {"model_type", "llama"},
                     {"hidden_size", 4096},
                     {"intermediate_size", 14336},
                     {"num_hidden_layers", 8},
                     {"num_attention_heads", 32},
                     {"num_key_value_heads", 8},
                     {"head_dim", 128},
                     {"vocab_size", 128256},
                     {"max_position_embeddings", 8192},
                     {"rms_norm_eps", 1e-05},
                     {"rope_theta", 500000.0},
                     {"hidden_act", "silu"},
                     {"attention_bias", false},
                     {"mlp_bias", false},
                     {"tie_word_embeddings", false},
                     {"torch_dtype", "bfloat16"}};

/// Qwen3 30B-A3B with four layers.
const json kExperts = {{"architectures", json::array({"Qwen3MoeForCausalLM"})},
                       {"model_type", "qwen3_moe"},
                       {"hidden_size", 2048},
                       {"intermediate_size", 6144},
                       {"moe_intermediate_size", 768},
                       {"num_hidden_layers", 4},
                       {"num_attention_heads", 32},
                       {"num_key_value_heads", 4},
                       {"head_dim", 128},
                       {"num_experts", 128},
                       {"num_experts_per_tok", 8},
                       {"norm_topk_prob", true},
                       {"decoder_sparse_step", 1},
                       {"mlp_only_layers", json::array()},
                       {"vocab_size", 151936},
                       {"max_position_embeddings", 262144},
                       {"rms_norm_eps", 1e-06},
                       {"rope_theta", 1000000.0},
                       {"hidden_act", "silu"},
                       {"attention_bias", false},
                       {"tie_word_embeddings", false},
                       {"router_aux_loss_coef", 0.0},
                       {"torch_dtype", "bfloat16"}};

struct MeasuredRun {
  const json* model;
  const char* settings;
  double reserved_gib;  ///< "memory" of the log: torch's largest reserved
  double step_ms;       ///< of the last steps that were not profiled
  double priced_gib;    ///< allocated, as docs/planner.md has it
  double priced_ms;
};

std::ostream& operator<<(std::ostream& out, const MeasuredRun& run) { return out << run.settings; }

const MeasuredRun kRuns[] = {
    {&kDense,
     "--training.seq_len 8192 --training.local_batch_size 1 --activation_checkpoint.mode none",
     62.41, 298, 60.25, 296.0},
    {&kDense,
     "--training.seq_len 8192 --training.local_batch_size 1 --activation_checkpoint.mode selective "
     "--activation_checkpoint.selective_ac_option op",
     55.50, 323, 49.92, 323.9},
    {&kDense,
     "--training.seq_len 8192 --training.local_batch_size 1 --activation_checkpoint.mode full",
     53.48, 365, 46.54, 360.4},
    {&kExperts,
     "--training.seq_len 4096 --training.local_batch_size 2 --activation_checkpoint.mode none",
     65.49, 209, 61.22, 182.4},
    {&kExperts,
     "--training.seq_len 4096 --training.local_batch_size 2 --activation_checkpoint.mode selective "
     "--activation_checkpoint.selective_ac_option op",
     53.62, 243, 50.66, 214.2},
    {&kExperts,
     "--training.seq_len 4096 --training.local_batch_size 4 --activation_checkpoint.mode full",
     76.59, 405, 64.12, 359.1},
    // A sweep of the same model: four, two and one micro-batches a step.
    {&kExperts,
     "--training.seq_len 4096 --training.local_batch_size 1 --training.global_batch_size 4 "
     "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op",
     56.28, 617, 54.61, 485.0},
    {&kExperts,
     "--training.seq_len 4096 --training.local_batch_size 2 --training.global_batch_size 4 "
     "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op",
     66.38, 452, 62.00, 392.4},
    {&kExperts,
     "--training.seq_len 4096 --training.local_batch_size 4 --training.global_batch_size 4 "
     "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op",
     77.00, 399, 65.19, 348.2},
};

struct Estimates : Cli {
  json of(const json& model, const std::string& settings, const std::string& gpus) {
    tests::write_text(folder.file("config.json"), model.dump());
    const Answer answer =
        run({"estimate", "--run",
             "torchrun --nproc_per_node " + gpus + " -m torchtitan.train " + settings, "--dialect",
             "torchtitan", "--model", folder.file("config.json"), "--hardware", "h100-80g",
             "--gpus", gpus, "--format", "json"});
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return json::parse(answer.out)["rows"][0];
  }
};

}  // namespace

BOOST_DATA_TEST_CASE_F(Estimates, what_was_measured_is_within_what_is_estimated, data::make(kRuns),
                       measured) {
  const json row = of(*measured.model, measured.settings, "1");
  constexpr double kGiB = 1 << 30;
  const double reserved = measured.reserved_gib * kGiB;
  // More is reserved than allocated, by at most the upper end.
  BOOST_TEST(row["peak_allocated_bytes"].get<double>() < reserved);
  BOOST_TEST(row["peak_allocated_bytes"].get<double>() > 0.8 * reserved);
  BOOST_TEST(row["peak_allocated_bytes_high"].get<double>() > reserved);
  // What ran is not impossible.
  BOOST_TEST(row["verdict"] != "oom");
  BOOST_TEST(row["left_bytes"].get<double>() > 0);
  BOOST_TEST((row["verdict"] == "fits") == (row["load_that_fits"].get<double>() >= 1));
  const auto as_documented = boost::test_tools::tolerance(0.01);
  BOOST_TEST(row["peak_allocated_bytes"].get<double>() == measured.priced_gib * kGiB,
             as_documented);
  BOOST_TEST(row["step_time_ns"].get<double>() == 1e6 * measured.priced_ms, as_documented);
  const double ratio = row["step_time_ns"].get<double>() / 1e6 / measured.step_ms;
  BOOST_TEST(std::abs(std::log(ratio)) < 0.3, "step time over measured: " << ratio);
}

// Beside tensor parallelism alone nothing is mixed: weights, products and scores have 32 bits.
BOOST_FIXTURE_TEST_CASE(tensor_parallelism_without_fsdp_is_in_32_bits, Estimates) {
  const std::string settings =
      "--training.seq_len 8192 --training.local_batch_size 1 --training.global_batch_size 4 "
      "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op "
      "--parallelism.tensor_parallel_degree ";
  const json alone = of(kDense, settings + "4", "4");
  const json beside_fsdp = of(kDense, settings + "4", "8");
  BOOST_TEST(beside_fsdp["knobs"]["fsdp"] == "torch");
  BOOST_TEST(alone["notes"].dump().find("in 32 bits") != std::string::npos, alone["notes"].dump());
  BOOST_TEST(beside_fsdp["notes"].dump().find("in 32 bits") == std::string::npos);
  // A rank of four has the weights that two of eight share.
  BOOST_TEST(alone["memory_parts_bytes"]["weights"].get<double>() ==
                 2 * beside_fsdp["memory_parts_bytes"]["weights"].get<double>(),
             boost::test_tools::tolerance(1e-9));
  BOOST_TEST(alone["memory_parts_bytes"]["activations"].get<double>() >
             1.5 * beside_fsdp["memory_parts_bytes"]["activations"].get<double>());
  BOOST_TEST(alone["step_parts_ns"]["compute_products"].get<double>() >
             8 * beside_fsdp["step_parts_ns"]["compute_products"].get<double>());
}

// Experts on several ranks without shards beside them: few models run so, and those in 32 bits.
BOOST_FIXTURE_TEST_CASE(experts_without_shards_are_told, Estimates) {
  const std::string settings =
      "--training.seq_len 4096 --training.local_batch_size 1 --activation_checkpoint.mode full "
      "--parallelism.tensor_parallel_degree 4 --parallelism.expert_parallel_degree 4";
  for (const char* note : {"have no shards beside them", "in 32 bits"}) {
    const std::string alone = of(kExperts, settings, "4")["notes"].dump();
    BOOST_TEST(alone.find(note) != std::string::npos, alone);
    const std::string sharded = of(kExperts, settings, "8")["notes"].dump();
    BOOST_TEST(sharded.find(note) == std::string::npos, sharded);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
