// What plans compute in closed form of FSDP and of offloading, against the programs of the same
// layouts: exactly where nothing else is noted.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>

#include "kernels/base/step_parts.h"
#include "tests/tuner/planned_layouts.h"
#include "tuner/planner/memory_profile.h"
#include "tuner/planner/played_plan.h"
#include "tuner/planner/priced_choices.h"
#include "tuner/planner/step_time.h"

namespace moetune::tuner::planner {

BOOST_AUTO_TEST_SUITE(planner_program_shards)

namespace {

namespace tt = boost::test_tools;
using plan::BucketPart;
using plan::Buf;
using plan::Instr;
using plan::Item;
using plan::MemoryGroup;
using plan::Op;
using plan::Segment;
using plan::StepProgram;
using plan::Verb;
using samples::cost_of;
using samples::kLink;
using samples::kMicroBatches;
using samples::program_of;
using samples::Sizes;
using samples::with_run;
using spec::Fsdp;
using spec::Offload;

// Replicas of all weights, and no tensor parallelism: what that does not split is shared out over
// more ranks in a program (planner_program_memory).
const std::vector<Sizes> kReplicas = {{.dp = 2},
                                      {.cp = 2, .dp = 2},
                                      {.dp = 4, .ep = 2},
                                      {.dp = 2, .pp = 2},
                                      {.dp = 4, .pp = 2, .ep = 2}};

/// Usual models whose layers have more parameters than their ends.
samples::Models models_of_layers() {
  samples::Models models = samples::usual_models();
  for (auto& [name, model] : models) model.vocab_size = 512;
  return models;
}

void for_replicas(const samples::Body& body) {
  for (const auto& [name, model] : models_of_layers()) {
    for (const Sizes& sizes : kReplicas) {
      if (sizes.ep > 1 && model.num_experts == 0) continue;
      BOOST_TEST_CONTEXT(name) { with_run(model, sizes, body); }
    }
  }
}

bool is_part(const Instr& instr, BucketPart part) {
  const bool is_memory = instr.verb == Verb::alloc || instr.verb == Verb::free;
  return is_memory && instr.refs.front().space == plan::Space::bucket &&
         instr.refs.front().id == static_cast<uint8_t>(part);
}

/// The most that there is of something that is allocated and freed.
double most_of(const StepProgram& program, const std::function<bool(const Instr&)>& is_it) {
  int64_t bytes = 0;
  int64_t most = 0;
  plan::for_each(program, [&](const Item&, const Segment& segment, const Instr& instr) {
    if (instr.verb != Verb::alloc && instr.verb != Verb::free) return;
    if (!is_it(instr)) return;
    bytes += (instr.verb == Verb::alloc ? 1 : -1) * cost_of(segment, instr).bytes;
    most = std::max(most, bytes);
  });
  return f64(most);
}

double bytes_from_the_start(const StepProgram& program, MemoryGroup group) {
  int64_t bytes = 0;
  for (const Item& item : program.setup) {
    for (const Instr& instr : program.segments[static_cast<size_t>(item.segment)]->code) {
      if (instr.what == static_cast<uint8_t>(group)) bytes += instr.cost.bytes;
    }
  }
  return f64(bytes);
}

BOOST_AUTO_TEST_CASE(ranks_hold_the_shards_of_their_programs) {
  for_replicas([](PlanRun& run) {
    run.knobs.fsdp = Fsdp::megatron;
    const MemoryPrediction memory = predict_memory(run);
    for (int64_t stage = 0; stage < run.knobs.pp; ++stage) {
      const StepProgram program = program_of(run, stage);
      const MemoryParts& peak = memory.stages[static_cast<size_t>(stage)].peak;
      BOOST_TEST(peak.weights == bytes_from_the_start(program, MemoryGroup::weights));
      BOOST_TEST(peak.gradients == bytes_from_the_start(program, MemoryGroup::gradients));
      BOOST_TEST(peak.optimizer == bytes_from_the_start(program, MemoryGroup::optimizer));
    }
  });
}

/// Parameters of the units of a program: of its largest layer, of embedding and head, of all.
struct Units {
  double layer = 0;
  double root = 0;
  double all = 0;
  double num_layers = 0;
};
Units units_of(const StepProgram& program, int64_t num_layers) {
  std::map<int64_t, double> sizes;
  for (const plan::BucketDesc& bucket : program.params.buckets) {
    sizes[bucket.layer] += f64(bucket.numel);
  }
  Units units;
  for (const auto& [layer, numel] : sizes) {
    const bool is_layer = layer >= 0 && layer < num_layers;
    if (is_layer) units.layer = std::max(units.layer, numel);
    if (is_layer) ++units.num_layers;
    if (!is_layer) units.root += numel;
    units.all += numel;
  }
  return units;
}

// Plans have the units as Megatron-Core has them, in 16 bits: embedding and head stay gathered as
// one, beside 5e8 parameters of layers, here all of the stage. In a backward a layer's gradient is
// there, and those that wait as far as they are more than what their layers had saved. A program
// gathers embedding and head by turns like layers, and has two gradients as wide as they are
// summed.
BOOST_AUTO_TEST_CASE(units_are_those_of_their_programs) {
  int num_backwards = 0;
  for_replicas([&](PlanRun& run) {
    run.knobs.fsdp = Fsdp::megatron;
    const MemoryPrediction memory = predict_memory(run);
    for (int64_t stage = 0; stage < run.knobs.pp; ++stage) {
      const StepProgram program = program_of(run, stage);
      const Units units = units_of(program, run.model->num_layers);
      const auto most = [&](BucketPart part) {
        return most_of(program, [&](const Instr& instr) { return is_part(instr, part); });
      };
      BOOST_TEST(most(BucketPart::gathered) == 2 * 2 * units.layer);
      BOOST_TEST(most(BucketPart::whole_grad) == 2 * 4 * units.layer);
      const StageMemory& planned = memory.stages[static_cast<size_t>(stage)];
      const bool has_head = stage + 1 == run.knobs.pp;
      const double gathered = units.num_layers * units.layer + units.root;
      const double gradients = units.layer + (has_head ? units.root : 0);
      const double waiting = (units.num_layers - 1) * units.layer;
      if (planned.moment == kMomentOfLayer) {
        ++num_backwards;
        BOOST_TEST(planned.peak.gathered >= 2 * (gathered + gradients));
        BOOST_TEST(planned.peak.gathered <= 2 * (gathered + gradients + waiting));
      } else if (planned.moment == kMomentOfForward) {
        BOOST_TEST(planned.peak.gathered == 2 * gathered);
      } else {
        BOOST_TEST(planned.peak.gathered == 2 * units.root);
      }
    }
  });
  BOOST_TEST(num_backwards > 0);
}

// Where micro-batches are woven Megatron-Core keeps the gradients of all units. In a program each
// micro-batch has its unit and the one ahead.
BOOST_AUTO_TEST_CASE(woven_steps_keep_gradients) {
  int num_seen = 0;
  for (const auto& [name, model] : models_of_layers()) {
    if (model.num_experts == 0) continue;
    with_run(model, {.dp = 4, .ep = 2}, [&](PlanRun& run) {
      run.knobs.fsdp = Fsdp::megatron;
      const auto most = [&](bool has_overlap, BucketPart part) {
        run.knobs.overlap_moe_expert_parallel_comm = has_overlap;
        return most_of(program_of(run, 0),
                       [&](const Instr& instr) { return is_part(instr, part); });
      };
      const double gathered = most(false, BucketPart::gathered);
      const double gradients = most(false, BucketPart::whole_grad);
      BOOST_TEST(most(true, BucketPart::gathered) == 2 * gathered);
      BOOST_TEST(most(true, BucketPart::whole_grad) == gradients);
      const Units units = units_of(program_of(run, 0), model.num_layers);
      const StageMemory planned = predict_memory(run).stages.front();
      const bool is_in_layer =
          planned.moment == kMomentOfLayer || planned.moment == kMomentOfForward;
      BOOST_TEST(planned.peak.gathered ==
                 2 * (units.root + units.all + (is_in_layer ? units.num_layers * units.layer : 0)));
      ++num_seen;
    });
  }
  BOOST_TEST(num_seen > 0);
}

// Torchtitan's FSDP2 beside pipeline stages; plans have the fresh gradients of a unit beside them.
BOOST_AUTO_TEST_CASE(a_stage_stays_gathered_as_in_its_program) {
  for (const auto& [name, model] : models_of_layers()) {
    with_run(model, {.dp = 2, .pp = 2}, [](PlanRun& run) {
      run.is_of_megatron = false;
      run.knobs.fsdp = Fsdp::torch;
      const MemoryPrediction memory = predict_memory(run);
      for (int64_t stage = 0; stage < 2; ++stage) {
        const StepProgram program = program_of(run, stage);
        const auto most = [&](BucketPart part) {
          return most_of(program, [&](const Instr& instr) { return is_part(instr, part); });
        };
        const MemoryParts& peak = memory.stages[static_cast<size_t>(stage)].peak;
        double of_layer = 0;
        for (const plan::BucketDesc& bucket : program.params.buckets) {
          if (bucket.layer == (stage == 0 ? 0 : 4)) of_layer += f64(bucket.numel);
        }
        BOOST_TEST(peak.gathered == most(BucketPart::gathered) + 2 * of_layer);
        BOOST_TEST(peak.gradients == most(BucketPart::whole_grad));
      }
    });
  }
}

/// Of collectives of an operation, what a rank sends.
double sent_by(const StepProgram& program, Op op) {
  double sent = 0;
  plan::for_each(program, [&](const Item&, const Segment&, const Instr& instr) {
    if (instr.verb != Verb::comm || instr.op != op) return;
    const double n = f64(program.layout.group_size(instr.group));
    sent += f64(instr.cost.bytes) * (n - 1) / n;
  });
  return sent;
}

// Plans take half as much again as for sharing the optimizer out. With gradients as wide as weights
// that is what programs send: two gathers and a reduction. With wide gradients it is 9 parts for 8.
// A program gathers the head once, as its backward follows at once.
BOOST_AUTO_TEST_CASE(units_send_the_bytes_of_their_programs) {
  for_replicas([](PlanRun& run) {
    if (run.knobs.pp > 1) return;  // plans look at the busiest stage
    const spec::HardwareSpec hardware = samples::one_node(run);
    run.hardware = &hardware;
    run.knobs.overlap_grad_reduce = run.knobs.overlap_param_gather = false;
    run.knobs.fsdp = Fsdp::megatron;
    const StepProgram program = program_of(run, 0);
    double of_head = 0;
    for (const plan::ParamDesc& param : program.params.params) {
      const bool is_head =
          param.kind == plan::ParamKind::head || param.kind == plan::ParamKind::final_norm;
      const double n = f64(run.knobs.dense_copies());
      if (is_head) of_head += 2 * kMicroBatches * f64(param.numel()) * (n - 1) / n;
    }
    const double gathered = sent_by(program, Op::shard_gather) + of_head;
    const double reduced = sent_by(program, Op::shard_reduce);
    BOOST_TEST(gathered == reduced, tt::tolerance(1e-9));
    const auto planned = [&] { return kLink * predict_step(run, {}).part(TimePart::data); };
    BOOST_TEST(planned() == 9.0 / 8 * (gathered + reduced), tt::tolerance(1e-6));
    run.knobs.main_grads = spec::StateType::bf16;
    BOOST_TEST(planned() == gathered + reduced / 2, tt::tolerance(1e-6));
  });
}

constexpr Offload kModules[] = {Offload::attn_norm, Offload::qkv_linear, Offload::core_attn,
                                Offload::attn_proj, Offload::mlp_norm,   Offload::expert_fc1,
                                Offload::moe_act};

/// Of the first micro-batch.
std::map<int64_t, double> offloaded_by_layer(const StepProgram& program) {
  std::map<int64_t, double> layers;
  plan::for_each(program, [&](const Item& item, const Segment& segment, const Instr& instr) {
    if (item.micro_batch != 0 || instr.op != Op::to_host) return;
    layers[item.layer] += f64(cost_of(segment, instr).bytes);
  });
  return layers;
}

/// Compares each layer's copies with those of its program, module by module. Programs have a gate
/// of attention in one buffer with queries, keys and values. Returns how many were seen.
int check_offloaded(PlanRun& run) {
  const spec::ModelSpec& model = *run.model;
  if (model.has_attention_gate || model.mtp.repeats_layer) return 0;
  int num_seen = 0;
  for (const Offload module : kModules) {
    run.knobs.offload = {module};
    for (const auto& [layer, bytes] : offloaded_by_layer(program_of(run, 0))) {
      const spec::LayerKind kind = plan::kind_of_layer(model, layer);
      const double seconds =
          exposed_copies(run, kind, samples::window_of(model, layer), 0);  // out and back
      const double link = plan::host_link_bytes_per_s(*run.hardware);
      BOOST_TEST(seconds * link / 2 == bytes, tt::tolerance(1e-9));
      ++num_seen;
    }
  }
  return num_seen;
}

BOOST_AUTO_TEST_CASE(layers_offload_what_their_programs_offload) {
  int num_seen = 0;
  samples::for_layouts(samples::all_models(),
                       [&](PlanRun& run) { num_seen += check_offloaded(run); });
  BOOST_TEST(num_seen > 200);
}

// Core attention's are those by heads where these are exchanged.
BOOST_AUTO_TEST_CASE(layers_that_exchange_heads_offload_what_their_programs_offload) {
  int num_seen = 0;
  for (const auto& [name, model] : samples::all_models()) {
    with_run(model, {.cp = 2, .exchange = spec::PlanCp::a2a},
             [&](PlanRun& run) { num_seen += check_offloaded(run); });
  }
  BOOST_TEST(num_seen > 50);
}

// So do those whose products are narrow: a copy that is kept goes with what it is of. What tensor
// parallelism gathers again programs keep in 16 bits (planner_program_memory).
BOOST_AUTO_TEST_CASE(narrow_layers_offload_what_their_programs_offload) {
  int num_narrower = 0;
  samples::for_layouts(samples::all_models(), [&](PlanRun& run) {
    const spec::ModelSpec& model = *run.model;
    if (run.knobs.tp > 1 || model.has_attention_gate || model.mtp.repeats_layer) return;
    const double link = plan::host_link_bytes_per_s(*run.hardware);
    for (const Offload module : kModules) {
      run.knobs.offload = {module};
      run.knobs.precision = spec::PrecisionRecipe::bf16;
      const std::map<int64_t, double> wide = offloaded_by_layer(program_of(run, 0));
      for (const spec::PrecisionRecipe recipe :
           {spec::PrecisionRecipe::fp8_current, spec::PrecisionRecipe::mxfp8}) {
        run.knobs.precision = recipe;
        const std::map<int64_t, double> narrow = offloaded_by_layer(program_of(run, 0));
        BOOST_TEST(narrow.size() == wide.size());
        for (const auto& [layer, bytes] : narrow) {
          const spec::LayerKind kind = plan::kind_of_layer(model, layer);
          const double seconds =
              exposed_copies(run, kind, samples::window_of(model, layer), 0);  // out and back
          BOOST_TEST(seconds * link / 2 == bytes, tt::tolerance(1e-9));
          num_narrower += bytes < wide.at(layer) ? 1 : 0;
        }
      }
    }
  });
  BOOST_TEST(num_narrower > 50);
}

// Of all layers but one what is offloaded is not allocated; of a program's there are two, as its
// memory is free when the copy has ended.
BOOST_AUTO_TEST_CASE(two_layers_are_on_their_way_as_in_their_program) {
  for (const auto& [name, model] : samples::usual_models()) {
    with_run(model, {.dp = 2}, [](PlanRun& run) {
      const auto activations = [&] {
        return most_of(program_of(run, 0), [](const Instr& instr) {
          return instr.what == static_cast<uint8_t>(MemoryGroup::activations);
        });
      };
      const auto held = [&] {
        const MemoryParts peak = predict_memory(run).worst().peak;
        return peak.activations + peak.transient;
      };
      // In a program the head's input is gone when the second layer is back.
      const double of_head = 2 * sequence_tokens(run) * f64(run.model->hidden_size);
      for (const spec::PrecisionRecipe recipe :
           {spec::PrecisionRecipe::bf16, spec::PrecisionRecipe::fp8_blockwise}) {
        run.knobs.precision = recipe;
        run.knobs.offload = {};
        const double programmed = activations();
        const double planned = held();
        // As much of a layer as the head has, or more.
        for (const spec::OffloadSet& modules :
             {spec::OffloadSet{Offload::core_attn}, spec::OffloadSet{Offload::mlp_norm},
              spec::OffloadSet{Offload::core_attn, Offload::attn_proj}}) {
          run.knobs.offload = modules;
          const double of_layer = offloaded_by_layer(program_of(run, 0)).begin()->second;
          BOOST_TEST_CONTEXT(spec::name_of(recipe) << " " << modules.text()) {
            BOOST_TEST(planned - held() == programmed - activations() - of_head + of_layer);
          }
        }
      }
    });
  }
}

// Where another micro-batch's backward follows a forward a third one is: what goes out, what is
// used and what comes back. Plans have one.
BOOST_AUTO_TEST_CASE(three_layers_are_on_their_way_where_micro_batches_take_turns) {
  with_run(samples::dense_model(), {.pp = 2}, [](PlanRun& run) {
    run.knobs.offload = {Offload::core_attn};
    for (int64_t stage = 0; stage < 2; ++stage) {
      const StepProgram program = program_of(run, stage);
      const double most = most_of(program, [](const Instr& instr) {
        const plan::Ref& ref = instr.refs.front();
        return ref.space == plan::Space::frame && ref.id == static_cast<uint8_t>(Buf::qkv);
      });
      const double of_layer = offloaded_by_layer(program).begin()->second;
      BOOST_TEST(most == (stage == 0 ? 3 : 2) * of_layer);
    }
  });
}

BOOST_AUTO_TEST_CASE(the_optimizer_offloads_what_its_program_does) {
  for_replicas([](PlanRun& run) {
    const double all = predict_step(run, {}).part(TimePart::optimizer);
    using spec::StateType;
    for (const auto& [ratio, moments] :
         {std::pair(0.25F, StateType::fp32), {1.0F, StateType::fp32}, {1.0F, StateType::bf16}}) {
      run.knobs.optimizer_offload_ratio = ratio;
      run.knobs.exp_avg = run.knobs.exp_avg_sq = moments;
      const MemoryPrediction memory = predict_memory(run);
      for (int64_t stage = 0; stage < run.knobs.pp; ++stage) {
        const StepProgram program = program_of(run, stage);
        BOOST_TEST(memory.stages[static_cast<size_t>(stage)].peak.optimizer ==
                   bytes_from_the_start(program, MemoryGroup::optimizer));
        if (run.knobs.pp > 1) continue;
        double copied = 0;
        plan::for_each(program, [&](const Item&, const Segment&, const Instr& instr) {
          if (instr.verb == Verb::copy) copied += f64(instr.cost.bytes);
        });
        const double planned = predict_step(run, {}).part(TimePart::optimizer) - all;
        BOOST_TEST(planned * plan::host_link_bytes_per_s(*run.hardware) == copied,
                   tt::tolerance(1e-6));
      }
    }
  });
}

// What is waited for at the end of the step is copies, and not the losses behind them.
BOOST_AUTO_TEST_CASE(copies_of_the_optimizer_have_a_part_of_the_played_step) {
  with_run(samples::moe_model(), {.dp = 2}, [](PlanRun& run) {
    const CostEstimate plain = play_plan(run, samples::rates_of_devices(), false).estimate;
    run.knobs.optimizer_offload_ratio = 1;
    const CostEstimate step = play_plan(run, samples::rates_of_devices(), false).estimate;
    double copied = 0;
    plan::for_each(program_of(run, 0), [&](const Item&, const Segment&, const Instr& instr) {
      if (instr.verb == Verb::copy) copied += f64(instr.cost.bytes);
    });
    const double seconds = copied / plan::host_link_bytes_per_s(*run.hardware);
    const std::string part = base::name_of(base::StepPart::transfer, base::kMemcpyGroup);
    BOOST_TEST(f64(step.parts_ns.at(part)) == 1e9 * seconds, tt::tolerance(1e-4));
    BOOST_TEST(f64(step.step_ns - plain.step_ns) == 1e9 * seconds, tt::tolerance(1e-2));
  });
}

BOOST_AUTO_TEST_CASE(woven_steps_beside_fsdp_and_offload_are_played) {
  with_run(samples::moe_model(), {.dp = 4, .ep = 4}, [](PlanRun& run) {
    spec::HardwareSpec hardware = *run.hardware;
    hardware.intra_node.bytes_per_s /= 100;  // an exchange takes long
    run.hardware = &hardware;
    const auto step_ns = [&](bool has_overlap) {
      run.knobs.overlap_moe_expert_parallel_comm = has_overlap;
      BOOST_TEST(not_played(run).empty());
      return play_plan(run, {}, false).estimate.step_ns;
    };
    run.knobs.fsdp = Fsdp::megatron;
    BOOST_TEST(step_ns(true) < step_ns(false));
    run.knobs.offload = {Offload::core_attn};
    BOOST_TEST(step_ns(true) < step_ns(false));
    run.knobs.fsdp = Fsdp::none;
    BOOST_TEST(step_ns(true) < step_ns(false));
  });
}

BOOST_AUTO_TEST_CASE(what_only_plans_know_is_played) {
  for (const auto& [name, model] : samples::usual_models()) {
    with_run(model, {.dp = 2, .pp = 2}, [](PlanRun& run) {
      const auto step_ns = [&] {
        return play_plan(run, samples::rates_of_devices(), false).estimate.step_ns;
      };
      const int64_t plain = step_ns();
      spec::PlanKnobs& k = run.knobs;
      const spec::PlanKnobs before = k;
      k.fsdp = Fsdp::megatron;
      BOOST_TEST(not_played(run).empty());
      const int64_t sharded = step_ns();
      BOOST_TEST(sharded > plain);
      // Gathered and reduced once a step.
      k.fsdp = Fsdp::torch;
      BOOST_TEST(not_played(run).empty());
      BOOST_TEST(step_ns() < sharded);
      k = before;
      k.offload = {Offload::core_attn};
      BOOST_TEST(not_played(run).empty());
      const int64_t offloaded = step_ns();
      BOOST_TEST(offloaded > plain);
      spec::HardwareSpec fast = *run.hardware;
      fast.host_link_bytes_per_s = 1e15;
      run.hardware = &fast;
      BOOST_TEST(step_ns() < offloaded);
      k = before;
      k.optimizer_offload_ratio = 1;
      BOOST_TEST(not_played(run).empty());
      BOOST_TEST(step_ns() > plain);
    });
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::tuner::planner
