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
  // The engine has them, and what is played is in bf16.
  if (knobs.precision == spec::PrecisionRecipe::fp32) words.emplace_back("fp32 products");
  for (const spec::EngineGap& gap : spec::engine_gaps(knobs)) {
    if (gap.is_in_played_step) continue;
    words.push_back(gap.stand_in.empty() ? gap.what
                                         : fmt::format("{} ({})", gap.what, gap.stand_in));
  }
  return words;
}

PlayedStep play_plan(const PlanRun& run, const Rates& rates, bool has_records) {
  const spec::TrialSpec trial = trial_of(run, rates);
  const double exchange = exchange_over_links(run);
  const auto transfer_of = [&](const plan::Instr& instr, const std::vector<int>&, int64_t ns) {
    return plan::is_exchange_of_rows(instr) ? std::llround(exchange * static_cast<double>(ns)) : ns;
  };
  const plan::Planned planned = plan::planned_of(computed_knobs(run));
  return play_traced(trial, CompiledStep(trial, {}, played_rows_ratio(run), planned), Calibration(),
                     has_records ? kMostRecords : 0, transfer_of);
}

}  // namespace moetune::tuner::planner
