// What waits in the host's memory: saved activations between forward and backward, and the
// optimizer's state between updates.
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <map>
#include <set>

#include "tests/plan/planned_models.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(offload_pass)

namespace {

using spec::Offload;
using testing::error_of;
using testing::ModelSpec;
using testing::num_ranks;

Planned planned_for(const spec::OffloadSet& modules, spec::Fsdp fsdp = spec::Fsdp::none) {
  Planned planned;
  planned.offload = modules;
  planned.fsdp = fsdp;
  return planned;
}

const spec::OffloadSet kAll{Offload::attn_norm, Offload::qkv_linear, Offload::core_attn,
                            Offload::attn_proj, Offload::mlp_norm,   Offload::expert_fc1,
                            Offload::moe_act};

const char* const kLayouts[] = {
    "{}",
    R"({"recompute": "norm,core_attn"})",
    R"({"recompute": "full"})",
    R"({"context_parallel_size": 2})",
    R"({"tensor_model_parallel_size": 2, "data_parallel_size": 2})",
    R"({"pipeline_model_parallel_size": 2})",
    R"({"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2})",
};
const char* const kExpertLayouts[] = {
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "ep_chunks_forward": 2,
        "ep_chunks_backward": 2})",
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "recompute": "experts",
        "pipeline_model_parallel_size": 2})",
};

/// Of those with experts, such as overlap over micro-batches takes.
const char* const kWovenLayouts[] = {
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2})",
    R"({"data_parallel_size": 4, "expert_model_parallel_size": 2, "pipeline_model_parallel_size": 2,
        "virtual_pipeline_model_parallel_size": 2, "ep_chunks_forward": 2})",
};

Planned woven_for(const spec::OffloadSet& modules, spec::Fsdp fsdp = spec::Fsdp::none) {
  Planned planned = planned_for(modules, fsdp);
  planned.overlaps_micro_batches = true;
  return planned;
}

void for_woven(const std::function<void(const spec::TrialSpec&)>& body) {
  for (const auto& [name, model] : testing::small_models()) {
    if (model.num_experts == 0) continue;
    for (const char* knobs : kWovenLayouts) {
      BOOST_TEST_CONTEXT(name << " " << knobs << " woven") {
        body(testing::trial_of(model, knobs));
      }
    }
  }
}

/// body(trial) for all models and layouts.
void for_all(const std::function<void(const spec::TrialSpec&)>& body) {
  for (const auto& [name, model] : testing::small_models()) {
    std::vector<std::string> layouts(std::begin(kLayouts), std::end(kLayouts));
    if (model.num_experts > 0) {
      layouts.insert(layouts.end(), std::begin(kExpertLayouts), std::end(kExpertLayouts));
    }
    for (const std::string& knobs : layouts) {
      BOOST_TEST_CONTEXT(name << " " << knobs) { body(testing::trial_of(model, knobs)); }
    }
  }
}

BOOST_AUTO_TEST_CASE(programs_that_offload_hold_what_all_hold) {
  for_all([](const spec::TrialSpec& trial) {
    for (int rank = 0; rank < num_ranks(trial); ++rank) {
      for (const spec::Fsdp fsdp : {spec::Fsdp::none, spec::Fsdp::megatron}) {
        BOOST_TEST(error_of(compile(trial, rank, planned_for(kAll, fsdp))) == "");
      }
    }
  });
  for_woven([](const spec::TrialSpec& trial) {
    for (const spec::Fsdp fsdp : {spec::Fsdp::none, spec::Fsdp::megatron}) {
      const testing::RanksOfStep step(trial, woven_for(kAll, fsdp));
      for (const StepProgram& program : step.programs) BOOST_TEST(error_of(program) == "");
      testing::play_all(trial, step);
    }
  });
}

int64_t rows_of(const Bindings& bindings, const Item& item, const Instr& instr) {
  return instr.is_routed ? bindings.at(item.layer, item.micro_batch).num_received : 0;
}

/// Bytes of copies, and what activations take at most.
struct Moved {
  std::map<Op, int64_t> bytes;
  int64_t held = 0;
  int64_t most = 0;
};
Moved moved_by(const spec::TrialSpec& trial, const Planned& planned, int rank = 0) {
  const BalancedBindings bindings(trial, rank);
  Moved moved;
  for_each(compile(trial, rank, planned),
           [&](const Item& item, const Segment&, const Instr& instr) {
             const int64_t bytes = cost_at(instr, rows_of(bindings, item, instr)).bytes;
             if (instr.verb == Verb::copy) moved.bytes[instr.op] += bytes;
             if (instr.verb != Verb::alloc && instr.verb != Verb::free) return;
             if (instr.what != static_cast<uint8_t>(MemoryGroup::activations)) return;
             moved.held += instr.verb == Verb::alloc ? bytes : -bytes;
             moved.most = std::max(moved.most, moved.held);
           });
  return moved;
}

BOOST_AUTO_TEST_CASE(what_goes_out_comes_back) {
  for_all([](const spec::TrialSpec& trial) {
    Moved moved = moved_by(trial, planned_for(kAll));
    BOOST_TEST(moved.held == 0);
    BOOST_TEST(moved.bytes[Op::to_host] == moved.bytes[Op::from_host]);
    BOOST_TEST((moved.bytes[Op::to_host] > 0) == !spec::is_full_recompute(trial.knobs));
  });
  for_woven([](const spec::TrialSpec& trial) {
    Moved moved = moved_by(trial, woven_for(kAll));
    BOOST_TEST(moved.held == 0);
    BOOST_TEST(moved.bytes[Op::to_host] == moved.bytes[Op::from_host]);
    BOOST_TEST(moved.bytes[Op::to_host] > 0);
  });
}

// A narrow copy that is kept goes with the buffer that it is of: half of its bytes where nothing
// else is kept, and as many as it has beside it where that is read, too.
BOOST_AUTO_TEST_CASE(narrow_copies_go_with_their_modules) {
  ModelSpec model = testing::small_gpt_oss();
  testing::set_layers(model, testing::layers_of(spec::Mixer::gqa, 4, 0));
  for (const char* knobs :
       {"{}", R"({"data_parallel_size": 2, "expert_model_parallel_size": 2})"}) {
    const spec::TrialSpec trial = testing::trial_of(model, knobs);
    const auto sent = [&](Offload module, spec::PrecisionRecipe recipe) {
      Planned planned = planned_for({module});
      planned.precision = recipe;
      BOOST_TEST(error_of(compile(trial, 0, planned)) == "");
      Moved moved = moved_by(trial, planned);
      BOOST_TEST(moved.held == 0);
      BOOST_TEST(moved.bytes[Op::to_host] == moved.bytes[Op::from_host]);
      return static_cast<double>(moved.bytes[Op::to_host]);
    };
    const std::map<Offload, double> ratios = {{Offload::core_attn, 1},
                                              {Offload::attn_proj, 1.5},
                                              {Offload::mlp_norm, 1},
                                              {Offload::expert_fc1, 0.5},
                                              {Offload::moe_act, 1}};
    for (const auto& [module, ratio] : ratios) {
      const double wide = sent(module, spec::PrecisionRecipe::bf16);
      BOOST_TEST(wide > 0);
      for (const spec::PrecisionRecipe recipe :
           {spec::PrecisionRecipe::fp8_blockwise, spec::PrecisionRecipe::nvfp4}) {
        BOOST_TEST(sent(module, recipe) == ratio * wide, spec::name_of(module));
      }
    }
  }
}

/// Of eight layers of attention and experts that save `of_layer` bytes which may go: two are there
/// at most, and the last one's are needed again before they could have gone.
BOOST_AUTO_TEST_CASE(all_but_two_layers_wait_elsewhere) {
  ModelSpec model = testing::small_gpt_oss();
  testing::set_layers(model, testing::layers_of(spec::Mixer::gqa, 8, 0));
  const spec::TrialSpec trial = testing::trial_of(model);
  constexpr int64_t kMicroBatches = 8;
  const Moved none = moved_by(trial, {});
  for (const spec::OffloadSet& modules :
       {spec::OffloadSet{Offload::moe_act}, spec::OffloadSet{Offload::core_attn}, kAll}) {
    Moved moved = moved_by(trial, planned_for(modules));
    const int64_t of_layer = moved.bytes[Op::to_host] / (7 * kMicroBatches);
    BOOST_TEST(moved.bytes[Op::to_host] == 7 * kMicroBatches * of_layer);
    // When the second one comes back the head's input is gone.
    const int64_t of_head = 2 * trial.training.seq_length * model.hidden_size;
    BOOST_TEST(moved.most == none.most - 6 * of_layer - of_head);
  }
}

BOOST_AUTO_TEST_CASE(modules_name_the_tensors_of_a_layer) {
  const auto moved = [](const ModelSpec& model, Offload module) {
    std::set<Buf> buffers;
    for_each(compile(testing::trial_of(model), 0, planned_for({module})),
             [&](const Item&, const Segment&, const Instr& instr) {
               if (instr.verb == Verb::copy) buffers.insert(static_cast<Buf>(instr.refs[0].id));
             });
    return buffers;
  };
  const ModelSpec gqa = testing::small_gpt_oss();
  // Its norm is a part of the projections.
  BOOST_TEST(moved(gqa, Offload::attn_norm).empty());
  BOOST_TEST((moved(gqa, Offload::qkv_linear) ==
              std::set{Buf::input, Buf::attn_norm_rstd, Buf::attn_norm_out}));
  BOOST_TEST((moved(gqa, Offload::core_attn) == std::set{Buf::qkv}));
  BOOST_TEST((moved(gqa, Offload::mlp_norm) == std::set{Buf::mid, Buf::mlp_norm_rstd}));
  BOOST_TEST((moved(gqa, Offload::expert_fc1) == std::set{Buf::expert_input}));
  BOOST_TEST((moved(gqa, Offload::moe_act) == std::set{Buf::fc1_out}));
  BOOST_TEST((moved(testing::small_deepseek(), Offload::core_attn) ==
              std::set{Buf::mla_q, Buf::mla_k, Buf::mla_v}));
  // What comes into a layer without a mixer goes to the norm of its other half.
  BOOST_TEST(moved(testing::small_nemotron(), Offload::mlp_norm).contains(Buf::input));
}

/// Which copies of what compute reads again have not ended, and which memory is used meanwhile.
void check_copies(const StepProgram& program) {
  constexpr auto kNumStreams = static_cast<size_t>(Stream::count);
  using Clock = std::array<int64_t, kNumStreams>;
  std::array<Clock, kNumStreams> known{};
  Clock launched{};
  std::map<std::tuple<int32_t, int32_t, uint8_t>, std::pair<size_t, int64_t>> copied;
  std::array<std::vector<Clock>, kNumLanes> lanes;
  const Item* current = nullptr;
  int num_copies = 0;
  for_each(program, [&](const Item& item, const Segment& segment, const Instr& instr) {
    std::vector<Clock>& events = lanes[lane_of(segment)];
    if (&item != current && segment.begins()) {
      events.assign(static_cast<size_t>(segment.num_events), {});
    }
    current = &item;
    const auto stream = static_cast<size_t>(instr.stream);
    Clock& own = known[stream];
    own[stream] = launched[stream];
    if (instr.verb == Verb::record) events[static_cast<size_t>(instr.event)] = own;
    if (instr.verb == Verb::wait) {
      const Clock& other = events[static_cast<size_t>(instr.event)];
      for (size_t i = 0; i < kNumStreams; ++i) own[i] = std::max(own[i], other[i]);
    }
    const auto has_ended = [&](const Ref& ref) {
      const auto copy = copied.find({item.frame, item.micro_batch, ref.id});
      return copy == copied.end() || known[0][copy->second.first] >= copy->second.second;
    };
    if (instr.verb == Verb::copy) {
      ++num_copies;
      BOOST_TEST(own[0] == launched[0]);  // compute is ahead of it
      copied[{item.frame, item.micro_batch, instr.refs[0].id}] = {stream, ++launched[stream]};
      return;
    }
    if (instr.verb == Verb::op) ++launched[stream];
    if (instr.verb != Verb::op && instr.verb != Verb::free) return;
    for (const Ref& ref : instr.refs) {
      // What goes out may be read meanwhile.
      const bool is_read = instr.verb == Verb::op && !segment.is_backward;
      if (ref.space == Space::frame && !is_read) BOOST_TEST(has_ended(ref));
    }
  });
  BOOST_TEST(num_copies > 100);
}

BOOST_AUTO_TEST_CASE(nothing_is_read_before_it_is_back_nor_freed_before_it_is_out) {
  const ModelSpec model = testing::small_deepseek();
  const spec::TrialSpec trial = testing::trial_of(model, R"({"pipeline_model_parallel_size": 2})");
  check_copies(compile(trial, 0, planned_for(kAll)));
  check_copies(compile(testing::trial_of(model, kWovenLayouts[0]), 0, woven_for(kAll)));
}

/// Layers' worth of queries, keys and values that are there at once.
int64_t most_layers_of_qkv(const spec::TrialSpec& trial, const Planned& planned) {
  int64_t now = 0;
  int64_t most = 0;
  for_each(compile(trial, 0, planned), [&](const Item&, const Segment&, const Instr& instr) {
    if (instr.verb != Verb::alloc && instr.verb != Verb::free) return;
    const Ref& ref = instr.refs.front();
    if (ref.space != Space::frame || ref.id != static_cast<uint8_t>(Buf::qkv)) return;
    now += instr.verb == Verb::alloc ? 1 : -1;
    most = std::max(most, now);
  });
  return most;
}

// Of each of two woven micro-batches one is used while another one goes or comes.
BOOST_AUTO_TEST_CASE(four_layers_are_there_where_micro_batches_are_woven) {
  ModelSpec model = testing::small_gpt_oss();
  testing::set_layers(model, testing::layers_of(spec::Mixer::gqa, 8, 0));
  const spec::TrialSpec trial = testing::trial_of(model, kWovenLayouts[0]);
  BOOST_TEST(most_layers_of_qkv(trial, planned_for({Offload::core_attn})) == 2);
  BOOST_TEST(most_layers_of_qkv(trial, woven_for({Offload::core_attn})) == 4);
  BOOST_TEST(most_layers_of_qkv(trial, woven_for({})) > 8);
}

/// A step of one rank whose operations take `op_ns` each, on a link that moves 0.8 bytes a
/// nanosecond.
int64_t step_ns(const Planned& planned, int64_t op_ns) {
  ModelSpec model = testing::small_gpt_oss();
  testing::set_layers(model, testing::layers_of(spec::Mixer::gqa, 8, 0));
  spec::TrialSpec trial = testing::trial_of(model);
  trial.hardware = {};
  trial.hardware.host_link_bytes_per_s = 1e9;
  const StepProgram program = compile(trial, 0, planned);
  const BalancedBindings bindings(trial, 0);
  return play(trial.hardware, {{&program, &bindings}},
              [&](const Position&, const Instr& instr, const OpCost& cost) {
                if (instr.verb == Verb::copy) return host_copy_ns(trial.hardware, cost);
                return instr.op == Op::core_attn ? op_ns : int64_t{0};
              })
      .step_ns;
}

BOOST_AUTO_TEST_CASE(long_layers_hide_copies) {
  const Planned planned = planned_for(kAll);
  Moved moved = moved_by(testing::trial_of(testing::small_gpt_oss()), planned);
  BOOST_TEST(step_ns({}, 0) == 0);
  // One after the other at most, both ways.
  BOOST_TEST(step_ns(planned, 0) > moved.bytes[Op::to_host]);
  BOOST_TEST(step_ns(planned, 10'000'000) == step_ns({}, 10'000'000));
}

int64_t state_bytes(const StepProgram& program) {
  int64_t bytes = 0;
  for (const Instr& instr :
       program.segments[static_cast<size_t>(program.setup.front().segment)]->code) {
    if (instr.what == static_cast<uint8_t>(MemoryGroup::optimizer)) bytes += instr.cost.bytes;
  }
  return bytes;
}

BOOST_AUTO_TEST_CASE(a_share_of_the_state_is_not_on_the_device) {
  const spec::TrialSpec trial = testing::trial_of(
      testing::small_gpt_oss(), R"({"data_parallel_size": 2, "use_distributed_optimizer": true})");
  const StepProgram all = compile(trial, 0);
  for (const spec::Fsdp fsdp : {spec::Fsdp::none, spec::Fsdp::torch}) {
    for (const float ratio : {0.25F, 0.5F, 1.0F}) {
      Planned planned;
      planned.fsdp = fsdp;
      planned.optimizer_offload_ratio = ratio;
      const StepProgram program = compile(trial, 0, planned);
      BOOST_TEST(error_of(program) == "");
      BOOST_TEST(static_cast<double>(state_bytes(program)) ==
                 (1 - ratio) * static_cast<double>(state_bytes(all)));
      // All of it but what fills buckets up is updated, there or here: it comes and goes.
      int64_t num_updated = 0;
      std::map<Op, int64_t> moved;
      for_each(program, [&](const Item&, const Segment&, const Instr& instr) {
        if (instr.op == Op::adamw) num_updated += instr.cost.flops / 12;
        if (instr.verb == Verb::copy) moved[instr.op] += instr.cost.bytes;
      });
      const double expected = 12.0 * ratio * static_cast<double>(num_updated);
      BOOST_TEST(static_cast<double>(moved[Op::to_host]) == expected);
      BOOST_TEST(static_cast<double>(moved[Op::from_host]) == expected);
    }
  }
}

// Of small buckets nothing is left then: not even one byte rounds up.
BOOST_AUTO_TEST_CASE(nearly_all_of_the_state_may_go) {
  const spec::TrialSpec trial = testing::trial_of(
      testing::small_gpt_oss(), R"({"data_parallel_size": 2, "use_distributed_optimizer": true})");
  for (const spec::Fsdp fsdp : {spec::Fsdp::none, spec::Fsdp::torch}) {
    for (const float ratio : {0.9F, 0.9999F, 0.999999F}) {
      Planned planned;
      planned.fsdp = fsdp;
      planned.optimizer_offload_ratio = ratio;
      BOOST_TEST(error_of(compile(trial, 0, planned)) == "", ratio);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_update_waits_for_its_state) {
  Planned planned;
  planned.optimizer_offload_ratio = 0.5;
  const StepProgram program = compile(testing::trial_of(testing::small_gpt_oss()), 0, planned);
  int64_t bytes = 0;
  for_each(program, [&](const Item&, const Segment&, const Instr& instr) {
    if (instr.verb == Verb::copy) bytes += instr.cost.bytes;
  });
  const auto play_with = [&](int64_t update_ns) {
    return play(spec::HardwareSpec{}, {{&program, nullptr}},
                [&](const Position&, const Instr& instr, const OpCost& cost) {
                  if (instr.verb == Verb::copy) return cost.bytes;
                  return instr.op == Op::adamw ? update_ns : int64_t{0};
                })
        .step_ns;
  };
  BOOST_TEST(play_with(1000) == bytes + 1000);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan
