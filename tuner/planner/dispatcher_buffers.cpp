// Sizes of DeepEP's and HybridEP's buffers. Counters and flags of a few KiB are left out.
#include "tuner/planner/dispatcher_buffers.h"

#include <algorithm>
#include <cmath>

#include "engine/spec/planned_links.h"
#include "tuner/planner/exchange.h"
#include "tuner/planner/layer_sizes.h"
#include "tuner/planner/memory_rows.h"

namespace moetune::tuner::planner {

namespace {

constexpr double kRowsOfScale = 128;

double row_bytes(const PlanRun& run) {
  const int64_t latent = run.model->moe_latent_size;
  const double width = f64(latent > 0 ? latent : run.model->hidden_size);
  return width * (has_wide_elements(run.knobs) ? 4 : 2);
}

double rounded_up(double value, double unit) { return std::ceil(value / unit) * unit; }

double deepep_bytes(const PlanRun& run, int64_t ranks) {
  /// What Buffer recommends for groups up to so many ranks; larger ones take the last.
  struct Config {
    int64_t ranks;
    double rows_of_peer;  ///< received over NVLink, in each channel
    double sent_rows;     ///< a chunk over the network: received ones are whole chunks
  };
  constexpr Config kConfigs[] = {{8, 256, 6},   {16, 288, 20},  {64, 288, 8},
                                 {96, 480, 12}, {128, 560, 12}, {160, 720, 12}};
  constexpr double kRowsOfNode = 128;
  constexpr int64_t kNode = 8;
  // Of a row beside itself: where it comes from, and room for 128 experts and 128 scales.
  constexpr double kTopK = 128;
  const double beside = 8 + kTopK * (8 + kWide) + kTopK * kWide;
  const Config* config = std::begin(kConfigs);
  while (config + 1 != std::end(kConfigs) && config->ranks < ranks) ++config;
  const double channels = std::floor(exchange_multiprocessors(run.knobs) / 2);
  const double near = f64(std::min(ranks, kNode));
  const double bytes = figure_of<MemoryRule::deepep_workspace>() +
                       channels * near * config->rows_of_peer * (row_bytes(run) + beside);
  if (ranks <= kNode) return bytes;
  const double nodes = std::ceil(f64(ranks) / f64(kNode));
  constexpr double kSpare = 1 << 20;
  constexpr double kControl = 16;
  const double over_network = 2 * channels * nodes * rounded_up(kRowsOfNode, config->sent_rows) *
                                  (row_bytes(run) + beside + kControl) +
                              kSpare;
  return bytes + rounded_up(over_network, figure_of<MemoryRule::deepep_heap>());
}

double hybridep_bytes(const PlanRun& run, int64_t ranks) {
  const spec::Placement placement = spec::placement_of(*run.hardware, spec::GridGroup{ranks, 1, 0});
  constexpr double kTokenUnit = 16;
  const double tokens =
      rounded_up(sequence_tokens(run) / static_cast<double>(run.ep_chunks), kTokenUnit);
  const double experts = f64(run.model->num_experts) / run.knobs.ep;
  const double scales = row_bytes(run) / 2 / kRowsOfScale * kWide;
  const double row = row_bytes(run);
  const double near_row = row + kWide * experts * f64(placement.most_in_a_node);
  // One for both directions.
  double bytes = f64(ranks) * tokens * (near_row + scales);
  if (placement.num_nodes == 1) return bytes;
  const double others = f64(placement.num_nodes) - 1;
  // Dispatch: what the rank sends, and what comes from other domains; combine: sums to and fro.
  bytes += tokens * (row + kWide * experts * f64(ranks) + scales);
  bytes += tokens * others * (near_row + scales);
  bytes += 2 * tokens * others * near_row;
  return bytes;
}

}  // namespace

double dispatcher_buffer_bytes(const PlanRun& run) {
  const int64_t ranks = int64_t{run.knobs.ep} * run.knobs.etp;
  if (ranks <= 1 || run.model->num_experts == 0) return 0;
  switch (run.knobs.dispatcher) {
    case spec::Dispatcher::deepep:
      return deepep_bytes(run, ranks);
    case spec::Dispatcher::hybridep:
      return hybridep_bytes(run, ranks);
    default:
      return 0;
  }
}

}  // namespace moetune::tuner::planner
