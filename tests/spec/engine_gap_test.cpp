// What of a planned run the engine does not run: a rule and a name for each.
#include "engine/spec/engine_gap.h"

#include <boost/test/unit_test.hpp>
#include <utility>

#include "tests/spec/family_samples.h"

namespace moetune::spec {
BOOST_AUTO_TEST_SUITE(engine_gap_rules)

namespace {

/// Of knobs that are set by name.
std::vector<EngineGap> gaps_with(const std::vector<std::pair<const char*, const char*>>& settings) {
  PlanKnobs knobs;
  for (const auto& [name, value] : settings) set_plan_knob(knobs, *find_plan_knob(name), value);
  return engine_gaps(knobs);
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_pass_that_is_only_planned_has_a_rule) {
  using Settings = std::vector<std::pair<const char*, const char*>>;
  const std::pair<Settings, const char*> passes[] = {
      {{{"fsdp", "megatron"}}, "FSDP"},
      {{{"fsdp", "torch"}}, "FSDP"},
      {{{"precision", "fp8-blockwise"}}, "fp8-blockwise products"},
      {{{"precision", "mxfp8"}}, "mxfp8 products"},
      {{{"precision", "fp16"}}, "fp16 products"},
      {{{"ep", "8"}, {"dispatcher", "hybridep"}}, "the dispatcher hybridep"},
      {{{"etp", "2"}, {"dispatcher", "allgather"}}, "the dispatcher allgather"},
      {{{"offload", "moe_act"}}, "offload of activations"},
      {{{"optimizer_offload_ratio", "0.5"}}, "offload of the optimizer"},
      {{{"overlap_moe_expert_parallel_comm", "true"}}, "overlap over micro-batches"},
      {{{"cp", "2"}, {"cp_comm_type", "a2a"}},
       "the exchange of heads among context-parallel ranks"},
      {{{"capacity_factor", "1.5"}}, "an expert capacity"},
      {{{"task", "lora"}}, "LoRA of rank 32"},
      {{{"optimizer", "muon"}}, "the optimizer muon"},
      {{{"optimizer_instances", "2"}}, "2 instances of the optimizer"},
      {{{"exp_avg", "fp8"}}, "the mean of gradients in fp8"},
      {{{"main_params", "bf16"}}, "main weights in bf16"},
      {{{"main_grads", "bf16"}}, "gradients in bf16"},
      {{{"params_dtype", "fp16"}}, "weights and activations in fp16"},
      {{{"tp", "2"}, {"sequence_parallel", "false"}},
       "tensor parallelism without sequence parallelism"},
      {{{"fused_attention", "false"}}, "attention with scores in memory"},
      {{{"fused_grouped_mlp", "true"}}, "experts' products and activation in one kernel"},
      {{{"moe_grouped_gemm", "false"}}, "experts whose products are not grouped"},
      {{{"delay_wgrad_compute", "true"}}, "delayed weight gradients"},
      {{{"fp8_param_gather", "true"}}, "weights that are gathered in FP8"},
      {{{"fp8_attention", "true"}}, "attention in FP8"},
      {{{"tp", "2"}, {"tp_comm_overlap", "true"}}, "overlap of tensor parallelism's communication"},
      {{{"recompute", "mla_up_proj"}}, "recomputation of mla_up_proj"},
      {{{"recompute", "full"}, {"recompute_method", "block"}, {"recompute_num_layers", "3"}},
       "recomputation by block of 3"},
      {{{"cuda_graphs", "moe"}}, "a graph of moe"},
  };
  for (const auto& [settings, what] : passes) {
    BOOST_TEST_CONTEXT(what) {
      const std::vector<EngineGap> gaps = gaps_with(settings);
      BOOST_TEST_REQUIRE(gaps.size() == 1U);
      BOOST_TEST(gaps.front().rule == "engine_runs_knob");
      BOOST_TEST(gaps.front().what == what);
    }
  }
}

BOOST_AUTO_TEST_CASE(what_the_engine_runs_has_no_rule) {
  BOOST_TEST(engine_gaps(PlanKnobs{}).empty());
  BOOST_TEST(gaps_with({{"ep", "8"}, {"dispatcher", "alltoall"}}).empty());
  // Nobody to send rows to.
  BOOST_TEST(gaps_with({{"dispatcher", "deepep"}}).empty());
  BOOST_TEST(gaps_with({{"cp", "2"}, {"cp_comm_type", "all_gather"}}).empty());
  BOOST_TEST(gaps_with({{"recompute", "core_attn,moe_act"}}).empty());
  BOOST_TEST(gaps_with({{"recompute", "full"}}).empty());
  BOOST_TEST(gaps_with({{"cuda_graphs", "attn,moe_router"}}).empty());
  BOOST_TEST(gaps_with({{"precision", "fp32"}}).empty());
  BOOST_TEST(gaps_with({{"exp_avg", "bf16"}, {"exp_avg_sq", "bf16"}}).empty());
  // Its own kernels: nothing of a trial says otherwise.
  BOOST_TEST(gaps_with({{"fused_activation", "false"}, {"cross_entropy", "te"}}).empty());
}

BOOST_AUTO_TEST_CASE(all_parts_of_a_model_are_told) {
  const ModelSpec model = model_from_json(
      family_samples::with(family_samples::deepseek_v3(), {{"num_nextn_predict_layers", 1}}),
      "config.json");
  std::vector<std::string> parts;
  for (const EngineGap& gap : engine_gaps(model)) {
    BOOST_TEST(gap.rule == "engine_runs_model");
    parts.push_back(gap.what);
  }
  const std::vector<std::string> expected = {
      "multi-head latent attention", "multi-token prediction", "a bias on the router's scores"};
  BOOST_TEST(parts == expected, boost::test_tools::per_element());
  BOOST_TEST(engine_gap(model) ==
             "multi-head latent attention is planned, not run, by the engine yet");
  BOOST_TEST(engine_gaps(model_from_json(samples::mixtral(), "config.json")).empty());
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec
