// What plans compute in closed form of parameters, their update and what layers save, against the
// programs of the same layouts: the forms say what sums over instructions come to, exactly where
// nothing else is noted.
#include <boost/test/unit_test.hpp>
#include <map>
#include <memory>
#include <set>

#include "tests/tuner/planned_layouts.h"
#include "tuner/planner/memory_profile.h"
#include "tuner/planner/step_time.h"

namespace moetune::tuner::planner {

BOOST_AUTO_TEST_SUITE(planner_program_memory)

namespace {

namespace tt = boost::test_tools;
using plan::Buf;
using plan::Instr;
using plan::Item;
using plan::MemoryGroup;
using plan::Op;
using plan::Pass;
using plan::Segment;
using plan::StepProgram;
using plan::Verb;
using samples::cost_of;
using samples::for_layouts;
using samples::is_of_layer;
using samples::kLink;
using samples::program_of;
using samples::programs_of;
using samples::Sizes;
using samples::window_of;
using samples::with_run;
using spec::CollectiveKind;

// Parameters, what is kept for them and done with them.

/// How many ranks share the update of a parameter: as plans and Megatron-Core have it. A program
/// shares out what tensor parallelism does not split over the tensor-parallel ranks, too. Plans
/// count the biases of the experts' second matrices as if all ranks of a stage had them.
double num_copies(const StepProgram& program, const plan::ParamDesc& param) {
  const plan::BucketDesc& bucket = program.params.buckets[static_cast<size_t>(param.bucket)];
  const bool is_of_experts =
      bucket.group == plan::Group::edp && param.kind != plan::ParamKind::expert_fc2_bias;
  return f64(program.layout.group_size(is_of_experts ? plan::Group::edp : plan::Group::dp_cp));
}

struct Held {
  double elements = 0;
  double owned = 0;  ///< by the rank, where copies share the update
};
Held held_by(const StepProgram& program) {
  Held held;
  for (const plan::ParamDesc& param : program.params.params) {
    if (!program.params.has_gradient(param)) continue;
    // Plans leave the norm out that ends a depth of multi-token prediction: one row among matrices.
    if (param.kind == plan::ParamKind::mtp_final_norm) continue;
    held.elements += f64(param.numel());
    held.owned += f64(param.numel()) / num_copies(program, param);
  }
  return held;
}

int64_t bytes_from_the_start(const StepProgram& program, MemoryGroup group) {
  int64_t bytes = 0;
  for (const Item& item : program.setup) {
    for (const Instr& instr : program.segments[static_cast<size_t>(item.segment)]->code) {
      const bool is_it = instr.verb == Verb::alloc && instr.what == static_cast<uint8_t>(group);
      if (is_it) bytes += instr.cost.bytes;
    }
  }
  return bytes;
}

BOOST_AUTO_TEST_CASE(ranks_hold_the_parameters_of_their_programs) {
  for_layouts(samples::all_models(), [](PlanRun& run) {
    // A tied head on another stage is the embedding's copy for multi-token prediction, too. Plans
    // have a second one there.
    if (run.model->ties_embeddings && run.model->mtp.depth > 0 && run.knobs.pp > 1) return;
    for (int64_t stage = 0; stage < run.knobs.pp; ++stage) {
      const Held held = held_by(program_of(run, stage));
      for (const bool is_shared : {false, true}) {
        run.knobs.distributed_optimizer = is_shared;
        const MemoryParts peak = predict_memory(run).stages[static_cast<size_t>(stage)].peak;
        BOOST_TEST_CONTEXT("stage " << stage) {
          BOOST_TEST(peak.weights == 2 * held.elements);
          BOOST_TEST(peak.gradients == 4 * held.elements);
          BOOST_TEST(peak.optimizer == 12 * (is_shared ? held.owned : held.elements),
                     tt::tolerance(1e-12));
        }
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(programs_allocate_what_plans_hold) {
  for_layouts(samples::usual_models(), [](PlanRun& run) {
    run.knobs.distributed_optimizer = run.knobs.tp == 1;  // see num_copies
    const MemoryPrediction memory = predict_memory(run);
    for (int64_t stage = 0; stage < run.knobs.pp; ++stage) {
      const StepProgram program = program_of(run, stage);
      const MemoryParts& peak = memory.stages[static_cast<size_t>(stage)].peak;
      BOOST_TEST(peak.weights == f64(bytes_from_the_start(program, MemoryGroup::weights)));
      BOOST_TEST(peak.gradients == f64(bytes_from_the_start(program, MemoryGroup::gradients)));
      BOOST_TEST(peak.optimizer == f64(bytes_from_the_start(program, MemoryGroup::optimizer)));
    }
  });
}

BOOST_AUTO_TEST_CASE(an_update_moves_the_bytes_of_its_program) {
  Rates rates;
  rates.optimizer_factor = 1;
  for_layouts(samples::usual_models(), [&](PlanRun& run) {
    if (run.knobs.pp > 1) return;  // plans look at the busiest stage
    spec::HardwareSpec hardware = samples::one_node(run);
    hardware.memory_bytes_per_s = kLink;
    run.hardware = &hardware;
    run.knobs.overlap_grad_reduce = run.knobs.overlap_param_gather = false;
    for (const bool is_shared : {false, true}) {
      run.knobs.distributed_optimizer = is_shared;
      const StepTime step = predict_step(run, rates);
      const StepProgram program = program_of(run, 0);
      double sent = 0;
      int64_t updated = 0;
      plan::for_each(program, [&](const Item&, const Segment&, const Instr& instr) {
        if (instr.op == Op::adamw) updated += instr.cost.bytes;
        if (instr.op != Op::grad_reduce && instr.op != Op::param_gather) return;
        if (instr.verb != Verb::comm) return;
        const bool is_of_experts = instr.group == plan::Group::edp;
        const double n =
            f64(program.layout.group_size(is_of_experts ? plan::Group::edp : plan::Group::dp_cp));
        const double times = instr.kind == CollectiveKind::all_reduce ? 2 : 1;
        sent += times * f64(instr.cost.bytes) * (n - 1) / n;
      });
      BOOST_TEST(kLink * step.part(TimePart::data) == sent, tt::tolerance(1e-6));
      const double update = kLink * step.part(TimePart::optimizer);
      const Held held = held_by(program);
      BOOST_TEST(update == 30 * (is_shared ? held.owned : held.elements), tt::tolerance(1e-9));
      if (run.knobs.tp == 1) BOOST_TEST(update == f64(updated), tt::tolerance(1e-9));
    }
  });
}

// Without mixed precision weights are as wide as gradients.
BOOST_AUTO_TEST_CASE(wide_weights_are_gathered_as_wide_as_they_are) {
  const spec::ModelSpec model = samples::dense_model();
  with_run(model, {.dp = 2}, [](PlanRun& run) {
    const spec::HardwareSpec hardware = samples::one_node(run);
    run.hardware = &hardware;
    const double narrow = predict_step(run, {}).part(TimePart::data);
    run.knobs.precision = spec::PrecisionRecipe::fp32;
    BOOST_TEST(predict_step(run, {}).part(TimePart::data) == narrow * 8 / 6, tt::tolerance(1e-6));
  });
}

// What layers save.

/// What a layer's forward pass of the first micro-batch leaves. Left out: lists and statistics of
/// the router, for which Megatron-Core has its own tensors.
std::map<int64_t, double> saved_by_layer(const StepProgram& program) {
  const std::set<Buf> left_out = {Buf::router_probs, Buf::router_lse,    Buf::topk_indices,
                                  Buf::topk_weights, Buf::expert_counts, Buf::aux_sums,
                                  Buf::slot_maps,    Buf::row_maps,      Buf::offsets};
  std::map<int64_t, double> layers;
  plan::for_each(program, [&](const Item& item, const Segment& segment, const Instr& instr) {
    if (item.micro_batch != 0 || !is_of_layer(segment) || instr.pass != Pass::forward) return;
    if (instr.verb != Verb::alloc) return;
    if (instr.what != static_cast<uint8_t>(MemoryGroup::activations)) return;
    if (left_out.count(static_cast<Buf>(instr.refs.front().id)) > 0) return;
    layers[item.layer] += f64(cost_of(segment, instr).bytes);
  });
  return layers;
}

/// The same by the table of plans.
double saved_by_terms(const LayerSizes& sizes, const spec::PlanKnobs& knobs) {
  double bytes = 0;
  for (const SavedTerm& term : saved_terms()) {
    if (term.name == "router" || term.name == "map of rows") continue;
    if (term.is_there == nullptr || term.is_there(sizes, knobs)) bytes += term.bytes(sizes, knobs);
  }
  return bytes;
}

/// Of what programs keep and plans do not.
double kept_besides(const LayerSizes& sizes) {
  const spec::ModelSpec& model = *sizes.model;
  double bytes = 0;
  // The part of a key that is rotated, before and behind the norm of its latent.
  if (sizes.kind.mixer == spec::Mixer::mla) {
    bytes += 2 * sizes.own_tokens * f64(model.mla.qk_rope_head_dim);
  }
  // The shared experts' output before its gate, and the gate.
  if (sizes.kind.feed_forward == spec::FeedForward::moe && model.has_shared_gate) {
    bytes += 2 * sizes.own_tokens * f64(model.hidden_size + 1);
  }
  return bytes;
}

/// Scans save what their kernels do, and projections to another width lie elsewhere.
bool saves_alike(const spec::ModelSpec& model, spec::LayerKind kind) {
  return kind.mixer != spec::Mixer::gdn && kind.mixer != spec::Mixer::mamba &&
         (kind.feed_forward != spec::FeedForward::moe || model.moe_latent_size == 0);
}

BOOST_AUTO_TEST_CASE(layers_save_what_their_programs_save) {
  int num_seen = 0;
  for_layouts(samples::all_models(), [&](PlanRun& run) {
    const spec::ModelSpec& model = *run.model;
    for (const StepProgram& program : programs_of(run)) {
      for (const auto& [layer, saved] : saved_by_layer(program)) {
        const spec::LayerKind kind = plan::kind_of_layer(model, layer);
        if (layer >= model.num_layers || !saves_alike(model, kind)) continue;
        const LayerSizes sizes = sizes_of(run, kind, window_of(model, layer));
        BOOST_TEST(saved_by_terms(sizes, run.knobs) + kept_besides(sizes) == saved,
                   "layer " << layer << ": " << saved);
        ++num_seen;
      }
    }
  });
  BOOST_TEST(num_seen > 200);
}

// Where heads are exchanged, attention's output by tokens and by heads. Norms of queries and keys
// and a gate keep what was projected, and what lies beside what they read.
BOOST_AUTO_TEST_CASE(layers_that_exchange_heads_save_what_their_programs_save) {
  int num_seen = 0;
  for (const auto& [name, model] : samples::all_models()) {
    BOOST_TEST_CONTEXT(name) {
      with_run(model, {.cp = 2, .exchange = spec::PlanCp::a2a}, [&, &model = model](PlanRun& run) {
        for (const auto& [layer, saved] : saved_by_layer(program_of(run, 0))) {
          const spec::LayerKind kind = plan::kind_of_layer(model, layer);
          if (layer >= model.num_layers || !saves_alike(model, kind)) continue;
          const LayerSizes sizes = sizes_of(run, kind, window_of(model, layer));
          double beside = 0;
          if (kind.mixer == spec::Mixer::gqa && (model.has_qk_norm || model.has_attention_gate)) {
            const int64_t read = (model.has_qk_norm ? model.num_heads + model.num_kv_heads : 0);
            const int64_t all = model.num_heads + 2 * model.num_kv_heads;
            beside = 2 * sizes.tokens * f64(model.head_dim * (all - read));
          }
          BOOST_TEST(saved_by_terms(sizes, run.knobs) + kept_besides(sizes) + beside == saved,
                     "layer " << layer << ": " << saved);
          ++num_seen;
        }
      });
    }
  }
  BOOST_TEST(num_seen > 40);
}

/// The first rank of each stage, with products of that recipe.
std::vector<StepProgram> narrow_programs_of(PlanRun& run, spec::PrecisionRecipe recipe) {
  run.knobs.precision = recipe;
  plan::Planned planned;
  planned.precision = recipe;
  std::vector<StepProgram> programs;
  for (int stage = 0; stage < run.knobs.pp; ++stage) {
    const auto rank = static_cast<int>(stage * run.knobs.stage_ranks());
    programs.push_back(plan::compile(trial_of(run), rank, planned));
  }
  return programs;
}

// In 8 bits. What tensor parallelism gathers again programs keep in 16 bits, and of the experts'
// input they keep no wide copy either.
BOOST_AUTO_TEST_CASE(narrow_layers_save_what_their_programs_save) {
  int num_seen = 0;
  for_layouts(samples::usual_models(), [&](PlanRun& run) {
    if (run.knobs.tp > 1) return;
    const spec::ModelSpec& model = *run.model;
    for (const spec::PrecisionRecipe recipe :
         {spec::PrecisionRecipe::fp8_current, spec::PrecisionRecipe::mxfp8}) {
      for (const StepProgram& program : narrow_programs_of(run, recipe)) {
        for (const auto& [layer, saved] : saved_by_layer(program)) {
          const spec::LayerKind kind = plan::kind_of_layer(model, layer);
          const LayerSizes sizes = sizes_of(run, kind, window_of(model, layer));
          BOOST_TEST(saved_by_terms(sizes, run.knobs) == saved, "layer " << layer << ": " << saved);
          ++num_seen;
        }
      }
    }
  });
  BOOST_TEST(num_seen > 50);
}

// Scales are left out, of MXFP8 a thirty-second of each copy.
BOOST_AUTO_TEST_CASE(narrow_weights_are_held_as_their_programs_hold_them) {
  for_layouts(samples::usual_models(), [&](PlanRun& run) {
    for (const spec::PrecisionRecipe recipe :
         {spec::PrecisionRecipe::fp8_current, spec::PrecisionRecipe::fp8_blockwise}) {
      const std::vector<StepProgram> programs = narrow_programs_of(run, recipe);
      const MemoryPrediction memory = predict_memory(run);
      for (size_t stage = 0; stage < programs.size(); ++stage) {
        const MemoryParts& peak = memory.stages[stage].peak;
        BOOST_TEST(peak.narrow_weights > 0);
        BOOST_TEST(peak.weights + peak.narrow_weights ==
                   f64(bytes_from_the_start(programs[stage], MemoryGroup::weights)));
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(layers_have_the_tokens_and_rows_of_their_programs) {
  for_layouts(samples::usual_models(), [](PlanRun& run) {
    for (const StepProgram& program : programs_of(run)) {
      for (const std::shared_ptr<const Segment>& segment : program.segments) {
        if (!is_of_layer(*segment)) continue;
        const LayerSizes sizes = sizes_of(run, run.model->kind_of(0), 0);
        BOOST_TEST(sizes.tokens == f64(segment->dims.block_tokens));
        BOOST_TEST(sizes.own_tokens == f64(segment->dims.tokens));
        BOOST_TEST(sizes.rows == f64(segment->dims.received_rows));
      }
    }
  });
}

// With one micro-batch in flight: all that is saved, and under full recomputation the inputs alone.
BOOST_AUTO_TEST_CASE(a_stage_saves_what_its_program_saves) {
  const spec::ModelSpec model = samples::dense_model();
  for (const Sizes& sizes : samples::kLayouts) {
    if (sizes.pp > 1) continue;
    with_run(model, sizes, [](PlanRun& run) {
      for (const spec::PlanRecomputeSet recompute :
           {spec::PlanRecomputeSet{}, spec::PlanRecomputeSet{spec::PlanRecompute::full}}) {
        run.knobs.recompute = recompute;
        double saved = 0;
        for (const auto& [layer, bytes] : saved_by_layer(program_of(run, 0))) saved += bytes;
        BOOST_TEST(predict_memory(run).worst().peak.activations == saved);
      }
    });
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::tuner::planner
