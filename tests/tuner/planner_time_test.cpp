// Step times of plans: what grows, what shrinks, and a fit that finds rates again.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/tuner/planner_samples.h"
#include "tuner/planner/adapters.h"
#include "tuner/planner/fit.h"
#include "tuner/planner/memory_profile.h"
#include "tuner/planner/priced_choices.h"
#include "tuner/planner/step_time.h"

namespace moetune::tuner::planner {

using samples::dense_model;
using samples::machine;
using samples::moe_model;
using samples::run_of;

namespace {

double sum_of(const StepTime& step) {
  double sum = 0;
  for (const double part : step.parts) sum += part;
  return sum;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(planner_time)

BOOST_AUTO_TEST_CASE(parts_add_up_to_the_step) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 8;
  run.knobs.pp = 2;
  run.knobs.ep = 8;
  const StepTime step = predict_step(run, {});
  BOOST_TEST(step.seconds > 0);
  BOOST_TEST(step.seconds == sum_of(step), boost::test_tools::tolerance(1e-12));
  for (const TimePart part : {TimePart::products, TimePart::experts, TimePart::attention,
                              TimePart::memory, TimePart::expert_exchange, TimePart::bubble,
                              TimePart::data, TimePart::optimizer, TimePart::host}) {
    BOOST_TEST(step.part(part) > 0, base::text_of(named(part)));
  }
  BOOST_TEST(step.part(TimePart::tensor) == 0);
  BOOST_TEST(step.part(TimePart::recompute) == 0);
}

BOOST_AUTO_TEST_CASE(the_bubble_is_that_of_the_schedule) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(4);
  PlanRun run = run_of(model, hardware);
  run.knobs.pp = 4;
  run.global_batch_size = 12;
  // (p - 1) / (m v) of what the fullest stage computes (Narayanan et al. 2021).
  const auto bubble_over_work = [&] {
    const StepTime step = predict_step(run, {});
    const double work = step.seconds - step.part(TimePart::bubble) - step.part(TimePart::data) -
                        step.part(TimePart::optimizer) - step.part(TimePart::fixed) -
                        step.part(TimePart::pipeline);
    return step.part(TimePart::bubble) / work;
  };
  BOOST_TEST(bubble_over_work() == 3.0 / 12, boost::test_tools::tolerance(1e-9));
  run.knobs.vpp = 2;
  BOOST_TEST(bubble_over_work() == 3.0 / 24, boost::test_tools::tolerance(1e-9));
  // torch takes fewer micro-batches than stages: each round waits for the last stage. The last
  // micro-batch of two enters the second round behind the fourth stage of the first: 9 slots, 4 of
  // them work.
  run.is_of_megatron = false;
  run.global_batch_size = 2;
  BOOST_TEST(bubble_over_work() == 5.0 / 4, boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(products_take_what_their_flops_say) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(1);
  PlanRun run = run_of(model, hardware);
  Rates rates;
  rates.product_half_rows = 0;
  const StepTime step = predict_step(run, rates);
  const auto tokens = static_cast<double>(run.global_batch_size * run.seq_length);
  const double per_token = static_cast<double>(model.num_parameters()) -
                           static_cast<double>(model.vocab_size * model.hidden_size);
  const double least = 6 * per_token * tokens / (hardware.peak_flops_per_s * rates.product_hopper);
  BOOST_TEST(step.part(TimePart::products) == least, boost::test_tools::tolerance(0.02));
}

// The FLOPs of such a step do not fit 64 bits.
BOOST_AUTO_TEST_CASE(no_length_makes_a_device_faster_than_its_peak) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(1);
  PlanRun run = run_of(model, hardware);
  run.global_batch_size = 1;
  double before = 0;
  for (int64_t length = int64_t{1} << 20; length <= int64_t{1} << 28; length *= 4) {
    run.seq_length = length;
    const StepTime step = predict_step(run, {});
    const double flops = model.training_flops_per_token(length) * static_cast<double>(length);
    BOOST_TEST(step.seconds > flops / hardware.peak_flops_per_s, length << " tokens");
    // Nothing but attention counts there: 16 times as long for four times the tokens.
    const double attention = step.part(TimePart::attention);
    if (before > 0) BOOST_TEST(attention == 16 * before, boost::test_tools::tolerance(1e-3));
    before = attention;
  }
}

BOOST_AUTO_TEST_CASE(choices_move_the_parts_that_they_are_for) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 16;
  run.knobs.ep = 16;
  const StepTime plain = predict_step(run, {});
  spec::PlanKnobs knobs = run.knobs;
  run.knobs.overlap_moe_expert_parallel_comm = true;
  BOOST_TEST(predict_step(run, {}).part(TimePart::expert_exchange) <
             plain.part(TimePart::expert_exchange));
  run.knobs = knobs;
  run.knobs.dispatcher = spec::Dispatcher::hybridep;
  BOOST_TEST(predict_step(run, {}).part(TimePart::expert_exchange) <
             plain.part(TimePart::expert_exchange));
  run.knobs = knobs;
  run.knobs.cuda_graphs = {spec::PlanGraph::full_iteration};
  BOOST_TEST(predict_step(run, {}).part(TimePart::host) == 0);
  run.knobs = knobs;
  run.knobs.recompute = {spec::PlanRecompute::full};
  const StepTime full = predict_step(run, {});
  BOOST_TEST(full.part(TimePart::recompute) > 0);
  BOOST_TEST(full.part(TimePart::products) == plain.part(TimePart::products));
  run.knobs = knobs;
  run.load = 2;
  BOOST_TEST(predict_step(run, {}).part(TimePart::experts) > plain.part(TimePart::experts));
  run.load = 1;
  run.knobs.precision = spec::PrecisionRecipe::fp8_current;
  BOOST_TEST(predict_step(run, {}).part(TimePart::products) < plain.part(TimePart::products));
  // Low-rank adapters: no gradients of frozen weights, nothing to update.
  run.knobs = knobs;
  run.knobs.task = spec::TrainingTask::lora;
  const StepTime adapters = predict_step(run, {});
  BOOST_TEST(adapters.part(TimePart::optimizer) == 0);
  BOOST_TEST(adapters.part(TimePart::experts) < plain.part(TimePart::experts));
}

// Two thin products beside each adapted matrix, and twice as many backward; a factor and a sum.
BOOST_AUTO_TEST_CASE(products_of_adapters_move_bytes) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 8;
  run.knobs.task = spec::TrainingTask::lora;
  const Rates rates;
  const spec::LayerKind kind = model.kind_of(0);
  const auto nearly = boost::test_tools::tolerance(1e-12);
  const std::vector<AdapterTime> times = adapter_times(run, kind, rates);
  BOOST_TEST_REQUIRE(times.size() == 4U);
  const AdapterTime& first = times.front();
  BOOST_TEST((first.op == plan::Op::qkv_proj));
  // 4096 tokens of 1024 columns to 32, and from there to 24 heads of 64: 2 bytes an element.
  const double bytes = 2.0 * (4096 * (1024 + 32) + 1024 * 32 + 4096 * (1536 + 32) + 1536 * 32);
  BOOST_TEST(first.forward.products == bytes / 3.35e12, nearly);
  BOOST_TEST(first.backward.products == 2 * bytes / 3.35e12, nearly);
  const double input = 2.0 * 4096 * 1024;
  const double output = 2.0 * 4096 * 1536;
  BOOST_TEST(first.forward.memory == rates.memory_dense * 5 * output / 3.35e12, nearly);
  BOOST_TEST(first.backward.memory == rates.memory_dense * (2 * output + 3 * input) / 3.35e12,
             nearly);
  // Eight layers have that in each of eight micro-batches.
  const auto sum = [&] {
    AdapterSeconds seconds;
    for (const AdapterTime& time : adapter_times(run, kind, rates)) {
      seconds.products += time.forward.products + time.backward.products;
      seconds.memory += time.forward.memory + time.backward.memory;
    }
    return seconds;
  };
  const double narrow = sum().products;
  const StepTime before = predict_step(run, rates);
  run.knobs.lora_rank = 64;
  const StepTime after = predict_step(run, rates);
  BOOST_TEST(after.part(TimePart::products) - before.part(TimePart::products) ==
                 8 * 8 * (sum().products - narrow),
             boost::test_tools::tolerance(1e-9));
  BOOST_TEST(after.part(TimePart::memory) == before.part(TimePart::memory), nearly);
  // A wide one is bound by its FLOPs, at the rate of products in 16 bits.
  run.knobs.lora_rank = 1 << 14;
  const double flops = 2.0 * 4096 * (1 << 14) * (1024 + 1536);
  BOOST_TEST(adapter_times(run, kind, rates).front().forward.products ==
                 flops / (rates.product_hopper * 989e12),
             nearly);
  // Each rank has its slice of both halves: of the first along its rank.
  run.knobs.lora_rank = 32;
  run.knobs.tp = 2;
  run.knobs.dp = 4;
  const double sliced = 2.0 * (4096 * (1024 + 32) + 512 * 32 + 4096 * (768 + 32) + 768 * 32);
  BOOST_TEST(adapter_times(run, kind, rates).front().forward.products == sliced / 3.35e12, nearly);
}

// FSDP gathers frozen weights as well: for the forward and for the backward of each micro-batch.
BOOST_AUTO_TEST_CASE(frozen_weights_are_gathered_where_they_are_sharded) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 8;
  run.knobs.task = spec::TrainingTask::lora;
  const double held = predict_step(run, {}).part(TimePart::data);
  BOOST_TEST(held > 0);  // gradients of the adapters
  run.knobs.fsdp = spec::Fsdp::torch;
  const double sharded = predict_step(run, {}).part(TimePart::data);
  BOOST_TEST(sharded > 10 * held);
  run.global_batch_size *= 2;
  BOOST_TEST(predict_step(run, {}).part(TimePart::data) == 2 * sharded,
             boost::test_tools::tolerance(1e-9));
  // Less than where their gradients are reduced, too.
  run.knobs.task = spec::TrainingTask::sft;
  BOOST_TEST(predict_step(run, {}).part(TimePart::data) > 2 * sharded);
}

BOOST_AUTO_TEST_CASE(wide_heads_and_scans_have_rates_of_their_own) {
  const spec::HardwareSpec hardware = machine(8);
  const Rates rates;
  const auto attention = [&](double width) {
    return attention_flops_per_s(rates, hardware, 131072, width, true, false);
  };
  BOOST_TEST(attention(192) == attention(128));
  BOOST_TEST(attention(256) == rates.attention_wide * attention(128));
  const spec::ModelSpec model = samples::hybrid_model(1);
  const PlanRun run = run_of(model, hardware);
  // The rest is the convolution, which moves memory.
  const auto scans = [&](double share) {
    Rates changed = rates;
    changed.scan_delta = share * rates.scan_delta;
    return predict_step(run, changed).part(TimePart::attention);
  };
  BOOST_TEST(scans(0.5) > scans(1));
  BOOST_TEST(scans(0.25) - scans(0.5) == 2 * (scans(0.5) - scans(1)),
             boost::test_tools::tolerance(1e-9));
  Rates slower = rates;
  slower.scan = rates.scan / 2;  // Mamba-2's
  BOOST_TEST(predict_step(run, slower).part(TimePart::attention) ==
             predict_step(run, rates).part(TimePart::attention));
}

BOOST_AUTO_TEST_CASE(collectives_of_a_recomputed_layer_are_done_again) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.knobs.tp = 2;
  run.knobs.cp = 4;
  const StepTime plain = predict_step(run, {});
  run.knobs.recompute = {spec::PlanRecompute::full};
  const StepTime full = predict_step(run, {});
  for (const TimePart part : {TimePart::tensor, TimePart::context}) {
    BOOST_TEST(full.part(part) > plain.part(part), base::text_of(named(part)));
    BOOST_TEST(full.part(part) < 2 * plain.part(part), base::text_of(named(part)));
  }
}

BOOST_AUTO_TEST_CASE(of_a_block_some_layers_are_computed_again) {
  spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  const auto exactly = boost::test_tools::tolerance(1e-12);
  PlanRun run = run_of(model, hardware);
  run.knobs.tp = 2;
  run.knobs.pp = 2;
  run.knobs.dp = 2;
  const StepTime none = predict_step(run, {});
  run.knobs.recompute = {spec::PlanRecompute::full};
  const StepTime all = predict_step(run, {});
  run.knobs.recompute_num_layers = 2;
  BOOST_TEST(predict_step(run, {}).seconds == all.seconds);
  run.knobs.recompute_method = spec::RecomputeMethod::block;
  // A stage has four layers, each with a quarter of what is computed and sent again; the end of the
  // last stage has the same in all.
  const auto closely = boost::test_tools::tolerance(1e-9);
  run.knobs.recompute_num_layers = 1;
  const double first = predict_step(run, {}).part(TimePart::recompute);
  const double of_layer = (all.part(TimePart::recompute) - first) / 3;
  BOOST_TEST(of_layer > 0);
  BOOST_TEST(first > 0.999 * of_layer);
  for (const int layers : {1, 2, 3}) {
    run.knobs.recompute_num_layers = layers;
    const StepTime some = predict_step(run, {});
    BOOST_TEST(some.part(TimePart::recompute) == first + (layers - 1) * of_layer, closely);
    const double tensor = none.part(TimePart::tensor);
    BOOST_TEST(
        some.part(TimePart::tensor) - tensor == (all.part(TimePart::tensor) - tensor) * layers / 4,
        closely);
    BOOST_TEST(some.seconds > none.seconds);
    BOOST_TEST(some.seconds < all.seconds);
  }
  for (const int layers : {4, 20}) {
    run.knobs.recompute_num_layers = layers;
    BOOST_TEST(predict_step(run, {}).seconds == all.seconds, exactly);
  }
  // Those of multi-token prediction are in no block: of nine layers uniform has one more.
  model.mtp = {.depth = 1, .layers = {model.kind_of(7)}};
  run.knobs.pp = 1;
  run.knobs.dp = 4;
  const auto again = [&](spec::RecomputeMethod method, int layers) {
    run.knobs.recompute_method = method;
    run.knobs.recompute_num_layers = layers;
    return predict_step(run, {}).part(TimePart::recompute);
  };
  const double seven = again(spec::RecomputeMethod::block, 7);
  const double eight = again(spec::RecomputeMethod::block, 8);
  const double nine = again(spec::RecomputeMethod::uniform, 1);
  BOOST_TEST(eight > seven);
  BOOST_TEST(nine - eight == eight - seven, closely);
}

BOOST_AUTO_TEST_CASE(only_a_padded_capacity_takes_time) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 16;
  run.knobs.ep = 16;
  const StepTime plain = predict_step(run, {});
  run.load = 2;
  const StepTime uneven = predict_step(run, {});
  run.knobs.capacity_factor = 2;
  BOOST_TEST(predict_step(run, {}).seconds == uneven.seconds);
  run.load = 1;
  BOOST_TEST(predict_step(run, {}).seconds == plain.seconds);
  // Each rank computes and sends twice its balanced share.
  run.knobs.pad_to_capacity = true;
  BOOST_TEST(predict_step(run, {}).seconds == uneven.seconds);
  // Of a rank's fourfold share half is dropped.
  run.knobs.pad_to_capacity = false;
  run.load = 4;
  BOOST_TEST(predict_step(run, {}).part(TimePart::experts) == uneven.part(TimePart::experts));
}

BOOST_AUTO_TEST_CASE(what_hides_an_exchange_has_a_price) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 16;
  run.knobs.ep = 16;
  run.knobs.dispatcher = spec::Dispatcher::hybridep;
  const auto exchange = [&](int32_t connections, int32_t multiprocessors) {
    run.knobs.cuda_device_max_connections = connections;
    run.knobs.moe_flex_dispatcher_num_sms = multiprocessors;
    return predict_step(run, {}).part(TimePart::expert_exchange);
  };
  // Alone it waits for nobody and takes nothing from anybody.
  const double alone = exchange(8, 0);
  BOOST_TEST(exchange(1, 0) == alone);
  BOOST_TEST(exchange(8, 64) == alone);
  run.knobs.overlap_moe_expert_parallel_comm = true;
  const double hidden = exchange(8, 0);
  BOOST_TEST(hidden < alone);
  BOOST_TEST(exchange(32, 0) == hidden);
  BOOST_TEST(exchange(1, 0) > hidden);
  BOOST_TEST(exchange(1, 0) < alone);
  BOOST_TEST(exchange(8, 64) > hidden);
  BOOST_TEST(exchange(8, 64) < alone);
  // Few do not fill the links.
  BOOST_TEST(exchange(8, 8) > hidden);
}

BOOST_AUTO_TEST_CASE(recomputation_is_launched_once_more) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 16;
  run.knobs.ep = 16;
  Rates rates;
  rates.host_layer_ns = 1e9;  // so that nothing else counts
  const double plain = predict_step(run, rates).seconds;
  run.knobs.recompute = {spec::PlanRecompute::moe_act};
  const double activation = predict_step(run, rates).seconds;
  BOOST_TEST(activation > plain);
  run.knobs.recompute = {spec::PlanRecompute::full};
  const double full = predict_step(run, rates).seconds;
  BOOST_TEST(full > activation);
  BOOST_TEST(full < 1.75 * plain);  // counted: 1.68 times as many calls
}

BOOST_AUTO_TEST_CASE(a_step_goes_through_the_parameters) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 16;
  const double all = predict_step(run, {}).part(TimePart::fixed);
  run.knobs.ep = 16;
  const double sixteenth = predict_step(run, {}).part(TimePart::fixed);
  BOOST_TEST(sixteenth < all);
  BOOST_TEST(sixteenth > 1e-9 * Rates{}.fixed_ns);
}

// Eleven times over a score of two bytes of each pair and head, of which four are forward.
BOOST_AUTO_TEST_CASE(scores_in_memory_take_their_traffic) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(1);
  PlanRun run = run_of(model, hardware);
  const Rates rates;
  const StepTime fused = predict_step(run, rates);
  run.knobs.recompute = {spec::PlanRecompute::core_attn};
  const StepTime again = predict_step(run, rates);
  run.knobs.fused_attention = false;
  const StepTime unfused_again = predict_step(run, rates);
  run.knobs.recompute = {};
  const StepTime unfused = predict_step(run, rates);
  // Of 8 layers and 64 micro-batches of 4096 tokens with 16 heads.
  const double scores = 8.0 * 64 * 4096 * 4096 * 16 * 2;
  const double seconds = rates.memory_dense * scores / hardware.memory_bytes_per_s;
  BOOST_TEST(unfused.part(TimePart::attention) - fused.part(TimePart::attention) == 11 * seconds,
             boost::test_tools::tolerance(1e-9));
  BOOST_TEST(
      unfused_again.part(TimePart::recompute) - again.part(TimePart::recompute) == 4 * seconds,
      boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(a_kernel_for_each_expert_leaves_multiprocessors_idle) {
  const spec::ModelSpec model = moe_model();  // 1024 wide, experts of 512 with a gate
  const spec::HardwareSpec hardware = machine(16);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 16;
  const auto slowness = [&](plan::Op which, plan::Pass pass, double inner) {
    OpWork op{.op = which, .pass = pass, .work = plan::Work::grouped};
    op.matrices = 2;
    op.row_flops = 2 * 2 * 1024 * inner;
    op.flops = 256 * op.row_flops;  // 256 rows for each expert: two tiles
    return ungrouped_slowness(run, op);
  };
  using plan::Op;
  using plan::Pass;
  // Tiles of 128 x 128 on 132 multiprocessors: 2 x 8, 2 x 8, 8 x 8, 2 x 8, 2 x 4, 4 x 8.
  BOOST_TEST(slowness(Op::expert_fc1, Pass::forward, 1024) == 132.0 / 16);
  BOOST_TEST(slowness(Op::expert_fc1, Pass::backward, 1024) == 132.0 / 16);
  BOOST_TEST(slowness(Op::expert_fc1, Pass::wgrad, 1024) == 132.0 / 64);
  BOOST_TEST(slowness(Op::expert_fc2, Pass::forward, 512) == 132.0 / 16);
  BOOST_TEST(slowness(Op::expert_fc2, Pass::backward, 512) == 132.0 / 8);
  BOOST_TEST(slowness(Op::expert_fc2, Pass::wgrad, 512) == 132.0 / 32);
  // Two products forward, four backward, the activation both ways, for 15 experts more than one.
  BOOST_TEST(more_launches(layer_work(run, model.kind_of(0), 0)) == 8.0 * 15);
  BOOST_TEST(num_multiprocessors(hardware) == 132);
  spec::HardwareSpec of_amd = hardware;
  of_amd.vendor = spec::Vendor::amd;
  BOOST_TEST(num_multiprocessors(of_amd) == 304);
  const StepTime grouped = predict_step(run, {});
  run.knobs.moe_grouped_gemm = false;
  const StepTime apart = predict_step(run, {});
  BOOST_TEST(apart.part(TimePart::experts) > grouped.part(TimePart::experts));
  BOOST_TEST(apart.part(TimePart::host) > grouped.part(TimePart::host));
  run.knobs.cuda_graphs = {spec::PlanGraph::full_iteration};
  BOOST_TEST(predict_step(run, {}).part(TimePart::host) == 0);
}

BOOST_AUTO_TEST_CASE(copies_to_the_host_hide_behind_the_layer) {
  const spec::ModelSpec model = moe_model();
  spec::HardwareSpec hardware = machine(16);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 16;
  run.knobs.offload = {spec::Offload::moe_act};
  // 4096 tokens with 4 experts each, 2 x 512 columns of two bytes, in one second.
  hardware.host_link_bytes_per_s = 4096.0 * 4 * 2 * 512 * 2 / 0.8;
  const auto exposed = [&](double seconds) {
    return exposed_copies(run, model.kind_of(0), 0, seconds);
  };
  BOOST_TEST(exposed(4) == 0.0);
  BOOST_TEST(exposed(1.5) == 0.5, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(exposed(0) == 2.0, boost::test_tools::tolerance(1e-12));
  const StepTime offloaded = predict_step(run, {});
  BOOST_TEST(offloaded.part(TimePart::host_copies) > 0);
  BOOST_TEST(offloaded.seconds == sum_of(offloaded), boost::test_tools::tolerance(1e-12));
  hardware.host_link_bytes_per_s = 1e15;
  BOOST_TEST(predict_step(run, {}).part(TimePart::host_copies) == 0);
  // What is computed again is not kept, and so not sent.
  hardware.host_link_bytes_per_s = 1e6;
  for (const auto module : {spec::PlanRecompute::moe, spec::PlanRecompute::full}) {
    run.knobs.recompute = {module};
    BOOST_TEST(predict_step(run, {}).part(TimePart::host_copies) == 0);
  }
}

BOOST_AUTO_TEST_CASE(weights_in_fp8_alone_are_half_as_large) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 16;
  run.knobs.precision = spec::PrecisionRecipe::fp8_current;
  const auto weights = [&] { return predict_memory(run).worst().peak; };
  const auto data = [&] { return predict_step(run, {}).part(TimePart::data); };
  const MemoryParts both = weights();
  const double gathered = data();
  run.knobs.fp8_param_gather = true;
  // On Hopper matrix and transpose in FP8 take as much as the matrix in 16 bits.
  BOOST_TEST(both.weights - weights().weights == both.narrow_weights,
             boost::test_tools::tolerance(1e-12));
  BOOST_TEST(weights().narrow_weights == both.narrow_weights);
  BOOST_TEST(data() < gathered);
  BOOST_TEST(data() > gathered / 2);  // gradients are as wide as before
  // In 16 bits it changes nothing.
  run.knobs.precision = spec::PrecisionRecipe::bf16;
  const MemoryParts wide = weights();
  const double of_wide = data();
  run.knobs.fp8_param_gather = false;
  BOOST_TEST(weights().weights == wide.weights);
  BOOST_TEST(data() == of_wide);
  // Nor beside PyTorch's FSDP, for which Megatron-LM turns it off.
  const auto moves = [&](spec::Fsdp fsdp) {
    run.knobs.fsdp = fsdp;
    run.knobs.precision = spec::PrecisionRecipe::fp8_current;
    run.knobs.fp8_param_gather = false;
    const double bytes = weights().weights;
    const double seconds = data();
    run.knobs.fp8_param_gather = true;
    return std::pair(weights().weights < bytes, data() < seconds);
  };
  BOOST_TEST((moves(spec::Fsdp::megatron) == std::pair(true, true)));
  BOOST_TEST((moves(spec::Fsdp::torch) == std::pair(false, false)));
}

// What is said to have no price in time moves none.
BOOST_AUTO_TEST_CASE(choices_without_a_price_are_named) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 8;
  run.knobs.pp = 2;
  run.knobs.ep = 8;
  run.knobs.overlap_moe_expert_parallel_comm = true;
  const double seconds = predict_step(run, {}).seconds;
  const std::pair<const char*, const char*> kChanges[] = {{"moe_permute_fusion", "false"},
                                                          {"cross_entropy", "te"},
                                                          {"optimizer", "muon"},
                                                          {"exp_avg", "bf16"},
                                                          {"exp_avg_sq", "bf16"},
                                                          {"main_params", "fp16"},
                                                          {"fused_activation", "false"},
                                                          {"gradient_accumulation_fusion", "false"},
                                                          {"delay_wgrad_compute", "true"},
                                                          {"optimizer_instances", "2"},
                                                          {"precision_aware_optimizer", "true"},
                                                          {"sequence_parallel", "false"},
                                                          {"cuda_graph_warmup_steps", "0"}};
  for (const auto& [name, value] : kChanges) {
    PlanRun changed = run;
    spec::set_plan_knob(changed.knobs, *spec::find_plan_knob(name), value);
    BOOST_TEST(!has_price_in_time(name), name);
    BOOST_TEST(predict_step(changed, {}).seconds == seconds, name);
  }
  size_t count = 0;
  for (const spec::PlanKnobRow& row : spec::plan_knob_table()) {
    count += has_price_in_time(row.name) ? 0 : 1;
  }
  BOOST_TEST(count == std::size(kChanges));
  // Where there is something to slice, and to capture.
  run.knobs.overlap_moe_expert_parallel_comm = false;
  run.knobs.pp = 1;
  run.knobs.tp = 2;
  run.knobs.cuda_graphs = {spec::PlanGraph::attn};
  const double sliced = predict_step(run, {}).seconds;
  run.knobs.cuda_graph_warmup_steps = 0;
  BOOST_TEST(predict_step(run, {}).seconds == sliced);
  const spec::ModelSpec dense = dense_model();
  run.model = &dense;
  run.knobs.ep = 1;
  const double of_dense = predict_step(run, {}).seconds;
  run.knobs.sequence_parallel = false;
  BOOST_TEST(predict_step(run, {}).seconds == of_dense);
}

// All other choices move the time of some configuration.
BOOST_AUTO_TEST_CASE(choices_with_a_price_move_the_time) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  struct Priced {
    std::string_view knob;
    std::string_view value;
    /// What has to be chosen beside it, both before and after.
    std::vector<std::pair<std::string_view, std::string_view>> beside{};
  };
  const Priced kPriced[] = {
      {"tp", "2"},
      {"cp", "2"},
      {"dp", "4"},
      {"pp", "4"},
      {"vpp", "2"},
      {"ep", "8"},
      {"etp", "2"},
      {"micro_batch_size", "2"},
      {"first_stage_layers", "3"},
      {"last_stage_layers", "3"},
      {"precision", "fp8-current-scaling"},
      {"recompute", "full"},
      {"recompute_method", "block", {{"recompute", "full"}}},
      {"recompute_num_layers", "2", {{"recompute", "full"}, {"recompute_method", "block"}}},
      {"cuda_graphs", "attn"},
      {"offload", "attn_norm,qkv_linear,core_attn,mlp_norm,expert_fc1,moe_act"},
      {"dispatcher", "hybridep"},
      {"fsdp", "megatron"},
      {"cp_comm_type", "all_gather", {{"cp", "2"}}},
      {"params_dtype", "fp32"},
      {"main_grads", "bf16"},
      {"task", "lora"},
      {"lora_rank", "8", {{"task", "lora"}}},
      {"distributed_optimizer", "false"},
      {"overlap_grad_reduce", "false", {{"overlap_param_gather", "false"}}},
      {"overlap_param_gather", "false", {{"overlap_grad_reduce", "false"}}},
      {"tp_comm_overlap", "true", {{"tp", "2"}}},
      {"overlap_moe_expert_parallel_comm", "true"},
      {"moe_grouped_gemm", "false"},
      {"fused_grouped_mlp", "true"},
      {"fp8_attention", "true"},
      {"fp8_param_gather", "true", {{"precision", "fp8-current-scaling"}}},
      {"fused_attention", "false"},
      {"optimizer_offload_ratio", "0.5"},
      {"capacity_factor", "1.25", {{"pad_to_capacity", "true"}}},
      {"pad_to_capacity", "true", {{"capacity_factor", "1.25"}}},
      {"moe_flex_dispatcher_num_sms", "8", {{"dispatcher", "hybridep"}}},
      {"cuda_device_max_connections", "1", {{"overlap_moe_expert_parallel_comm", "true"}}}};
  for (const spec::PlanKnobRow& row : spec::plan_knob_table()) {
    if (!has_price_in_time(row.name)) continue;
    const auto* change = std::ranges::find(kPriced, row.name, &Priced::knob);
    BOOST_TEST_REQUIRE((change != std::end(kPriced)), row.name);
    PlanRun run = run_of(model, hardware);
    run.knobs.dp = 8;
    run.knobs.pp = 2;
    run.knobs.ep = 4;
    for (const auto& [knob, value] : change->beside) {
      spec::set_plan_knob(run.knobs, *spec::find_plan_knob(knob), value);
    }
    const double seconds = predict_step(run, {}).seconds;
    spec::set_plan_knob(run.knobs, row, change->value);
    BOOST_TEST(predict_step(run, {}).seconds != seconds, row.name);
  }
}

BOOST_AUTO_TEST_CASE(a_ring_of_context_ranks_computes_attention_once) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.seq_length = 65536;
  run.global_batch_size = 8;
  run.knobs.dp = 8;
  const double alone = predict_step(run, {}).part(TimePart::attention);
  run.knobs.dp = 1;
  run.knobs.cp = 8;
  BOOST_TEST(predict_step(run, {}).part(TimePart::attention) == alone,
             boost::test_tools::tolerance(0.01));
}

BOOST_AUTO_TEST_CASE(a_fit_finds_the_rates_that_made_the_runs) {
  const spec::ModelSpec dense = dense_model();
  const spec::ModelSpec moe = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  Rates truth;
  truth.product_hopper = 0.7;
  truth.memory_moe = 3.1;
  truth.exchange = 0.6;
  std::vector<PreparedStep> steps;
  for (const spec::ModelSpec* model : {&dense, &moe}) {
    for (const int32_t ep : {1, 4, 16}) {
      for (const int32_t mbs : {1, 2, 4}) {
        for (const bool is_graphed : {false, true}) {
          PlanRun run = run_of(*model, hardware);
          run.global_batch_size = 256;
          run.knobs.dp = 16;
          run.knobs.ep = model == &dense ? 1 : ep;
          run.knobs.micro_batch_size = mbs;
          if (is_graphed) run.knobs.cuda_graphs = {spec::PlanGraph::full_iteration};
          steps.emplace_back(run);
        }
      }
    }
  }
  std::vector<MeasuredRun> runs;
  for (const PreparedStep& step : steps) {
    runs.push_back({&step, {}, tokens_per_s_per_device(step.run(), step.price(truth).seconds), 1});
  }
  const Fit fit = fit_rates(runs);
  BOOST_TEST(fit.median_error < 0.01);
  // Runs of one kind that all take 10 % longer, against a prior of half their weight.
  std::vector<MeasuredRun> slower = runs;
  for (MeasuredRun& run : slower) {
    run.tokens_per_s =
        tokens_per_s_per_device(run.step->run(), 1.1 * run.step->price(truth).seconds);
  }
  const CaseFit of_case = fit_case(slower, truth, static_cast<double>(runs.size()) / 2);
  BOOST_TEST(std::log(of_case.factor) == std::log(1.1) / 1.5, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(of_case.low < of_case.factor);
  BOOST_TEST(of_case.factor < of_case.high);
  // Of a run that it has not seen, whatever single rates can be told apart.
  PlanRun other = run_of(moe, hardware);
  other.global_batch_size = 256;
  other.seq_length = 8192;
  other.knobs.dp = 8;
  other.knobs.pp = 2;
  other.knobs.ep = 8;
  BOOST_TEST(predict_step(other, fit.rates).seconds == predict_step(other, truth).seconds,
             boost::test_tools::tolerance(0.03));
  BOOST_TEST(fit.rates.memory_moe == truth.memory_moe, boost::test_tools::tolerance(0.1));
  for (const FittedRate& rate : fit.fitted) {
    BOOST_TEST(rate.low <= rate.value);
    BOOST_TEST(rate.value <= rate.high);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::tuner::planner
