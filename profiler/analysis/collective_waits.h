// How long ranks waited in their collectives for the one that came last, and how long data moved.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "profiler/analysis/by_op.h"
#include "profiler/analysis/matched_collectives.h"
#include "profiler/analysis/trace_causes.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Of a matched collective.
struct CollectiveWait {
  int64_t until_ns = 0;  ///< when it no longer only waited
  CollectivePart last;   ///< of the rank that it waited for
};
using WaitsByOp = ByOp<CollectiveWait>;

/// By trace, of all that was matched.
std::vector<WaitsByOp> waits_of(std::span<const ImportedTrace> traces,
                                const CollectiveMatching& matching);

/// A segment of communication in two parts.
struct SplitComm {
  int64_t wait_ns = 0;      ///< for the rank that came last
  int64_t transfer_ns = 0;  ///< the rest: all, where nothing was matched
  CollectivePart last;      ///< of that rank, where something was
};
/// `waits`: null: nothing was matched.
SplitComm split_comm(const CauseSegment& segment, const WaitsByOp* waits);

}  // namespace moetune::profiler
