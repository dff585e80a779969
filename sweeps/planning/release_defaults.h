// What a framework's release does where a row of a published table does not say.
#pragma once

#include "sweeps/planning/published_rows.h"
#include "sweeps/planning/row_reader.h"

namespace moetune::sweeps {

/// Sets the knobs that the row leaves open as the performance recipes of its release set them for
/// such a model on such a machine, and notes each in `assumed`. Rules go by kinds of blocks,
/// machines and dates, never by a model's name. What then is still open is noted, too, and counted
/// where it changes the speed. Call before what the row states is read, but for its sizes,
/// precision, task, optimizer and sharding.
void apply_release_defaults(const RowReader& row, PublishedRow& result);

}  // namespace moetune::sweeps
