// The chain of causes that ends at the end of a step: each piece of work with the one thing it had
// to wait for, across the ranks. Exact in virtual time, where every start has a binding
// predecessor.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "profiler/analysis/classify.h"
#include "profiler/record.h"

namespace moetune::profiler {

class ReplayedRun;
class TraceIndex;

enum class PathClass : uint8_t {
  compute,
  dispatcher,
  transfer,  ///< communication, data moving
  wait,      ///< communication, a participant late that is in no trace; or the end of the step
  memcpy,
  host,     ///< launching, or returning from a synchronisation
  stalled,  ///< no predecessor explains it
  count
};
const char* name_of(PathClass path_class);

/// One link of the chain.
struct PathSegment {
  int64_t record_id = kNoRecord;  ///< kNoRecord before the first and after the last record
  /// The record's; "launch" and "host" for the host, "step_end" for the end.
  base::InternedString name;
  base::InternedString group;  ///< communication only
  PathClass path_class = PathClass::compute;
  int32_t rank = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

struct CriticalPath {
  std::vector<PathSegment>
      segments;  ///< ascending, touching, from the start to the end of the step
  std::map<PathClass, int64_t> ns_by_class;  ///< sums to the step
  std::map<int32_t, int64_t> ns_by_rank;     ///< sums to the step
};

/// Follows, from the record that ends last, the latest of: event producer, stream predecessor, own
/// launch (in this order when equal). Host launches are followed through the host's program order
/// and through its synchronisations. Errors as compute_budget.
CriticalPath critical_path(const StepTrace& trace, const ClassificationRules& rules);
CriticalPath critical_path(const TraceIndex& index);

/// The same across the ranks of a run: from the rank whose work ends last, and from communication
/// that waits for another rank on to that rank. So the time of those who wait is booked to what the
/// late one did. Empty without ranks.
CriticalPath critical_path(const ReplayedRun& run, const ClassificationRules& rules);

}  // namespace moetune::profiler
