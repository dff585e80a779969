// The rows of the table: every metric that there is.
#include "profiler/store/metrics.h"

#include <algorithm>
#include <array>

#include "kernels/base/error.h"
#include "kernels/base/step_parts.h"

namespace moetune::store {
namespace {

using enum Better;

constexpr auto kMetrics = std::to_array<MetricInfo>({
    // Speed, from timed steps that were not traced.
    {"step_ns", "ns", lower, "median time of a timed step"},
    {"step_ns_low", "ns", lower, "lower end of the median's confidence interval"},
    {"step_ns_high", "ns", lower, "upper end of the median's confidence interval"},
    {"raw_step_ns", "ns", lower,
     "median of the steps as they were timed; step_ns is that of the steps played with robust "
     "durations where there are any"},
    {"probe_ns", "ns", lower, "a fixed piece of work beside the steps, median"},
    {"machine_slowness_ratio", "ratio", lower,
     "how many times longer that took than at the sweep's start; step_ns is without it"},
    {"step_ns_min", "ns", lower, "fastest timed step"},
    {"step_ns_max", "ns", lower, "slowest timed step"},
    {"num_timed_steps", "count", none, "steps behind the median"},
    {"noise_ratio", "ratio", lower, "half width of the interval over the median"},
    {"tokens_per_s", "1/s", higher, "tokens trained per second by the whole run"},
    {"tokens_per_step", "count", none, "tokens in one global batch"},
    {"model_flops_per_step", "flops", none,
     "FLOPs the model needs for one step, without recompute"},
    {"executed_flops_per_step", "flops", none, "FLOPs run in one step, recompute included"},
    {"model_flops_per_s", "1/s", higher, "model FLOPs per second of the whole run"},
    {"mfu_ratio", "ratio", higher, "model FLOPs per second over the peak of all devices"},
    {"wall_step_ns", "ns", lower, "real time of one step on this machine"},
    {"wall_traced_step_ns", "ns", lower, "real time of one traced step on this machine"},
    {"tracing_wall_overhead_ratio", "ratio", lower, "real time: traced over untraced, minus one"},
    {"wall_total_ns", "ns", lower, "real time of the whole trial on this machine"},
    {"process_rss_bytes", "bytes", lower, "largest resident memory of the trial's process"},
    // Training.
    {"loss_first", "nats", none, "loss of the first step"},
    {"loss_final", "nats", lower, "loss of the last step"},
    {"aux_loss_final", "nats", none, "load-balancing loss of the last step"},
    {"z_loss_final", "nats", none, "router z loss of the last step"},
    {"grad_norm_final", "none", none, "gradient norm of the last step before clipping"},
    {"loss_difference_max", "nats", lower, "largest distance from the reference loss"},
    // Memory.
    {"peak_bytes", "bytes", lower, "largest memory in use"},
    {"capacity_bytes", "bytes", none, "memory a rank may use"},
    {"memory_error_ratio", "ratio", lower, "predicted over measured peak, minus one, absolute"},
    {"num_allocations", "count", lower, "allocations the ledger booked"},
    {"sm_active_ratio", "ratio", none, "cycles of the traced step in which SMs had work"},
    {"tensor_active_ratio", "ratio", higher, "cycles of the traced step with tensor pipes active"},
    {"dram_read_bytes", "bytes", lower, "read from device memory in the traced step"},
    {"dram_write_bytes", "bytes", lower, "written to device memory in the traced step"},
    {"tracing_interface_ns", "ns", lower,
     "what CUPTI says that tracing cost in the traced step, over all threads"},
    {"lost_records", "count", lower, "records of traced steps that CUPTI had no room for"},
    {"kernel_workspace_bytes", "bytes", lower, "device memory that kernels hold as workspaces"},
    {"num_graphs", "count", lower, "CUDA graphs captured"},
    {"num_graph_replays", "count", higher, "launches of captured graphs"},
    {"num_graphs_given_up", "count", lower,
     "parts run without a graph because their buffers were never twice in the same place"},
    // The budget of a traced step: the terms of profiler/analysis/budget.h.
    {"traced_step_ns", "ns", none, "window of the traced step"},
    {"tracing_overhead_ratio", "ratio", lower, "traced over untraced step time, minus one"},
    {"device_busy_ns", "ns", none, "union of everything on the device"},
    {"device_idle_ns", "ns", lower, "step without device_busy"},
    {"compute_busy_ns", "ns", none, "union of the compute kernels"},
    {"compute_absent_ns", "ns", lower, "step without compute_busy"},
    {"occupied_not_computing_ns", "ns", lower, "device busy, but not computing"},
    {"launch_starved_ns", "ns", lower, "no compute: the host had not enqueued it"},
    {"blocking_ns", "ns", lower, "no compute: it waited for communication or a copy"},
    {"blocking_transfer_ns", "ns", lower, "no compute: its data was moving"},
    {"blocking_wait_ns", "ns", lower, "no compute: a participant came late"},
    {"pipeline_bubble_ns", "ns", lower, "the part of blocking_wait in pipeline groups"},
    {"device_shared_ns", "ns", lower, "no compute: enqueued, and other ranks used the device"},
    {"dependency_stalled_ns", "ns", lower, "no compute: enqueued, and nothing explains it"},
    {"residual_ns", "ns", lower, "what the budget leaves unexplained"},
    {"recompute_busy_ns", "ns", lower, "compute that only repeats the forward pass"},
    {"recompute_blocking_ns", "ns", lower, "blocking that recomputed communication caused"},
    {"host_sync_ns", "ns", lower, "host waits for the device"},
    {"host_sync_in_idle_ns", "ns", lower, "time that the host waited while the device was idle"},
    {"num_gaps", "count", lower, "intervals without compute"},
    {"num_unresolved_gaps", "count", lower, "gaps without compute that have time nothing explains"},
    {"num_skipped_steps", "count", lower, "steps whose gradients were NaN or infinite: no update"},
    {"num_launches", "count", lower, "host launches of one step; a graph replay counts once"},
    {"flops", "flops", none, "FLOPs of one traced step"},
    // Communication; with a suffix such as ".ep" for one group.
    {"comm_count", "count", none, "communication operations of one step"},
    {"comm_bytes", "bytes", lower, "bytes sent in one step"},
    {"comm_volume_ns", "ns", none, "sum of communication durations"},
    {"comm_busy_ns", "ns", none, "union of communication"},
    {"comm_exposed_ns", "ns", lower, "communication not covered by other device work"},
    {"overlap_ratio", "ratio", higher, "covered share of communication"},
    {"jitter_ns", "ns", lower, "communication spent waiting for the last participant"},
    {"transfer_proxy_ns", "ns", none, "shortest duration over the participants, summed"},
    {"num_matched", "count", none, "collectives found on several participants"},
    {"num_unmatched", "count", none, "collectives found on one participant only"},
    // The walls: what of the step would be gained without all causes of one, by replay.
    {"memory_wall_ratio", "ratio", lower, "the step would be shorter without memory's causes"},
    {"communication_wall_ratio", "ratio", lower,
     "the step would be shorter without communication's"},
    {"host_wall_ratio", "ratio", lower, "the step would be shorter without the host's"},
    {"pipeline_wall_ratio", "ratio", lower, "the step would be shorter without the pipeline's"},
    {"imbalance_wall_ratio", "ratio", lower, "the step would be shorter with even ranks"},
    {"compute_wall_ratio", "ratio", none, "share of the step that computes"},
    {"unknown_wall_ratio", "ratio", lower, "share of the step that nothing explains"},
    {"dominant_ratio", "ratio", lower, "share of the group that blocks longest"},
    {"recoverable_ns", "ns", lower, "time that the binding wall could give back at most"},
    {"gain_ceiling_ratio", "ratio", none,
     "throughput gained without all causes of the binding wall"},
    // The critical path of the slowest rank, by kind of work.
    {"critical_path_ns", "ns", none, "of a rank: its part of the critical path"},
    {"critical_compute_ns", "ns", none, "compute on the critical path"},
    {"critical_dispatcher_ns", "ns", none, "packing and routing on the critical path"},
    {"critical_transfer_ns", "ns", none, "data movement on the critical path"},
    {"critical_wait_ns", "ns", none, "waits for ranks without a trace on the critical path"},
    {"critical_memcpy_ns", "ns", none, "copies on the critical path"},
    {"critical_host_ns", "ns", none, "launches and synchronisation on the critical path"},
    {"critical_stalled_ns", "ns", none, "unexplained time on the critical path"},
});

}  // namespace

std::span<const MetricInfo> metric_table() { return kMetrics; }

const MetricInfo& metric_info(std::string_view name) {
  std::string_view base_name = name;
  if (const size_t dot = name.find('.'); dot != std::string_view::npos) {
    if (base::find_group(name.substr(dot + 1)) != nullptr) base_name = name.substr(0, dot);
  }
  const auto* found = std::ranges::find(kMetrics, base_name, &MetricInfo::name);
  if (found == kMetrics.end()) {
    throw base::Error(fmt::format(
        "metric '{}' is unknown; add a row to the table in profiler/store/metrics.cpp", name));
  }
  return *found;
}

const char* name_of(Better better) {
  switch (better) {
    case lower:
      return "lower";
    case higher:
      return "higher";
    case none:
      return "none";
  }
  return "?";
}

}  // namespace moetune::store
