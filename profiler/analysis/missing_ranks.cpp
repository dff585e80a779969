#include "profiler/analysis/missing_ranks.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetune::profiler {
namespace {

/// Of the group that an operation communicates in; -1: not known.
int64_t group_size_of(const ImportedTrace& trace, uint32_t op) {
  const uint32_t comm = trace.ops[op].comm;
  return comm == kNoRow ? -1 : trace.comms[comm].group_size;
}

}  // namespace

int64_t known_ranks(std::span<const ImportedTrace> traces) {
  int64_t ranks = 1;
  for (const ImportedTrace& trace : traces) {
    ranks = std::max(ranks, trace.facts.world_size.value_or(1));
    for (const CommCall& comm : trace.comms) ranks = std::max<int64_t>(ranks, comm.group_size);
  }
  return ranks;
}

MissingRanks::MissingRanks(std::span<const ImportedTrace> traces,
                           const CollectiveMatching& matching)
    : traces_(traces), num_known_(known_ranks(traces)) {
  const int64_t num_given =
      std::ranges::count_if(traces, [](const auto& trace) { return !trace.ops.empty(); });
  num_ = std::max<int64_t>(0, num_known_ - num_given);
  if (num_ == 0) return;
  for (const ImportedTrace& trace : traces) is_complete_.emplace_back(trace.ops.size());
  for (const MatchedCollective& one : matching.matched) {
    for (const CollectivePart& part : one.parts) {
      const int64_t size = group_size_of(traces[part.trace], part.op);
      is_complete_[part.trace][part.op] =
          size > 0 && static_cast<int64_t>(one.parts.size()) >= size;
    }
  }
}

bool MissingRanks::may_delay(size_t trace, uint32_t op) const {
  return num_ > 0 && !is_complete_[trace][op] && group_size_of(traces_[trace], op) != 1;
}

std::string MissingRanks::waiting_text() const {
  return num_ == 1 ? "waiting for the one rank without a trace"
                   : fmt::format("waiting for one of the {} ranks without a trace", num_);
}

std::string MissingRanks::evidence_text() const {
  return fmt::format(
      "{} of the run's {} ranks {} no trace: waiting for {} counts as transfer; give the traces of "
      "all ranks",
      num_, num_known_, num_ == 1 ? "has" : "have", num_ == 1 ? "it" : "one of them");
}

}  // namespace moetune::profiler
