// What a row says of recomputation, in the many ways that people write it.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/plan_knobs.h"
#include "sweeps/planning/row_reader.h"

namespace moetune::sweeps {

/// Reads the key recompute into the knobs that speak of it, which are as nobody set them. `assumed`
/// gets a line for whatever is not what the row says to the letter. False: something is not known,
/// so that more may be recomputed than was read.
bool read_recompute(const RowReader& row, spec::PlanKnobs& knobs,
                    std::vector<std::string>& assumed);

}  // namespace moetune::sweeps
