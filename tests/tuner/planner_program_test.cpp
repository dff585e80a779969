// What plans compute in closed form of a step's work, its traffic and its pipeline, against the
// programs of the same layouts: the forms say what sums over instructions come to, exactly where
// nothing else is noted.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "engine/plan/player.h"
#include "tests/tuner/planned_layouts.h"
#include "tuner/planner/exchange.h"
#include "tuner/planner/layer_work.h"
#include "tuner/planner/memory_profile.h"
#include "tuner/planner/step_time.h"

namespace moetune::tuner::planner {

BOOST_AUTO_TEST_SUITE(planner_program)

namespace {

namespace tt = boost::test_tools;
using plan::BlockKind;
using plan::Instr;
using plan::Item;
using plan::Op;
using plan::Pass;
using plan::Segment;
using plan::StepProgram;
using plan::Verb;
using samples::cost_of;
using samples::for_layouts;
using samples::is_of_layer;
using samples::kLink;
using samples::kMicroBatches;
using samples::Models;
using samples::program_of;
using samples::programs_of;
using samples::Sizes;
using samples::window_of;
using samples::with_run;
using spec::Work;

// Work of layers.

struct Sum {
  double flops = 0;
  double bytes = 0;
  int64_t count = 0;
};
using Sums = std::map<std::pair<Op, Pass>, Sum>;

void add(const Segment& segment, const Instr& instr, Sums& sums) {
  if (instr.verb != Verb::op && instr.verb != Verb::comm) return;
  const plan::OpCost cost = cost_of(segment, instr);
  Sum& sum = sums[{instr.op, instr.pass}];
  sum.flops += cost.all_flops();
  sum.bytes += static_cast<double>(cost.bytes);
  ++sum.count;
  // Programs drop the list of a chunk's rows where there is one chunk; plans have it read.
  const bool has_list =
      instr.op == Op::expert_fc1 || instr.op == Op::expert_act || instr.op == Op::expert_fc2;
  if (has_list && instr.pass != Pass::wgrad) sum.bytes += 4 * f64(segment.dims.received_rows);
}

Sums sums_of(const LayerWork& work, int64_t times) {
  Sums sums;
  const auto times_over = static_cast<double>(times);
  for (const OpWork& op : work.ops) {
    Sum& sum = sums[{op.op, op.pass}];
    sum.flops += times_over * op.flops;
    sum.bytes += times_over * op.bytes;
    sum.count += times;
  }
  for (const CommWork& comm : work.comms) {
    Sum& sum = sums[{comm.op, comm.pass}];
    sum.bytes += times_over * comm.bytes;
    sum.count += times;
  }
  return sums;
}

void check_same(const Sums& planned, const Sums& programmed) {
  BOOST_TEST(planned.size() == programmed.size());
  for (const auto& [key, sum] : programmed) {
    BOOST_TEST_CONTEXT(plan::op_label(key.first, key.second)) {
      const auto found = planned.find(key);
      BOOST_TEST_REQUIRE((found != planned.end()));
      BOOST_TEST(found->second.flops == sum.flops);
      BOOST_TEST(found->second.bytes == sum.bytes);
      BOOST_TEST(found->second.count == sum.count);
    }
  }
}

/// Of the first micro-batch.
std::map<int64_t, Sums> sums_by_layer(const StepProgram& program) {
  std::map<int64_t, Sums> layers;
  plan::for_each(program, [&](const Item& item, const Segment& segment, const Instr& instr) {
    if (item.micro_batch != 0 || !is_of_layer(segment)) return;
    add(segment, instr, layers[item.layer]);
  });
  return layers;
}

BOOST_AUTO_TEST_CASE(a_layer_runs_what_its_program_runs) {
  for_layouts(samples::all_models(), [](PlanRun& run) {
    const spec::ModelSpec& model = *run.model;
    size_t num_layers = 0;
    for (const StepProgram& program : programs_of(run)) {
      for (const auto& [layer, sums] : sums_by_layer(program)) {
        BOOST_TEST_CONTEXT("layer " << layer) {
          const bool is_repeated = layer >= model.num_layers && model.mtp.repeats_layer;
          const LayerWork work =
              layer_work(run, plan::kind_of_layer(model, layer), window_of(model, layer));
          check_same(sums_of(work, is_repeated ? model.mtp.depth : 1), sums);
        }
        ++num_layers;
      }
    }
    BOOST_TEST(num_layers >= static_cast<size_t>(model.num_layers));
  });
}

// A search has works from one cache for all of its runs.
BOOST_AUTO_TEST_CASE(a_cache_tells_gathered_keys_from_a_ring) {
  const spec::ModelSpec model = samples::dense_model();
  with_run(model, {.cp = 4}, [](PlanRun& run) {
    WorkCache works;
    for (const spec::PlanCp exchange :
         {spec::PlanCp::p2p, spec::PlanCp::all_gather, spec::PlanCp::a2a}) {
      run.knobs.cp_comm_type = exchange;
      BOOST_TEST(PreparedStep(run, works).price({}).seconds == predict_step(run, {}).seconds);
    }
  });
}

BOOST_AUTO_TEST_CASE(a_head_runs_what_its_program_runs) {
  for_layouts(samples::all_models(), [](PlanRun& run) {
    const StepProgram program = program_of(run, run.knobs.pp - 1);
    Sums head;
    double of_depths = 0;
    plan::for_each(program, [&](const Item& item, const Segment& segment, const Instr& instr) {
      if (item.micro_batch != 0) return;
      if (segment.block == BlockKind::head) add(segment, instr, head);
      if (segment.block == BlockKind::mtp_head && instr.op == Op::lm_head) {
        of_depths += cost_of(segment, instr).all_flops();
      }
    });
    const Sums planned = sums_of(head_work(run), 1);
    check_same(planned, head);
    double of_head = 0;
    for (const auto& [key, sum] : planned) of_head += key.first == Op::lm_head ? sum.flops : 0;
    // Plans count a head for each depth of multi-token prediction.
    BOOST_TEST(of_depths == static_cast<double>(run.model->mtp.depth) * of_head);
  });
}

// Computing of a step. Where memory takes no time only FLOPs are left.

using Parts = std::map<TimePart, double>;

/// Seconds at the rates of plans.
Parts computing(const StepProgram& program, const PlanRun& run, const Rates& rates) {
  const spec::HardwareSpec& hardware = *run.hardware;
  const double product = product_flops_per_s(rates, hardware, run.knobs.precision, has_tf32(run));
  const double scan = scan_flops_per_s(rates, hardware, true);
  const auto attention = [&](bool is_backward) {
    return attention_flops_per_s(rates, hardware, f64(run.seq_length), f64(run.model->head_dim),
                                 is_backward, false);
  };
  Parts parts;
  plan::for_each(program, [&](const Item&, const Segment& segment, const Instr& instr) {
    if (instr.verb != Verb::op) return;
    const double flops = cost_of(segment, instr).all_flops();
    const auto take = [&](TimePart part, double flops_per_s) {
      parts[instr.pass == Pass::recompute ? TimePart::recompute : part] += flops / flops_per_s;
    };
    const Work work = plan::op_row(instr.op).work;
    if (work == Work::product) take(TimePart::products, product);
    if (work == Work::grouped) take(TimePart::experts, rates.grouped * product);
    if (work == Work::attention) take(TimePart::attention, attention(instr.pass == Pass::backward));
    if (instr.op == Op::gdn_scan) take(TimePart::attention, scan);
  });
  return parts;
}

BOOST_AUTO_TEST_CASE(a_step_computes_what_its_program_does) {
  Rates rates;
  rates.product_half_rows = 0;
  rates.grouped_half_rows = 0;
  Models models = samples::usual_models();
  models.emplace_back("hybrid", samples::hybrid_model(4));
  models.emplace_back("gpt_oss", plan::testing::small_gpt_oss());
  models.emplace_back("gpt", plan::testing::small_gpt());
  for_layouts(models, [&](PlanRun& run) {
    if (run.knobs.pp > 1) return;
    spec::HardwareSpec hardware = *run.hardware;
    hardware.memory_bytes_per_s = 1e30;
    run.hardware = &hardware;
    for (const spec::PlanRecomputeSet recompute :
         {spec::PlanRecomputeSet{}, spec::PlanRecomputeSet{spec::PlanRecompute::core_attn},
          spec::PlanRecomputeSet{spec::PlanRecompute::full}}) {
      run.knobs.recompute = recompute;
      const StepTime step = predict_step(run, rates);
      Parts parts = computing(program_of(run, 0), run, rates);
      for (const TimePart part :
           {TimePart::products, TimePart::experts, TimePart::attention, TimePart::recompute}) {
        // Where nothing is computed a few bytes are left of time.
        BOOST_TEST(step.part(part) + 1e-15 == parts[part] + 1e-15, tt::tolerance(1e-6));
      }
    }
  });
}

// What travels.

/// What the first rank sends in the first forward exchange of that op.
int64_t bytes_sent(const PlanRun& run, spec::DType dtype, Op op) {
  spec::TrialSpec trial = trial_of(run);
  trial.dtype = dtype;
  const StepProgram program = plan::compile(trial, 0);
  const plan::BalancedBindings bindings(trial, 0);
  int64_t bytes = -1;
  plan::for_each(program, [&](const Item& item, const Segment& segment, const Instr& instr) {
    if (instr.op != op || instr.verb != Verb::comm || bytes >= 0) return;
    bytes = plan::sent_bytes(program, segment, instr, &bindings.at(item.layer, item.micro_batch));
  });
  return bytes;
}

// How many exchanges a layer has is in a_layer_runs_what_its_program_runs.
BOOST_AUTO_TEST_CASE(an_exchange_moves_the_rows_of_its_program) {
  Models models = samples::usual_models();
  models.emplace_back("nemotron", plan::testing::small_nemotron());
  double link = 0;
  int num_seen = 0;
  for_layouts(models, [&](PlanRun& run) {
    if (run.knobs.ep * run.knobs.etp == 1) return;
    const spec::HardwareSpec hardware = samples::one_node(run);
    run.hardware = &hardware;
    const spec::ModelSpec& model = *run.model;
    const int64_t width = model.moe_latent_size > 0 ? model.moe_latent_size : model.hidden_size;
    for (const bool is_wide : {false, true}) {
      run.knobs.precision = is_wide ? spec::PrecisionRecipe::fp32 : spec::PrecisionRecipe::bf16;
      const spec::DType dtype = is_wide ? spec::DType::f32 : spec::DType::bf16;
      const int64_t back = bytes_sent(run, dtype, Op::combine);
      BOOST_TEST_REQUIRE(back > 0);
      // Whatever the layout, a byte takes as long.
      const double seconds_a_byte = exchange_seconds(run) / f64(back);
      if (link == 0) link = seconds_a_byte;
      BOOST_TEST(seconds_a_byte == link, tt::tolerance(1e-9));
      // To the experts a weight goes with each row, which plans leave out.
      const int64_t row = width * (is_wide ? 4 : 2);
      BOOST_TEST(bytes_sent(run, dtype, Op::dispatch) * row == back * (row + 4));
      ++num_seen;
    }
  });
  BOOST_TEST(num_seen > 10);
  // An exchange gets a share of the link.
  BOOST_TEST(link > 1 / kLink);
  BOOST_TEST(link < 2 / kLink);
}

// Heads that are exchanged: forward, backward, and once more where all is recomputed. Plans have a
// model with one kind of attention; a scan's exchange is in a_layer_runs_what_its_program_runs.
BOOST_AUTO_TEST_CASE(heads_that_are_exchanged_move_the_bytes_of_their_program) {
  Models models = samples::usual_models();
  models.emplace_back("deepseek", plan::testing::small_deepseek());
  // As configurations of such models are read.
  spec::ModelSpec& latent = models.back().second;
  latent.num_kv_heads = latent.num_heads;
  latent.head_dim = latent.mla.qk_head_dim();
  models.emplace_back("gpt_oss", plan::testing::small_gpt_oss());
  models.emplace_back("gpt", plan::testing::small_gpt());
  models.emplace_back("llama4", plan::testing::small_llama4());
  double link = 0;
  for (auto& [name, model] : models) {
    model.mtp = {};
    for (const Sizes& sizes : {Sizes{.cp = 2}, Sizes{.tp = 2, .cp = 2}, Sizes{.cp = 4},
                               Sizes{.cp = 2, .dp = 2, .micro_batch_size = 2}}) {
      if (model.num_kv_heads % (sizes.tp * sizes.cp) != 0) continue;
      with_run(model, sizes, [&](PlanRun& run) {
        const spec::HardwareSpec hardware = samples::one_node(run);
        run.hardware = &hardware;
        run.knobs.cp_comm_type = spec::PlanCp::a2a;
        for (const spec::PlanRecomputeSet recompute :
             {spec::PlanRecomputeSet{}, spec::PlanRecomputeSet{spec::PlanRecompute::full}}) {
          run.knobs.recompute = recompute;
          double sent = 0;
          plan::for_each(program_of(run, 0), [&](const Item&, const Segment&, const Instr& instr) {
            if (instr.op != Op::head_exchange) return;
            sent += f64(instr.cost.bytes) * (sizes.cp - 1) / sizes.cp;
          });
          BOOST_TEST_REQUIRE(sent > 0);
          const double planned = kLink * predict_step(run, {}).part(TimePart::context);
          if (link == 0) link = planned / sent;
          BOOST_TEST(planned == link * sent, tt::tolerance(1e-6));
        }
      });
    }
  }
  BOOST_TEST(link >= 1);
  BOOST_TEST(link < 2);
}

BOOST_AUTO_TEST_CASE(stages_send_the_messages_of_their_programs) {
  const spec::ModelSpec model = samples::dense_model();
  Rates rates;
  rates.pipeline_exposed = 1;
  const std::vector<Sizes> layouts = {{.pp = 4},
                                      {.pp = 4, .micro_batch_size = 2},
                                      {.pp = 4, .vpp = 2},
                                      {.tp = 2, .cp = 2, .pp = 4, .vpp = 2}};
  for (const Sizes& sizes : layouts) {
    with_run(model, sizes, [&](PlanRun& run) {
      const spec::HardwareSpec hardware = samples::one_node(run);
      run.hardware = &hardware;
      const double planned = kLink * predict_step(run, rates).part(TimePart::pipeline);
      const std::vector<StepProgram> programs = programs_of(run);
      for (size_t stage = 0; stage < programs.size(); ++stage) {
        int64_t sent = 0;
        int64_t message = 0;
        plan::for_each(programs[stage], [&](const Item&, const Segment&, const Instr& instr) {
          if (instr.verb != Verb::send) return;
          sent += instr.cost.bytes;
          message = instr.cost.bytes;
        });
        // Plans have every virtual stage send both ways. The model's first one has nobody to send
        // back to, and its last one nobody to send on to.
        const bool is_end = stage == 0 || stage + 1 == programs.size();
        const int64_t missing = is_end ? kMicroBatches * message : 0;
        BOOST_TEST(planned == f64(sent + missing), tt::tolerance(1e-9));
      }
    });
  }
}

// Pipelines.

struct InFlight {
  std::vector<int64_t> at_first_backward;  ///< by virtual stage
  int64_t most = 0;                        ///< of all of them together, at any time
  size_t num_micro_batches = 0;
};
InFlight in_flight_of(const StepProgram& program) {
  InFlight found;
  std::map<int32_t, std::set<int32_t>> live;  // by the virtual stage's end
  std::set<int32_t> all;
  for (const Item& item : program.items) {
    const Segment& segment = *program.segments[static_cast<size_t>(item.segment)];
    if (item.micro_batch < 0 || !is_of_layer(segment)) continue;
    all.insert(item.micro_batch);
    if (!segment.is_backward) {
      live[item.edge].insert(item.micro_batch);
      int64_t sum = 0;
      for (const auto& [edge, micro_batches] : live) {
        sum += static_cast<int64_t>(micro_batches.size());
      }
      found.most = std::max(found.most, sum);
      continue;
    }
    if (found.at_first_backward.empty()) {
      for (const auto& [edge, micro_batches] : live) {
        found.at_first_backward.push_back(static_cast<int64_t>(micro_batches.size()));
      }
    }
    live[item.edge].erase(item.micro_batch);
  }
  found.num_micro_batches = all.size();
  return found;
}

BOOST_AUTO_TEST_CASE(stages_hold_the_micro_batches_of_their_programs) {
  const spec::ModelSpec model = samples::dense_model();
  const std::vector<Sizes> layouts = {
      {}, {.pp = 2}, {.pp = 4}, {.pp = 2, .vpp = 2}, {.pp = 4, .vpp = 2}, {.pp = 2, .vpp = 4}};
  for (const Sizes& sizes : layouts) {
    with_run(model, sizes, [&](PlanRun& run) {
      for (const int64_t all : {int64_t{1}, int64_t{2}, int64_t{4}, int64_t{8}}) {
        if (sizes.vpp > 1 && all % sizes.pp != 0) continue;
        run.global_batch_size = all;
        for (int stage = 0; stage < sizes.pp; ++stage) {
          const InFlight found = in_flight_of(program_of(run, stage));
          const std::vector<int64_t> planned = micro_batches_in_flight(run, stage);
          BOOST_TEST(planned == found.at_first_backward, tt::per_element());
          int64_t sum = 0;
          for (const int64_t of_stage : planned) sum += of_stage;
          BOOST_TEST(sum == found.most);
          BOOST_TEST(num_micro_batches(run) == static_cast<int64_t>(found.num_micro_batches));
        }
      }
    });
  }
}

BOOST_AUTO_TEST_CASE(a_pipeline_waits_as_its_played_programs_do) {
  const spec::ModelSpec model = samples::dense_model();
  const auto only_attention = [](const plan::Position&, const Instr& instr,
                                 const plan::OpCost&) -> int64_t {
    if (instr.op != Op::core_attn) return 0;
    return instr.pass == Pass::backward ? 200 : 100;
  };
  const std::vector<Sizes> layouts = {
      {.pp = 2}, {.pp = 4}, {.pp = 2, .vpp = 2}, {.pp = 4, .vpp = 2}};
  for (const Sizes& sizes : layouts) {
    with_run(model, sizes, [&](PlanRun& run) {
      spec::TrialSpec trial = trial_of(run);
      trial.hardware = {};  // links and host are free
      trial.hardware.num_nodes = 1;
      trial.hardware.devices_per_node = sizes.pp;
      std::vector<StepProgram> programs;
      for (int rank = 0; rank < sizes.pp; ++rank) programs.push_back(plan::compile(trial, rank));
      std::vector<plan::PlayedRank> ranks;
      for (const StepProgram& program : programs) ranks.push_back({&program, nullptr});
      const auto played =
          static_cast<double>(plan::play(trial.hardware, ranks, only_attention).step_ns);
      const double work = f64(kMicroBatches * (model.num_layers / sizes.pp) * 300);
      const StepTime step = predict_step(run, {});
      double planned = step.seconds;
      for (const TimePart part : {TimePart::bubble, TimePart::data, TimePart::optimizer,
                                  TimePart::fixed, TimePart::pipeline}) {
        planned -= step.part(part);
      }
      BOOST_TEST(step.part(TimePart::bubble) / planned == played / work - 1, tt::tolerance(1e-9));
    });
  }
}

BOOST_AUTO_TEST_CASE(a_played_step_names_what_it_leaves_out) {
  const spec::ModelSpec model = samples::dense_model();
  with_run(model, {.cp = 2}, [](PlanRun& run) {
    const std::map<spec::PlanCp, Op> travels = {{spec::PlanCp::p2p, Op::kv_shift},
                                                {spec::PlanCp::all_gather, Op::kv_gather},
                                                {spec::PlanCp::a2a, Op::head_exchange}};
    for (const auto& [exchange, expected] : travels) {
      run.knobs.cp_comm_type = exchange;
      BOOST_TEST(not_played(run).empty());
      std::set<Op> seen;
      plan::for_each(program_of(run, 0),
                     [&](const Item&, const Segment& segment, const Instr& instr) {
                       if (is_of_layer(segment) && instr.verb == Verb::comm) seen.insert(instr.op);
                     });
      BOOST_TEST((seen == std::set<Op>{expected}));
    }
    run.knobs.cp_comm_type = spec::PlanCp::p2p;
    run.knobs.recompute = {spec::PlanRecompute::full};
    BOOST_TEST(not_played(run).empty());
    run.knobs.recompute_method = spec::RecomputeMethod::block;
    BOOST_TEST(not_played(run).size() == 1U);
  });
}

// Of a played step, too, overlap over micro-batches hides exchanges.
BOOST_AUTO_TEST_CASE(a_played_step_overlaps_micro_batches) {
  const spec::ModelSpec model = samples::moe_model();
  with_run(model, {.dp = 4, .ep = 4}, [](PlanRun& run) {
    spec::HardwareSpec hardware = *run.hardware;
    hardware.intra_node.bytes_per_s /= 100;  // an exchange takes long
    run.hardware = &hardware;
    const auto seconds = [&](bool has_overlap) {
      run.knobs.overlap_moe_expert_parallel_comm = has_overlap;
      BOOST_TEST(not_played(run).empty());
      BOOST_TEST(trial_of(run).knobs.ep_chunks_forward == 1);
      return play_plan(run, {}, false).estimate.step_ns;
    };
    BOOST_TEST(seconds(true) < seconds(false));
  });
}

// Torchtitan without FSDP computes in 32 bits, and so does what is played.
BOOST_AUTO_TEST_CASE(what_is_computed_in_32_bits_is_played_so) {
  const spec::ModelSpec model = samples::moe_model();
  with_run(model, {.tp = 2}, [](PlanRun& run) {
    run.is_of_megatron = false;
    Rates rates;
    rates.product_half_rows = rates.grouped_half_rows = 0;
    const auto rate_of = [&](const PlanRun& one, spec::Work work) {
      OpWork op;
      op.work = work;
      op.op = work == spec::Work::product     ? Op::qkv_proj
              : work == spec::Work::attention ? Op::core_attn
                                              : Op::expert_fc1;
      op.flops = 1e15;
      return op.flops / op_price(one, rates)(op, spec::PrecisionRecipe::bf16);
    };
    const std::vector<std::string> left_out = {
        "tensors of 32 bits (those of 16 bits stand for them)",
        "attention with scores in memory (fused attention stands for it)"};
    BOOST_TEST(not_played(run) == left_out, tt::per_element());
    PlanRun narrow = run;
    narrow.knobs.main_params = spec::StateType::bf16;
    BOOST_TEST(
        not_played(narrow) == std::vector<std::string>{"main weights in bf16 (fp32 stands for it)"},
        tt::per_element());
    BOOST_TEST(16 * rate_of(run, spec::Work::product) == rate_of(narrow, spec::Work::product),
               tt::tolerance(1e-9));
    BOOST_TEST(4 * rate_of(run, spec::Work::attention) < rate_of(narrow, spec::Work::attention));
    BOOST_TEST(rate_of(run, spec::Work::grouped) == rate_of(narrow, spec::Work::grouped),
               tt::tolerance(1e-9));
  });
}

// Of a recipe only its products are faster: each at the rate of plans.
BOOST_AUTO_TEST_CASE(narrow_products_are_played_at_their_rate) {
  const spec::ModelSpec model = samples::moe_model();
  Rates rates;
  rates.product_half_rows = rates.grouped_half_rows = 0;
  for (const spec::PrecisionRecipe recipe :
       {spec::PrecisionRecipe::bf16, spec::PrecisionRecipe::fp8_current,
        spec::PrecisionRecipe::mxfp8, spec::PrecisionRecipe::nvfp4}) {
    with_run(model, {}, [&](PlanRun& run) {
      spec::HardwareSpec hardware = *run.hardware;
      hardware.fp8_flops_per_s = 2 * hardware.peak_flops_per_s;
      if (recipe != spec::PrecisionRecipe::bf16) hardware.fp4_flops_per_s = 4e15;
      run.hardware = &hardware;
      run.knobs.precision = recipe;
      BOOST_TEST(not_played(run).empty());
      const OpPrice price = op_price(run, rates);
      const auto rate_of = [&](Op name, spec::PrecisionRecipe of) {
        OpWork op;
        op.op = name;
        op.work = plan::op_row(name).work;
        op.flops = 1e15;
        return op.flops / price(op, of);
      };
      const double narrow = product_flops_per_s(rates, hardware, recipe, false);
      const double wide = product_flops_per_s(rates, hardware, spec::PrecisionRecipe::bf16, false);
      BOOST_TEST(rate_of(Op::qkv_proj, recipe) == narrow, tt::tolerance(1e-6));
      BOOST_TEST(rate_of(Op::expert_fc1, recipe) == rates.grouped * narrow, tt::tolerance(1e-6));
      BOOST_TEST(rate_of(Op::lm_head, spec::PrecisionRecipe::bf16) == wide, tt::tolerance(1e-6));
    });
  }
}

BOOST_AUTO_TEST_CASE(stages_have_the_layers_of_their_programs) {
  const spec::ModelSpec model = samples::dense_model();
  const auto check = [&](const PlanRun& run) {
    const std::vector<Chunk> planned = chunks_of(run);
    const std::vector<plan::StageLayers> split = plan::split_layers(model, trial_of(run).knobs);
    BOOST_TEST_REQUIRE(planned.size() == split.size());
    for (size_t i = 0; i < split.size(); ++i) {
      BOOST_TEST(planned[i].first == split[i].first, "stage " << i);
      BOOST_TEST(planned[i].count == split[i].count, "stage " << i);
      BOOST_TEST(planned[i].has_embedding == (i == 0));
      BOOST_TEST(planned[i].has_head == (i + 1 == split.size()));
    }
  };
  const std::vector<Sizes> layouts = {{},        {.pp = 2},           {.pp = 3},
                                      {.pp = 4}, {.pp = 3, .vpp = 2}, {.pp = 4, .vpp = 2}};
  for (const Sizes& sizes : layouts) with_run(model, sizes, check);
  // The ends' layers are counted: 1 and 1 of four, 2 of four with two virtual stages each.
  with_run(model, {.pp = 4}, [&](PlanRun& run) {
    run.knobs.first_stage_layers = run.knobs.last_stage_layers = 1;
    check(run);
    BOOST_TEST(chunks_of(run)[1].count == 3);
    run.stages = unwritten_stages(run);  // as plans have them
    check(run);
    BOOST_TEST(trial_of(run).knobs.decoder_first_pipeline_num_layers == 1);
    run.knobs.first_stage_layers = 2;
    run.knobs.last_stage_layers = 0;
    run.knobs.vpp = 2;
    run.stages.clear();
    check(run);
  });
  with_run(model, {.pp = 2}, [&](PlanRun& run) {
    run.stages = {"Ett", "ttt", "tt", "tL"};
    check(run);
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::tuner::planner
