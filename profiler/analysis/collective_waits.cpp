#include "profiler/analysis/collective_waits.h"

#include <algorithm>
#include <utility>

namespace moetune::profiler {

std::vector<WaitsByOp> waits_of(std::span<const ImportedTrace> traces,
                                const CollectiveMatching& matching) {
  std::vector<std::vector<WaitsByOp::Entry>> waits(traces.size());
  for (const MatchedCollective& one : matching.matched) {
    const CollectivePart& last = one.parts[one.last];
    for (const CollectivePart& part : one.parts) {
      const ImportedOp& op = traces[part.trace].ops[part.op];
      waits[part.trace].push_back({part.op, {op.end_ns - one.transfer_ns, last}});
    }
  }
  return sorted_by_op<CollectiveWait>(std::move(waits));
}

SplitComm split_comm(const CauseSegment& segment, const WaitsByOp* waits) {
  SplitComm split;
  const int64_t ns = segment.end_ns - segment.start_ns;
  split.transfer_ns = ns;
  if (waits == nullptr) return split;
  if (const CollectiveWait* wait = waits->find(segment.op)) {
    split.wait_ns = std::clamp<int64_t>(wait->until_ns - segment.start_ns, 0, ns);
    split.last = wait->last;
  }
  split.transfer_ns = ns - split.wait_ns;
  return split;
}

}  // namespace moetune::profiler
