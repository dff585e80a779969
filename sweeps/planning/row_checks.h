// Whether the run of a row can be at all: what a row says that cannot be true is refused, instead
// of priced as something else.
#pragma once

#include "sweeps/planning/published_rows.h"
#include "sweeps/planning/row_reader.h"

namespace moetune::sweeps {

/// Of a row whose run is read. Throws base::UsageError, with a sentence, for ratios out of range,
/// for sizes that contradict each other, and for rules that bind any engine. Rules of Megatron-Core
/// that it breaks are told in `assumed`: published runs break some.
void check_run_of_row(const RowReader& row, PublishedRow& result);

}  // namespace moetune::sweeps
