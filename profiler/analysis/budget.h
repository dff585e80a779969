// The time budget of one step on one rank, in parts that add up exactly to the step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/analysis/classify.h"
#include "profiler/analysis/device_work.h"
#include "profiler/record.h"

namespace moetune::profiler {

class TraceIndex;

/// Communication of one group, or of all: volume, busy and exposed time, which are meaningful only
/// together, and what of it blocks compute.
struct GroupBudget {
  std::string group;         ///< empty for the whole communication and dispatcher set
  std::string dominant_op;   ///< record name that blocked longest; empty when nothing blocked
  bool is_pipeline = false;  ///< waiting here is pipeline bubble
  int64_t count = 0;
  int64_t bytes = 0;
  int64_t volume_ns = 0;  ///< sum of durations: device work, not wall time
  int64_t busy_ns = 0;    ///< union of its intervals
  int64_t exposed_ns =
      0;  ///< part of busy_ns not covered by compute or copies: upper bound of cost
  int64_t blocking_transfer_ns = 0;  ///< compute absent because its data was moving: recoverable
  int64_t blocking_wait_ns = 0;      ///< compute absent because a participant came late

  [[nodiscard]] int64_t blocking_ns() const { return blocking_transfer_ns + blocking_wait_ns; }
  /// Share of busy_ns that other device work covered; 0 without communication.
  [[nodiscard]] double overlap_ratio() const;
};

/// Definitions, U(x) being the length of the union over all streams, clipped to the step:
///   device_busy = U(all device records), device_idle = step - device_busy;
///   compute_busy = U(compute kernels), compute_absent = step - compute_busy;
///   occupied_not_computing = device_busy - compute_busy.
/// Each moment of compute_absent belongs to the compute kernel that ends the gap and is one of:
///  - blocking: the record that it waits for is communication, dispatcher work or a copy, and has
///    not ended. That record is the later of event producer and stream predecessor, followed back.
///    The last transfer_ns of a communication are transfer, what precedes them is wait. After the
///    last compute kernel, the last-ending record takes the kernel's place, and the rest of the
///    step is wait in kStepEndGroup. An earlier launch would not help here.
///  - launch_starved: no such record is left, and the host had not enqueued the kernel yet. If the
///    host was in a host_sync for unfinished device work, that work is the reason instead.
///  - device_shared: the kernel was enqueued, no record of this rank explains the wait, and others
///    were at work on the same device.
///  - dependency_stalled: the kernel was enqueued, and no record explains the wait.
/// compute_busy + launch_starved + blocking_transfer + blocking_wait + device_shared +
/// dependency_stalled + residual = step.
struct StepBudget {
  int32_t rank = 0;
  int32_t step = 0;
  int64_t step_ns = 0;
  int64_t device_busy_ns = 0;
  int64_t device_idle_ns = 0;
  int64_t compute_busy_ns = 0;
  int64_t compute_absent_ns = 0;
  int64_t occupied_not_computing_ns = 0;

  int64_t launch_starved_ns = 0;
  int64_t blocking_transfer_ns = 0;
  int64_t blocking_wait_ns = 0;    ///< jitter and pipeline bubble
  int64_t pipeline_bubble_ns = 0;  ///< the part of blocking_wait_ns in pipeline groups
  int64_t device_shared_ns = 0;    ///< 0 where the rank has a device of its own
  int64_t dependency_stalled_ns = 0;
  int64_t residual_ns = 0;  ///< always 0 unless the analysis is wrong

  int64_t recompute_busy_ns = 0;  ///< the part of compute_busy_ns with only recomputation running
  int64_t recompute_blocking_ns = 0;  ///< the part of blocking that recomputed communication caused
  int64_t host_sync_ns = 0;           ///< union of host_sync records
  int64_t host_sync_in_idle_ns = 0;   ///< part of host_sync_ns while the device was idle
  int64_t num_gaps = 0;               ///< maximal intervals without compute
  int64_t num_unresolved_gaps = 0;    ///< gaps with time in dependency_stalled
  int64_t num_launches = 0;           ///< host launches: a graph replay counts once
  int64_t flops = 0;

  GroupBudget communication;        ///< whole communication and dispatcher set, without copies
  std::vector<GroupBudget> groups;  ///< per group, copies included, longest blocking first

  [[nodiscard]] int64_t blocking_ns() const { return blocking_transfer_ns + blocking_wait_ns; }
};

/// Largest residual a budget may have; more is a bug to find, not to absorb.
constexpr int64_t kMaxResidualNs = 500'000;

/// Throws base::Error when the trace contradicts itself (a record that ends before it starts, an id
/// twice) or when the budget does not add up. `others`: what other ranks did on the same device; of
/// a rank that has one alone, nothing.
StepBudget compute_budget(const StepTrace& trace, const ClassificationRules& rules,
                          const DeviceWork& others = {});
StepBudget compute_budget(const TraceIndex& index, const ClassificationRules& rules,
                          const DeviceWork& others = {});

}  // namespace moetune::profiler
