// Where the time of all ranks of imported traces went, before anything is concluded from it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "profiler/analysis/collective_waits.h"
#include "profiler/analysis/group_costs.h"
#include "profiler/analysis/imported_roofline.h"
#include "profiler/analysis/judged_work.h"
#include "profiler/analysis/kernel_costs.h"
#include "profiler/analysis/matched_collectives.h"
#include "profiler/analysis/missing_ranks.h"
#include "profiler/analysis/trace_causes.h"
#include "profiler/analysis/uneven_collectives.h"
#include "profiler/analysis/wall.h"
#include "profiler/analysis/wall_label.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Sums of nanoseconds are over all ranks with device work. Waiting for a late rank is booked to
/// what that rank did meanwhile.
struct JudgedTime {
  /// Refers to the traces. Recomputation is memory's doing only where `memory` was short.
  JudgedTime(std::span<const ImportedTrace> traces, const DevicePeaks& peaks,
             const MemoryFacts& memory);

  int num_ranks = 0;                          ///< with device work that can be judged
  bool has_absurd_times = false;              ///< of a trace, which is left out (kMaxTraceNs)
  double windows_ns = 0;                      ///< of all ranks
  std::array<double, kNumWalls> shares = {};  ///< mean over the ranks
  std::vector<std::array<double, kNumWalls>> rank_shares;  ///< by trace, of its window
  /// Of each step the share in which the host of one rank was late, of the rank where it was late
  /// for longest; the mean over the steps. 0 where none are marked.
  double latest_host_share = 0;
  /// By trace, by label: lost time that this rank causes, on whichever rank it is lost.
  std::vector<std::array<double, kNumWalls>> blame;

  JudgedWork work;
  ImportedRoofline roofline;
  KernelCosts kernels;
  GroupCosts groups;
  HostTime host;                   ///< while it was late
  int64_t num_ops = 0;             ///< of the judged windows
  int64_t num_without_launch = 0;  ///< of these
  double recomputed_ratio = 0;     ///< of the windows, computed a second time: mean over the ranks
  double copy_ns = 0;              ///< copies to and from the host, alone
  double input_ns = 0;             ///< of these, those of input
  bool is_offload_one_way = true;  ///< of the tensors that go to the host none comes back

  CollectiveMatching matching;  ///< empty of one rank
  MissingRanks missing;
  double comm_exposed_ns = 0;
  double comm_blocking_ns = 0;
  double comm_waited_ns = 0;  ///< of that, for a rank that came late
  DoubtfulTime transfers;     ///< booked as communication
  DoubtfulTime stages;        ///< booked as pipeline
  UnevenCollectives uneven;   ///< of the transfers that are in doubt
  // Of the transfers:
  double loose_ns = 0;      ///< unmatched ones that may be messages
  double lacking_ns = 0;    ///< of Lack::record
  double untold_ns = 0;     ///< of Lack::time
  double peer_copy_ns = 0;  ///< copies between devices: nobody waits in them
};

}  // namespace moetune::profiler
