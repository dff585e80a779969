// How long ranks waited in their collectives for the one that came last, and how long data moved.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "profiler/analysis/matched_collectives.h"
#include "profiler/analysis/trace_causes.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// By row of a trace's ops: until when a matched collective only waited, and the part of the rank
/// that it waited for.
using WaitsByOp = std::map<uint32_t, std::pair<int64_t, CollectivePart>>;

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
