// From a trial to the program of each rank.
#pragma once

#include "engine/plan/program.h"

namespace moetune::plan {

/// The step of `rank`. The trial must satisfy its constraints.
StepProgram compile(const spec::TrialSpec& trial, int rank);

/// Checks what every program has to hold: each wait comes after its record, nothing routed is
/// sized before its counts are fetched, each buffer is made once and ended once. Throws base::Error
/// that names the instruction.
void check(const StepProgram& program);

}  // namespace moetune::plan
