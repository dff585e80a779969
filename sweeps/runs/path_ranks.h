// Ranks that the places of a run's logs say, where their lines do not.
#pragma once

#include <vector>

#include "sweeps/runs/run_log.h"

namespace moetune::sweeps {

/// Gives the logs of one run the ranks of their paths, and with them what their lines state without
/// a rank. Known are torchrun's folders, ".../attempt_0/2/stderr.log", and names that end with the
/// number of a task, "job-4242-2.out", if files with all of the run's ranks lie there. Leaves logs
/// whose rank is known, and all where nodes may have the same numbers.
void name_ranks_by_paths(std::vector<ForeignLog>& logs);

}  // namespace moetune::sweeps
