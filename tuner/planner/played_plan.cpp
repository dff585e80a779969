// From a plan to a trial; the engine's cost model plays it.
#include "tuner/planner/played_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/spec/engine_gap.h"
#include "tuner/planner/exchange.h"
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
    // The engine has them, and what is played is in bf16.
    {[](Choices k) { return where(k.precision == spec::PrecisionRecipe::fp32, "fp32 products"); }},
    {[](Choices k) {
      return where(k.precision == spec::PrecisionRecipe::fp8_delayed,
                   "the reduction of amax over ranks");
    }},
    {[](Choices k) {
       return k.cross_entropy == spec::CrossEntropy::native
                  ? ""
                  : fmt::format("the loss by {}", name_of(k.cross_entropy));
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
      const bool is_told = k.overlap_moe_expert_parallel_comm && k.cuda_device_max_connections < 8;
      return is_told ? fmt::format("{} queues from host to device", k.cuda_device_max_connections)
                     : "";
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

/// Shares of the peaks as the rates have them.
spec::HardwareSpec machine_at(const PlanRun& run, const Rates& rates) {
  spec::HardwareSpec hardware = *run.hardware;
  const double revision = is_later_revision(hardware) ? rates.later_revision : 1;
  const double peak = hardware.peak_flops_per_s;
  const spec::PrecisionRecipe recipe = run.knobs.precision;
  const bool is_narrow = is_product_narrow(recipe);
  const auto rate_of = [&](spec::PrecisionRecipe of) {
    return product_flops_per_s(rates, *run.hardware, of, has_tf32(run)) * revision;
  };
  const double product = rate_of(is_narrow ? spec::PrecisionRecipe::bf16 : recipe);
  const auto seq = static_cast<double>(run.seq_length);
  const auto width = static_cast<double>(run.model->head_dim);
  const bool is_fp8 = run.knobs.fp8_attention;
  // Five products of seven go backward.
  double attention =
      1 / (2.0 / 7 / attention_flops_per_s(rates, hardware, seq, width, false, is_fp8) +
           5.0 / 7 / attention_flops_per_s(rates, hardware, seq, width, true, is_fp8));
  if (has_wide_elements(run.knobs)) {
    attention = wide_attention_flops_per_s(rates, hardware, run.knobs.fused_attention);
  }
  const double scan = has_mixer(*run.model, spec::Mixer::gdn) ? rates.scan_delta : rates.scan;
  const double grouped = rate_of(grouped_recipe(run, recipe));
  const auto set = [&](Work work, double share) {
    hardware.efficiency[static_cast<size_t>(work)] = share;
  };
  hardware.peak_flops_per_s = std::max(peak, product);
  set(Work::product, product / hardware.peak_flops_per_s);
  // Narrow products reach the same share as the others of a peak that makes it their rate.
  if (is_narrow) {
    double& narrow_peak = recipe == spec::PrecisionRecipe::nvfp4 ? hardware.fp4_flops_per_s
                                                                 : hardware.fp8_flops_per_s;
    hardware.fp8_flops_per_s = 0;
    narrow_peak = rate_of(recipe) / product * hardware.peak_flops_per_s;
  }
  set(Work::grouped, rates.grouped * grouped / peak_flops_per_s(hardware, recipe));
  set(Work::attention, attention * revision / hardware.peak_flops_per_s);
  set(Work::scan, scan * peak * revision / hardware.peak_flops_per_s);
  hardware.half_rows[static_cast<size_t>(Work::product)] = rates.product_half_rows;
  hardware.half_rows[static_cast<size_t>(Work::grouped)] = rates.grouped_half_rows;
  // What communication takes from work beside it is in rates that were fitted to whole steps.
  hardware.comm_sm_ratio = 0;
  const double memory = revision / rates.memory_dense;
  for (const Work work : {Work::none, Work::light, Work::heavy}) set(work, std::min(1.0, memory));
  return hardware;
}

}  // namespace

spec::TrialSpec trial_of(const PlanRun& asked, const Rates& rates) {
  PlanRun run = asked;
  run.knobs = computed_knobs(asked);
  spec::TrialSpec trial;
  trial.model = *run.model;
  trial.hardware = machine_at(run, rates);
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

PlayedStep play_plan(const PlanRun& run, const Rates& rates, bool has_records) {
  const spec::TrialSpec trial = trial_of(run, rates);
  const double exchange = exchange_over_links(run);
  // Weights are gathered beside the next step's forward, which is not played.
  const double gathered = run.knobs.overlap_param_gather ? rates.data_exposed : 1;
  const auto transfer_of = [&](const plan::Instr& instr, const std::vector<int>&, int64_t ns) {
    const double share = plan::is_exchange_of_rows(instr)     ? exchange
                         : instr.op == plan::Op::param_gather ? gathered
                                                              : 1;
    return share == 1 ? ns : std::llround(share * static_cast<double>(ns));
  };
  const plan::Planned planned = plan::planned_of(computed_knobs(run));
  return play_traced(trial, CompiledStep(trial, {}, played_rows_ratio(run), planned), Calibration(),
                     has_records ? kMostRecords : 0, transfer_of);
}

}  // namespace moetune::tuner::planner
