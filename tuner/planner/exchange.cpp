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

/// Rows of a micro-batch, balanced. Each slice of an expert counts as a destination.
spec::ExpertTraffic traffic_of(const PlanRun& run) {
  const spec::ModelSpec& model = *run.model;
  const int64_t width = model.moe_latent_size > 0 ? model.moe_latent_size : model.hidden_size;
  const int64_t element = has_wide_elements(run.knobs) ? 4 : 2;
  return {static_cast<int64_t>(sequence_tokens(run)), element * width,
          std::max<int64_t>(model.num_experts, 1) * run.knobs.etp,
          std::max<int64_t>(model.experts_per_token, 1) * run.knobs.etp};
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
  const int64_t ranks = int64_t{k.ep} * k.etp;
  if (ranks <= 1) return 0;
  const spec::HardwareSpec& hardware = *run.hardware;
  const spec::Placement placement = placement_of(hardware, spec::GridGroup{ranks, 1, 0});
  const spec::LinkBytes bytes = spec::dispatch_bytes(k.dispatcher, placement, traffic_of(run));
  constexpr int64_t kUsualNode = 8;
  const LinkShares shares = shares_of(k.dispatcher, run.hardware->devices_per_node > kUsualNode);
  const double intra = hardware.intra_node.transfer_ns(bytes.intra) / shares.intra;
  const double inter = hardware.inter_node.transfer_ns(bytes.inter) / shares.inter;
  const double latency = static_cast<double>(
      placement.num_nodes > 1 ? hardware.inter_node.latency_ns : hardware.intra_node.latency_ns);
  // The dispatcher's own number of multiprocessors fills the links; fewer move less (assumed).
  const double few = std::max(1.0, own_multiprocessors(k.dispatcher) / exchange_multiprocessors(k));
  // Padded experts have as many rows on every rank, whatever was routed. Of what a capacity drops
  // without padding the price is kept: rates were fitted with it.
  const bool is_padded = k.pad_to_capacity && k.capacity_factor > 0;
  const double rows = is_padded ? expert_rows_ratio(run) : run.load;
  return 1e-9 * (latency + few * rows * std::max(intra, inter));
}

double played_rows_ratio(const PlanRun& run) {
  return std::clamp<double>(expert_rows_ratio(run), 1, run.knobs.ep);
}

namespace {

/// At the links' full speed, as it is played.
double link_seconds(const PlanRun& run) {
  const spec::HardwareSpec& hardware = *run.hardware;
  const spec::ExpertTraffic traffic = traffic_of(run);
  const int64_t ranks = int64_t{run.knobs.ep} * run.knobs.etp;
  const auto size = static_cast<double>(ranks);
  const double once =
      static_cast<double>(traffic.num_tokens) * static_cast<double>(traffic.token_bytes);
  switch (run.knobs.dispatcher) {
    case Dispatcher::alltoall:
      return group_seconds(hardware, spec::CollectiveKind::all_to_all, size, 1,
                           played_rows_ratio(run) * once * static_cast<double>(traffic.top_k));
    case Dispatcher::allgather:
      return group_seconds(hardware, spec::CollectiveKind::all_gather, size, 1, size * once);
    case Dispatcher::deepep:
    case Dispatcher::hybridep:
      break;
  }
  const spec::Placement placement = placement_of(hardware, spec::GridGroup{ranks, 1, 0});
  return 1e-9 * static_cast<double>(spec::links_ns(
                    hardware, spec::dispatch_bytes(run.knobs.dispatcher, placement, traffic)));
}

}  // namespace

double exchange_over_links(const PlanRun& run) {
  const double seconds = exchange_seconds(run);
  const double links = seconds > 0 ? link_seconds(run) : 0;
  return links > 0 ? seconds / links : 1;
}

}  // namespace moetune::tuner::planner
