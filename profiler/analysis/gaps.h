// Why no compute kernel ran: each gap between compute kernels, cut into parts with one cause each.
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/analysis/intervals.h"
#include "profiler/analysis/trace_index.h"

namespace moetune::profiler {

enum class GapCause : uint8_t {
  launch_starved,
  transfer,            ///< of the record at `position`
  wait,                ///< of the record at `position`; kNoPosition: the end of the step
  dependency_stalled,  ///< unresolved
};

struct GapPart {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  GapCause cause = GapCause::dependency_stalled;
  int64_t position = kNoPosition;
};

/// Parts of one gap, disjoint, in no order; their lengths add up to the gap. `ending_kernel` is the
/// position of the compute kernel that starts at the gap's end, or kNoPosition for the gap that
/// ends the step. See StepBudget for the rules.
std::vector<GapPart> explain_gap(const TraceIndex& index, const Interval& gap,
                                 int64_t ending_kernel);

}  // namespace moetune::profiler
