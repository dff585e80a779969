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
    : traces_(traces),
      num_known_(known_ranks(traces)),
      is_world_known_(std::ranges::any_of(
          traces, [](const auto& trace) { return trace.facts.world_size.has_value(); })) {
  const int64_t num_given =
      std::ranges::count_if(traces, [](const auto& trace) { return !trace.ops.empty(); });
  num_ = std::max<int64_t>(0, num_known_ - num_given);
  if (num_ == 0 && is_world_known_) return;
  for (const ImportedTrace& trace : traces) is_complete_.emplace_back(trace.ops.size());
  for (const MatchedCollective& one : matching.matched) {
    for (const CollectivePart& part : one.parts) {
      const int64_t size = group_size_of(traces[part.trace], part.op);
      is_complete_[part.trace][part.op] =
          size > 0 ? static_cast<int64_t>(one.parts.size()) >= size : num_ == 0;
    }
  }
  for (const MatchedCollective& one : matching.messages) {
    for (const CollectivePart& part : one.parts) is_complete_[part.trace][part.op] = true;
  }
}

bool MissingRanks::may_delay(size_t trace, uint32_t op) const {
  // The other device's program has no part in a copy.
  if (traces_[trace].ops[op].kind == ActivityKind::copy) return false;
  if (num_ == 0 && is_world_known_) return false;
  return !is_complete_[trace][op] && group_size_of(traces_[trace], op) != 1;
}

std::string MissingRanks::with_doubt(std::string summary, Wall label, const std::string& sub_cause,
                                     bool is_likely) const {
  const std::string cause = "(" + sub_cause;
  const size_t at = sub_cause.empty() ? std::string::npos : summary.find(cause);
  if (label == Wall::pipeline) {
    if (at == std::string::npos) return fmt::format("{} ({})", summary, waiting_text());
    return summary.replace(at + 1, sub_cause.size(), waiting_text());
  }
  return summary.insert(at == std::string::npos ? summary.size() : at + cause.size(),
                        (is_likely ? ", or more likely " : ", or ") + waiting_text());
}

std::string MissingRanks::waiting_text() const {
  if (num_ == 0) return "waiting for a rank without a trace";
  return num_ == 1 ? "waiting for the one rank without a trace"
                   : fmt::format("waiting for one of the {} ranks without a trace", num_);
}

Evidence MissingRanks::evidence(const std::string& wanted) const {
  const std::string then =
      fmt::format("counts as transfer, or as waiting for a stage; give the traces of {}all ranks",
                  wanted.empty() ? "" : wanted + " at least, best of ");
  if (num_ == 0) {
    return {"ranks_unknown", 1, "count",
            fmt::format("no trace says how many ranks the run has: waiting for one without a trace "
                        "{}",
                        then)};
  }
  return {"ranks_missing", static_cast<double>(num_), "count",
          fmt::format("{} of the run's {} ranks {} no trace: waiting for {} {}", num_, num_known_,
                      num_ == 1 ? "has" : "have", num_ == 1 ? "it" : "one of them", then)};
}

}  // namespace moetune::profiler
