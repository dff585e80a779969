// Parallel axes beyond those of the parity suite: each layout trains like one rank, has the memory
// that the model predicts, and plays to the nanosecond.
#include <boost/test/unit_test.hpp>

#include "engine/plan/schedules/schedule.h"
#include "tests/engine/memory_fixture.h"
#include "tests/engine/played_fixture.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(axes)

namespace {

/// Six layers, so that stages can be uneven.
spec::ModelSpec deep_model() {
  spec::ModelSpec model = testing::tiny_model();
  model.num_layers = 6;
  model.is_moe_layer = {true, false, true, true, false, true};
  model.attention_window = {0, 0, 5, 0, 0, 0};
  model.shared_ffn_size = 8;
  model.ties_embeddings = true;
  return model;
}

spec::TrialSpec trial_of(const std::string& layout) {
  spec::TrialSpec trial = testing::tiny_trial(deep_model(), testing::knobs_of(layout));
  trial.training.global_batch_size = 12;
  testing::check_constraints_hold(trial);
  return trial;
}

const char* const kVirtualStages[] = {
    R"({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2})",
    R"({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 3,
        "recompute": "full"})",
    R"({"pipeline_model_parallel_size": 3, "virtual_pipeline_model_parallel_size": 2,
        "data_parallel_size": 2, "expert_model_parallel_size": 2, "overlap_grad_reduce": true})",
    R"({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2,
        "decoder_first_pipeline_num_layers": 2, "context_parallel_size": 2,
        "expert_model_parallel_size": 2, "recompute": "norm,experts"})",
    R"({"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": "Et|ttt|t|tL"})",
    R"({"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": "E|(tt|)*2ttL"})",
    R"({"pipeline_model_parallel_size": 3, "pipeline_model_parallel_layout": "Et|tttt|tL"})",
    R"({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 3,
        "tensor_model_parallel_size": 2, "expert_model_parallel_size": 2})",
    R"({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2,
        "decoder_last_pipeline_num_layers": 2, "data_parallel_size": 2,
        "expert_tensor_parallel_size": 2, "ep_chunks_forward": 2})",
    R"({"pipeline_model_parallel_size": 3, "pipeline_model_parallel_layout": "Et|t|t|t|t|tL",
        "context_parallel_size": 2, "cp_comm_type": "p2p", "recompute": "core_attn"})",
    R"({"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": "E|tt|ttt|tL",
        "tensor_model_parallel_size": 2, "context_parallel_size": 2, "cp_comm_type": "p2p",
        "expert_tensor_parallel_size": 2, "expert_model_parallel_size": 2})",
};

BOOST_AUTO_TEST_CASE(virtual_stages) {
  const testing::TrainingRun expected = testing::train(trial_of("{}"), 3);
  const spec::RoutingProfile profile = testing::record_profile(trial_of("{}"));
  for (const char* layout : kVirtualStages) {
    BOOST_TEST_CONTEXT(layout) {
      const spec::TrialSpec trial = trial_of(layout);
      testing::check_close(testing::train(trial, 3), expected, 1e-5);
      testing::check_memory(trial, profile);
      for (const spec::ClockMode clock :
           {spec::ClockMode::virtual_modelled, spec::ClockMode::virtual_measured}) {
        spec::TrialSpec timed = trial;
        timed.clock = clock;
        testing::check_played(timed);
      }
    }
  }
}

// Five pipeline ranks with two virtual stages each: a channel has more than the two slots that are
// enough for all other layouts here.
BOOST_AUTO_TEST_CASE(a_long_interleaved_pipeline_has_more_slots) {
  const auto of_ten_layers = [](const char* knobs) {
    spec::ModelSpec model = testing::tiny_model();
    model.num_layers = 10;
    model.is_moe_layer.assign(10, true);
    model.attention_window.assign(10, 0);
    spec::TrialSpec trial = testing::tiny_trial(model, testing::knobs_of(knobs));
    trial.training.global_batch_size = 10;
    testing::check_constraints_hold(trial);
    return trial;
  };
  const spec::TrialSpec trial = of_ten_layers(
      R"({"pipeline_model_parallel_size": 5, "virtual_pipeline_model_parallel_size": 2})");
  BOOST_TEST(plan::message_slots(5, 2) == 3);
  testing::check_close(testing::train(trial, 2), testing::train(of_ten_layers("{}"), 2), 1e-5);
  testing::check_memory(trial, testing::record_profile(of_ten_layers("{}")));
  testing::check_played(trial);
}

// 15 tokens have no halves, sequences of them do.
BOOST_AUTO_TEST_CASE(tensor_parallel_ranks_take_whole_sequences) {
  const auto of_odd_sequences = [](const char* knobs) {
    spec::TrialSpec trial = testing::tiny_trial(testing::mixed_model(), testing::knobs_of(knobs));
    trial.training.seq_length = 15;
    testing::check_constraints_hold(trial);
    return trial;
  };
  const testing::TrainingRun expected = testing::train(of_odd_sequences("{}"), 3);
  for (const char* knobs :
       {R"({"tensor_model_parallel_size": 2, "micro_batch_size": 2, "recompute": "full"})",
        R"({"tensor_model_parallel_size": 2, "micro_batch_size": 4,
            "expert_model_parallel_size": 2})"}) {
    BOOST_TEST_CONTEXT(knobs) {
      testing::check_close(testing::train(of_odd_sequences(knobs), 3), expected, 1e-5);
    }
  }
}

/// FLOPs of an operation in a step, all passes together.
int64_t flops_of(const plan::StepProgram& program, plan::Op op) {
  int64_t flops = 0;
  plan::for_each(program, [&](const plan::Item&, const plan::Segment&, const plan::Instr& instr) {
    if (instr.verb == plan::Verb::op && instr.op == op) flops += instr.cost.flops;
  });
  return flops;
}

// What a rank holds and computes is a share of it, and not the whole thing on the way to it.
BOOST_AUTO_TEST_CASE(a_rank_shrinks_by_tensor_parallelism) {
  spec::ModelSpec model = testing::mixed_model();
  model.is_moe_layer = {false, false, false};
  model.num_experts = 0;
  const spec::TrialSpec whole = testing::tiny_trial(model, testing::knobs_of("{}"));
  const spec::TrialSpec half =
      testing::tiny_trial(model, testing::knobs_of(R"({"tensor_model_parallel_size": 2})"));
  const plan::StepProgram one = plan::compile(whole, 0);
  const plan::StepProgram two = plan::compile(half, 1);
  using plan::Op;
  for (const Op op : {Op::qkv_proj, Op::core_attn, Op::o_proj, Op::mlp_fc1, Op::mlp_act,
                      Op::mlp_fc2, Op::lm_head, Op::rope, Op::attn_norm, Op::final_norm}) {
    BOOST_TEST_CONTEXT(plan::op_row(op).name) {
      BOOST_TEST(flops_of(one, op) > 0);
      BOOST_TEST(flops_of(two, op) * 2 == flops_of(one, op));
    }
  }
  const auto ledger_of = [](const spec::TrialSpec& trial) {
    return testing::train(trial, 1).ledgers.front().peak_by_group();
  };
  const auto before = ledger_of(whole);
  const auto after = ledger_of(half);
  // Norms and biases of whole outputs are on every rank.
  int64_t replicated = 0;
  for (const plan::BucketDesc& bucket : two.params.buckets) {
    if (bucket.group == plan::Group::stage) replicated += bucket.numel;
  }
  const auto at = [](const auto& groups, profiler::MemoryGroup group) {
    return groups[static_cast<size_t>(group)];
  };
  using profiler::MemoryGroup;
  const int64_t bytes = base::size_of(base::DType::f32);
  BOOST_TEST(at(after, MemoryGroup::weights) <=
             at(before, MemoryGroup::weights) / 2 + replicated * bytes);
  BOOST_TEST(at(after, MemoryGroup::gradients) <=
             at(before, MemoryGroup::gradients) / 2 + replicated * bytes);
  // Buffers this small are mostly alignment.
  BOOST_TEST(at(after, MemoryGroup::activations) * 100 <=
             at(before, MemoryGroup::activations) * 55);
}

// What the experts are is cut by etp: a rank's weights and what its rows become. Each slice has as
// many rows as the whole expert had, so ranks that hold all slices of fewer experts hold the same.
BOOST_AUTO_TEST_CASE(experts_shrink_by_expert_tensor_parallelism) {
  const auto trial_with = [](const char* knobs) {
    return testing::tiny_trial(testing::tiny_model(), testing::knobs_of(knobs));
  };
  const spec::TrialSpec whole = trial_with(R"({"data_parallel_size": 2})");
  const spec::TrialSpec half =
      trial_with(R"({"data_parallel_size": 2, "expert_tensor_parallel_size": 2})");
  const auto weights_of = [](const spec::TrialSpec& trial) {
    return testing::train(trial, 1).ledgers.front().peak_by_group()[static_cast<size_t>(
        profiler::MemoryGroup::weights)];
  };
  int64_t expert_numel = 0;
  for (const plan::BucketDesc& bucket : plan::compile(whole, 0).params.buckets) {
    if (bucket.group == plan::Group::edp) expert_numel += bucket.numel;
  }
  BOOST_TEST(expert_numel > 0);
  BOOST_TEST(weights_of(half) ==
             weights_of(whole) - expert_numel / 2 * base::size_of(base::DType::f32));
  const auto cols_of = [](const spec::TrialSpec& trial, plan::Buf buf) {
    const plan::LayerDims dims =
        plan::layer_dims(trial.model, trial.knobs, trial.training.seq_length, 0);
    return plan::buffer_row(buf).cols(dims);
  };
  for (const plan::Buf buf : {plan::Buf::fc1_out, plan::Buf::act_out}) {
    BOOST_TEST(cols_of(half, buf) * 2 == cols_of(whole, buf));
  }
}

// Of the keys and values that travel, and of their gradients: those at hand and those on their way.
// A rank's own stay saved in its projections for the backward pass, as without a ring.
BOOST_AUTO_TEST_CASE(a_ring_holds_two_blocks_of_keys) {
  const spec::TrialSpec trial = testing::tiny_trial(
      testing::tiny_model(),
      testing::knobs_of(R"({"context_parallel_size": 4, "cp_comm_type": "p2p"})"));
  const plan::StepProgram program = plan::compile(trial, 1);
  const plan::LayerDims dims =
      plan::layer_dims(trial.model, trial.knobs, trial.training.seq_length, 0);
  const int64_t block =
      profiler::aligned_bytes(dims.block_tokens * 2 * dims.kv * base::size_of(base::DType::f32));
  struct Held {
    int64_t live = 0;
    int64_t most = 0;
  };
  Held blocks;
  Held gradients;
  plan::for_each(program, [&](const plan::Item&, const plan::Segment&, const plan::Instr& instr) {
    if (instr.verb != plan::Verb::alloc && instr.verb != plan::Verb::free) return;
    if (instr.refs.front().space != plan::Space::frame) return;
    const auto count = [&](Held& held) {
      held.live +=
          (instr.verb == plan::Verb::alloc ? 1 : -1) * profiler::aligned_bytes(instr.cost.bytes);
      held.most = std::max(held.most, held.live);
    };
    switch (static_cast<plan::Buf>(instr.refs.front().id)) {
      case plan::Buf::kv_gathered:
      case plan::Buf::kv_full:
      case plan::Buf::kv_local:
      case plan::Buf::kv_ring:
        return count(blocks);
      case plan::Buf::d_kv_local:
      case plan::Buf::d_kv_ring:
        return count(gradients);
      default:
        return;
    }
  });
  BOOST_TEST(blocks.most == 2 * block);
  BOOST_TEST(gradients.most == 2 * block);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
