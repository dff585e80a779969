// The same collective in the traces of several ranks: who came last, and how long the others waited
// for it. Ends of one instance agree, whatever the clocks, so they tell a right match from a wrong
// one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "profiler/analysis/kernel_classes.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// One rank's part of a matched collective.
struct CollectivePart {
  uint32_t trace = 0;  ///< which of the traces
  uint32_t op = 0;     ///< row of its ops
};

struct MatchedCollective {
  std::vector<CollectivePart> parts;  ///< at least two, of different traces
  size_t last = 0;                    ///< in `parts`: who came last, that is took the shortest time
  int64_t transfer_ns = 0;            ///< of the one that came last: the others' rest was waiting
};

/// Why a collective was not found on all ranks that have a trace and take part in it.
enum class Lack : uint8_t {
  none,
  record,  ///< the other rank was recorded meanwhile, as far as is known
  time,    ///< it was not: its trace begins later or ends earlier
};

struct CollectiveMatching {
  std::vector<MatchedCollective> matched;
  /// Messages between stages that two traces have: of each, first the part that sends. Two stages
  /// that send each other a message at once, each by one kernel, are one.
  std::vector<MatchedCollective> messages;
  /// Kernels that send a message and receive another (sends_and_receives), of nobody knows whom.
  int64_t num_loose_exchanges = 0;
  /// Communication kernels of traces that have any in common, messages between stages aside.
  int64_t num_ops = 0;
  int64_t num_unmatched = 0;  ///< of those
  /// Of the worst rank: median distance of its ends from others' after the clocks were aligned.
  int64_t residual_ns = 0;
  /// Which trace that is, where no other one has half of it: all are far from one that is off.
  std::optional<size_t> residual_trace;
  /// Two traces each that have as many collectives of one group, which do not end together, and no
  /// chain of such as do between them: they are of two runs, or lack records.
  std::vector<std::pair<uint32_t, uint32_t>> apart;
  /// By trace: added to its times, puts them on the clock of the first matched trace. Empty where
  /// no chain of common collectives leads there.
  std::vector<std::optional<int64_t>> clock_offsets_ns;
  /// By trace and row of its ops: collectives that lack a rank with a trace whose group they are
  /// of.
  std::vector<std::map<uint32_t, Lack>> lacks;

  [[nodiscard]] Lack lack_of(size_t trace, uint32_t op) const;
};

/// Which rows of the trace's comms are messages between the stages of a pipeline. Sends, receives
/// and what is named no collective are, in groups whose words say pipeline; never in those whose
/// words say another purpose. Where words say none, sends and receives are, unless their peers do
/// not look like neighbours of a stage: more than two of them, or some sent to and others received
/// from, as in a ring. Those of which the file says neither group nor other rank are not.
std::vector<bool> stage_messages_of(const ImportedTrace& trace);
/// The same for each trace, with what was matched as a message between stages.
std::vector<std::vector<bool>> stage_messages_of(std::span<const ImportedTrace> traces,
                                                 const CollectiveMatching& matching);
/// Whether the file says neither a communication's group nor its other rank.
inline bool says_no_partner(const CommCall& comm) {
  return comm.group == kNoRow && comm.description == kNoRow && comm.members == kNoRow &&
         comm.peer < 0;
}

/// Whether a communication sends one message and receives another, from and to whom no file says.
inline bool sends_and_receives(const ImportedTrace& trace, const CommCall& comm) {
  return says_no_partner(comm) && comm.collective != kNoRow &&
         trace.names[comm.collective] == kSendAndReceive;
}

/// Whether an operation is one whose partners the file does not say and that may be a message: its
/// kernel does such among other things.
bool may_be_message(const ImportedTrace& trace, uint32_t row);

/// By process group and sequence where the file says them, else by group, collective, size and
/// order. An order that shifts (lost or sampled records, another beginning) is seen by the ends:
/// then those that end together are paired (aligned_ends.h), and two traces whose instances do not
/// are not matched. Kernels that may be messages, of which the file says nothing, are matched only
/// by order, where all ranks that have such are. Messages by group and peers, too; a sequence or an
/// order is believed where no message is received before it was sent.
CollectiveMatching match_across_ranks(std::span<const ImportedTrace> traces);

}  // namespace moetune::profiler
