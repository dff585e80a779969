// From a trial to the program of each rank.
#pragma once

#include "engine/plan/planned.h"
#include "engine/plan/program.h"

namespace moetune::plan {

/// The step of `rank`. The trial must satisfy its constraints. `planned`: what only plans know.
StepProgram compile(const spec::TrialSpec& trial, int rank, const Planned& planned = {});

/// Checks what every program has to hold, in one walk over the step: each wait comes after its
/// record in the item, nothing routed is sized before its counts are fetched and its route is
/// finished, each buffer is made once, is there while it is used and ends once, parameters are used
/// between their acquire and release, and what is sharded is whole by then. Whether ranks match
/// each other is the player's business. Throws base::Error that names the item and the instruction.
void check(const StepProgram& program);

}  // namespace moetune::plan
