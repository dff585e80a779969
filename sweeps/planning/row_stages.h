// Which layers the stages of a row's pipeline have: a layout, layers of each stage, or what has to
// be where neither is stated.
#pragma once

#include "sweeps/planning/published_rows.h"
#include "sweeps/planning/row_reader.h"

namespace moetune::sweeps {

/// Behind the sizes of the row. Throws base::UsageError for a layout or a split that is none of the
/// model's.
void read_stages(const RowReader& row, PublishedRow& result);

}  // namespace moetune::sweeps
