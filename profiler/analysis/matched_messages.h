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

/// By pair of traces: estimates of how far the second clock is ahead, one per matched event.
using ClockShifts = std::map<std::pair<size_t, size_t>, std::vector<int64_t>>;

/// Matched messages. In each match only `parts` is set: first the sender, then the receiver.
struct MatchedMessages {
  std::vector<MatchedCollective> of_stages;  ///< between stages of a pipeline
  std::vector<MatchedCollective> others;     ///< such as in a ring of context parallelism
  int64_t num_others = 0;  ///< kernels of other messages, in traces that have them in common
  int64_t num_loose_exchanges = 0;  ///< that send and receive, and are in no match
  /// One estimate for each pair of traces whose clocks were not known before.
  ClockShifts shifts;
};

/// `clock_offsets_ns`: as in CollectiveMatching, as far as they are known. Matches the messages
/// between two ranks in one group by sequence, or by order if as many were sent as received. A
/// match counts if no message is received before it was sent, on the known clocks or on clocks that
/// can be shifted accordingly. Clocks that need no shift get none. Messages whose other rank no
/// file says are paired by their ends (messages_by_ends.h), on clocks that are known or of one
/// file: of a pipeline, or of nobody knows what group. The latter are of stages unless some rank
/// sends to one neighbour and receives from another, as in a ring. Of such stages those kernels are
/// paired by their ends, too, that send to a neighbour and receive from it.
MatchedMessages match_messages(std::span<const ImportedTrace> traces,
                               std::span<const std::optional<int64_t>> clock_offsets_ns);

}  // namespace moetune::profiler
