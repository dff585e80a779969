// Whether a device that runs its streams as freely as it may would find every operand as the
// program means it: two calls that touch the same memory, one of them writing, have to be ordered
// by a stream, by an event or by the host.
#pragma once

#include "tests/fakes/recording/tape.h"

namespace moetune::recording {

/// The pairs of calls of the whole tape that no order holds apart, at most `limit` of them, in
/// words. The host orders what it launches after a copy to it or a synchronisation behind what it
/// waited for. An operand is taken to be all memory from its first element to its last.
std::vector<std::string> unordered_pairs(const Tape& tape, size_t limit = 10);

}  // namespace moetune::recording
