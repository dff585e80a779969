// Placements from the grid, bytes from the dispatcher, shares of bandwidth by published kernels.
#include "tuner/planner/exchange.h"

#include <algorithm>
#include <cmath>

#include "engine/spec/planned_links.h"
#include "tuner/planner/layer_sizes.h"

namespace moetune::tuner::planner {

namespace {

using spec::Dispatcher;

/// Share of a link's bandwidth that an exchange reaches. It may exceed 1 on the network: some of
/// the bytes that are counted there never leave the rank's own node.
struct LinkShares {
  double intra;
  double inter;
};
LinkShares shares_of(Dispatcher dispatcher, bool is_rack) {
  switch (dispatcher) {
    case Dispatcher::deepep:
      // Its kernels are for nodes of 8: in a larger domain of NVLink they are little faster than
      // NCCL's (5 % of a step of DeepSeek-V3 on GB200, where HybridEP gains another 14 %:
      // Megatron-LM's guide to that model).
      return {is_rack ? 0.65 : 0.78, 1.1};
    case Dispatcher::hybridep:
      return {0.78, 1.1};
    case Dispatcher::alltoall:
      return {0.6, 0.9};
    case Dispatcher::allgather:
      return {0.7, 0.8};
  }
  return {0.6, 0.9};
}

/// Multiprocessors that a dispatcher takes by itself (defaults of Megatron-Core, channels of NCCL).
double own_multiprocessors(Dispatcher dispatcher) {
  return dispatcher == Dispatcher::deepep ? 20 : 16;
}

/// What the busiest link of each kind is busy with at its full speed, for the balanced rows of a
/// micro-batch.
struct Moved {
  double intra_ns = 0;
  double inter_ns = 0;
  double latency_ns = 0;
};
Moved moved_by(const PlanRun& run, Dispatcher dispatcher) {
  const spec::PlanKnobs& k = run.knobs;
  const spec::HardwareSpec& hardware = *run.hardware;
  const spec::Placement placement =
      placement_of(hardware, spec::GridGroup{int64_t{k.ep} * k.etp, 1, 0});
  const spec::ModelSpec& model = *run.model;
  const int64_t width = model.moe_latent_size > 0 ? model.moe_latent_size : model.hidden_size;
  const auto tokens = static_cast<int64_t>(sequence_tokens(run));
  const int64_t element = has_wide_elements(k) ? 4 : 2;
  // Each slice of an expert counts as a destination.
  const spec::ExpertTraffic traffic{tokens, element * width,
                                    std::max<int64_t>(model.num_experts, 1) * k.etp,
                                    std::max<int64_t>(model.experts_per_token, 1) * k.etp};
  const spec::LinkBytes bytes = spec::dispatch_bytes(dispatcher, placement, traffic);
  const spec::LinkSpec& link = placement.num_nodes > 1 ? hardware.inter_node : hardware.intra_node;
  return {hardware.intra_node.transfer_ns(bytes.intra),
          hardware.inter_node.transfer_ns(bytes.inter), static_cast<double>(link.latency_ns)};
}

}  // namespace

double exchange_multiprocessors(const spec::PlanKnobs& knobs) {
  const bool is_flex =
      knobs.dispatcher == Dispatcher::deepep || knobs.dispatcher == Dispatcher::hybridep;
  if (is_flex && knobs.moe_flex_dispatcher_num_sms > 0) return knobs.moe_flex_dispatcher_num_sms;
  return own_multiprocessors(knobs.dispatcher);
}

double group_seconds(const spec::HardwareSpec& hardware, spec::CollectiveKind kind, double size,
                     double stride, double bytes) {
  if (size <= 1) return 0;
  const spec::GridGroup group{std::llround(size), std::llround(stride), 0};
  return 1e-9 * static_cast<double>(spec::placed_collective_ns(
                    hardware, kind, placement_of(hardware, group), std::llround(bytes)));
}

double exchange_seconds(const PlanRun& run) {
  const spec::PlanKnobs& k = run.knobs;
  if (int64_t{k.ep} * k.etp <= 1) return 0;
  constexpr int64_t kUsualNode = 8;
  const Moved moved = moved_by(run, k.dispatcher);
  const LinkShares shares = shares_of(k.dispatcher, run.hardware->devices_per_node > kUsualNode);
  // The dispatcher's own number of multiprocessors fills the links; fewer move less (assumed).
  const double few = std::max(1.0, own_multiprocessors(k.dispatcher) / exchange_multiprocessors(k));
  // Padded experts have as many rows on every rank, whatever was routed. Of what a capacity drops
  // without padding the price is kept: rates were fitted with it.
  const bool is_padded = k.pad_to_capacity && k.capacity_factor > 0;
  const double rows = is_padded ? expert_rows_ratio(run) : run.load;
  return 1e-9 *
         (moved.latency_ns +
          few * rows * std::max(moved.intra_ns / shares.intra, moved.inter_ns / shares.inter));
}

double exchange_over_links(const PlanRun& run) {
  const double seconds = exchange_seconds(run);
  if (seconds <= 0) return 1;
  const Moved moved = moved_by(run, Dispatcher::alltoall);
  return seconds * 1e9 / (moved.latency_ns + std::max(moved.intra_ns, moved.inter_ns));
}

}  // namespace moetune::tuner::planner
