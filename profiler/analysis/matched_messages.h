// The two ends of a message, in the traces of the rank that sends and of the one that receives.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "profiler/analysis/matched_collectives.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// For two traces, how far the second clock is ahead, by each thing that both have.
using ClockShifts = std::map<std::pair<size_t, size_t>, std::vector<int64_t>>;

/// Of each match only `parts` is set: first the one that sends, then the one that receives.
struct MatchedMessages {
  std::vector<MatchedCollective> of_stages;  ///< between stages of a pipeline
  std::vector<MatchedCollective> others;     ///< as a ring of context parallelism has them
  int64_t num_others = 0;  ///< kernels of such, of traces that have them in common
  /// Of pairs of traces whose clocks are not known yet: one each.
  ClockShifts shifts;
};

/// `clock_offsets_ns` by trace, as CollectiveMatching has them, of what is known by then. Of the
/// messages between two ranks in one group, either the sequences belong together or, where as many
/// were sent as received, the order: where no message is received before it was sent, on clocks
/// that are known or that can be shifted so. Clocks that need no shift get none.
MatchedMessages match_messages(std::span<const ImportedTrace> traces,
                               std::span<const std::optional<int64_t>> clock_offsets_ns);

}  // namespace moetune::profiler
