#include "profiler/analysis/collective_waits.h"

#include <algorithm>

namespace moetune::profiler {

std::vector<WaitsByOp> waits_of(std::span<const ImportedTrace> traces,
                                const CollectiveMatching& matching) {
  std::vector<WaitsByOp> waits(traces.size());
  for (const MatchedCollective& one : matching.matched) {
    const CollectivePart& last = one.parts[one.last];
    for (const CollectivePart& part : one.parts) {
      const ImportedOp& op = traces[part.trace].ops[part.op];
      waits[part.trace][part.op] = {op.end_ns - one.transfer_ns, last};
    }
  }
  return waits;
}

SplitComm split_comm(const CauseSegment& segment, const WaitsByOp* waits) {
  SplitComm split;
  const int64_t ns = segment.end_ns - segment.start_ns;
  split.transfer_ns = ns;
  if (waits == nullptr) return split;
  if (const auto wait = waits->find(segment.op); wait != waits->end()) {
    const auto& [until_ns, last] = wait->second;
    split.wait_ns = std::clamp<int64_t>(until_ns - segment.start_ns, 0, ns);
    split.last = last;
  }
  split.transfer_ns = ns - split.wait_ns;
  return split;
}

}  // namespace moetune::profiler
