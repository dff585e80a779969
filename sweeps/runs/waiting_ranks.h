// Who waited in vain in a run that hung, and for whom: by what the watchdogs of its ranks said.
#pragma once

#include <string>

#include "sweeps/runs/run_judgement.h"

namespace moetune::sweeps {

/// Of a run whose root is a collective that timed out: fills the ranks that waited and those that
/// were missing, and the sentence. Rules, the first that fits:
///  - Ranks that called another operation than most of their group in one place of it.
///  - All of the group had come: nobody is missing.
///  - Ranks of the run that waited for nothing are missing, where most of the run waited; where few
///    did, the one in a gap between them (groups are most often of neighbours).
///  - Who waits at an earlier operation of the same group than others is behind.
///  - Who had started fewer operations of the group than the one that was waited for is behind.
///  - Where all waited, those few that did in another operation than most; of two ranks the one
///    that began to wait clearly later.
///  - Who had started fewest operations of the group.
/// Two ranks that had each not come to what the other waited for wait for each other: neither is
/// the rank at fault. Where all ranks of the run waited and the first operation names nobody, one
/// that more ranks waited for may: if those it misses wait in the first.
void tell_who_waited(const AttemptParts& parts, const RunFacts& facts, RunFailure& failure);

/// Of a run that hung outside of NCCL: the one rank that did, where others had started collectives
/// of the same group.
void tell_who_was_idle(const AttemptParts& parts, const Failure& root, RunFailure& failure);

/// "10 min 00 s".
std::string words_of_seconds(double seconds);

}  // namespace moetune::sweeps
