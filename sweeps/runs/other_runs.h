// Logs that do not count: a folder may hold those of several jobs, and copies.
#pragma once

#include <string>
#include <vector>

#include "sweeps/runs/run_log.h"

namespace moetune::sweeps {

/// Keeps the logs of one run, the latest: by the times in logs that show a start (a launch's
/// banner, a configuration or a command), else by their names. Removes those that contradict it: in
/// who trains, ranks, device, or any setting that both state, such as sizes of the layout, of
/// batches and of the model; those that begin anew before it or behind it, where each shows a
/// start; what lies beside such logs; and copies of logs before them. A start that goes on from a
/// checkpoint is of the same run. Returns a sentence for each, of very many for some.
std::vector<std::string> remove_other_runs(std::vector<ForeignLog>& logs);

}  // namespace moetune::sweeps
