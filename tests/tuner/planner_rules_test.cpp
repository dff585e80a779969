// Rules of one engine: what Megatron-Core refuses and others run, and the other way round.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <initializer_list>
#include <random>
#include <string_view>
#include <vector>

#include "tests/tuner/planner_samples.h"
#include "tuner/planner/memory_profile.h"
#include "tuner/planner/rules.h"
#include "tuner/planner/step_time.h"

namespace moetune::tuner::planner {
namespace {

using samples::dense_model;
using samples::machine;
using samples::moe_model;
using samples::run_of;

bool breaks(const PlanRun& run, std::string_view name) {
  const std::vector<const PlanRule*> broken = broken_rules(run);
  return std::ranges::any_of(broken, [&](const PlanRule* rule) { return rule->name == name; });
}

BOOST_AUTO_TEST_SUITE(rules_of_engines)

// Primus has DeepEP of its own; torchtitan has no capacity.
BOOST_AUTO_TEST_CASE(deepep_takes_no_padding) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 16;
  run.knobs.ep = 4;
  run.knobs.dispatcher = spec::Dispatcher::deepep;
  run.knobs.capacity_factor = 1;
  BOOST_TEST(broken_rules(run).empty());
  run.knobs.pad_to_capacity = true;
  BOOST_TEST(breaks(run, "deepep_without_padding"));
  PlanRun of_primus = run;
  of_primus.takes_padded_deepep = true;
  BOOST_TEST(broken_rules(of_primus).empty());
  PlanRun of_titan = run;
  of_titan.is_of_megatron = false;
  BOOST_TEST(broken_rules(of_titan).empty());
  run.knobs.dispatcher = spec::Dispatcher::hybridep;
  BOOST_TEST(broken_rules(run).empty());
}

BOOST_AUTO_TEST_CASE(own_modules_take_whole_sequences) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  PlanRun run = run_of(model, hardware);
  run.knobs.cp = 2;
  run.knobs.dp = 8;
  run.states_own_modules = true;
  run.knobs.fused_attention = false;
  BOOST_TEST(breaks(run, "own_modules_without_cp"));
  // Attention without scores is not theirs.
  run.knobs.fused_attention = true;
  BOOST_TEST(broken_rules(run).empty());
  run.knobs.fused_attention = false;
  run.states_own_modules = false;
  BOOST_TEST(broken_rules(run).empty());
}

// Its four groups are not copied for eight ranks.
BOOST_AUTO_TEST_CASE(own_modules_copy_no_groups) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.knobs.tp = 8;
  run.knobs.fused_attention = false;
  BOOST_TEST(broken_rules(run).empty());
  run.states_own_modules = true;
  BOOST_TEST(breaks(run, "own_modules_divide_groups"));
  run.knobs.tp = 4;
  run.knobs.dp = 2;
  BOOST_TEST(broken_rules(run).empty());
}

BOOST_AUTO_TEST_CASE(own_modules_delay_nothing) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(1);
  PlanRun run = run_of(model, hardware);
  run.knobs.fused_attention = false;
  run.knobs.offload = {spec::Offload::core_attn};
  BOOST_TEST(broken_rules(run).empty());
  run.states_own_modules = true;
  BOOST_TEST(breaks(run, "own_modules_delay_nothing"));
  run.knobs.offload = {};
  BOOST_TEST(broken_rules(run).empty());
  run.knobs.delay_wgrad_compute = true;
  BOOST_TEST(breaks(run, "own_modules_delay_nothing"));
}

// combined_1f1b.py and mcore_fsdp_adapter.py of Megatron-Core d98e8a64.
BOOST_AUTO_TEST_CASE(overlap_beside_fsdp_has_neither_stages_nor_graphs_of_layers) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = run.knobs.ep = 4;
  run.knobs.overlap_moe_expert_parallel_comm = true;
  run.knobs.fsdp = spec::Fsdp::megatron;
  BOOST_TEST(!breaks(run, "overlap_beside_fsdp"));
  run.knobs.cuda_graphs = {spec::PlanGraph::full_iteration};
  BOOST_TEST(!breaks(run, "overlap_beside_fsdp"));
  run.knobs.cuda_graphs = {spec::PlanGraph::attn};
  BOOST_TEST(breaks(run, "overlap_beside_fsdp"));
  run.knobs.fsdp = spec::Fsdp::none;
  BOOST_TEST(!breaks(run, "overlap_beside_fsdp"));
  run.knobs.cuda_graphs = {};
  run.knobs.pp = run.knobs.vpp = 2;
  BOOST_TEST(!breaks(run, "overlap_beside_fsdp"));
  run.knobs.fsdp = spec::Fsdp::megatron;
  BOOST_TEST(breaks(run, "overlap_beside_fsdp"));
}

// What is recomputed in parts leaves the rest to go to the host's memory.
BOOST_AUTO_TEST_CASE(what_is_within_recomputation_is_not_offloaded) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(1);
  PlanRun run = run_of(model, hardware);
  run.knobs.offload = {spec::Offload::attn_norm, spec::Offload::core_attn, spec::Offload::mlp_norm};
  run.knobs.recompute = {spec::PlanRecompute::moe};
  BOOST_TEST(!breaks(run, "offload_or_recompute"));
  run.knobs.recompute = {spec::PlanRecompute::full};
  BOOST_TEST(breaks(run, "offload_or_recompute"));
  run.knobs.offload = {spec::Offload::moe_act};
  run.knobs.recompute = {spec::PlanRecompute::moe_act, spec::PlanRecompute::layernorm};
  BOOST_TEST(!breaks(run, "offload_or_recompute"));
  run.knobs.recompute = {spec::PlanRecompute::moe};
  BOOST_TEST(breaks(run, "offload_or_recompute"));
}

// Since core 0.17 they have no grouped product, whatever --moe-grouped-gemm says.
BOOST_AUTO_TEST_CASE(own_modules_multiply_experts_apart) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(1);
  PlanRun run = run_of(model, hardware);
  run.knobs.fused_attention = false;
  const StepTime grouped = predict_step(run, {});
  PlanRun apart = run;
  apart.knobs.moe_grouped_gemm = false;
  run.states_own_modules = true;
  const StepTime own = predict_step(run, {});
  BOOST_TEST(own.part(TimePart::experts) > grouped.part(TimePart::experts));
  BOOST_TEST(own.seconds == predict_step(apart, {}).seconds);
  BOOST_TEST(predict_memory(run).peak_bytes() == predict_memory(apart).peak_bytes());
}

// Nor do they know a recipe of 8 bits, which is Transformer Engine's.
BOOST_AUTO_TEST_CASE(own_modules_multiply_in_16_bits) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(1);
  PlanRun wide = run_of(model, hardware);
  wide.knobs.fused_attention = false;
  PlanRun narrow = wide;
  narrow.knobs.precision = spec::PrecisionRecipe::fp8_delayed;
  BOOST_TEST(predict_step(narrow, {}).seconds != predict_step(wide, {}).seconds);
  wide.states_own_modules = narrow.states_own_modules = true;
  BOOST_TEST(predict_step(narrow, {}).seconds == predict_step(wide, {}).seconds);
  BOOST_TEST(predict_memory(narrow).peak_bytes() == predict_memory(wide).peak_bytes());
}

// torch's 1F1B takes no fewer micro-batches than it has stages; Megatron-Core's does.
BOOST_AUTO_TEST_CASE(stages_of_torch_are_filled) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(4);
  PlanRun run = run_of(model, hardware);
  run.knobs.pp = 4;
  run.global_batch_size = 3;
  BOOST_TEST(broken_rules(run).empty());
  run.is_of_megatron = false;
  BOOST_TEST(breaks(run, "schedule_fills_stages"));
  run.has_usual_schedule = false;  // GPipe, or a file's
  BOOST_TEST(broken_rules(run).empty());
  run.has_usual_schedule = true;
  run.knobs.vpp = 2;  // Interleaved1F1B: one round of 3
  BOOST_TEST(broken_rules(run).empty());
  run.fills_stages = true;  // DualPipeV
  BOOST_TEST(breaks(run, "schedule_fills_stages"));
  run.global_batch_size = 8;
  BOOST_TEST(broken_rules(run).empty());
}

// Rules hold for what goes through the pipeline before it drains, and so does what it holds.
BOOST_AUTO_TEST_CASE(passes_are_held_to_rules_each_by_itself) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(4);
  PlanRun run = run_of(model, hardware);
  run.is_of_megatron = false;
  run.knobs.pp = 4;
  run.global_batch_size = 36;
  run.pass_sequences = 3;
  BOOST_TEST(breaks(run, "schedule_fills_stages"));
  run.pass_sequences = 9;
  BOOST_TEST(broken_rules(run).empty());
  run.knobs.vpp = 2;  // two rounds of 4, and one left
  BOOST_TEST(breaks(run, "vpp_divides_micro_batches"));
  run.pass_sequences = 12;
  BOOST_TEST(broken_rules(run).empty());
  run.pass_sequences = 10;
  BOOST_TEST(breaks(run, "pass_divides"));
  run.knobs.vpp = 1;
  run.pass_sequences = 9;
  run.knobs.micro_batch_size = 2;
  BOOST_TEST(breaks(run, "pass_divides"));
  run.knobs.pp = 1;  // no pipeline, no passes
  run.knobs.dp = 4;
  run.global_batch_size = 8;
  BOOST_TEST(broken_rules(run).empty());
  run.knobs.pp = 4;
  run.knobs.dp = 1;
  run.global_batch_size = 36;
  run.knobs.micro_batch_size = 3;
  run.has_usual_schedule = false;
  run.holds_all_micro_batches = true;
  BOOST_TEST(micro_batches_in_flight(run, 0) == std::vector<int64_t>{3},
             boost::test_tools::per_element());
  run.pass_sequences = 0;
  BOOST_TEST(micro_batches_in_flight(run, 0) == std::vector<int64_t>{12},
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(multi_token_prediction_is_recomputed_by_itself) {
  spec::ModelSpec model = moe_model();
  model.mtp.depth = 1;
  model.mtp.layers = {model.kind_of(0)};
  const spec::HardwareSpec hardware = machine(16);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 16;
  run.knobs.recompute = {spec::PlanRecompute::full};
  BOOST_TEST(broken_rules(run).empty());
  run.knobs.recompute_num_layers = 4;
  BOOST_TEST(breaks(run, "mtp_recompute_each_layer"));
  PlanRun other = run;
  other.knobs.recompute_method = spec::RecomputeMethod::block;  // none of its layers
  BOOST_TEST(broken_rules(other).empty());
  other = run;
  other.knobs.recompute = {spec::PlanRecompute::layernorm};
  BOOST_TEST(broken_rules(other).empty());
  other = run;
  other.is_of_megatron = false;
  BOOST_TEST(broken_rules(other).empty());
  const spec::ModelSpec without = moe_model();
  other = run;
  other.model = &without;
  BOOST_TEST(broken_rules(other).empty());
}

// A search asks the others once a layout, and these once for all layouts that are alike.
BOOST_AUTO_TEST_CASE(rules_look_at_sizes_or_at_choices) {
  using spec::PlanGraph;
  using spec::PlanRecompute;
  const spec::HardwareSpec hardware = machine(64);
  std::mt19937 generator(11);
  const auto one_of = [&]<typename T>(std::initializer_list<T> values) {
    return values.begin()[generator() % values.size()];
  };
  const auto flip = [&] { return generator() % 2 == 0; };
  const auto choose = [&](spec::PlanKnobs& k) {
    k.recompute = one_of({spec::PlanRecomputeSet{},
                          {PlanRecompute::full},
                          {PlanRecompute::moe},
                          {PlanRecompute::layernorm, PlanRecompute::moe_act},
                          {PlanRecompute::mla_up_proj}});
    k.recompute_method = one_of({spec::RecomputeMethod::uniform, spec::RecomputeMethod::block});
    k.recompute_num_layers = one_of({1, 2});
    k.cross_entropy = one_of({spec::CrossEntropy::native, spec::CrossEntropy::chunked});
    k.fsdp = one_of({spec::Fsdp::none, spec::Fsdp::megatron, spec::Fsdp::torch});
    k.dispatcher = one_of({spec::Dispatcher::alltoall, spec::Dispatcher::allgather,
                           spec::Dispatcher::deepep, spec::Dispatcher::hybridep});
    k.overlap_moe_expert_parallel_comm = flip();
    k.cuda_graphs = one_of({spec::PlanGraphSet{},
                            {PlanGraph::full_iteration},
                            {PlanGraph::moe},
                            {PlanGraph::attn, PlanGraph::moe_router, PlanGraph::moe_preprocess}});
    k.cuda_device_max_connections = one_of({1, 8});
    k.distributed_optimizer = flip();
    k.overlap_param_gather = flip();
    k.delay_wgrad_compute = flip();
    k.gradient_accumulation_fusion = flip();
  };
  const auto broken_of = [](const PlanRun& run, bool is_of_choices) {
    std::vector<const PlanRule*> broken = broken_rules(run);
    std::erase_if(broken,
                  [&](const PlanRule* rule) { return rule->is_of_choices != is_of_choices; });
    return broken;
  };
  for (int i = 0; i < 3000; ++i) {
    spec::ModelSpec model = flip() ? moe_model() : dense_model();
    model.mtp.depth = one_of({0, 1, 2});
    model.has_attention_bias = flip();
    PlanRun run = run_of(model, hardware);
    run.is_of_megatron = flip();
    run.states_own_modules = flip();
    run.knobs.precision = one_of({spec::PrecisionRecipe::bf16, spec::PrecisionRecipe::fp8_delayed,
                                  spec::PrecisionRecipe::nvfp4});
    run.knobs.optimizer = one_of({spec::OptimizerKind::adam, spec::OptimizerKind::muon});
    run.knobs.optimizer_offload_ratio = one_of({0.0F, 1.0F});
    run.knobs.offload =
        one_of({spec::OffloadSet{}, {spec::Offload::core_attn}, {spec::Offload::moe_act}});
    run.knobs.fp8_param_gather = flip();
    run.knobs.capacity_factor = one_of({0.0F, 1.0F});
    run.knobs.pad_to_capacity = flip();
    run.knobs.overlap_grad_reduce = flip();
    run.knobs.fused_attention = flip();
    run.knobs.precision_aware_optimizer = flip();
    choose(run.knobs);
    PlanRun other = run;
    for (const spec::LayoutSize& size : spec::layout_sizes()) {
      const bool is_above_one = flip();
      run.knobs.*size.plan_member = is_above_one ? one_of({2, 3, 4, 8}) : 1;
      other.knobs.*size.plan_member = is_above_one ? one_of({2, 3, 4, 8}) : 1;
    }
    BOOST_TEST((broken_of(run, true) == broken_of(other, true)));
    BOOST_TEST(holds_rules_of_choices(run) == broken_of(run, true).empty());
    PlanRun chosen = run;
    choose(chosen.knobs);
    BOOST_TEST((broken_of(run, false) == broken_of(chosen, false)));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::tuner::planner
