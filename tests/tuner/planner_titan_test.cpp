// Torchtitan without FSDP: 32-bit weights under autocast, or 32 bits throughout; and what its steps
// take.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <string_view>

#include "tests/tuner/planner_samples.h"
#include "tuner/planner/memory_profile.h"
#include "tuner/planner/rules.h"
#include "tuner/planner/search.h"
#include "tuner/planner/step_time.h"
#include "tuner/planner/titan_memory.h"
#include "tuner/planner/titan_time.h"

namespace moetune::tuner::planner {

using samples::dense_model;
using samples::machine;
using samples::moe_model;
using samples::run_of;
using spec::PlanRecompute;

BOOST_AUTO_TEST_SUITE(planner_titan)

namespace {

constexpr double kTokens = 4096;
constexpr double kLayers = 8;
constexpr double kHidden = 1024;
/// Matrices of a layer: 1024 x (16 + 4 + 4 + 16) x 64 + 3 x 1024 x 2816.
constexpr double kMatrices = 2621440 + 8650752;

const auto kExactly = boost::test_tools::tolerance(1e-12);

PlanRun titan_run(const spec::ModelSpec& model, const spec::HardwareSpec& hardware) {
  PlanRun run = run_of(model, hardware);
  run.is_of_megatron = false;
  run.knobs.cross_entropy = spec::CrossEntropy::unfused;
  run.global_batch_size = 1;
  return run;
}

}  // namespace

// Weights, moments, and gradients that a step starts without: 16 bytes in all, no master copy.
BOOST_AUTO_TEST_CASE(one_gpu_has_wide_weights_and_gradients_of_a_step) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(1);
  const auto n = static_cast<double>(model.num_parameters());
  PlanRun run = titan_run(model, hardware);
  const StageMemory one = predict_memory(run).worst();
  BOOST_TEST(one.peak.weights == 4 * n, kExactly);
  BOOST_TEST(one.peak.optimizer == 8 * n, kExactly);
  BOOST_TEST(one.peak.gradients == 0);
  BOOST_TEST(one.moment == "loss");
  BOOST_TEST(one.at_start == 4 * n, kExactly);
  // The first update has them all.
  BOOST_TEST(one.first_step >= 16 * n);
  BOOST_TEST(PreparedMemory(run).peak_bytes(run.knobs, 1) == one.peak.total(), kExactly);
  // Those of earlier micro-batches are there at the loss of later ones.
  run.global_batch_size = 2;
  const StageMemory two = predict_memory(run).worst();
  BOOST_TEST(two.peak.gradients == 4 * n, kExactly);
  BOOST_TEST(two.peak.total() == one.peak.total() + 4 * n, kExactly);
  // With few tokens the end of the backward pass is the worst moment.
  run.global_batch_size = 1;
  run.seq_length = 16;
  const StageMemory few = predict_memory(run).worst();
  BOOST_TEST(few.moment == "end of the backward pass");
  BOOST_TEST(few.peak.gradients == 4 * n, kExactly);
}

BOOST_AUTO_TEST_CASE(buckets_of_ddp_come_on_top) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  const auto n = static_cast<double>(model.num_parameters());
  PlanRun run = titan_run(model, hardware);
  run.global_batch_size = 8;
  const StageMemory alone = predict_memory(run).worst();
  run.knobs.dp = 8;
  run.knobs.distributed_optimizer = false;
  run.global_batch_size = 64;
  const StageMemory replicated = predict_memory(run).worst();
  BOOST_TEST(replicated.peak.total() == alone.peak.total() + 4 * n, kExactly);
  BOOST_TEST(replicated.peak.optimizer == 8 * n, kExactly);
  run.knobs.fsdp = spec::Fsdp::torch;
  BOOST_TEST(titan_bucket_bytes(run, n) == 0);
  BOOST_TEST(!has_titan_autocast(run));
}

// Columns of a token in bytes: both norms' inputs 4 x 1024 and statistics 4, three copies for
// queries, keys and values and two for gate and up, 2 x 1024 each, 1536 and 1024 of attention and
// 16 log-sum-exps, and of the MLP gate, its activation, up and their product, 2816 each.
BOOST_AUTO_TEST_CASE(autocast_keeps_a_copy_for_each_reader) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(1);
  PlanRun run = titan_run(model, hardware);
  const auto activations = [&] { return predict_memory(run).worst().peak.activations; };
  constexpr double kColumns =
      2 * (4 * kHidden + 4) + 5 * 2 * kHidden + 2 * (1536 + 1024) + 4 * 16 + 4 * 2 * 2816;
  BOOST_TEST(activations() == kLayers * (kTokens * kColumns + 2 * kMatrices), kExactly);
  run.knobs.recompute = {PlanRecompute::layernorm};
  constexpr double kKept = 4 * kHidden + 2 * (1024 + 256 + 2816 + 1024 + 1024) + 4 * 16;
  BOOST_TEST(activations() == kLayers * kTokens * kKept, kExactly);
  run.knobs.recompute = {PlanRecompute::full};
  BOOST_TEST(activations() == kLayers * kTokens * 4 * kHidden, kExactly);
}

BOOST_AUTO_TEST_CASE(selective_checkpointing_computes_experts_again) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(1);
  PlanRun run = titan_run(model, hardware);
  run.knobs.recompute = {PlanRecompute::layernorm};
  const LayerSizes sizes = sizes_of(run, model.kind_of(0), 0);
  constexpr double kKept = 4 * kHidden + 2 * (1024 + 256 + 1024) + 4 * 16;
  BOOST_TEST(titan_selective_bytes(run, sizes).value() == kTokens * kKept, kExactly);
  // Experts' rows are kept twice in 16 bits, and their matrices.
  run.knobs.recompute = {};
  const double rows = 4 * kTokens * kHidden;
  BOOST_TEST(titan_autocast_bytes(run, sizes) >= 2 * 2 * rows + 2 * 16 * 3 * kHidden * 512);
}

BOOST_AUTO_TEST_CASE(the_cache_of_autocast_is_there_at_the_end_of_forward) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(1);
  PlanRun run = titan_run(model, hardware);
  constexpr double kLogits = kTokens * 32000;
  constexpr double kHead = kHidden * 32000;
  constexpr double kKept = kTokens * kHidden * 6 + 2 * kHead;
  BOOST_TEST(titan_autocast_loss_bytes(run, kLogits, 0) == kKept + 12 * kLogits, kExactly);
  BOOST_TEST(titan_autocast_loss_bytes(run, kLogits, 5e9) == kKept + 10 * kLogits + 5e9, kExactly);
  BOOST_TEST(titan_autocast_loss_bytes(run, 16 * 32000, 0) == kKept + 2 * 16 * 32000 + 6 * kHead,
             kExactly);
  run.knobs.cross_entropy = spec::CrossEntropy::native;
  BOOST_TEST(titan_autocast_loss_bytes(run, kLogits, 0) == kKept + 4 * kLogits, kExactly);
}

// Beside tensor or pipeline parallelism FSDP mixes precision, and nothing else does.
BOOST_AUTO_TEST_CASE(without_fsdp_parallel_ranks_compute_in_32_bits) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = titan_run(model, hardware);
  run.global_batch_size = 8;
  run.knobs.tp = 4;
  BOOST_TEST(!has_titan_autocast(run));
  BOOST_TEST((computed_knobs(run).precision == spec::PrecisionRecipe::fp32));
  BOOST_TEST(!computed_knobs(run).fused_attention);
  const MemoryParts titan = predict_memory(run).worst().peak;
  const StepTime step = predict_step(run, {});
  PlanRun megatron = run;
  megatron.is_of_megatron = true;
  const MemoryParts narrow = predict_memory(megatron).worst().peak;
  BOOST_TEST(titan.weights == 2 * narrow.weights, kExactly);
  BOOST_TEST(titan.gradients == narrow.gradients, kExactly);
  BOOST_TEST(titan.optimizer == 8.0 / 12 * narrow.optimizer, kExactly);
  BOOST_TEST(step.part(TimePart::products) >
             4 * predict_step(megatron, {}).part(TimePart::products));
  // As where somebody asks for it, of modules whose products are PyTorch's.
  megatron.knobs.precision = spec::PrecisionRecipe::fp32;
  megatron.knobs.fused_attention = false;
  megatron.states_own_modules = true;
  BOOST_TEST(titan.activations == predict_memory(megatron).worst().peak.activations, kExactly);
  const auto products = [&] { return predict_step(megatron, {}).part(TimePart::products); };
  BOOST_TEST(step.part(TimePart::products) == products(), kExactly);
  // Transformer Engine's are in TF32, but for ROCm.
  megatron.states_own_modules = false;
  BOOST_TEST(products() < step.part(TimePart::products) / 2);
  spec::HardwareSpec other = hardware;
  other.vendor = spec::Vendor::amd;
  megatron.hardware = &other;
  BOOST_TEST(step.part(TimePart::products) == products(), kExactly);
  run.knobs.dp = 2;
  run.knobs.fsdp = spec::Fsdp::torch;
  BOOST_TEST((computed_knobs(run).precision == spec::PrecisionRecipe::bf16));
  run.knobs.fsdp = spec::Fsdp::none;
  run.knobs.dp = run.knobs.tp = 1;
  run.knobs.pp = 4;
  BOOST_TEST((computed_knobs(run).precision == spec::PrecisionRecipe::fp32));
  run.knobs.main_params = spec::StateType::bf16;  // training.dtype: nothing is wide
  BOOST_TEST((computed_knobs(run).precision == spec::PrecisionRecipe::bf16));
}

// FSDP2 of one shard is none, also beside experts on several ranks: nothing mixes precision.
BOOST_AUTO_TEST_CASE(experts_on_several_ranks_bring_no_shards) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = titan_run(model, hardware);
  run.knobs.tp = 4;
  run.knobs.ep = 4;
  run.global_batch_size = 4;
  BOOST_TEST(lacks_titan_shards(run.knobs));
  BOOST_TEST(is_titan_unsharded(run));
  BOOST_TEST((computed_knobs(run).precision == spec::PrecisionRecipe::fp32));
  BOOST_TEST(predict_memory(run).worst().peak.gathered == 0);
  run.knobs.dp = 2;
  BOOST_TEST(!lacks_titan_shards(run.knobs));
  BOOST_TEST((computed_knobs(run).precision == spec::PrecisionRecipe::bf16));
  const StageMemory mixed = predict_memory(run).worst();
  BOOST_TEST(mixed.peak.gathered > 0);
  // 32-bit weights, as large as the gradients, and two moments.
  BOOST_TEST(mixed.peak.weights == mixed.peak.gradients, kExactly);
  BOOST_TEST(2 * mixed.peak.weights == mixed.peak.optimizer, kExactly);
}

// They are planned with shards only.
BOOST_AUTO_TEST_CASE(planned_experts_have_shards) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanQuestion question;
  question.model = &model;
  question.hardware = &hardware;
  question.seq_length = 4096;
  question.global_batch_size = 64;
  question.is_of_megatron = false;
  question.base.fsdp = spec::Fsdp::torch;
  question.can_say = [](const spec::PlanKnobs& k, std::string_view knob) {
    return knob != "fsdp" || (k.fsdp == spec::Fsdp::torch) == (k.dense_copies() > 1);
  };
  question.num_best = 1000;
  const PlanAnswer answer = search_plans(question, {});
  const auto count = [&](auto&& holds) {
    return std::ranges::count_if(answer.best,
                                 [&](const PlannedConfig& config) { return holds(config.knobs); });
  };
  BOOST_TEST(count([](const spec::PlanKnobs& k) { return lacks_titan_shards(k); }) == 0);
  BOOST_TEST(count([](const spec::PlanKnobs& k) { return k.ep > 1; }) > 0);
  BOOST_TEST(count([](const spec::PlanKnobs& k) { return k.dense_copies() == 1; }) > 0);
}

// A recipe of 8 bits is for linear modules: attention and the head stay in 32.
BOOST_AUTO_TEST_CASE(without_fsdp_float8_is_for_linear_modules_alone) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = titan_run(model, hardware);
  run.global_batch_size = 8;
  run.knobs.tp = 4;
  const StepTime wide = predict_step(run, {});
  run.knobs.precision = spec::PrecisionRecipe::fp8_current;
  const StepTime mixed = predict_step(run, {});
  BOOST_TEST(mixed.part(TimePart::attention) == wide.part(TimePart::attention), kExactly);
  BOOST_TEST(mixed.part(TimePart::products) < wide.part(TimePart::products));
  run.knobs.main_params = spec::StateType::bf16;
  const StepTime narrow = predict_step(run, {});
  BOOST_TEST(mixed.part(TimePart::attention) > 4 * narrow.part(TimePart::attention));
  BOOST_TEST(mixed.part(TimePart::products) > 2 * narrow.part(TimePart::products));
}

// Shards follow from the sizes: FSDP over one rank is none, and replicas beside slices have it.
BOOST_AUTO_TEST_CASE(sizes_say_what_is_sharded) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = titan_run(model, hardware);
  run.global_batch_size = 8;
  const auto is_as_without = [&] {
    PlanRun with = run;
    with.knobs.fsdp = spec::Fsdp::torch;
    run.knobs.fsdp = spec::Fsdp::none;
    return predict_memory(with).peak_bytes() == predict_memory(run).peak_bytes() &&
           predict_step(with, {}).seconds == predict_step(run, {}).seconds;
  };
  BOOST_TEST(is_as_without());
  run.knobs.tp = 4;
  BOOST_TEST(is_as_without());
  BOOST_TEST((computed_knobs(run).precision == spec::PrecisionRecipe::fp32));
  run.knobs.dp = 2;
  BOOST_TEST(is_as_without());
  BOOST_TEST((computed_knobs(run).precision == spec::PrecisionRecipe::bf16));
  run.knobs.tp = 1;
  BOOST_TEST(!is_as_without());
}

// Choices of a prepared run may change the width of what it computes in.
BOOST_AUTO_TEST_CASE(a_prepared_step_follows_the_width_of_its_choices) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = titan_run(model, hardware);
  run.knobs.tp = 4;
  run.global_batch_size = 8;
  PreparedStep prepared(run);
  const double wide = prepared.price({}).seconds;
  spec::PlanKnobs narrow = run.knobs;
  narrow.main_params = spec::StateType::bf16;
  prepared.choose(narrow);
  PlanRun other = run;
  other.knobs = narrow;
  BOOST_TEST(prepared.price({}).seconds == predict_step(other, {}).seconds, kExactly);
  prepared.choose(run.knobs);
  BOOST_TEST(prepared.price({}).seconds == wide, kExactly);
  BOOST_TEST(wide > predict_step(other, {}).seconds);
}

// Experts are three tensors and a launch each product, however many there are.
BOOST_AUTO_TEST_CASE(the_host_does_not_go_through_experts) {
  const spec::HardwareSpec hardware = machine(1);
  const auto fixed_with = [&](int64_t num_experts, bool is_of_megatron) {
    spec::ModelSpec model = moe_model();
    model.num_experts = num_experts;
    PlanRun run = titan_run(model, hardware);
    run.is_of_megatron = is_of_megatron;
    return predict_step(run, {}).part(TimePart::fixed);
  };
  BOOST_TEST(fixed_with(128, false) == fixed_with(16, false), kExactly);
  BOOST_TEST(fixed_with(128, true) > 2 * fixed_with(16, true));
  const spec::ModelSpec model = moe_model();
  PlanRun run = titan_run(model, hardware);
  BOOST_TEST(launched_experts(run) == 0);
  run.is_of_megatron = true;
  BOOST_TEST(launched_experts(run) == 16);
}

BOOST_AUTO_TEST_CASE(eager_operations_move_bytes) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(1);
  PlanRun run = titan_run(model, hardware);
  run.global_batch_size = 4;
  // Casts for five readers, two norms and sums in the stream; backward, three sums of gradients.
  const EagerBytes layer = eager_layer_bytes(run, model.kind_of(0));
  BOOST_TEST(layer.forward == 6 * kMatrices + kTokens * kHidden * (6 * 5 + 8 * 2), kExactly);
  BOOST_TEST(
      layer.backward == (6 + 12 * 0.75) * kMatrices + kTokens * kHidden * (6 * 5 + 12 * 3 + 12 * 2),
      kExactly);
  const EagerBytes head = eager_head_bytes(run);
  const Rates rates;
  const double bytes = kLayers * (layer.forward + layer.backward) + head.forward + head.backward;
  const double seconds = 4 * rates.memory_dense * bytes / hardware.memory_bytes_per_s;
  PlanRun megatron = run;
  megatron.is_of_megatron = true;
  const StepTime without = predict_step(megatron, rates);
  const StepTime with = predict_step(run, rates);
  BOOST_TEST(with.part(TimePart::memory) == without.part(TimePart::memory) + seconds,
             boost::test_tools::tolerance(1e-9));
  // A compiled loss is one pass.
  run.knobs.cross_entropy = spec::CrossEntropy::native;
  BOOST_TEST(eager_head_bytes(run).forward < head.forward - 8 * kTokens * 32000);
  // FSDP gathers what is cast already.
  run.knobs.dp = 8;
  run.knobs.fsdp = spec::Fsdp::torch;
  BOOST_TEST(eager_layer_bytes(run, model.kind_of(0)).forward == 0);
}

// By operation: neither attention nor the kept products, and not the modules that Megatron knows.
// A step of several local batches fills and drains the pipeline as often.
BOOST_AUTO_TEST_CASE(each_pass_has_a_bubble) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(4);
  PlanRun run = titan_run(model, hardware);
  run.knobs.pp = 4;
  run.global_batch_size = 16;
  const auto bubble_of = [&](int64_t pass_sequences) {
    run.pass_sequences = pass_sequences;
    return predict_step(run, {}).part(TimePart::bubble);
  };
  const double whole = bubble_of(0);
  BOOST_TEST_REQUIRE(whole > 0);
  BOOST_TEST(bubble_of(16) == whole, kExactly);
  BOOST_TEST(bubble_of(8) == 2 * whole, kExactly);
  BOOST_TEST(bubble_of(4) == 4 * whole, kExactly);
  // And so says the rule of thumb: 12 micro-batches hide three stages.
  const auto thumb = std::ranges::find(thumbs(), std::string_view("small_bubble"), &Thumb::name);
  BOOST_TEST_REQUIRE((thumb != thumbs().end()));
  run.pass_sequences = 16;
  BOOST_TEST(thumb->agrees(run));
  run.pass_sequences = 8;
  BOOST_TEST(!thumb->agrees(run));
}

BOOST_AUTO_TEST_CASE(selective_checkpointing_has_a_price) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = titan_run(model, hardware);
  run.knobs.dp = 8;
  run.knobs.fsdp = spec::Fsdp::torch;
  run.global_batch_size = 8;
  const auto recompute = [&](spec::PlanRecomputeSet set) {
    run.knobs.recompute = set;
    return predict_step(run, {}).part(TimePart::recompute);
  };
  BOOST_TEST(recompute({}) == 0);
  const double selective = recompute({PlanRecompute::layernorm});
  BOOST_TEST(selective > 0);
  BOOST_TEST(recompute({PlanRecompute::core_attn, PlanRecompute::mlp}) == selective, kExactly);
  BOOST_TEST(selective < 0.9 * recompute({PlanRecompute::full}));
  BOOST_TEST(titan_recomputed_share(run, plan::Op::core_attn) == 0);
  BOOST_TEST(titan_recomputed_share(run, plan::Op::cross_entropy) == 0);
  BOOST_TEST(titan_recomputed_share(run, plan::Op::qkv_proj) == 1.0 / 6, kExactly);
  BOOST_TEST(titan_recomputed_share(run, plan::Op::mlp_fc1) == 0.5);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::tuner::planner
