// From a plan to a trial; the engine's cost model plays it.
#include "tuner/planner/played_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/spec/engine_gap.h"
#include "tuner/planner/exchange.h"
#include "tuner/planner/layer_work.h"
#include "tuner/planner/step_time.h"
#include "tuner/planner/titan_memory.h"
#include "tuner/planner/titan_time.h"

namespace moetune::tuner::planner {

namespace {

using spec::PlanGraph;
using spec::PlanRecompute;
using spec::Work;

spec::RecomputeSet recompute_of(const spec::PlanRecomputeSet& modules) {
  using M = spec::RecomputeModule;
  spec::RecomputeSet set;
  if (modules.has(PlanRecompute::full)) return {M::full};
  if (modules.has(PlanRecompute::core_attn)) set.add(M::core_attn);
  if (modules.has(PlanRecompute::layernorm)) set.add(M::norm);
  if (modules.has(PlanRecompute::moe_act)) set.add(M::moe_act);
  if (modules.has(PlanRecompute::moe)) set.add(M::experts);
  return set;
}

spec::GraphSet graphs_of(const spec::PlanGraphSet& scopes) {
  using G = spec::GraphScope;
  spec::GraphSet set;
  if (scopes.has(PlanGraph::full_iteration)) return {G::full_iteration};
  if (scopes.has(PlanGraph::attn)) set.add(G::attn);
  if (scopes.has(PlanGraph::moe_router)) set.add(G::moe_router);
  if (scopes.has(PlanGraph::moe_preprocess)) set.add(G::moe_preprocess);
  return set;
}

/// The engine has two types of moments; of fewer than 32 bits it has bf16.
spec::MomentType moment_of(spec::StateType type) {
  return type == spec::StateType::fp32 ? spec::MomentType::fp32 : spec::MomentType::bf16;
}

/// What a played step leaves out of choices that are no gap of the engine: it has its own way.
struct LeftOut {
  std::string (*what)(const spec::PlanKnobs&);  ///< empty: the choices do not ask for it
  const char* stand_in = "";
};

using Choices = const spec::PlanKnobs&;

std::string where(bool is_there, const char* what) { return is_there ? what : ""; }

constexpr LeftOut kLeftOut[] = {
    // Its products are priced so; what moves is in bf16.
    {[](Choices k) { return where(has_wide_elements(k), "tensors of 32 bits"); },
     "those of 16 bits stand for them"},
    {[](Choices k) {
      return where(k.precision == spec::PrecisionRecipe::fp8_delayed,
                   "the reduction of amax over ranks");
    }},
    {[](Choices k) {
       return k.cross_entropy == spec::CrossEntropy::native
                  ? ""
                  : fmt::format("{} cross-entropy", name_of(k.cross_entropy));
     },
     "one product and its loss stand for it"},
    {[](Choices k) { return where(!k.fused_activation, "an activation that is not fused"); },
     "a fused one stands for it"},
    {[](Choices k) { return where(!k.moe_permute_fusion, "sorting of rows that is not fused"); },
     "one kernel stands for it"},
    {[](Choices k) {
       // FSDP2 accumulates by itself.
       return where(!k.gradient_accumulation_fusion && k.fsdp != spec::Fsdp::torch,
                    "gradients that products do not add up themselves");
     },
     "products that do stand for it"},
    {[](Choices k) { return where(k.precision_aware_optimizer, "the precision-aware optimizer"); },
     "the usual one stands for it"},
    {[](Choices k) {
      return where(k.overlap_moe_expert_parallel_comm && k.cuda_device_max_connections == 1,
                   "one queue from host to device");
    }},
    {[](Choices k) {
       const int32_t steps = k.cuda_graph_warmup_steps;
       const bool is_told =
           !k.cuda_graphs.empty() && steps != spec::PlanKnobs{}.cuda_graph_warmup_steps;
       return is_told ? fmt::format("the {} steps before graphs are captured", steps) : "";
     },
     "one behind them is played"},
};

std::string with_stand_in(std::string what, std::string_view stand_in) {
  return stand_in.empty() ? what : fmt::format("{} ({})", what, stand_in);
}

/// Launches of the host in a program: of operations outside of graphs, of graphs, and of all that
/// communicates or copies.
double num_launches(const plan::StepProgram& program) {
  using plan::Verb;
  double count = 0;
  bool is_in_graph = false;
  bool is_launched = false;
  plan::for_each(program, [&](const plan::Item&, const plan::Segment&, const plan::Instr& instr) {
    if (plan::cuts_graph(instr.verb)) is_launched = false;
    switch (instr.verb) {
      case Verb::op:
        if (!is_in_graph || !is_launched) ++count;
        is_launched = is_in_graph;
        break;
      case Verb::comm:
      case Verb::send:
      case Verb::recv:
      case Verb::copy:
        ++count;
        break;
      case Verb::mark: {
        const auto mark = static_cast<plan::Mark>(instr.what);
        if (mark == plan::Mark::graph_open) is_in_graph = true;
        if (mark == plan::Mark::graph_close) is_in_graph = false;
        if (mark == plan::Mark::graph_open) is_launched = false;
        break;
      }
      default:
        break;
    }
  });
  return count;
}

/// Of the stage that has most.
double most_launches(const CompiledStep& compiled) {
  double most = 1;
  for (const plan::StepProgram& program : compiled.stages()) {
    most = std::max(most, num_launches(program));
  }
  return most;
}

plan::TransferOf transfers_of(const PlanRun& run, const Rates& rates) {
  const double exchange = exchange_over_links(run) / rates.exchange;
  // Weights are gathered beside the next step's forward, which is not played.
  const double gathered = run.knobs.overlap_param_gather ? rates.data_exposed : 1;
  const double tensor = rates.tensor_factor;
  const double scale = step_scale(run, rates);
  return [=](const plan::Instr& instr, const std::vector<int>&, int64_t ns) {
    const double share = plan::is_exchange_of_rows(instr)     ? exchange
                         : instr.op == plan::Op::param_gather ? gathered
                         : instr.group == plan::Group::tp     ? tensor
                                                              : 1;
    return std::llround(scale * share * static_cast<double>(ns));
  };
}

/// Operations last as long as they are priced.
decltype(PlayedTimes::op_of) operations_of(const PlanRun& run, const Rates& rates) {
  const double experts =
      std::max(1.0, f64(run.model->num_experts) / static_cast<double>(run.knobs.ep));
  return [price = op_price(run, rates), experts](const plan::Position&, const plan::Instr& instr,
                                                 const plan::OpCost& cost) {
    OpWork op;
    // A dispatcher sorts rows beside its transfer.
    op.op = instr.verb == plan::Verb::comm ? plan::Op::permute : instr.op;
    op.pass = instr.pass == plan::Pass::recompute ? plan::Pass::forward : instr.pass;
    op.work = plan::op_row(op.op).work;
    op.flops = cost.all_flops();
    op.bytes = f64(cost.bytes);
    op.row_flops = f64(cost.row_flops);
    if (op.work == Work::grouped) op.matrices = experts;
    return std::llround(1e9 * price(op, cost.recipe));
  };
}

/// Behind the step, of each stage: what no program has.
void add_fixed(int64_t ns, PlayedStep& step) {
  if (ns <= 0) return;
  const base::NamedPart part = named(TimePart::fixed);
  const std::string name = base::name_of(part.row->id, part.group);
  step.estimate.step_ns += ns;
  step.estimate.parts_ns[name] += ns;
  for (auto& parts : step.stage_parts_ns) parts[name] += ns;
}

}  // namespace

spec::TrialSpec trial_of(const PlanRun& asked) {
  PlanRun run = asked;
  run.knobs = computed_knobs(asked);
  spec::TrialSpec trial;
  trial.model = *run.model;
  trial.hardware = *run.hardware;
  // What communication takes from work beside it is in rates that were fitted to whole steps.
  trial.hardware.comm_sm_ratio = 0;
  trial.knobs = sizes_as_knobs(run.knobs);
  const std::string layout = pipeline_layout_of(run);
  if (!layout.empty()) {
    trial.knobs.pipeline_model_parallel_layout = layout;
  } else {
    // Layers of the ends that are counted need no layout.
    trial.knobs.decoder_first_pipeline_num_layers = run.knobs.first_stage_layers;
    trial.knobs.decoder_last_pipeline_num_layers = run.knobs.last_stage_layers;
  }
  trial.knobs.recompute = recompute_of(run.knobs.recompute);
  trial.knobs.cuda_graph_modules = graphs_of(run.knobs.cuda_graphs);
  trial.knobs.use_distributed_optimizer =
      run.knobs.distributed_optimizer || run.knobs.fsdp != spec::Fsdp::none;
  trial.knobs.overlap_grad_reduce = run.knobs.overlap_grad_reduce;
  trial.knobs.exp_avg_dtype = moment_of(run.knobs.exp_avg);
  trial.knobs.exp_avg_sq_dtype = moment_of(run.knobs.exp_avg_sq);
  trial.training.global_batch_size = run.global_batch_size;
  trial.training.seq_length = run.seq_length;
  trial.dtype = spec::DType::bf16;
  trial.backend = spec::BackendKind::cuda;
  trial.clock = spec::ClockMode::virtual_modelled;
  return trial;
}

std::vector<std::string> not_played(const PlanRun& run) {
  const spec::PlanKnobs knobs = computed_knobs(run);
  std::vector<std::string> words;
  for (const LeftOut& left : kLeftOut) {
    std::string what = left.what(knobs);
    if (!what.empty()) words.push_back(with_stand_in(std::move(what), left.stand_in));
  }
  for (const spec::EngineGap& gap : spec::engine_gaps(knobs)) {
    if (gap.is_in_played_step) continue;
    words.push_back(with_stand_in(gap.what, gap.stand_in));
  }
  return words;
}

PlayedStep play_plan(const PlanRun& asked, const Rates& rates, bool has_records) {
  PlanRun run = asked;
  run.knobs = computed_knobs(asked);
  spec::TrialSpec trial = trial_of(asked);
  const CompiledStep compiled(trial, {}, played_rows_ratio(run), plan::planned_of(run.knobs));
  const PreparedStep priced(run);
  // What the host does for a launch, replays of graphs among them, comes to what it is priced at.
  trial.hardware.launch_ns = trial.hardware.graph_launch_ns =
      std::llround(1e9 * priced.launch_seconds(rates) / most_launches(compiled));
  const PlayedTimes times = {transfers_of(run, rates), operations_of(run, rates)};
  PlayedStep step =
      play_traced(trial, compiled, Calibration(), has_records ? kMostRecords : 0, times);
  add_fixed(std::llround(1e9 * priced.price(rates).part(TimePart::fixed)), step);
  return step;
}

}  // namespace moetune::tuner::planner
