// What each instruction of a program asks of the device: which function with which operands. The
// engine's binders say the same in another way; that the two agree is what the test shows.
#pragma once

#include <vector>

#include "tests/engine/program_places.h"
#include "tests/fakes/recording/tape.h"

namespace moetune::engine::testing {

/// The calls of an op in their order, on its stream. Throws Unplaced for an op that has no row in
/// the table, whose operands are not those that tell it from other ops, or which are not there.
std::vector<recording::Entry> calls_of_op(const Places& places, const plan::Instr& instr);

/// The call of a collective or message; throws as calls_of_op().
recording::Entry call_of_communication(const Places& places, const plan::Instr& instr);

/// Whether the op is one that runs in a forward pass, too.
bool has_forward(plan::Op op);
bool has_forward_communication(plan::Op op);

}  // namespace moetune::engine::testing
