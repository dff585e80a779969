// The profile of Megatron's memory: sizes that can be worked out by hand, and what each choice
// does.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <numeric>

#include "tests/tuner/planner_samples.h"
#include "tuner/planner/memory_profile.h"
#include "tuner/planner/rules.h"

namespace moetune::tuner::planner {

using samples::dense_model;
using samples::hybrid_model;
using samples::machine;
using samples::moe_model;
using samples::run_of;
using spec::PlanKnobs;
using spec::PlanRecompute;

BOOST_AUTO_TEST_SUITE(planner_memory)

BOOST_AUTO_TEST_CASE(static_parts_are_bytes_a_parameter) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 8;
  const MemoryParts parts = predict_memory(run).worst().peak;
  const auto n = static_cast<double>(model.num_parameters());
  BOOST_TEST(parts.weights == 2 * n);
  BOOST_TEST(parts.gradients == 4 * n);
  BOOST_TEST(parts.optimizer == 12 * n / 8, boost::test_tools::tolerance(1e-12));
  run.knobs.distributed_optimizer = false;
  BOOST_TEST(predict_memory(run).worst().peak.optimizer == 12 * n);
  run.knobs.main_grads = spec::StateType::bf16;
  run.knobs.precision_aware_optimizer = true;
  run.knobs.exp_avg = run.knobs.exp_avg_sq = spec::StateType::bf16;
  const MemoryParts narrow = predict_memory(run).worst().peak;
  BOOST_TEST(narrow.gradients == 2 * n);
  // Both moments in two bytes, and the half of the master weight that the weight lacks.
  BOOST_TEST(narrow.optimizer == 6 * n);
}

// An optimizer without narrow gradients copies its share of them to fp32 for the update, when
// nothing is kept for backward.
BOOST_AUTO_TEST_CASE(narrow_gradients_are_copied_for_the_update) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  const auto n = static_cast<double>(model.num_parameters());
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 8;
  const StageMemory wide = predict_memory(run).worst();
  run.knobs.main_grads = spec::StateType::bf16;
  const StageMemory narrow = predict_memory(run).worst();
  BOOST_TEST(narrow.peak.gradients == 2 * n);
  BOOST_TEST(narrow.peak.optimizer == wide.peak.optimizer);
  // Half a byte a parameter is less than what a sequence of 4096 tokens keeps.
  BOOST_TEST(narrow.moment == wide.moment);
  BOOST_TEST(wide.peak.total() - narrow.peak.total() == 2 * n, boost::test_tools::tolerance(1e-12));
  run.seq_length = 1;
  const StageMemory update = predict_memory(run).worst();
  BOOST_TEST(update.moment == "update");
  BOOST_TEST(update.peak.activations == 0);
  BOOST_TEST(update.peak.transient == 4 * n / 8, boost::test_tools::tolerance(1e-12));
  run.knobs.precision_aware_optimizer = true;
  BOOST_TEST(predict_memory(run).worst().moment != "update");
}

// 2 bytes a parameter in weights, 4 in gradients, 12 in the optimizer's state, which 8 ranks share.
BOOST_AUTO_TEST_CASE(adapters_alone_are_trained) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 8;
  run.knobs.task = spec::TrainingTask::lora;
  const auto exactly = boost::test_tools::tolerance(1e-12);
  // Of 8 layers: inputs and outputs of queries, keys and values (16 + 4 + 4 heads of 64), of
  // attention's output, of gate and up, of down.
  const double features = 8.0 * (1024 + 24 * 64 + 1024 + 1024 + 1024 + 2 * 2816 + 2816 + 1024);
  const auto frozen = static_cast<double>(model.num_parameters());
  const MemoryParts parts = predict_memory(run).worst().peak;
  BOOST_TEST(parts.weights == 2 * (frozen + 32 * features), exactly);
  BOOST_TEST(parts.gradients == 4 * 32 * features, exactly);
  BOOST_TEST(parts.optimizer == 12 * 32 * features / 8, exactly);
  BOOST_TEST(parts.dummy_gradients == 0);
  run.knobs.lora_rank = 8;
  BOOST_TEST(predict_memory(run).worst().peak.gradients == 4 * 8 * features, exactly);
  run.knobs.dp = 4;
  run.knobs.tp = 2;
  BOOST_TEST(predict_memory(run).worst().peak.gradients == 4 * 8 * features / 2, exactly);
}

BOOST_AUTO_TEST_CASE(experts_of_a_rank_share_their_adapter) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 8;
  run.knobs.ep = 4;
  run.knobs.task = spec::TrainingTask::lora;
  const double attention = 8.0 * (1024 + 24 * 64 + 1024 + 1024);
  const double experts = 8.0 * (1024 + 2 * 512 + 512 + 1024);
  const auto exactly = boost::test_tools::tolerance(1e-12);
  const MemoryParts parts = predict_memory(run).worst().peak;
  BOOST_TEST(parts.gradients == 4 * 32 * (attention + experts), exactly);
  BOOST_TEST(parts.optimizer == 12 * 32 * (attention / 8 + experts / 2), exactly);
}

// Adapters keep their inputs: in 16 bits, and gathered where tensor-parallel ranks share them. What
// is fused with a norm keeps the norm's output beside that, even frozen. Between its halves each
// adapter keeps 32 columns of 2 bytes.
BOOST_AUTO_TEST_CASE(adapters_save_their_inputs) {
  const spec::ModelSpec dense = dense_model();
  const spec::ModelSpec moe = moe_model();
  const spec::HardwareSpec hardware = machine(8);
  const auto exactly = boost::test_tools::tolerance(1e-12);
  const auto more_than_trained = [](PlanRun run) {
    const double trained = predict_memory(run).worst().peak.activations;
    run.knobs.task = spec::TrainingTask::lora;
    return predict_memory(run).worst().peak.activations - trained;
  };
  constexpr double kLayers = 8;
  constexpr double kTokens = 4096;
  // Four adapters a layer.
  constexpr double kHalves = 4 * kTokens * 32 * 2;
  PlanRun run = run_of(dense, hardware);
  run.knobs.dp = 8;
  BOOST_TEST(more_than_trained(run) == kLayers * kHalves, exactly);
  run.knobs.lora_rank = 8;
  BOOST_TEST(more_than_trained(run) == kLayers * kHalves / 4, exactly);
  run.knobs.lora_rank = 32;
  // In FP8 the inputs of both halves of the layer once more, a byte more of the activation, and no
  // copy of attention's output.
  run.knobs.precision = spec::PrecisionRecipe::fp8_current;
  BOOST_TEST(
      more_than_trained(run) == kLayers * (kHalves + kTokens * (2 * 1024 + 2 * 1024 + 2816 - 1024)),
      exactly);
  run.knobs.precision = spec::PrecisionRecipe::bf16;
  // Both inputs of all ranks, beside a rank's own.
  run.knobs.tp = 2;
  run.knobs.dp = 4;
  BOOST_TEST(more_than_trained(run) == kLayers * (kHalves + 2 * kTokens * 1024 * 2), exactly);
  // Recomputed they come back in one layer.
  run.knobs.recompute = {PlanRecompute::full};
  BOOST_TEST(more_than_trained(run) == 0);
  PlanRun routed = run_of(moe, hardware);
  routed.knobs.dp = 8;
  routed.knobs.ep = 4;
  // Four experts of each token: so many rows on each rank.
  BOOST_TEST(
      more_than_trained(routed) == kLayers * (2 * kTokens * 32 * 2 + 2 * (4 * kTokens) * 32 * 2),
      exactly);
}

BOOST_AUTO_TEST_CASE(experts_have_replicas_of_their_own) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 8;
  const double alone = predict_memory(run).worst().peak.weights;
  run.knobs.ep = 4;
  const double spread = predict_memory(run).worst().peak.weights;
  const double experts = 2.0 * 3 *
                         static_cast<double>(model.num_layers * model.num_experts *
                                             model.moe_ffn_size * model.hidden_size);
  BOOST_TEST(alone - spread == experts * 3 / 4, boost::test_tools::tolerance(1e-12));
}

// Sharded, experts in FP8 are held by fewer replicas than dense matrices.
BOOST_AUTO_TEST_CASE(narrow_experts_have_replicas_of_their_own) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 16;
  run.knobs.ep = 8;
  run.knobs.fsdp = spec::Fsdp::megatron;
  run.knobs.precision = spec::PrecisionRecipe::fp8_current;
  const MemoryParts both = predict_memory(run).worst().peak;
  run.knobs.fp8_param_gather = true;
  const MemoryParts narrow = predict_memory(run).worst().peak;
  // Of 8 layers: 24 heads of 64 columns for queries, keys and values, 16 behind attention, in 16
  // shards; two experts of three matrices, in two.
  const double dense = 8.0 * 1024 * 64 * (24 + 16);
  const double experts = 8.0 * 2 * 3 * 512 * 1024;
  const double held = dense / 16 + experts / 2;
  BOOST_TEST(both.narrow_weights == 2 * held, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(both.weights - narrow.weights == 2 * held, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(narrow.narrow_weights == both.narrow_weights);
}

BOOST_AUTO_TEST_CASE(a_dense_layer_saves_what_korthikanti_counts) {
  // 34 s b h with dropout and GELU of four times the width (Korthikanti et al. 2022); attention is
  // fused, whose statistics are 4 bytes a head and row.
  spec::ModelSpec model = dense_model();
  model.num_kv_heads = model.num_heads;
  model.has_gated_mlp = false;
  model.ffn_size = 4 * model.hidden_size;
  model.hidden_dropout = 0.1;
  const spec::HardwareSpec hardware = machine(1);
  PlanRun run = run_of(model, hardware);
  const double activations = predict_memory(run).worst().peak.activations;
  const auto tokens = static_cast<double>(run.seq_length);
  const auto hidden = static_cast<double>(model.hidden_size);
  const double statistics = tokens * (2 * 4 + 4 * static_cast<double>(model.num_heads));
  const double per_layer = 34 * tokens * hidden + statistics;
  const double mask = tokens * hidden;  // of the embedding's dropout
  BOOST_TEST(activations == static_cast<double>(model.num_layers) * per_layer + mask,
             boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(recomputation_keeps_less_the_more_it_covers) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 8;
  run.knobs.ep = 8;
  const auto saved = [&](spec::PlanRecomputeSet modules) {
    run.knobs.recompute = modules;
    return predict_memory(run).worst().peak.activations;
  };
  const double none = saved({});
  const double activation = saved({PlanRecompute::moe_act});
  const double norm_too = saved({PlanRecompute::moe_act, PlanRecompute::layernorm});
  const double experts = saved({PlanRecompute::moe, PlanRecompute::layernorm});
  const double full = saved({PlanRecompute::full});
  BOOST_TEST(none > activation);
  BOOST_TEST(activation > norm_too);
  BOOST_TEST(norm_too > experts);
  BOOST_TEST(experts > full);
  // Attention is fused: its core leaves only statistics to drop.
  BOOST_TEST(saved({PlanRecompute::core_attn}) > 0.99 * none);
  // Full recomputation keeps a layer's input: two bytes an element.
  const double input = 2.0 * static_cast<double>(run.seq_length * model.hidden_size);
  BOOST_TEST(full == static_cast<double>(model.num_layers) * input);
}

BOOST_AUTO_TEST_CASE(stages_hold_as_many_micro_batches_as_their_schedule) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(4);
  PlanRun run = run_of(model, hardware);
  run.knobs.pp = 4;
  run.global_batch_size = 16;
  for (int stage = 0; stage < 4; ++stage) {
    BOOST_TEST(micro_batches_in_flight(run, stage) == std::vector<int64_t>{4 - stage},
               boost::test_tools::per_element());
  }
  run.global_batch_size = 2;
  BOOST_TEST(micro_batches_in_flight(run, 0).front() == 2);
  run.global_batch_size = 16;
  run.knobs.vpp = 2;
  // 2 (4 - 1) + 4 + 1 forwards come first, in groups of four.
  const std::vector<int64_t> first = micro_batches_in_flight(run, 0);
  BOOST_TEST(std::accumulate(first.begin(), first.end(), int64_t{0}) == 11);
  BOOST_TEST(first == (std::vector<int64_t>{7, 4}), boost::test_tools::per_element());
  BOOST_TEST(micro_batches_in_flight(run, 3) == (std::vector<int64_t>{4, 1}),
             boost::test_tools::per_element());
  run.knobs.overlap_moe_expert_parallel_comm = true;
  const std::vector<int64_t> with = micro_batches_in_flight(run, 0);
  BOOST_TEST(std::accumulate(with.begin(), with.end(), int64_t{0}) == 12);
}

// GPipe and its like do all forwards first: every stage has the whole step in flight.
BOOST_AUTO_TEST_CASE(forwards_first_hold_the_whole_step) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(4);
  PlanRun run = run_of(model, hardware);
  run.knobs.pp = 4;
  run.global_batch_size = 16;
  const MemoryPrediction usual = predict_memory(run);
  run.holds_all_micro_batches = true;
  for (int stage = 0; stage < 4; ++stage) {
    BOOST_TEST(micro_batches_in_flight(run, stage) == std::vector<int64_t>{16},
               boost::test_tools::per_element());
  }
  const MemoryPrediction held = predict_memory(run);
  // 16 in flight instead of 4 - stage.
  for (size_t stage = 0; stage < 4; ++stage) {
    BOOST_TEST(held.stages[stage].peak.activations ==
                   usual.stages[stage].peak.activations * 16 / (4.0 - static_cast<double>(stage)),
               boost::test_tools::tolerance(1e-9));
  }
  run.knobs.vpp = 2;
  BOOST_TEST(micro_batches_in_flight(run, 3) == (std::vector<int64_t>{16, 16}),
             boost::test_tools::per_element());
  run.knobs.pp = 1;
  run.knobs.vpp = 1;
  BOOST_TEST(micro_batches_in_flight(run, 0) == std::vector<int64_t>{1},
             boost::test_tools::per_element());
}

// torch's virtual stages take micro-batches in as many rounds as pp goes into them, at least one;
// Megatron-Core's in rounds of pp alone.
BOOST_AUTO_TEST_CASE(rounds_are_those_of_the_engine) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(4);
  PlanRun run = run_of(model, hardware);
  run.knobs.pp = 4;
  run.knobs.vpp = 2;
  struct Rounds {
    int64_t micro_batches;
    bool is_legal_in_megatron;
    bool is_legal_in_torch;
  };
  // 10: two rounds of 5. 9: two of 4 and one left.
  for (const Rounds& row : {Rounds{8, true, true},
                            {6, false, true},
                            {2, false, true},
                            {10, false, true},
                            {9, false, false}}) {
    run.global_batch_size = row.micro_batches;
    for (const bool is_of_megatron : {true, false}) {
      run.is_of_megatron = is_of_megatron;
      const PlanRule* broken = broken_rule(run);
      const bool is_legal = is_of_megatron ? row.is_legal_in_megatron : row.is_legal_in_torch;
      BOOST_TEST((broken == nullptr) == is_legal, row.micro_batches << " of " << is_of_megatron);
      if (broken != nullptr) BOOST_TEST(broken->name == "vpp_divides_micro_batches");
    }
  }
  run.is_of_megatron = false;
  // One round of 6: 2 x 3 + 6 + 1 forwards, at most 2 x 6; on the last stage 6 + 1.
  run.global_batch_size = 6;
  BOOST_TEST(micro_batches_in_flight(run, 0) == (std::vector<int64_t>{6, 6}),
             boost::test_tools::per_element());
  BOOST_TEST(micro_batches_in_flight(run, 3) == (std::vector<int64_t>{6, 1}),
             boost::test_tools::per_element());
  run.global_batch_size = 2;
  BOOST_TEST(micro_batches_in_flight(run, 0) == (std::vector<int64_t>{2, 2}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_loss_needs_its_logits) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(1);
  PlanRun run = run_of(model, hardware);
  const auto logits = static_cast<double>(run.seq_length * model.vocab_size);
  const auto hidden = static_cast<double>(run.seq_length * model.hidden_size);
  run.knobs.cross_entropy = spec::CrossEntropy::unfused;
  const StageMemory unfused = predict_memory(run).worst();
  BOOST_TEST(unfused.moment == "loss");
  BOOST_TEST(unfused.peak.transient == 6 * logits + 4 * hidden);
  // Compiled code makes probabilities beside the wide logits.
  run.knobs.cross_entropy = spec::CrossEntropy::native;
  BOOST_TEST(predict_memory(run).worst().peak.transient == 10 * logits + 4 * hidden);
  run.knobs.cross_entropy = spec::CrossEntropy::chunked;
  BOOST_TEST(predict_memory(run).worst().peak.transient < logits);
  run.knobs.cross_entropy = spec::CrossEntropy::te;
  BOOST_TEST(predict_memory(run).worst().peak.transient == 2 * logits + 8 * hidden);
}

// Where there is room the allocator keeps blocks to use again; at the largest peak that fits it has
// given back so many that no more is reserved than there is.
BOOST_AUTO_TEST_CASE(what_fits_reserves_no_more_than_there_is) {
  constexpr double kGiB = 1 << 30;
  const double capacity = 80 * kGiB;
  const auto near = boost::test_tools::tolerance(1e-12);
  BOOST_TEST(reserved_bytes(40 * kGiB, 0, capacity) == 42.9 * kGiB, near);
  BOOST_TEST(reserved_bytes(40 * kGiB, 2 * kGiB, capacity) == 44.9 * kGiB, near);
  BOOST_TEST(reserved_bytes(76 * kGiB, 0, 0) == 81.06 * kGiB, near);
  // 1.02 x 75 + 2.5 are 79 GiB.
  BOOST_TEST(device_bytes(75 * kGiB) == 79 * kGiB, near);
  BOOST_TEST(reserved_bytes(75 * kGiB, 0, capacity) == 77.5 * kGiB, near);
  BOOST_TEST(reserved_bytes(73 * kGiB, 2 * kGiB, capacity) == 77.5 * kGiB, near);
  BOOST_TEST(reserved_bytes(100 * kGiB, 0, capacity) == 102 * kGiB, near);
}

BOOST_AUTO_TEST_CASE(a_prepared_pipeline_says_the_same) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 4;
  run.knobs.pp = 2;
  run.knobs.ep = 4;
  run.global_batch_size = 32;
  const PreparedMemory prepared(run);
  for (const spec::PlanRecomputeSet recompute :
       {spec::PlanRecomputeSet{}, spec::PlanRecomputeSet{PlanRecompute::moe},
        spec::PlanRecomputeSet{PlanRecompute::full}}) {
    for (const double load : {1.0, 2.5}) {
      run.knobs.recompute = recompute;
      run.load = load;
      BOOST_TEST(prepared.peak_bytes(run.knobs, load) == predict_memory(run).peak_bytes());
    }
  }
}

BOOST_AUTO_TEST_CASE(gated_delta_net_keeps_what_its_kernels_take) {
  const spec::ModelSpec model = hybrid_model(1);
  const spec::HardwareSpec hardware = machine(1);
  const PlanRun run = run_of(model, hardware);
  const LayerSizes sizes = sizes_of(run, model.kind_of(0), 0);
  // Per token: 8 key heads and 16 value heads of 64. Output of the input projection 3104 columns
  // (the convolution's input 2048, the gate, two of each value head), normalized queries and keys
  // 1024, the same for each value head 2048, values 1024, 64 of a chunk's triangle for each head,
  // and four times the values; 12 bytes a head in 32 bits.
  const double columns = 3104 + 1024 + 2048 + 1024 + 64 * 16 + 4 * 1024;
  const auto of_name = [](const SavedTerm& term) { return term.name == "Gated DeltaNet"; };
  const SavedTerm& term = *std::ranges::find_if(saved_terms(), of_name);
  BOOST_TEST(term.bytes(sizes, run.knobs) ==
             static_cast<double>(run.seq_length) * (2 * columns + 12 * 16));
}

BOOST_AUTO_TEST_CASE(the_largest_layer_is_recomputed_too) {
  // Gated DeltaNet keeps more than attention: where it is not the stage's last layer, the inputs of
  // those behind it are gone by then.
  const spec::HardwareSpec hardware = machine(1);
  const auto transient = [&](int64_t period) {
    const spec::ModelSpec model = hybrid_model(period);
    PlanRun run = run_of(model, hardware);
    run.knobs.cross_entropy = spec::CrossEntropy::chunked;
    run.knobs.recompute = {PlanRecompute::full};
    return predict_memory(run).worst().peak.transient;
  };
  const spec::ModelSpec model = hybrid_model(1);
  const double input = 2.0 * static_cast<double>(4096 * model.hidden_size);
  BOOST_TEST(transient(1) - transient(4) == input);
}

BOOST_AUTO_TEST_CASE(chunks_of_rows_take_turns_where_they_are_recomputed) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 8;
  run.knobs.ep = 8;
  run.knobs.cross_entropy = spec::CrossEntropy::chunked;
  const double kept = predict_memory(run).peak_bytes();
  run.ep_chunks = 2;
  BOOST_TEST(predict_memory(run).peak_bytes() == kept);
  run.ep_chunks = 1;
  run.knobs.recompute = {PlanRecompute::full};
  const double whole = predict_memory(run).peak_bytes();
  run.ep_chunks = 2;
  // Half of the rows that are received, multiplied and sorted again, and of experts' activations.
  const double rows = 4096.0 * 4;
  const double half =
      rows * 2 *
      (3 * static_cast<double>(model.hidden_size) + static_cast<double>(model.moe_ffn_size)) / 2;
  BOOST_TEST(whole - predict_memory(run).peak_bytes() == half);
}

// A layer's input has 2 bytes for each of 4096 x 1024 elements.
constexpr double kLayerInput = 2.0 * 4096 * 1024;

BOOST_AUTO_TEST_CASE(of_a_block_the_first_layers_are_recomputed) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  const auto exactly = boost::test_tools::tolerance(1e-12);
  PlanRun run = run_of(model, hardware);
  run.knobs.cross_entropy = spec::CrossEntropy::chunked;
  const StageMemory none = predict_memory(run).worst();
  const double kept = none.peak.activations / 8;
  run.knobs.recompute = {PlanRecompute::full};
  const StageMemory all = predict_memory(run).worst();
  BOOST_TEST(all.peak.activations == 8 * kLayerInput, exactly);
  run.knobs.recompute_method = spec::RecomputeMethod::block;
  double before = none.peak.total();
  for (const int layers : {1, 3, 5, 7}) {
    run.knobs.recompute_num_layers = layers;
    const StageMemory some = predict_memory(run).worst();
    BOOST_TEST(some.peak.activations == layers * kLayerInput + (8 - layers) * kept, exactly);
    // The last layer has no tensors again: its backward takes what it takes without recomputation.
    BOOST_TEST(some.peak.transient == none.peak.transient, exactly);
    BOOST_TEST(some.peak.total() < before);
    before = some.peak.total();
  }
  for (const int layers : {8, 20}) {
    run.knobs.recompute_num_layers = layers;
    BOOST_TEST(predict_memory(run).worst().peak.total() == all.peak.total(), exactly);
  }
  // Of four layers of each of two stages; the first has two micro-batches in flight.
  run.knobs.recompute_num_layers = 1;
  run.knobs.pp = 2;
  BOOST_TEST(predict_memory(run).stages[0].peak.activations == 2 * (kLayerInput + 3 * kept),
             exactly);
  BOOST_TEST(predict_memory(run).stages[1].peak.activations == kLayerInput + 3 * kept, exactly);
  // Two layers of each virtual stage: one of both is recomputed.
  run.knobs.vpp = 2;
  const StageMemory virtual_stages = predict_memory(run).stages[1];
  const std::vector<int64_t> in_flight = micro_batches_in_flight(run, 1);
  BOOST_TEST(virtual_stages.peak.activations ==
                 static_cast<double>(in_flight[0] + in_flight[1]) * (kLayerInput + kept),
             exactly);
}

BOOST_AUTO_TEST_CASE(groups_of_layers_keep_one_input_and_are_there_at_once) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(1);
  const auto exactly = boost::test_tools::tolerance(1e-12);
  PlanRun run = run_of(model, hardware);
  run.knobs.cross_entropy = spec::CrossEntropy::chunked;
  const double layer = predict_memory(run).worst().peak.activations / 8;
  run.knobs.recompute = {PlanRecompute::full};
  const MemoryParts each = predict_memory(run).worst().peak;
  const auto of_groups = [&](int layers) {
    run.knobs.recompute_num_layers = layers;
    return predict_memory(run).worst().peak;
  };
  const MemoryParts fours = of_groups(4);
  BOOST_TEST(fours.activations == 2 * kLayerInput, exactly);
  BOOST_TEST(fours.transient - each.transient == 3 * layer, exactly);
  // Three, three and two layers: when a full group is there, the last input is gone.
  const MemoryParts threes = of_groups(3);
  BOOST_TEST(threes.activations == 3 * kLayerInput, exactly);
  BOOST_TEST(threes.transient - each.transient == 2 * layer - kLayerInput, exactly);
  const MemoryParts whole = of_groups(100);
  BOOST_TEST(whole.activations == kLayerInput, exactly);
  BOOST_TEST(whole.transient - each.transient == 7 * layer, exactly);
}

// Stages with as many layers of each kind, in another order: those in the middle, beside which the
// others are small.
BOOST_AUTO_TEST_CASE(a_prepared_pipeline_knows_the_order_of_its_layers) {
  using spec::Mixer;
  const spec::HardwareSpec hardware = machine(4);
  for (const Mixer outer : {Mixer::gqa, Mixer::gdn}) {
    for (const Mixer first : {Mixer::gqa, Mixer::gdn}) {
      const Mixer second = first == Mixer::gqa ? Mixer::gdn : Mixer::gqa;
      spec::ModelSpec model = hybrid_model(1);
      model.vocab_size = 64;
      model.layer_kinds.clear();
      for (const Mixer mixer : {outer, outer, first, second, second, first, outer, outer}) {
        model.layer_kinds.push_back({mixer, spec::FeedForward::moe});
      }
      PlanRun run = run_of(model, hardware);
      run.knobs.pp = 4;
      run.global_batch_size = 1;
      run.knobs.recompute = {PlanRecompute::full};
      for (const auto method : {spec::RecomputeMethod::block, spec::RecomputeMethod::uniform}) {
        run.knobs.recompute_method = method;
        for (const int layers : {1, 2}) {
          run.knobs.recompute_num_layers = layers;
          const PreparedMemory prepared(run);
          BOOST_TEST(prepared.peak_bytes(run.knobs, 1) == predict_memory(run).peak_bytes());
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(layers_of_further_tokens_are_in_no_block) {
  spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(1);
  const auto exactly = boost::test_tools::tolerance(1e-12);
  PlanRun run = run_of(model, hardware);
  const double kept = predict_memory(run).worst().peak.activations / 8;
  model.mtp = {.depth = 1, .layers = {model.kind_of(7)}};
  run.knobs.recompute = {PlanRecompute::full};
  const double each = predict_memory(run).worst().peak.activations;
  run.knobs.recompute_method = spec::RecomputeMethod::block;
  run.knobs.recompute_num_layers = 8;
  const double block = predict_memory(run).worst().peak.activations;
  BOOST_TEST(block - each == kept - kLayerInput, exactly);
}

BOOST_AUTO_TEST_CASE(uneven_routing_costs_memory) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 8;
  run.knobs.ep = 8;
  const double balanced = predict_memory(run).peak_bytes();
  run.load = 2;
  BOOST_TEST(predict_memory(run).peak_bytes() > balanced);
  // Of a capacity nobody gets more, whatever the router says.
  run.knobs.capacity_factor = 1;
  BOOST_TEST(predict_memory(run).peak_bytes() == balanced);
}

// torchtitan: FSDP2 shards the 32-bit weights that the optimizer updates, beside gradients and two
// moments, and none in 8 bits. Megatron-Core has 16-bit weights, and master weights with the state.
BOOST_AUTO_TEST_CASE(titan_shards_the_weights_that_are_updated) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  const auto n = static_cast<double>(model.num_parameters());
  const auto exactly = boost::test_tools::tolerance(1e-12);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 8;
  run.knobs.fsdp = spec::Fsdp::torch;
  run.knobs.precision = spec::PrecisionRecipe::fp8_current;
  const MemoryParts megatron = predict_memory(run).worst().peak;
  BOOST_TEST(megatron.weights == 2 * n / 8, exactly);
  BOOST_TEST(megatron.optimizer == 12 * n / 8, exactly);
  BOOST_TEST(megatron.narrow_weights > 0);
  run.is_of_megatron = false;
  const StageMemory titan = predict_memory(run).worst();
  BOOST_TEST(titan.peak.weights == 4 * n / 8, exactly);
  BOOST_TEST(titan.peak.gradients == 4 * n / 8, exactly);
  BOOST_TEST(titan.peak.optimizer == 8 * n / 8, exactly);
  BOOST_TEST(titan.peak.narrow_weights == 0);
  BOOST_TEST(titan.peak.gathered == megatron.gathered);
  BOOST_TEST(titan.at_start == 4 * n / 8, exactly);
  BOOST_TEST(titan.first_step == titan.peak.total() - n, exactly);
  // Many configurations of the same sizes are priced alike.
  BOOST_TEST(PreparedMemory(run).peak_bytes(run.knobs, 1) == titan.peak.total(), exactly);
  // Offloaded is all of it.
  run.knobs.optimizer_offload_ratio = 1;
  const MemoryParts offloaded = predict_memory(run).worst().peak;
  BOOST_TEST(offloaded.weights + offloaded.gradients + offloaded.optimizer == 0);
  run.knobs.optimizer_offload_ratio = 0;
  // All in 16 bits, and no copy of the gradients.
  run.knobs.main_params = run.knobs.main_grads = spec::StateType::bf16;
  run.knobs.exp_avg = run.knobs.exp_avg_sq = spec::StateType::bf16;
  run.seq_length = 1;
  const StageMemory narrow = predict_memory(run).worst();
  BOOST_TEST(narrow.peak.weights == 2 * n / 8, exactly);
  BOOST_TEST(narrow.peak.gradients == 2 * n / 8, exactly);
  BOOST_TEST(narrow.peak.optimizer == 4 * n / 8, exactly);
  BOOST_TEST(narrow.moment != "update");
}

// Beside pipeline stages weights stay gathered, and gradients are summed up unsharded until the
// last micro-batch. A layer has 1024 x (16 + 4 + 4 + 16) x 64 + 3 x 1024 x 2816 + 2 x 1024 weights.
BOOST_AUTO_TEST_CASE(titan_holds_whole_stages_beside_a_pipeline) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  const auto exactly = boost::test_tools::tolerance(1e-12);
  constexpr double kLayer = 2621440 + 8650752 + 2048;
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 2;
  run.knobs.pp = 4;
  run.knobs.fsdp = spec::Fsdp::torch;
  // Of two layers, without embedding or head.
  const MemoryParts megatron = predict_memory(run).stages[1].peak;
  BOOST_TEST(megatron.gradients == 4 * kLayer, exactly);
  BOOST_TEST(megatron.gathered == 8 * kLayer, exactly);
  run.is_of_megatron = false;
  const MemoryParts titan = predict_memory(run).stages[1].peak;
  BOOST_TEST(titan.weights == 4 * kLayer, exactly);
  BOOST_TEST(titan.optimizer == 8 * kLayer, exactly);
  BOOST_TEST(titan.gradients == 4 * 2 * kLayer, exactly);
  // Both layers, and one's fresh gradients, in 16 bits.
  BOOST_TEST(titan.gathered == 2 * 3 * kLayer, exactly);
  BOOST_TEST(titan.activations == megatron.activations, exactly);
  // One micro-batch of each replica is the last.
  run.global_batch_size = 2;
  BOOST_TEST(predict_memory(run).stages[1].peak.gradients == 4 * kLayer, exactly);
}

// 4096 x 32000 logits beside the inputs of norm and head: compiled, 2 bytes and 2 of the gradient;
// else 4 each of the log-softmax and two gradients, with loss parallelism of half the logits one
// more.
BOOST_AUTO_TEST_CASE(titans_loss_has_three_wide_arrays_unless_compiled) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  const auto exactly = boost::test_tools::tolerance(1e-12);
  constexpr double kInputs = 4096.0 * 1024 * 4;
  constexpr double kLogits = 4096.0 * 32000;
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 8;
  run.knobs.fsdp = spec::Fsdp::torch;
  const auto transient = [&](spec::CrossEntropy loss) {
    run.knobs.cross_entropy = loss;
    const StageMemory memory = predict_memory(run).worst();
    BOOST_TEST(memory.moment == "loss");
    return memory.peak.transient;
  };
  BOOST_TEST(transient(spec::CrossEntropy::unfused) == kInputs + 6 * kLogits, exactly);
  BOOST_TEST(transient(spec::CrossEntropy::native) == kInputs + 10 * kLogits, exactly);
  run.is_of_megatron = false;
  BOOST_TEST(transient(spec::CrossEntropy::unfused) == kInputs + 12 * kLogits, exactly);
  BOOST_TEST(transient(spec::CrossEntropy::native) == kInputs + 4 * kLogits, exactly);
  run.knobs.dp = 4;
  run.knobs.tp = 2;
  run.knobs.sequence_parallel = false;
  BOOST_TEST(transient(spec::CrossEntropy::unfused) == kInputs + 16 * kLogits / 2, exactly);
}

// By operation: input, queries, values, gate, down and attention's output (1024 + 1024 + 256 + 2816
// + 1024 + 1024 columns of 2 bytes), log-sum-exp of 16 heads. Which modules were asked for, and the
// precision of products, does not matter.
BOOST_AUTO_TEST_CASE(titans_selective_checkpointing_keeps_every_second_product) {
  const spec::ModelSpec model = dense_model();
  const spec::HardwareSpec hardware = machine(8);
  const auto exactly = boost::test_tools::tolerance(1e-12);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 8;
  run.knobs.fsdp = spec::Fsdp::torch;
  const auto activations = [&] { return predict_memory(run).worst().peak.activations; };
  const double kept_all = activations();
  run.is_of_megatron = false;
  BOOST_TEST(activations() == kept_all);
  constexpr double kTokens = 4096;
  constexpr double kLayers = 8;
  run.knobs.recompute = {PlanRecompute::layernorm};
  BOOST_TEST(activations() == kLayers * kTokens * (2 * 7168 + 4 * 16), exactly);
  run.knobs.recompute = {PlanRecompute::core_attn, PlanRecompute::mlp};
  run.knobs.precision = spec::PrecisionRecipe::fp8_current;
  BOOST_TEST(activations() == kLayers * kTokens * (2 * 7168 + 4 * 16), exactly);
  run.knobs.recompute = {PlanRecompute::full};
  BOOST_TEST(activations() == kLayers * kTokens * 2 * 1024, exactly);
  // Of two ranks each has half of the columns but for those of the last product, half of the rows
  // of the input, and of what two products have scattered.
  run.knobs.recompute = {PlanRecompute::layernorm};
  run.knobs.dp = 4;
  run.knobs.tp = 2;
  run.knobs.sequence_parallel = true;
  BOOST_TEST(
      activations() == kLayers * kTokens * (3 * 1024 + 2 * (512 + 128 + 1408 + 1024 + 512) + 4 * 8),
      exactly);
}

BOOST_AUTO_TEST_CASE(only_a_padded_capacity_costs_memory) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(8);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 8;
  run.knobs.ep = 8;
  const auto peak_of = [&](double load, float capacity, bool pads) {
    run.load = load;
    run.knobs.capacity_factor = capacity;
    run.knobs.pad_to_capacity = pads;
    BOOST_TEST(expert_rows_ratio(run) == (pads && capacity > 0 ? static_cast<double>(capacity)
                                          : capacity > 0
                                              ? std::min(load, static_cast<double>(capacity))
                                              : load));
    return predict_memory(run).peak_bytes();
  };
  const double balanced = peak_of(1, 0, false);
  const double uneven = peak_of(2, 0, false);
  // Nothing is dropped, and nothing added.
  BOOST_TEST(peak_of(1, 8, false) == balanced);
  BOOST_TEST(peak_of(2, 2, false) == uneven);
  BOOST_TEST(peak_of(2, 8, false) == uneven);
  // What is beyond is dropped.
  BOOST_TEST(peak_of(8, 2, false) == uneven);
  // Rows as the capacity says, whatever the router does.
  BOOST_TEST(peak_of(1, 2, true) == uneven);
  BOOST_TEST(peak_of(8, 2, true) == uneven);
  BOOST_TEST(peak_of(8, 1, true) == balanced);
  // Without a capacity there is nothing to pad to.
  BOOST_TEST(peak_of(2, 0, true) == uneven);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::tuner::planner
