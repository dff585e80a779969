// How the ranks of a row's run are laid out, where the row states only some of the sizes.
#pragma once

#include "sweeps/planning/published_rows.h"
#include "sweeps/planning/row_reader.h"

namespace moetune::sweeps {

/// Sets tp, cp, pp and dp of the run, and returns how many ranks it has. What follows from the
/// other sizes is taken from them, else cp and pp are 1. Throws base::UsageError for sizes that
/// are missing or contradict each other.
int64_t read_layout(const RowReader& row, PublishedRow& result);

}  // namespace moetune::sweeps
