// Formulas for single choices, and the list of those without one.
#include "tuner/planner/priced_choices.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tuner/planner/layer_sizes.h"
#include "tuner/planner/memory_profile.h"
#include "tuner/planner/rates.h"

namespace moetune::tuner::planner {

namespace {

/// By the names of plan_knob_table(). Of sequence_parallel only the messages between stages are
/// priced, not what it is for: norms of fewer tokens, and other collectives.
constexpr std::array<std::string_view, 13> kWithoutPrice = {"moe_permute_fusion",
                                                            "cross_entropy",
                                                            "optimizer",
                                                            "exp_avg",
                                                            "exp_avg_sq",
                                                            "main_params",
                                                            "fused_activation",
                                                            "gradient_accumulation_fusion",
                                                            "delay_wgrad_compute",
                                                            "optimizer_instances",
                                                            "precision_aware_optimizer",
                                                            "sequence_parallel",
                                                            "cuda_graph_warmup_steps"};

/// Of a layer and micro-batch, what goes to the host's memory and comes back.
double bytes_to_host(const PlanRun& run, spec::LayerKind kind, int64_t window) {
  const spec::PlanKnobs& k = run.knobs;
  // Nothing is kept then that could be sent.
  if (k.recompute.has(spec::PlanRecompute::full)) return 0;
  const LayerSizes sizes = sizes_of(run, kind, window);
  double bytes = 0;
  for (const SavedTerm& term : saved_terms()) {
    const bool is_kept = (k.recompute & term.dropped_by).empty();
    if (!is_kept || (k.offload & term.offloaded_by).empty()) continue;
    if (term.is_there == nullptr || term.is_there(sizes, k)) bytes += term.bytes(sizes, k);
  }
  return bytes;
}

}  // namespace

double num_multiprocessors(const spec::HardwareSpec& hardware) {
  if (is_of_amd(hardware)) return 304;
  switch (generation_of(hardware)) {
    case Generation::ampere:
      return 108;
    case Generation::hopper:
      return 132;
    case Generation::blackwell:
      return 148;
  }
  return 132;
}

double ungrouped_slowness(const PlanRun& run, const OpWork& op) {
  constexpr double kTile = 128;
  const spec::ModelSpec& model = *run.model;
  const double width = f64(model.moe_latent_size > 0 ? model.moe_latent_size : model.hidden_size);
  // row_flops are two for each element of all the experts' matrices.
  const double inner = op.row_flops / 2 / op.matrices / width;
  const double rows = op.row_flops > 0 ? op.flops / op.row_flops : 0;
  if (rows <= 0 || inner < 1) return 1;
  const auto tiles_in = [](double size) { return std::max(1.0, std::ceil(size / kTile)); };
  const bool is_wide_in = (op.op == plan::Op::expert_fc1) == (op.pass != plan::Pass::forward);
  const double tiles = op.pass == plan::Pass::wgrad
                           ? tiles_in(inner) * tiles_in(width)
                           : tiles_in(rows) * tiles_in(is_wide_in ? width : inner);
  const double at_once = num_multiprocessors(*run.hardware);
  return std::ceil(tiles / at_once) * at_once / tiles;
}

double more_launches(const LayerWork& work) {
  double launches = 0;
  double experts = 1;
  for (const OpWork& op : work.ops) {
    if (op.work == spec::Work::grouped) experts = std::max(experts, op.matrices);
    if (op.work == spec::Work::grouped || op.op == plan::Op::expert_act) ++launches;
  }
  return launches * (experts - 1);
}

ScoreBytes score_bytes(const PlanRun& run, spec::LayerKind kind, int64_t window) {
  if (kind.mixer != spec::Mixer::gqa && kind.mixer != spec::Mixer::mla) return {};
  const LayerSizes sizes = sizes_of(run, kind, window);
  const double scores = sizes.tokens * f64(run.model->num_heads) / sizes.tp * sizes.seq;
  const double of_dropout = run.model->attention_dropout > 0 ? 1 + 2 * sizes.element : 0;
  return {scores * (4 * sizes.element + of_dropout), scores * (7 * sizes.element + of_dropout)};
}

double exposed_copies(const PlanRun& run, spec::LayerKind kind, int64_t window, double seconds) {
  const double one_way =
      bytes_to_host(run, kind, window) / plan::host_link_bytes_per_s(*run.hardware);
  const double forward = seconds / 3;
  return std::max(0.0, one_way - forward) + std::max(0.0, one_way - (seconds - forward));
}

bool has_price_in_time(std::string_view knob) {
  return std::ranges::find(kWithoutPrice, knob) == kWithoutPrice.end();
}

}  // namespace moetune::tuner::planner
