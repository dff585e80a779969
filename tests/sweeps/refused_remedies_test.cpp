// Remedies that a rule of the framework or the device forbids: named with the rule, whether the
// sizes of the model are known or not.
#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <optional>

#include "engine/spec/hardware_names.h"
#include "sweeps/planning/machines.h"
#include "sweeps/runs/remedies.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(refused_remedies)

namespace {

namespace data = boost::unit_test::data;
namespace dialects = spec::dialects;

constexpr const char* kSizes =
    " --num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144 --num-attention-heads 32 "
    "--num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768 --swiglu "
    "--disable-bias-linear --untie-embeddings-and-output-weights";

RunToMend run_said(const std::string& flags) {
  RunToMend run;
  run.config = dialects::import_run(
      "pretrain_gpt.py --bf16 --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 "
      "--expert-model-parallel-size 8 --moe-token-dispatcher-type alltoall " +
          flags,
      dialects::Dialect::megatron_lm, {.world_size = 8});
  return run;
}

std::optional<Remedy> remedy_against(const char* label, const char* cause, const RunToMend& run,
                                     std::string_view rule) {
  const FoundWall wall = {base::wall_from_name(label).value(), cause, {{label, 0.5}}};
  const std::vector<Remedy> found = remedies_of(wall, run);
  const auto at = std::ranges::find(found, rule, &Remedy::rule);
  return at == found.end() ? std::nullopt : std::optional(*at);
}

struct Row {
  const char* flags;
  const char* label;
  const char* cause;
  const char* rule;
  const char* refused;  ///< the rule; empty: it is possible
};
std::ostream& operator<<(std::ostream& out, const Row& row) {
  return out << row.rule << " with " << row.flags;
}

const Row kRows[] = {
    {"--moe-grouped-gemm", "memory", "oom", "more_recomputation", ""},
    {"", "memory", "oom", "more_recomputation", "moe_act_needs_grouped_products"},
    {"", "communication", "transfer", "overlap_of_experts", ""},
    {"--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
     "communication", "transfer", "overlap_of_experts", "overlap_or_recompute"},
    {"--moe-shared-expert-overlap", "communication", "transfer", "overlap_of_experts",
     "overlap_beside_shared_experts"},
    {"--recompute-granularity selective --recompute-modules core_attn", "host", "launch",
     "graphs_of_static_parts", "graph_without_dropout"},
    {"--recompute-granularity selective --recompute-modules core_attn --attention-dropout 0",
     "host", "launch", "graphs_of_static_parts", ""},
    {"--moe-router-load-balancing-type aux_loss", "imbalance", "experts", "capacity_of_experts",
     ""},
    {"--moe-router-load-balancing-type sinkhorn", "imbalance", "experts", "capacity_of_experts",
     "capacity_beside_balance"},
    {"--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", "host",
     "launch", "graphs_of_static_parts", "graphs_or_recompute"},
    {"", "host", "launch", "graphs_of_static_parts", ""},
    {"--moe-expert-capacity-factor 1.5", "host", "launch", "graphs_of_static_parts",
     "graph_of_counted_rows"},
    {"--moe-expert-capacity-factor 1.5 --moe-pad-expert-input-to-capacity", "host", "launch",
     "graphs_of_static_parts", ""},
};

}  // namespace

BOOST_DATA_TEST_CASE(what_knobs_forbid_needs_no_sizes, data::make(kRows), row) {
  for (const char* sizes : {"", kSizes}) {
    const auto remedy =
        remedy_against(row.label, row.cause, run_said(std::string(row.flags) + sizes), row.rule);
    BOOST_TEST_REQUIRE(remedy.has_value(), sizes);
    BOOST_TEST(remedy->refused.substr(0, remedy->refused.find(':')) == row.refused,
               remedy->refused);
  }
}

// The overlap asks for it, and a rank alone has none.
BOOST_AUTO_TEST_CASE(overlap_of_tensor_parallelism_has_what_it_needs) {
  const auto overlap =
      remedy_against("communication", "transfer",
                     run_said("--tensor-model-parallel-size 2 --expert-tensor-parallel-size 1"),
                     "overlap_of_tensor_parallelism");
  BOOST_TEST_REQUIRE(overlap.has_value());
  BOOST_TEST(
      overlap->flags == (std::vector<std::string>{"--sequence-parallel", "--tp-comm-overlap"}),
      boost::test_tools::per_element());
  RunToMend run = run_said(
      "--tensor-model-parallel-size 2 --expert-tensor-parallel-size 1 "
      "--sequence-parallel --tp-comm-overlap");
  const auto alone = remedy_against("communication", "transfer", run, "less_tensor_parallelism");
  BOOST_TEST_REQUIRE(alone.has_value());
  const std::string gone = "without --tp-comm-overlap";
  BOOST_TEST((std::ranges::find(alone->flags, gone) != alone->flags.end()));
  run.config->knobs.sequence_parallel = false;
  const spec::PlanKnobs knobs = run.config->knobs;
  run.config->knobs.tp_comm_overlap = false;
  BOOST_TEST(rule_broken_by(run, knobs).find("tp_overlap_needs_sequence_parallel") == 0U);
}

BOOST_AUTO_TEST_CASE(no_device_is_told_of_products_that_it_has_not) {
  const auto refused = [](RunToMend run) {
    const auto remedy = remedy_against("compute", "FLOPs", run, "products_in_fp8");
    BOOST_TEST_REQUIRE(remedy.has_value());
    return remedy->refused;
  };
  const auto has_condition = [](const RunToMend& run) {
    const auto remedy = remedy_against("compute", "FLOPs", run, "products_in_fp8");
    return remedy && remedy->why.find("Nothing names the device") != std::string::npos;
  };
  BOOST_TEST(refused(RunToMend{}) == "");
  BOOST_TEST(has_condition(RunToMend{}));
  RunToMend named;
  named.device_name = "NVIDIA H100 80GB HBM3";
  BOOST_TEST(refused(named) == "");
  BOOST_TEST(!has_condition(named));
  RunToMend on_h100;
  on_h100.hardware = machine_of("h100-80g", 1);
  BOOST_TEST(!has_condition(on_h100));
  named.device_name = "Tesla V100-SXM2-32GB";
  BOOST_TEST(refused(named) == "precision_of_machine: Tesla V100-SXM2-32GB has no fp8-blockwise");
  RunToMend said;
  said.hardware = machine_of("a100-80g", 1);
  BOOST_TEST(refused(said).starts_with("precision_of_machine"), refused(said));
  for (const char* older : {"NVIDIA A100-SXM4-80GB", "AMD Instinct MI250X", "Tesla T4",
                            "NVIDIA GeForce RTX 3090", "NVIDIA A10G"}) {
    BOOST_TEST(spec::lacks_eight_bit_floats(older), older);
  }
  for (const char* newer : {"NVIDIA L40S", "NVIDIA GeForce RTX 4090", "AMD Instinct MI300X",
                            "NVIDIA GB200", "NVIDIA H200", ""}) {
    BOOST_TEST(!spec::lacks_eight_bit_floats(newer), newer);
  }
}

// Whether a hardware file or only the traces say whose device it is.
BOOST_AUTO_TEST_CASE(a_device_by_name_has_its_vendor_and_generation) {
  const auto refused = [](const std::string& device) {
    RunToMend run = run_said("");
    run.device_name = device;
    const auto remedy = remedy_against("communication", "transfer", run, "hybrid_dispatcher");
    BOOST_TEST_REQUIRE(remedy.has_value(), device);
    return remedy->refused;
  };
  for (const char* of_amd : {"AMD Instinct MI300X", "AMD Instinct MI355X", "MI300X OAM"}) {
    BOOST_TEST(refused(of_amd).starts_with("dispatcher_of_machine"), of_amd);
  }
  BOOST_TEST(refused("NVIDIA H100 80GB HBM3") == "");
  BOOST_TEST(refused("") == "");
  for (const char* older : {"NVIDIA H100 80GB HBM3", "NVIDIA H200", "AMD Instinct MI300X",
                            "NVIDIA L40S", "NVIDIA A100-SXM4-80GB"}) {
    BOOST_TEST(spec::lacks_four_bit_floats(older), older);
  }
  for (const char* newer : {"NVIDIA B200", "NVIDIA GB300", "AMD Instinct MI355X", ""}) {
    BOOST_TEST(!spec::lacks_four_bit_floats(newer), newer);
  }
}

// Megatron-Core schedules the overlap in 16 bits only.
BOOST_AUTO_TEST_CASE(experts_in_32_bits_are_not_overlapped) {
  RunToMend run = run_said("");
  run.config->knobs.precision = spec::PrecisionRecipe::fp32;
  const auto remedy = remedy_against("communication", "transfer", run, "overlap_of_experts");
  BOOST_TEST_REQUIRE(remedy.has_value());
  BOOST_TEST(remedy->refused.starts_with("overlap_needs_16_bits"), remedy->refused);
}

// In one queue of the device, the exchange waits for what was launched before it.
BOOST_AUTO_TEST_CASE(an_overlapped_exchange_has_several_queues) {
  const auto flags = [](const std::string& variable) {
    RunToMend run;
    run.config = dialects::import_run(
        variable +
            "pretrain_gpt.py --bf16 --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 "
            "--expert-model-parallel-size 8 --moe-token-dispatcher-type alltoall",
        dialects::Dialect::megatron_lm, {.world_size = 8});
    const auto remedy = remedy_against("communication", "transfer", run, "overlap_of_experts");
    BOOST_TEST_REQUIRE(remedy.has_value());
    return remedy->flags;
  };
  const std::string kQueues = "CUDA_DEVICE_MAX_CONNECTIONS=32";
  const auto has_queues = [&](const std::vector<std::string>& all) {
    return std::ranges::find(all, kQueues) != all.end();
  };
  BOOST_TEST(has_queues(flags("CUDA_DEVICE_MAX_CONNECTIONS=1 ")));
  BOOST_TEST(!has_queues(flags("CUDA_DEVICE_MAX_CONNECTIONS=16 ")));
  BOOST_TEST(!has_queues(flags("")));
}

// Nobody is told of a dispatcher that the framework has no word for.
BOOST_AUTO_TEST_CASE(dispatchers_are_those_of_the_framework) {
  RunToMend primus;
  primus.config = dialects::import_run(
      "modules:\n  pre_trainer:\n    framework: megatron\n    overrides:\n"
      "      micro_batch_size: 1\n      expert_model_parallel_size: 8\n"
      "      moe_token_dispatcher_type: alltoall\n",
      dialects::Dialect::primus, {.world_size = 8});
  BOOST_TEST(!remedy_against("communication", "transfer", primus, "hybrid_dispatcher"));
  RunToMend titan;
  titan.config = dialects::import_run(
      "[training]\nlocal_batch_size = 1\nseq_len = 4096\n[parallelism]\n"
      "expert_parallel_degree = 8\n",
      dialects::Dialect::torchtitan, {.world_size = 8});
  BOOST_TEST(!remedy_against("communication", "transfer", titan, "hybrid_dispatcher"));
  const auto deepep = remedy_against("communication", "transfer", titan, "deepep_dispatcher");
  BOOST_TEST_REQUIRE(deepep.has_value());
  BOOST_TEST(deepep->flags ==
                 std::vector<std::string>{"parallelism.expert_parallel_comm_backend = \"deepep\""},
             boost::test_tools::per_element());
}

// Twice the rows are twice the bytes of a copy.
BOOST_AUTO_TEST_CASE(larger_products_save_nothing_of_copies) {
  using profiler::KernelClass;
  FoundWall wall = {base::Wall::compute, "", {{"compute", 0.9}}};
  wall.kernels.run[static_cast<size_t>(KernelClass::gemm)] = 0.06;
  wall.kernels.run[static_cast<size_t>(KernelClass::copy_kernel)] = 0.84;
  const std::vector<Remedy> found = remedies_of(wall, run_said(""));
  const auto at = std::ranges::find(found, "larger_products", &Remedy::rule);
  BOOST_TEST_REQUIRE((at != found.end()));
  BOOST_TEST(std::abs(at->ceiling_ratio - 0.03) < 1e-9);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
